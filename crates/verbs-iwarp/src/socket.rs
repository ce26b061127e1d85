//! TCP sockets: creation, options, and non-blocking I/O.

use crate::config::{Config, FpduPolicy};
use iwarp_proto::fpdu;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Unanswered questions of TCP that end a silent connection.
const KEEPALIVE_RETRIES: u32 = 3;

/// Connects, with everything set that must be set before.
pub(crate) async fn connect(to: SocketAddr, config: &Config) -> io::Result<TcpStream> {
    let socket = new(to)?;
    if is_this_machine(to.ip()) {
        set_buffers(SockRef::from(&socket), config);
    }
    let stream = socket.connect(to).await?;
    tune(&stream, config)?;
    Ok(stream)
}

/// Listens, with everything set that must be set before.
pub(crate) fn listen(on: SocketAddr, config: &Config) -> io::Result<TcpListener> {
    let socket = new(on)?;
    socket.set_reuseaddr(true)?;
    if is_this_machine(on.ip()) {
        set_buffers(SockRef::from(&socket), config);
    }
    socket.bind(on)?;
    socket.listen(BACKLOG)
}

fn new(addr: SocketAddr) -> io::Result<TcpSocket> {
    match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
}

/// Sets what every connection has, whichever end made it.
pub(crate) fn tune(stream: &TcpStream, config: &Config) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(config.keepalive_idle)
            .with_interval(config.keepalive_interval)
            .with_retries(KEEPALIVE_RETRIES),
    )?;
    socket.set_tcp_user_timeout(Some(config.user_timeout))?;
    Ok(())
}

/// Larger buffers for a connection that was accepted from this machine by a listener for all.
pub(crate) fn tune_accepted(stream: &TcpStream, peer: SocketAddr, config: &Config) {
    if is_this_machine(peer.ip()) {
        set_buffers(SockRef::from(stream), config);
    }
}

/// Explicit buffers bring 9 % between processes of one machine. The kernel may allow less.
fn set_buffers(socket: SockRef<'_>, config: &Config) {
    let size = config.loopback_socket_buffer;
    for set in [
        socket.set_send_buffer_size(size),
        socket.set_recv_buffer_size(size),
    ] {
        if let Err(error) = set {
            tracing::debug!(%error, size, "socket buffer");
        }
    }
}

fn is_this_machine(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Bytes of the largest ULPDU to send on a connection (RFC 5044 §4.5, §5.1).
pub(crate) fn max_ulpdu(stream: &TcpStream, policy: FpduPolicy, markers: bool) -> usize {
    match policy {
        FpduPolicy::Large => fpdu::LARGE_MULPDU,
        FpduPolicy::Max(bytes) => usize::from(bytes),
        FpduPolicy::Path => {
            let local = stream
                .peer_addr()
                .is_ok_and(|peer| is_this_machine(peer.ip()));
            let emss = SockRef::from(stream).tcp_mss().ok();
            path_ulpdu(local, emss, markers)
        }
    }
}

/// Bytes of the largest ULPDU that suits the path to a peer.
fn path_ulpdu(local: bool, emss: Option<u32>, markers: bool) -> usize {
    /// Bytes that fit a segment of Ethernet, if the kernel does not tell.
    const ETHERNET: u32 = 1448;
    if local {
        return fpdu::LARGE_MULPDU;
    }
    fpdu::mulpdu(emss.unwrap_or(ETHERNET) as usize, markers)
}

/// Reads what is there, straight from the descriptor.
pub(crate) fn read(fd: impl AsFd, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let read = rustix::io::retry_on_intr(|| match &mut *places {
        // The kernel copies no vector then; most looks are for small messages.
        [place] => recv(&fd, &mut **place, RecvFlags::empty()).map(|(read, _)| read),
        places => rustix::io::readv(&fd, places),
    });
    Ok(read?)
}

/// Writes what fits, straight to the descriptor.
pub(crate) fn write(fd: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let written = rustix::io::retry_on_intr(|| match slices {
        [slice] => send(&fd, slice, SendFlags::NOSIGNAL),
        // A peer that has gone must not end the process by a signal.
        slices => sendmsg(
            &fd,
            slices,
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        ),
    });
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn connections_notice_that_their_peer_is_gone_and_wait_with_no_byte() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let config = Config::default();
            let on = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let listener = listen(on, &config).unwrap();
            let stream = connect(listener.local_addr().unwrap(), &config);
            let stream = stream.await.unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), config.keepalive_idle);
            assert_eq!(
                socket.tcp_keepalive_interval().unwrap(),
                config.keepalive_interval
            );
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_RETRIES);
            assert_eq!(
                socket.tcp_user_timeout().unwrap(),
                Some(config.user_timeout)
            );
        });
    }

    #[test]
    fn fpdus_fit_the_tcp_segments_of_the_path_but_not_on_this_machine() {
        assert_eq!(path_ulpdu(false, Some(1448), false), 1442);
        assert_eq!(path_ulpdu(false, Some(1460), true), 1442);
        assert_eq!(path_ulpdu(false, Some(8948), false), 8942);
        assert_eq!(path_ulpdu(false, None, false), 1442);
        assert_eq!(path_ulpdu(true, Some(1448), true), fpdu::LARGE_MULPDU);
    }
}
