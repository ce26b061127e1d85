//! The provider: connecting and listening on a fabric.

use crate::fabric::Fabric;
use crate::handshake::{Answer, Handshaking};
use crate::options::{EndOptions, Setup};
use crate::qp::SimQp;
use crate::side::Side;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Context;
use std::time::Duration;
use verbs::{
    BoxFuture, Connected, Incoming, Limits, Listener, Provider, QpOptions, QueuePair, SetupError,
    WorkRequest,
};

/// A provider whose connections live on a [`Fabric`].
#[derive(Debug)]
pub struct SimProvider {
    fabric: Fabric,
    script: Arc<Script>,
}

/// The options of one connection after the other.
struct Script {
    limits: Limits,
    draw: Mutex<Draw>,
}

type Draw = Box<dyn FnMut() -> EndOptions + Send>;

impl Script {
    fn next(&self) -> EndOptions {
        let mut draw = self.draw.lock().unwrap_or_else(PoisonError::into_inner);
        draw()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limits.fmt(f)
    }
}

/// A peer that connected and sends nothing, until it is dropped.
#[derive(Debug)]
pub struct Mute {
    _handshake: Handshaking,
}

impl Fabric {
    /// A provider on this fabric, all of whose connections have these options at their end.
    pub fn provider(&self, options: EndOptions) -> SimProvider {
        SimProvider::new(self.clone(), Vec::new(), options)
    }

    /// The same, but its first connections have each the options of `first`, in order, and all
    /// further ones those of `last`. Connections are counted as they are begun, on either side.
    pub fn scripted_provider(&self, first: Vec<EndOptions>, last: EndOptions) -> SimProvider {
        SimProvider::new(self.clone(), first, last)
    }

    /// The same, but each connection has the options that `draw` gives it; what all of them can do
    /// at most is `limits`.
    pub fn drawn_provider(
        &self,
        limits: Limits,
        draw: impl FnMut() -> EndOptions + Send + 'static,
    ) -> SimProvider {
        SimProvider::drawn(self.clone(), limits, Box::new(draw))
    }
}

impl SimProvider {
    fn new(fabric: Fabric, next: Vec<EndOptions>, last: EndOptions) -> Self {
        let limits = last.limits.clone();
        let mut next = VecDeque::from(next);
        let draw = move || next.pop_front().unwrap_or_else(|| last.clone());
        Self::drawn(fabric, limits, Box::new(draw))
    }

    fn drawn(fabric: Fabric, limits: Limits, draw: Draw) -> Self {
        let draw = Mutex::new(draw);
        Self {
            fabric,
            script: Arc::new(Script { limits, draw }),
        }
    }

    /// Connects without sending a request, as a peer does whose handshake stalls.
    ///
    /// # Errors
    ///
    /// Nobody listens there.
    pub fn connect_mute(&self, to: SocketAddr) -> Result<Mute, SetupError> {
        Ok(Mute {
            _handshake: Handshaking::begin(&self.fabric, to, self.script.next(), None)?,
        })
    }

    async fn connect_to(
        &self,
        to: SocketAddr,
        wanted: &QpOptions,
        private_data: &[u8],
        receives: Vec<WorkRequest>,
    ) -> Result<Connected, SetupError> {
        fits(private_data, self.script.limits.private_data.request)?;
        let options = wanted_of(self.script.next(), wanted)?;
        let (setup, latency) = (options.faults.setup, *options.faults.latency.start());
        let request = (setup != Setup::RequestLost).then(|| private_data.to_vec());
        if setup == Setup::Refused {
            self.fabric.sleep(latency).await;
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let handshake = Handshaking::begin(&self.fabric, to, options, request)?;
        if setup == Setup::AnswerLost {
            self.fabric.sleep(wanted.setup_timeout).await;
            let what = "the answer to the connection request";
            return Err(SetupError::TimedOut(what, wanted.setup_timeout));
        }
        let answer = handshake.answer(wanted.setup_timeout).await?;
        match answer {
            Answer::Accepted {
                connection,
                private_data,
                due: _,
            } => {
                let qp = SimQp::new(self.fabric.clone(), connection, Side::Left);
                Ok(Connected {
                    qp: with_receives(qp, receives)?,
                    private_data,
                })
            }
            Answer::Rejected { private_data, .. } => Err(SetupError::Rejected(private_data)),
        }
    }
}

impl Provider for SimProvider {
    fn limits(&self) -> Limits {
        self.script.limits.clone()
    }

