//! Writing a file, with several WRITEs in flight and a COMMIT.

use crate::error::At;
use crate::in_order::InOrder;
use crate::window::Window;
use crate::{Error, Fault, Nfs3, Tuning};
use bytes::Buf;
use nfs_proto::{FileHandle, Stable, WriteVerifier};
use oncrpc::Transport;
use oncrpc::xdr::{Gather, gather_len};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How often in a row data is written again because the server lost it.
const MAX_REWRITES: u32 = 4;

/// A file being written from an offset on.
///
/// WRITEs are UNSTABLE and followed by COMMIT (RFC 1813 §3.3.7, §3.3.21). Until then the data is
/// kept, by reference: if the server's verifier changes, the server may have lost the data, and it
/// is written again. A file that fits one WRITE needs no COMMIT: see
/// [`write_last`](Self::write_last). Dropping the stream cancels the calls in flight; written data
/// stays.
pub struct WriteStream<'c, T> {
    nfs: &'c Nfs3<T>,
    file: FileHandle,
    path: Vec<u8>,
    tuning: Tuning,
    window: Window,
    /// Offset of the next byte.
    next: u64,
    /// Accepted, and not on its way yet; each at most a WRITE long.
    backlog: VecDeque<Piece>,
    running: InOrder<'c, Result<Answered, Fault>>,
    running_bytes: usize,
    /// Written, and not known to be on stable storage.
    unstable: Vec<Written>,
    unstable_bytes: usize,
    rewrites_in_a_row: u32,
    rewritten: u64,
    /// An error ends the stream: later calls repeat it.
    failed: Option<Error>,
}

/// Bytes and where they belong.
struct Piece {
    offset: u64,
    data: Gather,
    /// How stable they are to be when the WRITE is answered.
    stable: Stable,
}

/// Bytes that a server has taken.
struct Written {
    piece: Piece,
    committed: Stable,
    verifier: WriteVerifier,
}

/// Outcome of a piece, and its time.
struct Answered {
    written: Vec<Written>,
    took: Duration,
}

/// How far a stream is driven.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// All accepted data was sent.
    Accepted,
    /// All accepted data is on stable storage.
    Stable,
}

impl<'c, T: Transport + Send + Sync> WriteStream<'c, T> {
    pub(crate) fn new(
        nfs: &'c Nfs3<T>,
        file: FileHandle,
        offset: u64,
        path: &[u8],
        tuning: Tuning,
    ) -> Self {
        Self {
            nfs,
            file,
            path: path.to_vec(),
            tuning,
            window: Window::new(&tuning),
            next: offset,
            backlog: VecDeque::new(),
            running: InOrder::new(),
            running_bytes: 0,
            unstable: Vec::new(),
            unstable_bytes: 0,
            rewrites_in_a_row: 0,
            rewritten: 0,
            failed: None,
        }
    }

    /// Returns the handle of the file.
    pub fn handle(&self) -> FileHandle {
        self.file
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.next
    }

    /// Returns the number of bytes written again because the server lost them.
    pub fn rewritten(&self) -> u64 {
        self.rewritten
    }

    /// Appends data, and waits until all of it was sent.
    ///
    /// The data is accepted at once: if the future is dropped, the data is written with what
    /// follows.
    ///
    /// # Errors
    ///
    /// The server's error about this or any earlier data, or a failed call. The stream ends with
    /// it.
    pub async fn write(&mut self, data: Gather) -> Result<(), Error> {
        self.accept(data, Stable::Unstable);
        self.drive(Until::Accepted).await
    }

    /// Appends data, and waits until all data is on stable storage. If the whole data fits one
    /// WRITE, it goes as FILE_SYNC, in one call instead of two.
    ///
    /// # Errors
    ///
    /// Those of [`finish`](Self::finish).
    pub async fn write_last(&mut self, data: Gather) -> Result<(), Error> {
        let alone = self.backlog.is_empty() && self.running.is_empty() && self.unstable.is_empty();
        let stable = match alone && gather_len(&data) <= self.tuning.write_size as usize {
            true => Stable::FileSync,
            false => Stable::Unstable,
        };
        self.accept(data, stable);
        self.drive(Until::Stable).await
    }

    /// Skips bytes, which leaves a hole if the file has no data there.
    pub fn skip(&mut self, bytes: u64) {
        self.next = self.next.saturating_add(bytes);
    }

    /// Waits until all data is on stable storage.
    ///
    /// # Errors
    ///
    /// The server's error, or a failed call; [`Fault::KeepsRestarting`] if the server loses the
    /// data again and again.
    pub async fn finish(&mut self) -> Result<(), Error> {
        self.drive(Until::Stable).await
    }

    fn accept(&mut self, mut data: Gather, stable: Stable) {
        let size = self.tuning.write_size as usize;
        loop {
            let rest = split_off(&mut data, size);
            let len = gather_len(&data);
            if len == 0 {
                return;
            }
            let offset = self.next;
            self.backlog.push_back(Piece {
                offset,
                data,
                stable,
            });
            self.next += len as u64;
            data = rest;
        }
    }

