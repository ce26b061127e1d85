//! Facts of a directory entry in a listing.

use crate::fs::{Attributes, Found};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::node::Node;
use crate::localfs::sys::{self, Pace, Try};
use rustix::fs::FileType;
use rustix::io::Errno;

/// Returns the fileid and, if requested, the file of an entry; `None` if the entry is not
/// listed.
pub(in crate::localfs) fn describe(
    layers: &Layers,
    dir: &Node,
    name: &[u8],
    (ino, kind): (u64, FileType),
    plus: bool,
) -> Try<Option<(u64, Option<Found>)>> {
    match name {
        b"." => return Ok(Some((dir.fileid, None))),
        // The directory above the export is hidden from clients.
        b".." if dir.id() == layers.files.root().id() => return Ok(Some((dir.fileid, None))),
        b".." => return Ok(Some((fileid_of_parent(layers, dir, ino), None))),
        _ => {}
    }
    let of_entry = layers
        .volume
        .file_ids
        .of_entry(dir.id(), ino, kind == FileType::Directory);
    let may_be_hidden = layers.volume.may_be_hidden(ino);
    match of_entry {
        Some(fileid) if !plus && !may_be_hidden => return Ok(Some((fileid, None))),
        Some(_) | None => {}
    }
    let unseen = Ok(Some((of_entry.unwrap_or(ino), None)));
    // A mounted file system is not asked: it may hang.
    let opened = sys::open_entry(&dir.path, name, Pace::Patient);
    let stat = opened.and_then(|fd| layers.volume.stat(&fd).map(|stat| (fd, stat)));
    let (fd, stat) = match stat {
        Ok(found) => found,
        // The entry was removed meanwhile.
        Err(Errno::NOENT) => return Ok(None),
        // The client asks for the missing attributes and gets the error then.
        Err(_) => return unseen,
    };
    if layers.volume.is_hidden(&stat) {
        return Ok(None);
    }
    if !layers.files.is_here(&stat) || !plus && of_entry.is_some() {
        return unseen;
    }
    let place = (&fd, &stat);
    let Ok(file) = layers
        .handles
        .identify(dir.number, name, place, Pace::Patient)
    else {
        return unseen;
    };
    let fileid = layers.volume.file_ids.number(file, stat.attributes.fileid);
    let found = Found {
        file,
        attributes: Attributes {
            fileid,
            ..stat.attributes
        },
    };
    Ok(Some((fileid, plus.then_some(found))))
}

/// Returns the number of the directory above one in the export, from the inode number in its
/// entry.
fn fileid_of_parent(layers: &Layers, dir: &Node, ino: u64) -> u64 {
    layers
        .volume
        .file_ids
        .of_parent((dir.id(), dir.ino), ino)
        .unwrap_or_else(|| {
            let parent = layers.handles.parent(dir, Pace::Patient);
            parent.map_or(ino, |parent| parent.fileid)
        })
}
