//! Configuration of a gateway.

use crate::mount_service::MountService;
use oncrpc::{Cause, LocalUsers};
use oncrpc_tcp::{IncomingStream, Limits, Stream};
use rpcrdma::{Client, ClientConfig, ServerConfig};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use verbs::{BoxFuture, Provider};

/// Largest reply, in bytes, to a call whose reply has no known bound: room for a READ of 1 MiB that
/// RPCSEC_GSS protects, with what is around its data.
///
/// Towards an RDMA upstream such a call offers a Reply chunk of this size (RFC 8166 §4.3.3).
pub const MAX_REPLY: usize = (1 << 20) + (64 << 10);

/// Largest reply, in bytes, to a call that is repeated because its reply did not fit (RFC 8267 §3.1):
/// the largest chunk of our clients and servers.
pub const MAX_RETRIED_REPLY: usize = 4 << 20;

/// Largest record in bytes from a TCP peer: a call or reply with 4 MiB of data, with what is around
/// it.
pub const MAX_RECORD: usize = (4 << 20) + (64 << 10);

/// Calls of one TCP client in service at a time. Further ones wait in its socket.
pub const MAX_TCP_CALLS: usize = 128;

/// How long a client may take to answer a call of the upstream. After that the upstream gets no reply.
pub const CALLBACK_TIMEOUT: Duration = Duration::from_secs(60);

/// The side of a gateway that clients connect to.
#[non_exhaustive]
pub enum Listen {
    /// RPC-over-RDMA.
    Rdma {
        /// Provider to listen over. [`Gateway::listen_also`](crate::Gateway::listen_also) adds others.
        provider: Arc<dyn Provider>,
        /// Address to listen on.
        addr: SocketAddr,
        /// Configuration of the server. The gateway sets its registries of connections.
        config: Box<ServerConfig>,
    },
    /// RPC over TCP.
    Tcp {
        /// The listening socket.
        listener: TcpListener,
        /// Limits of the server; see [`tcp_limits`].
        limits: Limits,
        /// Which addresses may connect; `None` for all.
        admit: Option<Arc<dyn Fn(IpAddr) -> bool + Send + Sync>>,
        /// Finds the local users behind connections from this machine.
        local_users: Option<Arc<dyn LocalUsers>>,
    },
    /// RPC over streams that something else accepts, as over TCP.
    Streams {
        /// Source of the connections.
        streams: mpsc::Receiver<IncomingStream>,
        /// Address that the gateway reports as that of its listener.
        addr: SocketAddr,
        /// Limits of the server; see [`tcp_limits`].
        limits: Limits,
    },
}

impl Listen {
    /// RPC-over-RDMA over one provider.
    pub fn rdma(provider: Arc<dyn Provider>, addr: SocketAddr, config: ServerConfig) -> Self {
        Self::Rdma {
            provider,
            addr,
            config: Box::new(config),
        }
    }

    /// RPC over TCP for every client, with the [usual limits](tcp_limits).
    pub fn tcp(listener: TcpListener) -> Self {
        Self::Tcp {
            listener,
            limits: tcp_limits(),
            admit: None,
            local_users: None,
        }
    }
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rdma { addr, .. } => write!(f, "rdma://{addr}"),
            Self::Tcp { listener, .. } => match listener.local_addr() {
                Ok(addr) => write!(f, "tcp://{addr}"),
                Err(_) => f.write_str("tcp"),
            },
            Self::Streams { addr, .. } => write!(f, "streams://{addr}"),
        }
    }
}

/// How long a call waits for memory, and others hold it that the upstream does not answer, before the
/// connection of these gives way.
pub(crate) const GIVES_WAY_AFTER: Duration = Duration::from_secs(30);

/// Limits of a gateway's TCP side: those of a file server, whose clients keep their connections.
pub fn tcp_limits() -> Limits {
    Limits {
        connections: 1024,
        connections_of_address: 512,
        record: MAX_RECORD,
        calls: MAX_TCP_CALLS,
        idle: Duration::from_secs(360),
        backward: CALLBACK_TIMEOUT,
        // The end of a client is that of its upstream connection, too.
        half_close: false,
        unanswered: Some(GIVES_WAY_AFTER),
        idle_gives_way: false,
        ..Limits::default()
    }
}

/// The side of a gateway that it connects to.
#[derive(Clone)]
#[non_exhaustive]
pub enum Upstream {
    /// RPC over TCP.
    Tcp {
        /// Addresses of the server, tried in order; at least one.
        addrs: Vec<SocketAddr>,
        /// Source ports of the connections.
        source_ports: SourcePorts,
    },
    /// RPC-over-RDMA.
    Rdma {
        /// Makes a connection to the server.
        connect: Arc<dyn ConnectRdma>,
        /// Addresses of the server, tried in order; at least one.
        addrs: Vec<SocketAddr>,
        /// Configuration of the client. The gateway sets the number of connections and the pool,
        /// turns reconnecting off, takes calls of the server itself, and limits what an idle
        /// connection costs: Receives of 4 KiB, and few backward credits.
        config: Box<ClientConfig>,
    },
    /// RPC over streams that something else connects, as over TCP.
    Streams {
        /// Makes a stream to the server.
        connect: Arc<dyn Connect>,
        /// Addresses of the server, tried in order; at least one.
        addrs: Vec<SocketAddr>,
    },
}

