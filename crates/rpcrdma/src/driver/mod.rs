//! The event loop of one connection, the same for both ends.
//!
//! A [`Driver`] owns the queue pair, the protocol state and the deadlines of one connection, and
//! answers the calls of its peer. A [`Policy`] holds what differs between client and server.
//!
//! ```text
//! loop {
//!     send calls of ours            Outgoing, as far as there are credits
//!     move what can move            Endpoint::turn: post, progress, completions
//!     deliver                       replies to callers, calls of the peer to the service
//!     nothing to do?                spin, look around (deadlines), park
//! }
//! ```

pub(crate) mod budget;
pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod close_reason;
pub(crate) mod deadlines;
pub(crate) mod dispatch;
pub(crate) mod endpoint;
pub(crate) mod failed;
pub(crate) mod invalidation;
pub(crate) mod job_replies;
pub(crate) mod lease_rate;
pub(crate) mod liveness;
pub(crate) mod outgoing;
pub(crate) mod owner;
pub(crate) mod pulling;
pub(crate) mod receives;
pub(crate) mod spin;
pub(crate) mod xids;

use close_reason::CloseReason;
use deadlines::{Deadline, Deadlines};
use dispatch::Dispatch;
use endpoint::{Endpoint, Turn};
use lease_rate::LeaseRate;
use liveness::{Health, IdleTimer, Liveness, heard, null_call};
use outgoing::Outgoing;
use owner::Connection;
use pulling::Pulling;
use rpc_serving::turns::Turns;
use spin::{Idle, Spinner, Wait, after_others, begin_turn, poll_turn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

use crate::config::HealthCheck;

/// Turns without a pause before the driver yields to other tasks of the runtime.
const TURNS: u32 = 4;

/// Turns without a pause before the driver looks around.
const LOOK_AROUND: u32 = 64;

/// Largest number of calls answered per turn, before replies go out and other tasks have their
/// turn. A client processes one half of its replies while the other half is made: with all of them
/// in one turn each end waited for the other (measured with 32 calls in flight: 280 kop/s with no
/// limit, 460 with 16 or 8, 360 with 4).
pub(crate) const CALLS: usize = 16;

/// Bytes of calls of the peer and their replies after which a turn ends.
const TURN_BYTES: usize = 1 << 20;

/// Bytes that the system passes through TCP in one piece. Small replies beyond that go as a second,
/// short piece, at the full cost of a piece at either end (measured with READs of 4 KiB, 32 in
/// flight: 555 kop/s with 15 in a turn, 488 with 16, which exceed this).
pub(crate) const PIECE: usize = 64 << 10;

/// Largest small reply in bytes: a few larger ones fill a piece.
const SMALL: usize = 8 << 10;

/// Upper bound of the bytes of headers and framing around a small reply.
pub(crate) const AROUND: usize = 64;

/// Timer of a connection without a deadline: a bound, without meaning of its own.
const NO_DEADLINE: Duration = Duration::from_secs(3600);

/// The difference between client and server for a driven connection.
pub(crate) trait Policy: Send {
    /// The calls of this end, if it makes any.
    fn outgoing(&mut self) -> Option<&mut Outgoing>;

    /// Whether a call of this end could be sent now, apart from credits.
    fn may_call(&mut self, connection: &mut Connection) -> bool;

    /// Called before replies are delivered.
    fn before_replies(&mut self, endpoint: &Endpoint);

    /// Whether the peer owes something, or may call, so that its silence counts.
    fn expects_peer(&self, connection: &Connection) -> bool;

    /// Whether nothing but the peer's messages brings work, apart from replies to its calls.
    fn waits_for_peer(&self, connection: &Connection) -> bool;

    /// Whether peers at other addresses wait for Receives that calls of this one hold.
    fn others_wait(&self) -> bool;

    /// Returns how often the connection was used so far, and whether it is in use now.
    fn usage(&self, connection: &Connection) -> (u64, bool);

    /// Called before calls of the peer are answered. An error ends the connection instead.
    fn before_calls(&mut self, endpoint: &Endpoint) -> Result<(), CloseReason>;

    /// Returns the idle timeout, and the close reason for it.
    fn idle_timeout(&self) -> Option<(Duration, CloseReason)>;

    /// Further periodic checks of the policy.
    fn look_around(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        deadlines: &mut Deadlines,
    ) -> Result<(), CloseReason>;

    /// Whether the policy has work now; otherwise registers for a wake-up.
    fn poll(&mut self, cx: &mut Context<'_>, endpoint: &Endpoint) -> bool;
}

/// Driver of one connection, from its beginning to its end.
pub(crate) struct Driver<P> {
    pub(crate) endpoint: Endpoint,
    pub(crate) policy: P,
    pub(crate) answers: Dispatch,
    spinner: Spinner,
    /// The turns of the connection, where connections of its address share theirs.
    turns: Option<Turns>,
    /// Timer for the next deadline, created once because the driver waits often.
    timer: Pin<Box<Sleep>>,
    deadlines: Deadlines,
    /// Time of the last look around, or of the first call of this end after the last wake-up.
    now: Instant,
    /// Whether the driver was woken since that time.
    was_woken: bool,
    /// Liveness of the peer, if the provider does not check it.
    liveness: Option<Liveness>,
    health: HealthCheck,
    pulling: Pulling,
    /// The same of messages for which the peer grants no credits.
    starving: Pulling,
    pull_timeout: Duration,
    lease_rate: LeaseRate,
    idle_timer: IdleTimer,
}

/// Result of delivery in one turn.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    /// Whether anything was delivered.
    any: bool,
    /// Whether callers got replies, and may make further calls.
    replies: bool,
    /// Whether more calls of the peer wait than one turn answers.
    more: bool,
    /// Whether calls wait for a turn of the connection.
    held_back: bool,
}

/// The part of a turn that a connection has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    None,
    Turn,
    /// Its end, in which goes out what was answered in it.
    Rest,
}

