//! `rpcrdma cp`: copies files from a server to a server, through this machine.

mod file;

use crate::copy::sparse::Sparse;
use crate::failure::{Ended, Usage};
use crate::in_flight::InFlight;
use crate::interrupt::Interrupt;
use crate::modes::umask;
use crate::session::{Follow, Of, Place, Session, SessionArgs};
use crate::tree::{Step, Tree};
use anyhow::{anyhow, bail};
use clap::Args;
use file::{File, preserve};
use nfs_client::{Fault, NfsUrl, Node};
use nfs_proto::{FileHandle, FileType, Name, SetAttributes, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::Semaphore;

/// Bytes of large files that are copied at a time; a larger file is copied alone among those.
const BYTES_IN_FLIGHT: u32 = 64 << 20;

/// Directories whose permissions and times are set together, when all is copied that is in them. For
/// more, files in flight are waited for.
const MAX_FILLED: usize = 1 << 16;

/// Copy files on a server, or from one server to another
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma cp nfs://127.0.0.1/file nfs://127.0.0.1/copy
  rpcrdma cp -rp nfs://127.0.0.1/photos nfs://127.0.0.1/b/
  rpcrdma cp -n nfs://127.0.0.1/a nfs://127.0.0.1/dir/

All data passes through this machine, because NFSv3 has no call that copies. The URLs may be of \
different exports or servers. A file gets its name when it is complete, replacing a file of that \
name, whose other hard links keep the old content. Symbolic links on the command line are \
followed only without -r.")]
pub(crate) struct CpArgs {
    /// nfs://HOST[:PORT]/PATH of the sources, then of the destination
    #[arg(value_name = "URL", required = true, num_args = 2..)]
    urls: Vec<NfsUrl>,

    /// Copy directories recursively; symbolic links and special files are copied as such
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Preserve mode, times, and, if permitted, owner and group
    #[arg(short)]
    preserve: bool,

    /// Same as -rp
    #[arg(short, long)]
    archive: bool,

    /// Do not overwrite existing files
    #[arg(short, long, overrides_with = "force")]
    no_clobber: bool,

    /// Overwrite existing files, the default; cancels -n
    #[arg(short, long)]
    force: bool,

    /// Treat the last URL as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// When copies get holes (ranges of zeros that take no space)
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    sparse: Sparse,

    /// Print each file that is copied
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// How to copy: what each file needs.
#[derive(Clone)]
struct How {
    preserve: bool,
    no_clobber: bool,
    verbose: bool,
    sparse: Sparse,
    umask: u32,
    interrupt: Interrupt,
    bytes: Arc<Semaphore>,
    /// Incomplete files that could not be removed.
    left: Arc<AtomicUsize>,
}

/// A directory that is being filled.
struct Filling {
    place: Place,
    handle: FileHandle,
}

/// A directory that has all that goes into it, once nothing is in flight.
struct Filled {
    source: Node,
    target: Filling,
}

struct Cp {
    how: How,
    recursive: bool,
    all: InFlight,
    filled: Vec<Filled>,
}

/// Runs the command.
pub(crate) async fn run(args: &CpArgs) -> anyhow::Result<Ended> {
    let Some((to, sources)) = args.urls.split_last() else {
        bail!(Usage("there is nothing to copy".to_owned()));
    };
    if args.no_target_directory && sources.len() > 1 {
        bail!(Usage("with -T there is one thing to copy".to_owned()));
    }
    let interrupt = Interrupt::of_copy()?;
    let left = Arc::<AtomicUsize>::default();
    let mut cp = Cp {
        how: How {
            preserve: args.preserve || args.archive,
            no_clobber: args.no_clobber,
            verbose: args.verbose,
            sparse: args.sparse,
            umask: umask(),
            interrupt: interrupt.clone(),
            bytes: Arc::new(Semaphore::new(BYTES_IN_FLIGHT as usize)),
            left: Arc::clone(&left),
        },
        recursive: args.recursive || args.archive,
        all: InFlight::new(),
        filled: Vec::new(),
    };
    let mut session = Session::new(&args.session);
    let copied = interrupt
        .unless(cp.everything(&mut session, sources, to, args.no_target_directory))
        .await;
    // What is incomplete removes itself.
    let settled = cp.all.settle().await;
    let left = left.load(Relaxed);
    if left > 0 {
        cp.all.check(Err(anyhow!(
            "incomplete files are left on the server, which does not let them be removed: {left}, each with \
             a name like .NAME.rpcrdma-NUMBER"
        )))?;
    }
    copied.and(settled)?;
    session.close().await;
    Ok(cp.all.ended())
}

impl Cp {
    async fn everything(
        &mut self,
        session: &mut Session,
        sources: &[NfsUrl],
        to: &NfsUrl,
        no_target_directory: bool,
    ) -> anyhow::Result<()> {
        let to = session.place(to).await?;
        let into = !no_target_directory && to.is_directory().await?;
        if !into && sources.len() > 1 {
            bail!("{}: it is not a directory", to.url);
        }
        for url in sources {
            let copied = async {
                let source = session.place(url).await?;
                let target = match source.name() {
                    Some(name) if into => to.join(name),
                    // The root of an export: what is in it goes into the directory.
                    Some(_) | None => to.clone(),
                };
                self.named(source, target).await
            };
            let copied = copied.await;
            self.all.check(copied)?;
        }
        self.finish_directories().await
    }

    /// Copies what the user named.
    async fn named(&mut self, source: Place, target: Place) -> anyhow::Result<()> {
        let follow = match self.recursive {
            true => Follow::No,
            false => Follow::Yes,
        };
        let Some(node) = source.find(follow).await? else {
            bail!(source.fault("find", Status::NoEntry));
        };
        let there = target.find(Follow::Yes).await?;
        if let Some(there) = &there
            && source.is_same(&node, &target, there)
        {
            bail!("{} and {} are the same file", source.url, target.url);
        }
        if node.attributes.file_type == FileType::Directory {
            if !self.recursive {
                bail!("{}: it is a directory: copy it with -r", source.url);
            }
            refuse_within(&source, &node, &target).await?;
            return self.tree(&source, node, target, there).await;
        }
        if target.url.path.ends_with(b"/") {
            bail!("{}: it is not a directory", target.url);
        }
        let dir = target.export.parent(&target.path).await.of(&target)?;
        self.begin(source, node, dir, target).await
    }

    /// Begins with anything but a directory.
    async fn begin(
        &mut self,
        source: Place,
        node: Node,
        dir: FileHandle,
        target: Place,
    ) -> anyhow::Result<()> {
        let how = self.how.clone();
        let file = File {
            source,
            node,
            dir,
            target,
        };
        self.all.begin(async move { file.copied(&how).await }).await
    }

    /// Copies a directory with all that is in it.
    async fn tree(
        &mut self,
        source: &Place,
        node: Node,
        target: Place,
        there: Option<Node>,
    ) -> anyhow::Result<()> {
        let mut tree = Tree::new(source).await?;
        let handle = match there {
            // Also at the end of a symbolic link, which the user named.
            Some(there) if there.attributes.file_type == FileType::Directory => there.handle,
            Some(_) | None => {
                let dir = target.export.parent(&target.path).await.of(&target)?;
                self.make_directory(&target, dir, &node).await?
            }
        };
        let mut way = vec![(
            Filling {
                place: target,
                handle,
            },
            node,
        )];
        loop {
            let step = match tree.next().await {
                Ok(Some(step)) => step,
                Ok(None) => break,
                Err(error) => {
                    self.all.check(Err(error.into()))?;
                    continue;
                }
            };
            let Some((last, _)) = way.last() else { break };
            match step {
                Step::Enter(place, node) => {
                    let target = last.place.join(place.name().unwrap_or_default());
                    match self.make_directory(&target, last.handle, &node).await {
                        Ok(handle) => {
                            let place = target;
                            way.push((Filling { place, handle }, node));
                        }
                        Err(error) => {
                            tree.skip();
                            self.all.check(Err(error))?;
                        }
                    }
                }
                Step::Other(place, node) => {
                    let target = last.place.join(place.name().unwrap_or_default());
                    let dir = last.handle;
                    self.begin(place, node, dir, target).await?;
                }
                Step::Leave(..) => {
                    if let Some((target, source)) = way.pop() {
                        self.fill(target, source).await?;
                    }
                }
            }
        }
        if let Some((target, source)) = way.pop() {
            self.fill(target, source).await?;
        }
        Ok(())
    }

    /// Makes a directory in another. One that is there is as good, but not a symbolic link to one: it may
    /// lead out of the tree.
    async fn make_directory(
        &self,
        target: &Place,
        dir: FileHandle,
        source: &Node,
    ) -> anyhow::Result<FileHandle> {
        let doing = "make directory";
        let nfs = target.export.nfs();
        let name = Name::new(target.name().unwrap_or_default());
        let name = name.map_err(|status| target.fault(doing, status))?;
        let attributes = SetAttributes {
            // We must be able to put something in.
            mode: Some(source.attributes.mode & 0o777 & !self.how.umask | 0o700),
            ..SetAttributes::default()
        };
        let made = nfs.make_dir(dir, name, attributes).await;
        let existing = match made {
            Ok(created) => match created.handle {
                Some(handle) => return Ok(handle),
                None => false,
            },
            Err(Fault::Status(Status::Exist)) => true,
            Err(fault) => bail!(target.fault(doing, fault)),
        };
        let (handle, attributes) = match nfs.lookup(dir, name).await {
            Ok(found) => found,
            Err(fault) => bail!(target.fault(doing, fault)),
        };
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => nfs
                .get_attributes(handle)
                .await
                .map_err(|fault| target.fault(doing, fault))?,
        };
        match attributes.file_type {
            FileType::Directory => Ok(handle),
            _ if existing => bail!(target.fault(doing, Status::Exist)),
            _ => bail!(target.fault(doing, Status::NotDirectory)),
        }
    }

    /// Notes a directory whose permissions and times are to be set when all is in it.
    async fn fill(&mut self, target: Filling, source: Node) -> anyhow::Result<()> {
        self.filled.push(Filled { source, target });
        match self.filled.len() < MAX_FILLED {
            true => Ok(()),
            false => self.finish_directories().await,
        }
    }

    /// Sets permissions and times of directories that have all that goes into them.
    async fn finish_directories(&mut self) -> anyhow::Result<()> {
        self.all.settle().await?;
        for Filled { source, target } in std::mem::take(&mut self.filled) {
            let attributes = &source.attributes;
            let finished = if self.how.preserve {
                preserve(&target.place, target.handle, attributes).await
            } else if attributes.mode & 0o700 != 0o700 {
                let mode = Some(attributes.mode & 0o777 & !self.how.umask);
                let attributes = SetAttributes {
                    mode,
                    ..SetAttributes::default()
                };
                let nfs = target.place.export.nfs();
                let set = nfs.set_attributes(target.handle, attributes, None).await;
                set.map_err(|fault| target.place.fault("change the mode", fault).into())
            } else {
                Ok(())
            };
            self.all.check(finished)?;
        }
        Ok(())
    }
}

/// A directory is not copied into itself, which would have no end.
async fn refuse_within(source: &Place, node: &Node, target: &Place) -> anyhow::Result<()> {
    let mut above = target.parent();
    while let Some(place) = above {
        if let Some(there) = place.find(Follow::Yes).await?
            && source.is_same(node, &place, &there)
        {
            bail!(
                "{}: it cannot be copied into itself, to {}",
                source.url,
                target.url
            );
        }
        above = place.parent();
    }
    Ok(())
}
