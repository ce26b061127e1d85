//! Clients on the machine of the server: who they are.
//!
//! AUTH_SYS is believed of other machines, which are trusted or not as a whole. On the machine of the
//! server anybody can connect, and the kernel knows who did.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;

/// Finds the user behind a connection from the machine of the server.
pub trait LocalUsers: Debug + Send + Sync {
    /// The uid that owns the client's socket; `None` if the client is on another machine. `local` and
    /// `peer` are the addresses of the server's socket.
    ///
    /// It is asked once for each connection, on the task that will own it: it must not wait for long.
    ///
    /// # Errors
    ///
    /// Why the connection is not to be served.
    fn find(&self, local: SocketAddr, peer: SocketAddr) -> Result<Option<u32>, LocalUserError>;
}

/// Why a connection from the machine of the server is closed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
pub enum LocalUserError {
    #[error("its socket is not found on this machine: it is closed, or its address is translated")]
    Gone,
    #[error(
        "the socket is of uid {uid}; this server acts as uid {served}, and serves nobody else here"
    )]
    OtherUser { uid: u32, served: u32 },
    #[error("the user of a connection from this machine is not to be had (sock_diag): {0}")]
    Unavailable(#[source] io::Error),
}

impl From<LocalUserError> for io::Error {
    fn from(error: LocalUserError) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, error)
    }
}
