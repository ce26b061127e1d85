//! Sources of the connections of a server.

use crate::keepalive;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
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
    Sockets(Sockets),
    Streams(mpsc::Receiver<IncomingStream>),
}

/// Listening sockets of one server.
pub(crate) struct Sockets {
    /// At least one.
    all: Vec<TcpListener>,
    /// The one to ask first, so that none keeps the others from their connections.
    next: usize,
}

impl Sockets {
    /// # Panics
    ///
    /// If there is none.
    pub(crate) fn new(all: Vec<TcpListener>) -> Self {
        assert!(!all.is_empty(), "a server listens somewhere");
        Self { all, next: 0 }
    }

    async fn accept(&mut self) -> io::Result<Accepted> {
        poll_fn(|cx| {
            for turn in 0..self.all.len() {
                let index = (self.next + turn) % self.all.len();
                let listener = &self.all[index];
                if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                    self.next = index + 1;
                    let (stream, peer) = accepted?;
                    let at = listener.local_addr().ok();
                    return Poll::Ready(Ok(Accepted::Socket(stream, peer, at)));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The two directions of a stream.
pub(crate) type Halves = (
    Box<dyn AsyncRead + Send + Unpin>,
    Box<dyn AsyncWrite + Send + Unpin>,
);

/// A connection that has come.
pub(crate) enum Accepted {
    /// A socket, its peer, and the address of the listener.
    Socket(TcpStream, SocketAddr, Option<SocketAddr>),
    Stream(IncomingStream),
}

impl Source {
    /// Waits for a connection. Cancelling it loses none.
    pub(crate) async fn accept(&mut self) -> io::Result<Accepted> {
        match self {
            Self::Sockets(sockets) => sockets.accept().await,
            Self::Streams(streams) => match streams.recv().await {
                Some(stream) => Ok(Accepted::Stream(stream)),
                // There will be none.
                None => std::future::pending().await,
            },
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Sockets(sockets) => sockets.all[0].local_addr(),
            Self::Streams(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Accepted {
    pub(crate) fn peer(&self) -> SocketAddr {
        match self {
            Self::Socket(_, peer, _) | Self::Stream(IncomingStream { peer, .. }) => *peer,
        }
    }

    /// Address of the listener, if it is a socket that has accepted the connection.
    pub(crate) fn listener(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(_, _, listener) => *listener,
            Self::Stream(_) => None,
        }
    }

    /// The same connection, whose socket wakes tasks of another runtime.
    pub(crate) fn moved_to(self, runtime: &Handle) -> io::Result<Self> {
        match self {
            Self::Socket(stream, peer, listener) => {
                let stream = stream.into_std()?;
                let _within = runtime.enter();
                let stream = TcpStream::from_std(stream)?;
                Ok(Self::Socket(stream, peer, listener))
            }
            Self::Stream(_) => Ok(self),
        }
    }

    pub(crate) fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Self::Socket(stream, ..) => Ok(stream.as_fd()),
            Self::Stream(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn into_halves(self) -> io::Result<Halves> {
        match self {
            Self::Socket(stream, ..) => {
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
