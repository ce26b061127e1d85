//! `rpcrdma put`: copies files to a server.

mod local;
mod read;
mod send;
mod stream;

use crate::copy::attributes::Wanted;
use crate::copy::decide::{Action, Skip};
use crate::copy::entry::{Entry, split};
use crate::copy::links::Links;
use crate::copy::made::Made;
use crate::copy::replaced::mode_for_others;
use crate::copy::tree::{Tree, local};
use crate::copy::upload::{
    Dataless, REMOVED_WITHIN, is_taken, make_directory, open_up, random, refuse_made, set_directory,
};
use crate::copy::{
    Copy, CopyArgs, FILES_IN_FLIGHT, Held, Inside, Last, Options, Other, Root, STREAM, Shared,
    Step, Target, Way, delete, unfinished,
};
use crate::failure::{Ended, Usage};
use crate::session::Session;
use crate::show;
use anyhow::{Context, anyhow, bail};
use buffer::Pool;
use clap::Args;
use local::{Content, Found};
use nfs_client::{Export, Fault, NfsUrl, Node};
use nfs_proto::{FileHandle, FileType, Name, NfsTime, SetAttributes, Status, args};
use rpcrdma::Client;
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
    /// Files and directories to copy; FIFOs and devices are read, - is standard input
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<PathBuf>,

    /// nfs://HOST[:PORT]/PATH of the destination: a file or a directory
    #[arg(value_name = "URL")]
    url: NfsUrl,

    #[command(flatten)]
    copy: CopyArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &PutArgs) -> anyhow::Result<Ended> {
    args.copy.check(args.sources.len())?;
    let mut options = Options::new(&args.copy)?;
    if args.sources.iter().any(|source| source == STREAM) {
        check_stdin(args)?;
    }
    let mut session = Session::new(&args.copy.session);
    let place = session.place(&args.url).await?;
    let dest = Tree::of(&place);
    let target = Target::new(&dest, &place.path, args.sources.len()).await?;
    if !target.is_directory() && (args.sources.len() > 1 || place.url.path.ends_with(b"/")) {
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
        for source in &args.sources {
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

/// Standard input has neither a name nor attributes.
fn check_stdin(args: &PutArgs) -> anyhow::Result<()> {
    if let Some(option) = args.copy.not_for_streams() {
        bail!(Usage(format!(
            "{option} cannot be used with -, which is standard input"
        )));
    }
    if args.sources.len() > 1 {
        bail!(Usage(
            "-, which is standard input, is the only source if it is one".to_owned()
        ));
    }
    Ok(())
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
    links: Links<FileHandle>,
}

/// A directory on the server that things are put into.
#[derive(Clone)]
struct Within {
    handle: FileHandle,
    held: Option<Arc<Held>>,
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
        let mut way = Way::default();
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
                        let entered = self.enter(&roots, dest, &inside, way.last()).await;
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
                            None => base(&roots, other.root)?,
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
                            if may_collide {
                                let to = (into.handle, &other.to[..]);
                                refuse_made(put.export.nfs(), to, &made).await?;
                            }
                            let copied = put.one(&other, content, (&into, &made), &dest).await;
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
        roots: &[Root],
        dest: &Tree,
        inside: &Inside,
        above: Option<&Within>,
    ) -> anyhow::Result<Within> {
        let shared = &self.shared;
        let parent = match above {
            Some(above) => above.clone(),
            None => base(roots, inside.root)?,
        };
        if inside.there.is_none() {
            shared.tell(|| said(dest, &inside.source.path, &inside.to))?;
        }
        if shared.options.dry_run {
            return Ok(parent);
        }
        let wanted = self.wanted(&inside.source);
        let nfs = self.export.nfs();
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
                let made = made.map_err(|fault| fault.at("make directory", &inside.to))?;
                (made.node, made.is_new)
            }
        };
        let (handle, about) = (node.handle, &node.attributes);
        let id = (about.fsid, about.file_id.0);
        shared.enter_once(parent.held.as_ref(), inside.is_contents, id, || {
            dest.show(&inside.to)
        })?;
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
        (into, made): (&Within, &Made),
        dest: &Tree,
    ) -> anyhow::Result<()> {
        let wanted = self.wanted(&other.source).in_place_of(other.there.as_ref());
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
        if let Some(Some(copy)) = first.as_deref()
            && self.hard_link(*copy, into.handle, &other.to).await?
        {
            self.shared.progress.begin(about.size);
            self.shared.progress.already(about.size);
            self.shared.progress.done();
            let said = || said(dest, &other.source.path, &other.to);
            return self.shared.tell(said);
        }
        let mut note = |copy| {
            if let Some(first) = &mut first {
                **first = Some(copy);
            }
        };
        match content {
            Content::Small { data } => note(self.small(data, &wanted, to).await?),
            Content::Large { file, size } => {
                let _room = self.shared.room(size).await;
                note(self.large(source, (file, size), &wanted, to).await?);
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
                wanted
                    .set_remote(nfs, made_one.handle, &other.to, None)
                    .await?;
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
        Ok(made.await.map_err(|fault| fault.at(doing, &other.to))?)
    }

    /// Attributes for the copy of something. It gets no access control list, which its mode may belong to.
    fn wanted(&self, source: &Entry) -> Wanted {
        let options = &self.shared.options;
        let mut about = source.about;
        if options.preserves {
            about.mode = mode_for_others(local(&source.path), &about);
        }
        Wanted::of(&about, options)
    }

    /// Gives a file on the server another name, in place of what has it; whether that was possible. A file system
    /// may have no links, or not as many.
    async fn hard_link(
        &self,
        file: FileHandle,
        dir: FileHandle,
        to: &[u8],
    ) -> anyhow::Result<bool> {
        let linked = async {
            let nfs = self.export.nfs();
            let name = Name::new(split(to).1)?;
            if self.shared.options.keeps_existing {
                return match nfs.link(file, dir, name).await {
                    Ok(()) => Ok(true),
                    // That it is taken is found when a copy is to get the name.
                    Err(Fault::Status(_)) => Ok(false),
                    Err(fault) => Err(fault),
                };
            }
            let temporary = nfs_client::temporary_name(&name, random());
            let first = Name::new(&temporary)?;
            match nfs.link(file, dir, first).await {
                // The call came twice, as it was sent again: nobody else knows the name.
                Ok(()) | Err(Fault::Status(Status::Exist)) => {}
                Err(Fault::Status(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            }
            if let Err(fault) = nfs.rename((dir, first), (dir, name)).await {
                // The error to be told is that of renaming.
                let _ = nfs.remove(dir, first).await;
                return Err(fault);
            }
            Ok(true)
        };
        let linked = async { linked.await.map_err(|fault| fault.at("link", to)) };
        let interrupt = &self.shared.interrupt;
        interrupt.unless_late(REMOVED_WITHIN, linked).await
    }
}

/// What is said of something that is copied.
fn said(dest: &Tree, from: &[u8], to: &[u8]) -> String {
    format!("{} -> {}", Tree::Local.show(from), dest.show(to))
}

/// The directory that something goes into which the user named.
fn base(roots: &[Root], root: usize) -> anyhow::Result<Within> {
    let node = roots[root].base.node.context("it is not on the server")?;
    Ok(Within {
        handle: node.handle,
        held: None,
    })
}
