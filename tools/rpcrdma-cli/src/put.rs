//! `rpcrdma put`: copies files to a server.

use crate::copy::{Copy, CopyArgs};
use crate::failure::Ended;
use crate::session::{Place, Session};
use crate::show;
use anyhow::{Context, bail};
use buffer::{Buffer, Pool};
use clap::Args;
use nfs_client::{NfsUrl, Upload};
use nfs_proto::{FileType, SetAttributes, Status};
use oncrpc::xdr::Gather;
use rpcrdma::Client;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Bytes read from a local file at once.
const READ_SIZE: usize = 1 << 20;

/// Memory kept for reading, in bytes.
const POOL_KEEP: usize = 32 << 20;

/// Copy files to a server
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma put file nfs://127.0.0.1/
  rpcrdma put file nfs://127.0.0.1/other-name
  rpcrdma put -r photos notes.txt nfs://127.0.0.1/directory/

A file gets its name when it is complete and on stable storage, and replaces what has it. An
interrupted copy leaves no half file behind and can be made again.")]
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
    let into = to.is_directory().await?;
    if !into && (args.sources.len() > 1 || to.url.path.ends_with(b"/")) {
        bail!(
            "{} is not a directory: make it with `rpcrdma mkdir`",
            to.url
        );
    }
    let mut put = Put {
        copy: Copy::new(&args.copy)?,
        pool: Pool::new(POOL_KEEP),
    };
    for source in &args.sources {
        let to = match source.file_name() {
            Some(name) if into => to.join(name.as_bytes()),
            Some(_) | None => to.clone(),
        };
        let copied = put.source(source, to).await;
        put.copy.check(copied)?;
    }
    put.copy.progress.finish();
    session.close().await;
    Ok(put.copy.ended)
}

/// A copy, and memory for reading.
struct Put {
    copy: Copy,
    pool: Pool,
}

impl Put {
    /// Copies what the user named: a symbolic link stands for what it leads to.
    async fn source(&mut self, source: &Path, to: Place) -> anyhow::Result<()> {
        let about = source
            .metadata()
            .with_context(|| format!("cannot read {}", show::path(source)))?;
        if !about.is_dir() {
            return self.one(source, &about, &to).await;
        }
        if !self.copy.recursive {
            bail!("{} is a directory: copy it with -r", show::path(source));
        }
        let mut left = vec![(source.to_owned(), about, to)];
        while let Some((dir, about, to)) = left.pop() {
            let copied = self.directory(&dir, &about, &to, &mut left).await;
            self.copy.check(copied)?;
        }
        Ok(())
    }

    /// Makes a directory and copies the files in it; the directories in it are added to `left`.
    async fn directory(
        &mut self,
        dir: &Path,
        about: &Metadata,
        to: &Place,
        left: &mut Vec<(PathBuf, Metadata, Place)>,
    ) -> anyhow::Result<()> {
        make_directory(to, about).await?;
        let unreadable = || format!("cannot read the directory {}", show::path(dir));
        let mut names = Vec::new();
        for entry in dir.read_dir().with_context(unreadable)? {
            names.push(entry.with_context(unreadable)?.file_name());
        }
        names.sort();
        let mut directories = Vec::new();
        for name in names {
            let (path, to) = (dir.join(&name), to.join(name.as_bytes()));
            let about = path
                .symlink_metadata()
                .with_context(|| format!("cannot read {}", show::path(&path)));
            let copied = match about {
                Ok(about) if about.is_dir() => {
                    directories.push((path, about, to));
                    continue;
                }
                Ok(about) => self.one(&path, &about, &to).await,
                Err(error) => Err(error),
            };
            self.copy.check(copied)?;
        }
        left.extend(directories.into_iter().rev());
        Ok(())
    }

    /// Copies what is no directory.
    async fn one(&self, source: &Path, about: &Metadata, to: &Place) -> anyhow::Result<()> {
        if about.is_file() {
            return self.file(source, to).await;
        }
        if about.is_symlink() {
            return link(source, to).await;
        }
        bail!(
            "{} is neither a file nor a directory nor a symbolic link: it is not copied",
            show::path(source)
        );
    }

    async fn file(&self, source: &Path, to: &Place) -> anyhow::Result<()> {
        let unreadable = || format!("cannot read {}", show::path(source));
        let file = File::open(source).with_context(unreadable)?;
        let about = file.metadata().with_context(unreadable)?;
        self.copy
            .progress
            .begin(source.as_os_str().as_bytes(), about.len());
        let attributes = SetAttributes {
            // What runs with the rights of its owner is made so by the owner, not by copying.
            mode: Some(about.mode() & 0o777),
            ..SetAttributes::default()
        };
        let mut upload = to.export.upload(&to.path, attributes).await?;
        let sent = self.send(Arc::new(file), source, &mut upload);
        match self.copy.interrupt.unless(sent).await {
            Ok(()) => Ok(upload.finish().await?),
            Err(error) => {
                upload.abandon().await;
                Err(error)
            }
        }
    }

    /// Sends a file; the next piece is read while the ones before are on their way.
    async fn send(
        &self,
        file: Arc<File>,
        source: &Path,
        upload: &mut Upload<'_, Client>,
    ) -> anyhow::Result<()> {
        let mut offset = 0;
        let mut reading = self.read(&file, offset);
        loop {
            let piece = reading
                .await
                .expect("a read does not panic")
                .with_context(|| format!("cannot read {}", show::path(source)))?;
            if piece.is_empty() {
                return Ok(());
            }
            let len = piece.len() as u64;
            offset += len;
            reading = self.read(&file, offset);
            upload.write(Gather::from_elem(piece.freeze(), 1)).await?;
            self.copy.progress.add(len);
        }
    }

    /// Reads at most [`READ_SIZE`] bytes; none at the end of the file.
    fn read(&self, file: &Arc<File>, offset: u64) -> tokio::task::JoinHandle<io::Result<Buffer>> {
        let (file, mut piece) = (Arc::clone(file), self.pool.take(READ_SIZE));
        spawn_blocking(move || {
            loop {
                match file.read_at(&mut piece.memory_mut()[..READ_SIZE], offset) {
                    Ok(len) => {
                        piece.set_len(len);
                        return Ok(piece);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        })
    }
}

/// Makes a directory, unless there is one.
async fn make_directory(to: &Place, about: &Metadata) -> anyhow::Result<()> {
    if to.name().is_none() {
        return Ok(());
    }
    let attributes = SetAttributes {
        // We must be able to put something in.
        mode: Some(about.mode() & 0o777 | 0o700),
        ..SetAttributes::default()
    };
    match to.export.make_dir(&to.path, attributes).await {
        Err(error) if error.status() == Some(Status::Exist) => match to.is_directory().await? {
            true => Ok(()),
            false => Err(error.into()),
        },
        made => Ok(made?),
    }
}

/// Makes a symbolic link, in place of one that has the name.
async fn link(source: &Path, to: &Place) -> anyhow::Result<()> {
    let target = source
        .read_link()
        .with_context(|| format!("cannot read {}", show::path(source)))?;
    let target = OsString::from(target).into_vec();
    match to.export.symlink(&target, &to.path).await {
        Err(error) if error.status() == Some(Status::Exist) => {
            let there = to.export.lstat(&to.path).await?;
            if there.attributes.file_type != FileType::Symlink {
                return Err(error.into());
            }
            to.export.remove(&to.path).await?;
            Ok(to.export.symlink(&target, &to.path).await?)
        }
        made => Ok(made?),
    }
}
