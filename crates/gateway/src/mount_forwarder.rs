//! Calls of MOUNT that are passed on, whichever way they come: over TCP, or over a connection of NFS.

use crate::mount_server::MountServer;
use crate::mount_service::{MountOutcome, MountService};
use crate::mount_turns::MountTurns;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{CallHeader, Caller};
use oncrpc_tcp::{ReplyMemory, WarningLog};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use verbs::BoxFuture;

/// Calls of MOUNT at the server at a time where no [`MountProxy`](crate::MountProxy) takes them: only clients of NFS call then.
pub const CALLS_WITHOUT_PORT: usize = 4;

/// Numbers of calls of MOUNT without an answer of the server, for metrics.
#[derive(Debug, Default)]
pub struct MountFailures {
    denied: AtomicU64,
    unanswered: AtomicU64,
}

impl MountFailures {
    /// Calls denied, as a local user claimed to be another one.
    pub fn denied(&self) -> u64 {
        self.denied.load(Relaxed)
    }

    /// Calls that were answered with SYSTEM_ERR, as the server could not be reached or did not answer.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Relaxed)
    }

    /// Counts a call that is denied.
    pub(crate) fn deny(&self) {
        self.denied.fetch_add(1, Relaxed);
    }
}

/// Passes calls of MOUNT on to a server. Clones share its turns, its log and its counters.
///
/// It is the [`MountService`] of a gateway for calls at the NFS port, and a [`MountProxy`](crate::MountProxy) gives it those of
/// a port of MOUNT.
#[derive(Clone)]
pub struct MountForwarder {
    server: Arc<MountServer>,
    pub(crate) turns: Arc<MountTurns>,
    pub(crate) log: Arc<WarningLog>,
    pub(crate) failures: Arc<MountFailures>,
}

impl MountForwarder {
    /// A forwarder to MOUNT of a server.
    pub fn new(server: MountServer) -> Self {
        Self {
            server: Arc::new(server),
            turns: Arc::new(MountTurns::new()),
            log: Arc::default(),
            failures: Arc::default(),
        }
    }

    /// Limits the calls at the server at a time, each of which has a connection; those there now stay. There is another limit
    /// beyond which this has no effect.
    pub fn limit_calls(&self, most: usize) {
        self.turns.limit(most);
    }

    /// Sets the name of the listener in the log.
    pub fn name_listener(&self, name: impl FnOnce() -> String) {
        self.log.name_listener(name);
    }

    /// The counters of calls without an answer.
    pub fn failures(&self) -> Arc<MountFailures> {
        Arc::clone(&self.failures)
    }

    /// Passes a call on in its turn, over a connection of its own: calls are rare, and the server sees each as from a client
    /// that comes for the first time. Its reply has its memory from this budget, if there is one.
    pub(crate) async fn pass_on(
        &self,
        vers: u32,
        call: Payload,
        caller: &Caller,
        memory: Option<Arc<dyn ReplyMemory>>,
    ) -> MountOutcome {
        let (log, peer, group) = (&self.log, caller.addr, caller.group);
        let outcome = match self.turns.take(group).await {
            Some(_turn) => self.server.call(vers, call, log, memory).await,
            None => {
                log.warn_of(group, |listen| {
                    tracing::warn!(target: "gateway", listen, %peer, "a call of MOUNT has waited in vain for its turn: the server answers earlier ones too slowly");
                });
                MountOutcome::Unanswered
            }
        };
        if !matches!(outcome, MountOutcome::Answered(_)) {
            self.failures.unanswered.fetch_add(1, Relaxed);
        }
        outcome
    }
}

impl fmt::Debug for MountForwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountForwarder").finish_non_exhaustive()
    }
}

impl MountService for MountForwarder {
    fn is_elsewhere(&self) -> bool {
        self.server.is_fixed()
    }

    fn call(
        &self,
        call: Payload,
        caller: &Caller,
        memory: Arc<dyn ReplyMemory>,
    ) -> BoxFuture<'static, MountOutcome> {
        let (mount, caller) = (self.clone(), *caller);
        Box::pin(async move {
            let vers = CallHeader::parse(&mut Reader::from(&call)).map(|header| header.vers);
            match vers {
                Ok(vers) => mount.pass_on(vers, call, &caller, Some(memory)).await,
                // The gateway has read it before.
                Err(_) => MountOutcome::Unanswered,
            }
        })
    }
}
