//! The upstream connection of a relay.

use crate::config::{Connect, ConnectRdma, MAX_RECORD, SourcePorts, Upstream};
use crate::ports::Lease;
use crate::session::Sizes;
use crate::stats::UpstreamConnection;
use buffer::Pool;
use oncrpc::xdr::{Payload, padded};
use oncrpc::{Cause, ConnectionId, ReplyBound, Service, Transport, TransportError};
use oncrpc_tcp::{LocalPort, ReplyMemory, WarningLog};
use rpcrdma::{ClientConfig, InlineThreshold};
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Calls of a TCP upstream to one client at a time, and as many wait if replies may be behind them.
const MAX_TCP_CALLBACKS: usize = 16;

/// Largest call of a TCP upstream to a client, in bytes: many times what clients take. Its replies
/// to their calls are larger.
const MAX_CALLBACK: usize = 64 << 10;

/// Calls of an RDMA upstream to one client at a time. Each has a Receive, also while the relay is idle.
const MAX_CALLBACKS: u32 = 2;

/// Bytes of a header with one Write chunk of sixteen segments (RFC 8267 §6.4.2), of either version.
const WRITE_CHUNK_HEADER: usize = 512;

/// How often a kept source port is tried, and the pause in between: the system may still be closing
/// the connection that had it.
const KEPT_PORT_TRIES: u32 = 10;
const KEPT_PORT_PAUSE: Duration = Duration::from_millis(5);

/// A connection to the upstream server.
pub(crate) enum UpstreamClient {
    Tcp {
        /// The source port, which is kept for the next connection of the same client. Dropped first:
        /// it is kept by the time the server sees the end of the connection.
        _port: Lease,
        client: oncrpc_tcp::Client,
    },
    Rdma {
        client: rpcrdma::Client,
        /// Largest chunk in bytes that it offers.
        max_chunk: usize,
    },
}

/// Parameters of a relay's attempt to connect.
pub(crate) struct Connector<'a> {
    pub(crate) upstream: &'a Upstream,
    /// Time limit of one attempt.
    pub(crate) timeout: Duration,
    /// Time limit of a call.
    pub(crate) call_timeout: Duration,
    /// Takes calls of the upstream.
    pub(crate) callbacks: Arc<dyn Service>,
    /// Limits warnings about the upstream, over all connections to it.
    pub(crate) log: &'a Arc<WarningLog>,
    /// Memory for records of the upstream.
    pub(crate) pool: &'a Pool,
    /// Budget for replies of a TCP upstream.
    pub(crate) replies: Arc<dyn ReplyMemory>,
}

