//! The two ends of a TCP connection, as the kernel knows them.

use rustix::io::Errno;
use rustix::net::getpeername;
use rustix::net::netdevice::name_to_index;
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Addresses of a connection, in their canonical forms, and the interface of the server's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// The interface to which the server's socket is bound, or 0: that of its listener, or the VRF from
    /// which it was reached. There, and with link-local addresses, the addresses are not unique
    /// without it.
    pub(crate) interface: u32,
}

impl Ends {
    pub(crate) fn new(local: SocketAddr, peer: SocketAddr) -> Self {
        let interface = match peer {
            SocketAddr::V4(_) => 0,
            // A socket with a link-local address is bound to its interface.
            SocketAddr::V6(peer) => peer.scope_id(),
        };
        Self {
            local: canonical(local),
            peer: canonical(peer),
            interface,
        }
    }

    /// The ends of the connection of the server's socket.
    ///
    /// # Errors
    ///
    /// The kernel does not tell them.
    pub(crate) fn of(socket: BorrowedFd<'_>, peer: SocketAddr) -> io::Result<Self> {
        let asked = SockRef::from(&socket);
        let local = asked.local_addr()?.as_socket();
        let mut ends = Self::new(local.ok_or(io::ErrorKind::InvalidInput)?, peer);
        if let Some(name) = asked.device()? {
            let name = str::from_utf8(&name).map_err(|_| io::ErrorKind::InvalidData)?;
            ends.interface = name_to_index(socket, name)?;
        }
        Ok(ends)
    }
}

/// Whether a socket is still connected. Once it is not, another connection may have its addresses, while
/// what was received on it can still be read.
pub(crate) fn is_connected(socket: BorrowedFd<'_>) -> io::Result<bool> {
    match getpeername(socket) {
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the canonical form of an address: that of a dual-stack socket may be an IPv4-mapped IPv6
/// address.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, addr.port()),
        IpAddr::V6(_) => addr,
    }
}
