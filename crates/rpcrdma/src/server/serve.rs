//! The task that owns one connection of a server, and answers its calls.

use super::asking::Asking;
use super::backchannel::BackEnd;
use super::grants::Grants;
use super::pulling::Pulling;
use super::stop::Stop;
use super::{Settings, Tally};
use crate::answers::Answers;
use crate::clock;
use crate::owner::{CallId, Event};
use crate::spin::{Activity, Idle, Spinner, after_others};
use crate::wire::{Over, Wire};
use oncrpc::Caller;
use oncrpc::xdr::Payload;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Turns without a pause before other connections of the runtime have theirs.
const TURNS: u32 = 4;

/// Turns without a pause before the owner looks around all the same.
const LOOK_AROUND: u32 = 64;

/// Calls of one connection that are answered beside others at a time; more wait. Their replies are
/// not accounted for while they are made, and may be as large as a chunk even if none was offered.
const MAX_JOBS: usize = 64;

/// Calls that are answered in one turn at most, before what there is goes out and others have
/// their turn. A client takes in one half of its replies while the other half is made: with all of
/// them in one turn each end waited for the other (measured with 32 calls on their way: 280 kop/s
/// with no limit, 460 with 16 or 8, 360 with 4).
const CALLS: usize = 16;

/// Octets of replies after which a turn ends.
const REPLIES: usize = 1 << 20;

/// Serves one connection from its beginning to its end.
pub(super) struct Serving {
    wire: Wire,
    settings: Arc<Settings>,
    tally: Tally,
    spinner: Spinner,
    answers: Answers,
    /// Calls that came before replies of the client to calls of ours, and wait for their turn.
    waiting: VecDeque<(CallId, Payload)>,
    /// Calls to the client.
    back: Option<BackEnd>,
    stop: Stop,
    /// Ends when the server stops.
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Wakes it when it has to look around; made once, as it waits often.
    timer: Pin<Box<Sleep>>,
    /// When it has to end, once it was asked to.
    drain_until: Option<Instant>,
    /// Calls taken in when it was last looked at, and when there were more.
    seen: (u64, Instant),
    pulling: Pulling,
    grants: Grants,
    asking: Asking,
}

/// What a turn had to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Nothing,
    All,
    /// There may be more, but not in this turn.
    Enough,
}

impl Serving {
    pub(super) fn new(
        wire: Wire,
        settings: Arc<Settings>,
        activity: Activity,
        tally: Tally,
        stop: Stop,
    ) -> Self {
        let caller = Caller::new(wire.qp.peer_addr());
        Self {
            answers: Answers::new(Arc::clone(&settings.service), caller),
            waiting: VecDeque::new(),
            back: BackEnd::open(&settings.config, caller, &wire),
            spinner: Spinner::new(settings.config.spin, activity),
            pulling: Pulling::new(settings.config.pull_timeout),
            grants: Grants::new(&wire.connection),
            asking: Asking::new(clock::now()),
            wire,
            settings,
            tally,
            stopped: Box::pin(stopped(stop.clone())),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            stop,
            drain_until: None,
            seen: (0, clock::now()),
        }
    }

    pub(super) async fn run(mut self) {
        let over = self.drive().await;
        self.spinner.leave();
        self.tally.publish(&self.wire);
        self.wire.log_end(&over);
        self.answers.give_up();
        if let Some(mut back) = self.back.take() {
            back.end(&over);
        }
        // Nothing is to be expected of a peer that is over, or does not speak.
        if !matches!(over, Over::Closed(_) | Over::Silent(_)) {
            self.wire.close().await;
        }
    }

    async fn drive(&mut self) -> Over {
        let waker = std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let mut turns = 0;
        let mut more = false;
        loop {
            let called = match self.call_back() {
                Ok(called) => called,
                Err(over) => return over,
            };
            let moved = self.wire.turn() || called;
            if std::mem::take(&mut more) {
                after_others().await;
            }
            let answered = match self.answer(&waker) {
                Ok(answered) => {
                    more = answered == Answered::Enough;
                    answered != Answered::Nothing
                }
                Err(over) => return over,
            };
            if let Some(over) = self.wire.over() {
                return over;
            }
            if moved || answered {
                self.spinner.busy();
                turns += 1;
                if turns % TURNS == 0 {
                    tokio::task::yield_now().await;
                }
                if turns < LOOK_AROUND {
                    continue;
                }
            }
            turns = 0;
            let idle = if moved || answered {
                Idle::Yielded
            } else {
                self.spinner.idle().await
            };
            if idle == Idle::Again {
                continue;
            }
            if let Some(over) = self.look_around() {
                return over;
            }
            if idle == Idle::Park {
                if let Err(over) = self.park().await {
                    return over;
                }
                self.spinner.busy();
            }
        }
    }

