//! The answering end.

mod accept;
mod addresses;
mod asking;
mod backchannel;
mod backward_memory;
mod grants;
mod receive_memory;
mod serve;
mod stop;
mod worker;

use crate::ServerConfig;
use crate::driver::budget::Budget;
use crate::driver::clock;
use crate::driver::endpoint::{CloseReason, Endpoint};
use crate::driver::invalidation::Terms;
use crate::driver::jobs::{Jobs, MAX_BLOCKING};
use accept::{Acceptor, largest_receive};
use addresses::Addresses;
use backward_memory::BackwardMemory;
use oncrpc::admission::Admission;
use oncrpc::warnings::{Suppressed, Warnings};
use oncrpc::{AddressGroup, Service};
use receive_memory::ReceiveMemory;
use rpcrdma_proto::{Counters, Registrations, Version};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stop::Stop;
use tokio::sync::{Notify, oneshot};
use tracing::{debug, info, warn};
use verbs::{IoCounters, Limits, Provider, SetupError, SharedReceiveQueue};
use worker::Worker;

pub use backchannel::{Backchannel, Backchannels, BackwardClient};

/// A server: it takes in connections and answers their calls on threads of its own, until it is
/// [shut down](Self::shutdown) or dropped.
pub struct Server {
    local: SocketAddr,
    state: Arc<State>,
    stop: Stop,
    budget: Budget,
    chunk_memory: usize,
    /// The threads end with it.
    _workers: Arc<Vec<Worker>>,
}

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
    /// Bytes of [`chunk_memory`](ServerConfig::chunk_memory) that are taken.
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

/// What all connections of a server share, and none changes.
struct Settings {
    provider: Arc<dyn Provider>,
    service: Arc<dyn Service>,
    config: ServerConfig,
    budget: Budget,
    admission: Admission,
    receive_memory: ReceiveMemory,
    addresses: Addresses,
    warnings: Warnings,
    /// A warning was not logged: there is a summary to come.
    suppressed: Notify,
    jobs: Jobs,
    backward_memory: BackwardMemory,
}

impl Settings {
    /// Whether one more warning about this peer is to be logged.
    fn may_warn(&self, peer: SocketAddr) -> bool {
        let peer = AddressGroup::of(peer.ip());
        let allowed = self.warnings.allows(peer, clock::now());
        if !allowed {
            self.suppressed.notify_one();
        }
        allowed
    }

    /// Logs how many warnings were not logged, each time that a period with such is over.
    async fn summarise_when_due(&self) -> Infallible {
        loop {
            match self.warnings.next_summary() {
                Some(due) => {
                    tokio::time::sleep_until(due.into()).await;
                    self.summarise(clock::now());
                }
                None => self.suppressed.notified().await,
            }
        }
    }

    /// Logs how many warnings were not logged in periods that are over by `now`.
    fn summarise(&self, now: Instant) {
        for Suppressed { peer, count } in self.warnings.summary(now) {
            match peer {
                Some(peer) => warn!(%peer, count, "further warnings about this peer"),
                None => warn!(count, "further warnings about many peers"),
            }
        }
    }
}

/// What a connection agrees to of the designs for remote invalidation, with a provider of these limits.
fn terms(config: &ServerConfig, limits: &Limits) -> Terms {
    Terms::new(&config.remote_invalidation, Registrations::OF_CALLS, limits)
}

/// The Receives of all connections of a server, if the provider can share them.
fn shared_receives(config: &ServerConfig, limits: &Limits) -> Option<SharedReceiveQueue> {
    let size = largest_receive(config).bytes();
    let blocks = config.receive_memory / size;
    limits
        .shared_receives
        .then(|| SharedReceiveQueue::new(blocks, size))
}

/// What a server knows of its connections.
#[derive(Default)]
struct State {
    stats: Mutex<ServerStats>,
    /// Whether connections are still taken in.
    listening: AtomicBool,
    changed: Notify,
}

impl State {
    fn stats(&self) -> MutexGuard<'_, ServerStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long what a connection does may be missing in the [`ServerStats`]. To publish it after each call
/// would cost a busy server a twentieth of its time.
const PUBLISH: Duration = Duration::from_millis(100);

/// The share of one connection in what the server has done.
struct Tally {
    state: Arc<State>,
    /// What is spoken, once that is settled.
    version: Option<Version>,
    /// When to publish next, at the earliest.
    next: Instant,
    published: Counters,
    published_io: IoCounters,
}

impl Tally {
    fn new(state: Arc<State>) -> Self {
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
    fn look(&mut self, now: Instant, endpoint: &Endpoint) -> Option<Instant> {
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
    fn publish(&mut self, endpoint: &Endpoint) {
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
    fn ended(&self, over: &CloseReason) {
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

impl Server {
    /// Listens on `on` and serves from then on. Works within any tokio runtime.
    ///
    /// # Errors
    ///
    /// If it cannot listen there, the system gives it no threads, or
    /// [what it was told](ServerConfig::remote_invalidation) leaves it no version to speak.
    pub async fn bind(
        provider: Arc<dyn Provider>,
        on: SocketAddr,
        service: Arc<dyn Service>,
        config: ServerConfig,
    ) -> Result<Self, SetupError> {
        // It would refuse everybody.
        let limits = provider.limits();
        terms(&config, &limits).versions(config.versions)?;
        let workers = match config.workers {
            0 => vec![Worker::here(config.pool.clone())],
            many => (0..many)
                .map(|number| Worker::start(number, config.pool.clone()))
                .collect::<Result<_, _>>()?,
        };
        let workers = Arc::new(workers);
        let chunk_memory = config.chunk_memory;
        let budget = Budget::new(chunk_memory);
        let settings = Arc::new(Settings {
            service,
            budget: budget.clone(),
            admission: Admission::new(config.connection_limits()),
            receive_memory: ReceiveMemory::new(config.receive_memory),
            addresses: Addresses::new(shared_receives(&config, &limits), limits.holds_peer_back),
            warnings: Warnings::default(),
            suppressed: Notify::new(),
            jobs: Jobs::new(MAX_BLOCKING),
            provider,
            backward_memory: BackwardMemory::new(config.backward_memory),
            config,
        });
        let state = Arc::new(State::default());
        let stop = Stop::new();
        let acceptor = Acceptor {
            settings,
            state: Arc::clone(&state),
            // The threads end with the server, not with the acceptor that runs on one of them.
            workers: Arc::downgrade(&workers),
            stop: stop.clone(),
        };
        let (listening, listens) = oneshot::channel();
        workers[0].spawn(acceptor.run(on, listening));
        let local = match listens.await {
            Ok(result) => result?,
            Err(_) => return Err(std::io::Error::other("the server's thread has ended").into()),
        };
        info!(%local, "serving");
        Ok(Self {
            local,
            state,
            stop,
            budget,
            chunk_memory,
            _workers: workers,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// What it has done so far. Connections add to it within a tenth of a second.
    pub fn stats(&self) -> ServerStats {
        let mut stats = *self.state.stats();
        stats.chunk_memory = self.chunk_memory - self.budget.free();
        stats
    }

    /// Takes in no more connections, lets calls that are being answered finish (within
    /// [`drain_timeout`](ServerConfig::drain_timeout)), closes all connections and stops.
    pub async fn shutdown(self) -> ServerStats {
        self.stop.set();
        loop {
            let changed = self.state.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if !self.state.listening.load(SeqCst) && self.state.stats().connections == 0 {
                break;
            }
            changed.await;
        }
        info!(local = %self.local, "stopped");
        self.stats()
    }
}