/// The end of a wait.
#[derive(Clone, Copy, Default)]
struct Parked {
    /// Others could run meanwhile.
    waited: bool,
    /// It ended with a turn of the connection.
    has_turn: bool,
}

impl<P: Policy> Driver<P> {
    pub(crate) fn new(
        endpoint: Endpoint,
        policy: P,
        answers: Dispatch,
        spinner: Spinner,
        turns: Option<Turns>,
        health: HealthCheck,
        pull_timeout: Duration,
    ) -> Self {
        let now = clock::now();
        let checks = health.is_done(endpoint.qp.limits());
        Self {
            answers,
            endpoint,
            policy,
            spinner,
            turns,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            deadlines: Deadlines::default(),
            now,
            was_woken: false,
            liveness: checks.then(|| Liveness::new(now, health.after, health.within)),
            health,
            pulling: Pulling::new(pull_timeout),
            starving: Pulling::new(pull_timeout),
            pull_timeout,
            lease_rate: LeaseRate::default(),
            idle_timer: IdleTimer::new(now),
        }
    }

    /// Drives the connection until it ends.
    pub(crate) async fn run(&mut self) -> CloseReason {
        let over = match self.turns().await {
            Ok(never) => match never {},
            Err(over) => over,
        };
        self.spinner.leave();
        over
    }

    async fn turns(&mut self) -> Result<std::convert::Infallible, CloseReason> {
        let waker = std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let mut turns = 0;
        let mut more = false;
        let mut share = Share::None;
        self.spinner.busy();
        self.now = clock::now();
        loop {
            if share == Share::None
                && let Some(turns) = &mut self.turns
            {
                begin_turn(turns).await;
            }
            self.endpoint.check()?;
            let sent = self.send()?;
            let turn = self.endpoint.turn();
            if more {
                // What was answered has gone out just now.
                after_others().await;
            }
            // Others of the address wait for their turns.
            let may_answer = share != Share::Rest || self.is_alone();
            let delivered = self.deliver(&waker, may_answer)?;
            more = delivered.more;
            self.endpoint.check()?;
            let worked = turn != Turn::Nothing || sent || delivered.any;
            if worked {
                self.spinner.busy();
                turns += 1;
                if delivered.replies {
                    after_others().await;
                } else if turns % TURNS == 0 {
                    tokio::task::yield_now().await;
                }
            } else {
                turns = 0;
            }
            // After a turn that only sent, all that could bring work ends a wait, too.
            let goes_on = delivered.any || delivered.held_back || turn == Turn::Moved;
            share = self.share_after(share, goes_on, delivered.any);
            let idle = if turns == LOOK_AROUND {
                turns = 0;
                Idle::Yielded
            } else if goes_on {
                continue;
            } else {
                self.spinner.idle(self.waits_for()).await
            };
            if idle == Idle::Again {
                continue;
            }
            self.look_around()?;
            // What was found out just now may have to be said before the connection waits.
            if idle == Idle::Park
                && !self.endpoint.post()
                && !self.endpoint.connection.has_replies()
            {
                let parked = self.park().await?;
                if parked.waited {
                    turns = 0;
                }
                if parked.has_turn {
                    share = Share::Turn;
                }
                self.was_woken = true;
                self.spinner.busy();
            }
        }
    }

