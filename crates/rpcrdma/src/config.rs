//! Configuration of clients and servers.

use crate::Backchannels;
use crate::characteristics::CustomCharacteristics;
use buffer::Pool;
use oncrpc::{Connections, LocalUsers, Service};
use rpc_serving::admission::ConnectionLimits;
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::{Design, InlineThreshold, PersistentArguments, Versions};
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;
use verbs::Limits;

/// Largest number of connections of one client; Linux has the same limit.
pub const MAX_CONNECTIONS: usize = 16;

/// How long to remember that a server lacks version two. It may be upgraded, so it is asked again
/// after that.
pub const REMEMBER_VERSION_ONE: Duration = Duration::from_secs(600);

/// Busy-polling mode of the task that owns a connection, used while it has no work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spin {
    /// The task waits until the system wakes it. Uses the least CPU; latency is several times
    /// higher.
    Park,
    /// The task polls for 50 µs before it waits. It does so only if the machine has more than one
    /// CPU and no other connection is active: on a server no other of the same worker, on a client
    /// no other of the process. After four waits in which polling was of no use, because it was in
    /// vain or another process needed the CPU, it polls in one of 33 waits, until that is of use.
    #[default]
    Adaptive,
    /// The task polls without end while no other connection is active. For measurements.
    Always,
}

/// When to probe a silent peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthChecks {
    /// Probe if the provider does not detect a dead peer itself. InfiniBand does not; TCP does.
    #[default]
    Auto,
    /// Probe over every provider.
    On,
    /// Never probe.
    Off,
}

/// Liveness probe for a peer that owes something and has gone silent (RFC 8267 §6.7.2). The probe
/// is a call of procedure NULL, for which a client reserves one credit. Without an answer the
/// connection is closed.
///
/// ```
/// use rpcrdma::{HealthCheck, HealthChecks};
/// use std::time::Duration;
///
/// let check = HealthCheck::default()
///     .with_checks(HealthChecks::On)
///     .with_after(Duration::from_secs(5));
/// assert_eq!(check.within, Duration::from_secs(15));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthCheck {
    /// When to probe.
    pub checks: HealthChecks,
    /// How long the peer must have been silent.
    pub after: Duration,
    /// How long to wait for the answer.
    pub within: Duration,
    /// Program number and version whose NULL procedure is called. An error reply, for instance that
    /// the peer lacks the program, is an answer too.
    pub program: (u32, u32),
}

impl HealthCheck {
    buffer::setters! {
        with_checks(checks: HealthChecks),
        with_after(after: Duration),
        with_within(within: Duration),
        with_program(program: (u32, u32)),
    }

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
    /// NFS version 3 (RFC 1813), after 15 seconds of silence, with 15 seconds for the answer.
    fn default() -> Self {
        Self {
            checks: HealthChecks::default(),
            after: Duration::from_secs(15),
            within: Duration::from_secs(15),
            program: (100_003, 3),
        }
    }
}

/// Service that answers a server's calls to its client (RFC 8167).
#[derive(Clone)]
pub struct CallbackService(pub Arc<dyn Service>);

impl<S: Service + 'static> From<Arc<S>> for CallbackService {
    fn from(service: Arc<S>) -> Self {
        Self(service)
    }
}

impl From<Arc<dyn Service>> for CallbackService {
    fn from(service: Arc<dyn Service>) -> Self {
        Self(service)
    }
}

impl Debug for CallbackService {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackService")
    }
}

