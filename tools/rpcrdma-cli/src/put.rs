//! `rpcrdma put`: copies files to a server.

mod local;
mod read;
mod send;

use crate::copy::{Copy, CopyArgs, FILES_IN_FLIGHT, Shared};
use crate::failure::Ended;
use crate::session::{Place, Session};
use anyhow::bail;
use buffer::Pool;
use clap::Args;
use local::{Content, Dir, Found, Source, Target, What};
use nfs_client::{Export, Fault, NfsUrl};
use nfs_proto::{FileHandle, FileType, Name, SetAttributes, Status};
use rpcrdma::Client;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

/// Memory kept for reading, in bytes.
const POOL_KEEP: usize = 32 << 20;

/// Copy files to a server
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma put file nfs://127.0.0.1/
  rpcrdma put file nfs://127.0.0.1/other-name
  rpcrdma put -r photos notes.txt nfs://127.0.0.1/directory/

A file gets its name when it is complete and on stable storage, and replaces what has it. An
interrupted copy can be made again, and leaves no half file behind if the server can be reached
and still allows changes.")]
pub(crate) struct PutArgs {
    /// Files and directories to copy
    #[arg(required = true)]
    sources: Vec<PathBuf>,

    /// nfs://HOST[:PORT]/PATH of the file or directory to copy to
    #[arg(value_name = "URL")]
    url: NfsUrl,

    #[command(flatten)]
    copy: CopyArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &PutArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.copy.session);
    let to = session.place(&args.url).await?;
    let into = directory(&to).await?;
    if into.is_none() && (args.sources.len() > 1 || to.url.path.ends_with(b"/")) {
        bail!(
            "{} is not a directory: make it with `rpcrdma mkdir`",
            to.url
        );
    }
    let mut copy = Copy::new(&args.copy)?;
    let sources = sources(args, &to, into, &mut copy).await?;
    let put = Arc::new(Put {
        export: Arc::clone(&to.export),
        shared: copy.shared.clone(),
        pool: Pool::new(POOL_KEEP),
    });
    let ended = copy.all(async |copy| put.all(copy, sources).await).await?;
    session.close().await;
    Ok(ended)
}

/// The handle of a directory, if one is there.
async fn directory(to: &Place) -> anyhow::Result<Option<FileHandle>> {
    match to.export.stat(&to.path).await {
        Ok(node) if node.attributes.file_type == FileType::Directory => Ok(Some(node.handle)),
        Ok(_) => Ok(None),
        Err(error) if error.status() == Some(Status::NoEntry) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What the user named, and where it goes.
async fn sources(
    args: &PutArgs,
    to: &Place,
    into: Option<FileHandle>,
    copy: &mut Copy,
) -> anyhow::Result<Vec<Source>> {
    let parent = match into {
        Some(handle) => Dir::there(&to.path, handle),
        None => Dir::there(b"", to.export.parent(&to.path).await?),
    };
    let source = |path: &PathBuf| {
        let target = match path.file_name() {
            Some(name) if into.is_some() => Target::In(parent.clone(), parent.join(name)),
            Some(_) | None if into.is_some() => Target::Is(parent.clone()),
            Some(_) | None => Target::In(parent.clone(), to.path.clone()),
        };
        Source {
            path: path.clone(),
            target,
            waits: copy.is_named_again(path.file_name()),
        }
    };
    Ok(args.sources.iter().map(source).collect())
}

/// What a file needs to get to the server.
struct Put {
    export: Arc<Export<Client>>,
    shared: Shared,
    /// Memory for reading.
    pool: Pool,
}

impl Put {
    /// Copies all that a thread finds and reads ahead.
    async fn all(self: Arc<Self>, copy: &mut Copy, sources: Vec<Source>) -> anyhow::Result<()> {
        let (finds, mut found) = mpsc::channel(FILES_IN_FLIGHT);
        let recursive = copy.recursive;
        spawn_blocking(move || local::find(sources, recursive, &finds));
        while let Some(Found { path, what }) = found.recv().await {
            match what {
                Ok(What::Wait) => copy.settle().await?,
                Ok(What::Directory { parent, dir, mode }) => {
                    let made = self.make_directory(&parent, &dir, mode).await;
                    copy.check(made)?;
                }
                Ok(What::Other { dir, to, content }) => {
                    // Why there is no directory has been told.
                    if let Some(dir) = dir.handle() {
                        let put = Arc::clone(&self);
                        let copied = async move {
                            put.one(&path, content, dir, &to).await?;
                            put.shared.progress.done();
                            Ok(())
                        };
                        copy.begin(copied).await?;
                    }
                }
                Err(error) => copy.check(Err(error))?,
            }
        }
        Ok(())
    }

    /// Makes a directory, unless there is one.
    async fn make_directory(&self, parent: &Dir, dir: &Dir, mode: u32) -> anyhow::Result<()> {
        let Some(handle) = parent.handle() else {
            dir.set(None);
            return Ok(());
        };
        let attributes = SetAttributes {
            // We must be able to put something in.
            mode: Some(mode & 0o777 | 0o700),
            ..SetAttributes::default()
        };
        let made = self.export.make_dir_in(handle, &dir.path, attributes).await;
        dir.set(made.as_ref().ok().copied());
        Ok(made.map(|_| ())?)
    }

    /// Copies what is no directory.
    async fn one(
        &self,
        source: &Path,
        content: Content,
        dir: FileHandle,
        to: &[u8],
    ) -> anyhow::Result<()> {
        match content {
            Content::Small { data, mode } => self.small(data, mode, dir, to).await,
            Content::Large { file, size, mode } => {
                let _room = self.shared.room(size).await;
                self.large(source, (file, size, mode), dir, to).await
            }
            Content::Symlink(text) => {
                self.shared.progress.begin(0);
                let linked = self.link(&text, dir, to).await;
                Ok(linked.map_err(|fault| fault.at("make symbolic link", to))?)
            }
        }
    }

    /// Makes a symbolic link, in place of one that has the name.
    async fn link(&self, text: &[u8], dir: FileHandle, to: &[u8]) -> Result<(), Fault> {
        let nfs = self.export.nfs();
        let name = to.rsplit(|byte| *byte == b'/').next().unwrap_or(to);
        let name = Name::new(name)?;
        let usual = SetAttributes::default();
        match nfs.symlink(dir, name, usual, text).await {
            Err(Fault::Status(Status::Exist)) => {
                let (there, attributes) = nfs.lookup(dir, name).await?;
                let attributes = match attributes {
                    Some(attributes) => attributes,
                    None => nfs.get_attributes(there).await?,
                };
                if attributes.file_type != FileType::Symlink {
                    return Err(Status::Exist.into());
                }
                nfs.remove(dir, name).await?;
                nfs.symlink(dir, name, usual, text).await?;
                Ok(())
            }
            made => made.map(|_| ()),
        }
    }
}
