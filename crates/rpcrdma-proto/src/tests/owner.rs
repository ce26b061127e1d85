//! The owner of the connections in these tests.

use crate::Owner;
use crate::wire::header::{Lists, WriteChunk};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Names a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallToken(pub(super) u64);

/// Bytes that calls of the peer may take, and the calls that were condemned. Clones share both.
#[derive(Clone, Debug)]
pub(super) struct TestOwner {
    pub(super) budget: Budget,
    condemned: Rc<RefCell<Vec<Condemned>>>,
}

/// XID and sizes of the chunks.
type Condemned = (u32, Vec<u64>);

#[derive(Clone, Debug)]
pub(super) struct Budget {
    total: usize,
    free: Rc<Cell<usize>>,
}

/// Bytes that go back when it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    budget: Budget,
    bytes: usize,
}

impl TestOwner {
    pub(super) fn with_budget(bytes: usize) -> Self {
        let free = Rc::new(Cell::new(bytes));
        Self {
            budget: Budget { total: bytes, free },
            condemned: Rc::default(),
        }
    }

    /// Calls that are condemned.
    pub(super) fn condemned(&self) -> usize {
        self.condemned.borrow().len()
    }
}

impl Default for TestOwner {
    fn default() -> Self {
        Self::with_budget(64 << 20)
    }
}

impl Budget {
    pub(super) fn free(&self) -> usize {
        self.free.get()
    }

    /// A call that needs more than all takes all.
    pub(super) fn take(&self, bytes: usize) -> Option<Lease> {
        let bytes = bytes.min(self.total);
        self.free.set(self.free().checked_sub(bytes)?);
        let budget = self.clone();
        Some(Lease { budget, bytes })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.free.set(self.budget.free() + self.bytes);
    }
}

impl Owner for TestOwner {
    type Call = CallToken;
    type Lease = Lease;

    fn condemn(&mut self, xid: u32, lists: &Lists) {
        self.condemned.borrow_mut().push((xid, sizes(lists)));
    }

    fn take_condemned(&mut self, xid: u32, lists: &Lists) -> bool {
        let call = (xid, sizes(lists));
        let mut condemned = self.condemned.borrow_mut();
        let at = condemned.iter().position(|other| *other == call);
        at.map(|at| condemned.remove(at)).is_some()
    }
}

fn sizes(lists: &Lists) -> Vec<u64> {
    let reads = lists.reads.iter().map(crate::wire::header::ReadChunk::len);
    let writes = lists.writes.iter().chain(&lists.reply);
    reads.chain(writes.map(WriteChunk::len)).collect()
}
