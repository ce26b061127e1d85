//! `rpcrdma put`: copies files to a server.

mod local;
mod read;
mod send;
mod stream;

use crate::copy::attributes::Wanted;
use crate::copy::decide::{Action, Skip};
use crate::copy::entry::{Entry, split};
use crate::copy::links::{Links, note_kept};
use crate::copy::made::{FileId, Made};
use crate::copy::replaced::mode_for_others;
use crate::copy::tree::{Tree, local};
use crate::copy::upload::{
    Dataless, REMOVED_WITHIN, Uploaded, collision, find_made, is_listed, is_taken, make_directory,
    open_up, random, set_directory,
};
use crate::copy::{
    Copy, CopyArgs, FILES_IN_FLIGHT, Held, Inside, Last, Options, Other, Permitted, Root, STREAM,
    Shared, Step, Target, Way, delete, unfinished,
};
use crate::failure::{Ended, Usage};
use crate::session::{Session, parse_url};
use crate::show;
use anyhow::{Context, anyhow, bail};
use buffer::Pool;
use clap::Args;
use local::{Content, Found};
use nfs_client::{Export, Fault, NfsUrl, Node};
use nfs_proto::{FileHandle, FileType, Name, NfsTime, SetAttributes, Status, args};
use rpcrdma::Client;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

/// Memory kept for reading, in bytes.
const POOL_KEEP: usize = 32 << 20;

/// Copy files to a server
#[derive(Args, Debug)]
#[command(override_usage = "rpcrdma put [OPTIONS] <SOURCE>... <URL>")]
#[command(after_help = "Examples:
  rpcrdma put file nfs://127.0.0.1/
  rpcrdma put file nfs://127.0.0.1/other-name
  rpcrdma put -r photos notes.txt nfs://127.0.0.1/dir/
  tar -c photos | rpcrdma put - nfs://127.0.0.1/photos.tar
  rpcrdma put -r --exclude '*.tmp' photos nfs://127.0.0.1/
  rpcrdma put -rp --delete photos/. nfs://127.0.0.1/photos
  rpcrdma put -r --delete --dry-run a/. nfs://127.0.0.1/a
  rpcrdma put --resume disk.img nfs://127.0.0.1/images/
  rpcrdma put --sparse always disk.img nfs://127.0.0.1/

If URL is an existing directory, a source directory is copied into it; otherwise it becomes URL. \
DIRECTORY/. copies only the contents of a directory. Conflicts, such as a file where a directory \
is needed, are found before anything is copied; then nothing is.

A file gets its name when it is complete and on stable storage, replacing a file of that name. A \
symbolic link at URL is followed; a device or FIFO of the server is not replaced. An interrupted \
copy leaves no incomplete file if the server can be reached and allows changes. Incomplete files \
of a killed copy are removed by the next copy into the same directory when they are 24 hours \
old.

On a terminal, progress and a summary are shown. If the server does not answer for 5 seconds, a \
message says so; calls fail after --timeout. Ctrl-C, SIGTERM and SIGHUP clean up and end the \
command: a shell sees 130, 143 or 129.")]
pub(crate) struct PutArgs {
    /// Files and directories to copy (FIFOs and devices are read, - is standard input), then
    /// nfs://HOST[:PORT]/PATH of the destination: a file or a directory
    // One argument for both: of two, the parser takes no second source that begins with a hyphen, also behind `--`.
    #[arg(value_name = "SOURCE", required = true)]
    paths: Vec<OsString>,

    #[command(flatten)]
    copy: CopyArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &PutArgs) -> anyhow::Result<Ended> {
    let (sources, url) = split_args(&args.paths)?;
    args.copy.check(sources.len())?;
    let mut options = Options::new(&args.copy)?;
    if sources.iter().any(|source| source == STREAM) {
        check_stdin(&args.copy, sources.len())?;
    }
    if sources.iter().any(|source| is_stdin(source)) {
        stream::check_input().context("cannot read standard input")?;
    }
    let mut session = Session::new(&args.copy.session);
    let place = session.place(&url).await?;
    let dest = Tree::of(&place);
    let target = Target::new(&dest, &place.path, sources.len()).await?;
    if !target.is_directory() && (sources.len() > 1 || place.url.path.ends_with(b"/")) {
        bail!(
            "{} is not a directory: make it with `rpcrdma mkdir`",
            place.url
        );
    }
    let target = match options.is_name {
        true => target.into_name(),
        false => target,
    };
    options.resolution = resolution(place.export.info().time_delta);
    let copy = Copy::new(options, Some(place.url.clone()))?;
    let put = Arc::new(Put {
        export: Arc::clone(&place.export),
        shared: copy.shared.clone(),
        pool: Pool::new(POOL_KEEP),
        links: Links::default(),
    });
    let all = async |copy: &mut Copy| {
        let mut roots = Vec::new();
        for source in &sources {
            match root(source, &target, &place.url, put.shared.options.copies_links).await {
                Ok(root) => roots.push(root),
                Err(error) => copy.check(Err(error))?,
            }
        }
        put.all(copy, &dest, Arc::new(roots)).await
    };
    let ended = copy.all(all).await?;
    session.close().await;
    Ok(ended)
}

