//! The programs of a server over TCP, beside RPC-over-RDMA: on the same event loops, and with the same places for connections.

use crate::listen;
use anyhow::Context;
use buffer::Pool;
use nfs_server::{Exports, MAX_WRITE};
use oncrpc::{Connections, LocalUsers, Service};
use oncrpc_tcp::{Backchannels, Limits, ServerMonitor};
use rpcrdma::{Server, ServerConfig};
use std::io;
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Bytes of a call beside the data of a WRITE.
const AROUND_DATA: usize = 64 << 10;

/// Connections that the system keeps until they are accepted, as the socket units have it.
const BACKLOG: u32 = 1024;

/// A server over TCP. It ends when it is dropped.
pub(super) struct TcpServer {
    /// Addresses that it listens at: one at least.
    pub(super) addrs: Vec<SocketAddr>,
    /// Whether its sockets are those of the service manager.
    pub(super) is_adopted: bool,
    pub(super) monitor: ServerMonitor,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

/// Configuration that is that of RPC-over-RDMA: limits, local users and registries of connections.
pub(super) struct Terms {
    limits: Limits,
    local_users: Option<Arc<dyn LocalUsers>>,
    connections: Option<Connections>,
    backchannels: Option<Backchannels>,
}

impl From<&ServerConfig> for Terms {
    fn from(config: &ServerConfig) -> Self {
        Self {
            limits: Limits {
                connections: config.max_connections,
                connections_of_address: config.max_connections_per_address,
                record: MAX_WRITE as usize + AROUND_DATA,
                calls: config.credits as usize,
                memory: config.chunk_memory,
                idle: config.idle_timeout.unwrap_or(Duration::MAX),
                backward: config.backward_timeout,
                drain: config.drain_timeout,
                unanswered: config.unanswered,
                idle_gives_way: false,
                connections_hint: config.connections_hint,
                ..Limits::default()
            },
            local_users: config.local_users.clone(),
            connections: config.connections.clone(),
            backchannels: config.backchannels.clone(),
        }
    }
}

impl TcpServer {
    /// Listens at these addresses, or uses sockets that do, if there are some, and serves those whom an export is for on the
    /// event loops of the server `beside`. Without addresses and sockets there is none.
    ///
    /// # Errors
    ///
    /// If it cannot listen at each of them.
    pub(super) fn start(
        on: &[SocketAddr],
        held: Vec<(SocketAddr, net::TcpListener)>,
        (terms, pool): (Terms, Pool),
        beside: &Server,
        service: Arc<dyn Service>,
        exports: Exports,
    ) -> anyhow::Result<Option<Self>> {
        let is_adopted = !held.is_empty();
        if on.is_empty() && !is_adopted {
            return Ok(None);
        }
        let workers = beside.workers();
        let runtime = workers.first().runtime().clone();
        let within = runtime.enter();
        let sockets: Vec<TcpListener> = match is_adopted {
            true => {
                let sockets = held.into_iter().map(|(_, socket)| adopted(socket));
                let sockets: io::Result<_> = sockets.collect();
                sockets.context("the socket named tcp")?
            }
            false => {
                let bind = |addr: &SocketAddr| {
                    bound(*addr).map_err(|error| listen::explain(error, *addr, listen::TCP_OPTION))
                };
                on.iter().map(bind).collect::<anyhow::Result<_>>()?
            }
        };
        drop(within);
        let addrs = sockets.iter().map(TcpListener::local_addr);
        let addrs: io::Result<Vec<SocketAddr>> = addrs.collect();
        let addrs = addrs.context("cannot listen")?;
        let mut server = oncrpc_tcp::Server::listening(sockets, service, terms.limits)
            .admit(move |addr| exports.admits(addr))
            .admission(beside.admission())
            .local_users(terms.local_users)
            .pool(pool)
            .workers(workers);
        if let Some(connections) = terms.connections {
            server = server.connections(connections);
        }
        if let Some(backchannels) = terms.backchannels {
            server = server.backchannels(backchannels);
        }
        let monitor = server.monitor();
        let (stop, stopped) = oneshot::channel::<()>();
        // A dropped sender ends it, too.
        let ended = runtime.spawn(server.run(async move { drop(stopped.await) }));
        Ok(Some(Self {
            addrs,
            is_adopted,
            monitor,
            stop,
            ended,
        }))
    }

    /// Answers what was begun, and ends.
    pub(super) async fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        let _ = self.ended.await;
    }
}

fn bound(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

fn adopted(socket: net::TcpListener) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}
