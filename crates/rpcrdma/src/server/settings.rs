//! Settings that all connections of a server share.

use super::addresses::{Addresses, ReceiveQueue};
use super::backward_memory::BackwardMemory;
use super::receive_memory::ReceiveMemory;
use crate::ServerConfig;
use crate::driver::budget::Budget;
use crate::driver::invalidation::Terms;
use crate::driver::job_replies::JobCall;
use oncrpc::Service;
use rpc_serving::admission::Admission;
use rpc_serving::jobs::Jobs;
use rpc_serving::warning_log::WarningLog;
use rpcrdma_proto::Registrations;
use std::sync::Arc;
use verbs::{Limits, Provider};

/// Settings that all connections of a server share; none changes them.
pub(super) struct Settings {
    pub(super) service: Arc<dyn Service>,
    pub(super) config: ServerConfig,
    pub(super) budget: Budget,
    pub(super) admission: Admission,
    pub(super) receive_memory: ReceiveMemory,
    pub(super) addresses: Addresses,
    pub(super) log: WarningLog,
    pub(super) jobs: Jobs<JobCall>,
    pub(super) backward_memory: BackwardMemory,
}

/// A provider on which a server listens, and what its connections share.
pub(super) struct Listened {
    pub(super) provider: Arc<dyn Provider>,
    /// Receives of all its connections, if they share them.
    pub(super) receives: Option<Arc<ReceiveQueue>>,
}

/// Remote invalidation designs that a connection can agree to, over a provider with these limits.
pub(super) fn terms(config: &ServerConfig, limits: &Limits) -> Terms {
    Terms::new(&config.remote_invalidation, Registrations::OF_CALLS, limits)
}
