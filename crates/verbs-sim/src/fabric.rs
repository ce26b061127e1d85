//! The simulated network: virtual time, connections and listeners.

use crate::connection::Connection;
use crate::end::Outstanding;
use crate::handshake::Handshakes;
use crate::options::{EndOptions, Way};
use crate::side::{ConnectionId, Side};
use crate::trace::{Trace, TraceHash};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use verbs::ProtocolError;

/// First ephemeral port.
const FIRST_FREE_PORT: u16 = 49152;

/// A simulated network in memory and in virtual time. Clones share it.
#[derive(Clone)]
pub struct Fabric {
    world: Arc<Mutex<World>>,
}

pub(crate) struct World {
    pub(crate) now: Duration,
    seed: u64,
    next_connection: u64,
    next_port: u16,
    next_timer: u64,
    connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) handshakes: Handshakes,
    timers: BTreeMap<(Duration, u64), Waker>,
    pub(crate) trace: Trace,
    /// Whoever keeps the time, and until when it thinks it can sleep.
    keeper: Option<(Waker, Option<Duration>)>,
}

impl Fabric {
    /// Creates a network without connections, at time 0.
    pub fn new(seed: u64) -> Self {
        Self {
            world: Arc::new(Mutex::new(World {
                now: Duration::ZERO,
                seed,
                next_connection: 0,
                next_port: FIRST_FREE_PORT,
                next_timer: 0,
                connections: BTreeMap::new(),
                handshakes: Handshakes::default(),
                timers: BTreeMap::new(),
                trace: Trace::default(),
                keeper: None,
            })),
        }
    }

    /// Virtual time since the network was created.
    pub fn now(&self) -> Duration {
        self.with(|world| world.now)
    }

    /// Advances virtual time and wakes expired timers.
    pub fn advance(&self, by: Duration) {
        self.with(|world| world.now += by);
    }

    /// Advances virtual time to `time`, unless it is later already.
    pub fn advance_to(&self, time: Duration) {
        self.with(|world| world.now = world.now.max(time));
    }

    /// The time of the next event that needs nothing but time to pass.
    pub fn next_event(&self) -> Option<Duration> {
        self.with(|world| world.next_event())
    }

    /// Couples the virtual time to a clock: `now` tells its time since some moment at or before
    /// this call, `sleep` waits in it. To be run beside the test, for as long as it lasts.
    ///
    /// With a runtime whose time is paused this lets the runtime jump from event to event.
    pub fn keep_time<N, S, F>(
        &self,
        now: N,
        sleep: S,
    ) -> impl Future<Output = Infallible> + use<N, S, F>
    where
        N: Fn() -> Duration,
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        let fabric = self.clone();
        async move {
            loop {
                // One event after the other, and whom it woke runs before the next one.
                let limit = now();
                while let Some(event) = fabric.next_event().filter(|event| *event <= limit) {
                    fabric.advance_to(event);
                    after_others().await;
                }
                fabric.advance_to(limit);
                let next = fabric.next_event();
                let mut sleeping = pin!(async {
                    match next {
                        Some(at) => sleep(at.saturating_sub(now())).await,
                        None => std::future::pending().await,
                    }
                });
                std::future::poll_fn(|cx| {
                    // An event that was put in before the one we sleep for wakes us early.
                    if fabric.keeper_is_late(next, cx.waker()) {
                        return Poll::Ready(());
                    }
                    sleeping.as_mut().poll(cx)
                })
                .await;
            }
        }
    }

    /// Sleeps in virtual time.
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep {
            fabric: self.clone(),
            until: self.now().saturating_add(time),
            timer: None,
        }
    }

    /// The connections that still have an end, oldest first.
    pub fn connections(&self) -> Vec<ConnectionId> {
        self.with(|world| world.connections.keys().copied().collect())
    }

    /// Cuts a connection behind what is in flight in either direction.
    pub fn cut(&self, connection: ConnectionId) {
        self.with(|world| {
            let now = world.now;
            world.trace.event(now, || format!("{connection} is cut"));
            if let Some(connection) = world.connections.get_mut(&connection) {
                connection.cut(now);
            }
        });
    }

    /// Stops one end from sending, receiving, or both, for a time; [`Duration::MAX`] means forever.
    pub fn stall(&self, connection: ConnectionId, side: Side, way: Way, lasting: Duration) {
        self.with(|world| {
            let until = world.now.saturating_add(lasting);
            let event = || format!("{} stalls {way:?} for {lasting:?}", side.of(connection));
            world.trace.event(world.now, event);
            if let Some(connection) = world.connections.get_mut(&connection) {
                connection.end_mut(side).stall(way, until);
            }
        });
    }

    /// Sends one end a Terminate as if from its peer, which ends the connection.
    pub fn terminate(&self, connection: ConnectionId, side: Side, error: ProtocolError) {
        self.with(|world| {
            let now = world.now;
            let event = || format!("{} is terminated: {error}", side.of(connection));
            world.trace.event(now, event);
            if let Some(connection) = world.connections.get_mut(&connection) {
                connection.terminate(side, now, error);
            }
        });
    }

    /// Records events as text from now on, for [`Fabric::take_lines`].
    pub fn record(&self) {
        self.with(|world| world.trace.record());
    }

    /// Takes the lines that were recorded since the last call.
    pub fn take_lines(&self) -> Vec<String> {
        self.with(|world| world.trace.take_lines())
    }

    /// Adds a line to what is recorded; it is made only then, and is no part of the
    /// [trace](Self::trace).
    pub fn note(&self, line: impl FnOnce() -> String) {
        self.with(|world| world.trace.note(world.now, line));
    }

    /// All that has happened so far, in one number, and how much that was. Two runs with the same
    /// numbers went the same way; what messages say is no part of it.
    pub fn trace(&self) -> TraceHash {
        self.with(|world| world.trace.hash())
    }

    /// Number of connections that are being set up.
    pub fn handshakes(&self) -> usize {
        self.with(|world| world.handshakes.len())
    }

    /// Number of active timers.
    pub fn timers(&self) -> usize {
        self.with(|world| world.timers.len())
    }

    /// Resources held by all ends of all connections together.
    pub fn outstanding(&self) -> Outstanding {
        self.with(|world| {
            let mut sum = Outstanding::default();
            for connection in world.connections.values() {
                for side in [Side::Left, Side::Right] {
                    let of = connection.outstanding(side);
                    sum.receives += of.receives;
                    sum.work += of.work;
                    sum.completions += of.completions;
                    sum.regions += of.regions;
                    sum.on_the_wire += of.on_the_wire;
                }
            }
            sum
        })
    }

    /// Drops one end of a connection, and the connection with its last end.
    pub(crate) fn abandon(&self, id: ConnectionId, side: Side) {
        let gone = self.with(|world| {
            let now = world.now;
            let event = || format!("{} is dropped", side.of(id));
            world.trace.event(now, event);
            let over = world.connection(id).abandon(side, now);
            if over {
                world.connections.remove(&id)
            } else {
                None
            }
        });
        // With the lock released.
        drop(gone);
    }

    /// Does something to the world, then wakes whom it concerns, with the lock released.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        let mut wake = Vec::new();
        let result = {
            let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
            let result = act(&mut world);
            world.take_wakers(&mut wake);
            result
        };
        for waker in wake {
            waker.wake();
        }
        result
    }

    fn keeper_is_late(&self, next: Option<Duration>, waker: &Waker) -> bool {
        self.with(|world| {
            let event = world.next_event();
            let late = match (event, next) {
                (Some(event), Some(next)) => event < next,
                (Some(_), None) => true,
                (None, _) => false,
            };
            world.keeper = (!late).then(|| (waker.clone(), next));
            late
        })
    }
}

