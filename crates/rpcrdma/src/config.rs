//! What a client and a server can be told.

use buffer::Pool;
use rpcrdma_proto::InlineSize;
use std::time::Duration;

/// What the owner of a connection does while there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// It waits for the system to wake it: least CPU, several times the latency.
    Park,
    /// It looks again for 50 µs before it waits, while the machine has more than one CPU and no
    /// other connection is active: on a server of the same worker, on a client of the process.
    #[default]
    Adaptive,
    /// It never waits while no other connection is active: for measurements.
    Always,
}

/// How a [`Client`](crate::Client) behaves.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Credits asked for, which is also how many replies can be awaited at a time; at least 1.
    pub credits: u32,
    /// The largest message to send in one Send.
    pub send_size: InlineSize,
    /// The largest message to receive in one Receive. By default twice what Linux has, so that a
    /// READ of 4 KiB from a server that knows of it comes in one Send.
    pub receive_size: InlineSize,
    /// Octets of the largest chunk, and so of the largest message.
    pub max_chunk: usize,
    /// Octets of the largest segment of a chunk that is offered; 0 for chunks of one segment.
    pub max_segment: usize,
    /// Whether the server may invalidate our handles with its replies (R, RFC 8797 §4.1).
    pub remote_invalidation: bool,
    /// How long a call may take, reconnects included, before it fails; up to two seconds more, as
    /// that is looked at now and then. A connection on which a call got no reply for as long is
    /// closed, though the call may have been cancelled.
    pub call_timeout: Duration,
    /// How long making a connection may take.
    pub setup_timeout: Duration,
    /// How long to wait before the next try after a failed one, or a connection that was lost before
    /// it brought a reply; doubled each time.
    pub reconnect_first: Duration,
    /// The longest wait between two tries.
    pub reconnect_most: Duration,
    /// Whether a lost connection is made again at all.
    pub reconnect: bool,
    /// Octets for the peer's user, sent behind our own private data.
    pub private_data: Vec<u8>,
    /// What to do while there is nothing to do.
    pub spin: Spin,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            credits: 128,
            send_size: InlineSize::DEFAULT,
            receive_size: InlineSize::at_most(2 * InlineSize::DEFAULT.octets()),
            max_chunk: 4 << 20,
            max_segment: 0,
            remote_invalidation: true,
            call_timeout: Duration::from_secs(60),
            setup_timeout: Duration::from_secs(10),
            reconnect_first: Duration::from_millis(100),
            reconnect_most: Duration::from_secs(10),
            reconnect: true,
            private_data: Vec::new(),
            spin: Spin::default(),
        }
    }
}

/// How a [`Server`](crate::Server) behaves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Most credits granted to a client, each good for one call at a time; at least 1.
    pub credits: u32,
    /// The largest message to send in one Send, to a client that takes as much.
    pub send_size: InlineSize,
    /// The largest message to receive in one Receive. Each client has as many as it has credits.
    pub receive_size: InlineSize,
    /// Octets that are pulled for one call at most, and of the largest chunk that is written.
    pub max_chunk: usize,
    /// Whether we say that remote invalidation is understood (R, RFC 8797 §4.1): a reply takes a
    /// handle of the client's along only if both ends have said so.
    pub remote_invalidation: bool,
    /// Connections at a time; one more is refused.
    pub max_connections: usize,
    /// Threads that serve connections, each with a runtime of its own; none: the runtime on which
    /// the server is bound serves them.
    pub workers: usize,
    /// How long a client may take to say what it wants before it is dropped.
    pub setup_timeout: Duration,
    /// How long a client may take to hand over a chunk of a call before its connection is closed.
    /// The memory for it is there meanwhile, and missing to others.
    pub pull_timeout: Duration,
    /// How long a connection may be without a call before it is closed; none: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long calls may take to finish after [`shutdown`](crate::Server::shutdown) was asked for.
    pub drain_timeout: Duration,
    /// Octets that chunks of calls and replies may occupy at a time, on all connections together.
    /// A call that needs more waits; calls of one connection have a quarter of it, or one of them more.
    pub chunk_memory: usize,
    /// Where buffers come from; none: each worker keeps some of its own.
    pub pool: Option<Pool>,
    /// Octets for the peer's user, sent behind our own private data.
    pub private_data: Vec<u8>,
    /// What to do while there is nothing to do.
    pub spin: Spin,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            credits: 128,
            send_size: InlineSize::at_most(2 * InlineSize::DEFAULT.octets()),
            receive_size: InlineSize::DEFAULT,
            max_chunk: 4 << 20,
            remote_invalidation: true,
            max_connections: 1024,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            setup_timeout: Duration::from_secs(10),
            pull_timeout: Duration::from_secs(30),
            idle_timeout: Some(Duration::from_secs(360)),
            drain_timeout: Duration::from_secs(10),
            chunk_memory: 64 << 20,
            pool: None,
            private_data: Vec::new(),
            spin: Spin::default(),
        }
    }
}
