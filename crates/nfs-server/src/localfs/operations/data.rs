//! Reading, writing and syncing data.

use super::turns::lock_at;
use crate::fs::{
    Attributes, Changed, Error, FileId, FileKind, Identity, ReadOut, Seen, Stability, Wcc, WriteOut,
};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::node::Node;
use crate::localfs::sys::{Pace, Stop, Try};
use crate::localfs::volume::change_values::During;
use crate::permission::{self, EXECUTE, READ, WRITE};
use buffer::Buffer;
use bytes::Bytes;
use oncrpc::xdr::{Gather, gather_len};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use smallvec::SmallVec;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};

/// Largest unstable write to try without waiting, in bytes.
pub const INLINE_WRITE: usize = 64 << 10;

/// Largest write to a file system in memory that is done without a job, in bytes: it takes as long as a
/// READ of that size from the page cache, and its data was just read from the socket.
pub(in crate::localfs) const INLINE_WRITE_IN_MEMORY: usize = 1 << 20;

/// Smallest read, in bytes, for which the kernel is asked to read ahead.
const ASK_AHEAD: usize = 128 << 10;

/// A READ in progress.
pub(in crate::localfs) struct Reading {
    node: Arc<Node>,
    attributes: Attributes,
    offset: u64,
    /// Bytes to read, limited by the size of the file.
    want: usize,
    /// Whether the file ended earlier than its attributes said.
    ended: bool,
    buffer: Buffer,
}

impl Reading {
    pub(in crate::localfs) fn finish(self) -> Seen<ReadOut> {
        let end = self.offset.saturating_add(self.buffer.len() as u64);
        let mut data = Gather::new();
        if !self.buffer.is_empty() {
            data.push(self.buffer.freeze());
        }
        Seen {
            attributes: Some(self.attributes),
            result: Ok(ReadOut {
                data,
                eof: self.ended || end >= self.attributes.size,
            }),
        }
    }
}

/// The attributes are read before the data: with later ones, a client could take old data for
/// that of a newer version of the file.
pub(in crate::localfs) fn begin_read(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    offset: u64,
    count: u32,
    pace: Pace,
) -> Try<Reading> {
    let node = layers.handles.node(file, pace)?;
    permission::check_regular(node.kind)?;
    let attributes = layers.files.attributes(&node)?;
    check_read(layers, who, &node, &attributes, pace)?;
    let left = attributes.size.saturating_sub(offset);
    let want = usize::try_from(left.min(u64::from(count))).unwrap_or(usize::MAX);
    let buffer = if want == 0 {
        Buffer::default()
    } else {
        layers.files.open_reader(&node)?;
        layers.pool.take(want)
    };
    Ok(Reading {
        node,
        attributes,
        offset,
        want,
        ended: false,
        buffer,
    })
}

/// Checks that the caller may read data. The owner of a file may read and write it whatever its
/// mode, and whoever may execute it may read it (RFC 1813 §4.4): the client's open is unknown
/// here, and may have been before a change of mode.
pub(super) fn check_read(
    layers: &Layers,
    who: &Identity,
    node: &Node,
    attributes: &Attributes,
    pace: Pace,
) -> Try<()> {
    if !layers.rights.acts_for_callers()
        || who.uid == attributes.uid
        || layers.rights.may(who, node, attributes, READ, pace)?
    {
        return Ok(());
    }
    layers.rights.check(who, node, attributes, EXECUTE, pace)
}

/// Checks that the caller may write data, as its owner may whatever its mode (RFC 1813 §4.4).
pub(super) fn check_write(
    layers: &Layers,
    who: &Identity,
    node: &Node,
    attributes: &Attributes,
    pace: Pace,
) -> Try<()> {
    if who.uid == attributes.uid {
        return Ok(());
    }
    layers.rights.check(who, node, attributes, WRITE, pace)
}

