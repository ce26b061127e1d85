//! The responder's side of connection setup.

use crate::adapter::{Adapter, PRIVATE_DATA};
use crate::cm::{CmId, EventKind, Parameters};
use crate::connect::{byte, invalid, of_status};
use crate::queue_pair::IbvQp;
use crate::shared::Shared;
use crate::watch::WatchedId;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use verbs::{BoxFuture, Incoming, Limits, Listener, QpOptions, QueuePair, SetupError, WorkRequest};

/// Connection requests that wait to be accepted. The connection manager refuses further ones.
const BACKLOG: i32 = 128;

/// How long until a listener whose device was removed looks whether it is back.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Listens on an address of a device, or of all.
pub(crate) fn listen(shared: Arc<Shared>, on: SocketAddr) -> Result<Box<dyn Listener>, SetupError> {
    let id = bound(&shared, on).map_err(|error| explain(on, error))?;
    let local = id.id().local_addr().unwrap_or(on);
    Ok(Box::new(IbvListener {
        id: Some(id),
        local,
        shared,
    }))
}

/// An identifier that listens. A device that is not to be used is left alone: to listen over an iWARP device takes a
/// port of TCP.
fn bound(shared: &Shared, on: SocketAddr) -> io::Result<WatchedId> {
    let id = CmId::new(shared.libraries)?;
    id.bind(on)?;
    shared.check_device(&id)?;
    id.listen(BACKLOG)?;
    WatchedId::new(id)
}

/// Why it cannot listen, and what to do.
fn explain(on: SocketAddr, error: io::Error) -> SetupError {
    let no_device = matches!(
        error.raw_os_error(),
        Some(libc::ENODEV | libc::EADDRNOTAVAIL | libc::ENXIO)
    );
    let hint = match error.kind() {
        _ if no_device => {
            "; no RDMA device has this address (`rdma link` lists devices and their interfaces)"
        }
        io::ErrorKind::AddrInUse => "; another server has this port",
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => {
            "; ports below 1024 need privilege"
        }
        _ => "",
    };
    let text = format!("cannot listen on {on} over RDMA: {error}{hint}");
    let explained = io::Error::new(error.kind(), text);
    match no_device || error.kind() == io::ErrorKind::NotFound {
        true => SetupError::NoDevice(explained),
        false => explained.into(),
    }
}

struct IbvListener {
    /// None while the device is away, or when the address has moved to another.
    id: Option<WatchedId>,
    local: SocketAddr,
    shared: Arc<Shared>,
}

impl Listener for IbvListener {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        Box::pin(async {
            loop {
                let Some(id) = &mut self.id else {
                    match bound(&self.shared, self.local) {
                        Ok(id) => {
                            tracing::info!(on = %self.local, "listening over RDMA again");
                            self.id = Some(id);
                        }
                        Err(_) => sleep(LISTEN_AGAIN).await,
                    }
                    continue;
                };
                let event = id.event().await?;
                match event.kind {
                    EventKind::Request(id) => {
                        let Some(peer) = id.peer_addr() else {
                            tracing::debug!("a peer without an IP address is refused");
                            let _ = id.reject(&[]);
                            continue;
                        };
                        if let Err(error) = self.shared.check_device(&id) {
                            tracing::debug!(%peer, %error, "refused");
                            let _ = id.reject(&[]);
                            continue;
                        }
                        return Ok(Box::new(IbvIncoming {
                            shared: Arc::clone(&self.shared),
                            peer,
                            request: Some(Request {
                                adapter: None,
                                id,
                                private_data: event.private_data,
                                outstanding_reads: event.outstanding_reads,
                                inbound_reads: event.inbound_reads,
                            }),
                        }) as Box<dyn Incoming>);
                    }
                    // Its owner waits a little, so that peers do not fill the log.
                    EventKind::LostRequest(error) => return Err(error.into()),
                    EventKind::DeviceRemoval => {
                        tracing::warn!(on = %self.local, "the RDMA device was removed; waiting for it");
                        self.id = None;
                    }
                    EventKind::AddressChange => {
                        tracing::warn!(on = %self.local, "the address is that of another RDMA device now");
                        self.id = None;
                    }
                    EventKind::AddressResolved
                    | EventKind::AddressError
                    | EventKind::RouteResolved
                    | EventKind::RouteError
                    | EventKind::ConnectError
                    | EventKind::Unreachable
                    | EventKind::Rejected
                    | EventKind::Established
                    | EventKind::Disconnected
                    | EventKind::Other => {}
                }
            }
        })
    }
}

