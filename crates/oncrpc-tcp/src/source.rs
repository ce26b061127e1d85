//! Sources of the connections of a server.

use crate::keepalive;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connected stream that something else than a listening socket has accepted, with the address of
/// its peer.
pub struct IncomingStream {
    stream: Box<dyn Stream>,
    peer: SocketAddr,
}

impl IncomingStream {
    /// Creates one. Admission control and logs know the client by the address.
    pub fn new(stream: impl Stream + 'static, peer: SocketAddr) -> Self {
        Self {
            stream: Box::new(stream),
            peer,
        }
    }
}

/// Source of connections.
pub(crate) enum Source {
    Socket(TcpListener),
    Streams(mpsc::Receiver<IncomingStream>),
}

/// The two directions of a stream.
pub(crate) type Halves = (
    Box<dyn AsyncRead + Send + Unpin>,
    Box<dyn AsyncWrite + Send + Unpin>,
);

/// A connection that has come.
pub(crate) enum Accepted {
    Socket(TcpStream, SocketAddr),
    Stream(IncomingStream),
}

impl Source {
    /// Waits for a connection. Cancelling it loses none.
    pub(crate) async fn accept(&mut self) -> io::Result<Accepted> {
        match self {
            Self::Socket(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::Socket(stream, peer))
            }
            Self::Streams(streams) => match streams.recv().await {
                Some(stream) => Ok(Accepted::Stream(stream)),
                // There will be none.
                None => std::future::pending().await,
            },
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Socket(listener) => listener.local_addr(),
            Self::Streams(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Accepted {
    pub(crate) fn peer(&self) -> SocketAddr {
        match self {
            Self::Socket(_, peer) | Self::Stream(IncomingStream { peer, .. }) => *peer,
        }
    }

    pub(crate) fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Self::Socket(stream, _) => Ok(stream.as_fd()),
            Self::Stream(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn into_halves(self) -> io::Result<Halves> {
        match self {
            Self::Socket(stream, _) => {
                keepalive::prepare(&stream)?;
                let (input, output) = stream.into_split();
                Ok((Box::new(input), Box::new(output)))
            }
            Self::Stream(IncomingStream { stream, .. }) => {
                let (input, output) = tokio::io::split(stream);
                Ok((Box::new(input), Box::new(output)))
            }
        }
    }
}
