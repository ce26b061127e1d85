//! `rpcrdma get`: copies files from a server.

mod receive;
mod stream;
mod writers;

use crate::copy::attributes::{Kept, Wanted, opened_mode};
use crate::copy::decide::{Action, Skip};
use crate::copy::directory::{LocalDir, LocalName};
use crate::copy::entry::split;
use crate::copy::links::{FileKey, FirstCopy, Links, note_kept};
use crate::copy::made::Made;
use crate::copy::replaced;
use crate::copy::tree::{Tree, local};
use crate::copy::{
    Copy, CopyArgs, Held, Inside, Last, Options, Other, Plan, Root, STREAM, Shared, Step, Target,
    Way, delete, server, unfinished,
};
use crate::failure::{Ended, Usage};
use crate::partial::{self, Naming};
use crate::session::{FileError, Session, parse_url};
use crate::show;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use nfs_client::{Again, Export, NfsUrl, Node};
use nfs_proto::{FileType, Status};
use receive::lacks_attributes;
use rpcrdma::Client;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use writers::Writers;

/// Copy files from a server
#[derive(Args, Debug)]
#[command(override_usage = "rpcrdma get [OPTIONS] <URL>... [DEST]")]
#[command(after_help = "Examples:
  rpcrdma get nfs://127.0.0.1/file
  rpcrdma get nfs://127.0.0.1/file other-name
  rpcrdma get -r nfs://127.0.0.1/a nfs://127.0.0.1/b dir/
  rpcrdma get nfs://127.0.0.1/backup.tar - | tar -t
  rpcrdma get -r --exclude '*.tmp' nfs://127.0.0.1/photos .
  rpcrdma get -rp --delete nfs://127.0.0.1/photos/. photos
  rpcrdma get -r --delete --dry-run nfs://127.0.0.1/a/. a
  rpcrdma get --resume nfs://127.0.0.1/disk.img images/
  rpcrdma get --sparse always nfs://127.0.0.1/disk.img .

If DEST is an existing directory, a source directory is copied into it; otherwise it becomes \
DEST. URL/. copies only the contents of a directory. Conflicts, such as a file where a directory \
is needed, are found before anything is copied; then nothing is.

A file gets its name when it is complete, replacing a file of that name. A symbolic link at DEST \
is followed; a device or FIFO named as DEST is written to. An interrupted copy leaves no \
incomplete file. Incomplete files of a killed copy are removed by the next copy into the same \
directory when they are 24 hours old.

On a terminal, progress and a summary are shown. If the server does not answer for 5 seconds, a \
message says so; calls fail after --timeout. Ctrl-C, SIGTERM and SIGHUP clean up and end the \
command: a shell sees 130, 143 or 129.")]
pub(crate) struct GetArgs {
    /// nfs://HOST[:PORT]/PATH of files, then the destination: a file, a directory, or - for
    /// standard output [default: .]
    #[arg(value_name = "URL", required = true)]
    paths: Vec<OsString>,

    #[command(flatten)]
    copy: CopyArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &GetArgs) -> anyhow::Result<Ended> {
    let (urls, dest) = sources(&args.paths)?;
    args.copy.check(urls.len())?;
    let mut options = Options::new(&args.copy)?;
    options.to_stdout = dest == Path::new(STREAM);
    if options.to_stdout {
        check_stdout(&args.copy, &urls)?;
    }
    let path = dest.as_os_str().as_bytes();
    let target = match options.to_stdout {
        true => None,
        false => Some(Target::new(&Tree::Local, path, urls.len()).await?),
    };
    if target.as_ref().is_some_and(|target| !target.is_directory())
        && (urls.len() > 1 || path.ends_with(b"/"))
    {
        bail!("{} is not a directory", show::path(&dest));
    }
    let target = match options.is_name {
        true => target.map(Target::into_name),
        false => target,
    };
    let mut session = Session::new(&args.copy.session);
    let copies_links = options.copies_links;
    let copy = Copy::new(options, server(&urls))?;
    let all = async |copy: &mut Copy| {
        let mut roots = Vec::new();
        for url in &urls {
            match root(&mut session, url, target.as_ref(), copies_links).await {
                Ok(root) => roots.push(root),
                Err(error) => copy.check(Err(error))?,
            }
        }
        get(copy, &roots).await
    };
    let ended = copy.all(all).await?;
    session.close().await;
    Ok(ended)
}

