//! Connecting and listening on a fabric.

use crate::fabric::{ConnectionId, Fabric, Side, TimerId, World};
use crate::options::EndOptions;
use crate::qp::SimQp;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
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
#[derive(Debug)]
struct Script {
    limits: Limits,
    /// Of the next connections.
    next: Mutex<VecDeque<EndOptions>>,
    /// Of all that come after those.
    last: EndOptions,
}

impl Script {
    fn next(&self) -> EndOptions {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.pop_front().unwrap_or_else(|| self.last.clone())
    }
}

/// A peer that connected and says nothing, until it is dropped.
#[derive(Debug)]
pub struct Mute {
    _handshake: Handshaking,
}

/// Connections being set up, and who listens for them.
#[derive(Default)]
pub(crate) struct Handshakes {
    next: u64,
    listeners: BTreeMap<SocketAddr, Backlog>,
    under_way: BTreeMap<u64, Handshake>,
}

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<u64>,
    waker: Option<Waker>,
}

struct Handshake {
    connector: SocketAddr,
    listener: SocketAddr,
    options: EndOptions,
    /// The private data and when it arrives; `None` from a mute peer.
    request: Option<(Duration, Vec<u8>)>,
    answer: Option<Answer>,
    /// Of the connector and of the one that was connected to.
    wakers: [Option<Waker>; 2],
    held: [bool; 2],
}

enum Answer {
    Accepted {
        connection: ConnectionId,
        due: Duration,
        private_data: Vec<u8>,
    },
    Rejected {
        due: Duration,
        private_data: Vec<u8>,
    },
}

impl SimProvider {
    pub(crate) fn new(fabric: Fabric, next: Vec<EndOptions>, last: EndOptions) -> Self {
        Self {
            fabric,
            script: Arc::new(Script {
                limits: last.limits.clone(),
                next: Mutex::new(next.into()),
                last,
            }),
        }
    }

    /// Connects without saying anything, as a peer does whose handshake stalls.
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
        let options = wanted_of(self.script.next(), wanted);
        let handshake = Handshaking::begin(&self.fabric, to, options, Some(private_data.to_vec()))?;
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
                if world.handshakes.listeners.contains_key(&addr) {
                    return Err(io::Error::from(io::ErrorKind::AddrInUse));
                }
                world.handshakes.listeners.insert(addr, Backlog::default());
                Ok(addr)
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
            let number = std::future::poll_fn(|cx| {
                self.fabric.with(|world| {
                    let backlog = world.handshakes.listeners.get_mut(&self.addr);
                    let backlog = backlog.expect("a listener is there until it is dropped");
                    match backlog.waiting.pop_front() {
                        Some(number) => Poll::Ready(number),
                        None => {
                            backlog.waker = Some(cx.waker().clone());
                            Poll::Pending
                        }
                    }
                })
            })
            .await;
            let handshake = Handshaking {
                fabric: self.fabric.clone(),
                number,
                side: Side::Right,
            };
            Ok(Box::new(SimIncoming {
                peer: handshake.with(|_, handshake| handshake.connector),
                options: self.script.next(),
                handshake,
            }) as Box<dyn Incoming>)
        })
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let refused = self
            .fabric
            .with(|world| world.handshakes.listeners.remove(&self.addr));
        for number in refused.into_iter().flat_map(|backlog| backlog.waiting) {
            drop(Handshaking {
                fabric: self.fabric.clone(),
                number,
                side: Side::Right,
            });
        }
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
            let options = wanted_of(self.options, options);
            let connection = self.handshake.accept(&options, private_data)?;
            let qp = SimQp::new(self.handshake.fabric.clone(), connection, Side::Right);
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
            self.handshake.with(|now, handshake| {
                handshake.answer = Some(Answer::Rejected {
                    due: now + *self.options.faults.latency.start(),
                    private_data,
                });
            });
        })
    }
}

/// One party's hold on a connection being set up.
#[derive(Debug)]
struct Handshaking {
    fabric: Fabric,
    number: u64,
    side: Side,
}

impl Handshaking {
    fn begin(
        fabric: &Fabric,
        to: SocketAddr,
        options: EndOptions,
        private_data: Option<Vec<u8>>,
    ) -> Result<Self, SetupError> {
        let number = fabric.with(|world| {
            let connector = world.free_addr();
            let due = world.now + *options.faults.latency.start();
            let Handshakes {
                next,
                listeners,
                under_way,
            } = &mut world.handshakes;
            let backlog = listeners
                .get_mut(&to)
                .ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            let number = *next;
            *next += 1;
            let handshake = Handshake {
                connector,
                listener: to,
                options,
                request: private_data.map(|data| (due, data)),
                answer: None,
                wakers: [None, None],
                held: [true, true],
            };
            under_way.insert(number, handshake);
            backlog.waiting.push_back(number);
            Ok::<_, SetupError>((number, backlog.waker.take()))
        });
        let (number, waker) = number?;
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(Self {
            fabric: fabric.clone(),
            number,
            side: Side::Left,
        })
    }