    async fn drive(&mut self, until: Until) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let driven = self
            .drive_on(until)
            .await
            .at("write", self.nfs.full(&self.path));
        if let Err(error) = &driven {
            self.failed = Some(error.clone());
            self.running.clear();
            self.backlog.clear();
        }
        driven
    }

    async fn drive_on(&mut self, until: Until) -> Result<(), Fault> {
        loop {
            self.begin_writes();
            if self.backlog.is_empty() && until == Until::Accepted && !self.is_full() {
                return self.collect_done().await;
            }
            match self.running.next().await {
                Some(written) => self.wrote(written?),
                None if self.unstable.is_empty() => return Ok(()),
                None => self.commit().await?,
            }
        }
    }

    /// Polls what is in flight once, so that what was begun is really sent.
    async fn collect_done(&mut self) -> Result<(), Fault> {
        while let Some(written) = self.running.next_done().await {
            self.wrote(written?);
        }
        Ok(())
    }

    /// Whether a COMMIT is due before anything else is written.
    fn is_full(&self) -> bool {
        self.unstable_bytes + self.running_bytes >= self.tuning.uncommitted
    }

    fn begin_writes(&mut self) {
        let depth =
            self.tuning
                .depth_of(self.tuning.write_size, &self.window, self.nfs.transport());
        while self.running.len() < depth
            && !self.is_full()
            && let Some(piece) = self.backlog.pop_front()
        {
            self.running_bytes += gather_len(&piece.data);
            self.running.push(write_whole(self.nfs, self.file, piece));
        }
    }

    fn wrote(&mut self, answered: Answered) {
        let parts = answered.written.iter();
        let bytes = parts.map(|part| gather_len(&part.piece.data)).sum();
        self.window.answered(bytes, answered.took);
        for part in answered.written {
            let len = gather_len(&part.piece.data);
            self.running_bytes -= len;
            if part.committed != Stable::FileSync {
                self.unstable_bytes += len;
                self.unstable.push(part);
            }
        }
    }

    /// Commits what was written, and puts back what was lost. Nothing is in flight meanwhile, and
    /// nothing changes before the reply is there.
    async fn commit(&mut self) -> Result<(), Fault> {
        let verifier = self.nfs.commit(self.file, 0, 0).await?;
        self.unstable_bytes = 0;
        let lost = self
            .unstable
            .drain(..)
            .filter(|part| part.verifier != verifier);
        let before = self.backlog.len();
        for part in lost {
            self.rewritten += gather_len(&part.piece.data) as u64;
            self.backlog.push_back(part.piece);
        }
        if self.backlog.len() == before {
            self.rewrites_in_a_row = 0;
            return Ok(());
        }
        self.rewrites_in_a_row += 1;
        if self.rewrites_in_a_row > MAX_REWRITES {
            return Err(Fault::KeepsRestarting(self.rewrites_in_a_row));
        }
        Ok(())
    }
}

/// WRITEs that are made for one piece of a file; a server that takes less each time is given up.
const MAX_PARTS: u32 = 1024;

/// Writes all bytes of a piece. A short WRITE is followed by one for the rest (RFC 1813 §3.3.7).
async fn write_whole<T: Transport + Send + Sync>(
    nfs: &Nfs3<T>,
    file: FileHandle,
    mut piece: Piece,
) -> Result<Answered, Fault> {
    let begun = Instant::now();
    let mut parts = Vec::with_capacity(1);
    for _ in 0..MAX_PARTS {
        let (data, stable) = (piece.data.clone(), piece.stable);
        let wrote = nfs.write(file, piece.offset, data, stable).await?;
        let rest = split_off(&mut piece.data, wrote.count);
        let next = piece.offset + wrote.count as u64;
        parts.push(Written {
            piece,
            committed: wrote.committed,
            verifier: wrote.verifier,
        });
        if rest.is_empty() {
            return Ok(Answered {
                written: parts,
                took: begun.elapsed(),
            });
        }
        piece = Piece {
            offset: next,
            data: rest,
            stable,
        };
    }
    Err(Fault::Nonsense(
        "WRITE takes hardly anything of what it is given",
    ))
}

/// Shortens `data` to `len` bytes and returns the rest.
fn split_off(data: &mut Gather, len: usize) -> Gather {
    let mut left = len;
    let mut rest = Gather::new();
    for piece in data.iter_mut() {
        if piece.remaining() > left {
            rest.push(piece.split_off(left));
        }
        left -= piece.len();
    }
    data.retain(|piece| !piece.is_empty());
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[track_caller]
    fn check(pieces: &[&'static str], len: usize, before: &str, behind: &str) {
        let mut data: Gather = pieces
            .iter()
            .map(|text| Bytes::from_static(text.as_bytes()))
            .collect();
        let rest = split_off(&mut data, len);
        assert_eq!(
            (data.concat(), rest.concat()),
            (before.into(), behind.into())
        );
        assert!(data.iter().chain(&rest).all(|piece| !piece.is_empty()));
    }

    #[test]
    fn pieces_are_split_anywhere() {
        check(&["abc", "def"], 2, "ab", "cdef");
        check(&["abc", "def"], 3, "abc", "def");
        check(&["abc", "", "def"], 5, "abcde", "f");
        check(&["abc"], 0, "", "abc");
        check(&["abc"], 9, "abc", "");
        check(&[], 9, "", "");
    }
}
