//! What a server has done, and the share of each connection in it.

use crate::driver::clock;
use crate::driver::endpoint::{CloseReason, Endpoint};
use rpcrdma_proto::{Counters, Version};
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
    /// Bytes of [`chunk_memory`](crate::ServerConfig::chunk_memory) that are taken.
    pub chunk_memory: usize,
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
    /// Whether connections are still taken in.
    pub(super) listening: AtomicBool,
    pub(super) changed: Notify,
}

impl State {
    pub(super) fn stats(&self) -> MutexGuard<'_, ServerStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    published: Counters,
    published_io: IoCounters,
}

impl Tally {
    pub(super) fn new(state: Arc<State>) -> Self {
        state.stats().connections += 1;
        Self {
            state,
            version: None,
            next: clock::now(),
            published: Counters::default(),
            published_io: IoCounters::default(),
        }
    }

    /// Publishes what is new now and then; if it is not yet time for that, when it is.
    pub(super) fn look(&mut self, now: Instant, endpoint: &Endpoint) -> Option<Instant> {
        if self.version.is_none() {
            self.settle(endpoint);
        }
        if now < self.next {
            return Some(self.next);
        }
        self.next = now + PUBLISH;
        self.publish(endpoint);
        None
    }

    /// Adds what is new.
    pub(super) fn publish(&mut self, endpoint: &Endpoint) {
        let (counters, io) = (endpoint.connection.counters(), endpoint.qp.io_counters());
        if self.published == *counters && self.published_io == io {
            return;
        }
        let (mut new, mut new_io) = (*counters, io);
        new -= std::mem::replace(&mut self.published, *counters);
        new_io -= std::mem::replace(&mut self.published_io, io);
        let mut stats = self.state.stats();
        stats.counters += new;
        stats.io += new_io;
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
        let mut stats = self.state.stats();
        stats.connections -= 1;
        if let Some(version) = self.version {
            *stats.speaking(version) -= 1;
        }
        drop(stats);
        self.state.changed.notify_waiters();
    }
}
