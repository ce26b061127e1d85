//! Reading of a large local file, in order.
//!
//! Data in the page cache is read by the task that sends it, right before: it is then still in the
//! cache of the processor when the connection, which the same thread drives, copies it to the socket.
//! From the first data on that is not there, a thread reads one piece ahead. Holes are not read, where the file
//! system tells where they are (lseek(2), `SEEK_DATA`).

use buffer::{Buffer, Pool};
use rustix::fs::{SeekFrom, StatFs, fstatfs, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use tokio::task::{JoinHandle, spawn_blocking, yield_now};

/// Bytes read at once.
const READ_SIZE: usize = 1 << 20;

/// Numbers by which statfs tells tmpfs and ramfs (linux/magic.h).
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// The next part of a file.
#[derive(Debug)]
pub(super) enum Piece {
    /// At most [`READ_SIZE`] bytes.
    Data(Buffer),
    /// So many bytes that are not there, and read as zeros.
    Hole(u64),
    /// Nothing.
    End,
}

/// The next data of a file, from a place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Data {
        from: u64,
        to: u64,
    },
    /// Nowhere: the file ends here.
    End(u64),
}

/// A local file that is read in order to its end.
pub(super) struct Reader {
    file: Arc<File>,
    pool: Pool,
    /// Offset of the next piece that nobody reads yet.
    offset: u64,
    /// Offset at which the data ends, as far as is known. If nobody asks for holes, it has no end.
    data_to: u64,
    /// How to read without waiting.
    flags: ReadWriteFlags,
    /// The piece that a thread reads.
    ahead: Option<JoinHandle<io::Result<Buffer>>>,
}

impl Reader {
    /// Reads from `offset` on, and looks for holes if it is to: where there are none that costs time.
    pub(super) fn new(file: Arc<File>, pool: &Pool, offset: u64, holes: bool) -> Self {
        // A file system in memory never waits, and tmpfs does not know the flag.
        let flags = match fstatfs(&file) {
            Ok(system) if is_in_memory(&system) => ReadWriteFlags::empty(),
            Ok(_) | Err(_) => ReadWriteFlags::NOWAIT,
        };
        Self {
            file,
            pool: pool.clone(),
            offset,
            data_to: if holes { offset } else { u64::MAX },
            flags,
            ahead: None,
        }
    }

