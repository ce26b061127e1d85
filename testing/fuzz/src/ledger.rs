//! Record of posted work that has not completed.

use iwarp_proto::Endpoint;
use std::collections::{BTreeMap, VecDeque};
use verbs::{Completion, Handle, Invalidated, WorkRequest, WrId};

/// Work by its name: each piece of it completes once, and as what it was.
#[derive(Default)]
pub(crate) struct Ledger {
    next: u64,
    out: BTreeMap<u64, Posted>,
    /// Receives complete in the order in which they were posted.
    receives: VecDeque<u64>,
    invalidates: BTreeMap<u64, Handle>,
}

enum Posted {
    Receive { capacity: usize },
    Send,
    Write,
    Read { len: usize },
    Invalidate,
}

impl Ledger {
    /// A name for another piece of work.
    pub(crate) fn name(&mut self) -> WrId {
        self.next += 1;
        WrId(self.next)
    }

    /// Notes which handle a piece of work is going to take back.
    pub(crate) fn invalidates(&mut self, wr: WrId, handle: Handle) {
        self.invalidates.insert(wr.0, handle);
    }

    /// Posts work; whether it was taken.
    pub(crate) fn post(&mut self, work: WorkRequest, to: &mut Endpoint) -> bool {
        let wr = work.wr().0;
        let posted = match &work {
            WorkRequest::Receive { buffer, .. } => Posted::Receive {
                capacity: buffer.capacity(),
            },
            WorkRequest::Send { .. } => Posted::Send,
            WorkRequest::Write { .. } => Posted::Write,
            WorkRequest::Read { from, .. } => Posted::Read {
                len: from.iter().map(|segment| segment.length as usize).sum(),
            },
            WorkRequest::Invalidate { .. } => Posted::Invalidate,
        };
        match to.post(work) {
            Ok(()) => {
                if matches!(posted, Posted::Receive { .. }) {
                    self.receives.push_back(wr);
                }
                self.out.insert(wr, posted);
                true
            }
            Err(refused) => {
                assert_eq!(refused.wr().0, wr, "the same work goes back");
                false
            }
        }
    }

    /// Receives that wait for a message.
    pub(crate) fn receives(&self) -> usize {
        self.receives.len()
    }

    /// Work other than Receives that has not completed.
    pub(crate) fn others(&self) -> usize {
        self.out.len() - self.receives.len()
    }

    /// A completion; the handle that died with it.
    pub(crate) fn complete(&mut self, completion: Completion) -> Option<Invalidated> {
        match completion {
            Completion::Receive {
                wr,
                buffer,
                invalidated,
            } => {
                let Posted::Receive { capacity } = self.take(wr) else {
                    panic!("{wr:?} is no Receive");
                };
                assert_eq!(buffer.capacity(), capacity, "its own buffer");
                invalidated
            }
            Completion::Send { wr } => {
                assert!(matches!(self.take(wr), Posted::Send));
                None
            }
            Completion::Write { wr } => {
                assert!(matches!(self.take(wr), Posted::Write));
                None
            }
            Completion::Read { wr, sink } => {
                let Posted::Read { len } = self.take(wr) else {
                    panic!("{wr:?} is no Read");
                };
                assert_eq!(sink.len(), len, "all that was asked for");
                None
            }
            Completion::Invalidate { wr, invalidated } => {
                assert!(matches!(self.take(wr), Posted::Invalidate));
                if let Some(handle) = self.invalidates.remove(&wr.0) {
                    assert_eq!(handle, invalidated.handle);
                }
                Some(invalidated)
            }
            Completion::Failed { wr, .. } => {
                self.take(wr);
                None
            }
        }
    }

    fn take(&mut self, wr: WrId) -> Posted {
        let posted = self.out.remove(&wr.0);
        let posted = posted.unwrap_or_else(|| panic!("{wr:?} is not posted, or completes twice"));
        if matches!(posted, Posted::Receive { .. }) {
            assert_eq!(self.receives.pop_front(), Some(wr.0), "Receives in order");
        }
        posted
    }

    /// Asserts that everything has completed.
    pub(crate) fn assert_settled(&self) {
        let left: Vec<_> = self.out.keys().collect();
        assert!(left.is_empty(), "{left:?} have no end");
    }
}
