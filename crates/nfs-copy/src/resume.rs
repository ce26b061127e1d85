//! Copies that were cut off and go on where they were.
//!
//! Of a copy that is to be [resumed](crate::Options::resumes), a large file that is not complete has a name that stands
//! for the version of its source, and stays under that name when the copy is cut off, however that happens. The next copy of
//! the same version goes on with it, but for its last [`RESUME_WINDOW`]: a crash of the machine or the server may have cost
//! it what was not on the disk, and a copy never lets more than that be so. Another version has another name, so that no
//! file is made of two.

use crate::error::Result;
use nfs_client::Export;
use nfs_proto::{Attributes, FileHandle, NfsTime};
use oncrpc::Transport;
use oncrpc::xdr::gather_len;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::task::spawn_blocking;

/// Bytes that are copied again of a file that was cut off; smaller files are copied as a whole.
pub(crate) const RESUME_WINDOW: u64 = 32 << 20;

/// Bytes before those that are compared with the source, so that what is there is not taken for its beginning
/// without a look.
const COMPARED: u64 = 1 << 20;

/// User that servers take others for, root among them.
const NOBODY: u32 = 65_534;

/// A version of a file: what differs when its data does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Version {
    /// Inode number or fileid.
    id: u64,
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Version {
    /// A number for it, which is the same in every run of this program.
    pub(crate) fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

impl From<&Metadata> for Version {
    fn from(about: &Metadata) -> Self {
        Self {
            id: about.ino(),
            size: about.len(),
            mtime: (about.mtime(), about.mtime_nsec()),
            ctime: (about.ctime(), about.ctime_nsec()),
        }
    }
}

impl From<&Attributes> for Version {
    fn from(about: &Attributes) -> Self {
        let time = |time: NfsTime| (time.seconds.into(), time.nanoseconds.into());
        Self {
            id: about.file_id.0,
            size: about.size,
            mtime: time(about.mtime),
            ctime: time(about.ctime),
        }
    }
}

/// Whether a file on a server was made by this user, as far as it says: others could have put something else
/// under a name that they can guess. A server may take any user for nobody.
pub(crate) fn is_ours(about: &Attributes) -> bool {
    about.uid == rustix::process::geteuid().as_raw() || about.uid == NOBODY
}

/// Whether a file on a server and a local one are equal right before `end`.
///
/// # Errors
///
/// One of them cannot be read.
pub(crate) async fn are_equal<T: Transport + Send + Sync>(
    export: &Export<T>,
    (remote, path): (FileHandle, &[u8]),
    local: &Arc<File>,
    end: u64,
) -> Result<bool> {
    let begin = end.saturating_sub(COMPARED);
    let file = Arc::clone(local);
    let read = spawn_blocking(move || read_exact(&file, begin, end)).await;
    let Some(expected) = read.expect("a read does not panic")? else {
        return Ok(false);
    };
    let mut expected = &expected[..];
    let mut at = begin;
    while !expected.is_empty() {
        let count = u32::try_from(expected.len()).unwrap_or(u32::MAX);
        let count = count.min(export.tuning().read_size);
        let read = export.nfs().read(remote, at, count).await;
        let read = read.map_err(|fault| export.nfs().error_at(fault, "read", path))?;
        if read.data.is_empty() {
            return Ok(false);
        }
        at += gather_len(&read.data) as u64;
        for piece in &read.data {
            match expected.strip_prefix(&piece[..]) {
                Some(rest) => expected = rest,
                None => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// The bytes of a range, if there are as many.
fn read_exact(file: &File, begin: u64, end: u64) -> io::Result<Option<Vec<u8>>> {
    // It is a range of at most COMPARED bytes.
    let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or(0)];
    match file.read_exact_at(&mut bytes, begin) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Counts a file as one that is kept, to be continued, unless it is [`done`](Self::done) before this is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    counter: Option<Arc<AtomicUsize>>,
}

impl Kept {
    pub(crate) fn new(counter: &Arc<AtomicUsize>) -> Self {
        Self {
            counter: Some(Arc::clone(counter)),
        }
    }

    /// The file is complete, or gone.
    pub(crate) fn done(mut self) {
        self.counter = None;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(counter) = &self.counter {
            counter.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_file_makes_another_version() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "content").unwrap();
        let version = || Version::from(&path.metadata().unwrap());
        let first = version();
        assert_eq!(version().number(), first.number());
        let other_size = Version { size: 8, ..first };
        let other_id = Version {
            id: first.id + 1,
            ..first
        };
        let later = Version {
            ctime: (first.ctime.0, first.ctime.1 + 1),
            ..first
        };
        let written = Version {
            mtime: (first.mtime.0, first.mtime.1 + 1),
            ..first
        };
        for other in [other_size, other_id, later, written] {
            assert_ne!(other.number(), first.number());
        }
    }

    #[test]
    fn range_that_is_not_there_is_no_beginning() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"0123456789", 0).unwrap();
        assert_eq!(read_exact(&file, 2, 5).unwrap().unwrap(), b"234");
        assert!(read_exact(&file, 2, 11).unwrap().is_none());
    }

    #[test]
    fn only_what_is_not_done_is_counted_as_kept() {
        let counter = Arc::new(AtomicUsize::new(0));
        Kept::new(&counter).done();
        drop(Kept::new(&counter));
        assert_eq!(counter.load(Relaxed), 1);
    }
}
