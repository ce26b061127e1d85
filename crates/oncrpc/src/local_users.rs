//! Identification of clients on the server's own machine.
//!
//! A server trusts the AUTH_SYS credentials of another machine for all its users, or not at all. On
//! its own machine any user can connect, and the kernel knows which user owns a connection.

use crate::PeerGroup;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Finds the user behind a connection from the machine of the server.
pub trait LocalUsers: Debug + Send + Sync {
    /// Returns the origin of a client at the address `peer`. `socket` is the server's socket of the
    /// connection.
    ///
    /// Called once per connection, on the task that accepts connections, so it must not wait for
    /// long.
    ///
    /// # Errors
    ///
    /// Why the connection must not be served.
    fn find(&self, socket: BorrowedFd<'_>, peer: SocketAddr) -> Result<Origin, LocalUserError>;
}

/// Origin of a connection: another machine, or a user of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On another machine, or not looked up.
    Remote,
    /// On the server's machine; the user was not looked up, and may claim any uid.
    ThisMachine,
    /// On the server's machine; the uid owns the client's socket.
    User(u32),
}

impl Origin {
    /// Returns the uid of the client, if it is known.
    pub fn uid(self) -> Option<u32> {
        match self {
            Self::User(uid) => Some(uid),
            Self::Remote | Self::ThisMachine => None,
        }
    }

    /// Returns the peer group with which this client, at `address`, shares limits.
    pub fn group(self, address: IpAddr) -> PeerGroup {
        match self {
            Self::Remote => PeerGroup::of(address),
            Self::ThisMachine => PeerGroup::THIS_MACHINE,
            Self::User(uid) => PeerGroup::of_user(uid),
        }
    }
}

/// Why a connection from the server's own machine is closed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
#[non_exhaustive]
pub enum LocalUserError {
    #[error("the client of this machine closed its socket before its user was looked up")]
    Closed,
    #[error(
        "the socket of the client was not found on this machine: it is bound to an interface, or its address is \
         translated"
    )]
    Gone,
    #[error(
        "this kernel cannot tell the user of a connection from this machine: load its module tcp_diag \
         (CONFIG_INET_DIAG, CONFIG_INET_TCP_DIAG)"
    )]
    NoTcpDiag,
    #[error(
        "the socket belongs to uid {uid}; this server runs as uid {served} and serves only that user and root here"
    )]
    OtherUser { uid: u32, served: u32 },
    #[error("cannot look up the user of a connection from this machine (sock_diag)")]
    Unavailable(#[source] io::Error),
}

impl LocalUserError {
    /// The peer group of the connection, as far as it is known.
    pub fn group(&self) -> PeerGroup {
        match self {
            Self::OtherUser { uid, .. } => PeerGroup::of_user(*uid),
            Self::Closed | Self::Gone | Self::NoTcpDiag | Self::Unavailable(_) => {
                PeerGroup::THIS_MACHINE
            }
        }
    }

    /// Whether an administrator should know: a client that closes at once, as health checks do, is none
    /// of those.
    pub fn is_for_the_log(&self) -> bool {
        !matches!(self, Self::Closed)
    }
}

impl From<LocalUserError> for io::Error {
    fn from(error: LocalUserError) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_this_machine_is_one_peer_at_every_address() {
        let at = |origin: Origin, last| origin.group(IpAddr::from([127, 0, 0, last]));
        assert_eq!(at(Origin::User(7), 1), at(Origin::User(7), 2));
        assert_ne!(at(Origin::User(7), 1), at(Origin::User(8), 1));
        assert_eq!(at(Origin::ThisMachine, 1), at(Origin::ThisMachine, 2));
        assert_ne!(at(Origin::Remote, 1), at(Origin::Remote, 2));

        let refused = LocalUserError::OtherUser { uid: 7, served: 0 };
        assert_eq!(refused.group(), at(Origin::User(7), 1));
    }
}
