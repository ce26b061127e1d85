//! The server: accepts connections and answers their calls.

mod accept;
mod addresses;
mod asking;
mod backchannel;
mod backward_memory;
mod deliveries;
mod grants;
mod kept;
mod receive_memory;
mod serve;
mod settings;
mod stats;
mod worker;

use crate::ServerConfig;
use crate::driver::budget::Budget;
use accept::{Acceptor, largest_receive};
use addresses::{Addresses, ReceiveQueue};
use backward_memory::BackwardMemory;
use oncrpc::{ConnectionId, Service};
use receive_memory::ReceiveMemory;
use rpc_serving::admission::{Admission, ConnectionLimits};
use rpc_serving::ends::Stop;
use rpc_serving::jobs::{Jobs, MAX_BLOCKING};
use rpc_serving::warning_log::WarningLog;
use rpc_serving::workers::Workers;
use rpcrdma_proto::v2::characteristics::XcharSpec;
use settings::{Listened, Settings, terms};
use stats::State;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use tracing::info;
use verbs::{Limits, Provider, SetupError, SharedReceiveQueue};
use worker::Worker;

pub use stats::{ConnectionState, ConnectionStats, ServerStats};

/// RPC-over-RDMA server. It accepts connections and answers their calls on its own threads, until
/// it is [shut down](Self::shutdown) or dropped.
pub struct Server {
    local: SocketAddr,
    monitor: ServerMonitor,
    settings: Arc<Settings>,
    /// The providers over which it listens.
    providers: Mutex<Vec<Arc<Listened>>>,
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
    admission: Admission,
}

impl ServerMonitor {
    /// Totals of the server, at most a tenth of a second old.
    pub fn stats(&self) -> ServerStats {
        let mut stats = *self.state.stats();
        stats.chunk_memory = self.chunk_memory - self.budget.free();
        stats
    }

    /// Connections that were refused as there were too many of all, or of their address, by all servers that share the admission
    /// control of this one.
    pub fn refused_as_too_many(&self) -> u64 {
        self.admission.refused()
    }

    /// Statistics of each connection in the order of acceptance, at most a tenth of a second old.
    pub fn connections(&self) -> Vec<ConnectionStats> {
        self.state.connections()
    }

    /// Characteristics that the client of a connection has announced, of those known here: nothing
    /// where version one is spoken, `None` if there is no such connection. What it says at the beginning is
    /// there before its first call is answered, later changes within a tenth of a second.
    pub fn peer_characteristics(&self, connection: ConnectionId) -> Option<XcharSpec> {
        self.state.characteristics(connection)
    }
}

/// Makes the shared receive queue of all connections over a provider, if it supports one.
fn shared_receives(config: &ServerConfig, limits: &Limits) -> Option<Arc<ReceiveQueue>> {
    let size = largest_receive(config).bytes();
    let blocks = config.receive_memory / size;
    limits.shared_receives.then(|| {
        let all = SharedReceiveQueue::new(blocks, size);
        Arc::new(ReceiveQueue::new(all, limits.holds_peer_back))
    })
}

