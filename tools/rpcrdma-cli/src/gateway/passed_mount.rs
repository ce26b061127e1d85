//! Calls of MOUNT that a pair passes on, whichever way they come: over TCP, or over a connection of NFS.

use super::mount_server::MountServer;
use super::mount_turns::MountTurns;
use gateway::{MountOutcome, MountService};
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{CallHeader, Caller};
use oncrpc_tcp::{ReplyMemory, WarningLog};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use verbs::BoxFuture;

/// Calls that are at the server at a time, of a pair without a port of MOUNT: only clients of its own NFS port call.
pub(super) const CALLS_WITHOUT_PORT: usize = 4;

/// Calls of MOUNT that did not get an answer of the server.
#[derive(Debug, Default)]
pub(super) struct MountFailures {
    denied: AtomicU64,
    unanswered: AtomicU64,
}

impl MountFailures {
    /// Calls denied, as a local user claimed to be another one.
    pub(super) fn denied(&self) -> u64 {
        self.denied.load(Relaxed)
    }

    /// Calls that were answered with SYSTEM_ERR, as the server could not be reached or did not answer.
    pub(super) fn unanswered(&self) -> u64 {
        self.unanswered.load(Relaxed)
    }

    /// Counts a call that is denied.
    pub(super) fn deny(&self) {
        self.denied.fetch_add(1, Relaxed);
    }
}

/// MOUNT of the server of a pair, with what the calls to it share.
#[derive(Clone)]
pub(super) struct PassedMount {
    server: Arc<MountServer>,
    pub(super) turns: Arc<MountTurns>,
    pub(super) log: Arc<WarningLog>,
    pub(super) failures: Arc<MountFailures>,
}

impl PassedMount {
    pub(super) fn new(server: MountServer) -> Self {
        Self {
            server: Arc::new(server),
            turns: Arc::new(MountTurns::new()),
            log: Arc::default(),
            failures: Arc::default(),
        }
    }

    /// Passes a call on in its turn, over a connection of its own: calls are rare, and the server sees each as from a client
    /// that comes for the first time. Its reply has its memory from this budget, if there is one.
    pub(super) async fn pass_on(
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
                if log.may_warn(group) {
                    tracing::warn!(target: "gateway", listen = log.listener(), %peer, "a call of MOUNT has waited in vain for its turn: the server answers earlier ones too slowly");
                }
                MountOutcome::Unanswered
            }
        };
        if !matches!(outcome, MountOutcome::Answered(_)) {
            self.failures.unanswered.fetch_add(1, Relaxed);
        }
        outcome
    }
}

impl fmt::Debug for PassedMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassedMount").finish_non_exhaustive()
    }
}

impl MountService for PassedMount {
    fn is_elsewhere(&self) -> bool {
        self.server.is_named()
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