    /// Sends what there is to call the client; whether there was something.
    fn call_back(&mut self) -> Result<bool, Over> {
        match &mut self.back {
            Some(back) => back.send(&mut self.wire),
            None => Ok(false),
        }
    }

    /// Takes the answers of calls that took longer, and hands new ones to the service.
    fn answer(&mut self, waker: &Waker) -> Result<Answered, Over> {
        let mut answered = Answered::Nothing;
        self.wire.lend_memory(Some(waker));
        if self.answers.under_way() > 0 && self.answers.finish(&mut self.wire.connection)? {
            answered = Answered::All;
        }
        let (mut calls, mut octets) = (0, 0);
        while self.answers.under_way() < MAX_JOBS {
            if calls == CALLS || octets >= REPLIES {
                return Ok(Answered::Enough);
            }
            let Some((id, message)) = self.next_call() else {
                return Ok(answered);
            };
            answered = Answered::All;
            calls += 1;
            octets += self.answers.call(&mut self.wire.connection, id, message);
        }
        // A job may wait for what the client replies to a call of ours: that is not to wait for it.
        if self.back.is_some() {
            while let Some(call) = self.come() {
                self.waiting.push_back(call);
            }
        }
        Ok(answered)
    }

    /// The next call to answer.
    fn next_call(&mut self) -> Option<(CallId, Payload)> {
        if let Some(call) = self.waiting.pop_front() {
            return Some(call);
        }
        self.come()
    }

    /// The next call that has come. Replies that came before it are handed on.
    fn come(&mut self) -> Option<(CallId, Payload)> {
        loop {
            match self.wire.connection.poll_event()? {
                Event::Call { id, message } => return Some((id, message)),
                Event::Reply { call, reply } => match &mut self.back {
                    Some(back) => back.deliver(call, reply),
                    None => unreachable!("a server without a backchannel has no calls of its own"),
                },
            }
        }
    }

    /// What is not to be done in every turn: grants, counters, the end, silence.
    fn look_around(&mut self) -> Option<Over> {
        let now = clock::now();
        self.grants.adjust(&mut self.wire.connection);
        self.asking.look(now, &mut self.wire.connection);
        let (mut calls_back, mut open) = (false, false);
        if let Some(back) = &mut self.back {
            if let Some(over) = back.look_around(now, &mut self.wire) {
                return Some(over);
            }
            calls_back = !back.is_idle();
            open = back.is_ready();
        }
        let connection = &self.wire.connection;
        self.tally.publish(&self.wire);
        calls_back |= connection.calls_out() > 0;
        let idle = connection.calls_in() == 0 && !calls_back;
        if self.drain_until.is_none() && self.stop.is_set() {
            self.drain_until = Some(now + self.settings.config.drain_timeout);
        }
        if let Some(until) = self.drain_until
            && (now >= until || idle && connection.is_quiet())
        {
            return Some(Over::Asked);
        }
        let short = || self.settings.budget.is_short();
        if self
            .pulling
            .is_late(now, connection.waits_for_chunks(), short)
        {
            return Some(Over::PullTimedOut(self.settings.config.pull_timeout));
        }
        let calls = connection.counters().calls_received;
        // RFC 8167 §5.4: a client that is ready for calls keeps its connection for them.
        if calls != self.seen.0 || !idle || open {
            self.seen = (calls, now);
        }
        let timeout = self.settings.config.idle_timeout?;
        (now >= self.seen.1 + timeout).then_some(Over::Idle(timeout))
    }

    async fn park(&mut self) -> Result<(), Over> {
        let silence = self.settings.config.idle_timeout.map(|t| self.seen.1 + t);
        let stuck = self.pulling.next(clock::now());
        let back = self.back.as_ref();
        let back = back.and_then(|back| back.next(clock::now(), &self.wire));
        let until = [self.drain_until, silence, stuck, back];
        let until = until.into_iter().flatten();
        let until = until
            .min()
            .unwrap_or_else(|| clock::now() + Duration::from_secs(3600));
        // Mostly it is later each time: then the timer may as well come too early once.
        if self.timer.is_elapsed() || until < self.timer.deadline().into_std() {
            self.timer.as_mut().reset(until.into());
        }
        let draining = self.drain_until.is_some();
        std::future::poll_fn(|cx| {
            let Self { wire, answers, .. } = self;
            if answers.under_way() > 0
                && let Poll::Ready(answered) = answers.poll(cx, &mut wire.connection)
            {
                return Poll::Ready(answered);
            }
            let ready = self.wire.poll_ready(cx).is_ready()
                | self
                    .back
                    .as_ref()
                    .is_some_and(|back| back.poll(cx, &self.wire))
                | (!draining && self.stopped.as_mut().poll(cx).is_ready())
                | self.timer.as_mut().poll(cx).is_ready();
            // A call that waited for memory may have got some.
            if ready || self.wire.lend_memory(Some(cx.waker())) {
                return Poll::Ready(Ok(()));
            }
            Poll::Pending
        })
        .await
    }
}

