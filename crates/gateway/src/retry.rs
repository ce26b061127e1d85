//! Calls to the upstream, once more with a larger Reply chunk where that is allowed.

use crate::link::Link;
use crate::pair::Pair;
use crate::reduce;
use crate::replies::can_answer;
use crate::reply_memory::{Lease, Stalled};
use crate::side::Side;
use nfs_proto::scan::ScannedCall;
use oncrpc::xdr::Payload;
use oncrpc::{ReplyBound, TransportError};
use std::sync::Arc;
use tracing::{debug, warn};

impl Pair {
    /// Passes a call to the upstream and waits for its reply, all within the time limit of a call.
    /// The reply comes with the memory that it may have, which is returned once it is handed to the
    /// connection of the client.
    pub(crate) async fn call_upstream(
        self: &Arc<Self>,
        link: &Link,
        call: Payload,
        bound: ReplyBound,
        scanned: &ScannedCall,
    ) -> Result<(Payload, Option<Lease>), TransportError> {
        let limit = self.core.config.call_timeout;
        let calling = self.call_once_or_twice(link, call, bound, scanned);
        let called = tokio::time::timeout(limit, calling).await;
        called.unwrap_or(Err(TransportError::TimedOut(limit)))
    }

    /// RFC 8267 §3.1: if its reply did not fit, it is sent once more as a new transaction, where the
    /// binding says that the size of the reply cannot be estimated and that the call may be executed
    /// twice. The verifier of RPCSEC_GSS covers the XID (RFC 2203 §5.3.1), so that only the client
    /// could do that.
    async fn call_once_or_twice(
        self: &Arc<Self>,
        link: &Link,
        call: Payload,
        bound: ReplyBound,
        scanned: &ScannedCall,
    ) -> Result<(Payload, Option<Lease>), TransportError> {
        let max_reply = self.core.config.max_retried_reply.min(link.max_chunk());
        let may_retry = self.core.upstream_side == Side::Rdma
            && scanned.short_reply_retry
            && can_answer(scanned.flavor)
            && bound.fixed < max_reply;
        let memory = self.reply_memory(&bound).await;
        if !may_retry {
            return Ok((answered(&memory, link.call(call, bound)).await?, memory));
        }
        let (again, results) = (reduce::copy_of(&call), bound.results.clone());
        let why = match answered(&memory, link.call(call, bound)).await {
            Err(TransportError::Refused(why)) => why,
            outcome => return Ok((outcome?, memory)),
        };
        self.core.stats.larger_retries.bump();
        let xid = self.take_own_xid(link);
        debug!(
            target: "gateway", listen = self.core.listen(), xid = scanned.xid,
            as_xid = xid.xid,
            why,
            "repeated with a larger Reply chunk"
        );
        let bound = ReplyBound {
            fixed: max_reply,
            results,
        };
        // The first chunk is invalid by now.
        drop(memory);
        let memory = self.reply_memory(&bound).await;
        let again = reduce::with_xid(again, xid.xid);
        let reply = answered(&memory, link.call(again, bound)).await?;
        Ok((reduce::with_xid(reply, scanned.xid), memory))
    }

    /// Waits for the memory that a reply may need: an RDMA upstream has it registered, and a TCP
    /// client may not read what has come. Replies between TCP and RDMA clients are bounded by the
    /// credits of these.
    async fn reply_memory(&self, bound: &ReplyBound) -> Option<Lease> {
        match (self.core.upstream_side, self.core.downstream) {
            (Side::Tcp, Side::Rdma) => None,
            (Side::Rdma, _) | (Side::Tcp, Side::Tcp) => {
                let memory = &self.core.reply_memory;
                let close = |stalled| self.close_stalled(&stalled);
                memory.lease(self.caller(), bound, close).await
            }
        }
    }

    /// Closes the connection of a client that takes none of its replies while others wait.
    fn close_stalled(&self, stalled: &Stalled) {
        let core = &self.core;
        core.stats.clients_stalled.bump();
        if core.log.may_warn(stalled.group) {
            warn!(target: "gateway", listen = self.core.listen(), peer = %stalled.addr, "takes none of its replies while others wait for their memory: its connection is closed");
        }
        core.connections.abort(stalled.connection);
    }
}

/// Waits for a reply with the memory that it may have.
async fn answered<F: Future>(memory: &Option<Lease>, reply: F) -> F::Output {
    match memory {
        Some(lease) => lease.until_answered(reply).await,
        None => reply.await,
    }
}
