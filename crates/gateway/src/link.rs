//! The upstream connection of a pair.

use crate::config::{SourcePorts, Upstream};
use crate::ports::Lease;
use oncrpc::xdr::Payload;
use oncrpc::{Cause, ReplyBound, Transport, TransportError};
use rpcrdma::ClientConfig;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use verbs::Provider;

/// How long an upstream may be silent before TCP sends a keepalive probe.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// Interval of keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Number of unanswered keepalive probes after which an upstream is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// How long sent data may stay unacknowledged before an upstream is given up (RFC 5482).
const USER_TIMEOUT: Duration = Duration::from_secs(45);

/// Attempts to find a free reserved port for one connection.
const MAX_RESERVED_PORT_ATTEMPTS: u16 = 64;

/// The reserved ports that are used: those that the Linux client uses too.
const RESERVED: std::ops::RangeInclusive<u16> = 665..=1023;

/// A connection to the upstream server.
pub(crate) enum Link {
    Tcp {
        client: oncrpc_tcp::Client,
        /// The source port, which is kept for the next connection of the same client.
        _port: Lease,
    },
    Rdma(rpcrdma::Client),
}

/// What a pair connects with.
pub(crate) struct Connector<'a> {
    pub(crate) upstream: &'a Upstream,
    /// Time limit of one attempt.
    pub(crate) timeout: Duration,
    /// Time limit of a call.
    pub(crate) call_timeout: Duration,
}

impl Connector<'_> {
    /// Makes one attempt for each address of the upstream. Returns the last error.
    pub(crate) async fn attempt(&self, port: &mut Lease) -> Result<Link, Cause> {
        let mut last = None;
        for &addr in self.upstream.addrs() {
            match self.attempt_one(addr, port).await {
                Ok(link) => return Ok(link),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::other("the upstream has no address").into()))
    }

    async fn attempt_one(&self, addr: SocketAddr, port: &mut Lease) -> Result<Link, Cause> {
        match self.upstream {
            Upstream::Tcp { source_ports, .. } => {
                let made = connect_tcp(addr, *source_ports, port.port());
                let stream = tokio::time::timeout(self.timeout, made)
                    .await
                    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
                port.set(stream.local_addr()?.port());
                Ok(Link::Tcp {
                    client: oncrpc_tcp::Client::over(stream, self.call_timeout),
                    _port: std::mem::take(port),
                })
            }
            Upstream::Rdma {
                provider, config, ..
            } => self.connect_rdma(provider, addr, config).await,
        }
    }

    async fn connect_rdma(
        &self,
        provider: &Arc<dyn Provider>,
        addr: SocketAddr,
        config: &ClientConfig,
    ) -> Result<Link, Cause> {
        let config = config
            .clone()
            .with_connections(1_usize)
            .with_reconnect(false)
            .with_setup_timeout(self.timeout)
            .with_call_timeout(self.call_timeout);
        let client = rpcrdma::Client::connect(Arc::clone(provider), addr, config).await?;
        Ok(Link::Rdma(client))
    }
}

impl Link {
    /// Passes a call on and waits for its reply.
    pub(crate) async fn call(
        &self,
        call: Payload,
        bound: ReplyBound,
    ) -> Result<Payload, TransportError> {
        match self {
            Self::Tcp { client, .. } => client.call(call, bound).await,
            Self::Rdma(client) => client.call(call, bound).await,
        }
    }

    /// Waits for the end of the connection. Calls in flight have ended by then.
    pub(crate) async fn ended(&self) -> TransportError {
        match self {
            Self::Tcp { .. } => std::future::pending().await,
            Self::Rdma(client) => client.ended().await,
        }
    }

    /// Closes the connection.
    pub(crate) async fn close(&self) {
        match self {
            // The last owner of the client closes its socket.
            Self::Tcp { .. } => {}
            Self::Rdma(client) => client.close().await,
        }
    }
}

/// Connects a socket, from the kept source port if that is possible.
async fn connect_tcp(
    to: SocketAddr,
    ports: SourcePorts,
    kept: Option<u16>,
) -> io::Result<TcpStream> {
    if let Some(port) = kept
        && let Ok(stream) = connect_from(to, port).await
    {
        return Ok(stream);
    }
    match ports {
        SourcePorts::Any => connect_from(to, 0).await,
        SourcePorts::Reserved => connect_from_reserved(to).await,
    }
}

async fn connect_from_reserved(to: SocketAddr) -> io::Result<TcpStream> {
    let ports = RESERVED.end() - RESERVED.start() + 1;
    let first = random_below(ports);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for step in 0..MAX_RESERVED_PORT_ATTEMPTS.min(ports) {
        let port = RESERVED.start() + (first + step) % ports;
        match connect_from(to, port).await {
            Ok(stream) => return Ok(stream),
            Err(error) => match error.kind() {
                io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => last = error,
                _ => return Err(error),
            },
        }
    }
    Err(last)
}

/// Returns a number below `end`, differently each time, so that connections rarely try the same port.
fn random_below(end: u16) -> u16 {
    use std::hash::{BuildHasher, RandomState};
    let hash = RandomState::new().hash_one(0_u8) % u64::from(end);
    u16::try_from(hash).expect("a remainder is below its divisor")
}

async fn connect_from(to: SocketAddr, port: u16) -> io::Result<TcpStream> {
    let (socket, any): (_, SocketAddr) = match to {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, (Ipv4Addr::UNSPECIFIED, port).into()),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, (Ipv6Addr::UNSPECIFIED, port).into()),
    };
    if port != 0 {
        // The port may have been that of the last connection of the same client.
        socket.set_reuseaddr(true)?;
        socket.bind(any)?;
    }
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    let options = SockRef::from(&stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    options.set_tcp_keepalive(&keepalive)?;
    options.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    // Closing it resets it, so that its port is free at once: the client is gone by then, and what it
    // still had in flight it sends again.
    options.set_linger(Some(Duration::ZERO))?;
    Ok(stream)
}