async fn stopped(stop: Stop) {
    stop.wait().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerConfig;
    use crate::budget::Budget;
    use crate::failed::FailedCalls;
    use crate::owner::{Connection, Driver};
    use crate::server::State;
    use buffer::{Buffer, Pool};
    use oncrpc::xdr::Payload;
    use oncrpc::{Answer, Reply, Service};
    use rpcrdma_proto::v2::Dialect;
    use rpcrdma_proto::{
        Characteristics, Config, InlineThreshold, PrivateData, Receives, Registrations, Role,
        Versions, Xids,
    };
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::{Mutex, PoisonError};
    use verbs::{Gather, QueuePair, WorkRequest, WrId};
    use verbs_sim::{EndOptions, Fabric, PairOptions};

    /// Notes how many turns others have had at each call.
    struct Notes {
        others: Arc<AtomicU32>,
        notes: Mutex<Vec<u32>>,
    }

    impl Service for Notes {
        fn call(&self, _: Payload, _: &Caller) -> Answer {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.push(self.others.load(SeqCst));
            Answer::Now(Reply::Nothing)
        }
    }

    #[tokio::test]
    async fn others_have_their_turn_while_one_connection_has_many_calls() {
        const ALL: usize = 128;
        let end = EndOptions::default();
        let fabric = Fabric::new(3);
        let (mut qp, mut peer) = fabric.pair(&PairOptions::both(end.clone()));
        let budget = Budget::new(0);
        let config = Config {
            role: Role::Server,
            versions: Versions::One,
            dialect: Dialect::default(),
            xids: Xids::starting_at(1),
            characteristics: Characteristics::default(),
            own: PrivateData {
                send: InlineThreshold::DEFAULT,
                receive: InlineThreshold::DEFAULT,
                remote_invalidation: false,
            },
            credits: 128,
            backward_credits: 0,
            reserve_credit: false,
            max_chunk: 0,
            max_segment: 0,
            registrations: Registrations::OF_CALLS,
            persistent: None,
            receives: Receives::Posted,
            pool: Pool::new(0),
        };
        for receive in config.initial_receives() {
            qp.post(receive).expect("there is room");
        }
        for xid in 0..u32::try_from(ALL).expect("a small number") {
            let words = [xid, 1, 128, 0, 0, 0, 0, xid, 0];
            let octets: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let send = WorkRequest::Send {
                wr: WrId(0),
                buffer: Buffer::from(octets),
                rest: Gather::new(),
                invalidate: None,
            };
            peer.post(send).expect("there is room");
        }
        while peer.progress() {}
        let owner = Driver::new(FailedCalls::new());
        let connection = Connection::new(&config, owner, None, qp.limits());
        let account = budget.account();
        let others = Arc::new(AtomicU32::new(0));
        let notes = Arc::new(Notes {
            others: Arc::clone(&others),
            notes: Mutex::default(),
        });
        let settings = Settings {
            provider: Arc::new(fabric.provider(end)),
            service: Arc::clone(&notes) as Arc<dyn Service>,
            config: ServerConfig::default(),
            guests: crate::server::guests::Guests::new(&ServerConfig::default()),
            budget,
        };
        let state = Arc::new(State::default());
        let mut serving = std::pin::pin!(
            Serving::new(
                Wire::new(Box::new(qp), connection, account),
                Arc::new(settings),
                Activity::default(),
                Tally::new(state),
                Stop::new(),
            )
            .run()
        );
        // Each time that it pauses is a turn for others.
        let noted = || notes.notes.lock().unwrap_or_else(PoisonError::into_inner);
        while noted().len() < ALL {
            std::future::poll_fn(|cx| {
                others.fetch_add(1, SeqCst);
                assert!(serving.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        let noted = noted();
        assert_eq!(noted[0], noted[CALLS - 1]);
        assert!(noted[0] < noted[CALLS], "a turn between these two");
    }
}
