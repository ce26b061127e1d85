//! The echo program, behind gateways that know nothing of it: of the server, which calls its clients, and of
//! clients that take callbacks.

use super::callbacks::Callbacks;
use super::messages::{HEAD, flat};
use super::session;
use crate::echo::{Echo, Shared};
use buffer::Buffer;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Answer, CallHeader, Caller, Programs, Reply, Service};
use std::sync::Arc;

/// The program: of the server, which calls its clients, or of a client.
pub(super) struct EchoProgram {
    pub(super) number: u32,
    pub(super) echo: Arc<Echo>,
    /// Makes the calls that calls of clients trigger.
    pub(super) callbacks: Option<Arc<Callbacks>>,
}

impl Service for EchoProgram {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let mut r = Reader::from(&call);
        let Ok(header) = CallHeader::parse(&mut r) else {
            return Answer::Now(Reply::Nothing);
        };
        let xid = header.xid;
        if let Some(callbacks) = &self.callbacks {
            match session::read(&header, &mut r) {
                Ok(None) => {}
                Ok(Some(session)) => {
                    callbacks.declared(caller.connection, session);
                    // The status, an empty tag and no operations.
                    return Answer::Now(accepted(xid, &[0; 12]));
                }
                Err(error) => {
                    callbacks.wrong(format_args!("session call {xid:#010x}: {error}"));
                    return Answer::Now(Reply::Nothing);
                }
            }
        }
        if header.prog != self.number {
            // The gateway in front asks whether the one behind is there.
            return Programs::new().call(call, caller);
        }
        if header.proc == 0 {
            return Answer::Now(accepted(xid, &[]));
        }
        let args = call.stream_len() - r.remaining();
        let head = [xid, 0].map(u32::to_be_bytes).concat();
        let bytes = flat(&call);
        let args = &bytes[args..];
        let inner = Payload::new(Buffer::from([&head, args].concat()), 0);
        let id = { args.first_chunk() }.map_or(0, |id| u64::from_be_bytes(*id));
        let made = { self.callbacks.as_ref() }
            .and_then(|callbacks| callbacks.triggered(&self.echo, (xid, id), caller));
        let answer = match Shared(Arc::clone(&self.echo)).call(inner, caller) {
            Answer::Now(reply) => Answer::Now(success(xid, reply)),
            Answer::Later(reply) => {
                Answer::Later(Box::pin(async move { success(xid, reply.await) }))
            }
            Answer::Blocking(_) | Answer::Deferred(_) => Answer::Now(Reply::Nothing),
        };
        match (made, &self.callbacks) {
            (Some(made), Some(callbacks)) => callbacks.go(made, answer),
            _ => answer,
        }
    }
}

/// An accepted reply with these results.
fn accepted(xid: u32, results: &[u8]) -> Reply {
    let head = [xid, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    Reply::Message(Payload::new(Buffer::from([&head, results].concat()), 0))
}

/// The reply of the echo as an accepted reply.
fn success(xid: u32, reply: Reply) -> Reply {
    match reply {
        Reply::Message(echo) => accepted(xid, &flat(&echo)[HEAD..]),
        other => other,
    }
}
