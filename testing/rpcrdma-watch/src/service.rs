//! A wrapper that observes the execution of calls.

use super::party::Party;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Answer, Caller, ConnectionId, ReceivedCall, ReplyBound, Service};
use std::sync::Arc;

impl Party {
    /// The same service, watched. It answers what comes over this party's provider.
    pub fn service(&self, service: Arc<dyn Service>) -> Arc<dyn Service> {
        Arc::new(WatchedService {
            party: self.clone(),
            inner: service,
        })
    }
}

/// A service, watched.
struct WatchedService {
    party: Party,
    inner: Arc<dyn Service>,
}

impl Service for WatchedService {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        self.party.executed(Reader::from(&call).u32().unwrap_or(0));
        self.inner.call(call, caller)
    }

    fn reply_bound(&self, call: ReceivedCall<'_>) -> Option<ReplyBound> {
        self.inner.reply_bound(call)
    }

    fn keeps_calls(&self) -> bool {
        self.inner.keeps_calls()
    }

    fn closed_in_order(&self, caller: &Caller) {
        self.inner.closed_in_order(caller);
    }

    fn connection_ended(&self, connection: ConnectionId) {
        self.inner.connection_ended(connection);
    }
}
