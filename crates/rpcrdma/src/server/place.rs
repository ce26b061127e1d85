//! What a connection holds as long as it lasts: its place among all, and its part of what is shared.

use super::addresses::Address;
use super::receive_memory::ReceiveLease;
use super::stop::Stop;
use oncrpc::admission::Admitted;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use verbs::SharedReceiveQueue;

/// The place of one connection among those of the server.
pub(super) struct Place {
    pub(super) admitted: Admitted,
    /// Set when another connection got the place.
    pub(super) evicted: Stop,
}

/// What a connection holds as long as it lasts.
pub(super) struct Kept {
    pub(super) address: Address,
    pub(super) _receive_memory: Option<ReceiveLease>,
    pub(super) _load: Load,
}

/// One connection of the load of a worker.
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
    /// The Receives that connections of this address share.
    pub(super) fn receives(&self) -> Option<SharedReceiveQueue> {
        self.address.shared.receives.clone()
    }
}
