//! The local address and port of a client.

use socket2::SockRef;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use tokio::net::{TcpSocket, TcpStream};

/// Reserved ports that a client tries: those below belong to well-known services.
const RESERVED_PORTS: RangeInclusive<u16> = 665..=1023;

/// The local port of a client's connections.
///
/// A server's duplicate request cache may key on the port, so that a client that reconnects keeps it
/// where it can. Servers that demand "secure" ports accept only reserved ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalPort {
    /// The system chooses.
    #[default]
    Any,
    /// This local address. Port 0 leaves the port to the system.
    Exactly(SocketAddr),
    /// This local address and port if they are free and permitted, otherwise the system chooses.
    Preferably(SocketAddr),
    /// A reserved port (below 1024), which needs a privilege.
    Reserved,
    /// A reserved port if that is permitted and one is free, otherwise the system chooses.
    PreferablyReserved,
}

impl LocalPort {
    /// Connects from the local port.
    pub(crate) async fn connect(self, to: SocketAddr) -> io::Result<TcpStream> {
        let connected = match self {
            Self::Any => return TcpStream::connect(to).await,
            Self::Exactly(local) | Self::Preferably(local) => connect_from(local, to).await,
            Self::Reserved | Self::PreferablyReserved => connect_from_reserved(to).await,
        };
        let optional = matches!(self, Self::Preferably(_) | Self::PreferablyReserved);
        match connected {
            Err(error) if optional && is_local(&error) => TcpStream::connect(to).await,
            connected => connected,
        }
    }
}

/// Whether the local address is the reason of a failure.
fn is_local(error: &io::Error) -> bool {
    is_taken(error) || error.kind() == io::ErrorKind::PermissionDenied
}

/// Whether the local address is in use, or none of this machine.
fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
    )
}

async fn connect_from(local: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // The port of a connection that has just ended can be used again.
    SockRef::from(&socket).set_reuse_address(true)?;
    socket.bind(local)?;
    socket.connect(to).await
}

async fn connect_from_reserved(to: SocketAddr) -> io::Result<TcpStream> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut error = io::ErrorKind::AddrInUse.into();
    for port in RESERVED_PORTS.rev() {
        match connect_from((any, port).into(), to).await {
            Err(taken) if is_taken(&taken) => error = taken,
            connected => return connected,
        }
    }
    Err(error)
}