impl Connector<'_> {
    /// Makes one attempt for each address of the upstream. Returns the last error.
    pub(crate) async fn attempt(&self, port: &mut Lease) -> Result<UpstreamClient, Cause> {
        let mut last = None;
        for &addr in self.upstream.addrs() {
            match self.attempt_one(addr, port).await {
                Ok(upstream) => return Ok(upstream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::other("the upstream has no address").into()))
    }

    async fn attempt_one(
        &self,
        addr: SocketAddr,
        port: &mut Lease,
    ) -> Result<UpstreamClient, Cause> {
        match self.upstream {
            Upstream::Tcp { source_ports, .. } => {
                let client = self.connect_tcp(addr, *source_ports, port.port()).await?;
                if let Some(local) = client.local_addr() {
                    port.set(local.port());
                }
                Ok(UpstreamClient::Tcp {
                    client,
                    _port: std::mem::take(port),
                })
            }
            Upstream::Streams { connect, .. } => Ok(UpstreamClient::Tcp {
                client: self.connect_stream(addr, connect).await?,
                _port: Lease::default(),
            }),
            Upstream::Rdma {
                connect, config, ..
            } => self.connect_rdma(connect, addr, config).await,
        }
    }

    /// Connects from the kept source port if that is possible.
    async fn connect_tcp(
        &self,
        addr: SocketAddr,
        ports: SourcePorts,
        kept: Option<u16>,
    ) -> Result<oncrpc_tcp::Client, TransportError> {
        let any: IpAddr = match addr {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let config = self
            .config()
            // Its client is gone by then, and sends again what is still in flight.
            .with_reset_at_end(true);
        if let Some(port) = kept {
            let config = config
                .clone()
                .with_local_port(LocalPort::Exactly((any, port).into()));
            for _ in 0..KEPT_PORT_TRIES {
                match oncrpc_tcp::Client::connect_with(addr, &config).await {
                    Ok(client) => return Ok(client),
                    Err(error) if is_in_use(&error) => tokio::time::sleep(KEPT_PORT_PAUSE).await,
                    Err(_) => break,
                }
            }
        }
        let config = config.with_local_port(match ports {
            SourcePorts::Any => LocalPort::Any,
            SourcePorts::Reserved => LocalPort::Reserved,
        });
        oncrpc_tcp::Client::connect_with(addr, &config).await
    }

    /// Connects by what the configuration brings.
    async fn connect_stream(
        &self,
        addr: SocketAddr,
        connect: &Arc<dyn Connect>,
    ) -> io::Result<oncrpc_tcp::Client> {
        let connected = tokio::time::timeout(self.timeout, connect.connect(addr));
        let stream = connected.await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(oncrpc_tcp::Client::over_with(stream, &self.config()))
    }

    /// Configuration of each client over TCP.
    fn config(&self) -> oncrpc_tcp::ClientConfig {
        oncrpc_tcp::ClientConfig::new(self.timeout)
            .with_call_timeout(self.call_timeout)
            .with_max_record(MAX_RECORD)
            .with_callbacks(Arc::clone(&self.callbacks))
            .with_callback_limits(MAX_TCP_CALLBACKS, MAX_CALLBACK)
            .with_log(Arc::clone(self.log))
            .with_pool(self.pool.clone())
            .with_reply_memory(Arc::clone(&self.replies))
    }

    async fn connect_rdma(
        &self,
        connect: &Arc<dyn ConnectRdma>,
        addr: SocketAddr,
        config: &ClientConfig,
    ) -> Result<UpstreamClient, Cause> {
        let config = config
            .clone()
            .with_connections(1_usize)
            .with_reconnect(false)
            .with_setup_timeout(self.timeout)
            .with_call_timeout(self.call_timeout)
            .with_callbacks(Arc::clone(&self.callbacks))
            .with_backward_credits(config.backward_credits.min(MAX_CALLBACKS))
            // Receives are most of the memory of an idle relay, where they have memory before a message
            // arrives. In version two a server asks for larger ones where they are of use.
            .with_receives_on_arrival(true)
            .with_receive_size(config.receive_size.min(InlineThreshold::DEFAULT))
            .with_pool(self.pool.clone());
        let max_chunk = config.max_chunk;
        let client = connect.connect(addr, config).await?;
        let info = client.connection();
        Ok(UpstreamClient::Rdma {
            max_chunk: info.map_or(max_chunk, |info| info.max_chunk),
            client,
        })
    }
}

impl UpstreamClient {
    /// Published state of the connection, which belongs to that of a client.
    pub(crate) fn seen(&self, client: ConnectionId) -> UpstreamConnection {
        match self {
            Self::Tcp { .. } => UpstreamConnection {
                client,
                device: None,
                remote_invalidations: 0,
            },
            Self::Rdma { client: rdma, .. } => UpstreamConnection {
                client,
                device: rdma.connection().and_then(|info| info.device),
                remote_invalidations: rdma.counters().remote_invalidations,
            },
        }
    }

    /// Passes a call on and waits for its reply, of which the client can take so many bytes.
    pub(crate) async fn call(
        &self,
        call: Payload,
        bound: ReplyBound,
        most: usize,
    ) -> Result<Payload, TransportError> {
        match self {
            Self::Tcp { client, .. } => client.call_within(call, most).await,
            Self::Rdma { client, .. } => client.call(call, bound).await,
        }
    }

    /// Largest chunk in bytes that the connection can offer to the upstream; any over TCP.
    pub(crate) fn max_chunk(&self) -> usize {
        match self {
            Self::Tcp { .. } => usize::MAX,
            Self::Rdma { max_chunk, .. } => *max_chunk,
        }
    }

    /// Returns a bound with no more than the connection can offer chunks for. A call that asked for more would never be
    /// sent; its upstream may answer with less.
    pub(crate) fn within_chunks(&self, mut bound: ReplyBound) -> ReplyBound {
        let most = self.max_chunk();
        bound.fixed = bound.fixed.min(most);
        for result in &mut bound.results {
            *result = (*result).min(most);
        }
        // A reply whose rest does not fit a Send comes in one Reply chunk, with its results.
        let results = bound.results.iter().map(|&len| padded(len));
        let whole = results.fold(bound.fixed, usize::saturating_add);
        match whole > most && bound.fixed > self.beside_write_chunk() {
            true => ReplyBound::new(most),
            false => bound,
        }
    }

    /// Bytes of a reply beside its result in a Write chunk that fit a Send.
    fn beside_write_chunk(&self) -> usize {
        match self {
            Self::Tcp { .. } => usize::MAX,
            Self::Rdma { client, .. } => client.connection().map_or(0, |info| {
                let most = info.thresholds.receive.bytes();
                most.saturating_sub(WRITE_CHUNK_HEADER)
            }),
        }
    }

    /// Largest callback of the upstream, and reply: what fits one Send, or the limit over TCP.
    pub(crate) fn callback_sizes(&self) -> Option<Sizes> {
        /// Header without chunks (RFC 8166 §4.1).
        const HEADER: usize = 28;
        match self {
            Self::Tcp { .. } => Some(Sizes::both(MAX_CALLBACK)),
            Self::Rdma { client, .. } => client.connection().map(|info| Sizes {
                call: info.thresholds.receive.bytes() - HEADER,
                reply: info.thresholds.send.bytes() - HEADER,
            }),
        }
    }

    /// Makes an XID, which a call of a client may have too.
    pub(crate) fn next_xid(&self) -> u32 {
        match self {
            Self::Tcp { client, .. } => client.next_xid(),
            Self::Rdma { client, .. } => client.next_xid(),
        }
    }

    /// Waits for the end of the connection. Calls in flight have ended by then.
    pub(crate) async fn ended(&self) -> TransportError {
        match self {
            Self::Tcp { client, .. } => TransportError::Disconnected(client.ended().await),
            Self::Rdma { client, .. } => client.ended().await,
        }
    }

    /// Closes the connection.
    pub(crate) async fn close(&self) {
        match self {
            // The last owner of the client closes its socket.
            Self::Tcp { .. } => {}
            Self::Rdma { client, .. } => client.close().await,
        }
    }
}

/// Whether another socket has the source port.
fn is_in_use(error: &TransportError) -> bool {
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::AddrInUse;
        }
        cause = error.source();
    }
    false
}
