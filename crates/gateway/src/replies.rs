//! Replies of the gateway itself.

use oncrpc::auth::AUTH_SYS;
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{AcceptStatus, AuthStat, RejectStatus, ReplyHeader, ReplyStatus};

/// Flavor of a call that asks for TLS on its connection (RFC 9289 §7.1).
pub(crate) const AUTH_TLS: u32 = 7;

/// Whether the gateway can answer a call with a credential of this flavor itself: AUTH_NONE and
/// AUTH_SYS, whose replies need no verifier.
pub(crate) fn can_answer(flavor: u32) -> bool {
    flavor <= AUTH_SYS
}

/// Makes the reply SYSTEM_ERR (RFC 5531 §9).
pub(crate) fn system_err(xid: u32) -> Payload {
    reply(xid, ReplyStatus::accepted(AcceptStatus::SystemErr))
}

/// Makes the reply GARBAGE_ARGS (RFC 5531 §9).
pub(crate) fn garbage_args(xid: u32) -> Payload {
    reply(xid, ReplyStatus::accepted(AcceptStatus::GarbageArgs))
}

/// Makes the reply AUTH_BADCRED (RFC 5531 §9).
pub(crate) fn bad_cred(xid: u32) -> Payload {
    let status = RejectStatus::AuthError(AuthStat::BadCred);
    reply(xid, ReplyStatus::Denied(status))
}

fn reply(xid: u32, status: ReplyStatus<'_>) -> Payload {
    let mut w = Writer::default();
    ReplyHeader { xid, status }.write(&mut w);
    w.finish()
}
