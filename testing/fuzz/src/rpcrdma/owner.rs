//! The owner of the connection: the memory budget for calls of the peer, and calls that it gave up.

use rpcrdma_proto::Owner as IsOwner;
use rpcrdma_proto::header::{Lists, WriteChunk};
use std::cell::Cell;
use std::rc::Rc;

pub(super) type Connection = rpcrdma_proto::Connection<Owner>;

#[derive(Debug, Default)]
pub(super) struct Owner {
    condemned: Vec<(u32, u64)>,
}

/// Bytes for the chunks of calls. Clones share them.
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

impl Budget {
    pub(super) fn new(total: usize) -> Self {
        let free = Rc::new(Cell::new(total));
        Self { total, free }
    }

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

impl IsOwner for Owner {
    type Call = u64;
    type Lease = Lease;

    fn condemn(&mut self, xid: u32, lists: &Lists) {
        self.condemned.push((xid, bytes(lists)));
    }

    fn take_condemned(&mut self, xid: u32, lists: &Lists) -> bool {
        let call = (xid, bytes(lists));
        let at = self.condemned.iter().position(|other| *other == call);
        at.map(|at| self.condemned.remove(at)).is_some()
    }
}

fn bytes(lists: &Lists) -> u64 {
    let reads = lists
        .reads
        .iter()
        .map(rpcrdma_proto::header::ReadChunk::len);
    let writes = lists.writes.iter().chain(&lists.reply);
    reads.chain(writes.map(WriteChunk::len)).sum()
}
