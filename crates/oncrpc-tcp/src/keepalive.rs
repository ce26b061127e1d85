//! Detection of dead peers by TCP.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long a connection may be silent before TCP sends a keepalive probe.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// Interval of keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Number of unanswered keepalive probes after which the connection is closed.
const KEEPALIVE_PROBES: u32 = 3;

/// How long sent data may remain without acknowledgement, or a peer without room for it, before the
/// connection is closed: as long as a silent peer is waited for.
const USER_TIMEOUT: Duration = Duration::from_secs(90);

/// Sets the options of a connected socket: no delay of small messages, and an end for a connection
/// whose peer is gone without a word.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}
