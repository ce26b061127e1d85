//! The user that owns the other end of a TCP connection on the same machine.
//!
//! The kernel looks up the socket with the two addresses of the connection (sock_diag), in the
//! network namespace of the caller. It finds a socket of a process there, and none on another
//! machine or in another network namespace, which counts as another machine. If there is no socket,
//! but the address is one of this machine, the socket was closed meanwhile, is bound to another
//! interface, or its address is translated on the way. Its owner is unknown then, although data that
//! it sent may still be received. A socket that the kernel reports without an inode has no owner any
//! more either, although its uid is 0, as those of the kernel have it.
//!
//! # Example
//!
//! ```
//! use oncrpc::{LocalUsers, Origin};
//! use socket_owner::SocketOwners;
//! use std::net::{TcpListener, TcpStream};
//! use std::os::fd::AsFd;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let client = TcpStream::connect(listener.local_addr()?)?;
//! let (server, peer) = listener.accept()?;
//!
//! let origin = SocketOwners::new().find(server.as_fd(), peer)?;
//! assert_eq!(origin, Origin::User(rustix::process::geteuid().as_raw()));
//! # drop(client);
//! # Ok(())
//! # }
//! ```

#[cfg(doc)]
pub mod design;
mod diag;
mod ends;
mod netlink;
mod route;

use ends::{Ends, is_connected};
use oncrpc::{LocalUserError, LocalUsers, Origin};
use rustix::process::geteuid;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
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
        match diag::owner(&Ends::new(local, client.local_addr()?)) {
            Ok(diag::Owner::Uid(uid)) if uid == geteuid().as_raw() => Ok(()),
            Ok(found) => Err(io::Error::other(format!("it says {found:?}"))),
            Err(error) => Err(match not_found(error) {
                LocalUserError::Unavailable(error) => error,
                error => io::Error::new(io::ErrorKind::Unsupported, error),
            }),
        }
    }

    /// Returns the origin of a client whose socket is found.
    fn user(&self, socket: BorrowedFd<'_>, uid: u32) -> Result<Origin, LocalUserError> {
        // The socket that was found has these addresses after that of the client, if the connection
        // was reset before.
        if !is_connected(socket).map_err(LocalUserError::Unavailable)? {
            return Err(LocalUserError::Closed);
        }
        match self.only {
            Some(served) if uid != served && uid != 0 => {
                Err(LocalUserError::OtherUser { uid, served })
            }
            Some(_) | None => Ok(Origin::User(uid)),
        }
    }
}

impl LocalUsers for SocketOwners {
    fn find(&self, socket: BorrowedFd<'_>, peer: SocketAddr) -> Result<Origin, LocalUserError> {
        let ends = Ends::of(socket, peer).map_err(LocalUserError::Unavailable)?;
        let error = match diag::owner(&ends) {
            Ok(diag::Owner::Uid(uid)) => return self.user(socket, uid),
            Ok(diag::Owner::Closing) => return Err(LocalUserError::Closed),
            Err(error) => error,
        };
        match is_of_this_machine(&ends) {
            Ok(true) if matches!(is_connected(socket), Ok(false)) => Err(LocalUserError::Closed),
            Ok(true) => Err(not_found(error)),
            Ok(false) => Ok(Origin::Remote),
            Err(error) => Err(LocalUserError::Unavailable(error)),
        }
    }
}

/// Returns why the socket of a client of this machine is not found.
fn not_found(error: io::Error) -> LocalUserError {
    match error.kind() {
        io::ErrorKind::NotFound => match diag::knows_tcp() {
            Ok(true) => LocalUserError::Gone,
            Ok(false) => LocalUserError::NoTcpDiag,
            Err(error) => LocalUserError::Unavailable(error),
        },
        _ => LocalUserError::Unavailable(error),
    }
}

/// Recognises clients on this machine without looking up their users, as [`LocalUsers`]. For a
/// server that trusts all local users; all of them share one limit of connections, whatever address
/// of the machine they use.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalAddresses;

impl LocalUsers for LocalAddresses {
    fn find(&self, socket: BorrowedFd<'_>, peer: SocketAddr) -> Result<Origin, LocalUserError> {
        let local = Ends::of(socket, peer).and_then(|ends| is_of_this_machine(&ends));
        Ok(match local.map_err(LocalUserError::Unavailable)? {
            true => Origin::ThisMachine,
            false => Origin::Remote,
        })
    }
}

/// Returns whether an address is one of this machine, in the network namespace of the caller: one of
/// an interface, in whatever VRF, or one to which packets stay here. An address of which the kernel
/// does not tell counts as one of this machine.
pub fn is_local(addr: SocketAddr) -> bool {
    let Ends {
        peer, interface, ..
    } = Ends::new(addr, addr);
    peer.ip().is_loopback() || route::is_local(peer, interface).unwrap_or(true)
}

/// Whether the peer has an address of this machine.
///
/// # Errors
///
/// The kernel does not tell.
fn is_of_this_machine(ends: &Ends) -> io::Result<bool> {
    let ip = ends.peer.ip();
    match ip.is_loopback() || ip == ends.local.ip() {
        true => Ok(true),
        false => route::is_local(ends.peer, ends.interface),
    }
}

#[cfg(test)]
mod tests;
