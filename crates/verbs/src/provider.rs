//! The traits that a provider implements.

use crate::{
    CloseReason, Completion, Handle, IoCounters, Limits, Memory, ProtocolMismatch, Reason,
    RejectReason, RemoteAddress, SharedReceiveQueue, WorkRequest, WrId,
};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A boxed future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One end of a connection (queue pair). It has exactly one owner, which uses it from one task.
pub trait QueuePair: Send {
    /// Returns the limits of this connection.
    fn limits(&self) -> &Limits;

    /// Posts a work request. Nothing is sent before [`progress`](Self::progress).
    ///
    /// # Errors
    ///
    /// Returns the refused work with the reason. On a closed connection work is accepted
    /// and completes as [`Flushed`](crate::WorkError::Flushed).
    fn post(&mut self, work: WorkRequest) -> Result<(), PostError>;

    /// Registers `memory` for access by the peer, from the time that work posted after this is
    /// executed.
    ///
    /// Returns the handle, and the address at which the peer accesses the first byte: hardware uses
    /// virtual addresses, software any number. The handle is known at once, cannot be guessed from
    /// others, is never 0, and is valid on this connection only. Registration has no completion.
    ///
    /// Announce the handle by a Send on this queue pair, posted behind the registration. A device
    /// opens the memory by work of its own (binding a memory window), which it may execute some time
    /// after `progress` has handed it over. Only the order of work guarantees that the memory is open
    /// when the peer uses the handle: a peer that learns the handle by another way may be refused.
    ///
    /// The memory comes back by invalidation, by this end or the peer; what is still registered
    /// when the queue pair is dropped is dropped with it.
    ///
    /// # Errors
    ///
    /// Returns the refused memory with the reason.
    fn register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError>;

    /// Copies bytes into [persistent memory](Memory::Persistent) of this end, `offset` bytes from
    /// its beginning. A Read of the peer in progress may see them or not.
    ///
    /// # Errors
    ///
    /// If the handle does not name persistent memory, or the range is outside of it.
    fn copy_in(&mut self, handle: Handle, offset: usize, bytes: &[u8])
    -> Result<(), NotPersistent>;

    /// Copies bytes out of [persistent memory](Memory::Persistent) of this end.
    ///
    /// # Errors
    ///
    /// Those of [`copy_in`](Self::copy_in).
    fn copy_out(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NotPersistent>;

    /// Returns the next completion, if there is one.
    fn poll_cq(&mut self) -> Option<Completion>;

    /// Sends posted work and receives what has arrived, as far as possible without blocking.
    ///
    /// Returns whether there was progress. Does a bounded amount of work per call, in bytes and in
    /// segments, however small, so that an owner of several connections can be fair to them. If
    /// work is left, [`poll_ready`](Self::poll_ready) is ready.
    fn progress(&mut self) -> bool;

    /// Waits until [`progress`](Self::progress) has work, or the connection has ended.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Returns the close reason, or `None` while the connection is open. After the end, all
    /// outstanding completions are available.
    fn closed(&self) -> Option<&CloseReason>;

    /// Closes the connection in an orderly way: posted work is still sent, and nothing more is
    /// received.
    ///
    /// Outstanding Receives complete as flushed. The owner keeps calling
    /// [`progress`](Self::progress) until [`closed`](Self::closed) returns a reason; the provider
    /// bounds that time.
    fn close(&mut self);

    /// Returns the address of the peer.
    fn peer_addr(&self) -> SocketAddr;

    /// Returns the I/O statistics of this connection.
    fn io_counters(&self) -> IoCounters {
        IoCounters::default()
    }

    /// Returns the number of bytes of completed Sends and Writes that the peer may not have
    /// received: 0 if work completes when the peer has received it, and all if the provider cannot tell,
    /// which is the default.
    fn unacknowledged(&self) -> usize {
        usize::MAX
    }

    /// Describes the negotiated parameters for people.
    fn describe(&self) -> String;

    /// Returns the name of the RDMA device that the connection uses. `None` over software.
    fn device(&self) -> Option<&str> {
        None
    }
}

/// Options for a new queue pair.
///
/// Start with the [default](Self::default) and change fields by their methods:
///
/// ```
/// use verbs::QpOptions;
///
/// let options = QpOptions::default().with_receives(64).with_receive_size(8192);
/// assert_eq!(options.inbound_reads, 32);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QpOptions {
    /// Receives that may be posted at a time, or blocks of the shared receive queue that messages
    /// of this peer may hold at a time.
    pub receives: usize,
    /// Bytes of the largest Receive that will be posted.
    pub receive_size: usize,
    /// Shared receive queue to use instead of posted Receives. Only a provider whose
    /// [`Limits::shared_receives`] is true supports it; others refuse to connect.
    pub shared_receives: Option<SharedReceiveQueue>,
    /// Read requests of the peer to serve at a time (IRD).
    pub inbound_reads: usize,
    /// Read requests to have outstanding (ORD); the peer may lower it.
    pub outstanding_reads: usize,
    /// How long connection setup may take.
    pub setup_timeout: Duration,
}

impl QpOptions {
    buffer::setters! {
        with_receives(receives: usize),
        with_receive_size(receive_size: usize),
        with_shared_receives(shared_receives: impl Into<Option<SharedReceiveQueue>>),
        with_inbound_reads(inbound_reads: usize),
        with_outstanding_reads(outstanding_reads: usize),
        with_setup_timeout(setup_timeout: Duration),
    }
}

