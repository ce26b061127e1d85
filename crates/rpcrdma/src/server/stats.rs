//! Statistics of a server and of each connection.

use crate::driver::clock;
use crate::driver::close_reason::CloseReason;
use crate::driver::endpoint::Endpoint;
use crate::driver::job_replies::JobCounts;
use oncrpc::ConnectionId;
use rpcrdma_proto::v2::characteristics::XcharSpec;
use rpcrdma_proto::{Counters, Version};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tracing::debug;
use verbs::IoCounters;

/// Totals of a server since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Current connections, those in setup included.
    pub connections: usize,
    /// Current connections in version one. The first message of a client settles the version, if
    /// the server speaks both.
    pub version_one: usize,
    /// Current connections in version two.
    pub version_two: usize,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections that were not taken into service: at a limit, from local users that are not known, without a complete setup,
    /// or while the server stopped.
    pub refused: u64,
    /// Connections [evicted](rpc_serving::admission) in favour of other addresses.
    pub evicted: u64,
    /// Connections closed because the client left as many calls of the server unanswered as it had
    /// granted credits.
    pub unanswered: u64,
    /// Protocol counters of all connections, past ones included.
    pub counters: Counters,
    /// Counters of system calls and memory of all connections, past ones included.
    pub io: IoCounters,
    /// Calls handed to [jobs](oncrpc::Answer::Blocking), including those not begun yet.
    pub jobs: u64,
    /// Bytes of [`chunk_memory`](crate::ServerConfig::chunk_memory) in use.
    pub chunk_memory: usize,
}

/// Statistics and state of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// The connection's identifier in services; `None` during setup.
    pub id: Option<ConnectionId>,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Address of the listener that it came to, as [`Server::listen_also`](crate::Server::listen_also) returned it.
    pub listener: SocketAddr,
    /// Name of the RDMA device that the connection uses; `None` over software, and during setup.
    pub device: Option<Arc<str>>,
    /// Time of acceptance.
    pub since: Instant,
    /// State of the connection.
    pub state: ConnectionState,
    /// Version of RPC-over-RDMA in use, once it is settled.
    pub version: Option<Version>,
    /// Credits that the next reply grants to the client (RFC 8166 §3.3.1).
    pub credits_granted: u32,
    /// Calls of the client in service, each of which holds a credit.
    pub credits_in_use: usize,
    /// Calls handed to [jobs](oncrpc::Answer::Blocking), including those not begun yet.
    pub jobs: u64,
    /// Jobs without a reply yet.
    pub jobs_in_flight: usize,
    /// Bytes of [`chunk_memory`](crate::ServerConfig::chunk_memory) held by its calls.
    pub chunk_memory: usize,
    /// Protocol counters.
    pub counters: Counters,
    /// Counters of system calls and memory.
    pub io: IoCounters,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// The connection is being set up.
    Setup,
    /// No call is in flight.
    Idle,
    /// Calls are in flight.
    Active,
    /// The server is stopping: calls in flight are answered, further ones are not.
    Draining,
}

impl ConnectionState {
    /// Name in lower case, for logs and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Idle => "idle",
            Self::Active => "active",
            Self::Draining => "draining",
        }
    }
}

impl ServerStats {
    /// The count of connections in this version.
    fn speaking(&mut self, version: Version) -> &mut usize {
        match version {
            Version::One => &mut self.version_one,
            Version::Two => &mut self.version_two,
        }
    }
}

/// State of all connections of a server.
#[derive(Default)]
pub(super) struct State {
    stats: Mutex<ServerStats>,
    connections: Mutex<Connections>,
    /// Listeners that accept connections.
    pub(super) listening: AtomicUsize,
    pub(super) changed: Notify,
}

/// The connections of a server in the order in which they were accepted.
#[derive(Default)]
struct Connections {
    accepted: u64,
    now: BTreeMap<u64, Arc<Mutex<Published>>>,
}

/// Published state of one connection.
struct Published {
    stats: ConnectionStats,
    /// Characteristics of the client, in version two.
    characteristics: XcharSpec,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Connections> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }

    /// Statistics of each connection.
    pub(super) fn connections(&self) -> Vec<ConnectionStats> {
        let now: Vec<_> = self.lock().now.values().map(Arc::clone).collect();
        now.iter().map(|shown| lock(shown).stats.clone()).collect()
    }

    /// Characteristics of the client of a connection.
    pub(super) fn characteristics(&self, id: ConnectionId) -> Option<XcharSpec> {
        let now: Vec<_> = self.lock().now.values().map(Arc::clone).collect();
        now.iter().find_map(|shown| {
            let shown = lock(shown);
            (shown.stats.id == Some(id)).then(|| shown.characteristics.clone())
        })
    }

    pub(super) fn stats(&self) -> MutexGuard<'_, ServerStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(connection: &Mutex<Published>) -> MutexGuard<'_, Published> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Interval at which a connection publishes its counters to the [`ServerStats`]. To publish after
