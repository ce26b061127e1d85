//! The types that this driver attaches to calls and leases in the protocol core.

use super::budget::Lease;
use super::calls::CallHandle;
use super::failed::FailedCalls;
use rpcrdma_proto::Owner;
use rpcrdma_proto::header::Lists;

pub(crate) type Connection = rpcrdma_proto::Connection<ConnectionOwner>;
pub(crate) type Event = rpcrdma_proto::Event<ConnectionOwner>;
pub(crate) type CallId = rpcrdma_proto::CallId<Lease>;
pub(crate) type CallRequest = rpcrdma_proto::CallRequest<CallHandle>;

/// The owner of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionOwner {
    /// Calls of this peer that broke a connection.
    failed: FailedCalls,
}

impl ConnectionOwner {
    pub(crate) fn new(failed: FailedCalls) -> Self {
        Self { failed }
    }
}

impl Owner for ConnectionOwner {
    type Call = CallHandle;
    type Lease = Lease;

    fn condemn(&mut self, xid: u32, lists: &Lists) {
        self.failed.insert(xid, lists);
    }

    fn take_condemned(&mut self, xid: u32, lists: &Lists) -> bool {
        self.failed.take(xid, lists)
    }
}
