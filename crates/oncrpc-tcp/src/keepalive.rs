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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn peer_that_is_gone_without_a_word_is_found_out_within_the_user_timeout() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (ours, theirs) = tokio::join!(TcpStream::connect(addr), listener.accept());
        for stream in [ours.unwrap(), theirs.unwrap().0] {
            prepare(&stream).unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
            let after = socket.tcp_keepalive_time().unwrap();
            let interval = socket.tcp_keepalive_interval().unwrap();
            let probes = socket.tcp_keepalive_retries().unwrap();
            assert_eq!(after + probes * interval, USER_TIMEOUT);
        }
    }
}