/// Standard output has neither a name nor attributes, and no two files.
fn check_stdout(args: &CopyArgs, urls: &[NfsUrl]) -> anyhow::Result<()> {
    if let Some(option) = args.not_for_streams() {
        bail!(Usage(format!(
            "{option} cannot be used with -, which is standard output"
        )));
    }
    if urls.len() > 1 {
        bail!(Usage(
            "only one file can be copied to -, which is standard output: print several with \
             `rpcrdma cat`"
                .to_owned()
        ));
    }
    Ok(())
}

/// What to copy, and where to: the last argument, if it is no URL.
fn sources(paths: &[OsString]) -> anyhow::Result<(Vec<NfsUrl>, PathBuf)> {
    let is_url = |path: &OsString| {
        let begin = path.as_bytes().get(..6);
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(b"nfs://"))
    };
    let (urls, dest) = match paths {
        [urls @ .., dest] if !is_url(dest) => (urls, PathBuf::from(dest)),
        urls => (urls, PathBuf::from(".")),
    };
    if urls.is_empty() {
        bail!(Usage(
            "there is nothing to get: no argument is an nfs:// URL".to_owned()
        ));
    }
    let urls = urls.iter().map(|url| parse_url(url));
    Ok((urls.collect::<Result<_, _>>()?, dest))
}

/// What a URL names, and where it goes: without a target, to standard output.
async fn root(
    session: &mut Session,
    url: &NfsUrl,
    target: Option<&Target<'_>>,
    copies_links: bool,
) -> anyhow::Result<Root> {
    let place = session.place(url).await?;
    let tree = Tree::of(&place);
    let source = match copies_links {
        true => tree.look(&place.path).await,
        false => tree.follow(&place.path).await,
    };
    // With the URL, and not the path within the export.
    let source = source.map_err(|error| FileError::name(error, url));
    let Some(source) = source? else {
        return Err(place.fault("find", Status::NoEntry).into());
    };
    // Of `URL/.` only the contents are meant.
    let name = place.name().filter(|_| !url.path.ends_with(b"/."));
    match target {
        Some(target) => target.root((tree, source), name).await,
        None if source.about.is_directory() => {
            bail!("{url} is a directory: only a file can be copied to standard output")
        }
        None => Ok(Root::to_stream((tree, source), STREAM.as_bytes())),
    }
}

/// Copies what the user named.
async fn get(copy: &mut Copy, roots: &[Root]) -> anyhow::Result<()> {
    let options = Arc::clone(&copy.shared.options);
    let dest = Tree::Local;
    delete::check(&options, roots)?;
    let mut plan = {
        let conflict = async |error| copy.check(Err(error));
        Plan::make(&dest, &options, roots, conflict).await?
    };
    if plan.conflicts {
        return copy.check(Err(anyhow!("nothing was copied")));
    }
    copy.shared.progress.expect(plan.files, plan.bytes);
    if !options.dry_run && !options.resumes {
        unfinished::remove_beside(roots, &dest).await;
    }
    let mut steps = plan.steps(&dest, &options, roots);
    let mut way = Way::default();
    let shared = (Arc::new(Links::default()), Arc::new(Writers::default()));
    while let Some(step) = steps.next().await {
        match step {
            Step::Enter(inside) => {
                if !way.enters() {
                    continue;
                }
                let entered = enter(&copy.shared, roots, &inside, way.last()).await;
                let entered = entered.map_err(|error| copy.check(Err(error)));
                way.enter(entered)?;
            }
            Step::Leave => way.leave(),
            Step::Other(other) if way.is_there() => {
                one(copy, roots, &shared, *other, way.last()).await?;
            }
            // Why there is no directory for it has been told.
            Step::Other(_) => {}
            Step::Conflict(error) | Step::Failed(error) => copy.check(Err(error))?,
        }
    }
    drop(way);
    delete::after(copy, roots, &dest).await
}

/// A directory that things are put into.
struct Within {
    held: Arc<Held>,
    /// None in a dry run, in which there may be none.
    dir: Option<Arc<LocalDir>>,
    /// Permissions that new files in it may have.
    permitted: u32,
}

