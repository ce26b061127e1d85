//! What a server has done, and the share of each connection in it.

use crate::driver::clock;
use crate::driver::endpoint::{CloseReason, Endpoint};
use crate::driver::jobs::JobCounts;
use oncrpc::ConnectionId;
use rpcrdma_proto::{Counters, Version};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tracing::debug;
use verbs::IoCounters;

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections served now, those that are being set up included.
    pub connections: usize,
    /// Of these, those on which version one of RPC-over-RDMA is spoken. A client's first message
    /// settles what is spoken on its connection, if the server has both.
    pub version_one: usize,
    /// Of these, those on which version two is spoken.
    pub version_two: usize,
    /// Connections taken in since the start.
    pub accepted: u64,
    /// Connections refused because there were too many, or that never said what they wanted.
    pub refused: u64,
    /// Connections [evicted](oncrpc::admission) for those of other addresses.
    pub evicted: u64,
    /// Connections closed because their clients left as many calls of the server unanswered as they
    /// had granted credits for.
    pub unanswered: u64,
    /// What connections did, those that are over included.
    pub counters: Counters,
    /// What they have asked of the system and of memory.
    pub io: IoCounters,
    /// Calls that were answered by [jobs](oncrpc::Answer::Blocking), begun or not.
    pub jobs: u64,
    /// Bytes of [`chunk_memory`](crate::ServerConfig::chunk_memory) that are taken.
    pub chunk_memory: usize,
}

/// What one connection has done so far, and how it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStats {
    /// What services know it by; none while it is being set up.
    pub id: Option<ConnectionId>,
    /// Address of the client.
    pub peer: SocketAddr,
    /// When it was accepted.
    pub since: Instant,
    /// What it is doing.
    pub state: ConnectionState,
    /// The version of RPC-over-RDMA that is spoken, once that is settled.
    pub version: Option<Version>,
    /// Credits that the client is granted with the next reply (RFC 8166 §3.3.1).
    pub credits_granted: u32,
    /// Calls of the client that are not answered to the end, each on a credit.
    pub credits_in_use: usize,
    /// Calls that were answered by [jobs](oncrpc::Answer::Blocking), begun or not.
    pub jobs: u64,
    /// Jobs that have brought no reply yet.
    pub jobs_in_flight: usize,
    /// Bytes of [`chunk_memory`](crate::ServerConfig::chunk_memory) that its calls hold.
    pub chunk_memory: usize,
    /// What the protocol did.
    pub counters: Counters,
    /// What was asked of the system.
    pub io: IoCounters,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// It is being set up.
    Setup,
    /// No call is in flight.
    Idle,
    /// Calls are in flight.
    Active,
    /// The server stops: calls in flight are answered, and no others.
    Draining,
}

impl ConnectionState {
    /// Its name, in lower case.
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
    /// Connections on which this version is spoken.
    fn speaking(&mut self, version: Version) -> &mut usize {
        match version {
            Version::One => &mut self.version_one,
            Version::Two => &mut self.version_two,
        }
    }
}

/// What a server knows of its connections.
#[derive(Default)]
pub(super) struct State {
    stats: Mutex<ServerStats>,
    connections: Mutex<Connections>,
    /// Whether connections are still taken in.
    pub(super) listening: AtomicBool,
    pub(super) changed: Notify,
}

/// The connections of a server in the order in which they were accepted.
#[derive(Default)]
struct Connections {
    accepted: u64,
    now: BTreeMap<u64, Arc<Mutex<ConnectionStats>>>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Connections> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }

    /// What each connection has done so far.
    pub(super) fn connections(&self) -> Vec<ConnectionStats> {
        let now: Vec<_> = self.lock().now.values().map(Arc::clone).collect();
        now.iter().map(|connection| *lock(connection)).collect()
    }

    pub(super) fn stats(&self) -> MutexGuard<'_, ServerStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(connection: &Mutex<ConnectionStats>) -> MutexGuard<'_, ConnectionStats> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long what a connection does may be missing in the [`ServerStats`]. To publish it after each call
/// would cost a busy server a twentieth of its time.
const PUBLISH: Duration = Duration::from_millis(100);

/// The share of one connection in what the server has done.
pub(super) struct Tally {
    state: Arc<State>,
    /// What is spoken, once that is settled.
    version: Option<Version>,
    /// When to publish next, at the earliest.
    next: Instant,
    /// Its number among those of the server.
    number: u64,
    /// What others see of it.
    published: Arc<Mutex<ConnectionStats>>,
}

impl Tally {
    pub(super) fn new(state: Arc<State>, peer: SocketAddr) -> Self {
        state.stats().connections += 1;
        let now = clock::now();
        let published = Arc::new(Mutex::new(ConnectionStats {
            id: None,
            peer,
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
        }
    }

    /// Publishes what is new now and then; if it is not yet time for that, when it is.
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

    /// Adds what is new.
    pub(super) fn publish(&mut self, endpoint: &Endpoint, draining: bool) {
        let connection = &endpoint.connection;
        let JobCounts { begun, in_flight } = endpoint.jobs;
        let calls = connection.calls_in();
        let mut published = lock(&self.published);
        let before = *published;
        *published = ConnectionStats {
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
        let now = *published;
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

    /// Counts why the connection ended, where there is a count for that.
    pub(super) fn ended(&self, over: &CloseReason) {
        let mut stats = self.state.stats();
        match over {
            CloseReason::Evicted => stats.evicted += 1,
            CloseReason::NoBackwardCredit => stats.unanswered += 1,
            _ => {}
        }
    }

    /// Counts the connection among those of its version, and tells the operator, if it has one now.
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
