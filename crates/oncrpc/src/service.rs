//! What answers RPC calls.

use crate::xdr::Payload;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Answers RPC calls, whatever transport they came over.
///
/// One service is shared by all connections and all threads of a server.
pub trait Service: Send + Sync {
    /// Answers one call message, from its XID on.
    ///
    /// It runs on the task that owns the connection: it must not wait. What has to wait is
    /// returned as [`Answer::Blocking`] or [`Answer::Later`].
    fn call(&self, call: Payload, caller: &Caller) -> Answer;
}

/// Who calls.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Address of the other end. Ports are no identity: they change at each reconnect.
    pub addr: SocketAddr,
    /// The connection over which the call came.
    pub connection: ConnectionId,
}

/// One connection that was taken in. No two of a process are the same, also one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(u64);

impl Caller {
    /// Who calls from there, on a connection that is new.
    pub fn new(addr: SocketAddr) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            addr,
            connection: ConnectionId(NEXT.fetch_add(1, Relaxed)),
        }
    }
}

/// How a call is answered.
pub enum Answer {
    /// Here it is.
    Now(Reply),
    /// By work that may block, such as a slow disk: the transport runs it on a thread of its own
    /// and goes on with other calls.
    Blocking(Box<dyn FnOnce() -> Reply + Send>),
    /// By a future, driven beside other calls.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// What goes back to the caller.
#[derive(Debug)]
pub enum Reply {
    /// A reply message, from its XID on. Its items are the results eligible for placement.
    Message(Payload),
    /// Nothing: it was no call, or one that is being answered already.
    Nothing,
    /// The call had by-reference items where none is eligible, and was not executed (RFC 8166
    /// §6.1). The transport knows how to say so.
    Ineligible,
}

impl Answer {
    /// A reply message that is there at once.
    pub fn message(payload: Payload) -> Self {
        Self::Now(Reply::Message(payload))
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::Now(reply)
    }
}