/// Makes a directory, unless it is there.
async fn enter(
    shared: &Shared,
    roots: &[Root],
    inside: &Inside,
    above: Option<&Within>,
) -> anyhow::Result<Within> {
    let options = &shared.options;
    let held_above = above.map(|above| Arc::clone(&above.held));
    if inside.there.is_none() {
        let tree = &roots[inside.root].tree;
        shared.tell(|| said(tree, &inside.source.path, &inside.to))?;
    }
    if options.dry_run {
        return Ok(Within {
            held: shared.hold(held_above, None),
            dir: None,
            permitted: 0o777,
        });
    }
    let above = above.and_then(|above| above.dir.as_ref());
    let of = |permitted| Wanted::of(&inside.source.about, options, permitted);
    let (at, (dir, made), wanted) = match (above, &inside.there) {
        // The user named it, maybe by a symbolic link. It keeps its permissions.
        (None, Some(there)) => {
            let path = local(&there.path);
            let opened = LocalDir::open(path);
            let cannot = || format!("{}: cannot copy into it", show::path(path));
            (None, (opened.with_context(cannot)?, None), of(0o777))
        }
        (above, _) => {
            let at = name_in(above, &roots[inside.root], &inside.to)?;
            let wanted = of(permitted(at.dir(), options));
            let made = make_directory(&at, wanted.first_directory_mode())?;
            (Some(at), made, wanted)
        }
    };
    let about = rustix::fs::fstat(&dir).with_context(|| show::path(dir.path()))?;
    let to = dir.path();
    let entered = (
        (about.st_dev, about.st_ino),
        to.file_name().unwrap_or_default().as_bytes(),
    );
    // Where the directory above cannot be listed, the numbers decide.
    let is_listed = async || at.is_none_or(|at| at.is_listed().unwrap_or(true));
    let above = held_above.as_ref();
    shared
        .enter_once(above, inside.is_contents, entered, is_listed, || {
            show::path(to)
        })
        .await?;
    if let Some(there) = &inside.there
        && !options.resumes
    {
        unfinished::remove(&Tree::Local, there, &inside.unfinished).await;
    }
    let last = match made {
        Some(mode) => wanted.last_of_directory(mode),
        None => {
            let opened = opened_mode(about.st_mode).is_some_and(|mode| dir.set_mode(mode).is_ok());
            wanted.last_of_existing(about.st_mode, opened)
        }
    };
    let last = last.map(|wanted| -> Last {
        let dir = Arc::clone(&dir);
        Box::pin(async move { wanted.set_directory(&dir) })
    });
    Ok(Within {
        held: shared.hold(held_above, last),
        permitted: permitted(&dir, options),
        dir: Some(dir),
    })
}

/// Permissions that new files in a directory may have. With `--preserve` that does not matter.
fn permitted(dir: &LocalDir, options: &Options) -> u32 {
    match options.preserves {
        true => 0o777 & !options.umask,
        false => replaced::permitted(dir, options.umask),
    }
}

/// The name of something in the directory that it goes into, which is that of the root where there is none above.
fn name_in(above: Option<&Arc<LocalDir>>, root: &Root, to: &[u8]) -> anyhow::Result<LocalName> {
    let dir = match above {
        Some(above) => Arc::clone(above),
        None => {
            let base = local(&root.base.path);
            let opened = LocalDir::open(base);
            opened.with_context(|| format!("{}: cannot copy into it", show::path(base)))?
        }
    };
    Ok(dir.name(OsStr::from_bytes(split(to).1)))
}

