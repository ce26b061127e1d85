//! Calls whose chunks broke a connection (RFC 8166 §4.5.3).

use rpcrdma_proto::header::{Lists, WriteChunk};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest number of calls of one client that are remembered for breaking a connection (RFC 8166
/// §4.5.3).
pub(crate) const MAX_FAILED_CALLS: usize = 64;

/// Calls of one client whose chunks broke a connection.
///
/// When the client repeats such a call on its next connection, it is answered once with ERR_CHUNK
/// and not executed: otherwise client and server would lose one connection after the other. All
/// connections of one client share this set, which holds the last [`MAX_FAILED_CALLS`].
#[derive(Clone, Debug, Default)]
pub(crate) struct FailedCalls(Arc<Mutex<VecDeque<FailedCall>>>);

/// Identity of a call: its XID and the sizes of its chunks. Handles differ each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailedCall {
    xid: u32,
    shape: u64,
}

impl FailedCalls {
    /// Creates an empty set.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Remembers a call.
    pub(crate) fn insert(&self, xid: u32, lists: &Lists) {
        let call = FailedCall::new(xid, lists);
        let mut calls = self.lock();
        if calls.contains(&call) {
            return;
        }
        if calls.len() == MAX_FAILED_CALLS {
            calls.pop_front();
        }
        calls.push_back(call);
    }

    /// Removes the call, and returns whether it was in the set: the error ends the call, and its
    /// XID may be reused.
    pub(crate) fn take(&self, xid: u32, lists: &Lists) -> bool {
        let mut calls = self.lock();
        if calls.is_empty() {
            return false;
        }
        let call = FailedCall::new(xid, lists);
        let at = calls.iter().position(|&other| other == call);
        at.and_then(|at| calls.remove(at)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<FailedCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FailedCall {
    fn new(xid: u32, lists: &Lists) -> Self {
        let mut hasher = DefaultHasher::new();
        for chunk in &lists.reads {
            (chunk.position, chunk.len()).hash(&mut hasher);
        }
        let writes: Vec<u64> = lists.writes.iter().map(WriteChunk::len).collect();
        let reply = lists.reply.as_ref().map(WriteChunk::len);
        (writes, reply).hash(&mut hasher);
        Self {
            xid,
            shape: hasher.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{Handle, Segment};

    fn lists(handle: u32, length: u32) -> Lists {
        let segment = Segment {
            handle: Handle(handle),
            length,
            offset: 0,
        };
        Lists {
            reply: Some(WriteChunk {
                segments: [segment].into_iter().collect(),
            }),
            ..Lists::default()
        }
    }

    #[test]
    fn call_is_known_again_by_xid_and_sizes_and_only_once() {
        let failed = FailedCalls::new();
        failed.insert(5, &lists(1, 100));
        failed.insert(5, &lists(1, 100));
        assert_eq!(failed.lock().len(), 1);
        assert!(!failed.take(6, &lists(1, 100)));
        assert!(!failed.take(5, &lists(1, 101)));
        let of_another_connection = failed.clone();
        assert!(of_another_connection.take(5, &lists(2, 100)));
        assert!(!failed.take(5, &lists(2, 100)));
    }

    #[test]
    fn oldest_is_forgotten_when_there_are_too_many() {
        let failed = FailedCalls::new();
        let last = u32::try_from(MAX_FAILED_CALLS).expect("a small number");
        for xid in 0..=last {
            failed.insert(xid, &lists(1, 100));
        }
        assert_eq!(failed.lock().len(), MAX_FAILED_CALLS);
        assert!(!failed.take(0, &lists(1, 100)));
        assert!(failed.take(1, &lists(1, 100)));
        assert!(failed.take(last, &lists(1, 100)));
    }
}