/// Makes streams to a server.
pub trait Connect: Send + Sync {
    /// Connects to an address of the server.
    fn connect(&self, to: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>>;
}

/// Makes RPC-over-RDMA connections to a server, over the provider that it chooses for each.
pub trait ConnectRdma: Send + Sync {
    /// Connects to an address of the server, with this configuration.
    fn connect(&self, to: SocketAddr, config: ClientConfig)
    -> BoxFuture<'_, Result<Client, Cause>>;
}

/// Connections over one provider.
struct Over(Arc<dyn Provider>);

impl ConnectRdma for Over {
    fn connect(
        &self,
        to: SocketAddr,
        config: ClientConfig,
    ) -> BoxFuture<'_, Result<Client, Cause>> {
        Box::pin(async move { Ok(Client::connect(Arc::clone(&self.0), to, config).await?) })
    }
}

impl Upstream {
    /// RPC over TCP to one address, from any source port.
    pub fn tcp(addr: SocketAddr) -> Self {
        Self::Tcp {
            addrs: vec![addr],
            source_ports: SourcePorts::Any,
        }
    }

    /// RPC-over-RDMA over one provider to one address.
    pub fn rdma(provider: Arc<dyn Provider>, addr: SocketAddr, config: ClientConfig) -> Self {
        Self::Rdma {
            connect: Arc::new(Over(provider)),
            addrs: vec![addr],
            config: Box::new(config),
        }
    }

    /// The addresses of the server.
    pub fn addrs(&self) -> &[SocketAddr] {
        match self {
            Self::Tcp { addrs, .. } | Self::Rdma { addrs, .. } | Self::Streams { addrs, .. } => {
                addrs
            }
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self {
            Self::Tcp { .. } => "tcp",
            Self::Rdma { .. } => "rdma",
            Self::Streams { .. } => "streams",
        };
        let addrs: Vec<String> = self.addrs().iter().map(ToString::to_string).collect();
        write!(f, "{scheme}://{}", addrs.join(","))
    }
}

/// Source ports of TCP connections to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourcePorts {
    /// Any port that the system chooses.
    #[default]
    Any,
    /// Ports below 1024, which servers ask for with the export option `secure`. Needs the privilege
    /// to bind them. Whoever may use the gateway then has what the server grants to such ports.
    Reserved,
}

/// Configuration of a [`Gateway`](crate::Gateway), apart from its two sides.
///
/// ```
/// use gateway::GatewayConfig;
/// use std::time::Duration;
///
/// let config = GatewayConfig::default().with_connect_window(Duration::from_secs(5));
/// assert_eq!(config.connect_timeout, Duration::from_secs(10));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GatewayConfig {
    /// Time limit for one attempt to connect to the upstream.
    pub connect_timeout: Duration,
    /// How long attempts to connect to the upstream are repeated. After that the client's connection
    /// is closed, so that it connects again and causes new attempts.
    pub connect_window: Duration,
    /// Pause after the first failed attempt. Doubles with each attempt.
    pub retry_first: Duration,
    /// Longest pause between two attempts: how long a client may wait for an upstream that is back.
    pub retry_most: Duration,
    /// How long the upstream may take to answer a call. After that both connections are closed,
    /// because only the client knows whether the call may be repeated.
    pub call_timeout: Duration,
    /// Largest reply in bytes to a call whose reply has no known bound; no more than a chunk of the
    /// client of an RDMA upstream.
    pub max_reply: usize,
    /// Largest reply in bytes to a call that is repeated because its reply did not fit; no more than
    /// a chunk of the client, too.
    pub max_retried_reply: usize,
    /// Bytes of memory for replies on all connections together: of an RDMA upstream from the call, of a
    /// TCP upstream from their arrival. What needs more waits. One address may use as much as they leave
    /// free, half if nobody else calls.
    pub reply_memory: usize,
    /// Number of threads for a TCP side that listens: 1, or 0 for the runtime on which the gateway
    /// was bound. An RDMA side has [its own setting](ServerConfig::workers).
    pub workers: usize,
    /// Name of the upstream in the log, as `tcp://filer:2049`; by default its addresses.
    pub upstream_name: Option<String>,
    /// Whether clients are told that the server does not support pNFS (RFC 8881 §13.1), whose clients would
    /// read and write at its data servers, past the gateway. Not under RPCSEC_GSS with integrity or
    /// privacy.
    pub hide_pnfs: bool,
    /// MOUNT of the upstream, where the upstream does not answer it; without one, it is the upstream
    /// that says that it has none.
    pub mount: Option<Arc<dyn MountService>>,
}

impl GatewayConfig {
    buffer::setters! {
        with_connect_timeout(connect_timeout: Duration),
        with_connect_window(connect_window: Duration),
        with_retry_first(retry_first: Duration),
        with_retry_most(retry_most: Duration),
        with_call_timeout(call_timeout: Duration),
        with_max_reply(max_reply: usize),
        with_max_retried_reply(max_retried_reply: usize),
        with_reply_memory(reply_memory: usize),
        with_workers(workers: usize),
        with_upstream_name(upstream_name: Option<String>),
        with_hide_pnfs(hide_pnfs: bool),
        with_mount(mount: Option<Arc<dyn MountService>>),
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            connect_window: Duration::from_secs(30),
            retry_first: Duration::from_millis(100),
            retry_most: Duration::from_secs(1),
            call_timeout: Duration::from_secs(300),
            max_reply: MAX_REPLY,
            max_retried_reply: MAX_RETRIED_REPLY,
            reply_memory: 64 << 20,
            workers: 1,
            upstream_name: None,
            hide_pnfs: false,
            mount: None,
        }
    }
}
