//! Reading directories.
//!
//! Cookies are those of the kernel (`d_off`), where they stay valid while entries come and go: they
//! need no state between calls, however large the directory is. Elsewhere see `by_name.rs`.

use super::{by_name, listed_entry};
use crate::fs::{DirBudget, DirFrom, DirPage, Error, FileId, Identity, Seen};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::DIRECTORY_BUFFER;
use crate::localfs::open_files::node::Node;
use crate::localfs::sys::{Pace, Stop, Try};
use crate::permission::{self, EXECUTE, READ};
use rustix::fs::{RawDir, SeekFrom};
use rustix::io::Errno;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

pub(in crate::localfs) fn read_directory(
    layers: &Layers,
    who: &Identity,
    dir: FileId,
    from: DirFrom,
    budget: DirBudget,
    plus: bool,
) -> Try<Seen<DirPage>> {
    let node = layers.handles.node(dir, Pace::Patient)?;
    let attributes = layers.files.attributes(&node)?;
    // A caller without search permission gets only the names.
    let plus = plus
        && layers
            .rights
            .may(who, &node, &attributes, EXECUTE, Pace::Patient)?;
    let page = permission::check_directory(&attributes)
        .map_err(Stop::from)
        .and_then(|()| {
            layers
                .rights
                .check(who, &node, &attributes, READ, Pace::Patient)
        })
        .and_then(|()| list(layers, &node, from, budget, plus));
    Ok(Seen {
        attributes: Some(attributes),
        result: page.map_err(Error::from),
    })
}

fn list(
    layers: &Layers,
    node: &Node,
    from: DirFrom,
    mut budget: DirBudget,
    plus: bool,
) -> Try<DirPage> {
    let verifier = verifier(node, layers.volume.by_name);
    if from.cookie != 0 && from.verifier != verifier {
        return Err(Error::BadCookie.into());
    }
    if layers.volume.by_name {
        let page = DirPage {
            verifier,
            ..DirPage::default()
        };
        return by_name::list_by_name(layers, node, from, budget, plus, page);
    }
    let fd = layers.files.open_directory(node)?;
    if from.cookie != 0 {
        rustix::fs::seek(&fd, SeekFrom::Start(from.cookie)).map_err(|errno| match errno {
            Errno::INVAL | Errno::OVERFLOW => Error::BadCookie,
            errno => errno.into(),
        })?;
    }
    let mut page = DirPage {
        verifier,
        ..DirPage::default()
    };
    let mut memory = Vec::with_capacity(DIRECTORY_BUFFER);
    let mut entries = RawDir::new(&fd, memory.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let Some((fileid, found)) =
            listed_entry::describe(layers, node, name, (entry.ino(), entry.file_type()), plus)?
        else {
            continue;
        };
        let file = found.as_ref().map(|found| found.file);
        if !budget.take(name, file, page.entries.is_empty()) {
            return Ok(page);
        }
        page.push(name, fileid, entry.next_entry_cookie(), found);
    }
    page.eof = true;
    Ok(page)
}

/// Returns the cookie verifier: cookies are valid in this directory only.
fn verifier(node: &Node, by_name: bool) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write_u64(node.number);
    hasher.write_u64(node.birth);
    hasher.write_u8(by_name.into());
    hasher.finish()
}
