//! Copying between files within the kernel, and sharing of data.

use super::attributes;
use super::data::{check_end, check_read, check_write, writer_for_once};
use super::turns::lock_at;
use crate::fs::{Changed, Error, FileId, Identity};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::node::Node;
use crate::localfs::pending_syncs::PendingSyncs;
use crate::localfs::sys::{Pace, Try};
use crate::permission;
use rustix::io::Errno;
use syscalls::clone_range as share;

/// A file and an offset in it.
type Place = (FileId, u64);

/// Copies data. As after an unstable write, it is not durable.
pub(in crate::localfs) fn copy(
    layers: &Layers,
    who: &Identity,
    from: Place,
    to: Place,
    len: u64,
) -> Try<Changed<u64>> {
    let mut copied = 0;
    let done = change(layers, who, (from, to, len), |from, to| {
        let (source, mut from_offset) = (layers.files.open_reader(from.0)?, from.1);
        let (target, mut to_offset) = (layers.durability.writer(to.0)?, to.1);
        while copied < len {
            let left = usize::try_from(len - copied).unwrap_or(usize::MAX);
            let (from, to) = (&mut from_offset, &mut to_offset);
            let call = || rustix::fs::copy_file_range(source, Some(from), &*target, Some(to), left);
            match layers.rights.as_writer(who, call) {
                // The source became shorter meanwhile.
                Ok(0) => break,
                Ok(n) => copied += n as u64,
                Err(Errno::INTR) => {}
                // What was copied is told; the client gets the error with the next call.
                Err(_) if copied > 0 => break,
                // The kernel does not copy on this file system.
                Err(Errno::XDEV | Errno::INVAL) => return Err(Error::NotSupported.into()),
                Err(errno) => return Err(errno.into()),
            }
        }
        if copied > 0 {
            layers.durability.wrote_unstably(to.0);
        }
        Ok(())
    })?;
    Ok(Changed {
        wcc: done.wcc,
        result: done.result.map(|()| copied),
    })
}

/// Makes a range share the data of another.
pub(in crate::localfs) fn clone_range(
    layers: &Layers,
    who: &Identity,
    from: Place,
    to: Place,
    len: u64,
    pending: &mut PendingSyncs,
) -> Try<Changed<()>> {
    let target = layers.handles.node(to.0, Pace::Patient)?;
    let done = change(layers, who, (from, to, len), |from, to| {
        let source = layers.files.open_reader(from.0)?;
        let fd = writer_for_once(layers, to.0)?;
        let (from, to) = (from.1, to.1);
        layers
            .rights
            .as_writer(who, || share(source, from, &*fd, to, len))?;
        Ok(())
    })?;
    if done.result.is_ok() {
        pending.push(&target);
    }
    Ok(done)
}

/// Changes one file by means of another, as the caller.
fn change(
    layers: &Layers,
    who: &Identity,
    (from, to, len): (Place, Place, u64),
    apply: impl FnOnce((&Node, u64), (&Node, u64)) -> Try<()>,
) -> Try<Changed<()>> {
    let source = layers.handles.node(from.0, Pace::Patient)?;
    let target = layers.handles.node(to.0, Pace::Patient)?;
    permission::check_regular(source.kind)?;
    permission::check_regular(target.kind)?;
    let attributes = layers.files.attributes(&source)?;
    check_read(layers, who, &source, &attributes, Pace::Patient)?;
    let (wcc, result) = attributes::in_turn(layers, &target, false, |before| -> Try<()> {
        check_write(layers, who, &target, before, Pace::Patient)?;
        check_end(to.1, len)?;
        let _turn = lock_at(&target.writing, Pace::Patient)?;
        apply((&source, from.1), (&target, to.1))
    })?;
    Ok(Changed {
        wcc,
        result: result.map_err(Error::from),
    })
}