/// Copies what is no directory, as it was decided.
async fn one(
    copy: &mut Copy,
    roots: &[Root],
    (links, writers): &(Arc<Links<Linked>>, Arc<Writers>),
    other: Other,
    within: Option<&Within>,
) -> anyhow::Result<()> {
    let tree = roots[other.root].tree.clone();
    let path = &other.source.path;
    let shared = copy.shared.clone();
    match other.action {
        Action::Copy { .. } | Action::Make { .. } | Action::Write => {}
        Action::Skip(why) => {
            if let (Some(there), Tree::Remote(export, _)) = (other.kept_copy(), &tree) {
                let about = &other.source.about;
                let key = about.file_key(Arc::as_ptr(export).addr());
                let (path, id) = (local(&other.to).to_owned(), (there.fs, there.id));
                if let Some(first) = links.of(key, about.links) {
                    note_kept(&first, Linked { path, id });
                }
            }
            shared.progress.skipped();
            return shared.tell(|| format!("{} skipped: {why}", tree.show(path)));
        }
        Action::Unsupported | Action::Refuse(_) => {
            let (from, kind) = (tree.show(path), show::file_type(other.source.about.kind));
            return copy.check(Err(anyhow!("{from} is a {kind}, which is not copied")));
        }
    }
    if shared.options.dry_run {
        return shared.tell(|| said(&tree, path, &other.to));
    }
    let held = within.map(|within| Arc::clone(&within.held));
    let made = shared.made_in(held.as_ref());
    let may_collide = made.may_have(split(&other.to).1);
    if may_collide {
        // Which of them is there is known when they are complete.
        copy.settle().await?;
    }
    let (Tree::Remote(export, _), Some(node)) = (&tree, other.source.node) else {
        return copy.check(Err(anyhow!("{} is not on a server", tree.show(path))));
    };
    let to = match other.action {
        Action::Write => None,
        _ => {
            let above = within.and_then(|within| within.dir.as_ref());
            match name_in(above, &roots[other.root], &other.to) {
                Ok(to) => Some(to),
                Err(error) => return copy.check(Err(error)),
            }
        }
    };
    let permitted = match (within, &to) {
        (Some(within), _) => within.permitted,
        (None, Some(to)) => permitted(to.dir(), &shared.options),
        (None, None) => 0o777,
    };
    let mut remote = Remote {
        export: Arc::clone(export),
        wanted: Wanted::of(&other.source.about, &shared.options, permitted),
        permitted,
        // What the user named may be a symbolic link to it.
        follows: within.is_none() && !shared.options.copies_links,
        shared,
        path: other.source.path,
        node,
        // Exports of one server are as good as servers: no link leads from one to the other.
        key: other.source.about.file_key(Arc::as_ptr(export).addr()),
        made,
        may_collide,
        links: Arc::clone(links),
        writers: Arc::clone(writers),
    };
    copy.begin(async move {
        let copied = match to {
            None => remote.stream(local(&other.to).to_owned()).await,
            Some(to) => remote.copy_to(to).await,
        };
        match copied {
            Err(error) if !remote.replaces() && is_taken(&error) => {
                remote.shared.progress.skipped();
                let told = || format!("{} skipped: {}", tree.show(&remote.path), Skip::Exists);
                return remote.shared.tell(told);
            }
            copied => copied?,
        }
        remote.shared.progress.done();
        let told = || said(&tree, &remote.path, &other.to);
        remote.shared.tell(told)?;
        drop(held);
        Ok(())
    })
    .await
}

/// Whether something was not copied because there is something by now.
fn is_taken(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let error = cause.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    })
}

/// What is said of something that is copied.
fn said(tree: &Tree, from: &[u8], to: &[u8]) -> String {
    format!("{} -> {}", tree.show(from), Tree::Local.show(to))
}

/// A file or symbolic link on the server.
struct Remote {
    export: Arc<Export<Client>>,
    shared: Shared,
    path: Vec<u8>,
    node: Node,
    key: FileKey,
    links: Arc<Links<Linked>>,
    writers: Arc<Writers>,
    /// What was made where it goes.
    made: Arc<Made>,
    /// Whether what has got a name there may have the same.
    may_collide: bool,
    wanted: Wanted,
    /// Permissions that new files there may have.
    permitted: u32,
    /// Whether its path may be that of a symbolic link to it.
    follows: bool,
}

/// The copy of a file with several names: its path, and its numbers, by which it is known again.
#[derive(Clone, Debug)]
struct Linked {
    path: PathBuf,
    id: (u64, u64),
}

impl Linked {
    /// # Errors
    ///
    /// It is not there any more.
    fn new(copy: &LocalName) -> io::Result<Self> {
        Ok(Self {
            path: copy.path(),
            id: copy.id()?,
        })
    }

