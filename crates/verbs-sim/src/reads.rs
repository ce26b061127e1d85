//! RDMA Reads of one end, from posting to completion.

use buffer::Buffer;
use smallvec::SmallVec;
use std::collections::VecDeque;
use verbs::{Completion, Segment, WrId};

/// Each segment is one request. Requests go out in order, at most `limit` at a time, and responses
/// come back in order (RFC 5040 §5.5), so that a response always belongs to the first unfinished
/// Read.
#[derive(Debug)]
pub(crate) struct Reads {
    limit: usize,
    unfinished: VecDeque<Read>,
    waiting: VecDeque<Segment>,
    /// Bytes that each outstanding request is to bring.
    outstanding: VecDeque<u32>,
    /// Requests answered so far: the number of the first outstanding one.
    answered: u64,
}

#[derive(Debug)]
struct Read {
    wr: WrId,
    sink: Buffer,
    filled: usize,
    left: usize,
}

impl Reads {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            unfinished: VecDeque::new(),
            waiting: VecDeque::new(),
            outstanding: VecDeque::new(),
            answered: 0,
        }
    }

    /// Reads that have not completed.
    pub(crate) fn len(&self) -> usize {
        self.unfinished.len()
    }

    pub(crate) fn begin(&mut self, wr: WrId, sink: Buffer, from: SmallVec<[Segment; 4]>) {
        self.unfinished.push_back(Read {
            wr,
            sink,
            filled: 0,
            left: from.len(),
        });
        self.waiting.extend(from);
    }

    /// Whether a request may go out now.
    pub(crate) fn can_request(&self) -> bool {
        !self.waiting.is_empty() && self.outstanding.len() < self.limit
    }

    pub(crate) fn next_request(&mut self) -> Option<Segment> {
        if !self.can_request() {
            return None;
        }
        let segment = self.waiting.pop_front()?;
        self.outstanding.push_back(segment.length);
        Some(segment)
    }

    /// Takes in a response. `false` when nothing was asked for, or not so much.
    #[must_use]
    pub(crate) fn respond(&mut self, bytes: &[u8]) -> bool {
        let Some(expected) = self.outstanding.pop_front() else {
            return false;
        };
        if u32::try_from(bytes.len()) != Ok(expected) {
            return false;
        }
        self.answered += 1;
        let read = self
            .unfinished
            .front_mut()
            .expect("an outstanding request belongs to an unfinished Read");
        let end = read.filled + bytes.len();
        read.sink.memory_mut()[read.filled..end].copy_from_slice(bytes);
        read.filled = end;
        read.left -= 1;
        true
    }

    /// The first Read as a completion, once nothing of it is left.
    pub(crate) fn finished(&mut self) -> Option<Completion> {
        let read = self.unfinished.pop_front_if(|read| read.left == 0)?;
        let mut sink = read.sink;
        sink.set_len(read.filled);
        Some(Completion::Read { wr: read.wr, sink })
    }

    /// Gives up all of them; `refused` is the number of the request that the peer refused. Gives
    /// each with whether it was that one.
    pub(crate) fn abandon(&mut self, refused: Option<u64>) -> Vec<(WrId, bool)> {
        let mut number = self.answered;
        self.waiting.clear();
        self.outstanding.clear();
        let unfinished = std::mem::take(&mut self.unfinished);
        let with_blame = |read: Read| {
            let left = u64::try_from(read.left).unwrap_or(u64::MAX);
            let mine = number..number + left;
            number = mine.end;
            (
                read.wr,
                refused.is_some_and(|refused| mine.contains(&refused)),
            )
        };
        unfinished.into_iter().map(with_blame).collect()
    }
}
