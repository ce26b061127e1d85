//! The answering end.

mod accept;
mod addresses;
mod asking;
mod backchannel;
mod backward_memory;
mod grants;
mod place;
mod receive_memory;
mod serve;
mod settings;
mod stats;
mod stop;
mod worker;

use crate::ServerConfig;
use crate::driver::budget::Budget;
use crate::driver::jobs::{Jobs, MAX_BLOCKING};
use accept::{Acceptor, largest_receive};
use addresses::Addresses;
use backward_memory::BackwardMemory;
use oncrpc::Service;
use oncrpc::admission::Admission;
use oncrpc::warnings::Warnings;
use receive_memory::ReceiveMemory;
use settings::{Settings, terms};
use stats::State;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use stop::Stop;
use tokio::sync::{Notify, oneshot};
use tracing::info;
use verbs::{Limits, Provider, SetupError, SharedReceiveQueue};
use worker::Worker;

pub use backchannel::{Backchannel, Backchannels, BackwardClient};
pub use stats::{ConnectionState, ConnectionStats, ServerStats};

/// A server: it takes in connections and answers their calls on threads of its own, until it is
/// [shut down](Self::shutdown) or dropped.
pub struct Server {
    local: SocketAddr,
    monitor: ServerMonitor,
    stop: Stop,
    /// The threads end with it.
    workers: Arc<Vec<Worker>>,
}

/// A view of what a server does, which may outlive it.
#[derive(Clone)]
pub struct ServerMonitor {
    state: Arc<State>,
    budget: Budget,
    chunk_memory: usize,
}

impl ServerMonitor {
    /// What the server has done so far. Connections add to it within a tenth of a second.
    pub fn stats(&self) -> ServerStats {
        let mut stats = *self.state.stats();
        stats.chunk_memory = self.chunk_memory - self.budget.free();
        stats
    }

    /// What each connection has done so far and how it is, within a tenth of a second, in the order in
    /// which they were accepted.
    pub fn connections(&self) -> Vec<ConnectionStats> {
        self.state.connections()
    }
}

/// The Receives of all connections of a server, if the provider can share them.
fn shared_receives(config: &ServerConfig, limits: &Limits) -> Option<SharedReceiveQueue> {
    let size = largest_receive(config).bytes();
    let blocks = config.receive_memory / size;
    limits
        .shared_receives
        .then(|| SharedReceiveQueue::new(blocks, size))
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
            monitor: ServerMonitor {
                state,
                budget,
                chunk_memory,
            },
            stop,
            workers,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// What it has done so far. Connections add to it within a tenth of a second.
    pub fn stats(&self) -> ServerStats {
        self.monitor.stats()
    }

    /// Where others see what it does.
    pub fn monitor(&self) -> ServerMonitor {
        self.monitor.clone()
    }

    /// Waits until each event loop has run a task that is given to it now: for ever, if one hangs.
    pub async fn workers_respond(&self) {
        for worker in self.workers.iter() {
            worker.respond().await;
        }
    }

    /// Takes in no more connections, lets calls that are being answered finish (within
    /// [`drain_timeout`](ServerConfig::drain_timeout)), closes all connections and stops.
    pub async fn shutdown(self) -> ServerStats {
        self.stop.set();
        loop {
            let changed = self.monitor.state.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let state = &self.monitor.state;
            if !state.listening.load(SeqCst) && state.stats().connections == 0 {
                break;
            }
            changed.await;
        }
        info!(local = %self.local, "stopped");
        self.stats()
    }
}
