//! Echo calls as RPC messages, which gateways pass on and know nothing of.

use crate::echo::{Echo, Shape, Shared};
use buffer::Buffer;
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{
    Answer, CallHeader, Caller, Credential, Procedure, Programs, Reply, RpcError, Service,
    read_reply, write_call,
};
use std::sync::Arc;

/// A procedure of a program that nobody else has.
const ECHO: Procedure = Procedure {
    prog: 0x2000_0002,
    vers: 1,
    proc: 1,
};

/// XID and message type, which an echo message begins with as well.
const HEAD: usize = 8;

/// Bytes of a reply before its results: XID to SUCCESS (RFC 5531 §9).
const REPLY_HEAD: usize = 24;

/// The call of a shape.
pub(super) fn call(shape: &Shape, xid: u32, id: u64) -> Payload {
    let mut w = Writer::new(Buffer::with_capacity(64));
    write_call(&mut w, xid, ECHO, &Credential::None);
    let head = w.finish().head().to_vec();
    with_head(&head, &flat(&shape.call(xid, id)))
}

/// Bytes of the reply to a shape.
pub(super) fn reply_len(shape: &Shape) -> usize {
    let item = |(len, _): &(usize, usize)| 4 + len.next_multiple_of(4);
    REPLY_HEAD + 12 + shape.results.iter().map(item).sum::<usize>()
}

/// Compares a reply with what was asked for. `None` if a gateway said that it cannot pass it on.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn check(
    shape: &Shape,
    xid: u32,
    id: u64,
    reply: &Payload,
) -> Result<Option<()>, String> {
    match read_reply(reply, xid) {
        Ok(_) => {}
        Err(RpcError::SystemErr) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    }
    let bytes = flat(reply);
    let results = bytes.get(REPLY_HEAD..).unwrap_or_default();
    let head = [xid, 1].map(u32::to_be_bytes).concat();
    let reply = Payload::new(Buffer::from([&head, results].concat()), 0);
    shape.check(xid, id, &reply).map(Some)
}

/// The program.
pub(super) struct EchoProgram(pub(super) Arc<Echo>);

impl Service for EchoProgram {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let mut r = Reader::from(&call);
        let Ok(header) = CallHeader::parse(&mut r) else {
            return Answer::Now(Reply::Nothing);
        };
        if header.prog != ECHO.prog {
            // The gateway in front asks whether the one behind is there.
            return Programs::new().call(call, caller);
        }
        let (xid, args) = (header.xid, call.stream_len() - r.remaining());
        let head = [xid, 0].map(u32::to_be_bytes).concat();
        let bytes = flat(&call);
        let inner = Payload::new(Buffer::from([&head, &bytes[args..]].concat()), 0);
        match Shared(Arc::clone(&self.0)).call(inner, caller) {
            Answer::Now(reply) => Answer::Now(success(xid, reply)),
            Answer::Later(reply) => {
                Answer::Later(Box::pin(async move { success(xid, reply.await) }))
            }
            Answer::Blocking(_) | Answer::Deferred(_) => Answer::Now(Reply::Nothing),
        }
    }
}

/// The reply of the echo as an accepted reply.
fn success(xid: u32, reply: Reply) -> Reply {
    match reply {
        Reply::Message(echo) => {
            let head = [xid, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
            Reply::Message(with_head(&head, &flat(&echo)))
        }
        other => other,
    }
}

/// A message with another head than that of the echo.
fn with_head(head: &[u8], echo: &[u8]) -> Payload {
    Payload::new(Buffer::from([head, &echo[HEAD..]].concat()), 0)
}

fn flat(message: &Payload) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.stream_len());
    message.visit_stream(0, |part| bytes.extend_from_slice(part));
    bytes
}