/// Configuration of a [`Client`](crate::Client).
///
/// Start with the [default](Self::default) and change fields by their methods:
///
/// ```
/// use rpcrdma::{ClientConfig, InlineThreshold, Versions};
/// use std::time::Duration;
///
/// let config = ClientConfig::default()
///     .with_connections(4)
///     .with_versions(Versions::Auto)
///     .with_receive_size(InlineThreshold::at_most(16 << 10))
///     .with_call_timeout(Duration::from_secs(20));
/// assert_eq!(config.credits, 128);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Number of connections that share the calls: 1 to [`MAX_CONNECTIONS`]. The other limits apply
    /// to each connection.
    pub connections: usize,
    /// Versions of RPC-over-RDMA that the client speaks. The default is version one, since version
    /// two has no RFC. With [`Versions::Auto`] the client offers version two to a server that
    /// announces the same draft of it in its private data, which costs one round trip on each new
    /// connection, and uses version one with others. If the server declines or does not answer, the
    /// client uses version one, and for [`REMEMBER_VERSION_ONE`] it does not offer version two
    /// again. With [`Versions::Two`] it offers version two to every server.
    pub versions: Versions,
    /// Draft of version two that the client speaks. The default is cel-01.
    pub dialect: Dialect,
    /// How long to wait for the server to answer the offer of version two, before the connection is
    /// given up.
    pub version_timeout: Duration,
    /// Credits to request, at least 1. This is also the largest number of calls in flight on a
    /// connection.
    pub credits: u32,
    /// Largest message to send inline, in one Send.
    pub send_size: InlineThreshold,
    /// Largest message to receive inline, in one Receive. The default is twice that of Linux, so
    /// that a server that knows it sends a READ reply of 4 KiB in one Send.
    pub receive_size: InlineThreshold,
    /// Largest Receive size that the client grants to a server that asks for larger Receives, in
    /// version two (xcharext §4.2). The client may post one such Receive per credit.
    pub max_receive_size: InlineThreshold,
    /// Transport characteristics beside the standard ones, in version two.
    pub characteristics: CustomCharacteristics,
    /// Bytes of the largest chunk, and therefore of the largest message.
    pub max_chunk: usize,
    /// Bytes of the largest segment of an offered chunk; 0 gives each chunk one segment.
    pub max_segment: usize,
    /// Remote invalidation designs that the client agrees to (draft-cel-nfsv4-reminv-design-03 §4),
    /// in both directions. With an empty list no handle is invalidated remotely.
    ///
    /// The default is [`Design::PerConnection`]: the R flag in version one (RFC 8797 §4.1) and
    /// XCHAR_REQREMINV in version two (xcharext §3.2). With [`Design::PerVersion`] the use of
    /// version two implies remote invalidation: the server needs the same configuration, and either
    /// end may decline with XCHAR_REQREMINV. The client offers the other designs in version two, by
    /// an experimental characteristic; a design that the server accepts replaces all others. The
    /// order of the list does not matter to a client.
    ///
    /// If the provider does not support Send with Invalidate, or some memory [stays
    /// registered](Self::persistent_arguments), the client agrees only to designs in which each
    /// call names the handles, and with [`Design::PerVersion`] it does not speak version two.
    /// [`Design::PerCallAll`] needs a provider that invalidates several handles with one Send
    /// ([`verbs::Limits::invalidations`]), at both ends; it is left out otherwise.
    pub remote_invalidation: Vec<Design>,
    /// Persistent memory for small arguments (reminv §2.2): arguments that fit are copied into
    /// regions that stay registered. The server can read the previous content of a region until the
    /// region is reused, so the default is none. Each connection needs regions × bytes for this, in
    /// addition to [`chunk_memory`](Self::chunk_memory).
    pub persistent_arguments: Option<PersistentArguments>,
    /// Whether all memory that a call offers to the server is registered under one handle (reminv
    /// §2.4), so that one invalidation ends all of it. A Linux server, and one under any design,
    /// then leaves nothing to invalidate locally, also for a call with several chunks. It has no
    /// effect where the provider cannot do it ([`verbs::Limits::parts`]), as RDMA devices, nor on
    /// calls with one chunk. The default is false: each chunk has a handle of its own.
    pub one_region: bool,
    /// Verifies remote invalidation with a scratch region first. If the region is not invalidated
    /// as the provider promises, or the test does not end, the client reconnects without remote
    /// invalidation. Meant for unknown hardware. A provider that fails at it later is not asked for
    /// it again, with or without this test.
    pub test_remote_invalidation: bool,
    /// Time limit of a call, reconnects included. A call may exceed it by up to two seconds,
    /// because deadlines are checked at intervals. A connection on which a call got no reply for
    /// this long is closed, even if the call was cancelled.
    pub call_timeout: Duration,
    /// First-reply timeout of a connection: if a reply is owed, none has ever come and no data
    /// moves for this long, the client gives the connection up and sends the call over another one
    /// with the same XID. The timeout doubles for each such connection in a row, up to
    /// [`call_timeout`](Self::call_timeout), so that a slow server is served in the end. A call's
    /// own time limit still applies; the loss does not count against the call. Checked about once a
    /// second. Not used without [`reconnect`](Self::reconnect).
    pub first_reply_timeout: Duration,
    /// Time limit for connection setup.
    pub setup_timeout: Duration,
    /// Delay before the next attempt after a failed one, or after the loss of a connection that
    /// brought no reply. Doubles with each attempt.
    pub reconnect_first: Duration,
    /// Longest delay between two attempts.
    pub reconnect_most: Duration,
    /// Whether to reconnect after a connection is lost.
    pub reconnect: bool,
    /// How long a connection may be idle before the client closes it; the next call reconnects.
    /// `None` means no limit, as do [`callbacks`](Self::callbacks) and a client without
    /// [`reconnect`](Self::reconnect). Checked about once a second.
    pub idle_timeout: Option<Duration>,
    /// Liveness probe of the server.
    pub health: HealthCheck,
    /// Service for the server's calls on this client's connections (RFC 8167). With it, the client
    /// reconnects and keeps connections open even without calls of its own (RFC 8167 §5.4); only if
    /// the server closes a connection on which neither end had called does the client wait for its
    /// next call. Without it, calls of the server are answered PROG_UNAVAIL. The upper layer must
    /// tell the server on each connection that the client is ready for calls (RFC 8167 §6); the
    /// example `callbacks` does that with NFSv4.1 and the Linux server.
    pub callbacks: Option<CallbackService>,
    /// Calls of the server that the client accepts at a time, if it has
    /// [`callbacks`](Self::callbacks); at least 1.
    pub backward_credits: u32,
    /// Bytes of chunk memory for calls of the server and the replies to them, per connection. In
    /// version two the client accepts calls with chunks if it has [`callbacks`](Self::callbacks).
    pub chunk_memory: usize,
    /// How long the client may take to read all chunks of a call from the server, before it closes
    /// the connection.
    pub pull_timeout: Duration,
    /// Whether Receives take memory only while they hold a message, if the provider supports that,
    /// so that an idle connection has none. An application that keeps many inline replies then
    /// holds the server back.
    pub receives_on_arrival: bool,
    /// Pool of buffers, which clients may share. With `None` the client has a pool of its own.
    pub pool: Option<Pool>,
    /// Private data of the application, sent behind that of RPC-over-RDMA.
    pub private_data: Vec<u8>,
    /// Busy-polling mode while there is no work.
    pub spin: Spin,
}