    /// Changes the handshake, and wakes the other party.
    fn with<R>(&self, act: impl FnOnce(Duration, &mut Handshake) -> R) -> R {
        let (result, waker) = self.fabric.with(|world| {
            let now = world.now;
            let handshake = self.find(world);
            let result = act(now, handshake);
            let waker = handshake.wakers[self.side.other().index()].take();
            (result, waker)
        });
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    fn find<'w>(&self, world: &'w mut World) -> &'w mut Handshake {
        let handshake = world.handshakes.under_way.get_mut(&self.number);
        handshake.expect("a handshake is there until both parties have let go of it")
    }

    async fn request(&mut self, timeout: Duration) -> Result<Vec<u8>, SetupError> {
        let taken = |now: Duration, handshake: &mut Handshake| match &handshake.request {
            Some((due, data)) if *due <= now => Progress::Done(data.clone()),
            Some((due, _)) => Progress::At(*due),
            None => Progress::Unknown,
        };
        self.wait("the connection request", timeout, taken).await
    }

    async fn answer(&self, timeout: Duration) -> Result<Answer, SetupError> {
        let taken = |now: Duration, handshake: &mut Handshake| match &handshake.answer {
            Some(Answer::Accepted { due, .. } | Answer::Rejected { due, .. }) if *due > now => {
                Progress::At(*due)
            }
            Some(_) => match handshake.answer.take() {
                Some(answer) => Progress::Done(answer),
                None => Progress::Unknown,
            },
            None => Progress::Unknown,
        };
        self.wait("the answer to the connection request", timeout, taken)
            .await
    }

    async fn wait<R>(
        &self,
        what: &'static str,
        timeout: Duration,
        mut taken: impl FnMut(Duration, &mut Handshake) -> Progress<R>,
    ) -> Result<R, SetupError> {
        let deadline = self.fabric.now().saturating_add(timeout);
        let mut timer = Timer {
            fabric: &self.fabric,
            set: None,
        };
        let mut poll = |cx: &mut Context<'_>| {
            timer.cancel();
            self.fabric.with(|world| {
                let now = world.now;
                let side = self.side;
                let handshake = self.find(world);
                let wake_at = match taken(now, handshake) {
                    Progress::Done(result) => return Poll::Ready(Ok(result)),
                    Progress::At(due) => due.min(deadline),
                    Progress::Unknown if !handshake.held[side.other().index()] => {
                        let gone = io::Error::from(io::ErrorKind::ConnectionReset);
                        return Poll::Ready(Err(gone.into()));
                    }
                    Progress::Unknown => deadline,
                };
                if deadline <= now {
                    return Poll::Ready(Err(SetupError::TimedOut(what, timeout)));
                }
                handshake.wakers[side.index()] = Some(cx.waker().clone());
                timer.set = Some(world.set_timer(wake_at, cx.waker()));
                Poll::Pending
            })
        };
        std::future::poll_fn(|cx| poll(cx)).await
    }

    fn accept(
        &self,
        options: &EndOptions,
        private_data: &[u8],
    ) -> Result<ConnectionId, SetupError> {
        let (connection, waker) = self.fabric.with(|world| {
            let handshake = self.find(world);
            if !handshake.held[Side::Left.index()] {
                return Err(io::Error::from(io::ErrorKind::ConnectionReset));
            }
            let left = handshake.options.clone();
            let addrs = [handshake.connector, handshake.listener];
            let connection = world.connect(&left, options, addrs);
            let due = world.now + *options.faults.latency.start();
            let handshake = self.find(world);
            handshake.answer = Some(Answer::Accepted {
                connection,
                due,
                private_data: private_data.to_vec(),
            });
            Ok((connection, handshake.wakers[Side::Left.index()].take()))
        })?;
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(connection)
    }
}

impl Drop for Handshaking {
    fn drop(&mut self) {
        let side = self.side;
        let unanswered = self.with(|_, handshake| {
            handshake.held[side.index()] = false;
            match (side, &handshake.answer) {
                (Side::Left, Some(Answer::Accepted { connection, .. })) => Some(*connection),
                (Side::Left | Side::Right, _) => None,
            }
        });
        // The one who connected gave up after it was accepted: its end goes the way of any end.
        if let Some(connection) = unanswered {
            drop(SimQp::new(self.fabric.clone(), connection, Side::Left));
        }
        self.fabric.with(|world| {
            // The other party may let go at the same time, and have removed it already.
            let under_way = &mut world.handshakes.under_way;
            if matches!(under_way.get(&self.number), Some(last) if last.held == [false, false]) {
                under_way.remove(&self.number);
            }
        });
    }
}

/// What there is of something that is waited for.
enum Progress<R> {
    Done(R),
    At(Duration),
    Unknown,
}

/// A timer that is not left behind.
struct Timer<'a> {
    fabric: &'a Fabric,
    set: Option<TimerId>,
}

impl Timer<'_> {
    fn cancel(&mut self) {
        if let Some(timer) = self.set.take() {
            self.fabric.with(|world| world.cancel_timer(timer));
        }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// What a connection can do, as far as it is wanted.
fn wanted_of(mut options: EndOptions, wanted: &QpOptions) -> EndOptions {
    let limits = &mut options.limits;
    limits.receives = limits.receives.min(wanted.receives);
    limits.inbound_reads = limits.inbound_reads.min(wanted.inbound_reads);
    limits.outstanding_reads = limits.outstanding_reads.min(wanted.outstanding_reads);
    options
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
        "{} octets of private data, where {most} are possible",
        private_data.len()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text).into())
}