/// What to copy, and where to: the last argument.
fn split_args(paths: &[OsString]) -> anyhow::Result<(Vec<PathBuf>, NfsUrl)> {
    match paths {
        [sources @ .., url] if !sources.is_empty() => {
            let sources = sources.iter().map(PathBuf::from);
            Ok((sources.collect(), parse_url(url)?))
        }
        _ => bail!(Usage(
            "a source and the URL of a destination are needed: `rpcrdma help put` shows examples"
                .to_owned()
        )),
    }
}

/// Standard input has neither a name nor attributes.
fn check_stdin(args: &CopyArgs, sources: usize) -> anyhow::Result<()> {
    if let Some(option) = args.not_for_streams() {
        bail!(Usage(format!(
            "{option} cannot be used with -, which is standard input"
        )));
    }
    if sources > 1 {
        bail!(Usage(
            "-, which is standard input, is the only source if it is one".to_owned()
        ));
    }
    Ok(())
}

/// Whether a source is standard input, by one of its names (proc_pid_fd(5)).
fn is_stdin(source: &Path) -> bool {
    let names = [STREAM, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    names.iter().any(|name| source == *name)
}

/// To what the server rounds times, in nanoseconds, as it says: two seconds at most, as FAT does.
fn resolution(delta: NfsTime) -> i128 {
    let nanos = i128::from(delta.seconds) * 1_000_000_000 + i128::from(delta.nanoseconds);
    nanos.clamp(1, 2_000_000_000)
}

/// What the user named, and where it goes.
async fn root(
    source: &Path,
    target: &Target<'_>,
    url: &NfsUrl,
    copies_links: bool,
) -> anyhow::Result<Root> {
    let path = source.as_os_str().as_bytes();
    // Of `dir/.`, as of `.`, only the contents are meant.
    let is_contents = path.ends_with(b"/.") || source.file_name().is_none();
    let name = source.file_name().filter(|_| !is_contents);
    let name = name.map(OsStrExt::as_bytes);
    if source == STREAM {
        if target.is_directory() {
            bail!(Usage(format!(
                "{url} is a directory: standard input needs a name in it, as in {}",
                url.join(b"NAME")
            )));
        }
        let stream = Entry::stream(path);
        return target.root((Tree::Local, stream), name).await;
    }
    let found = match copies_links {
        true => Tree::Local.look(path).await?,
        false => Tree::Local.follow(path).await?,
    };
    let Some(found) = found else {
        bail!(
            "{}: cannot read: no such file or directory",
            show::path(source)
        );
    };
    target.root((Tree::Local, found), name).await
}

/// What a file needs to get to the server.
struct Put {
    export: Arc<Export<Client>>,
    shared: Shared,
    /// Memory for reading.
    pool: Pool,
    links: Links<Linked>,
}

/// The copy of a file with several names.
#[derive(Clone, Copy, Debug)]
struct Linked {
    handle: FileHandle,
    /// Its numbers, if the server tells them.
    id: Option<FileId>,
}

/// A directory on the server that things are put into.
#[derive(Clone)]
struct Within {
    handle: FileHandle,
    held: Option<Arc<Held>>,
    permitted: Permitted,
}

impl Put {
    /// Copies all that a thread finds and reads ahead.
    async fn all(
        self: Arc<Self>,
        copy: &mut Copy,
        dest: &Tree,
        roots: Arc<Vec<Root>>,
    ) -> anyhow::Result<()> {
        let options = Arc::clone(&self.shared.options);
        delete::check(&options, &roots)?;
        let (finds, mut found) = mpsc::channel(FILES_IN_FLIGHT);
        let (to, from) = (dest.clone(), Arc::clone(&roots));
        let runtime = Handle::current();
        // Most of what it does is system calls; a call to the server now and then is made by the event loop.
        spawn_blocking(move || runtime.block_on(local::find(to, options, from, finds)));
        let mut way = Way::<Within>::default();
        let mut base = Base::default();
        while let Some(found) = found.recv().await {
            match found {
                Found::Planned { files, bytes } => {
                    self.shared.progress.expect(files, bytes);
                    let options = &self.shared.options;
                    if !options.dry_run && !options.resumes {
                        unfinished::remove_beside(&roots, dest).await;
                    }
                }
                Found::Step(Step::Enter(inside)) => {
                    if way.enters() {
                        let above = match way.last() {
                            Some(above) => above.clone(),
                            None => base.of(&roots, inside.root)?,
                        };
                        let entered = self.enter(dest, &inside, above).await;
                        let entered = entered.map_err(|error| copy.check(Err(error)));
                        way.enter(entered)?;
                    }
                }
                Found::Step(Step::Leave) => way.leave(),
                Found::Step(Step::Other(other)) => {
                    // Why there is no directory for it has been told.
                    if way.is_there() {
                        self.left_out(copy, dest, *other)?;
                    }
                }
                Found::File(other, content) => {
                    if way.is_there() {
                        let into = match way.last() {
                            Some(into) => into.clone(),
                            None => base.of(&roots, other.root)?,
                        };
                        let made = self.shared.made_in(into.held.as_ref());
                        let may_collide = made.may_have(split(&other.to).1);
                        if may_collide {
                            // Which of them is there is known when they are complete.
                            copy.settle().await?;
                        }
                        let put = Arc::clone(&self);
                        let dest = dest.clone();
                        copy.begin(async move {
                            let content = content?;
                            let there = match may_collide {
                                true => {
                                    let to = (into.handle, &other.to[..]);
                                    find_made(&put.export, to, &made).await?
                                }
                                false => None,
                            };
                            let to = (&into, &*made, there);
                            let copied = put.one(&other, content, to, &dest).await;
                            put.taken_or(copied, &other.source.path)
                        })
                        .await?;
                    }
                }
                Found::Step(Step::Conflict(error) | Step::Failed(error)) => {
                    copy.check(Err(error))?;
                }
            }
        }
        drop(way);
        delete::after(copy, &roots, dest).await
    }

    /// Makes a directory, unless it is there.
    async fn enter(
        self: &Arc<Self>,
        dest: &Tree,
        inside: &Inside,
        parent: Within,
    ) -> anyhow::Result<Within> {
        let shared = &self.shared;
        if inside.there.is_none() {
            shared.tell(|| said(dest, &inside.source.path, &inside.to))?;
        }
        if shared.options.dry_run {
            return Ok(parent);
        }
        let nfs = self.export.nfs();
        // What is there keeps its permissions.
        let permitted = match inside.there {
            Some(_) => 0o777,
            None => self.permitted(&parent).await?,
        };
        let wanted = self.wanted(&inside.source, permitted);
        let (node, is_new) = match inside.there.as_ref().and_then(|there| there.node) {
            Some(node) => {
                if let Some(there) = &inside.there
                    && !shared.options.resumes
                {
                    unfinished::remove(dest, there, &inside.unfinished).await;
                }
                (node, false)
            }
            None => {
                let mode = wanted.first_directory_mode();
                let made = make_directory(nfs, parent.handle, split(&inside.to).1, mode).await;
                let made =
                    made.map_err(|fault| nfs.error_at(fault, "make directory", &inside.to))?;
                (made.node, made.is_new)
            }
        };
        let (handle, about) = (node.handle, &node.attributes);
        let entered = ((about.fsid, about.file_id.0), split(&inside.to).1);
        let is_listed = async || is_listed(&self.export, (parent.handle, &inside.to)).await;
        let above = parent.held.as_ref();
        shared
            .enter_once(above, inside.is_contents, entered, is_listed, || {
                dest.show(&inside.to)
            })
            .await?;
        let last = match is_new {
            true => wanted.last_of_directory(about.mode),
            false => wanted.last_of_existing(about.mode, open_up(nfs, &node).await),
        };
        let last = last.map(|wanted| -> Last {
            let (put, path) = (Arc::clone(self), inside.to.clone());
            Box::pin(async move {
                let set = set_directory(put.export.nfs(), handle, &path, &wanted);
                put.shared.interrupt.unless_late(REMOVED_WITHIN, set).await
            })
        });
        Ok(Within {
            handle,
            held: Some(shared.hold(parent.held, last)),
            permitted: match is_new {
                // It has the default list of the one that it is in (acl(5)).
                true => parent.permitted,
                false => Permitted::default(),
            },
        })
    }

    /// Tells of what is not copied, or would be.
    fn left_out(&self, copy: &mut Copy, dest: &Tree, other: Other) -> anyhow::Result<()> {
        let path = &other.source.path;
        match other.action {
            Action::Copy { .. } | Action::Make { .. } | Action::Write => {
                self.shared.tell(|| said(dest, path, &other.to))
            }
            Action::Skip(why) => {
                if let (Some(there), Some(handle)) = (other.kept_copy(), other.replaced) {
                    let about = &other.source.about;
                    let id = Some((there.fs, there.id));
                    if let Some(first) = self.links.of(about.file_key(0), about.links) {
                        note_kept(&first, Linked { handle, id });
                    }
                }
                self.shared.progress.skipped();
                let told = || format!("{} skipped: {why}", Tree::Local.show(path));
                self.shared.tell(told)
            }
            Action::Unsupported | Action::Refuse(_) => {
                let from = Tree::Local.show(path);
                let kind = show::file_type(other.source.about.kind);
                copy.check(Err(anyhow!("{from} is a {kind}, which is not copied")))
            }
        }
    }

    /// What came of a copy; that what is there is not replaced is as it should be, if the user wants it so.
    fn taken_or(&self, copied: anyhow::Result<()>, path: &[u8]) -> anyhow::Result<()> {
        match copied {
            Err(error) if self.shared.options.keeps_existing && is_taken(&error) => {
                self.shared.progress.skipped();
                let told = || format!("{} skipped: {}", Tree::Local.show(path), Skip::Exists);
                self.shared.tell(told)
            }
            copied => copied,
        }
    }

    /// Copies what is no directory.
    async fn one(
        &self,
        other: &Other,
        content: Content,
        (into, made, there): (&Within, &Made, Option<FileId>),
        dest: &Tree,
    ) -> anyhow::Result<()> {
        let (to, source) = (
            (into.handle, &other.to[..], made),
            local(&other.source.path),
        );
        let about = &other.source.about;
        let first = match &content {
            Content::Small { .. } | Content::Large { .. } => {
                self.links.of(about.file_key(0), about.links)
            }
            Content::Stream | Content::Symlink(_) | Content::Special => None,
        };
        let mut first = match &first {
            Some(first) => {
                let locked = async { Ok(first.lock().await) };
                Some(self.shared.interrupt.unless(locked).await?)
            }
            None => None,
        };
        let copy = first.as_deref().copied().flatten();
        if let Some(there) = there
            && copy.and_then(|copy| copy.id) != Some(there)
        {
            return Err(collision(&other.to));
        }
        // Where the name leads to the copy already, there is nothing to do.
        if let Some(copy) = copy
            && (there.is_some() || self.hard_link(copy, (into.handle, made), &other.to).await?)
        {
            self.shared.progress.begin(about.size);
            self.shared.progress.already(about.size);
            self.shared.progress.done();
            let said = || said(dest, &other.source.path, &other.to);
            return self.shared.tell(said);
        }
        // The copy has its other names whether it has all attributes or not.
        let mut named = |copy: Uploaded| {
            let Uploaded { handle, id, set } = copy;
            if let Some(first) = &mut first {
                **first = Some(Linked { handle, id });
            }
            set
        };
        let wanted = self.wanted(&other.source, self.permitted(into).await?);
        let wanted = wanted.in_place_of(other.there.as_ref(), other.replaced);
        match content {
            Content::Small { data } => named(self.small(data, &wanted, to).await?)?,
            Content::Large { file, size } => {
                let _room = self.shared.room(size).await;
                named(self.large(source, (file, size), &wanted, to).await?)?;
            }
            Content::Stream => {
                let _room = self.shared.room(u64::MAX).await;
                self.stream(source, &wanted, to).await?;
            }
            Content::Special => {
                self.shared.progress.begin(0);
                let attributes = SetAttributes {
                    mode: Some(wanted.first_mode()),
                    ..SetAttributes::default()
                };
                let node = match about.kind {
                    FileType::Socket => args::Node::Socket(attributes),
                    _ => args::Node::Fifo(attributes),
                };
                let nfs = self.export.nfs();
                let special = Dataless::Special(node);
                let made_one = self
                    .make(&special, "make special file", other, into)
                    .await?;
                made.note((made_one.attributes.fsid, made_one.attributes.file_id.0));
                let file = (made_one.handle, &other.to[..]);
                wanted.set_remote(nfs, file, None, None).await?;
            }
            Content::Symlink(text) => {
                self.shared.progress.begin(0);
                let text = Dataless::Symlink(text);
                let link = self.make(&text, "make symbolic link", other, into).await?;
                made.note((link.attributes.fsid, link.attributes.file_id.0));
                if let Some(kept) = &wanted.kept {
                    kept.set_remote_link(self.export.nfs(), link.handle, &other.to)
                        .await?;
                }
            }
        }
        self.shared.progress.done();
        self.shared
            .tell(|| said(dest, &other.source.path, &other.to))
    }

    /// Makes something that has no data, in place of what is there as it was decided.
    async fn make(
        &self,
        what: &Dataless,
        doing: &'static str,
        other: &Other,
        into: &Within,
    ) -> anyhow::Result<Node> {
        let replaces = matches!(
            other.action,
            Action::Copy { replaces: true } | Action::Make { replaces: true }
        );
        let made = async {
            let name = Name::new(split(&other.to).1)?;
            what.make(self.export.nfs(), into.handle, name, replaces)
                .await
        };
        let nfs = self.export.nfs();
        Ok(made
            .await
            .map_err(|fault| nfs.error_at(fault, doing, &other.to))?)
    }

    /// Permissions that new files in a directory may have.
    ///
    /// # Errors
    ///
    /// The user wants the copy to end.
    async fn permitted(&self, dir: &Within) -> anyhow::Result<u32> {
        let nfs = self.export.nfs();
        self.shared.permitted(nfs, dir.handle, &dir.permitted).await
    }

    /// Attributes for the copy of something, where new files may have these permissions. It gets no access control list of
    /// the source, which its mode may belong to.
    fn wanted(&self, source: &Entry, permitted: u32) -> Wanted {
        let options = &self.shared.options;
        let mut about = source.about;
        if options.preserves {
            about.mode = mode_for_others(local(&source.path), &about);
        }
        Wanted::of(&about, options, permitted)
    }

    /// Gives a file on the server another name, in place of what has it; whether that was possible. A file system
    /// may have no links, or not as many.
    async fn hard_link(
        &self,
        copy: Linked,
        (dir, made): (FileHandle, &Made),
        to: &[u8],
    ) -> anyhow::Result<bool> {
        let file = copy.handle;
        if let Some(id) = copy.id {
            made.note(id);
        }
        let linked = async {
            let nfs = self.export.nfs();
            let name = Name::new(split(to).1)?;
            match nfs.link(file, dir, name).await {
                Ok(()) => return Ok(true),
                // Another put may have made it, or the call came twice, as it was sent again.
                Err(Fault::Status(Status::Exist)) if nfs.is_name_of(file, dir, name).await => {
                    return Ok(true);
                }
                // That it is taken is found when a copy is to get the name.
                Err(Fault::Status(Status::Exist)) if self.shared.options.keeps_existing => {
                    return Ok(false);
                }
                Err(Fault::Status(Status::Exist)) => {}
                Err(Fault::Status(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            }
            let temporary = nfs_client::temporary_name(&name, random());
            let first = Name::new(&temporary)?;
            match nfs.link(file, dir, first).await {
                // The call came twice: nobody else knows the name.
                Ok(()) | Err(Fault::Status(Status::Exist)) => {}
                Err(Fault::Status(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            }
            let renamed = nfs.rename_file(file, (dir, first), (dir, name)).await;
            // Two names of one file are left as they are (RFC 1813 §3.3.14), if another put has made it meanwhile. The
            // error to be told is that of renaming.
            let _ = nfs.remove(dir, first).await;
            renamed?;
            Ok(true)
        };
        let nfs = self.export.nfs();
        let linked = async {
            linked
                .await
                .map_err(|fault| nfs.error_at(fault, "link", to))
        };
        let interrupt = &self.shared.interrupt;
        interrupt.unless_late(REMOVED_WITHIN, linked).await
    }
}

/// What is said of something that is copied.
fn said(dest: &Tree, from: &[u8], to: &[u8]) -> String {
    format!("{} -> {}", Tree::Local.show(from), dest.show(to))
}

/// The directory that what the user named goes into: often one for many sources.
#[derive(Default)]
struct Base(Option<Within>);

impl Base {
    /// # Errors
    ///
    /// There is none on the server.
    fn of(&mut self, roots: &[Root], root: usize) -> anyhow::Result<Within> {
        let node = roots[root].base.node.context("it is not on the server")?;
        match &self.0 {
            Some(base) if base.handle == node.handle => Ok(base.clone()),
            Some(_) | None => Ok(self
                .0
                .insert(Within {
                    handle: node.handle,
                    held: None,
                    permitted: Permitted::default(),
                })
                .clone()),
        }
    }
}
