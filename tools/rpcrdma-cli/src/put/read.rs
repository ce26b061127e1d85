//! Reading of a large local file, in order.
//!
//! What is in the page cache is read by the task that sends it, right before: it is then still in the
//! cache of the processor when the connection, which the same thread drives, copies it to the socket.
//! From the first data on that is not there, a thread reads one piece ahead.

use buffer::{Buffer, Pool};
use rustix::fs::{StatFs, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tokio::task::{JoinHandle, spawn_blocking, yield_now};

/// Bytes read at once.
const READ_SIZE: usize = 1 << 20;

/// What statfs tells of tmpfs and ramfs (linux/magic.h).
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// A local file that is read from its beginning to its end.
pub(super) struct Reader {
    file: Arc<File>,
    pool: Pool,
    /// Where the next piece begins that nobody reads yet.
    offset: u64,
    /// How to read without waiting.
    flags: ReadWriteFlags,
    /// The piece that a thread reads.
    ahead: Option<JoinHandle<io::Result<Buffer>>>,
}

impl Reader {
    pub(super) fn new(file: File, pool: &Pool) -> Self {
        // A file system in memory never waits, and tmpfs does not know the flag.
        let flags = match fstatfs(&file) {
            Ok(system) if is_in_memory(&system) => ReadWriteFlags::empty(),
            Ok(_) | Err(_) => ReadWriteFlags::NOWAIT,
        };
        Self {
            file: Arc::new(file),
            pool: pool.clone(),
            offset: 0,
            flags,
            ahead: None,
        }
    }

    /// The next bytes, at most [`READ_SIZE`] of them; none at the end of the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(super) async fn next(&mut self) -> io::Result<Buffer> {
        let ahead = match self.ahead.take() {
            Some(ahead) => ahead,
            None => {
                // The piece before goes to the socket first.
                yield_now().await;
                if let Some(piece) = self.read_cached()? {
                    self.offset += piece.len() as u64;
                    return Ok(piece);
                }
                self.read_by_thread()
            }
        };
        let piece = ahead.await.expect("a read does not panic")?;
        self.offset += piece.len() as u64;
        if !piece.is_empty() {
            self.ahead = Some(self.read_by_thread());
        }
        Ok(piece)
    }

    /// Reads what is in the page cache; `None` if nothing is, or a read that may wait has to tell.
    ///
    /// That is so with errors, and at the end of the file: Linux 5.9 and 5.10 say 0 of pages that are
    /// not there (preadv2(2), BUGS).
    fn read_cached(&self) -> io::Result<Option<Buffer>> {
        let mut piece = self.pool.take(READ_SIZE);
        loop {
            let mut space = [IoSliceMut::new(&mut piece.memory_mut()[..READ_SIZE])];
            match preadv2(&self.file, &mut space, self.offset, self.flags) {
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) if self.flags == ReadWriteFlags::NOWAIT => return Ok(None),
                Ok(len) => {
                    piece.set_len(len);
                    return Ok(Some(piece));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn read_by_thread(&self) -> JoinHandle<io::Result<Buffer>> {
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let mut piece = self.pool.take(READ_SIZE);
        spawn_blocking(move || {
            loop {
                match file.read_at(&mut piece.memory_mut()[..READ_SIZE], offset) {
                    Ok(len) => {
                        piece.set_len(len);
                        return Ok(piece);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        })
    }
}

fn is_in_memory(system: &StatFs) -> bool {
    // The field is signed on some machines, and of 32 bits at most.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the magic numbers have 32 bits"
    )]
    IN_MEMORY.contains(&(system.f_type as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a file, and whether a thread read the last one.
    async fn read(file: File) -> (Vec<Vec<u8>>, bool) {
        let mut reader = Reader::new(file, &Pool::new(4 << 20));
        let mut pieces = Vec::new();
        let mut by_thread = false;
        loop {
            let piece = reader.next().await.unwrap();
            if piece.is_empty() {
                return (pieces, by_thread);
            }
            by_thread = reader.ahead.is_some();
            pieces.push(piece.to_vec());
        }
    }

    #[tokio::test]
    async fn cached_file_is_read_in_order_without_a_thread() {
        let data: Vec<u8> = (0..=250).cycle().take(READ_SIZE + 1000).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, &data).unwrap();
        let reader = Reader::new(file.reopen().unwrap(), &Pool::new(0));
        // Some file systems do not know how.
        let supported = reader.read_cached().unwrap().is_some();
        let (pieces, by_thread) = read(file.reopen().unwrap()).await;
        assert_eq!(pieces.concat(), data);
        assert_eq!((pieces.len(), by_thread), (2, !supported));
    }

    #[tokio::test]
    async fn file_that_may_have_to_be_waited_for_is_read_by_a_thread() {
        let (pieces, by_thread) = read(File::open("/proc/version").unwrap()).await;
        assert_eq!(pieces.concat(), std::fs::read("/proc/version").unwrap());
        assert!(by_thread);
    }

    /// Linux 5.9 and 5.10 may say 0 within a file to who does not want to wait.
    #[tokio::test]
    async fn end_of_a_file_is_told_by_a_read_that_may_wait() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut reader = Reader::new(file.reopen().unwrap(), &Pool::new(0));
        reader.flags = ReadWriteFlags::NOWAIT;
        assert!(reader.read_cached().unwrap().is_none());
        assert!(reader.next().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn error_is_told() {
        let mut reader = Reader::new(File::open("/").unwrap(), &Pool::new(0));
        assert!(reader.next().await.is_err());
    }
}