impl Default for QpOptions {
    fn default() -> Self {
        Self {
            receives: 160,
            receive_size: 4096,
            shared_receives: None,
            inbound_reads: 32,
            outstanding_reads: 32,
            setup_timeout: Duration::from_secs(10),
        }
    }
}

/// A provider: it connects and listens.
pub trait Provider: Send + Sync {
    /// Returns upper bounds for the limits of connections.
    fn limits(&self) -> Limits;

    /// Connects to a listener, with private data.
    fn connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>>;

    /// Listens for connections on an address.
    fn listen<'a>(&'a self, on: SocketAddr)
    -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>>;
}

/// The result of [`Provider::connect`].
pub struct Connected {
    /// This end of the connection.
    pub qp: Box<dyn QueuePair>,
    /// The peer's private data, as received.
    pub private_data: Vec<u8>,
}

/// Accepts connections.
pub trait Listener: Send {
    /// Returns the address on which it listens.
    fn local_addr(&self) -> SocketAddr;

    /// Accepts the next connection before its request is read. Does not wait for the peer to send,
    /// so a silent peer delays no other.
    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>>;
}

/// An incoming connection that is not accepted yet. Dropping it refuses it.
pub trait Incoming: Send {
    /// Returns the address of the peer.
    fn peer_addr(&self) -> SocketAddr;

    /// Returns the socket of the connection, if it is one of the system's TCP. By it a local process
    /// at the other end can be identified. `None` for other connections.
    fn socket(&self) -> Option<BorrowedFd<'_>>;

    /// Returns upper bounds for the limits of this connection, once its [request](Self::request) was
    /// read, if they differ from [those of the provider](Provider::limits): they are those of the
    /// device that it arrived at.
    fn limits(&self) -> Option<Limits> {
        None
    }

    /// Waits for the peer's request, up to `timeout`, and returns its private data.
    fn request<'a>(&'a mut self, timeout: Duration) -> BoxFuture<'a, Result<Vec<u8>, SetupError>>;

    /// Accepts the connection, with initial Receives, which are posted before the peer can send
    /// (RFC 8166 §3.3.2).
    ///
    /// What this end posts may be sent only when the first message of the peer has arrived, so the peer should speak first:
    /// an iWARP end that accepted sends nothing before, not even a Read Request (RFC 5044 §7.1.2 rule 4).
    ///
    /// Must be called on the thread that will own the queue pair.
    fn accept<'a>(
        self: Box<Self>,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Box<dyn QueuePair>, SetupError>>
    where
        Self: 'a;

    /// Rejects the connection, with private data for the peer's application.
    fn reject<'a>(self: Box<Self>, private_data: &'a [u8]) -> BoxFuture<'a, ()>
    where
        Self: 'a;
}

/// Why a work request was refused; it contains the work.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The queue is full: as much as [`Limits`] allows is posted.
    #[error("the queue is full")]
    Full(WorkRequest),
    /// The work is invalid on this connection: too long, or an unsupported operation.
    #[error("not supported on this connection")]
    Invalid(WorkRequest),
}

impl PostError {
    /// Returns the refused work.
    pub fn into_work(self) -> WorkRequest {
        match self {
            Self::Full(work) | Self::Invalid(work) => work,
        }
    }

    /// Identifier of the refused work.
    pub fn wr(&self) -> WrId {
        match self {
            Self::Full(work) | Self::Invalid(work) => work.wr(),
        }
    }
}

/// Why memory was not registered; it contains the memory.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The table is full: as many regions as [`Limits`] allows are registered.
    #[error("too many regions are registered")]
    Full(Memory),
    /// The region or a part of it is larger than [`Limits`] allows, or empty, or it has too many parts.
    #[error("a region of this size cannot be registered")]
    Size(Memory),
    /// The connection has ended.
    #[error("the connection has ended")]
    Closed(Memory),
}

/// A handle does not name [persistent memory](Memory::Persistent), or the range is outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not persistent memory of this size")]
pub struct NotPersistent(pub Handle);

/// Why a connection could not be established.
///
/// The [source](Error::source) is the [detail](Reason::detail) of the reason, if the provider gave one,
/// or the error of the system.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// An error of the system: no route, port in use. Where nobody listens its kind is
    /// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused), on every transport. Its message and
    /// source are those of the inner error.
    Io(io::Error),
    /// No RDMA device of this machine reaches the address, or it was removed during setup.
    NoDevice(io::Error),
    /// The peer's application rejected the connection, with this private data.
    Rejected(Vec<u8>),
    /// The peer's connection manager rejected the connection before its application saw the request.
    Refused(Reason<RejectReason>),
    /// The peer does not follow the protocol of connection setup.
    NotOurProtocol(Reason<ProtocolMismatch>),
    /// Setup timed out while waiting for the named event.
    TimedOut(&'static str, Duration),
}

impl From<io::Error> for SetupError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NoDevice(_) => f.write_str("no RDMA device reaches this address"),
            Self::Rejected(_) => f.write_str("the peer refused the connection"),
            Self::Refused(reason) => write!(
                f,
                "the peer's connection manager refused the connection: {reason}"
            ),
            Self::NotOurProtocol(reason) => reason.fmt(f),
            Self::TimedOut(what, limit) => write!(f, "{what} did not come within {limit:?}"),
        }
    }
}

impl Error for SetupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => error.source(),
            Self::NoDevice(error) => Some(error),
            Self::Refused(reason) => reason.detail(),
            Self::NotOurProtocol(reason) => reason.detail(),
            Self::Rejected(_) | Self::TimedOut(..) => None,
        }
    }
}
