//! Why an upstream connection was lost, and what users are told of it.

use crate::outage::Symptom;
use oncrpc::{Chain, TransportError};
use oncrpc_tcp::ConnectionEnd;
use rpcrdma::CloseReason;
use std::io;
use verbs::Loss;

/// Warning about a lost upstream connection, which may have answered a call before.
pub(super) fn warning_of_loss(
    why: &TransportError,
    has_answered: bool,
) -> Option<(Symptom, String)> {
    if is_timeout(why) {
        let what = format!("the upstream does not answer: {}", Chain(why));
        return Some((Symptom::Away, what));
    }
    if has_vanished(why) {
        let what = format!("the upstream has gone without a word: {}", Chain(why));
        return Some((Symptom::Away, what));
    }
    (is_closed(why) && !has_answered).then(|| {
        let what = "the server closed the connection before its first reply: does it allow this host, or demand a port \
                    below 1024 (--reserved-port, or reserved_port of the pair)? Or is it an NFS/RDMA port (rdma:// for the \
                    upstream)?";
        (Symptom::Closes, what.to_owned())
    })
}

/// Whether an RDMA connection ended because a call was not answered.
pub(super) fn is_timeout(why: &TransportError) -> bool {
    let TransportError::Disconnected(cause) = why else {
        return false;
    };
    let reason = cause.error().downcast_ref();
    matches!(reason, Some(CloseReason::CallTimedOut(_)))
}

/// Whether nothing comes from the upstream's machine any more, not even acknowledgements.
fn has_vanished(why: &TransportError) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    let TransportError::Disconnected(cause) = why else {
        return false;
    };
    if let Some(ConnectionEnd::Io(error)) = cause.error().downcast_ref() {
        return matches!(
            error.kind(),
            TimedOut | HostUnreachable | NetworkUnreachable
        );
    }
    match cause.error().downcast_ref() {
        Some(CloseReason::Closed(verbs::CloseReason::Lost(reason))) => {
            reason.kind() == Loss::Unresponsive
        }
        Some(CloseReason::Silent(_)) => true,
        _ => false,
    }
}

/// Whether the server has ended the connection, and was not merely silent.
pub(super) fn is_ended_by_server(why: &TransportError) -> bool {
    let TransportError::Disconnected(cause) = why else {
        return false;
    };
    if is_timeout(why) || has_vanished(why) {
        return false;
    }
    match cause.error().downcast_ref() {
        Some(CloseReason::Closed(_)) => true,
        Some(_) => false,
        None => is_closed(why),
    }
}

/// Whether the server has closed or reset a TCP connection.
fn is_closed(why: &TransportError) -> bool {
    let TransportError::Disconnected(cause) = why else {
        return false;
    };
    let end = cause.error().downcast_ref();
    matches!(end, Some(ConnectionEnd::ByPeer | ConnectionEnd::Io(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_without_acknowledgements_has_vanished_and_one_that_closes_has_not() {
        let ended = |kind: io::ErrorKind| {
            let end = ConnectionEnd::Io(kind.into());
            has_vanished(&TransportError::Disconnected(end.into()))
        };
        assert!(ended(io::ErrorKind::TimedOut) && ended(io::ErrorKind::HostUnreachable));
        assert!(!ended(io::ErrorKind::ConnectionReset));
        let closed = TransportError::Disconnected(ConnectionEnd::ByPeer.into());
        assert!(!has_vanished(&closed));
        let lost = |loss: Loss| {
            let closed = CloseReason::Closed(verbs::CloseReason::Lost(loss.into()));
            has_vanished(&TransportError::Disconnected(closed.into()))
        };
        assert!(lost(Loss::Unresponsive) && !lost(Loss::Reset));
    }

    #[test]
    fn upstream_that_vanished_before_its_first_reply_is_not_said_to_have_closed() {
        let said = |kind: io::ErrorKind, has_answered| {
            let end = ConnectionEnd::Io(kind.into());
            let said = warning_of_loss(&TransportError::Disconnected(end.into()), has_answered);
            said.map(|(_, what)| what).unwrap_or_default()
        };
        for has_answered in [false, true] {
            let vanished = said(io::ErrorKind::TimedOut, has_answered);
            assert!(vanished.contains("gone without a word"), "{vanished}");
        }
        let reset = said(io::ErrorKind::ConnectionReset, false);
        assert!(reset.contains("closed the connection"), "{reset}");
        assert_eq!(said(io::ErrorKind::ConnectionReset, true), "");
    }
}
