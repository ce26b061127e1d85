//! A copy of one file, symbolic link or special file.

use super::{BYTES_IN_FLIGHT, How};
use crate::copy::sparse::runs;
use crate::interrupt::Interrupted;
use crate::session::{FileError, Of, Place};
use anyhow::bail;
use nfs_client::{Fault, Node, Upload, temporary_name};
use nfs_proto::{
    Attributes, FileHandle, FileType, Name, SetAttributes, SetTime, Status, args as nfs,
};
use oncrpc::xdr::Gather;
use rpcrdma::Client;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::timeout;

/// Size of the largest small file, in bytes: of those only the number is limited.
const SMALL_FILE: u64 = 64 << 10;

/// Bytes that a file counts at least, if it is not small.
const LEAST_COUNTED: u32 = 2 << 20;

/// How long a server may take, after an interrupt, to finish or remove what is incomplete.
const REMOVED_WITHIN: Duration = Duration::from_secs(3);

/// Something to be copied that is no directory.
pub(super) struct File {
    pub(super) source: Place,
    pub(super) node: Node,
    /// The directory that it goes into.
    pub(super) dir: FileHandle,
    pub(super) target: Place,
}

/// What has neither data nor entries.
enum Special {
    /// With this text.
    Symlink(Vec<u8>),
    /// A pipe, a socket or a device.
    Node(nfs::Node),
}

impl File {
    /// Copies it.
    pub(super) async fn copied(self, how: &How) -> anyhow::Result<()> {
        let target = &self.target;
        let name = Name::new(target.name().unwrap_or_default());
        let name = name.map_err(|status| target.fault("create", status))?;
        if how.no_clobber {
            match target.export.nfs().lookup(self.dir, name).await {
                Ok(_) => return Ok(()),
                Err(Fault::Status(Status::NoEntry)) => {}
                Err(fault) => bail!(target.fault("find", fault)),
            }
        }
        match self.node.attributes.file_type {
            FileType::Regular => match self.data(how).await {
                // It was not there when it was looked for.
                Err(error) if how.no_clobber && is_taken(&error) => return Ok(()),
                copied => copied?,
            },
            FileType::Symlink => self.symlink(name, how).await?,
            _ => self.special(name, how).await?,
        }
        if how.verbose {
            writeln!(io::stdout(), "{} copied to {}", self.source.url, target.url)?;
        }
        Ok(())
    }

    async fn symlink(&self, name: Name<'_>, how: &How) -> anyhow::Result<()> {
        let source = self.source.export.nfs();
        let text = source.read_link(self.node.handle).await;
        let text = text.map_err(|fault| self.source.fault("read symbolic link", fault))?;
        Ok(self.replacing(name, &Special::Symlink(text), how).await?)
    }

    /// Makes a pipe, a socket or a device.
    async fn special(&self, name: Name<'_>, how: &How) -> anyhow::Result<()> {
        let Attributes {
            file_type,
            mode,
            device,
            ..
        } = self.node.attributes;
        let attributes = SetAttributes {
            mode: Some(mode & 0o777 & !how.umask),
            ..SetAttributes::default()
        };
        let node = match file_type {
            FileType::Fifo => nfs::Node::Fifo(attributes),
            FileType::Socket => nfs::Node::Socket(attributes),
            FileType::Block => nfs::Node::Block(attributes, device),
            FileType::Character => nfs::Node::Character(attributes, device),
            FileType::Regular | FileType::Directory | FileType::Symlink => {
                bail!(self.source.fault("copy", Status::BadType))
            }
        };
        self.replacing(name, &Special::Node(node), how).await?;
        if how.preserve {
            let nfs = self.target.export.nfs();
            let found = nfs.lookup(self.dir, name).await;
            let (handle, _) = found.map_err(|fault| self.target.fault("find", fault))?;
            preserve(&self.target, handle, &self.node.attributes).await?;
        }
        Ok(())
    }

    async fn make(&self, name: Name<'_>, what: &Special) -> Result<(), Fault> {
        let nfs = self.target.export.nfs();
        let made = match what {
            Special::Symlink(text) => {
                let usual = SetAttributes::default();
                nfs.symlink(self.dir, name, usual, text).await
            }
            Special::Node(node) => nfs.make_node(self.dir, name, *node).await,
        };
        made.map(|_| ())
    }

    /// Makes something, in place of what has the name, unless that is a directory: under a temporary name first, so
    /// that what is there stays if it cannot be made.
    async fn replacing(&self, name: Name<'_>, what: &Special, how: &How) -> Result<(), FileError> {
        let failed = |fault| match what {
            Special::Symlink(_) => self.target.fault("make symbolic link", fault),
            Special::Node(_) => self.target.fault("make special file", fault),
        };
        match self.make(name, what).await {
            Err(Fault::Status(Status::Exist)) if how.no_clobber => Ok(()),
            Err(Fault::Status(Status::Exist)) => {
                let nfs = self.target.export.nfs();
                let (there, attributes) = nfs.lookup(self.dir, name).await.map_err(failed)?;
                let attributes = match attributes {
                    Some(attributes) => attributes,
                    None => nfs.get_attributes(there).await.map_err(failed)?,
                };
                if attributes.file_type == FileType::Directory {
                    return Err(failed(Status::IsDirectory.into()));
                }
                let number = RandomState::new().hash_one(name.get());
                let temporary = temporary_name(&name, number);
                let first = Name::new(&temporary).map_err(|status| failed(status.into()))?;
                self.make(first, what).await.map_err(failed)?;
                let named = nfs.rename((self.dir, first), (self.dir, name)).await;
                if named.is_err() {
                    // The error to be told is that of renaming.
                    let _ = nfs.remove(self.dir, first).await;
                }
                named.map_err(failed)
            }
            made => made.map_err(failed),
        }
    }

