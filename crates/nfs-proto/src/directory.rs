//! Replies to READDIR and READDIRPLUS, written entry by entry until one no longer fits.

use crate::results::{Entry, EntryPlus};
use crate::{Attributes, CookieVerifier, Status, Wire, args};
use oncrpc::xdr::{Writer, padded};

/// Bytes after the last entry: the end of the list, and the end-of-directory flag.
const END: usize = 8;

/// Size limits of a directory reply, as the caller sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryLimits {
    /// Bytes of the whole `resok` structure, all XDR overhead included.
    pub bytes: usize,
    /// Bytes of the entries without attributes and handles. One entry may exceed it.
    pub names: usize,
}

impl From<&args::ReadDir> for DirectoryLimits {
    fn from(args: &args::ReadDir) -> Self {
        Self {
            bytes: args.count as usize,
            names: usize::MAX,
        }
    }
}

impl From<&args::ReadDirPlus> for DirectoryLimits {
    fn from(args: &args::ReadDirPlus) -> Self {
        Self {
            bytes: args.max_count as usize,
            names: args.dir_count as usize,
        }
    }
}

/// Writes a successful reply to READDIR or READDIRPLUS, status included.
#[derive(Debug)]
#[must_use = "the reply is complete only when it is finished"]
pub struct DirectoryWriter<'w> {
    writer: &'w mut Writer,
    /// Offset of the status.
    start: usize,
    limits: DirectoryLimits,
    names: usize,
    entries: usize,
}

impl<'w> DirectoryWriter<'w> {
    /// Begins a reply: status, attributes of the directory, verifier.
    pub fn new(
        writer: &'w mut Writer,
        limits: DirectoryLimits,
        attributes: Option<Attributes>,
        verifier: CookieVerifier,
    ) -> Self {
        let start = writer.len();
        writer.u32(0);
        attributes.write(writer);
        verifier.write(writer);
        Self {
            writer,
            start,
            limits,
            names: 0,
            entries: 0,
        }
    }

    /// Adds an entry of READDIR; false if it does not fit, and the reply has to end before it.
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        self.add(entry.name.len(), |w| entry.write(w))
    }

    /// Adds an entry of READDIRPLUS; false if it does not fit, and the reply has to end before it.
    pub fn push_plus(&mut self, entry: &EntryPlus<'_>) -> bool {
        self.add(entry.name.len(), |w| entry.write(w))
    }

    /// Number of entries so far.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Whether an entry with a name of `name` bytes would exceed the limit for names, so that its
    /// attributes need not be looked for.
    pub fn names_full(&self, name: usize) -> bool {
        self.entries > 0 && self.names + name_bytes(name) > self.limits.names
    }

    /// Ends the reply; `eof` says that the directory ends here.
    ///
    /// # Errors
    ///
    /// `NFS3ERR_TOOSMALL` if there are entries and none fits. Nothing is written then.
    pub fn finish(self, eof: bool) -> Result<(), Status> {
        let empty_and_more = self.entries == 0 && !eof;
        if empty_and_more || self.resok_len() + END > self.limits.bytes {
            self.writer.truncate(self.start);
            return Err(Status::TooSmall);
        }
        self.writer.bool(false);
        self.writer.bool(eof);
        Ok(())
    }

    fn add(&mut self, name: usize, write: impl FnOnce(&mut Writer)) -> bool {
        if self.names_full(name) {
            return false;
        }
        let before = self.writer.len();
        self.writer.bool(true);
        write(self.writer);
        if self.resok_len() + END > self.limits.bytes {
            self.writer.truncate(before);
            return false;
        }
        self.names += name_bytes(name);
        self.entries += 1;
        true
    }

    /// Bytes of the structure so far: everything after the status.
    fn resok_len(&self) -> usize {
        self.writer.len() - self.start - 4
    }
}

/// Size of an entry in bytes without attributes and handle: file number, name with its length, and
/// cookie.
fn name_bytes(name: usize) -> usize {
    8 + 4 + padded(name) + 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{ReadDir, Res};
    use crate::{Cookie, FileId, Filename};
    use oncrpc::xdr::Reader;

    fn entry(name: &str) -> Entry<'_> {
        Entry {
            file_id: FileId(7),
            name: Filename::new(name.as_bytes()).unwrap(),
            cookie: Cookie(9),
        }
    }

    /// How many of three entries of 32 bytes fit, and the reply's length without its status.
    fn fill(bytes: usize, names: usize) -> Result<(usize, usize), Status> {
        let mut w = Writer::default();
        w.u32(0xfeed);
        let limits = DirectoryLimits { bytes, names };
        let mut dir = DirectoryWriter::new(&mut w, limits, None, CookieVerifier::default());
        let fit = ["one.txt", "two.txt", "tri.txt"]
            .iter()
            .take_while(|name| dir.push(&entry(name)))
            .count();
        let done = dir.finish(fit == 3);
        if done.is_err() {
            assert_eq!(w.len(), 4, "nothing of the reply is left");
        }
        done.map(|()| (fit, w.len() - 8))
    }

    #[test]
    fn entry_that_would_exceed_the_size_is_left_out() {
        // Attributes 4, verifier 8, each entry 4 + 8 + 4 + 8 + 8, end 8.
        assert_eq!(fill(20 + 96, usize::MAX), Ok((3, 116)));
        assert_eq!(fill(20 + 95, usize::MAX), Ok((2, 84)));
        assert_eq!(fill(20 + 32, usize::MAX), Ok((1, 52)));
        assert_eq!(fill(20 + 31, usize::MAX), Err(Status::TooSmall));
    }

    #[test]
    fn bytes_of_names_are_limited_but_one_entry_always_fits() {
        assert_eq!(fill(1000, 56), Ok((2, 84)));
        assert_eq!(fill(1000, 55), Ok((1, 52)));
        assert_eq!(fill(1000, 0), Ok((1, 52)));
    }

    #[test]
    fn what_is_written_by_entry_is_the_structure() {
        let mut w = Writer::default();
        let limits = DirectoryLimits {
            bytes: 1000,
            names: 1000,
        };
        let verifier = CookieVerifier(*b"verifier");
        let mut dir = DirectoryWriter::new(&mut w, limits, None, verifier);
        assert!(dir.push(&entry("a")));
        assert!(dir.push(&entry("bc")));
        dir.finish(true).unwrap();
        let payload = w.finish();
        let mut r = Reader::from(&payload);
        let read = Res::<ReadDir<'_>, Option<Attributes>>::parse(&mut r)
            .unwrap()
            .unwrap();
        r.finish().unwrap();
        assert_eq!(read.verifier, verifier);
        assert_eq!(read.entries.0, [entry("a"), entry("bc")]);
        assert!(read.eof);
    }

    #[test]
    fn empty_directory_is_a_reply() {
        let mut w = Writer::default();
        let limits = DirectoryLimits {
            bytes: 20,
            names: 0,
        };
        let dir = DirectoryWriter::new(&mut w, limits, None, CookieVerifier::default());
        assert_eq!(dir.finish(true), Ok(()));
    }
}
