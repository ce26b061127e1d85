//! Replies of the gateway itself.

use nfs_proto::ScannedCall;
use oncrpc::auth::AUTH_SYS;
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{AcceptStatus, ReplyHeader, ReplyStatus};

/// Returns the XID of a call that the gateway can answer itself: with AUTH_NONE or AUTH_SYS, whose
/// replies need no verifier.
pub(crate) fn reply_of(call: &ScannedCall) -> Option<u32> {
    (call.flavor <= AUTH_SYS).then_some(call.xid)
}

/// Makes the reply SYSTEM_ERR (RFC 5531 §9).
pub(crate) fn system_err(xid: u32) -> Payload {
    let mut w = Writer::default();
    let status = ReplyStatus::accepted(AcceptStatus::SystemErr);
    ReplyHeader { xid, status }.write(&mut w);
    w.finish()
}