    /// The next part.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(super) async fn next(&mut self) -> io::Result<Piece> {
        let ahead = match self.ahead.take() {
            Some(ahead) => ahead,
            None => {
                if self.offset >= self.data_to
                    && let Some(piece) = self.find_data().await?
                {
                    return Ok(piece);
                }
                // The piece before goes to the socket first.
                yield_now().await;
                if let Some(piece) = self.read_cached()? {
                    return Ok(self.is_read(piece));
                }
                self.read_by_thread()
            }
        };
        let piece = ahead.await.expect("a read does not panic")?;
        let piece = self.is_read(piece);
        if matches!(piece, Piece::Data(_)) && self.offset < self.data_to {
            self.ahead = Some(self.read_by_thread());
        }
        Ok(piece)
    }

    fn is_read(&mut self, piece: Buffer) -> Piece {
        self.offset += piece.len() as u64;
        match piece.is_empty() {
            true => Piece::End,
            false => Piece::Data(piece),
        }
    }

    /// Looks where the data goes on; what comes before it, or that there is none.
    async fn find_data(&mut self) -> io::Result<Option<Piece>> {
        let (file, begin) = (Arc::clone(&self.file), self.offset);
        let extent = match self.flags == ReadWriteFlags::NOWAIT {
            // It may have to be read from a disk where the data is.
            true => spawn_blocking(move || find_data(&file, begin))
                .await
                .expect("a look at a file does not panic")?,
            false => find_data(&file, begin)?,
        };
        let next = match extent {
            Extent::Data { from, to } => {
                self.data_to = to;
                from
            }
            Extent::End(end) if end <= begin => return Ok(Some(Piece::End)),
            Extent::End(end) => end,
        };
        self.offset = next;
        Ok((next > begin).then(|| Piece::Hole(next - begin)))
    }

    /// Bytes to read next.
    fn size(&self) -> usize {
        let left = self.data_to.saturating_sub(self.offset);
        usize::try_from(left).map_or(READ_SIZE, |left| left.min(READ_SIZE))
    }

    /// Reads what is in the page cache; `None` if nothing is, or a read that may wait has to tell.
    ///
    /// That is so with errors, and at the end of the file: Linux 5.9 and 5.10 say 0 of pages that are
    /// not there (preadv2(2), BUGS).
    fn read_cached(&self) -> io::Result<Option<Buffer>> {
        let mut piece = self.pool.take(READ_SIZE);
        let size = self.size();
        loop {
            let mut space = [IoSliceMut::new(&mut piece.memory_mut()[..size])];
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
        let size = self.size();
        spawn_blocking(move || {
            loop {
                match file.read_at(&mut piece.memory_mut()[..size], offset) {
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

/// Whether a file takes less space than its data would.
pub(super) fn has_holes(about: &Metadata) -> bool {
    // In units of 512 bytes whatever the blocks of the file system are (stat(3type)).
    about.blocks().saturating_mul(512) < about.len()
}

/// Looks where data of a file is from `offset` on.
fn find_data(file: &File, offset: u64) -> io::Result<Extent> {
    let end = || Ok(Extent::End(file.metadata()?.len()));
    let from = match seek(file, SeekFrom::Data(offset)) {
        Ok(from) => from,
        Err(Errno::NXIO) => return end(),
        // Where holes are not known, all of it is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            return Ok(Extent::Data {
                from: offset,
                to: u64::MAX,
            });
        }
        Err(errno) => return Err(errno.into()),
    };
    match seek(file, SeekFrom::Hole(from)) {
        Ok(to) => Ok(Extent::Data { from, to }),
        // It was cut off meanwhile.
        Err(Errno::NXIO) => end(),
        Err(errno) => Err(errno.into()),
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
        let mut reader = reader(file, false);
        let mut pieces = Vec::new();
        let mut by_thread = false;
        loop {
            match reader.next().await.unwrap() {
                Piece::Data(piece) => pieces.push(piece.to_vec()),
                Piece::Hole(_) => panic!("nobody looks for holes"),
                Piece::End => return (pieces, by_thread),
            }
            by_thread = reader.ahead.is_some();
        }
    }

    fn reader(file: File, holes: bool) -> Reader {
        Reader::new(Arc::new(file), &Pool::new(4 << 20), 0, holes)
    }

    /// A file with data at the beginning, in the middle and nowhere else: what is read of it, with zeros for
    /// holes, and how many bytes of holes are told.
    async fn with_holes(flags: ReadWriteFlags) -> (Vec<u8>, u64, Vec<u8>) {
        let file = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (1..=250).cycle().take(READ_SIZE + 70_000).collect();
        file.write_all_at(&data, 0).unwrap();
        file.write_all_at(b"middle", 8 << 20).unwrap();
        file.set_len((12 << 20) + 1).unwrap();
        let mut expected = vec![0; (12 << 20) + 1];
        file.read_exact_at(&mut expected, 0).unwrap();
        let holes = has_holes(&file.metadata().unwrap());
        let mut reader = reader(file, holes);
        reader.flags = flags;
        let (mut found, mut left_out) = (Vec::new(), 0);
        loop {
            match reader.next().await.unwrap() {
                Piece::Data(piece) => found.extend_from_slice(&piece),
                Piece::Hole(len) => {
                    left_out += len;
                    found.resize(found.len() + usize::try_from(len).unwrap(), 0);
                }
                Piece::End => return (found, left_out, expected),
            }
        }
    }

    #[tokio::test]
    async fn holes_are_told_and_not_read() {
        for flags in [ReadWriteFlags::empty(), ReadWriteFlags::NOWAIT] {
            let (found, left_out, expected) = with_holes(flags).await;
            assert!(found == expected);
            // Blocks of the file systems that tests are run on are not larger than that.
            assert!(left_out > 9 << 20, "{left_out}");
        }
    }

    #[test]
    fn file_without_data_is_a_hole_up_to_its_end() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(find_data(&file, 0).unwrap(), Extent::End(0));
        assert!(!has_holes(&file.metadata().unwrap()));
        file.set_len(5 << 20).unwrap();
        assert_eq!(find_data(&file, 0).unwrap(), Extent::End(5 << 20));
        assert!(has_holes(&file.metadata().unwrap()));
    }

    #[tokio::test]
    async fn cached_file_is_read_in_order_without_a_thread() {
        let data: Vec<u8> = (0..=250).cycle().take(READ_SIZE + 1000).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, &data).unwrap();
        let reader = reader(file.reopen().unwrap(), false);
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
        let mut reader = reader(file.reopen().unwrap(), false);
        reader.flags = ReadWriteFlags::NOWAIT;
        assert!(reader.read_cached().unwrap().is_none());
        assert!(matches!(reader.next().await.unwrap(), Piece::End));
    }

    #[tokio::test]
    async fn error_is_told() {
        let mut reader = reader(File::open("/").unwrap(), false);
        assert!(reader.next().await.is_err());
    }
}
