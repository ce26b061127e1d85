//! Replies of the gateway itself.

use oncrpc::auth::AUTH_SYS;
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{AcceptStatus, ReplyHeader, ReplyStatus};

/// Whether the gateway can answer a call with a credential of this flavor itself: AUTH_NONE and
/// AUTH_SYS, whose replies need no verifier.
pub(crate) fn can_answer(flavor: u32) -> bool {
    flavor <= AUTH_SYS
}

/// Makes the reply SYSTEM_ERR (RFC 5531 §9).
pub(crate) fn system_err(xid: u32) -> Payload {
    let mut w = Writer::default();
    let status = ReplyStatus::accepted(AcceptStatus::SystemErr);
    ReplyHeader { xid, status }.write(&mut w);
    w.finish()
}
