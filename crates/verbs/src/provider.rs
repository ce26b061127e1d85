//! The traits that a provider implements.

use crate::{
    CloseReason, Completion, Handle, Limits, Memory, RemoteAddress, SharedReceiveQueue,
    WorkRequest, WrId,
};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A boxed future that may move between threads until it is first polled on its own.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One end of a connection. It has exactly one owner, who calls all of this from one task.
pub trait QueuePair: Send {
    /// What this connection can do.
    fn limits(&self) -> &Limits;

    /// Queues work. Nothing moves before [`progress`](Self::progress).
    ///
    /// # Errors
    ///
    /// The work that was not taken, back, with the reason. On a closed connection work is taken
    /// and completes as [`Flushed`](crate::WorkError::Flushed).
    fn post(&mut self, work: WorkRequest) -> Result<(), PostError>;

    /// Lets the peer reach `memory`, from the moment that work posted after this is carried out.
    ///
    /// The result is the handle, and the address by which the peer reaches the first byte of the
    /// memory: hardware uses virtual addresses, software what it likes. The handle is known at
    /// once, cannot be guessed from others, is never 0, and works on this connection only.
    /// Registering has no completion of its own. The memory comes back by invalidation, ours or
    /// the peer's; what is still registered when the queue pair is dropped is dropped with it.
    ///
    /// # Errors
    ///
    /// The memory that was not taken, back, with the reason.
    fn register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError>;

    /// Copies bytes into [persistent memory](Memory::Persistent) of ours, `offset` bytes from its
    /// beginning. A Read of the peer that is being served meanwhile may see them or not.
    ///
    /// # Errors
    ///
    /// If there is no such memory behind the handle, or not so much of it.
    fn copy_in(&mut self, handle: Handle, offset: usize, bytes: &[u8])
    -> Result<(), NotPersistent>;

    /// Copies bytes out of it.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    fn copy_out(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NotPersistent>;

    /// The next completion, if there is one.
    fn poll_cq(&mut self) -> Option<Completion>;

    /// Moves what can move without waiting: sends what was posted, takes in what has arrived.
    ///
    /// Returns whether anything moved. It does a bounded amount of work per call, counted in bytes
    /// and in segments, however small, so that an owner with several connections can be fair to
    /// them. What is left makes [`poll_ready`](Self::poll_ready) ready.
    fn progress(&mut self) -> bool;

    /// Waits until [`progress`](Self::progress) could move something, or the connection is over.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Why the connection is over, once it is. All work has ended then: each completion that is
    /// owed is waiting to be taken.
    fn closed(&self) -> Option<&CloseReason>;

    /// Ends the connection in good order: what is posted is still sent, nothing more is taken in.
    ///
    /// Outstanding Receives complete as flushed. The owner goes on with
    /// [`progress`](Self::progress) until [`closed`](Self::closed) says it is over; the provider
    /// bounds how long that takes.
    fn close(&mut self);

    /// The other end.
    fn peer_addr(&self) -> SocketAddr;

    /// What it cost so far.
    fn io_counters(&self) -> IoCounters {
        IoCounters::default()
    }

    /// What was agreed in setting up the connection, in words, for the operator.
    fn describe(&self) -> String;
}

/// What a queue pair has asked of the system and of memory since it was made.
///
/// A provider without system calls or copies leaves them at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// System calls that took bytes in; those that found nothing are not counted.
    pub reads: u64,
    /// System calls that sent bytes.
    pub writes: u64,
    /// Bytes taken in, framing included.
    pub bytes_in: u64,
    /// Bytes sent, framing included.
    pub bytes_out: u64,
    /// Bytes of payload that were copied between memory and memory, either way.
    pub bytes_copied: u64,
    /// Messages of the peer that had to wait for a block of the shared receive queue.
    pub held_back: u64,
}

impl std::ops::AddAssign for IoCounters {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.bytes_copied += other.bytes_copied;
        self.held_back += other.held_back;
    }
}

impl std::ops::SubAssign for IoCounters {
    fn sub_assign(&mut self, other: Self) {
        self.reads -= other.reads;
        self.writes -= other.writes;
        self.bytes_in -= other.bytes_in;
        self.bytes_out -= other.bytes_out;
        self.bytes_copied -= other.bytes_copied;
        self.held_back -= other.held_back;
    }
}