impl ClientConfig {
    buffer::setters! {
        with_connections(connections: usize),
        with_versions(versions: Versions),
        with_dialect(dialect: Dialect),
        with_version_timeout(version_timeout: Duration),
        with_credits(credits: u32),
        with_send_size(send_size: InlineThreshold),
        with_receive_size(receive_size: InlineThreshold),
        with_max_receive_size(max_receive_size: InlineThreshold),
        with_characteristics(characteristics: CustomCharacteristics),
        with_max_chunk(max_chunk: usize),
        with_max_segment(max_segment: usize),
        with_remote_invalidation(remote_invalidation: Vec<Design>),
        with_persistent_arguments(persistent_arguments: PersistentArguments),
        with_one_region(one_region: bool),
        with_test_remote_invalidation(test_remote_invalidation: bool),
        with_call_timeout(call_timeout: Duration),
        with_first_reply_timeout(first_reply_timeout: Duration),
        with_setup_timeout(setup_timeout: Duration),
        with_reconnect_first(reconnect_first: Duration),
        with_reconnect_most(reconnect_most: Duration),
        with_reconnect(reconnect: bool),
        with_idle_timeout(idle_timeout: Option<Duration>),
        with_health(health: HealthCheck),
        with_backward_credits(backward_credits: u32),
        with_chunk_memory(chunk_memory: usize),
        with_receives_on_arrival(receives_on_arrival: bool),
        with_pull_timeout(pull_timeout: Duration),
        with_pool(pool: Pool),
        with_private_data(private_data: Vec<u8>),
        with_spin(spin: Spin),
    }

    /// Sets [`callbacks`](Self#structfield.callbacks).
    #[must_use]
    pub fn with_callbacks(mut self, callbacks: impl Into<CallbackService>) -> Self {
        self.callbacks = Some(callbacks.into());
        self
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            connections: 1,
            versions: Versions::One,
            dialect: Dialect::default(),
            version_timeout: Duration::from_secs(5),
            credits: 128,
            send_size: InlineThreshold::DEFAULT,
            receive_size: InlineThreshold::at_most(2 * InlineThreshold::DEFAULT.bytes()),
            max_receive_size: InlineThreshold::at_most(8 * InlineThreshold::DEFAULT.bytes()),
            characteristics: CustomCharacteristics::default(),
            max_chunk: 4 << 20,
            max_segment: 0,
            remote_invalidation: vec![Design::PerConnection],
            persistent_arguments: None,
            one_region: false,
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
            receives_on_arrival: false,
            pool: None,
            private_data: Vec::new(),
            spin: Spin::default(),
        }
    }
}