    /// The part of its turn that the connection has after one part. Replies go out without a further turn.
    fn share_after(&self, share: Share, goes_on: bool, delivered: bool) -> Share {
        let Some(turns) = &self.turns else {
            return Share::None;
        };
        match (share, goes_on) {
            (Share::Rest, _) if delivered => turns.count(),
            (Share::Rest, _) => {}
            (_, true) if delivered => return Share::Rest,
            (_, true) => {}
            (_, false) => turns.give_back(),
        }
        Share::None
    }

    fn is_alone(&self) -> bool {
        self.turns.as_ref().is_none_or(Turns::is_alone)
    }

    /// Events that end a wait which begins now.
    fn waits_for(&self) -> Wait {
        let answers = self.answers.in_flight() > 0;
        match !answers && self.policy.waits_for_peer(&self.endpoint.connection) {
            true => Wait::Peer,
            false => Wait::Here,
        }
    }

    /// Sends calls of this end. Returns whether there was one.
    fn send(&mut self) -> Result<bool, CloseReason> {
        if !self.policy.may_call(&mut self.endpoint.connection) {
            return Ok(false);
        }
        if std::mem::take(&mut self.was_woken) {
            self.now = clock::now();
        }
        match self.policy.outgoing() {
            Some(outgoing) => outgoing.send(self.now, &mut self.endpoint),
            None => Ok(false),
        }
    }

    /// Delivers replies to callers, sends finished replies of jobs, and passes calls of the peer to
    /// the service, if they may be answered.
    fn deliver(&mut self, waker: &Waker, may_answer: bool) -> Result<Delivered, CloseReason> {
        let mut delivered = Delivered::default();
        self.endpoint.lend_memory(waker);
        if self.endpoint.connection.has_replies() {
            self.policy.before_replies(&self.endpoint);
            let connection = &mut self.endpoint.connection;
            let outgoing = self.policy.outgoing();
            let outgoing = outgoing.expect("only who calls has replies");
            outgoing.deliver(std::iter::from_fn(|| connection.poll_reply()));
            (delivered.any, delivered.replies) = (true, true);
        }
        if self.answers.in_flight() > 0 {
            let cx = Context::from_waker(waker);
            delivered.any |= self.answers.finish(&cx, &mut self.endpoint.connection)?;
        }
        if !may_answer {
            delivered.held_back = self.endpoint.connection.has_calls();
            return Ok(delivered);
        }
        if self.endpoint.connection.calls_in() > 0 {
            self.policy.before_calls(&self.endpoint)?;
        }
        let (mut calls, mut bytes, mut piece, mut is_full) = (0, 0, 0, false);
        while self.answers.not_stuck() < dispatch::MAX_JOBS {
            if is_full {
                delivered.more = true;
                break;
            }
            let Some((id, message)) = self.endpoint.connection.poll_call() else {
                break;
            };
            calls += 1;
            bytes += message.stream_len();
            let connection = &mut self.endpoint.connection;
            let reply = self.answers.call(connection, id, message)?;
            bytes += reply;
            piece += reply + AROUND;
            // The next is mostly as large.
            let fills_piece = reply <= SMALL && piece + reply + AROUND > PIECE;
            is_full = calls == CALLS || bytes >= TURN_BYTES || fills_piece;
        }
        delivered.any |= calls > 0;
        Ok(delivered)
    }

    /// Handles due deadlines. Too expensive for every turn.
    fn look_around(&mut self) -> Result<(), CloseReason> {
        self.now = clock::now();
        self.was_woken = false;
        let calls = self.check_calls();
        self.deadlines.set(Deadline::Calls, calls);
        let liveness = self.check_liveness()?;
        self.deadlines.set(Deadline::Liveness, liveness);
        let pull = self.check_pulls()?;
        self.deadlines.set(Deadline::Pull, pull);
        let lease = self.check_leases()?;
        self.deadlines.set(Deadline::Lease, lease);
        let idle = self.check_use()?;
        self.deadlines.set(Deadline::Idle, idle);
        let (endpoint, deadlines) = (&mut self.endpoint, &mut self.deadlines);
        endpoint.jobs = self.answers.jobs();
        deadlines.set(Deadline::Jobs, self.answers.look(self.now));
        self.policy.look_around(self.now, endpoint, deadlines)
    }

    /// Ends the calls of this end whose time is up.
    fn check_calls(&mut self) -> Option<Instant> {
        let outgoing = self.policy.outgoing()?;
        outgoing.sweep(self.now, &mut self.endpoint);
        Some(outgoing.next_sweep).filter(|_| outgoing.has_calls(&self.endpoint.connection))
    }

