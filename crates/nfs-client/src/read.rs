//! Reading a file in order, with several READs in flight.

use crate::again::Again;
use crate::error::At;
use crate::in_order::InOrder;
use crate::window::Window;
use crate::{Error, Export, Fault, Nfs3, Node, Tuning};
use bytes::Bytes;
use nfs_proto::FileHandle;
use oncrpc::Transport;
use oncrpc::xdr::{Gather, gather_len};
use std::time::{Duration, Instant};

/// A file being read.
///
/// At most [`Tuning::in_flight`] bytes are in flight or buffered. Dropping the stream cancels the
/// calls in flight.
pub struct ReadStream<'c, T> {
    nfs: &'c Nfs3<T>,
    file: FileHandle,
    path: Vec<u8>,
    tuning: Tuning,
    window: Window,
    /// Offset of the next READ.
    next: u64,
    /// How far READs are made ahead of knowing whether the file goes on: the largest size that the
    /// server has told.
    expected: u64,
    running: InOrder<'c, Result<Chunk, Fault>>,
    /// Export in which it was looked up, until the first data is given out: what is replaced before is looked up again.
    export: Option<&'c Export<T>>,
    again: Again,
    begin: u64,
    ended: bool,
}

/// Bytes that were read at one offset.
struct Chunk {
    data: Gather,
    eof: bool,
    /// Size of the whole file, if the server told it.
    size: Option<u64>,
    took: Duration,
}

impl<'c, T: Transport + Send + Sync> ReadStream<'c, T> {
    pub(crate) fn new(nfs: &'c Nfs3<T>, node: &Node, path: &[u8], tuning: Tuning) -> Self {
        Self {
            nfs,
            file: node.handle,
            path: path.to_vec(),
            tuning,
            window: Window::new(&tuning),
            next: 0,
            expected: node.attributes.size,
            running: InOrder::new(),
            export: None,
            again: Again::default(),
            begin: 0,
            ended: false,
        }
    }

    /// Sets the offset of the first byte to read.
    ///
    /// # Panics
    ///
    /// If reading has begun.
    #[must_use]
    pub fn from(mut self, offset: u64) -> Self {
        assert!(
            self.running.is_empty() && self.next == 0,
            "a stream is placed before it is read"
        );
        (self.next, self.begin) = (offset, offset);
        self
    }

    /// Returns the size of the file in bytes, as last reported by the server.
    pub fn expected_size(&self) -> u64 {
        self.expected
    }

    /// Whether all data was returned. Known with the last data if the server reports the end of the
    /// file with it.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the next bytes, up to [`Tuning::read_size`]; `None` at the end of the file.
    ///
    /// A file that grows meanwhile is read to its new end; one that shrinks ends there.
    ///
    /// # Errors
    ///
    /// The server's error, or a failed call. The stream ends with it.
    pub async fn next(&mut self) -> Result<Option<Gather>, Error> {
        loop {
            match (self.fetch().await, self.export) {
                (Err(fault), Some(export)) if self.again.after(&fault) => {
                    let found = export.find_file(&self.path).await;
                    let node = found.at("read", self.nfs.full(&self.path))?;
                    self.file = node.handle;
                    self.next = self.begin;
                    self.expected = node.attributes.size;
                    self.ended = false;
                }
                (fetched, _) => {
                    self.export = None;
                    return fetched.at("read", self.nfs.full(&self.path));
                }
            }
        }
    }

    /// Has it looked up again in this export if it is replaced before its first data is there.
    pub(crate) fn found_in(mut self, export: &'c Export<T>) -> Self {
        self.export = Some(export);
        self
    }

    async fn fetch(&mut self) -> Result<Option<Gather>, Fault> {
        while !self.ended {
            self.read_ahead();
            let chunk = self.running.next().await.expect("a READ is in flight");
            match chunk {
                Ok(chunk) => {
                    let len = gather_len(&chunk.data);
                    self.window.answered(len, chunk.took);
                    if chunk.eof {
                        self.end();
                    }
                    self.expected = self.expected.max(chunk.size.unwrap_or(0));
                    if !chunk.data.is_empty() {
                        return Ok(Some(chunk.data));
                    }
                }
                Err(fault) => {
                    self.end();
                    return Err(fault);
                }
            }
        }
        Ok(None)
    }

    fn end(&mut self) {
        self.ended = true;
        self.running.clear();
    }

    /// Bytes to ask for: not many more than there are, as room is made for all of them.
    fn size_at(&self, offset: u64) -> u32 {
        let most = self.tuning.read_size;
        let left = self.expected.saturating_sub(offset);
        u32::try_from(left).map_or(most, |left| left.clamp(MIN_READ.min(most), most))
    }

    /// Keeps READs in flight up to the expected end, and one where nothing is known.
    fn read_ahead(&mut self) {
        let depth = self
            .tuning
            .depth_of(self.tuning.read_size, &self.window, self.nfs.transport());
        while self.running.is_empty() || self.running.len() < depth && self.next < self.expected {
            let (nfs, file, offset) = (self.nfs, self.file, self.next);
            let count = self.size_at(offset);
            self.running.push(read_whole(nfs, file, offset, count));
            self.next = self.next.saturating_add(count.into());
        }
    }
}

/// Bytes to ask for at least, where less is expected.
const MIN_READ: u32 = 4096;

/// READs that are made for one piece of a file; a server that returns less each time is given up.
const MAX_PARTS: u32 = 1024;

/// Reads `count` bytes, or to the end of the file. A short READ is followed by one for the rest
/// (RFC 1813 §3.3.6).
async fn read_whole<T: Transport + Send + Sync>(
    nfs: &Nfs3<T>,
    file: FileHandle,
    offset: u64,
    count: u32,
) -> Result<Chunk, Fault> {
    let begun = Instant::now();
    let mut data = Gather::new();
    let mut left = count;
    for _ in 0..MAX_PARTS {
        let at = offset.saturating_add((count - left).into());
        let read = nfs.read(file, at, left).await?;
        let len = gather_len(&read.data);
        if len == 0 && !read.eof {
            return Err(Fault::Nonsense(
                "READ has neither data nor the end of the file",
            ));
        }
        left -= u32::try_from(len).expect("a READ returns at most what was asked for");
        if read.eof || left == 0 {
            data.extend(read.data);
            return Ok(Chunk {
                data,
                eof: read.eof,
                size: read.attributes.map(|attributes| attributes.size),
                took: begun.elapsed(),
            });
        }
        // What was read keeps the memory for all that was asked for: a server could have it all kept with a byte
        // for each READ.
        data.extend(read.data.iter().map(|part| Bytes::copy_from_slice(part)));
    }
    Err(Fault::Nonsense(
        "READ returns hardly anything of what was asked for",
    ))
}