/// Configuration of a [`Server`](crate::Server).
///
/// Start with the [default](Self::default) and change fields by their methods:
///
/// ```
/// use rpcrdma::{ServerConfig, Spin};
/// use std::time::Duration;
///
/// let config = ServerConfig::default()
///     .with_workers(2)
///     .with_max_connections(64)
///     .with_idle_timeout(None)
///     .with_spin(Spin::Park);
/// assert_eq!(config.drain_timeout, Duration::from_secs(10));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Versions of RPC-over-RDMA that the server speaks. With [`Versions::Auto`] each client
    /// chooses by the version of its first message.
    pub versions: Versions,
    /// Draft of version two that the server speaks, and announces in its private data. The default
    /// is cel-01. A client of another draft is told that there is no version two, or is not
    /// understood if there is nothing else.
    pub dialect: Dialect,
    /// Largest number of credits granted to a client, at least 1. A credit allows one call at a
    /// time.
    pub credits: u32,
    /// Largest message to send inline, in one Send, if the client receives as much.
    pub send_size: InlineThreshold,
    /// Largest message to send inline in version two. If a client's replies would fit this size,
    /// the server asks the client for Receives of that size, and for smaller ones after a while
    /// without such replies (xcharext §4.2).
    pub max_send_size: InlineThreshold,
    /// Largest message to receive inline, in one Receive. Each client has one Receive per credit.
    /// In version two the size grows to what the server sends, because an end sends as much as it
    /// receives (xcharext §3.1).
    pub receive_size: InlineThreshold,
    /// Transport characteristics beside the standard ones, in version two.
    pub characteristics: CustomCharacteristics,
    /// Largest number of bytes to read for one call, and bytes of the largest chunk to write.
    pub max_chunk: usize,
    /// Remote invalidation designs that the server agrees to (draft-cel-nfsv4-reminv-design-03 §4).
    /// With an empty list, replies invalidate nothing.
    ///
    /// The default is [`Design::PerConnection`]: the R flag of both ends in version one (RFC 8797
    /// §4.1) and XCHAR_REQREMINV in version two (xcharext §3.2). With [`Design::PerVersion`] the
    /// use of version two implies remote invalidation: all clients need the same configuration, and
    /// a client that declines with XCHAR_REQREMINV keeps its handles. Of the other designs, the
    /// server accepts the first of this list that a client of version two offers, and that design
    /// replaces all others. If the client offers none of them, the first two apply.
    ///
    /// The restrictions by the provider are those of [a client](ClientConfig::remote_invalidation).
    pub remote_invalidation: Vec<Design>,
    /// Finds the local users behind connections from this machine. A local user then speaks for
    /// itself only ([`Caller::local_uid`](oncrpc::Caller::local_uid)), and all its connections
    /// share limits whatever local address they use. With `None`, the server believes local users
    /// as it believes other machines, and each address of 127/8 counts as one peer. A connection
    /// over a provider that [has no socket](verbs::Incoming::socket) of TCP does not count as local.
    pub local_users: Option<Arc<dyn LocalUsers>>,
    /// Largest number of connections at a time, those in setup included. A further one evicts the
    /// [least useful](rpc_serving::admission) connection, or is refused if all are in use.
    pub max_connections: usize,
    /// Largest number of connections from one address at a time, idle ones included. An IPv6 /64
    /// counts as one address.
    pub max_connections_per_address: usize,
    /// Bytes of memory for the Receives of all connections.
    ///
    /// Over a provider with shared receive queues that can [hold
    /// back](verbs::Limits::holds_peer_back) a peer, calls from one address may use a quarter of
    /// it. Over other providers each credit has its own Receive: a new connection begins with 8
    /// credits, and gets more as it uses them, up to [`credits`](Self::credits). Half of this memory
    /// is for the first credits; a connection for which none is left is refused. The addresses of
    /// clients share the other half.
    pub receive_memory: usize,
    /// Number of threads that serve connections, each with its own runtime. With 0, the runtime on
    /// which the server was bound serves them.
    pub workers: usize,
    /// Time limit for connection setup by a client.
    pub setup_timeout: Duration,
    /// How long a client may take to hand over all chunks of a call, one call after the other,
    /// before the server closes its connection. While calls of other clients wait for memory, the
    /// limit applies to all calls that the client has begun together, so that no client holds
    /// memory from others for more than twice this time.
    pub pull_timeout: Duration,
    /// How long a connection may be idle before the server closes it; `None` means no limit. The
    /// connection of a client that is ready for calls of the server stays open.
    pub idle_timeout: Option<Duration>,
    /// How long calls may take to finish after a call of [`shutdown`](crate::Server::shutdown).
    pub drain_timeout: Duration,
    /// Registry of the connections on which clients can be called (RFC 8167). With `None`, the
    /// server does not call clients.
    pub backchannels: Option<Backchannels>,
    /// Registry of the connections for a service that closes some. With `None`, the service cannot.
    pub connections: Option<Connections>,
    /// Largest number of calls in flight to one client, if it grants as many credits; at least 1.
    pub backward_credits: u32,
    /// Time limit of a call to a client, including its wait for a credit. A client that leaves
    /// calls unanswered for longer, until it has no credit left for others, loses its connection.
    pub backward_timeout: Duration,
    /// Bytes of chunk memory for the results of calls to clients, on all connections together. A
    /// call that needs more waits.
    pub backward_memory: usize,
    /// Liveness probe of clients that are ready for calls.
    pub health: HealthCheck,
    /// Bytes of chunk memory for calls and replies, on all connections together. A call that needs
    /// more waits. Calls from one address may use a quarter of it, or one call more. A connection
    /// with waiting calls is granted fewer credits until none waits.
    pub chunk_memory: usize,
    /// How long calls may hold chunk memory without a reply while others have waited for it as long: then
    /// a connection of the address that holds most is closed. `None` is without such a limit: where the
    /// service goes on with a call when its connection has ended, that would help nobody.
    pub unanswered: Option<Duration>,
    /// Whether to close the connection of a client that sends a longer message than was announced
    /// to it (RFC 8797 §4.2, xcharext §3.1), as servers do whose Receives are no larger. Otherwise a
    /// message that happens to fit is served, counted and logged.
    pub strict: bool,
    /// Pool of buffers. With `None` each worker has a pool of its own.
    pub pool: Option<Pool>,
    /// Private data of the application, sent behind that of RPC-over-RDMA and, with version two, the
    /// eight octets that announce its draft.
    pub private_data: Vec<u8>,
    /// Busy-polling mode while there is no work.
    pub spin: Spin,
    /// Name of the server in log lines about its peers, in the field `listen`: for processes that have several servers.
    pub listener_name: Option<String>,
    /// Advice to an administrator in the log when there are too many connections, as which setting allows more.
    pub connections_hint: Option<&'static str>,
}

