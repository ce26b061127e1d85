//! The user that owns the other end of a TCP connection on the same machine.
//!
//! The kernel looks up the socket with the two addresses of the connection (sock_diag), in the
//! network namespace of the caller. It finds a socket of a process there, and none on another
//! machine or in another network namespace, which counts as another machine. If there is no socket,
//! but the address is one of this machine, the socket was closed meanwhile or its address is
//! translated on the way. Its owner is unknown then, although data that it sent may still be
//! received.
//!
//! # Example
//!
//! ```
//! use oncrpc::{LocalUsers, Origin};
//! use socket_owner::SocketOwners;
//! use std::net::{TcpListener, TcpStream};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let client = TcpStream::connect(listener.local_addr()?)?;
//! let (server, peer) = listener.accept()?;
//!
//! let origin = SocketOwners::new().find(server.local_addr()?, peer)?;
//! assert_eq!(origin, Origin::User(rustix::process::geteuid().as_raw()));
//! # drop(client);
//! # Ok(())
//! # }
//! ```

mod diag;
mod netlink;
mod route;

use oncrpc::{LocalUserError, LocalUsers, Origin};
use rustix::process::geteuid;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// How long a connection to ourselves may take.
const SELF_TIMEOUT: Duration = Duration::from_secs(1);

/// Identifies clients on this machine by the owners of their sockets, as [`LocalUsers`].
///
/// Sockets of the kernel, such as those of an NFS mount, are owned by uid 0. A socket of a user that the
/// user namespace of this process does not have is owned by the overflow uid, 65534.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketOwners {
    only: Option<u32>,
}

impl SocketOwners {
    /// Every user of this machine may connect.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only `uid` and root may connect from this machine. For a server that does everything as
    /// `uid`.
    pub fn only(uid: u32) -> Self {
        Self { only: Some(uid) }
    }

    /// Checks that owners can be found, with a connection of this process to itself. If the check
    /// fails, connections from this machine will be refused: the kernel lacks `tcp_diag`, or this
    /// process may not use it.
    ///
    /// # Errors
    ///
    /// Why the owner is not found.
    pub fn check() -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .or_else(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)))?;
        let local = listener.local_addr()?;
        let client = TcpStream::connect_timeout(&local, SELF_TIMEOUT)?;
        match diag::owner(local, client.local_addr()?)? {
            diag::Owner::Uid(uid) if uid == geteuid().as_raw() => Ok(()),
            found => Err(io::Error::other(format!("it says {found:?}"))),
        }
    }
}

impl LocalUsers for SocketOwners {
    fn find(&self, local: SocketAddr, peer: SocketAddr) -> Result<Origin, LocalUserError> {
        let (local, peer) = (canonical(local), canonical(peer));
        let error = match diag::owner(local, peer) {
            Ok(diag::Owner::Uid(uid)) => {
                return match self.only {
                    Some(served) if uid != served && uid != 0 => {
                        Err(LocalUserError::OtherUser { uid, served })
                    }
                    Some(_) | None => Ok(Origin::User(uid)),
                };
            }
            Ok(diag::Owner::Closing) => return Err(LocalUserError::Gone),
            Err(error) if error.kind() == io::ErrorKind::NotFound => LocalUserError::Gone,
            Err(error) => LocalUserError::Unavailable(error),
        };
        match is_of_this_machine(local, peer) {
            true => Err(error),
            false => Ok(Origin::Remote),
        }
    }
}

/// Recognises clients on this machine without looking up their users, as [`LocalUsers`]. For a
/// server that trusts all local users; all of them share one limit of connections, whatever address
/// of the machine they use.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalAddresses;

impl LocalUsers for LocalAddresses {
    fn find(&self, local: SocketAddr, peer: SocketAddr) -> Result<Origin, LocalUserError> {
        Ok(
            match is_of_this_machine(canonical(local), canonical(peer)) {
                true => Origin::ThisMachine,
                false => Origin::Remote,
            },
        )
    }
}

/// Returns whether an address is one of this machine, in the network namespace of the caller.
pub fn is_local(addr: SocketAddr) -> bool {
    let addr = canonical(addr);
    addr.ip().is_loopback() || route::is_local(addr)
}

/// Whether the peer has an address of this machine.
fn is_of_this_machine(local: SocketAddr, peer: SocketAddr) -> bool {
    peer.ip().is_loopback() || peer.ip() == local.ip() || route::is_local(peer)
}

/// Returns the canonical form of an address: that of a dual-stack socket may be an IPv4-mapped IPv6
/// address.
fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, addr.port()),
        IpAddr::V6(_) => addr,
    }
}

#[cfg(test)]
mod tests;
