//! Reserving space for ranges of files, giving it back, and finding data and holes.

use super::attributes;
use super::data::{check_end, check_read, check_write, writer_for_once};
use super::turns::lock_at;
use crate::fs::{Changed, Content, Error, FileId, Identity, Reserve, Seen, Sought};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::node::Node;
use crate::localfs::pending_syncs::PendingSyncs;
use crate::localfs::sys::{Pace, Try};
use crate::permission;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

pub(in crate::localfs) fn reserve(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    range: (u64, u64),
    what: Reserve,
    pending: &mut PendingSyncs,
) -> Try<Changed<()>> {
    let node = layers.handles.node(file, Pace::Patient)?;
    permission::check_regular(node.kind)?;
    let (wcc, result) = attributes::in_turn(layers, &node, false, |before| -> Try<()> {
        check_write(layers, who, &node, before, Pace::Patient)?;
        check_end(range.0, range.1)?;
        apply(layers, who, &node, range, what)
    })?;
    if result.is_ok() {
        pending.push(&node);
    }
    Ok(Changed {
        wcc,
        result: result.map_err(Error::from),
    })
}

/// Changes the space as the caller: the kernel charges it to the caller, and clears set-user-id bits as for a write.
fn apply(
    layers: &Layers,
    who: &Identity,
    node: &Node,
    (offset, len): (u64, u64),
    what: Reserve,
) -> Try<()> {
    let flags = match what {
        Reserve::Space => FallocateFlags::empty(),
        Reserve::Nothing => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
    };
    // It takes time, and writes to the file would wait for it in the kernel.
    let _turn = lock_at(&node.writing, Pace::Patient)?;
    let fd = writer_for_once(layers, node)?;
    layers
        .rights
        .as_writer(who, || rustix::fs::fallocate(&*fd, flags, offset, len))?;
    Ok(())
}

/// Finds data or a hole. Finding it may take a look at the disk.
pub(in crate::localfs) fn seek(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    offset: u64,
    content: Content,
    pace: Pace,
) -> Try<Seen<Sought>> {
    let node = layers.handles.node(file, pace)?;
    permission::check_regular(node.kind)?;
    let attributes = layers.files.attributes(&node)?;
    check_read(layers, who, &node, &attributes, pace)?;
    let size = attributes.size;
    if offset >= size {
        return Err(Error::PastEnd.into());
    }
    // No other call uses the offset of the descriptor, which this moves.
    let fd = layers.files.open_reader(&node)?;
    let from = match content {
        Content::Data => SeekFrom::Data(offset),
        Content::Hole => SeekFrom::Hole(offset),
    };
    let found = match rustix::fs::seek(fd, from) {
        Ok(found) => Some(found),
        // There is no data behind the offset.
        Err(Errno::NXIO) => None,
        // As for a file system that knows no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) if content == Content::Data => Some(offset),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => None,
        Err(errno) => return Err(errno.into()),
    };
    Ok(Seen {
        attributes: Some(attributes),
        result: Ok(Sought::of(found, size)),
    })
}