    fn connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(self.connect_to(to, options, private_data, receives))
    }

    fn listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(async move {
            let addr = self.fabric.with(|world| {
                let addr = match on.port() {
                    0 => SocketAddr::new(on.ip(), world.free_addr().port()),
                    _ => on,
                };
                world.handshakes.listen(addr).map(|()| addr)
            })?;
            Ok(Box::new(SimListener {
                fabric: self.fabric.clone(),
                script: Arc::clone(&self.script),
                addr,
            }) as Box<dyn Listener>)
        })
    }
}

struct SimListener {
    fabric: Fabric,
    script: Arc<Script>,
    addr: SocketAddr,
}

impl Listener for SimListener {
    fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        Box::pin(async move {
            let poll = |cx: &mut Context<'_>| Handshaking::poll_accept(&self.fabric, self.addr, cx);
            let handshake = std::future::poll_fn(poll).await;
            Ok(Box::new(SimIncoming {
                peer: handshake.connector(),
                options: self.script.next(),
                handshake,
            }) as Box<dyn Incoming>)
        })
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        Handshaking::stop_listening(&self.fabric, self.addr);
    }
}

struct SimIncoming {
    peer: SocketAddr,
    options: EndOptions,
    handshake: Handshaking,
}

impl Incoming for SimIncoming {
    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn request<'a>(&'a mut self, timeout: Duration) -> BoxFuture<'a, Result<Vec<u8>, SetupError>> {
        Box::pin(self.handshake.request(timeout))
    }

    fn accept<'a>(
        self: Box<Self>,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Box<dyn QueuePair>, SetupError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            fits(private_data, self.options.limits.private_data.accept)?;
            let options = wanted_of(self.options, options)?;
            let connection = self.handshake.accept(&options, private_data)?;
            let qp = SimQp::new(self.handshake.fabric().clone(), connection, Side::Right);
            with_receives(qp, receives)
        })
    }

    fn reject<'a>(self: Box<Self>, private_data: &'a [u8]) -> BoxFuture<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let most = self.options.limits.private_data.reject;
            let private_data = private_data[..private_data.len().min(most)].to_vec();
            let latency = *self.options.faults.latency.start();
            self.handshake.reject(latency, private_data);
        })
    }
}

/// Limits of a connection, as far as they are wanted.
fn wanted_of(mut options: EndOptions, wanted: &QpOptions) -> Result<EndOptions, SetupError> {
    let limits = &mut options.limits;
    if wanted.shared_receives.is_some() && !limits.shared_receives {
        let text = "a shared receive queue, which this provider has not got";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text).into());
    }
    options.shared_receives.clone_from(&wanted.shared_receives);
    limits.receives = limits.receives.min(wanted.receives);
    limits.inbound_reads = limits.inbound_reads.min(wanted.inbound_reads);
    limits.outstanding_reads = limits.outstanding_reads.min(wanted.outstanding_reads);
    Ok(options)
}

fn with_receives(
    mut qp: SimQp,
    receives: Vec<WorkRequest>,
) -> Result<Box<dyn QueuePair>, SetupError> {
    for receive in receives {
        qp.post(receive)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    }
    Ok(Box::new(qp))
}

fn fits(private_data: &[u8], most: usize) -> Result<(), SetupError> {
    if private_data.len() <= most {
        return Ok(());
    }
    let text = format!(
        "{} bytes of private data, where {most} are possible",
        private_data.len()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text).into())
}
