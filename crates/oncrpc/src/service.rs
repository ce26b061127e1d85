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
    /// Answers one call message, which begins with its XID.
    ///
    /// Runs on the task that owns the connection, so it must not wait. Work that waits is returned
    /// as [`Answer::Blocking`], [`Answer::Deferred`] or [`Answer::Later`].
    fn call(&self, call: Payload, caller: &Caller) -> Answer;

    /// Returns an upper bound for the reply to a call, so that a transport leases no more memory
    /// than the reply can need; `None` if unknown.
    ///
    /// It must have no side effects, and the call may be invalid.
    fn reply_bound(&self, call: ReceivedCall<'_>) -> Option<ReplyBound> {
        let _ = call;
        None
    }

    /// Whether the message of a call can [keep](Payload::with_lease) the memory of its chunks: the service drops
    /// the message, or the lease that it has [taken](Payload::take_lease) out of it, when it needs the chunks no more.
    /// Otherwise the call has that memory until it is answered.
    fn keeps_calls(&self) -> bool {
        false
    }

    /// Reports that a client has closed its connection in order, when no call was in service and the
    /// client had received every reply: it will repeat none of its calls.
    ///
    /// A server that knows this calls it right before
    /// [`connection_ended`](Self::connection_ended). A relay may have received the replies, and its
    /// client not.
    fn closed_in_order(&self, caller: &Caller) {
        let _ = caller;
    }

    /// Reports that a connection has ended, for whatever reason: no further call of it arrives, and
    /// replies to its calls go nowhere.
    ///
    /// A server calls it once for each connection that it has admitted, including one without a
    /// call, and after the last call of [`call`](Self::call) for that connection; a client does so for the service that
    /// answers calls of its server. Runs on the task
    /// that owned the connection, so it must not wait. A service that wants to end a connection
    /// itself uses [`Connections`](crate::Connections).
    fn connection_ended(&self, connection: ConnectionId) {
        let _ = connection;
    }
}

/// The received part of a call message, before its by-reference items are there.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceivedCall<'a> {
    /// The message from its XID, without its by-reference items. The end may be missing.
    pub bytes: &'a [u8],
    /// Of each by-reference item, its place in `bytes` and its length, with or without padding; in
    /// ascending order. They are the client's claims: a place may be beyond the end of `bytes`.
    pub items: &'a [(usize, usize)],
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
    /// Largest number of calls that the client may have in flight on the connection: the credits
    /// that the transport grants (RFC 8166 §3.3.1), or [`DEFAULT_CREDITS`](Self::DEFAULT_CREDITS)
    /// over a transport without credits.
    pub credits: u32,
    /// The user that owns the client's socket, if the client is on this machine and
    /// [was identified](crate::LocalUsers).
    pub local_uid: Option<u32>,
    /// The peer group with which the client shares limits.
    pub group: PeerGroup,
}

/// Identifier of an accepted connection, never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// Returns the number of the connection, for tables that know nothing of transports.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the identifier with this number. Whether there is such a connection, or ever was, it does not say.
    pub fn of_number(number: u64) -> Self {
        Self(number)
    }
}

impl Caller {
    /// Number of calls in flight assumed for a transport without credits.
    pub const DEFAULT_CREDITS: u32 = 512;

    /// Creates a caller with a new connection identifier, unlimited reply size and
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

    /// Sets the origin of the caller.
    #[must_use]
    pub fn from(self, origin: Origin) -> Self {
        Self {
            local_uid: origin.uid(),
            group: origin.group(self.addr.ip()),
            ..self
        }
    }

    /// Returns the verified uid of the caller: `Some` if the caller is on this machine and is
    /// neither root nor the kernel, which may act for other users.
    pub fn known_uid(&self) -> Option<u32> {
        self.local_uid.filter(|&uid| uid != 0)
    }

    /// Checks whether the caller may use this credential for a procedure. An identified caller may
    /// use only its own uid; AUTH_NONE is refused too, because the files of nobody are not its own.
    /// NULL takes any credential (RFC 5531 §8).
    ///
    /// # Errors
    ///
    /// The authentication error with which to deny the call.
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
    /// Work that may block, such as on a slow disk: the transport runs it on another thread and
    /// goes on with other calls.
    Blocking(Box<dyn FnOnce() -> Reply + Send>),
    /// Like [`Blocking`](Self::Blocking), but the work may pass its reply on later, from any
    /// thread. Calls that wait for the same event, such as one sync of a disk, then hold no thread
    /// each.
    Deferred(Box<dyn FnOnce(Respond) + Send>),
    /// A future that the transport polls alongside other calls.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// Receiver of the reply of [deferred](Answer::Deferred) work. Dropped without a reply, it reports
/// that there is none, as after a panic.
pub struct Respond(Option<Box<dyn FnOnce(Option<Reply>) + Send>>);

impl Respond {
    /// Calls `then` with the reply, or with `None` if there is none.
    pub fn new(then: impl FnOnce(Option<Reply>) + Send + 'static) -> Self {
        Self(Some(Box::new(then)))
    }

    /// Runs work on this thread and waits for its reply; `None` if there is none.
    pub fn wait(work: impl FnOnce(Self)) -> Option<Reply> {
        let (done, reply) = std::sync::mpsc::channel();
        work(Self::new(move |reply| drop(done.send(reply))));
        reply.recv().ok().flatten()
    }

    /// Passes the reply on.
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
    /// The call was not executed because it has by-reference items where none is eligible (RFC 8166
    /// §6.1). The transport reports this in its own way.
    Ineligible,
    /// A reply of this size fits neither inline nor in the chunks that the call offers (RFC 8166
    /// §4.5.3). The transport reports this in its own way, if it can with what is missing.
    TooLarge(Box<ReplyBound>),
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
