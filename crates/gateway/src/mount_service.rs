//! MOUNT of an upstream that does not answer it at its NFS port.

use oncrpc::Caller;
use oncrpc::xdr::Payload;
use oncrpc_tcp::ReplyMemory;
use std::fmt;
use std::sync::Arc;
use verbs::BoxFuture;

/// The MOUNT service of an upstream, where that is not at the port of NFS.
///
/// A client that gets PROG_UNAVAIL may ask the MOUNT service of the gateway's own host, which can be
/// that of another server. So a call without an answer is answered with SYSTEM_ERR.
pub trait MountService: fmt::Debug + Send + Sync {
    /// Whether MOUNT is known to be elsewhere, so that the upstream is not asked first.
    fn is_elsewhere(&self) -> bool;

    /// Passes a call of MOUNT on. The reply has its memory from this budget. A call is dropped, and is unanswered, after the
    /// [time of a call](crate::GatewayConfig::call_timeout).
    fn call(
        &self,
        call: Payload,
        caller: &Caller,
        memory: Arc<dyn ReplyMemory>,
    ) -> BoxFuture<'static, MountOutcome>;
}

/// The outcome of a call of MOUNT.
#[derive(Debug)]
pub enum MountOutcome {
    /// The reply of the server.
    Answered(Payload),
    /// The server cannot be reached or does not answer, or it is not known where its MOUNT is.
    Unanswered,
}
