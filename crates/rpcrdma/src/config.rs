//! What a client and a server can be told.

use crate::Backchannels;
use buffer::Pool;
use oncrpc::admission::ConnectionLimits;
use oncrpc::{LocalUsers, Service};
use rpcrdma_proto::{Design, InlineThreshold, PersistentArguments, Versions};
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;
use verbs::Limits;

/// Most connections of one client; Linux has the same limit.
pub const MAX_CONNECTIONS: usize = 16;

/// How long a server that did not speak version two is not asked again. It may be another by then.
pub const REMEMBER_VERSION_ONE: Duration = Duration::from_secs(600);

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

/// Whether to ask a peer that says nothing whether it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HealthChecks {
    /// If what is below does not notice by itself that a peer is dead, as InfiniBand does not. TCP
    /// does.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// How a peer is asked whether it is there, of which something is wanted and that has said nothing
/// for a while (RFC 8267 §6.7.2): with a call of the procedure NULL, for which a client keeps one
/// credit back where this is done. If there is no answer the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Whether it is done.
    pub checks: HealthChecks,
    /// After how long a silence.
    pub after: Duration,
    /// How long the answer may take.
    pub within: Duration,
    /// Program and version whose procedure NULL is called. That the peer has no such program is an
    /// answer too.
    pub program: (u32, u32),
}

impl HealthCheck {
    /// Whether it is done over a provider that can do this.
    pub(crate) fn is_done(&self, limits: &Limits) -> bool {
        match self.checks {
            HealthChecks::Auto => !limits.keepalive,
            HealthChecks::On => true,
            HealthChecks::Off => false,
        }
    }
}

impl Default for HealthCheck {
    /// NFS version 3 (RFC 1813), after 15 seconds, within 15 seconds.
    fn default() -> Self {
        Self {
            checks: HealthChecks::default(),
            after: Duration::from_secs(15),
            within: Duration::from_secs(15),
            program: (100_003, 3),
        }
    }
}

/// What answers the calls of a server to its client.
#[derive(Clone)]
pub struct CallbackService(pub Arc<dyn Service>);

impl Debug for CallbackService {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackService")
    }
}

