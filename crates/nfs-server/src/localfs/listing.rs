//! Reading directories.
//!
//! Cookies are those of the kernel (`d_off`), where they stay valid while entries come and go: they
//! need no state between calls, however large the directory is. Elsewhere see `by_name.rs`.

use super::Inner;
use super::open_files::DIRECTORY_BUFFER;
use super::open_files::node::Node;
use super::sys::{self, Pace, Stop, Try};
use crate::fs::{Attributes, DirBudget, DirFrom, DirPage, Error, FileId, Found, Identity, Seen};
use crate::permission::{self, EXECUTE, READ};
use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

impl Inner {
    pub(super) fn read_directory(
        &self,
        who: &Identity,
        dir: FileId,
        from: DirFrom,
        budget: DirBudget,
        plus: bool,
    ) -> Try<Seen<DirPage>> {
        let node = self.handles.node(dir, Pace::Patient)?;
        let attributes = self.files.attributes(&node)?;
        // A caller without search permission gets only the names.
        let plus = plus
            && self
                .rights
                .may(who, &node, &attributes, EXECUTE, Pace::Patient)?;
        let page = permission::check_directory(&attributes)
            .map_err(Stop::from)
            .and_then(|()| {
                self.rights
                    .check(who, &node, &attributes, READ, Pace::Patient)
            })
            .and_then(|()| self.list(&node, from, budget, plus));
        Ok(Seen {
            attributes: Some(attributes),
            result: page.map_err(Error::from),
        })
    }

    fn list(&self, node: &Node, from: DirFrom, mut budget: DirBudget, plus: bool) -> Try<DirPage> {
        let verifier = verifier(node, self.volume.by_name);
        if from.cookie != 0 && from.verifier != verifier {
            return Err(Error::BadCookie.into());
        }
        if self.volume.by_name {
            let page = DirPage {
                verifier,
                ..DirPage::default()
            };
            return self.list_by_name(node, from, budget, plus, page);
        }
        let fd = self.files.open_directory(node)?;
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
                self.describe(node, name, (entry.ino(), entry.file_type()), plus)?
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

    /// Returns the fileid and, if requested, the file of an entry; `None` if the entry is not
    /// listed.
    pub(super) fn describe(
        &self,
        dir: &Node,
        name: &[u8],
        (ino, kind): (u64, FileType),
        plus: bool,
    ) -> Try<Option<(u64, Option<Found>)>> {
        match name {
            b"." => return Ok(Some((dir.fileid, None))),
            // The directory above the export is hidden from clients.
            b".." if dir.id() == self.files.root().id() => return Ok(Some((dir.fileid, None))),
            b".." => return Ok(Some((self.fileid_of_parent(dir, ino), None))),
            _ => {}
        }
        let of_entry = self
            .volume
            .file_ids
            .of_entry(dir.id(), ino, kind == FileType::Directory);
        let may_be_hidden = self.volume.may_be_hidden(ino);
        match of_entry {
            Some(fileid) if !plus && !may_be_hidden => return Ok(Some((fileid, None))),
            Some(_) | None => {}
        }
        let unseen = Ok(Some((of_entry.unwrap_or(ino), None)));
        // A mounted file system is not asked: it may hang.
        let opened = sys::open_entry(&dir.path, name, Pace::Patient);
        let stat = opened.and_then(|fd| sys::stat(&fd, self.volume.by).map(|stat| (fd, stat)));
        let (fd, stat) = match stat {
            Ok(found) => found,
            // The entry was removed meanwhile.
            Err(Errno::NOENT) => return Ok(None),
            // The client asks for the missing attributes and gets the error then.
            Err(_) => return unseen,
        };
        if self.volume.is_hidden(&stat) {
            return Ok(None);
        }
        if !self.files.is_here(&stat) || !plus && of_entry.is_some() {
            return unseen;
        }
        let place = (&fd, &stat);
        let Ok(file) = self
            .handles
            .identify(dir.number, name, place, Pace::Patient)
        else {
            return unseen;
        };
        let fileid = self.volume.file_ids.number(file, stat.attributes.fileid);
        let found = Found {
            file,
            attributes: Attributes {
                fileid,
                ..stat.attributes
            },
        };
        Ok(Some((fileid, plus.then_some(found))))
    }
}

impl Inner {
    /// Returns the number of the directory above one in the export, from the inode number in its
    /// entry.
    fn fileid_of_parent(&self, dir: &Node, ino: u64) -> u64 {
        self.volume
            .file_ids
            .of_parent((dir.id(), dir.ino), ino)
            .unwrap_or_else(|| {
                let parent = self.handles.parent(dir, Pace::Patient);
                parent.map_or(ino, |parent| parent.fileid)
            })
    }
}

/// Returns the cookie verifier: cookies are valid in this directory only.
fn verifier(node: &Node, by_name: bool) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write_u64(node.number);
    hasher.write_u64(node.birth);
    hasher.write_u8(by_name.into());
    hasher.finish()
}