/// A connection request that has arrived.
struct Request {
    /// The device, once it was asked for its limits. Dropped before the identifier.
    adapter: Option<Arc<Adapter>>,
    id: CmId,
    private_data: Vec<u8>,
    /// Reads that the peer serves.
    outstanding_reads: u8,
    /// Reads that the peer wants to have outstanding.
    inbound_reads: u8,
}

struct IbvIncoming {
    shared: Arc<Shared>,
    peer: SocketAddr,
    request: Option<Request>,
}

impl Drop for IbvIncoming {
    fn drop(&mut self) {
        if let Some(request) = self.request.take()
            && let Err(error) = request.id.reject(&[])
        {
            tracing::debug!(peer = %self.peer, %error, "gone before it was refused");
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the connection was given up")
}

impl Incoming for IbvIncoming {
    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The request is there already. What the device can do is found out with it.
    fn request<'a>(&'a mut self, _: Duration) -> BoxFuture<'a, Result<Vec<u8>, SetupError>> {
        Box::pin(async {
            let request = self.request.as_mut().ok_or_else(gone)?;
            if request.adapter.is_none() {
                request.adapter = Some(self.shared.adapter(&request.id)?);
            }
            Ok(request.private_data.clone())
        })
    }

    fn limits(&self) -> Option<Limits> {
        let adapter = self.request.as_ref()?.adapter.as_ref()?;
        Some(adapter.upper_limits())
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
            if options.shared_receives.is_some() {
                return Err(invalid("this provider has no shared receive queues").into());
            }
            if private_data.len() > PRIVATE_DATA.accept {
                return Err(invalid("more private data than fits the answer").into());
            }
            // As long as it is not taken, dropping this rejects it.
            let request = self.request.as_mut().ok_or_else(gone)?;
            let adapter = match request.adapter.take() {
                Some(adapter) => adapter,
                None => self.shared.adapter(&request.id)?,
            };
            let request = self.request.take().ok_or_else(gone)?;
            let pool = self.shared.pool.clone();
            let mut qp = IbvQp::new(request.id, adapter, options, pool, self.peer)?;
            qp.established(
                request.outstanding_reads.into(),
                request.inbound_reads.into(),
            );
            qp.post_receives(receives)?;
            let parameters = Parameters {
                private_data,
                inbound_reads: byte(qp.limits.inbound_reads),
                outstanding_reads: byte(qp.limits.outstanding_reads),
            };
            qp.hardware().ok_or_else(gone)?.id.accept(&parameters)?;
            let limit = options.setup_timeout;
            let event = timeout(limit, qp.event())
                .await
                .map_err(|_| SetupError::TimedOut("the end of connection setup", limit))??;
            match event.kind {
                EventKind::Established => Ok(Box::new(qp) as Box<dyn QueuePair>),
                EventKind::Rejected | EventKind::Disconnected => {
                    let text = format!("{}: it gave the connection up during setup", self.peer);
                    Err(io::Error::new(io::ErrorKind::ConnectionAborted, text).into())
                }
                _ => Err(of_status(event.status).into()),
            }
        })
    }

    fn reject<'a>(mut self: Box<Self>, private_data: &'a [u8]) -> BoxFuture<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let fits = private_data.len().min(PRIVATE_DATA.reject);
            if let Some(request) = self.request.take()
                && let Err(error) = request.id.reject(&private_data[..fits])
            {
                tracing::debug!(peer = %self.peer, %error, "gone before it was rejected");
            }
        })
    }
}
