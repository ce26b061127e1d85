//! The initiator's side of connection setup.

use crate::cm::{CmId, Event, EventKind, Parameters};
use crate::devices::Transport;
use crate::queue_pair::IbvQp;
use crate::shared::Shared;
use crate::watch::WatchedId;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use verbs::{Connected, QpOptions, RejectReason, SetupError, WorkRequest};

/// Reason of InfiniBand for a rejection: the application says so (InfiniBand volume 1, §12.6.7.2).
const REJECTED_BY_CONSUMER: i32 = 28;

/// Reason of InfiniBand for a rejection: nobody listens there.
const NOBODY_LISTENS: i32 = 8;

const ANSWER: &str = "the answer to our connection request";

/// Connects to a listener.
pub(crate) async fn connect(
    shared: &Shared,
    to: SocketAddr,
    options: &QpOptions,
    private_data: &[u8],
    receives: Vec<WorkRequest>,
) -> Result<Connected, SetupError> {
    if private_data.len() > crate::adapter::PRIVATE_DATA.request {
        return Err(invalid("more private data than fits a connection request").into());
    }
    if options.shared_receives.is_some() {
        return Err(invalid("this provider has no shared receive queues").into());
    }
    let attempt = Attempt {
        to,
        timeout: options.setup_timeout,
        deadline: Instant::now() + options.setup_timeout,
    };
    let id = attempt.resolve(shared).await?;
    let adapter = shared.adapter(&id)?;
    let peer = id.peer_addr().unwrap_or(to);
    let transport = adapter.transport;
    let mut qp = IbvQp::new(id, adapter, options, shared.pool.clone(), peer)?;
    qp.post_receives(receives)?;
    let depths = Depths {
        inbound: byte(qp.limits.inbound_reads),
        outstanding: byte(qp.limits.outstanding_reads),
    };
    let asking = timeout_at(attempt.deadline, ask(qp, transport, private_data, depths));
    let asked = asking
        .await
        .map_err(|_| SetupError::TimedOut(ANSWER, options.setup_timeout))?;
    let mut unanswered = asked.map_err(|error| explain(to, error))?;
    let event = attempt.within(ANSWER, unanswered.event());
    let event = event.await?;
    let mut qp = unanswered.answered()?;
    match event.kind {
        EventKind::Established => {
            let outstanding = match transport {
                // Drivers of iWARP devices do not agree on which of the two is which.
                Transport::Iwarp => event.outstanding_reads.min(event.inbound_reads),
                _ => event.outstanding_reads,
            };
            qp.established(outstanding.into(), usize::from(u8::MAX));
            Ok(Connected {
                qp: Box::new(qp),
                private_data: event.private_data,
            })
        }
        _ => Err(refused(to, transport, event)),
    }
}

#[derive(Clone, Copy)]
struct Depths {
    inbound: u8,
    outstanding: u8,
}

/// Sends the connection request. On iWARP that waits for TCP to connect, so that it is done on a thread that may wait:
/// it has the queue pair until then, also if this future is dropped.
async fn ask(
    mut qp: IbvQp,
    transport: Transport,
    private_data: &[u8],
    depths: Depths,
) -> io::Result<Unanswered> {
    let private_data = private_data.to_vec();
    let request = move || {
        let Some(hardware) = qp.hardware() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        hardware.id.connect(&Parameters {
            private_data: &private_data,
            inbound_reads: depths.inbound,
            outstanding_reads: depths.outstanding,
        })?;
        Ok(Unanswered {
            qp: Some(qp),
            transport,
        })
    };
    match transport {
        Transport::Iwarp => spawn_blocking(request).await?,
        _ => request(),
    }
}

/// A queue pair that has asked for a connection, until the peer has answered.
///
/// On iWARP, destroying it waits until the peer answers or the device gives up (siw after 10 s). So it is left to a thread
/// that may wait when this is dropped.
struct Unanswered {
    /// Empty once it was answered.
    qp: Option<IbvQp>,
    transport: Transport,
}