/// How a queue pair is to be set up.
#[derive(Clone, Debug)]
pub struct QpOptions {
    /// Receives that may be posted at a time, or blocks of the shared receive queue that messages
    /// of this peer may hold at a time.
    pub receives: usize,
    /// Bytes of the largest Receive that will be posted.
    pub receive_size: usize,
    /// Where messages find their memory, instead of in posted Receives. Only a provider whose
    /// [`Limits::shared_receives`] says so takes it; others do not make the connection.
    pub shared_receives: Option<SharedReceiveQueue>,
    /// Reads of the peer to serve at a time (IRD).
    pub inbound_reads: usize,
    /// Reads of our own to have outstanding (ORD); the peer may lower it.
    pub outstanding_reads: usize,
    /// How long connection setup may take.
    pub setup_timeout: Duration,
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

/// Makes connections.
pub trait Provider: Send + Sync {
    /// What connections of this provider can do at most.
    fn limits(&self) -> Limits;

    /// Connects to a listener, with our private data.
    fn connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>>;

    /// Listens for connections.
    fn listen<'a>(&'a self, on: SocketAddr)
    -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>>;
}

/// A connection just made by [`Provider::connect`].
pub struct Connected {
    /// Our end.
    pub qp: Box<dyn QueuePair>,
    /// The peer's private data, as received.
    pub private_data: Vec<u8>,
}

/// Takes in connections.
pub trait Listener: Send {
    /// Where it listens.
    fn local_addr(&self) -> SocketAddr;

    /// The next connection that has not said anything yet. It does not wait for the peer to
    /// speak, so a peer that is silent holds up nobody.
    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>>;
}

/// A connection that is being set up by a peer. Dropping it refuses it.
pub trait Incoming: Send {
    /// Who it is.
    fn peer_addr(&self) -> SocketAddr;

    /// Waits, with an end, for the peer's request and gives its private data.
    fn request<'a>(&'a mut self, timeout: Duration) -> BoxFuture<'a, Result<Vec<u8>, SetupError>>;

    /// Accepts, with Receives that are posted before the peer can send (RFC 8166 §3.3.2).
    ///
    /// Called on the thread that will own the queue pair.
    fn accept<'a>(
        self: Box<Self>,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Box<dyn QueuePair>, SetupError>>
    where
        Self: 'a;

    /// Refuses, with a reason that the peer's user sees.
    fn reject<'a>(self: Box<Self>, private_data: &'a [u8]) -> BoxFuture<'a, ()>
    where
        Self: 'a;
}

/// Work that was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// As much as [`Limits`] allows is posted already.
    #[error("the queue is full")]
    Full(WorkRequest),
    /// It can never be done on this connection: too long, or an operation the provider has not got.
    #[error("not possible on this connection")]
    Invalid(WorkRequest),
}

impl PostError {
    /// The work that was not taken.
    pub fn into_work(self) -> WorkRequest {
        match self {
            Self::Full(work) | Self::Invalid(work) => work,
        }
    }

    /// The poster's name for it.
    pub fn wr(&self) -> WrId {
        match self {
            Self::Full(work) | Self::Invalid(work) => work.wr(),
        }
    }
}

/// Memory that was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// As many regions as [`Limits`] allows are registered already.
    #[error("too many regions are registered")]
    Full(Memory),
    /// The region is larger than [`Limits`] allows, or empty.
    #[error("a region of this size cannot be registered")]
    Size(Memory),
    /// The connection is over.
    #[error("the connection is over")]
    Closed(Memory),
}

/// There is no [persistent memory](Memory::Persistent) behind a handle, or not so much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no persistent memory of this size")]
pub struct NotPersistent(pub Handle);

/// Why a connection was not made. The text says what to do where there is something to do.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The system refused: nobody listens, no route, port in use.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The peer said no, with this private data.
    #[error("the peer refused the connection")]
    Rejected(Vec<u8>),
    /// The peer speaks something else.
    #[error("{0}")]
    NotOurProtocol(String),
    /// Nothing came in time.
    #[error("{0} did not come within {1:?}")]
    TimedOut(&'static str, Duration),
}
