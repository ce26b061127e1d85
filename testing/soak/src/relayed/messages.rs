//! Echo calls as RPC messages, which gateways pass on and know nothing of: to a server, and back.

use crate::echo::Shape;
use buffer::Buffer;
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{Credential, Procedure, RpcError, read_reply, write_call};

/// Programs that nobody else has: that of a server, and that of a client that takes callbacks.
pub(super) const ECHO: u32 = 0x2000_0002;
pub(super) const CALLBACK: u32 = 0x4000_0002;

/// The procedure that echoes, as CB_COMPOUND is one for everything, beside NULL.
const PROC: u32 = 1;

/// XID and message type, which an echo message begins with as well.
pub(super) const HEAD: usize = 8;

/// Bytes of a reply before its results: XID to SUCCESS (RFC 5531 §9).
const REPLY_HEAD: usize = 24;

/// The call of a shape to a program.
pub(super) fn call(prog: u32, shape: &Shape, xid: u32, id: u64) -> Payload {
    let head = header(prog, PROC, xid).head().to_vec();
    with_head(&head, &flat(&shape.call(xid, id)))
}

/// The call of NULL of a program.
pub(super) fn null(prog: u32, xid: u32) -> Payload {
    header(prog, 0, xid)
}

fn header(prog: u32, proc: u32, xid: u32) -> Payload {
    let mut w = Writer::new(Buffer::with_capacity(64));
    let vers = 1;
    write_call(
        &mut w,
        xid,
        Procedure { prog, vers, proc },
        &Credential::None,
    );
    w.finish()
}

/// Bytes of the reply to a shape.
pub(super) fn reply_len(shape: &Shape) -> usize {
    let item = |(len, _): &(usize, usize)| 4 + len.next_multiple_of(4);
    REPLY_HEAD + 12 + shape.results.iter().map(item).sum::<usize>()
}

/// Meaning of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It was done as asked.
    Done,
    /// A gateway cannot pass the call or its reply on.
    SystemErr,
    /// There is no such program.
    ProgUnavail,
}

/// Compares a reply with what was asked for.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn check(shape: &Shape, xid: u32, id: u64, reply: &Payload) -> Result<Said, String> {
    let said = check_null(xid, reply)?;
    if said != Said::Done {
        return Ok(said);
    }
    let bytes = flat(reply);
    let results = bytes.get(REPLY_HEAD..).unwrap_or_default();
    let head = [xid, 1].map(u32::to_be_bytes).concat();
    let reply = Payload::new(Buffer::from([&head, results].concat()), 0);
    shape.check(xid, id, &reply).map(|()| Said::Done)
}

/// The same for a reply without results.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn check_null(xid: u32, reply: &Payload) -> Result<Said, String> {
    match read_reply(reply, xid) {
        Ok(_) => Ok(Said::Done),
        Err(RpcError::SystemErr) => Ok(Said::SystemErr),
        Err(RpcError::ProgUnavail) => Ok(Said::ProgUnavail),
        Err(error) => Err(error.to_string()),
    }
}

/// A message with another head than that of the echo.
fn with_head(head: &[u8], echo: &[u8]) -> Payload {
    Payload::new(Buffer::from([head, &echo[HEAD..]].concat()), 0)
}

/// The bytes of a message.
pub(super) fn flat(message: &Payload) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.stream_len());
    message.visit_stream(0, |part| bytes.extend_from_slice(part));
    bytes
}
