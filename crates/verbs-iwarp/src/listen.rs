//! The responder's side of connection setup.

use crate::handshake::{self, NoFrame};
use crate::queue_pair::{IwarpQp, invalid};
use crate::setup_failure::{SetupFailure, SystemFailure};
use crate::shared::Shared;
use crate::socket;
use iwarp_proto::Role;
use iwarp_proto::mpa::{FrameError, FrameReader, Kind, Requested, Responder};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use verbs::{BoxFuture, Incoming, Listener, QpOptions, QueuePair, SetupError, WorkRequest};

/// How long a peer that is to be refused may take to send its Request.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Listens on an address.
pub(crate) async fn listen(
    provider: Arc<Shared>,
    on: SocketAddr,
) -> Result<Box<dyn Listener>, SetupError> {
    let explain = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => " (another server has this port)",
            io::ErrorKind::AddrNotAvailable => " (this machine has no such address)",
            io::ErrorKind::PermissionDenied => " (ports below 1024 need privilege)",
            _ => "",
        };
        SystemFailure::explain(format!("cannot listen on {on}{hint}"), error)
    };
    let listener = socket::listen(on, &provider.config).map_err(explain)?;
    Ok(accept_from(provider, listener)?)
}

/// Takes in the connections of a socket that listens.
pub(crate) fn accept_from(
    provider: Arc<Shared>,
    listener: TcpListener,
) -> io::Result<Box<dyn Listener>> {
    let local = listener.local_addr()?;
    let refusals = provider.config.refusals;
    Ok(Box::new(IwarpListener {
        provider,
        listener,
        local,
        refusals: Arc::new(Semaphore::new(refusals)),
    }))
}

struct IwarpListener {
    provider: Arc<Shared>,
    listener: TcpListener,
    local: SocketAddr,
    refusals: Arc<Semaphore>,
}

impl Listener for IwarpListener {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        Box::pin(async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, peer)) => match self.take_in(&stream, peer) {
                        Ok(()) => {
                            return Ok(Box::new(IwarpIncoming {
                                provider: Arc::clone(&self.provider),
                                stream: Some(stream.into_std()?),
                                peer,
                                requested: None,
                                refusals: Arc::clone(&self.refusals),
                            }) as Box<dyn Incoming>);
                        }
                        Err(error) => tracing::debug!(%peer, %error, "gone before it was accepted"),
                    },
                    // That one is gone; the next may not be.
                    Err(error) if is_of_one_peer(&error) => {
                        tracing::debug!(%error, "gone before it was accepted");
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        })
    }
}

impl IwarpListener {
    fn take_in(&self, stream: &TcpStream, peer: SocketAddr) -> io::Result<()> {
        socket::tune_accepted(stream, peer, &self.provider.config);
        socket::tune(stream, &self.provider.config)
    }
}

fn is_of_one_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// A connection whose initiator may not have spoken yet.
///
/// Between two calls the socket belongs to no runtime, so that it can move to the thread that will
/// own the queue pair.
struct IwarpIncoming {
    provider: Arc<Shared>,
    stream: Option<std::net::TcpStream>,
    peer: SocketAddr,
    requested: Option<Requested>,
    /// Permits to refuse it before its Request was read.
    refusals: Arc<Semaphore>,
}

impl Drop for IwarpIncoming {
    /// A peer that nobody wants is told so: closing without a word looks like a responder that
    /// does not know its revision of MPA, and it would try again with another.
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        if let Some(requested) = self.requested.take() {
            // The socket does not wait; a new one has room for a frame.
            if let Err(error) = stream.write_all(&requested.reject(&[]).emit()) {
                tracing::debug!(peer = %self.peer, %error, "gone before it was refused");
            }
            return;
        }
        let runtime = Handle::try_current();
        let permit = Arc::clone(&self.refusals).try_acquire_owned();
        match (runtime, permit) {
            (Ok(runtime), Ok(permit)) => {
                runtime.spawn(refuse(stream, self.peer, permit));
            }
            _ => tracing::debug!(peer = %self.peer, "refused without a word"),
        }
    }
}