/// Continues a READ; returns whether all data is there. With [`Pace::Quick`] it reads only from
/// the page cache.
pub(in crate::localfs) fn read_on(layers: &Layers, reading: &mut Reading, pace: Pace) -> Try<bool> {
    let flags = match pace {
        Pace::Quick => layers.volume.haste(),
        Pace::Patient => ReadWriteFlags::empty(),
    };
    let left = reading.want - reading.buffer.len();
    if pace == Pace::Patient && left >= ASK_AHEAD {
        // Requests the whole range from the disk at once: the kernel's own readahead is misled
        // by reads in any order. A failure of the request does not matter.
        let begin = reading.offset + reading.buffer.len() as u64;
        let len = NonZeroU64::new(left as u64);
        let fd = layers.files.open_reader(&reading.node)?;
        let _ = rustix::fs::fadvise(fd, begin, len, Advice::WillNeed);
    }
    while reading.buffer.len() < reading.want {
        let fd = layers.files.open_reader(&reading.node)?;
        let have = reading.buffer.len();
        let space = &mut reading.buffer.memory_mut()[have..reading.want];
        let at = reading.offset + have as u64;
        match rustix::io::preadv2(fd, &mut [IoSliceMut::new(space)], at, flags) {
            // The file became shorter meanwhile.
            Ok(0) if pace == Pace::Patient => {
                reading.ended = true;
                break;
            }
            Ok(0) => return Ok(false),
            Ok(n) => reading.buffer.set_len(have + n),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL) if pace == Pace::Quick => {
                return Ok(false);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}

/// Writes the data after the first `written` bytes.
pub(in crate::localfs) fn write(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    (offset, data): (u64, &Gather),
    written: &mut usize,
    stability: Stability,
    pace: Pace,
) -> Try<Changed<WriteOut>> {
    let node = layers.handles.node(file, pace)?;
    permission::check_regular(node.kind)?;
    let _unguarded = layers.turns.unguarded(node.ino, pace)?;
    let changing = layers.turns.begin(node.ino, false);
    let before = (&changing, During::Before);
    let before = layers.files.attributes_during(&node, before)?;
    let result = check_write(layers, who, &node, &before, pace)
        .and_then(|()| check_end(offset, gather_len(data) as u64))
        .and_then(|()| write_pieces(layers, who, &node, (offset, data), written, stability, pace));
    let result = match result {
        Err(Stop::WouldBlock) => return Err(Stop::WouldBlock),
        // Reports what was written; the client sends the rest again and gets the error then.
        Err(Stop::Fail(_)) if *written > 0 => Ok(()),
        Err(Stop::Fail(error)) => Err(error),
        Ok(()) => Ok(()),
    };
    let after = (&changing, During::After);
    let after = layers.files.attributes_during(&node, after).ok();
    Ok(Changed {
        wcc: Wcc {
            // With concurrent writes, no client gets attributes from before.
            before: changing.is_alone().then(|| before.before()),
            after,
            atomic: false,
        },
        result: result.map(|()| WriteOut {
            count: u32::try_from(*written).unwrap_or(u32::MAX),
            committed: stability,
        }),
    })
}

/// Writes as the caller: the kernel then clears set-user-id bits of a program that belongs to
/// another user, and charges the space to the caller.
fn write_pieces(
    layers: &Layers,
    who: &Identity,
    node: &Node,
    (offset, data): (u64, &Gather),
    written: &mut usize,
    stability: Stability,
    pace: Pace,
) -> Try<()> {
    let len = gather_len(data);
    if len == 0 {
        return Ok(());
    }
    let flags = match (pace, stability) {
        (Pace::Quick, _) => layers.volume.haste(),
        (Pace::Patient, Stability::Unstable) => ReadWriteFlags::empty(),
        (Pace::Patient, Stability::DataSync | Stability::FileSync) => ReadWriteFlags::SYNC,
    };
    let _turn = turn_to_write(layers, node, stability, pace)?;
    let fd = layers.durability.writer(node)?;
    while *written < len {
        let pieces = slices(data, *written);
        let at = offset + *written as u64;
        match layers
            .rights
            .as_writer(who, || rustix::io::pwritev2(&*fd, &pieces, at, flags))
        {
            Ok(0) => return Err(Error::Io.into()),
            Ok(n) => *written += n,
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::INVAL) if pace == Pace::Quick => {
                layers.quick_writes.store(false, Relaxed);
                return Err(Stop::WouldBlock);
            }
            Err(errno) => {
                if stability == Stability::Unstable && *written > 0 {
                    layers.durability.wrote_unstably(node);
                }
                // When space or quota is exhausted, earlier data may not be written back
                // either.
                let lost = match errno {
                    Errno::IO => true,
                    Errno::NOSPC | Errno::DQUOT if stability != Stability::Unstable => {
                        let again = ReadWriteFlags::empty();
                        layers
                            .rights
                            .as_writer(who, || rustix::io::pwritev2(&*fd, &pieces, at, again))
                            .is_ok()
                    }
                    _ => false,
                };
                if lost && stability != Stability::Unstable {
                    layers.durability.note_loss(errno);
                }
                return Err(errno.into());
            }
        }
    }
    drop(fd);
    match stability {
        Stability::Unstable => layers.durability.wrote_unstably(node),
        Stability::DataSync | Stability::FileSync => layers.durability.close_writer(node),
    }
    Ok(())
}

/// Takes the turn of a call to write to a file. The kernel serialises writes to a file, and
/// waiting threads spin. A write that syncs to a disk takes no turn, so that another can write
/// meanwhile. A task that serves connections does not wait for a turn.
fn turn_to_write<'a>(
    layers: &Layers,
    node: &'a Node,
    stability: Stability,
    pace: Pace,
) -> Try<Option<MutexGuard<'a, ()>>> {
    if pace == Pace::Patient && stability != Stability::Unstable && !layers.volume.memory {
        return Ok(None);
    }
    lock_at(&node.writing, pace).map(Some)
}