    /// RFC 8267 §6.7.2: probes a silent peer that owes something, with a call on a reserved credit.
    fn check_liveness(&mut self) -> Result<Option<Instant>, CloseReason> {
        let Some(liveness) = &mut self.liveness else {
            return Ok(None);
        };
        let connection = &mut self.endpoint.connection;
        let expected = self.policy.expects_peer(connection);
        match liveness.look(self.now, heard(connection.counters()), expected) {
            Health::Well => {}
            Health::Silent(within) => return Err(CloseReason::Silent(within)),
            Health::Ask if connection.can_check_health() => {
                let xid = connection.next_xid();
                let request = null_call(xid, self.health.program).as_health_check();
                let qp = self.endpoint.qp.as_mut();
                if connection.call(self.now, request, qp).is_ok() {
                    liveness.asked(self.now);
                    if let Some(outgoing) = self.policy.outgoing() {
                        outgoing.last_sent = self.now;
                    }
                }
            }
            Health::Ask => {}
        }
        // If there was no credit to ask with, it is tried again soon.
        let soon = self.now + outgoing::SWEEP;
        let next = liveness.next();
        Ok(expected.then_some(if next > self.now { next } else { soon }))
    }

    /// Enforces the time limit for the Read chunks of the peer's calls, and for credits without which
    /// messages wait.
    fn check_pulls(&mut self) -> Result<Option<Instant>, CloseReason> {
        let owed = self.endpoint.connection.waits_for_chunks();
        let short = || self.endpoint.account.others_wait() || self.policy.others_wait();
        if self.pulling.is_late(self.now, owed, short) {
            return Err(CloseReason::PullTimedOut(self.pull_timeout));
        }
        let waits = self.endpoint.connection.waits_for_credits();
        if self.starving.is_late(self.now, waits, || false) {
            return Err(CloseReason::NoCredits(self.pull_timeout));
        }
        let looks = [self.pulling.next(self.now), self.starving.next(self.now)];
        Ok(looks.into_iter().flatten().min())
    }

    /// Enforces the transfer rate of a peer with leased memory, while others wait for that memory
    /// or for the Receives that its calls hold until their chunks have arrived. Time spent in the
    /// service does not count.
    fn check_leases(&mut self) -> Result<Option<Instant>, CloseReason> {
        let owes = self.endpoint.account.held() > 0 && !self.endpoint.connection.is_quiet();
        let io = self.endpoint.qp.io_counters();
        self.lease_rate
            .look(self.now, owes, io.bytes_in + io.bytes_out);
        let short = || self.endpoint.account.others_wait() || self.policy.others_wait();
        if self.lease_rate.is_slow() && short() {
            return Err(CloseReason::TooSlow);
        }
        let account = &self.endpoint.account;
        if account.must_give_way(self.now) {
            return Err(CloseReason::GaveWay);
        }
        let looks = [self.lease_rate.next(), account.next_look(self.now)];
        Ok(looks.into_iter().flatten().min())
    }

    fn check_use(&mut self) -> Result<Option<Instant>, CloseReason> {
        let (used, in_use) = self.policy.usage(&self.endpoint.connection);
        let unused = self.idle_timer.look(self.now, used, in_use);
        match self.policy.idle_timeout() {
            Some((limit, over)) if unused >= limit => Err(over),
            Some((limit, _)) => Ok(Some(self.now + (limit - unused))),
            None => Ok(None),
        }
    }

    /// Waits for work or the next deadline. Who is woken has its turn first: what it reads from its socket would
    /// take memory while it waits for that.
    async fn park(&mut self) -> Result<Parked, CloseReason> {
        let until = self.deadlines.next();
        let until = until.unwrap_or_else(|| self.now + NO_DEADLINE);
        // Mostly it is later each time: then the timer may as well come too early once.
        if self.timer.is_elapsed() || until < self.timer.deadline().into_std() {
            self.timer.as_mut().reset(until.into());
        }
        let mut parked = Parked::default();
        std::future::poll_fn(|cx| {
            let Self {
                endpoint,
                answers,
                turns,
                ..
            } = self;
            if parked.waited
                && !parked.has_turn
                && let Some(turns) = turns
            {
                ready!(poll_turn(turns, cx));
                parked.has_turn = true;
            }
            if answers.in_flight() > 0
                && let Poll::Ready(answered) = answers.poll(cx, &mut endpoint.connection)
            {
                return Poll::Ready(answered);
            }
            // Who is ready need not be woken by the others.
            let ready = self.endpoint.poll_ready(cx).is_ready()
                || self.policy.poll(cx, &self.endpoint)
                || self.timer.as_mut().poll(cx).is_ready()
                || self.endpoint.lend_memory(cx.waker());
            if ready {
                return Poll::Ready(Ok(()));
            }
            if std::mem::take(&mut parked.has_turn) {
                self.turns.as_ref().inspect(|turns| turns.give_back());
            }
            parked.waited = true;
            Poll::Pending
        })
        .await?;
        Ok(parked)
    }
}