/// How a [`Client`](crate::Client) behaves.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Connections over which calls are spread: 1 to [`MAX_CONNECTIONS`]. All that follows is for
    /// each of them.
    pub connections: usize,
    /// The versions of RPC-over-RDMA that are spoken. Version two has no RFC, so it is not spoken by
    /// default. With [`Versions::Auto`] it is offered first, for one round trip of each new
    /// connection; a server that turns it down, or does not answer, is spoken to in version one, and
    /// for [`REMEMBER_VERSION_ONE`] without asking.
    pub versions: Versions,
    /// How long a server may take to answer the offer of version two before the connection is given
    /// up.
    pub version_timeout: Duration,
    /// Credits asked for, which is also how many replies can be awaited at a time; at least 1.
    pub credits: u32,
    /// The largest message to send in one Send.
    pub send_size: InlineThreshold,
    /// The largest message to receive in one Receive. By default twice what Linux has, so that a
    /// READ of 4 KiB from a server that knows of it comes in one Send.
    pub receive_size: InlineThreshold,
    /// The largest Receive that a server may ask for where version two is spoken (xcharext §4.2). As
    /// many as there are credits may be posted.
    pub max_receive_size: InlineThreshold,
    /// Bytes of the largest chunk, and so of the largest message.
    pub max_chunk: usize,
    /// Bytes of the largest segment of a chunk that is offered; 0 for chunks of one segment.
    pub max_segment: usize,
    /// The designs (draft-cel-nfsv4-reminv-design-03 §4) by which the server may invalidate our handles
    /// with its replies, and we its own; none: nothing is invalidated.
    ///
    /// [`Design::PerConnection`], the only one by default, is R (RFC 8797 §4.1), and in version two
    /// XCHAR_REQREMINV (xcharext §3.2). With [`Design::PerVersion`] version two itself allows it: the
    /// server has to be told the same, and either end may say no by XCHAR_REQREMINV. The others are
    /// offered where version two is spoken, by an experimental characteristic; if the server takes one,
    /// that alone governs. For a client their order does not matter.
    ///
    /// Where the provider cannot have its memory invalidated, or some of ours
    /// [stays](Self::persistent_arguments), only those are agreed to in which each call says what may
    /// go, and with [`Design::PerVersion`] version two is not spoken.
    pub remote_invalidation: Vec<Design>,
    /// Memory of each connection that stays registered (reminv §2.2): arguments that are no larger are
    /// copied there. The server can read what was there last until it is used again, so it is none by
    /// default. This memory, regions × bytes on each connection, comes on top of
    /// [`chunk_memory`](Self::chunk_memory).
    pub persistent_arguments: Option<PersistentArguments>,
    /// Whether the first connection begins with a call that shows whether the provider does remote
    /// invalidation as it says: memory that nobody needs is offered, and looked at when the server
    /// has invalidated it. If it does not, or the test has no end, the client connects again without
    /// it. For hardware that is not known; a provider that turns out to do it wrong later on is not
    /// asked for it any more either way.
    pub test_remote_invalidation: bool,
    /// How long a call may take, reconnects included, before it fails; up to two seconds more, as
    /// that is looked at now and then. A connection on which a call got no reply for as long is
    /// closed, though the call may have been cancelled.
    pub call_timeout: Duration,
    /// How long a connection may go without its first reply, while one is owed and nothing moves on it,
    /// before it is given up and the call goes over another with the same XID. Doubled for each such
    /// connection in a row, up to [`call_timeout`](Self::call_timeout), so that a slow server is
    /// served in the end; a call's own time still holds, and such a loss is not held against it. It is
    /// looked at once a second or so. Without [`reconnect`](Self::reconnect) it is not done.
    pub first_reply_timeout: Duration,
    /// How long making a connection may take.
    pub setup_timeout: Duration,
    /// How long to wait before the next try after a failed one, or a connection that was lost before
    /// it brought a reply; doubled each time.
    pub reconnect_first: Duration,
    /// The longest wait between two tries.
    pub reconnect_most: Duration,
    /// Whether a lost connection is made again at all.
    pub reconnect: bool,
    /// How long a connection may be without a call before it is closed; the next call makes another.
    /// None: for ever, as with [`callbacks`](Self::callbacks), or without
    /// [`reconnect`](Self::reconnect). It is looked at once a second or so.
    pub idle_timeout: Option<Duration>,
    /// How to find out that the server is dead.
    pub health: HealthCheck,
    /// What answers calls of the server on our connections (RFC 8167). With it connections are made
    /// again, and kept, without calls of our own (RFC 8167 §5.4), but after the server has closed one
    /// on which neither end had called: then with the next call. Without it such calls are answered
    /// PROG_UNAVAIL. That we are ready for them is for the upper layer to tell the server (RFC 8167
    /// §6), on each connection; the example `callbacks` does it with NFSv4.1 and Linux' server.
    pub callbacks: Option<CallbackService>,
    /// Calls of the server that are taken in at a time, if something answers them; at least 1.
    pub backward_credits: u32,
    /// Bytes that chunks of calls of the server and of our replies may occupy at a time, on each
    /// connection. Where version two is spoken, calls with chunks are taken if something answers
    /// them.
    pub chunk_memory: usize,
    /// How long a server may take to hand over all chunks of a call before its connection is closed.
    pub pull_timeout: Duration,
    /// Bytes for the peer's user, sent behind our own private data.
    pub private_data: Vec<u8>,
    /// What to do while there is nothing to do.
    pub spin: Spin,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            connections: 1,
            versions: Versions::One,
            version_timeout: Duration::from_secs(5),
            credits: 128,
            send_size: InlineThreshold::DEFAULT,
            receive_size: InlineThreshold::at_most(2 * InlineThreshold::DEFAULT.bytes()),
            max_receive_size: InlineThreshold::at_most(8 * InlineThreshold::DEFAULT.bytes()),
            max_chunk: 4 << 20,
            max_segment: 0,
            remote_invalidation: vec![Design::PerConnection],
            persistent_arguments: None,
            test_remote_invalidation: false,
            call_timeout: Duration::from_secs(60),
            first_reply_timeout: Duration::from_secs(15),
            setup_timeout: Duration::from_secs(10),
            reconnect_first: Duration::from_millis(100),
            reconnect_most: Duration::from_secs(10),
            reconnect: true,
            idle_timeout: Some(Duration::from_secs(300)),
            health: HealthCheck::default(),
            callbacks: None,
            backward_credits: 16,
            chunk_memory: 16 << 20,
            pull_timeout: Duration::from_secs(30),
            private_data: Vec::new(),
            spin: Spin::default(),
        }
    }
}

