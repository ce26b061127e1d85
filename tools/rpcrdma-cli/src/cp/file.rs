//! A copy of one file, symbolic link or special file.

use super::{BYTES_IN_FLIGHT, How};
use crate::interrupt::Interrupted;
use crate::session::{FileError, Of, Place};
use anyhow::bail;
use bytes::Bytes;
use nfs_client::{Fault, Node, Upload};
use nfs_proto::{
    Attributes, FileHandle, FileType, Name, SetAttributes, SetTime, Status, args as nfs,
};
use oncrpc::xdr::{Gather, gather_len};
use rpcrdma::Client;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::timeout;

/// Size of the largest small file, in bytes: of those only the number is limited.
const SMALL_FILE: u64 = 64 << 10;

/// Bytes that a file counts at least, if it is not small.
const LEAST_COUNTED: u32 = 2 << 20;

/// Bytes of zeros that become a hole, and of which there are none with another byte.
const BLOCK: usize = 4096;

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
            FileType::Regular => self.data(how).await?,
            FileType::Symlink => self.symlink(name).await?,
            _ => self.special(name, how).await?,
        }
        if how.verbose {
            writeln!(io::stdout(), "{} copied to {}", self.source.url, target.url)?;
        }
        Ok(())
    }

    async fn symlink(&self, name: Name<'_>) -> anyhow::Result<()> {
        let source = self.source.export.nfs();
        let text = source.read_link(self.node.handle).await;
        let text = text.map_err(|fault| self.source.fault("read symbolic link", fault))?;
        Ok(self.replacing(name, &Special::Symlink(text)).await?)
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
        self.replacing(name, &Special::Node(node)).await?;
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

    /// Makes something, in place of what has the name, unless that is a directory.
    async fn replacing(&self, name: Name<'_>, what: &Special) -> Result<(), FileError> {
        let failed = |fault| match what {
            Special::Symlink(_) => self.target.fault("make symbolic link", fault),
            Special::Node(_) => self.target.fault("make special file", fault),
        };
        match self.make(name, what).await {
            Err(Fault::Status(Status::Exist)) => {
                let nfs = self.target.export.nfs();
                // REMOVE does not remove directories (RFC 1813 §3.3.12), or should not.
                let (there, attributes) = nfs.lookup(self.dir, name).await.map_err(failed)?;
                let attributes = match attributes {
                    Some(attributes) => attributes,
                    None => nfs.get_attributes(there).await.map_err(failed)?,
                };
                if attributes.file_type == FileType::Directory {
                    return Err(failed(Status::IsDirectory.into()));
                }
                nfs.remove(self.dir, name).await.map_err(failed)?;
                self.make(name, what).await.map_err(failed)
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
                let completed = async { upload.complete().await.of(target) };
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
        // Where a file has no holes, its zeros are not looked for.
        let sparse = attributes.used < attributes.size;
        let mut stream = source.export.read_node(&self.node, &source.path);
        let mut ends_in_hole = false;
        while let Some(data) = stream.next().await.of(source)? {
            if !sparse && stream.has_ended() && upload.stream().offset() == 0 {
                upload.write_last(data).await.of(target)?;
            } else if !sparse {
                upload.write(data).await.of(target)?;
            } else {
                for part in parts(data) {
                    ends_in_hole = matches!(part, Part::Zeros(_));
                    match part {
                        Part::Zeros(len) => upload.stream().skip(len as u64),
                        Part::Data(data) => upload.write(data).await.of(target)?,
                    }
                }
            }
        }
        upload.stream().finish().await.of(target)?;
        let (handle, end) = (upload.stream().handle(), upload.stream().offset());
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

/// A part of the data of a file.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Data(Gather),
    /// So many zeros.
    Zeros(usize),
}

/// Divides data into parts of blocks that are zeros and others, without copying any. A piece that is no
/// whole number of blocks ends in data or zeros as it has them.
fn parts(data: Gather) -> Vec<Part> {
    let mut parts = Vec::new();
    for piece in data {
        for (zeros, piece) in runs(&piece) {
            match (zeros, parts.last_mut()) {
                (true, Some(Part::Zeros(len))) => *len += piece.len(),
                (true, _) => parts.push(Part::Zeros(piece.len())),
                (false, Some(Part::Data(data))) => data.push(piece),
                (false, _) => parts.push(Part::Data(Gather::from_elem(piece, 1))),
            }
        }
    }
    debug_assert!(parts.iter().all(|part| match part {
        Part::Data(data) => gather_len(data) > 0,
        Part::Zeros(len) => *len > 0,
    }));
    parts
}

/// Blocks of a piece that follow each other and are zeros, or are not.
fn runs(piece: &Bytes) -> Vec<(bool, Bytes)> {
    let mut runs: Vec<(bool, Bytes)> = Vec::new();
    let mut begin = 0;
    let mut blocks = piece.chunks(BLOCK).peekable();
    let mut end = 0;
    while let Some(block) = blocks.next() {
        end += block.len();
        let zeros = is_zeros(block);
        if blocks.peek().is_none_or(|next| is_zeros(next) != zeros) {
            runs.push((zeros, piece.slice(begin..end)));
            begin = end;
        }
    }
    runs
}

fn is_zeros(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_are_holes_and_all_other_bytes_stay() {
        let mut data = vec![0; 5 * BLOCK + 10];
        data[0] = 1;
        data[3 * BLOCK + 7] = 2;
        let pieces = [&data[..2 * BLOCK], &data[2 * BLOCK..]].map(Bytes::copy_from_slice);
        let parts = parts(pieces.into_iter().collect());
        let lens: Vec<(bool, usize)> = parts
            .iter()
            .map(|part| match part {
                Part::Data(data) => (false, gather_len(data)),
                Part::Zeros(len) => (true, *len),
            })
            .collect();
        assert_eq!(
            lens,
            [
                (false, BLOCK),
                (true, 2 * BLOCK),
                (false, BLOCK),
                (true, BLOCK + 10)
            ]
        );
        let all: Vec<u8> = parts
            .into_iter()
            .flat_map(|part| match part {
                Part::Data(data) => data.concat(),
                Part::Zeros(len) => vec![0; len],
            })
            .collect();
        assert!(all == data);
    }

    #[test]
    fn data_without_zeros_is_one_part() {
        let data: Gather = std::iter::once(Bytes::from(vec![1; 3 * BLOCK + 1])).collect();
        assert_eq!(parts(data.clone()), [Part::Data(data)]);
        assert_eq!(parts(Gather::new()), []);
    }
}