    /// Makes another name of the copy.
    ///
    /// # Errors
    ///
    /// That is not possible, or its path leads to something else by now.
    fn link(&self, to: &LocalName, naming: &Naming) -> io::Result<()> {
        let (dir, name) = split(self.path.as_os_str().as_bytes());
        let dir = LocalDir::open(local(if dir.is_empty() { b"." } else { dir }))?;
        let copy = dir.name(OsStr::from_bytes(name));
        partial::link(&copy, self.id, to, naming)
    }
}

impl Remote {
    /// Copies it, and replaces what has the name.
    async fn copy_to(&mut self, dest: LocalName) -> anyhow::Result<()> {
        if matches!(
            self.node.attributes.file_type,
            FileType::Fifo | FileType::Socket
        ) {
            self.shared.progress.begin(0);
            return special(&dest, &self.node, &self.wanted, &self.naming());
        }
        if self.node.attributes.file_type == FileType::Symlink {
            self.shared.progress.begin(0);
            let target = self.target().await?;
            return link(target, &dest, self.wanted.kept.as_ref(), &self.naming());
        }
        let interrupt = self.shared.interrupt.clone();
        let copied = async {
            match self.links.of(self.key, self.node.attributes.links) {
                Some(first) => self.one_of_several_names(&first, &dest).await,
                None => self.file(&dest).await,
            }
        };
        interrupt.unless(copied).await
    }

    /// The text of a symbolic link. What was replaced since it was found is looked up again.
    async fn target(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut again = Again::default();
        loop {
            match self.export.nfs().read_link(self.node.handle).await {
                Err(fault) if again.after(&fault) => {
                    self.node = self.export.lstat(&self.path).await?;
                }
                text => {
                    return Ok(text.map_err(|fault| fault.at("read symbolic link", &self.path))?);
                }
            }
        }
    }

    /// Makes a link to the copy of the file, or the copy.
    async fn one_of_several_names(
        &mut self,
        first: &FirstCopy<Linked>,
        dest: &LocalName,
    ) -> anyhow::Result<()> {
        let mut first = first.lock().await;
        if let Some(copy) = first.clone() {
            let (to, naming) = (dest.clone(), self.naming());
            let linked = tokio::task::spawn_blocking(move || copy.link(&to, &naming)).await;
            // A file system may have no links, or not as many.
            if linked.expect("a link does not panic").is_ok() {
                let size = self.node.attributes.size;
                self.shared.progress.begin(size);
                self.shared.progress.already(size);
                return Ok(());
            }
        }
        let copied = self.file(dest).await;
        // The copy has its other names whether it has all attributes or not.
        if copied.as_ref().err().is_none_or(lacks_attributes) {
            *first = Linked::new(dest).ok();
        }
        copied
    }
}

/// Makes a directory and opens it, with the mode that it has; without it if it was there. A symbolic link to one is not
/// as good: what the server sends must not go through it to somewhere else, least of all through a link that came
/// from the server.
fn make_directory(at: &LocalName, mode: u32) -> anyhow::Result<(Arc<LocalDir>, Option<u32>)> {
    let cannot = || format!("{}: cannot make the directory", show::path(&at.path()));
    let is_new = match at.make_directory(mode) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        made => made.map(|()| true).with_context(cannot)?,
    };
    let dir = match at.enter() {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            bail!("{}: something else has that name", cannot())
        }
        opened => opened.with_context(cannot)?,
    };
    let mode = match is_new {
        true => Some(rustix::fs::fstat(&dir).with_context(cannot)?.st_mode),
        false => None,
    };
    Ok((dir, mode))
}

/// Makes a FIFO or socket, in place of what has the name if it is to replace that.
fn special(dest: &LocalName, node: &Node, wanted: &Wanted, naming: &Naming) -> anyhow::Result<()> {
    let at = partial::temporary(dest);
    let named = || {
        at.make_special(
            node.attributes.file_type == FileType::Socket,
            wanted.first_mode(),
        )?;
        let set = match &wanted.kept {
            Some(kept) => kept.set_mode(&at).and(kept.set_link(&at)),
            None => Ok(()),
        };
        partial::complete(&at, dest, naming)?;
        Ok(set)
    };
    let made: io::Result<_> = named().inspect_err(|_| {
        // The error to be told is the first one.
        let _ = at.remove(false);
    });
    let path = || show::path(&dest.path());
    let set = made.with_context(|| format!("{}: cannot make the special file", path()))?;
    set.with_context(|| format!("{} is copied", path()))
}

