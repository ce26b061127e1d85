//! Listings of directories in the order of a hash of the names.
//!
//! On overlayfs with several layers, and on file systems in another process, the position of an
//! entry (`d_off`) is its index among those that there are: it shifts while entries are removed, and
//! is another one each time the directory is opened. There the cookie of an entry is a hash of its
//! name, and entries are listed in the order of their hashes. So what is neither added nor removed
//! is listed once (POSIX `readdir()`), whatever else comes and goes, and also after a restart.
//!
//! A page that is asked for needs a pass over the directory. The pass keeps as many of the entries
//! that follow as fit in [`MAX_LISTED`](super::listing_parts) bytes, from which further pages are taken.

use super::listed_entry;
use super::listing_parts::{Next, Part};
use crate::fs::{DirBudget, DirFrom, DirPage};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::DIRECTORY_BUFFER;
use crate::localfs::open_files::node::Node;
use crate::localfs::sys::Try;
use rustix::fs::RawDir;
use std::sync::Arc;

/// Lists a directory in the order of a hash of the names.
pub(in crate::localfs) fn list_by_name(
    layers: &Layers,
    node: &Node,
    from: DirFrom,
    mut budget: DirBudget,
    plus: bool,
    mut page: DirPage,
) -> Try<DirPage> {
    let mut cookie = from.cookie;
    loop {
        let kept = match cookie {
            0 => None,
            cookie => layers.listed.find(node.id(), cookie),
        };
        let part = match kept {
            Some(part) => part,
            None => pass_by_name(layers, node, cookie)?,
        };
        for entry in part.after(cookie).unwrap_or_default() {
            cookie = entry.cookie;
            let found =
                listed_entry::describe(layers, node, &entry.name, (entry.ino, entry.kind), plus)?;
            let Some((fileid, found)) = found else {
                continue;
            };
            let file = found.as_ref().map(|found| found.file);
            if !budget.take(&entry.name, file, page.entries.is_empty()) {
                return Ok(page);
            }
            page.push(&entry.name, fileid, cookie, found);
        }
        page.eof = part.ends;
        // The next part takes another pass, which is for the next call.
        if part.ends || !page.entries.is_empty() {
            return Ok(page);
        }
    }
}

/// Reads a directory, and returns the part of it that follows a cookie.
fn pass_by_name(layers: &Layers, node: &Node, from: u64) -> Try<Arc<Part>> {
    let pass = layers.listed.begin_pass();
    let fd = layers.files.open_directory(node)?;
    let mut memory = Vec::with_capacity(DIRECTORY_BUFFER);
    let mut raw = RawDir::new(&fd, memory.spare_capacity_mut());
    let mut next = Next::new(from, layers.listed.max_listed);
    while let Some(entry) = raw.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        next.push(name, entry.ino(), entry.file_type());
    }
    let (entries, ends) = next.finish();
    let part = Arc::new(Part {
        dir: node.id(),
        from,
        entries,
        ends,
        pass,
    });
    layers.listed.keep(&part);
    Ok(part)
}