impl Unanswered {
    /// Waits for the answer.
    async fn event(&mut self) -> io::Result<Event> {
        match &mut self.qp {
            Some(qp) => qp.event().await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The queue pair, once there was an [event](Self::event).
    fn answered(mut self) -> io::Result<IbvQp> {
        let qp = self.qp.take();
        qp.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let Some(qp) = self.qp.take() else {
            return;
        };
        match (self.transport, Handle::try_current()) {
            (Transport::Iwarp, Ok(runtime)) => {
                runtime.spawn_blocking(move || drop(qp));
            }
            _ => drop(qp),
        }
    }
}

/// One attempt to connect, with its time limit.
struct Attempt {
    to: SocketAddr,
    timeout: Duration,
    deadline: Instant,
}

impl Attempt {
    /// Finds the device and the way.
    async fn resolve(&self, shared: &Shared) -> Result<CmId, SetupError> {
        let mut id = WatchedId::new(CmId::new(shared.libraries)?)?;
        let begun = id.id().resolve_address(self.to, self.timeout);
        begun.map_err(|error| explain(self.to, error))?;
        let what = "the RDMA device for the address";
        let event = self.within(what, id.event()).await?;
        if !matches!(event.kind, EventKind::AddressResolved) {
            return Err(unresolved(self.to, &event));
        }
        let permitted = shared.check_device(id.id());
        permitted.map_err(SetupError::NoDevice)?;
        let begun = id.id().resolve_route(self.timeout);
        begun.map_err(|error| explain(self.to, error))?;
        let what = "the route to the address";
        let event = self.within(what, id.event()).await?;
        if !matches!(event.kind, EventKind::RouteResolved) {
            return Err(unresolved(self.to, &event));
        }
        Ok(id.into_id())
    }

    async fn within(
        &self,
        what: &'static str,
        event: impl Future<Output = io::Result<Event>>,
    ) -> Result<Event, SetupError> {
        match timeout_at(self.deadline, event).await {
            Ok(event) => Ok(event?),
            Err(_) => Err(SetupError::TimedOut(what, self.timeout)),
        }
    }
}

pub(crate) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// A number of Reads, as the connection manager counts them.
pub(crate) fn byte(depth: usize) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

fn unresolved(to: SocketAddr, event: &Event) -> SetupError {
    explain(to, of_status(event.status))
}

/// The error of an event, whose status is a negative number of the system.
pub(crate) fn of_status(status: i32) -> io::Error {
    match status {
        0 => io::Error::other("the connection manager gives no reason"),
        status => io::Error::from_raw_os_error(status.saturating_abs()),
    }
}

/// Why there is no connection, from the event that says so.
fn refused(to: SocketAddr, transport: Transport, event: Event) -> SetupError {
    let status = event.status;
    match (event.kind, transport) {
        (EventKind::Rejected, Transport::InfiniBand) => match status {
            REJECTED_BY_CONSUMER => SetupError::Rejected(event.private_data),
            NOBODY_LISTENS => nobody(to).into(),
            reason => SetupError::Refused(reject_reason(reason).into()),
        },
        (EventKind::Rejected, _) if status.saturating_abs() == libc::ECONNREFUSED => {
            nobody(to).into()
        }
        (EventKind::Rejected, _) => SetupError::Rejected(event.private_data),
        (EventKind::Unreachable, _) => {
            let text = format!("{to}: it does not answer");
            io::Error::new(io::ErrorKind::HostUnreachable, text).into()
        }
        (EventKind::AddressChange, _) => {
            let text = "the network interface has changed to another RDMA device or port";
            io::Error::new(io::ErrorKind::ConnectionAborted, text).into()
        }
        (EventKind::DeviceRemoval, _) => {
            let text = "the RDMA device was removed";
            SetupError::NoDevice(io::Error::new(io::ErrorKind::NotFound, text))
        }
        _ => explain(to, of_status(status)),
    }
}

/// Reasons of InfiniBand (volume 1, §12.6.7.2).
fn reject_reason(reason: i32) -> RejectReason {
    match reason {
        1..=3 => RejectReason::NoResources,
        4 => RejectReason::TimedOut,
        10 | 30 => RejectReason::StaleConnection,
        5..=7 | 9 | 11..=27 | 29 | 31..=35 => RejectReason::Parameters,
        _ => RejectReason::Unspecified,
    }
}

fn nobody(to: SocketAddr) -> io::Error {
    let text = format!("{to}: nobody listens there; is the server running, and is this its port?");
    io::Error::new(io::ErrorKind::ConnectionRefused, text)
}

/// Says what to do, where the system only says what happened.
fn explain(to: SocketAddr, error: io::Error) -> SetupError {
    let text = match error.raw_os_error() {
        Some(libc::ENODEV | libc::EADDRNOTAVAIL | libc::ENXIO) => {
            let text = format!(
                "{to}: {error}; `rdma link` lists devices and the network interfaces that they belong to"
            );
            return SetupError::NoDevice(io::Error::new(error.kind(), text));
        }
        Some(libc::ECONNREFUSED) => return nobody(to).into(),
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH) => {
            format!("{to}: there is no way to it ({error}); is the address right?")
        }
        Some(libc::ETIMEDOUT) => format!("{to}: it does not answer ({error})"),
        Some(libc::EINVAL) => format!(
            "{to}: {error}; has the device the RoCE version that is set for its port (default_roce_mode below \
             /sys/kernel/config/rdma_cm)?"
        ),
        _ => format!("{to}: {error}"),
    };
    io::Error::new(error.kind(), text).into()
}