/// Makes a symbolic link, in place of a file or link that has the name if it is to replace that.
fn link(
    target: Vec<u8>,
    dest: &LocalName,
    kept: Option<&Kept>,
    naming: &Naming,
) -> anyhow::Result<()> {
    let at = partial::temporary(dest);
    let named = || {
        at.make_link(&OsString::from_vec(target))?;
        let set = kept.map_or(Ok(()), |kept| kept.set_link(&at));
        partial::complete(&at, dest, naming)?;
        Ok(set)
    };
    let made: io::Result<_> = named().inspect_err(|_| {
        // The error to be told is the first one.
        let _ = at.remove(false);
    });
    let path = || show::path(&dest.path());
    let set = made.with_context(|| format!("{}: cannot make the symbolic link", path()))?;
    set.with_context(|| format!("{} is copied", path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partial::Partial;
    use std::os::unix::fs::MetadataExt;

    fn args(paths: &[&str]) -> anyhow::Result<(Vec<NfsUrl>, PathBuf)> {
        sources(&paths.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn argument_that_is_no_url_is_the_destination() {
        let (urls, dest) = args(&["nfs://h/a", "NFS://h/b", "c"]).unwrap();
        assert_eq!((urls.len(), dest), (2, PathBuf::from("c")));
        let (urls, dest) = args(&["nfs://h/a"]).unwrap();
        assert_eq!((urls.len(), dest), (1, PathBuf::from(".")));
        for bad in [
            &["a"][..],
            &["a", "b"],
            &["nfs://h/a", "b", "c"],
            &["nfs:///"],
        ] {
            let error = args(bad).unwrap_err();
            assert!(error.downcast_ref::<Usage>().is_some(), "{bad:?}: {error}");
        }
    }

    fn name(dir: &Path, name: &str) -> LocalName {
        LocalDir::open(dir).unwrap().name(name)
    }

    #[test]
    fn server_cannot_lead_a_copy_through_a_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let dest = name(dir.path(), "name");
        let target = elsewhere.path().as_os_str().as_bytes();
        link(target.to_vec(), &dest, None, &Naming::first(true)).unwrap();
        assert!(make_directory(&dest, 0o755).is_err());
        let wanted = Wanted {
            mode: 0o600,
            owner: None,
            replaced: None,
            kept: None,
        };
        let partial = Partial::create(&dest, &wanted).unwrap();
        partial.finish(&Naming::first(true)).unwrap();
        assert!(dest.path().symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn symbolic_link_replaces_one_but_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let dest = name(dir.path(), "name");
        link(b"one".to_vec(), &dest, None, &Naming::first(true)).unwrap();
        link(b"two".to_vec(), &dest, None, &Naming::first(true)).unwrap();
        let error = link(b"three".to_vec(), &dest, None, &Naming::first(false)).unwrap_err();
        assert!(is_taken(&error), "{error:#}");
        assert_eq!(std::fs::read_link(dest.path()).unwrap(), Path::new("two"));
        let taken = name(dir.path(), "directory");
        std::fs::create_dir(taken.path()).unwrap();
        assert!(link(b"three".to_vec(), &taken, None, &Naming::first(true)).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn copy_whose_path_leads_elsewhere_gets_no_other_name() {
        let dir = tempfile::tempdir().unwrap();
        let (copy, other) = (name(dir.path(), "copy"), name(dir.path(), "other"));
        std::fs::write(copy.path(), "copy").unwrap();
        let linked = Linked::new(&copy).unwrap();
        linked.link(&other, &Naming::first(true)).unwrap();
        assert_eq!(std::fs::metadata(copy.path()).unwrap().nlink(), 2);
        std::fs::rename(copy.path(), dir.path().join("moved")).unwrap();
        std::fs::write(copy.path(), "secret").unwrap();
        assert!(linked.link(&other, &Naming::first(true)).is_err());
        assert_eq!(std::fs::read(other.path()).unwrap(), b"copy");
    }
}
