//! Calls to clients: CB_NOTIFY_LOCK (RFC 8881 §20.11), CB_RECALL_SLOT (RFC 8881 §20.8), and CB_NULL to check a way (RFC 8881 §19.1).
//!
//! Calls wait in a queue (`queue.rs`). A task of the program, which has the connections, takes it from
//! there: one call at a time for each client, a bounded number for all, and of that an address has no more than it leaves to
//! others. So a client that does not answer delays nobody but itself, and not itself for long: its back channel is lost after one
//! call without a reply.

mod delivery;
mod message;
mod queue;
mod running;
#[cfg(test)]
mod tests;

pub(super) use queue::{Callback, Queue};

use super::state::Nfs4State;
use crate::exports::Exports;
use delivery::Delivery;
use rpc_serving::backchannels::Backchannels;
use running::Running;
use std::future::poll_fn;
use std::sync::Arc;

impl Nfs4State {
    /// Calls clients over these connections, until the last clone of the state is dropped. Without this task, clients ask for locks
    /// again by themselves.
    pub fn callbacks(
        &self,
        backchannels: Backchannels,
        exports: &Exports,
    ) -> impl Future<Output = ()> + Send + use<> {
        let delivery = Delivery {
            shared: Arc::clone(self.shared()),
            backchannels,
            exports: exports.clone(),
        };
        let mut running = Running::new(Arc::new(delivery));
        poll_fn(move |cx| running.poll(cx))
    }
}
