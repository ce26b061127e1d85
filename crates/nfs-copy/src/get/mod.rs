//! Copies of files of servers to the local file system.

mod receive;
mod stream;
mod writers;

use crate::attributes::{Kept, Wanted, opened_mode};
use crate::connection::Connection;
use crate::copy::{Control, Copy, Ended, Shared, server};
use crate::decide::{Action, Skip};
use crate::delete;
use crate::directory::{LocalDir, LocalName};
use crate::directory_completion::{Held, Last};
use crate::directory_stack::DirectoryStack;
use crate::entry::split;
use crate::error::{Context, Error, Result};
use crate::events::Event;
use crate::file_error::FileError;
use crate::links::{FileKey, FirstCopy, Links, note_kept};
use crate::made_names::Made;
use crate::options::Options;
use crate::partial::{self, Naming};
use crate::place::Places;
use crate::plan::Plan;
use crate::put::Stream;
use crate::replaced_attributes;
use crate::root::{LocalTarget, Root, Target};
use crate::show;
use crate::tree::{Tree, local};
use crate::unfinished;
use crate::walk::{Inside, Other, Step};
use nfs_client::{Again, Export, NfsUrl, Node};
use nfs_proto::{FileType, Status};
use receive::lacks_attributes;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use writers::Writers;

/// Destination of a copy from servers.
pub enum Destination {
    /// In or at a local path.
    Target(LocalTarget),
    /// A stream, such as standard output: the data of one file is written to it.
    Stream(Stream),
}

/// Copies files and directories of servers to the local file system. Of `URL/.` only the contents are copied.
pub async fn get(
    options: Options,
    control: Control,
    places: &mut impl Places,
    (urls, dest): (&[NfsUrl], Destination),
) -> Ended {
    let copies_links = options.copies_links;
    let copy = Copy::new(options, control, server(urls));
    let (to, output) = match dest {
        Destination::Target(LocalTarget(target)) => (Ok(target), None),
        Destination::Stream(Stream { file, name }) => (Err(name), Some(file)),
    };
    let output = Arc::new(Mutex::new(output));
    let all = async |copy: &mut Copy| {
        let mut roots = Vec::new();
        for url in urls {
            match root(places, url, to.as_deref(), copies_links).await {
                Ok(root) => roots.push(root),
                Err(error) => copy.check(Err(error))?,
            }
        }
        copy_roots(copy, &roots, &output).await
    };
    copy.all(all).await
}

/// A source by its URL, and where it goes: to a target or to a stream of this name.
async fn root(
    places: &mut impl Places,
    url: &NfsUrl,
    to: Result<&Target, &String>,
    copies_links: bool,
) -> Result<Root> {
    let place = places.place(url).await?;
    let tree = Tree::of(&place);
    let source = match copies_links {
        true => tree.look(&place.path).await,
        false => tree.follow(&place.path).await,
    };
    // With the URL, and not the path within the export.
    let source = source.map_err(|error| match error {
        Error::Nfs(error) => FileError::at(url, error).into(),
        error => error,
    });
    let Some(source) = source? else {
        return Err(place.fault("find", Status::NoEntry).into());
    };
    // Of `URL/.` only the contents are meant.
    let name = place.name().filter(|_| !url.path.ends_with(b"/."));
    match to {
        Ok(target) => target.root((tree, source), name).await,
        Err(_) if source.about.is_directory() => {
            let path = url.to_string();
            Err(Error::DirectoryToStream { path })
        }
        Err(stream) => Ok(Root::to_stream((tree, source), stream.as_bytes())),
    }
}

/// Copies all sources.
async fn copy_roots(
    copy: &mut Copy,
    roots: &[Root],
    output: &Arc<Mutex<Option<File>>>,
) -> Result<()> {
    let options = Arc::clone(&copy.shared.options);
    let dest = Tree::Local;
    delete::check(&options, roots)?;
    let mut plan = {
        let conflict = async |error| copy.check(Err(error));
        Plan::make(&dest, &options, roots, conflict).await?
    };
    if plan.conflicts {
        return copy.check(Err(Error::NothingCopied));
    }
    copy.shared.events.planned(plan.files, plan.bytes);
    if !options.dry_run && !options.resumes {
        unfinished::remove_beside(roots, &dest).await;
    }
    let mut steps = plan.steps(&dest, &options, roots);
    let mut way = DirectoryStack::default();
    let ends = Ends {
        links: Arc::default(),
        writers: Arc::default(),
        output: Arc::clone(output),
    };
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
                one(copy, roots, &ends, *other, way.last()).await?;
            }
            // Why there is no directory for it has been told.
            Step::Other(_) => {}
            Step::Conflict(error) | Step::Failed(error) => copy.check(Err(error))?,
        }
    }
    drop(way);
    delete::after(copy, roots, &dest).await
}

