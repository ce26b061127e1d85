//! The server of the side that clients connect to.

use crate::config::{CALLBACK_TIMEOUT, GIVES_WAY_AFTER, Listen};
use crate::state::{Forward, GatewayState};
use oncrpc::Service;
use oncrpc_tcp::Limits;
use rpc_serving::admission::Admission;
use rpcrdma::{Server, ServerConfig, ServerMonitor};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use verbs::{Provider, SetupError};

/// A listening server. It ends when it is dropped.
pub(crate) enum Listening {
    Rdma(Server),
    Tcp(TcpServer),
}

/// A server over TCP with its thread, if it has one.
pub(crate) struct TcpServer {
    addr: SocketAddr,
    limits: Limits,
    admission: Admission,
    /// Runtime of the server.
    runtime: Handle,
    stop: oneshot::Sender<()>,
    /// Fails once the server has ended.
    ended: oneshot::Receiver<()>,
}

impl Listening {
    pub(crate) async fn start(
        listen: Listen,
        gateway: &Arc<GatewayState>,
    ) -> Result<Self, SetupError> {
        match listen {
            Listen::Rdma {
                provider,
                addr,
                config,
            } => rdma(provider, addr, *config, gateway).await.map(Self::Rdma),
            Listen::Tcp {
                listener,
                limits,
                admit,
                local_users,
            } => {
                listener.set_nonblocking(true)?;
                let addr = listener.local_addr()?;
                let make = move |service| {
                    let listener = tokio::net::TcpListener::from_std(listener)?;
                    let server = oncrpc_tcp::Server::new(listener, service, limits);
                    let server = match admit {
                        Some(admit) => server.admit(move |addr| admit(addr)),
                        None => server,
                    };
                    Ok(server.local_users(local_users))
                };
                Ok(Self::Tcp(TcpServer::start(addr, limits, make, gateway)?))
            }
            Listen::Streams {
                streams,
                addr,
                limits,
            } => {
                let make = move |service| Ok(oncrpc_tcp::Server::over(streams, service, limits));
                Ok(Self::Tcp(TcpServer::start(addr, limits, make, gateway)?))
            }
        }
    }

    /// Listens over a further provider, which TCP has none of.
    pub(crate) async fn listen_also(
        &self,
        provider: Arc<dyn Provider>,
        on: SocketAddr,
    ) -> Result<SocketAddr, SetupError> {
        match self {
            Self::Rdma(server) => server.listen_also(provider, on).await,
            Self::Tcp(_) => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
        }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        match self {
            Self::Rdma(server) => server.local_addr(),
            Self::Tcp(server) => server.addr,
        }
    }

    /// Statistics of the server, if it is one of RPC-over-RDMA.
    pub(crate) fn monitor(&self) -> Option<ServerMonitor> {
        match self {
            Self::Rdma(server) => Some(server.monitor()),
            Self::Tcp(_) => None,
        }
    }

    /// Admission of clients, if they connect over TCP.
    pub(crate) fn tcp_admission(&self) -> Option<Admission> {
        match self {
            Self::Rdma(_) => None,
            Self::Tcp(server) => Some(server.admission.clone()),
        }
    }

    pub(crate) async fn workers_respond(&self) {
        match self {
            Self::Rdma(server) => server.workers_respond().await,
            Self::Tcp(server) => {
                if server.runtime.spawn(async {}).await.is_err() {
                    // The thread has ended, and answers nobody any more.
                    std::future::pending().await
                }
            }
        }
    }

    /// Limits the connections of clients to fewer than the configured ones; see
    /// [`Gateway::limit_connections`](crate::Gateway::limit_connections).
    pub(crate) fn limit_connections(&self, connections: usize) {
        match self {
            Self::Rdma(server) => server.limit_connections(connections),
            Self::Tcp(server) => {
                let limits = server.limits;
                let connections = connections.clamp(1, limits.connections);
                let most = connections.div_ceil(2);
                server.admission.set_limits(
                    Limits {
                        connections,
                        connections_of_address: limits.connections_of_address.min(most),
                        ..limits
                    }
                    .of_connections(),
                );
            }
        }
    }

    /// Stops accepting, finishes calls in service, and closes all connections.
    pub(crate) async fn shutdown(self) {
        match self {
            Self::Rdma(server) => drop(server.shutdown().await),
            Self::Tcp(server) => {
                // The send fails only if it has ended.
                let _ = server.stop.send(());
                let _ = server.ended.await;
            }
        }
    }
}

async fn rdma(
    provider: Arc<dyn Provider>,
    addr: SocketAddr,
    config: ServerConfig,
    gateway: &Arc<GatewayState>,
) -> Result<Server, SetupError> {
    let config = config
        .with_connections(gateway.connections.clone())
        .with_unanswered(Some(GIVES_WAY_AFTER))
        .with_backward_timeout(CALLBACK_TIMEOUT)
        .with_backchannels(gateway.backchannels.clone());
    let service = Arc::new(Forward(Arc::clone(gateway)));
    Server::bind(provider, addr, service, config).await
}

impl TcpServer {
    /// Starts the server that `make` makes of a service, within the runtime that it runs on.
    fn start(
        addr: SocketAddr,
        limits: Limits,
        make: impl FnOnce(Arc<dyn Service>) -> io::Result<oncrpc_tcp::Server> + Send + 'static,
        gateway: &Arc<GatewayState>,
    ) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (running, ended) = oneshot::channel::<()>();
        let service = Arc::new(Forward(Arc::clone(gateway)));
        let connections = gateway.connections.clone();
        let backchannels = gateway.backchannels.clone();
        let (pool, log) = (gateway.pool.clone(), Arc::clone(&gateway.log));
        let admission = Admission::new(limits.of_connections());
        let admits = admission.clone();
        let serve = async move {
            let server = match make(service) {
                Ok(server) => server,
                Err(error) => {
                    return tracing::error!(target: "gateway", %addr, %error, "cannot listen");
                }
            };
            let server = server
                .connections(connections)
                .backchannels(backchannels)
                .admission(admits)
                .log(log)
                .pool(pool);
            // Also if the gateway is dropped.
            server.run(async move { drop(stopped.await) }).await;
            drop(running);
        };
        let handle = match gateway.config.workers {
            0 => {
                tokio::spawn(serve);
                Handle::current()
            }
            _ => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let handle = runtime.handle().clone();
                std::thread::Builder::new()
                    .name("gateway-tcp".to_owned())
                    .spawn(move || runtime.block_on(serve))?;
                handle
            }
        };
        Ok(Self {
            addr,
            limits,
            admission,
            runtime: handle,
            stop,
            ended,
        })
    }
}