/// Refuses a peer in the revision and the form of its Request, which is read for that (RFC 6581
/// §10).
async fn refuse(stream: std::net::TcpStream, peer: SocketAddr, _permit: OwnedSemaphorePermit) {
    let refusing = async {
        let mut stream = TcpStream::from_std(stream)?;
        let mut reader = FrameReader::new(Kind::Request);
        let reading = handshake::read_frame(&mut stream, &mut reader);
        let Ok(Ok(request)) = timeout(REFUSAL_TIMEOUT, reading).await else {
            // What it says is no Request, or does not come: nothing is owed to it.
            return Ok(());
        };
        let reject = Responder.request(request).reject(&[]);
        timeout(
            REFUSAL_TIMEOUT,
            handshake::write_frame(&mut stream, &reject),
        )
        .await??;
        handshake::last_word(stream).await;
        io::Result::Ok(())
    };
    if let Err(error) = refusing.await {
        tracing::debug!(%peer, %error, "gone before it was refused");
    }
}

impl IwarpIncoming {
    /// The socket, on the runtime of the caller.
    fn take_stream(&mut self) -> Result<TcpStream, SetupError> {
        let stream = self.stream.take().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotConnected, "the connection was given up")
        })?;
        Ok(TcpStream::from_std(stream)?)
    }

    async fn read_request(&mut self, limit: Duration) -> Result<&Requested, SetupError> {
        // If it is given up on the way, it is closed without a word: it said nothing either.
        let mut stream = self.take_stream()?;
        let mut reader = FrameReader::new(Kind::Request);
        let reading = handshake::read_frame(&mut stream, &mut reader);
        let request = timeout(limit, reading)
            .await
            .map_err(|_| SetupError::TimedOut("the peer's MPA request", limit))?
            .map_err(refusal)?;
        self.stream = Some(stream.into_std()?);
        Ok(self.requested.insert(Responder.request(request)))
    }
}

/// Reason why there is no MPA Request.
fn refusal(error: NoFrame) -> SetupError {
    match error {
        NoFrame::Closed => SetupFailure::NoRequest.into(),
        NoFrame::Torn => SetupFailure::TornRequest.into(),
        // A record mark: the last fragment, of reasonable length (RFC 5531 §11).
        NoFrame::Frame(FrameError::NotMpa([0x80, 0, _, _])) => SetupFailure::PlainRpc.into(),
        NoFrame::Frame(error) => SetupFailure::Frame(error).into(),
        NoFrame::Io(error) => error.into(),
    }
}

impl Incoming for IwarpIncoming {
    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    fn request<'a>(&'a mut self, timeout: Duration) -> BoxFuture<'a, Result<Vec<u8>, SetupError>> {
        Box::pin(async move {
            let requested = match self.requested {
                Some(ref requested) => requested,
                None => self.read_request(timeout).await?,
            };
            Ok(requested.private_data().to_vec())
        })
    }

    fn accept<'a>(
        mut self: Box<Self>,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Box<dyn QueuePair>, SetupError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            if self.requested.is_none() {
                self.read_request(options.setup_timeout).await?;
            }
            let Some(requested) = self.requested.clone() else {
                unreachable!("it was just read");
            };
            if private_data.len() > requested.capacity() {
                return Err(invalid("more private data than fits an MPA reply").into());
            }
            let mut stream = self.take_stream()?;
            let offer = self.provider.config.offer(options);
            let (reply, agreed) = requested.accept(offer, private_data);
            // The Reply is small and the first thing on the stream: it never waits for room.
            timeout(
                options.setup_timeout,
                handshake::write_frame(&mut stream, &reply),
            )
            .await
            .map_err(|_| SetupError::TimedOut("room for our MPA reply", options.setup_timeout))??;
            // Nothing is read before the Receives are posted.
            let mut qp = IwarpQp::new(&self.provider, stream, Role::Responder, &agreed, options)?;
            qp.post_receives(receives)?;
            Ok(Box::new(qp) as Box<dyn QueuePair>)
        })
    }

    fn reject<'a>(mut self: Box<Self>, private_data: &'a [u8]) -> BoxFuture<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let Some(requested) = self.requested.take() else {
                return;
            };
            let Ok(mut stream) = self.take_stream() else {
                return;
            };
            let fits = private_data.len().min(requested.capacity());
            let reply = requested.reject(&private_data[..fits]);
            if let Err(error) = handshake::write_frame(&mut stream, &reply).await {
                tracing::debug!(peer = %self.peer, %error, "gone before it was rejected");
                return;
            }
            handshake::last_word(stream).await;
        })
    }
}
