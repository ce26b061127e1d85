//! Resources of a connection: its parts of what connections share.

use super::addresses::Address;
use super::receive_memory::ReceiveLease;
use rpc_serving::turns::Turns;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use verbs::SharedReceiveQueue;

/// Resources that a connection holds as long as it exists.
pub(super) struct Kept {
    pub(super) address: Address,
    /// Memory of Receives that the connection posts itself, until it is served.
    pub(super) receive_memory: Option<ReceiveLease>,
    /// Its turns on its worker, until it is served.
    pub(super) turns: Option<Turns>,
    pub(super) _load: Load,
}

/// Counts one connection towards the load of a worker while it exists.
pub(super) struct Load(Arc<AtomicUsize>);

impl Load {
    pub(super) fn new(load: Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Relaxed);
        Self(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Kept {
    /// The part of the shared receive queue for connections of this address.
    pub(super) fn receives(&self) -> Option<SharedReceiveQueue> {
        self.address.shared.receives.clone()
    }
}
