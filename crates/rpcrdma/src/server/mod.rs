//! The server: accepts connections and answers their calls.

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
use oncrpc::admission::Admission;
use oncrpc::warnings::Warnings;
use oncrpc::{ConnectionId, Service};
use receive_memory::ReceiveMemory;
use rpcrdma_proto::v2::characteristics::XcharSpec;
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

/// RPC-over-RDMA server. It accepts connections and answers their calls on its own threads, until
/// it is [shut down](Self::shutdown) or dropped.
pub struct Server {
    local: SocketAddr,
    monitor: ServerMonitor,
    stop: Stop,
    /// The threads end when this is dropped.
    workers: Arc<Vec<Worker>>,
}

/// Read access to a server's statistics, which may outlive the server.
#[derive(Clone)]
pub struct ServerMonitor {
    state: Arc<State>,
    budget: Budget,
    chunk_memory: usize,
}

impl ServerMonitor {
    /// Totals of the server, at most a tenth of a second old.
    pub fn stats(&self) -> ServerStats {
        let mut stats = *self.state.stats();
        stats.chunk_memory = self.chunk_memory - self.budget.free();
        stats
    }

    /// Statistics of each connection in the order of acceptance, at most a tenth of a second old.
    pub fn connections(&self) -> Vec<ConnectionStats> {
        self.state.connections()
    }

    /// What the client of a connection has said about the characteristics that are known here: nothing
    /// where version one is spoken, `None` if there is no such connection. What it says at the beginning is
    /// there before its first call is answered, later changes within a tenth of a second.
    pub fn peer_characteristics(&self, connection: ConnectionId) -> Option<XcharSpec> {
        self.state.characteristics(connection)
    }
}

/// Makes the shared receive queue of all connections, if the provider supports it.
fn shared_receives(config: &ServerConfig, limits: &Limits) -> Option<SharedReceiveQueue> {
    let size = largest_receive(config).bytes();
    let blocks = config.receive_memory / size;
    limits
        .shared_receives
        .then(|| SharedReceiveQueue::new(blocks, size))
}

impl Server {
    /// Listens on `on` and starts serving. Works in any tokio runtime.
    ///
    /// # Errors
    ///
    /// If it cannot listen on `on` or start threads, or if [the configured
    /// designs](ServerConfig::remote_invalidation) leave no version to speak.
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

    /// The address on which the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Totals so far, at most a tenth of a second old.
    pub fn stats(&self) -> ServerStats {
        self.monitor.stats()
    }

    /// Returns a monitor, which others can read statistics from.
    pub fn monitor(&self) -> ServerMonitor {
        self.monitor.clone()
    }

    /// Waits until each event loop has run a task that is queued now. Does not return if an event
    /// loop hangs.
    pub async fn workers_respond(&self) {
        for worker in self.workers.iter() {
            worker.respond().await;
        }
    }

    /// Stops accepting, waits for calls in service (for
    /// [`drain_timeout`](ServerConfig::drain_timeout) at most), closes all connections and returns
    /// the totals.
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