/// State that the files of a copy share at this end.
#[derive(Clone)]
struct Ends {
    links: Arc<Links<Linked>>,
    writers: Arc<Writers>,
    /// The stream that is copied to, if it is one and was not taken.
    output: Arc<Mutex<Option<File>>>,
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
) -> Result<Within> {
    let options = &shared.options;
    let held_above = above.map(|above| Arc::clone(&above.held));
    if inside.there.is_none() {
        let from = &roots[inside.root].tree.named(&inside.source.path);
        let to = &Tree::Local.named(&inside.to);
        shared.tell(&Event::DirectoryMade { from, to })?;
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
    let about = rustix::fs::fstat(&dir).map_err(io::Error::from);
    let about = about.with_context(|| show::path(dir.path()))?;
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

/// Permissions that new files in a directory may have. Where attributes are kept that does not matter.
fn permitted(dir: &LocalDir, options: &Options) -> u32 {
    match options.preserves {
        true => 0o777 & !options.umask,
        false => replaced_attributes::permitted(dir, options.umask),
    }
}

/// The name of something in the directory that it goes into, which is that of the root where there is none above.
fn name_in(above: Option<&Arc<LocalDir>>, root: &Root, to: &[u8]) -> Result<LocalName> {
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
    ends: &Ends,
    other: Other,
    within: Option<&Within>,
) -> Result<()> {
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
                if let Some(first) = ends.links.of(key, about.links) {
                    note_kept(&first, Linked { path, id });
                }
            }
            let from = &tree.named(path);
            let told = shared.tell(&Event::Skipped { from, why });
            return copy.check(told);
        }
        Action::Unsupported | Action::Refuse(_) => {
            let (path, kind) = (tree.show(path), other.source.about.kind);
            return copy.check(Err(Error::Unsupported { path, kind }));
        }
    }
    if shared.options.dry_run {
        let (from, to) = (&tree.named(path), &Tree::Local.named(&other.to));
        let told = shared.tell(&Event::Copied { from, to });
        return copy.check(told);
    }
    let held = within.map(|within| Arc::clone(&within.held));
    let made = shared.made_in(held.as_ref());
    let may_collide = made.may_have(split(&other.to).1);
    if may_collide {
        // Which of them is there is known when they are complete.
        copy.settle().await?;
    }
    let (Tree::Remote(export, _), Some(node)) = (&tree, other.source.node) else {
        return copy.check(Err(Error::NotOnServer {
            path: tree.show(path),
        }));
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
        // A source that was named may be a symbolic link to it.
        follows: within.is_none() && !shared.options.copies_links,
        shared,
        path: other.source.path,
        node,
        // Exports of one server are as good as servers: no link leads from one to the other.
        key: other.source.about.file_key(Arc::as_ptr(export).addr()),
        made,
        may_collide,
        ends: ends.clone(),
    };
    copy.begin(async move {
        let copied = match to {
            None => remote.stream(local(&other.to).to_owned()).await,
            Some(to) => remote.copy_to(to).await,
        };
        match copied {
            Err(error) if !remote.replaces() && is_taken(&error) => {
                let (from, why) = (&tree.named(&remote.path), Skip::Exists);
                return remote.shared.tell(&Event::Skipped { from, why });
            }
            copied => copied?,
        }
        let (from, to) = (&tree.named(&remote.path), &Tree::Local.named(&other.to));
        remote.shared.tell(&Event::Copied { from, to })?;
        drop(held);
        Ok(())
    })
    .await
}

/// Whether something was not copied because there is something by now.
fn is_taken(error: &Error) -> bool {
    let error = error.local();
    error.is_some_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
}

/// A file or symbolic link on the server.
struct Remote {
    export: Arc<Export<Connection>>,
    shared: Shared,
    path: Vec<u8>,
    node: Node,
    key: FileKey,
    ends: Ends,
    /// Things made in the directory that it goes into.
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
    async fn copy_to(&mut self, dest: LocalName) -> Result<()> {
        if matches!(
            self.node.attributes.file_type,
            FileType::Fifo | FileType::Socket
        ) {
            self.shared.events.begun(0);
            return special(&dest, &self.node, &self.wanted, &self.naming());
        }
        if self.node.attributes.file_type == FileType::Symlink {
            self.shared.events.begun(0);
            let target = self.target().await?;
            return link(target, &dest, self.wanted.kept.as_ref(), &self.naming());
        }
        let stop = self.shared.stop.clone();
        let copied = async {
            match self.ends.links.of(self.key, self.node.attributes.links) {
                Some(first) => self.one_of_several_names(&first, &dest).await,
                None => self.file(&dest).await,
            }
        };
        stop.unless(copied).await
    }

    /// The text of a symbolic link. What was replaced since it was found is looked up again.
    async fn target(&mut self) -> Result<Vec<u8>> {
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
    ) -> Result<()> {
        let mut first = first.lock().await;
        if let Some(copy) = first.clone() {
            let (to, naming) = (dest.clone(), self.naming());
            let linked = tokio::task::spawn_blocking(move || copy.link(&to, &naming)).await;
            // A file system may have no links, or not as many.
            if linked.expect("a link does not panic").is_ok() {
                let size = self.node.attributes.size;
                self.shared.events.begun(size);
                self.shared.events.already_there(size);
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
fn make_directory(at: &LocalName, mode: u32) -> Result<(Arc<LocalDir>, Option<u32>)> {
    let cannot = || format!("{}: cannot make the directory", show::path(&at.path()));
    let is_new = match at.make_directory(mode) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        made => made.map(|()| true).with_context(cannot)?,
    };
    let entered = match is_new {
        true => at.enter_new(),
        false => at.enter(),
    };
    let dir = match entered {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Error::NameTaken).with_context(cannot);
        }
        opened => opened.with_context(cannot)?,
    };
    let mode = match is_new {
        true => {
            let about = rustix::fs::fstat(&dir).map_err(io::Error::from);
            Some(about.with_context(cannot)?.st_mode)
        }
        false => None,
    };
    Ok((dir, mode))
}

/// Makes a FIFO or socket, in place of what has the name if it is to replace that.
fn special(dest: &LocalName, node: &Node, wanted: &Wanted, naming: &Naming) -> Result<()> {
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
fn link(target: Vec<u8>, dest: &LocalName, kept: Option<&Kept>, naming: &Naming) -> Result<()> {
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
    use std::path::Path;

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