/// each call would cost a busy server a twentieth of its time.
const PUBLISH: Duration = Duration::from_millis(100);

/// The share of one connection in the server's totals.
pub(super) struct Tally {
    state: Arc<State>,
    /// The version, once it is settled.
    version: Option<Version>,
    /// When to publish next, at the earliest.
    next: Instant,
    /// Its number among those of the server.
    number: u64,
    /// The published state.
    published: Arc<Mutex<Published>>,
    /// Whether the characteristics that the client announced are published.
    heard: bool,
}

impl Tally {
    pub(super) fn new(state: Arc<State>, peer: SocketAddr, listener: SocketAddr) -> Self {
        state.stats().connections += 1;
        let now = clock::now();
        let stats = ConnectionStats {
            id: None,
            peer,
            listener,
            device: None,
            since: now,
            state: ConnectionState::Setup,
            version: None,
            credits_granted: 0,
            credits_in_use: 0,
            jobs: 0,
            jobs_in_flight: 0,
            chunk_memory: 0,
            counters: Counters::default(),
            io: IoCounters::default(),
        };
        let published = Arc::new(Mutex::new(Published {
            stats,
            characteristics: XcharSpec::default(),
        }));
        let mut connections = state.lock();
        let number = connections.accepted;
        connections.accepted += 1;
        connections.now.insert(number, Arc::clone(&published));
        drop(connections);
        Self {
            state,
            version: None,
            next: now,
            number,
            published,
            heard: false,
        }
    }

    /// Publishes changes if it is time; otherwise returns when it will be.
    pub(super) fn look(
        &mut self,
        now: Instant,
        endpoint: &Endpoint,
        draining: bool,
    ) -> Option<Instant> {
        if self.version.is_none() {
            self.settle(endpoint);
        }
        if now < self.next {
            return Some(self.next);
        }
        self.next = now + PUBLISH;
        self.publish(endpoint, draining);
        None
    }

    /// Publishes the client's characteristics before its first call is answered.
    pub(super) fn before_calls(&mut self, endpoint: &Endpoint, draining: bool) {
        if !self.heard
            && let Some(session) = endpoint.connection.session()
            && session.peer_has_characteristics()
        {
            self.publish(endpoint, draining);
        }
    }

    /// Adds what is new.
    pub(super) fn publish(&mut self, endpoint: &Endpoint, draining: bool) {
        let connection = &endpoint.connection;
        let JobCounts { begun, in_flight } = endpoint.jobs;
        let calls = connection.calls_in();
        let mut published = lock(&self.published);
        if let Some(session) = connection.session() {
            self.heard = session.peer_has_characteristics();
            if *session.peer_values() != published.characteristics {
                published.characteristics = session.peer_values().clone();
            }
        }
        let before = published.stats.clone();
        let device = match &before.device {
            None => endpoint.qp.device().map(Arc::from),
            known => known.clone(),
        };
        let now = ConnectionStats {
            device,
            id: Some(endpoint.caller.connection),
            state: match (draining, calls) {
                (true, _) => ConnectionState::Draining,
                (false, 0) => ConnectionState::Idle,
                (false, _) => ConnectionState::Active,
            },
            version: self.version,
            credits_granted: connection.grant(),
            credits_in_use: calls,
            jobs: begun,
            jobs_in_flight: in_flight,
            chunk_memory: endpoint.account.held(),
            counters: *connection.counters(),
            io: endpoint.qp.io_counters(),
            ..before
        };
        published.stats = now.clone();
        drop(published);
        if (now.counters, now.io, now.jobs) == (before.counters, before.io, before.jobs) {
            return;
        }
        let (mut counters, mut io) = (now.counters, now.io);
        counters -= before.counters;
        io -= before.io;
        let mut stats = self.state.stats();
        stats.counters += counters;
        stats.io += io;
        stats.jobs += now.jobs - before.jobs;
    }

    /// Counts the close reason, if there is a counter for it.
    pub(super) fn ended(&self, over: &CloseReason) {
        let mut stats = self.state.stats();
        match over {
            CloseReason::Evicted => stats.evicted += 1,
            CloseReason::NoBackwardCredit => stats.unanswered += 1,
            _ => {}
        }
    }

    /// Counts the connection towards its version and logs the version, once it is settled.
    fn settle(&mut self, endpoint: &Endpoint) {
        let Some(version) = endpoint.connection.version() else {
            return;
        };
        self.version = Some(version);
        let (one, two) = {
            let mut stats = self.state.stats();
            *stats.speaking(version) += 1;
            (stats.version_one, stats.version_two)
        };
        let (peer, number) = (endpoint.qp.peer_addr(), version.number());
        debug!(%peer, "speaks version {number}; connections now: {one} of version 1, {two} of version 2");
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.state.lock().now.remove(&self.number);
        let mut stats = self.state.stats();
        stats.connections -= 1;
        if let Some(version) = self.version {
            *stats.speaking(version) -= 1;
        }
        drop(stats);
        self.state.changed.notify_waiters();
    }
}