impl ServerConfig {
    buffer::setters! {
        with_versions(versions: Versions),
        with_dialect(dialect: Dialect),
        with_credits(credits: u32),
        with_send_size(send_size: InlineThreshold),
        with_max_send_size(max_send_size: InlineThreshold),
        with_receive_size(receive_size: InlineThreshold),
        with_characteristics(characteristics: CustomCharacteristics),
        with_max_chunk(max_chunk: usize),
        with_remote_invalidation(remote_invalidation: Vec<Design>),
        with_local_users(local_users: Arc<dyn LocalUsers>),
        with_max_connections(max_connections: usize),
        with_max_connections_per_address(max_connections_per_address: usize),
        with_receive_memory(receive_memory: usize),
        with_workers(workers: usize),
        with_setup_timeout(setup_timeout: Duration),
        with_pull_timeout(pull_timeout: Duration),
        with_idle_timeout(idle_timeout: Option<Duration>),
        with_drain_timeout(drain_timeout: Duration),
        with_backchannels(backchannels: Backchannels),
        with_connections(connections: Connections),
        with_backward_credits(backward_credits: u32),
        with_backward_timeout(backward_timeout: Duration),
        with_backward_memory(backward_memory: usize),
        with_health(health: HealthCheck),
        with_chunk_memory(chunk_memory: usize),
        with_unanswered(unanswered: Option<Duration>),
        with_strict(strict: bool),
        with_pool(pool: Pool),
        with_private_data(private_data: Vec<u8>),
        with_spin(spin: Spin),
        with_listener_name(listener_name: String),
        with_connections_hint(connections_hint: &'static str),
    }

    /// Limits for admission control.
    pub(crate) fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits::new(self.max_connections, self.max_connections_per_address)
            .with_hint(self.connections_hint)
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            versions: Versions::Auto,
            dialect: Dialect::default(),
            credits: 128,
            send_size: InlineThreshold::at_most(2 * InlineThreshold::DEFAULT.bytes()),
            max_send_size: InlineThreshold::at_most(8 * InlineThreshold::DEFAULT.bytes()),
            receive_size: InlineThreshold::DEFAULT,
            characteristics: CustomCharacteristics::default(),
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
            connections: None,
            backward_credits: 16,
            backward_timeout: Duration::from_secs(10),
            backward_memory: 16 << 20,
            health: HealthCheck {
                // That of NFS callbacks (RFC 8881 §20.1).
                program: (0x4000_0000, 1),
                ..HealthCheck::default()
            },
            chunk_memory: 64 << 20,
            unanswered: None,
            strict: false,
            pool: None,
            private_data: Vec::new(),
            spin: Spin::default(),
            listener_name: None,
            connections_hint: None,
        }
    }
}