/// Whether there is a version to speak over a provider. Otherwise a server would refuse everybody.
fn speaks(config: &ServerConfig, provider: &dyn Provider) -> Result<(), SetupError> {
    terms(config, &provider.limits()).versions(config.versions)?;
    Ok(())
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
        speaks(&config, &*provider)?;
        let workers = match config.workers {
            0 => vec![Worker::here(config.pool.clone())],
            many => (0..many)
                .map(|number| Worker::start(number, config.pool.clone()))
                .collect::<Result<_, _>>()?,
        };
        let chunk_memory = config.chunk_memory;
        let admission = Admission::new(config.connection_limits());
        let budget = Budget::giving_way(chunk_memory, config.unanswered);
        let log = WarningLog::default();
        if let Some(name) = &config.listener_name {
            log.name_listener(|| name.to_string());
        }
        let settings = Settings {
            service,
            budget: budget.clone(),
            admission: admission.clone(),
            receive_memory: ReceiveMemory::new(config.receive_memory),
            addresses: Addresses::default(),
            log,
            jobs: Jobs::new(MAX_BLOCKING),
            backward_memory: BackwardMemory::new(config.backward_memory),
            config,
        };
        let mut server = Self {
            local: on,
            monitor: ServerMonitor {
                state: Arc::default(),
                budget,
                chunk_memory,
                admission,
            },
            settings: Arc::new(settings),
            providers: Mutex::default(),
            stop: Stop::default(),
            workers: Arc::new(workers),
        };
        server.local = server.listen_also(provider, on).await?;
        Ok(server)
    }

    /// Listens on a further address, or over a further provider, and returns the address. All
    /// connections of a server share its service, its limits and its statistics, whichever way they
    /// came; [`receive_memory`](ServerConfig::receive_memory) is for each provider.
    ///
    /// ```
    /// # use std::{net::SocketAddr, sync::Arc};
    /// # use rpcrdma::{Server, ServerConfig};
    /// # use rpcrdma::verbs::{Provider, SetupError};
    /// # async fn serve(
    /// #     software: Arc<dyn Provider>,
    /// #     devices: Arc<dyn Provider>,
    /// #     on: SocketAddr,
    /// #     service: Arc<dyn rpcrdma::Service>,
    /// # ) -> Result<(), SetupError> {
    /// let server = Server::bind(software, on, service, ServerConfig::default()).await?;
    /// server.listen_also(devices, server.local_addr()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If it cannot listen there, or if [the configured designs](ServerConfig::remote_invalidation)
    /// leave no version to speak over this provider. The server goes on without it.
    pub async fn listen_also(
        &self,
        provider: Arc<dyn Provider>,
        on: SocketAddr,
    ) -> Result<SocketAddr, SetupError> {
        speaks(&self.settings.config, &*provider)?;
        let acceptor = Acceptor {
            settings: Arc::clone(&self.settings),
            on: self.listened(provider),
            state: Arc::clone(&self.monitor.state),
            // The threads end with the server, not with the acceptor that runs on one of them.
            workers: Arc::downgrade(&self.workers),
            stop: self.stop.clone(),
        };
        let (listening, listens) = oneshot::channel();
        self.workers[0].spawn(acceptor.run(on, listening));
        let local = match listens.await {
            Ok(result) => result?,
            Err(_) => return Err(std::io::Error::other("the server's thread has ended").into()),
        };
        info!(%local, "serving");
        Ok(local)
    }

    /// The provider with what its connections share, which is one value for all its listeners.
    fn listened(&self, provider: Arc<dyn Provider>) -> Arc<Listened> {
        let mut all = self.providers.lock();
        let all = all.as_mut().unwrap_or_else(PoisonError::get_mut);
        let known = all
            .iter()
            .find(|known| Arc::ptr_eq(&known.provider, &provider));
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let receives = shared_receives(&self.settings.config, &provider.limits());
        let listened = Arc::new(Listened { provider, receives });
        all.push(Arc::clone(&listened));
        listened
    }

    /// The address on which the server listens, the first of several.
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

    /// The event loops of the server, for one over another transport beside it. They end when both the server and what is
    /// returned are dropped.
    pub fn workers(&self) -> Workers {
        let all = self.workers.iter().map(|worker| worker.shared.clone());
        Workers::new(all, Arc::clone(&self.workers) as _)
    }

    /// Admission control of the server, for one over another transport beside it that shares the limits.
    pub fn admission(&self) -> Admission {
        self.settings.admission.clone()
    }

    /// Limits connections to fewer than [configured](ServerConfig::max_connections), from now on, and
    /// those of one address to half of them. Connections beyond that stay, until new ones take the
    /// places of idle ones. For servers that share what connections need, such as descriptors.
    pub fn limit_connections(&self, connections: usize) {
        let config = &self.settings.config;
        let connections = connections.clamp(1, config.max_connections);
        let of_address = config
            .max_connections_per_address
            .min(connections.div_ceil(2));
        let limits =
            ConnectionLimits::new(connections, of_address).with_hint(config.connections_hint);
        self.settings.admission.set_limits(limits);
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
            if state.listening.load(SeqCst) == 0 && state.stats().connections == 0 {
                break;
            }
            changed.await;
        }
        info!(local = %self.local, "stopped");
        self.stats()
    }
}
