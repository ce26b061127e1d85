//! The trait for services that answer RPC calls.

use crate::auth::{AuthStat, Credential};
use crate::xdr::Payload;
use crate::{Origin, PeerGroup, ReplyBound, ReplyRoom};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A service that answers RPC calls of any transport.
///
/// One service is shared by all connections and all threads of a server.
pub trait Service: Send + Sync {
    /// Answers one call message, from its XID on.
    ///
    /// It runs on the task that owns the connection: it must not wait. What has to wait is
    /// returned as [`Answer::Blocking`], [`Answer::Deferred`] or [`Answer::Later`].
    fn call(&self, call: Payload, caller: &Caller) -> Answer;

    /// The largest reply that a call can draw, so that a transport takes no more memory for the reply
    /// than it can need; `None` if that is not known.
    ///
    /// `call` is what is here of the call message, from its XID on: by-reference items may be missing,
    /// and so may its end. Nothing is done for the call, and it need not be valid.
    fn reply_bound(&self, call: &[u8]) -> Option<ReplyBound> {
        let _ = call;
        None
    }
}

/// The client that made a call.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Address of the other end. Ports are no identity: they change at each reconnect.
    pub addr: SocketAddr,
    /// The connection on which the call arrived.
    pub connection: ConnectionId,
    /// Capacity for the reply to the call.
    pub reply_room: ReplyRoom,
    /// The most calls that the client may have in flight on the connection: the credits that the
    /// transport grants (RFC 8166 §3.3.1), or what stands for them where it has none.
    pub credits: u32,
    /// The user that owns the client's socket, if the client is on this machine and
    /// [was identified](crate::LocalUsers).
    pub local_uid: Option<u32>,
    /// The clients that it shares limits with.
    pub group: PeerGroup,
}

/// Identifier of an accepted connection, never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

impl Caller {
    /// Credits that stand for those of a transport without any.
    pub const DEFAULT_CREDITS: u32 = 512;

    /// A caller with a new connection identifier, whose replies may have any size, with
    /// [`DEFAULT_CREDITS`](Self::DEFAULT_CREDITS).
    pub fn new(addr: SocketAddr) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            addr,
            connection: ConnectionId(NEXT.fetch_add(1, Relaxed)),
            reply_room: ReplyRoom::UNLIMITED,
            credits: Self::DEFAULT_CREDITS,
            local_uid: None,
            group: PeerGroup::of(addr.ip()),
        }
    }

    /// The same caller, once it is known where it is.
    #[must_use]
    pub fn from(self, origin: Origin) -> Self {
        Self {
            local_uid: origin.uid(),
            group: origin.group(self.addr.ip()),
            ..self
        }
    }

    /// The uid that the caller has for sure: it is on this machine, and neither root nor the kernel,
    /// which may speak for others.
    pub fn known_uid(&self) -> Option<u32> {
        self.local_uid.filter(|&uid| uid != 0)
    }

    /// Whether the caller may show this credential to a procedure: one that was identified speaks for
    /// nobody else, and not as nobody either, whose files are not its own. NULL takes any (RFC 5531 §8).
    ///
    /// # Errors
    ///
    /// What the call is denied with.
    pub fn may_claim(&self, credential: &Credential, procedure: u32) -> Result<(), AuthStat> {
        match (self.known_uid(), credential) {
            (Some(uid), Credential::Sys(sys)) if sys.uid != uid => Err(AuthStat::BadCred),
            (Some(_), Credential::None) if procedure != 0 => Err(AuthStat::TooWeak),
            (_, Credential::None | Credential::Sys(_) | Credential::Other { .. }) => Ok(()),
        }
    }
}

/// When and where a call is executed.
pub enum Answer {
    /// The reply is available.
    Now(Reply),
    /// By work that may block, such as a slow disk: the transport runs it on a thread of its own
    /// and goes on with other calls.
    Blocking(Box<dyn FnOnce() -> Reply + Send>),
    /// As [`Blocking`](Self::Blocking), by work that hands its reply over when that is there, from whatever
    /// thread: calls that wait for the same thing, such as one sync of a disk, need not hold a thread each.
    Deferred(Box<dyn FnOnce(Respond) + Send>),
    /// A future, which the transport polls beside other calls.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// Where the reply of [deferred](Answer::Deferred) work goes. Dropped without one it says that there is
/// none, as after a panic.
pub struct Respond(Option<Box<dyn FnOnce(Option<Reply>) + Send>>);

impl Respond {
    /// Has `then` told of the reply, if one comes.
    pub fn new(then: impl FnOnce(Option<Reply>) + Send + 'static) -> Self {
        Self(Some(Box::new(then)))
    }

    /// Runs work on this thread and waits for its reply; nothing if it does not come.
    pub fn wait(work: impl FnOnce(Self)) -> Option<Reply> {
        let (done, reply) = std::sync::mpsc::channel();
        work(Self::new(move |reply| drop(done.send(reply))));
        reply.recv().ok().flatten()
    }

    /// Hands the reply over.
    pub fn with(mut self, reply: Reply) {
        if let Some(then) = self.0.take() {
            then(Some(reply));
        }
    }
}

impl Drop for Respond {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then(None);
        }
    }
}

/// The reply to a call.
#[derive(Debug)]
pub enum Reply {
    /// A reply message, from its XID on. Its items are the results eligible for placement.
    Message(Payload),
    /// No reply: the message was not a call, or the call is being answered already.
    Nothing,
    /// The call was not executed, as its chunks do not do for it: it had by-reference items where none
    /// is eligible (RFC 8166 §6.1), or its results fit neither inline nor the chunks that it offers
    /// (RFC 8166 §4.5.3). The transport knows how to say so.
    Ineligible,
}

impl Answer {
    /// A reply message that is available at once.
    pub fn message(payload: Payload) -> Self {
        Self::Now(Reply::Message(payload))
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::Now(reply)
    }
}