/// Sets the size. A descriptor opened for that is closed again.
pub(in crate::localfs) fn truncate(
    layers: &Layers,
    who: &Identity,
    node: &Node,
    size: u64,
) -> Try<()> {
    // Truncation takes time, and writes to the file would wait for it in the kernel.
    let _turn = lock_at(&node.writing, Pace::Patient)?;
    let fd = writer_for_once(layers, node)?;
    layers
        .rights
        .as_writer(who, || rustix::fs::ftruncate(&*fd, size))?;
    Ok(())
}

/// Returns a descriptor that is open for writing. One that is opened for that is not kept.
pub(super) fn writer_for_once(layers: &Layers, node: &Node) -> Try<Arc<OwnedFd>> {
    if let Some(fd) = node.writer().clone() {
        return Ok(fd);
    }
    let fd = layers
        .volume
        .proc
        .reopen(node.path.as_fd(), OFlags::WRONLY)?;
    Ok(Arc::new(fd))
}

/// Makes all data and attributes of a file durable (RFC 1813 §3.3.21).
pub(in crate::localfs) fn commit(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    pace: Pace,
) -> Try<Changed<()>> {
    let node = layers.handles.node(file, pace)?;
    permission::check_regular(node.kind)?;
    let before = layers.files.attributes(&node)?;
    check_write(layers, who, &node, &before, pace)?;
    let synced = layers.durability.commit(&node)?;
    // Syncing changes no attributes. Reporting the same attributes before and after keeps the
    // client from taking changes of others for its own.
    let now = layers.files.attributes(&node).ok();
    Ok(Changed {
        wcc: Wcc {
            before: now.as_ref().map(Attributes::before),
            after: now,
            atomic: false,
        },
        result: synced.map_err(Error::from),
    })
}

/// Reads the text of a symbolic link.
pub(in crate::localfs) fn read_link(node: &Node) -> Try<Bytes> {
    // Only a symbolic link has a text; for other types the kernel would return ENOENT.
    if node.kind != FileKind::Symlink {
        return Err(Error::Invalid.into());
    }
    let text = rustix::fs::readlinkat(&node.path, c"", Vec::new())?;
    Ok(Bytes::from(text.into_bytes()))
}

/// Checks that the end of a range is not beyond the largest file size.
pub(super) fn check_end(offset: u64, len: u64) -> Try<()> {
    match offset.checked_add(len) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(Error::TooLarge.into()),
    }
}

/// Returns the data after the first `skip` bytes.
fn slices(data: &Gather, mut skip: usize) -> SmallVec<[IoSlice<'_>; 8]> {
    let mut slices = SmallVec::new();
    for piece in data {
        let cut = skip.min(piece.len());
        skip -= cut;
        if cut < piece.len() {
            slices.push(IoSlice::new(&piece[cut..]));
        }
    }
    slices
}