/// How a [`Server`](crate::Server) behaves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The versions of RPC-over-RDMA that are spoken. With [`Versions::Auto`] each client has the one
    /// it begins with.
    pub versions: Versions,
    /// Most credits granted to a client, each good for one call at a time; at least 1.
    pub credits: u32,
    /// The largest message to send in one Send, to a client that takes as much.
    pub send_size: InlineThreshold,
    /// The largest message to send in one Send where version two is spoken. A client whose replies
    /// would fit that is asked for Receives as large, and for smaller ones again after a while without
    /// such replies (xcharext §4.2).
    pub max_send_size: InlineThreshold,
    /// The largest message to receive in one Receive. Each client has as many as it has credits.
    /// Where version two is spoken it becomes the size of what we send, as an end sends as much as it
    /// receives (xcharext §3.1).
    pub receive_size: InlineThreshold,
    /// Bytes that are pulled for one call at most, and of the largest chunk that is written.
    pub max_chunk: usize,
    /// The designs (draft-cel-nfsv4-reminv-design-03 §4) by which a reply takes a handle of the client's
    /// along; none: it never does.
    ///
    /// [`Design::PerConnection`], the only one by default, is R (RFC 8797 §4.1), which both ends have to
    /// say, and in version two XCHAR_REQREMINV (xcharext §3.2). With [`Design::PerVersion`] version two
    /// itself allows it: all clients have to be told the same, and a client that says no by
    /// XCHAR_REQREMINV keeps its handles. Of the others the first is taken that a client of version two
    /// offers, and that alone governs; if none of them is, the first two do.
    ///
    /// What [a client](ClientConfig::remote_invalidation) cannot keep to, a server cannot either.
    pub remote_invalidation: Vec<Design>,
    /// Finds the users of connections from this machine, which then speak for themselves only
    /// ([`Caller::local_uid`](oncrpc::Caller::local_uid)), and share limits whatever address of the machine
    /// they use; none: they are believed as other machines are, and so is each address of 127/8.
    /// A connection over a provider that [does not say](verbs::Incoming::local_addr) where it ends is
    /// none from this machine.
    pub local_users: Option<Arc<dyn LocalUsers>>,
    /// Connections at a time, those in setup included. One more takes the place of the
    /// [least useful](oncrpc::admission) of an address that has more, or is refused.
    pub max_connections: usize,
    /// Connections from one address at a time, in use or not. An IPv6 /64 counts as one address.
    pub max_connections_per_address: usize,
    /// Bytes that the Receives of all connections may occupy together.
    ///
    /// Over a provider with shared receive queues that [holds back](verbs::Limits::holds_peer_back) a
    /// peer, calls from one address hold a quarter of it. Over others each credit is backed: when less
    /// than an eighth of what is left would do for a new connection, it is granted fewer credits than
    /// [`credits`](Self::credits), and when not even one is left it is refused.
    pub receive_memory: usize,
    /// Threads that serve connections, each with a runtime of its own; none: the runtime on which
    /// the server is bound serves them.
    pub workers: usize,
    /// How long a client may take to say what it wants before it is dropped.
    pub setup_timeout: Duration,
    /// How long a client may take to hand over all chunks of a call, one call after the other, before
    /// its connection is closed. While calls of others wait for memory, it may take as long for all
    /// the calls that it has begun, so that none has memory of others for more than twice this time.
    pub pull_timeout: Duration,
    /// How long a connection may be without a call before it is closed; none: for ever. One whose
    /// client is ready for calls of ours stays.
    pub idle_timeout: Option<Duration>,
    /// How long calls may take to finish after [`shutdown`](crate::Server::shutdown) was asked for.
    pub drain_timeout: Duration,
    /// Where the connections on which clients can be called are to be found (RFC 8167); none: clients
    /// are not called.
    pub backchannels: Option<Backchannels>,
    /// Calls to one client that are in flight at a time, if it grants as many; at least 1.
    pub backward_credits: u32,
    /// How long a call to a client may take, and wait for its turn. A client that leaves calls
    /// unanswered for longer, until it has no credit left for others, loses its connection.
    pub backward_timeout: Duration,
    /// Bytes that results of calls to clients may take in chunks at a time, on all connections
    /// together. A call that needs more waits.
    pub backward_memory: usize,
    /// How to find out that a client is dead that is ready for calls.
    pub health: HealthCheck,
    /// Bytes that chunks of calls and replies may occupy at a time, on all connections together.
    /// A call that needs more waits; calls from one address have a quarter of it, or one of them more.
    /// A connection whose calls wait is granted fewer credits until none does.
    pub chunk_memory: usize,
    /// Where buffers come from; none: each worker keeps some of its own.
    pub pool: Option<Pool>,
    /// Bytes for the peer's user, sent behind our own private data.
    pub private_data: Vec<u8>,
    /// What to do while there is nothing to do.
    pub spin: Spin,
}

impl ServerConfig {
    /// The limits for connections.
    pub(crate) fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits::new(self.max_connections, self.max_connections_per_address)
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            versions: Versions::Auto,
            credits: 128,
            send_size: InlineThreshold::at_most(2 * InlineThreshold::DEFAULT.bytes()),
            max_send_size: InlineThreshold::at_most(8 * InlineThreshold::DEFAULT.bytes()),
            receive_size: InlineThreshold::DEFAULT,
            max_chunk: 4 << 20,
            remote_invalidation: vec![Design::PerConnection],
            local_users: None,
            max_connections: 1024,
            max_connections_per_address: 512,
            receive_memory: 512 << 20,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            setup_timeout: Duration::from_secs(10),
            pull_timeout: Duration::from_secs(30),
            idle_timeout: Some(Duration::from_secs(360)),
            drain_timeout: Duration::from_secs(10),
            backchannels: None,
            backward_credits: 16,
            backward_timeout: Duration::from_secs(10),
            backward_memory: 16 << 20,
            health: HealthCheck {
                // That of NFS callbacks (RFC 8881 §20.1).
                program: (0x4000_0000, 1),
                ..HealthCheck::default()
            },
            chunk_memory: 64 << 20,
            pool: None,
            private_data: Vec::new(),
            spin: Spin::default(),
        }
    }
}
