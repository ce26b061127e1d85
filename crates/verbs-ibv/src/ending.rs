//! Why connections end, from the statuses of completions and the events of the connection manager.

use crate::sys::{
    IBV_WC_LOC_LEN_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR,
    IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR,
};
use std::io;
use verbs::{CloseReason, Loss, ProtocolError, Reason, WorkError};

/// The status of a work completion, as libibverbs names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("status of the work completion: {text}")]
pub struct CompletionStatus {
    /// Number of the status, `IBV_WC_...`.
    pub status: i32,
    /// Its description by libibverbs.
    pub text: String,
}

/// A failure of the device or the kernel.
pub(crate) fn system(error: io::Error) -> CloseReason {
    CloseReason::Lost(Reason::new(Loss::System).with_detail(error))
}

/// Why work of the send queue that failed with this status ends the connection, and what its owner is told.
pub(crate) fn of_send(status: CompletionStatus) -> (WorkError, CloseReason) {
    let terminated = |kind| {
        let reason = Reason::new(kind).with_detail(status.clone());
        CloseReason::Terminated(reason)
    };
    match status.status {
        IBV_WC_REM_ACCESS_ERR => (
            WorkError::RemoteAccess,
            terminated(ProtocolError::MemoryAccess),
        ),
        // A message that did not fit, or an invalidation that the peer refused.
        IBV_WC_REM_INV_REQ_ERR => (
            WorkError::Flushed,
            terminated(ProtocolError::InvalidMessage),
        ),
        IBV_WC_REM_OP_ERR => (WorkError::Flushed, terminated(ProtocolError::Internal)),
        IBV_WC_RNR_RETRY_EXC_ERR => (WorkError::Flushed, terminated(ProtocolError::NoBuffer)),
        IBV_WC_RETRY_EXC_ERR | IBV_WC_RESP_TIMEOUT_ERR => {
            (WorkError::Flushed, lost(Loss::Unresponsive, status))
        }
        _ => (WorkError::Flushed, lost(Loss::WorkFailed, status)),
    }
}

/// The same for a Receive.
pub(crate) fn of_receive(status: CompletionStatus) -> (WorkError, CloseReason) {
    let peer_error = |kind| {
        let reason = Reason::new(kind).with_detail(status.clone());
        CloseReason::PeerError(reason)
    };
    match status.status {
        IBV_WC_LOC_LEN_ERR => (WorkError::TooLong, peer_error(ProtocolError::TooLong)),
        IBV_WC_REM_INV_REQ_ERR => (WorkError::Flushed, peer_error(ProtocolError::Invalidation)),
        _ => (WorkError::Flushed, lost(Loss::WorkFailed, status)),
    }
}

fn lost(kind: Loss, status: CompletionStatus) -> CloseReason {
    CloseReason::Lost(Reason::new(kind).with_detail(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: i32) -> CompletionStatus {
        let text = "a text".into();
        CompletionStatus { status, text }
    }

    #[test]
    fn refusals_of_the_peer_are_told_apart_from_its_silence() {
        let (error, reason) = of_send(status(IBV_WC_REM_ACCESS_ERR));
        assert_eq!(error, WorkError::RemoteAccess);
        assert!(matches!(reason, CloseReason::Terminated(_)));
        let (_, reason) = of_send(status(IBV_WC_RNR_RETRY_EXC_ERR));
        assert!(
            matches!(reason, CloseReason::Terminated(why) if why.kind() == ProtocolError::NoBuffer)
        );
        let (error, reason) = of_send(status(IBV_WC_RETRY_EXC_ERR));
        assert_eq!(error, WorkError::Flushed);
        assert!(matches!(reason, CloseReason::Lost(why) if why.kind() == Loss::Unresponsive));
    }

    #[test]
    fn message_that_does_not_fit_is_the_fault_of_the_peer() {
        let (error, reason) = of_receive(status(IBV_WC_LOC_LEN_ERR));
        assert_eq!(error, WorkError::TooLong);
        let CloseReason::PeerError(why) = reason else {
            panic!("{reason:?}");
        };
        assert_eq!(why.kind(), ProtocolError::TooLong);
        let detail = why.detail().expect("the status of the completion");
        assert!(detail.is::<CompletionStatus>());
    }
}