/// Ends when the tasks that were woken before have run.
async fn after_others() {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

impl World {
    /// An address that nobody else was given.
    pub(crate) fn free_addr(&mut self) -> SocketAddr {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// A connection of which at least one end exists.
    pub(crate) fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.connections
            .get_mut(&id)
            .expect("a connection exists for as long as one of its ends")
    }

    pub(crate) fn connect(
        &mut self,
        left: &EndOptions,
        right: &EndOptions,
        addrs: [SocketAddr; 2],
    ) -> ConnectionId {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let connection = Connection::new(left, right, addrs, self.seed, id.0);
        self.connections.insert(id, connection);
        let [from, to] = addrs;
        self.trace
            .event(self.now, || format!("{id} is made from {from} to {to}"));
        id
    }

    /// Wakes `waker` at `time`.
    pub(crate) fn set_timer(&mut self, time: Duration, waker: &Waker) -> TimerId {
        let id = (time, self.next_timer);
        self.next_timer += 1;
        self.timers.insert(id, waker.clone());
        TimerId(id)
    }

    pub(crate) fn cancel_timer(&mut self, timer: TimerId) {
        self.timers.remove(&timer.0);
    }

    fn next_event(&self) -> Option<Duration> {
        let connections = self.connections.values();
        let of_connections = connections.filter_map(|connection| connection.next_event(self.now));
        let of_timers = self.timers.keys().map(|(time, _)| *time);
        of_connections
            .chain(of_timers)
            .filter(|time| *time > self.now)
            .min()
    }

    fn take_wakers(&mut self, wake: &mut Vec<Waker>) {
        let now = self.now;
        for connection in self.connections.values_mut() {
            connection.take_wakers(now, wake);
        }
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            wake.push(entry.remove());
        }
        let event = self.next_event();
        if let Some((_, until)) = &self.keeper
            && event.is_some_and(|event| until.is_none_or(|until| event < until))
        {
            wake.extend(self.keeper.take().map(|(waker, _)| waker));
        }
    }
}

/// Identifier of an active timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerId((Duration, u64));

/// A future that ends at a virtual time; created by [`Fabric::sleep`].
#[derive(Debug)]
pub struct Sleep {
    fabric: Fabric,
    until: Duration,
    timer: Option<TimerId>,
}

impl Sleep {
    fn cancel(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.fabric.with(|world| world.cancel_timer(timer));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.cancel();
        let until = self.until;
        let timer = self
            .fabric
            .with(|world| (world.now < until).then(|| world.set_timer(until, cx.waker())));
        self.timer = timer;
        match timer {
            Some(_) => Poll::Pending,
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}
