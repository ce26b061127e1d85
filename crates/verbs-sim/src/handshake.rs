//! Connection setup: state that both parties share, and how they wait for each other.

use crate::fabric::{Fabric, TimerId, World};
use crate::options::EndOptions;
use crate::side::{ConnectionId, Side};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use verbs::SetupError;

/// Connections being set up, and who listens for them.
#[derive(Default)]
pub(crate) struct Handshakes {
    next: u64,
    listeners: BTreeMap<SocketAddr, Backlog>,
    in_progress: BTreeMap<u64, Handshake>,
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

/// Answer of the end that was connected to.
pub(crate) enum Answer {
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

impl Handshakes {
    /// Connections being set up.
    pub(crate) fn len(&self) -> usize {
        self.in_progress.len()
    }

    /// Somebody listens from now on.
    pub(crate) fn listen(&mut self, addr: SocketAddr) -> io::Result<()> {
        if self.listeners.contains_key(&addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        self.listeners.insert(addr, Backlog::default());
        Ok(())
    }
}

/// One party's hold on a connection being set up. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Handshaking {
    fabric: Fabric,
    number: u64,
    side: Side,
}

impl Handshaking {
    /// Connects to a listener, with private data or without a word.
    pub(crate) fn begin(
        fabric: &Fabric,
        to: SocketAddr,
        options: EndOptions,
        private_data: Option<Vec<u8>>,
    ) -> Result<Self, SetupError> {
        let number = fabric.with(|world| {
            let connector = SocketAddr::new(options.address, world.free_addr().port());
            let due = world.now + *options.faults.latency.start();
            let Handshakes {
                next,
                listeners,
                in_progress,
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
            in_progress.insert(number, handshake);
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

    /// The next connection for the listener at this address.
    pub(crate) fn poll_accept(
        fabric: &Fabric,
        addr: SocketAddr,
        cx: &mut Context<'_>,
    ) -> Poll<Self> {
        let number = fabric.with(|world| {
            let backlog = world.handshakes.listeners.get_mut(&addr);
            let backlog = backlog.expect("a listener is there until it is dropped");
            let number = backlog.waiting.pop_front();
            if number.is_none() {
                backlog.waker = Some(cx.waker().clone());
            }
            number
        });
        match number {
            Some(number) => Poll::Ready(Self::accepted(fabric, number)),
            None => Poll::Pending,
        }
    }

    /// Nobody listens at this address any more. Those who wait are refused.
    pub(crate) fn stop_listening(fabric: &Fabric, addr: SocketAddr) {
        let refused = fabric.with(|world| world.handshakes.listeners.remove(&addr));
        for number in refused.into_iter().flat_map(|backlog| backlog.waiting) {
            drop(Self::accepted(fabric, number));
        }
    }

    fn accepted(fabric: &Fabric, number: u64) -> Self {
        Self {
            fabric: fabric.clone(),
            number,
            side: Side::Right,
        }
    }

    pub(crate) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Address of the one that connects.
    pub(crate) fn connector(&self) -> SocketAddr {
        self.with(|_, handshake| handshake.connector)
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
        let handshake = world.handshakes.in_progress.get_mut(&self.number);
        handshake.expect("a handshake is there until both parties have let go of it")
    }

    /// The private data of the one that connects.
    pub(crate) async fn request(&mut self, timeout: Duration) -> Result<Vec<u8>, SetupError> {
        let taken = |now: Duration, handshake: &mut Handshake| match &handshake.request {
            Some((due, data)) if *due <= now => Progress::Done(data.clone()),
            Some((due, _)) => Progress::At(*due),
            None => Progress::Unknown,
        };
        self.wait("the connection request", timeout, taken).await
    }

    /// Waits for the answer of the end that was connected to.
    pub(crate) async fn answer(&self, timeout: Duration) -> Result<Answer, SetupError> {
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

    /// Makes the connection.
    pub(crate) fn accept(
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

    /// Refuses, in words that are so long on their way.
    pub(crate) fn reject(&self, latency: Duration, private_data: Vec<u8>) {
        self.with(|now, handshake| {
            handshake.answer = Some(Answer::Rejected {
                due: now + latency,
                private_data,
            });
        });
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
            self.fabric.abandon(connection, Side::Left);
        }
        self.fabric.with(|world| {
            // The other party may let go at the same time, and have removed it already.
            let in_progress = &mut world.handshakes.in_progress;
            if matches!(in_progress.get(&self.number), Some(last) if last.held == [false, false]) {
                in_progress.remove(&self.number);
            }
        });
    }
}

/// Progress of something that is waited for.
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
