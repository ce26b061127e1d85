//! Calls of a comparison: how much data in how many chunks.

use super::cases::TrafficKind;
use crate::model::{Sizes, Workload};
use oncrpc::ReplyBound;
use smallvec::SmallVec;
use std::time::Duration;

/// Bytes of an RPC call and of a reply before their data, about as in NFS.
const CALL_HEAD: usize = 120;
const REPLY_HEAD: usize = 120;

/// The calls of one case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of data in a call and its reply together.
    pub(super) payload: usize,
    /// Chunks that they are in, each with a handle of its own: one is for results, and of several one
    /// half is for arguments.
    pub(super) stags: usize,
    /// Calls in flight at a time.
    pub(super) depth: usize,
    /// Whether every second call is one without data.
    pub(super) small_between: bool,
    /// How long the server works on a call.
    pub(super) service: Duration,
}

impl Shape {
    /// Bytes of one chunk.
    pub(super) fn part(self) -> usize {
        self.payload / self.stags
    }

    /// Whether the call with this number has data.
    pub(super) fn has_data(self, number: u64) -> bool {
        !self.small_between || number.is_multiple_of(2)
    }

    pub(super) fn traffic(self) -> TrafficKind {
        match self.small_between {
            true => TrafficKind::Mixed,
            false => TrafficKind::Alone,
        }
    }
}

impl Workload for Shape {
    fn depth(&self) -> usize {
        self.depth
    }

    fn service(&self) -> Duration {
        self.service
    }

    fn sizes(&self, number: u64) -> Sizes {
        let arguments = self.stags / 2;
        let (arguments, results) = match self.has_data(number) {
            true => (arguments, self.stags - arguments),
            false => (0, 0),
        };
        let results: SmallVec<[usize; 2]> = SmallVec::from_elem(self.part(), results);
        Sizes {
            call: CALL_HEAD,
            arguments: SmallVec::from_elem(self.part(), arguments),
            reply: REPLY_HEAD,
            bound: ReplyBound {
                fixed: REPLY_HEAD,
                results: results.iter().copied().collect(),
            },
            results,
            moved: true,
        }
    }
}
