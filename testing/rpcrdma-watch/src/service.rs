//! A service whose calls are seen as they are executed.

use super::Party;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Answer, Caller, Service};
use std::sync::Arc;

/// A service, watched.
pub(super) struct WatchedService {
    party: Party,
    inner: Arc<dyn Service>,
}

impl WatchedService {
    pub(super) fn new(party: Party, inner: Arc<dyn Service>) -> Self {
        Self { party, inner }
    }
}

impl Service for WatchedService {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        self.party.executed(Reader::from(&call).u32().unwrap_or(0));
        self.inner.call(call, caller)
    }
}