    /// Copies the data of a regular file. An interrupt removes what is incomplete.
    async fn data(&self, how: &How) -> anyhow::Result<()> {
        let size = self.node.attributes.size;
        let _room = match size > SMALL_FILE {
            true => {
                let bytes = u32::try_from(size).unwrap_or(u32::MAX);
                let bytes = bytes.clamp(LEAST_COUNTED, BYTES_IN_FLIGHT);
                let room = Arc::clone(&how.bytes).acquire_many_owned(bytes).await;
                Some(room.expect("the semaphore is never closed"))
            }
            false => None,
        };
        let target = &self.target;
        let mode = match how.preserve {
            // Nobody else has it before it has its owner.
            true => 0o600,
            // What runs with the rights of its owner is made so by the owner, not by copying.
            false => self.node.attributes.mode & 0o777 & !how.umask,
        };
        let attributes = SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        let begun = async {
            let begun = target.export.upload_in(self.dir, &target.path, attributes);
            begun.await.of(target)
        };
        let begun = how.interrupt.unless_late(REMOVED_WITHIN, begun).await;
        let mut upload = begun.inspect_err(|error| {
            // Whether it was begun is not known.
            if error.is::<Interrupted>() {
                how.left.fetch_add(1, Relaxed);
            }
        })?;
        let copied = match how.interrupt.unless(self.send(&mut upload, how)).await {
            Ok(()) => {
                let completed = async {
                    match how.no_clobber {
                        true => upload.complete_new().await.of(target),
                        false => upload.complete().await.of(target),
                    }
                };
                how.interrupt.unless_late(REMOVED_WITHIN, completed).await
            }
            Err(error) => Err(error),
        };
        if copied.is_err() {
            let removed = timeout(REMOVED_WITHIN, upload.abandon()).await;
            if !matches!(removed, Ok(Ok(()))) {
                how.left.fetch_add(1, Relaxed);
            }
        }
        copied
    }

    async fn send(&self, upload: &mut Upload<'_, Client>, how: &How) -> anyhow::Result<()> {
        let (source, target) = (&self.source, &self.target);
        let attributes = &self.node.attributes;
        let sparse = how
            .sparse
            .leaves_out_zeros(attributes.used, attributes.size);
        let mut stream = source.export.read_node(&self.node, &source.path);
        let mut ends_in_hole = false;
        while let Some(data) = stream.next().await.of(source)? {
            if sparse {
                for piece in data {
                    for run in runs(&piece, upload.offset()) {
                        ends_in_hole = run.is_hole;
                        if run.is_hole {
                            upload.stream().skip(run.data.len() as u64);
                        } else {
                            let data = Gather::from_elem(piece.slice_ref(run.data), 1);
                            upload.write(data).await.of(target)?;
                        }
                    }
                }
            } else if stream.has_ended() && upload.offset() == 0 {
                upload.write_last(data).await.of(target)?;
            } else {
                upload.write(data).await.of(target)?;
            }
        }
        upload.stream().finish().await.of(target)?;
        let (handle, end) = (upload.handle(), upload.offset());
        // Before the times are set, which this changes.
        if ends_in_hole {
            let attributes = SetAttributes {
                size: Some(end),
                ..SetAttributes::default()
            };
            let nfs = target.export.nfs();
            let set = nfs.set_attributes(handle, attributes, None).await;
            set.map_err(|fault| target.fault("set the size", fault))?;
        }
        match how.preserve {
            true => preserve(target, handle, attributes).await,
            false => Ok(()),
        }
    }
}

/// Whether something was not copied because there is something by now.
fn is_taken(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<FileError>();
    error.is_some_and(|error| error.status() == Some(Status::Exist))
}

/// Gives a copy the owner, if that is permitted, and mode and times of its source.
pub(super) async fn preserve(
    place: &Place,
    copy: FileHandle,
    source: &Attributes,
) -> anyhow::Result<()> {
    let nfs = place.export.nfs();
    let owner = SetAttributes {
        uid: Some(source.uid),
        gid: Some(source.gid),
        ..SetAttributes::default()
    };
    let mode = match nfs.set_attributes(copy, owner, None).await {
        Ok(()) => source.mode & 0o7777,
        // It is the copy of who copies, then, and does not run with the rights of another.
        Err(Fault::Status(Status::Perm | Status::Access)) => source.mode & 0o777,
        Err(fault) => bail!(place.fault("change the owner", fault)),
    };
    let attributes = SetAttributes {
        mode: Some(mode),
        atime: SetTime::ClientTime(source.atime),
        mtime: SetTime::ClientTime(source.mtime),
        ..SetAttributes::default()
    };
    let set = nfs.set_attributes(copy, attributes, None).await;
    Ok(set.map_err(|fault: Fault| -> FileError { place.fault("change attributes of", fault) })?)
}
