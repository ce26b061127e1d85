//! Both ends of a connection, watched, and driven until nothing moves.

use super::{
    CallId, CallRequest, CallToken, Connection, Event, TestOwner, bound, call, config, request,
};
use crate::{Config, FailedCall, PrivateData, Role, Versions};
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Reply, TransportError};
use rpcrdma_watch::{Watch, WatchedQp};
use std::time::Instant;
use verbs::QueuePair;
use verbs_sim::{EndOptions, Fabric, PairOptions, SimQp};

/// Turns after which what is driven is taken to have no end: no test has a tenth of them.
pub(super) const MAX_TURNS: usize = 100_000;

/// One end: its queue pair and its protocol state.
pub(super) struct End<Q> {
    pub(super) qp: Q,
    pub(super) connection: Connection,
    pub(super) owner: TestOwner,
    /// When calls that waited are sent.
    pub(super) now: Instant,
}

/// Messages from the server to the client.
#[derive(Default)]
pub(super) struct Back {
    pub(super) calls: Vec<(CallId, Payload)>,
    pub(super) replies: Vec<(CallToken, Result<Payload, TransportError>)>,
}

/// How a pair is made.
pub(super) struct Setup {
    pub(super) client: Config,
    pub(super) server: Config,
    /// Bytes for the calls of the client.
    pub(super) budget: usize,
    pub(super) ends: PairOptions,
    /// Whether the ends hear each other's private data.
    pub(super) private_data: bool,
    /// Of the fabric.
    pub(super) seed: u64,
}

pub(super) struct Pair {
    pub(super) fabric: Fabric,
    pub(super) client: End<WatchedQp<SimQp>>,
    pub(super) server: End<WatchedQp<SimQp>>,
    /// Calls handed up at the server and not answered yet.
    pub(super) calls: Vec<(CallId, Payload)>,
    /// Replies handed up at the client.
    pub(super) replies: Vec<(CallToken, Result<Payload, TransportError>)>,
    /// The backward direction: calls handed up at the client, and replies at the server.
    pub(super) back: Back,
    /// When calls are sent.
    pub(super) now: Instant,
    /// After both ends, so that they are gone when it speaks.
    _verdict: Verdict,
}

/// Says at the end of a test what the checkers found.
struct Verdict(Watch);

impl Drop for Verdict {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.finish(&[]);
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            client: config(Role::Client),
            server: config(Role::Server),
            budget: 64 << 20,
            ends: PairOptions::both(EndOptions::default()),
            private_data: true,
            seed: 7,
        }
    }
}

impl Setup {
    /// Two ends that speak this.
    pub(super) fn speaking(versions: Versions) -> Self {
        let mut setup = Self::default();
        setup.client.versions = versions;
        setup.server.versions = versions;
        setup
    }
}

impl<Q: QueuePair> End<Q> {
    pub(super) fn new(
        mut qp: Q,
        config: &Config,
        owner: TestOwner,
        peer: Option<PrivateData>,
    ) -> Self {
        for receive in config.initial_receives() {
            qp.post(receive).expect("there is room for receives");
        }
        let connection = Connection::new(config, owner.clone(), peer, qp.limits());
        Self {
            qp,
            connection,
            owner,
            now: Instant::now(),
        }
    }

    /// One turn of a driver; whether anything happened.
    pub(super) fn turn(&mut self) -> bool {
        let mut moved = self.qp.progress();
        while let Some(completion) = self.qp.poll_cq() {
            self.connection.handle_completion(completion);
            moved = true;
        }
        self.lend_memory();
        self.connection.send_waiting(self.now, &mut self.qp);
        while let Some(work) = self.connection.poll_post() {
            moved = true;
            if let Err(refused) = self.qp.post(work) {
                self.connection.handle_refused(refused.into_work());
                break;
            }
        }
        moved
    }

    pub(super) fn lend_memory(&mut self) {
        while let Some(need) = self.connection.poll_memory() {
            match self.owner.budget.take(need.pulls + need.offered) {
                Some(lease) => self.connection.handle_memory(lease),
                None => return self.connection.handle_no_memory(),
            }
        }
    }

    /// Hands in a call.
    pub(super) fn call(&mut self, request: CallRequest) -> Result<(), FailedCall<CallToken>> {
        self.connection.call(self.now, request, &mut self.qp)
    }

    /// Cancels a call; whether it had no end yet.
    pub(super) fn cancel(&mut self, token: CallToken) -> bool {
        self.connection.cancel(|call| *call == token) == 1
    }
}

impl End<WatchedQp<SimQp>> {
    fn take_events(
        &mut self,
        calls: &mut Vec<(CallId, Payload)>,
        replies: &mut Vec<(CallToken, Result<Payload, TransportError>)>,
    ) {
        let xid = |message: &Payload| Reader::from(message).u32().expect("an XID");
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Call { id, message } => {
                    self.qp.party().executed(xid(&message));
                    calls.push((id, message));
                }
                Event::Reply { call, reply } => {
                    if let Ok(reply) = &reply {
                        self.qp.party().delivered(xid(reply));
                    }
                    replies.push((call, reply));
                }
            }
        }
    }

    /// Description of its unfinished work.
    fn busy_with(&self) -> String {
        format!(
            "calls out {}, calls in {}, closed {:?}, {:?}",
            self.connection.calls_out(),
            self.connection.calls_in(),
            self.qp.closed(),
            self.qp.inner().outstanding()
        )
    }
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(Setup::default())
    }

    /// Two ends that speak this, and know it of each other.
    pub(super) fn speaking(versions: Versions) -> Self {
        let mut pair = Self::with(Setup::speaking(versions));
        pair.drive();
        pair
    }

    pub(super) fn with(setup: Setup) -> Self {
        let fabric = Fabric::new(setup.seed);
        let (left, right) = fabric.pair(&setup.ends);
        let heard = |config: &Config| setup.private_data.then_some(config.own);
        let watch = Watch::default();
        let agreed = |config: &Config| config.own.remote_invalidation && setup.private_data;
        let agreed = agreed(&setup.client) && agreed(&setup.server);
        let left = watch.party("client").connected(left, agreed);
        let right = watch.party("server").accepted(right, agreed);
        Self {
            fabric,
            client: End::new(
                left,
                &setup.client,
                TestOwner::default(),
                heard(&setup.server),
            ),
            server: End::new(
                right,
                &setup.server,
                TestOwner::with_budget(setup.budget),
                heard(&setup.client),
            ),
            calls: Vec::new(),
            replies: Vec::new(),
            back: Back::default(),
            now: Instant::now(),
            _verdict: Verdict(watch),
        }
    }

    /// The client is ready for calls, and the server knows it from a call: by then it is known what is
    /// spoken.
    pub(super) fn client_is_ready(&mut self) {
        self.drive();
        self.server.connection.handle_client_ready();
        for end in [&self.client, &self.server] {
            end.qp.party().client_is_ready();
        }
    }

    /// Sends a call, now or when there is room.
    pub(super) fn call(&mut self, request: CallRequest) {
        self.client.now = self.now;
        if let Err(failed) = self.client.call(request) {
            self.replies.push((failed.call, Err(failed.error)));
        }
    }

    /// The server calls its client, now or when there is room.
    pub(super) fn call_back(&mut self, request: CallRequest) {
        self.server.now = self.now;
        if let Err(failed) = self.server.call(request) {
            self.back.replies.push((failed.call, Err(failed.error)));
        }
    }

    /// Until nothing moves.
    pub(super) fn drive(&mut self) {
        self.drive_within(MAX_TURNS);
    }

    fn drive_within(&mut self, most: usize) {
        for _ in 0..most {
            if !self.turn() {
                return;
            }
        }
        panic!("it has no end: {}", self.busy_with());
    }

    fn busy_with(&self) -> String {
        format!(
            "client: {}; server: {}; next event {:?}, now {:?}",
            self.client.busy_with(),
            self.server.busy_with(),
            self.fabric.next_event(),
            self.fabric.now()
        )
    }

    /// One turn of both ends, or else a step in time; whether there was one.
    pub(super) fn turn(&mut self) -> bool {
        (self.client.now, self.server.now) = (self.now, self.now);
        let moved = self.client.turn() | self.server.turn();
        let back = &mut self.back;
        self.server.take_events(&mut self.calls, &mut back.replies);
        self.client.take_events(&mut back.calls, &mut self.replies);
        if moved {
            return true;
        }
        let next = self.fabric.next_event();
        if let Some(time) = next {
            self.fabric.advance_to(time);
        }
        next.is_some()
    }

    /// Until the one call is at the server, which gives it back.
    pub(super) fn arrived(&mut self) -> (CallId, Payload) {
        self.drive();
        assert_eq!(self.calls.len(), 1, "one call arrives");
        self.calls.remove(0)
    }

    /// Answers a call and drives on.
    pub(super) fn answer(&mut self, id: CallId, reply: Reply) {
        self.server.connection.reply(id, reply);
        self.drive();
    }

    /// The one call of the server that is at the client, which gives it back.
    pub(super) fn arrived_back(&mut self) -> (CallId, Payload) {
        self.drive();
        assert_eq!(self.back.calls.len(), 1, "one call arrives");
        self.back.calls.remove(0)
    }

    /// Answers a call of the server and drives on.
    pub(super) fn answer_back(&mut self, id: CallId, reply: Reply) {
        self.client.connection.reply(id, reply);
        self.drive();
    }

    /// The one end of a call of the server that there is.
    pub(super) fn ended_back(&mut self) -> Result<Payload, TransportError> {
        self.drive();
        assert_eq!(self.back.replies.len(), 1, "one call ends");
        self.back.replies.remove(0).1
    }

    /// The one end of a call that there is.
    pub(super) fn ended(&mut self) -> Result<Payload, TransportError> {
        self.drive();
        assert_eq!(self.replies.len(), 1, "one call ends");
        self.replies.remove(0).1
    }

    /// Neither end holds anything for a call, and nobody broke a rule.
    pub(super) fn check_idle(&self) {
        assert_eq!(self.client.qp.closed(), None);
        assert_eq!(self.client.connection.violation(), None);
        assert_eq!(self.server.connection.violation(), None);
        for end in [&self.client, &self.server] {
            assert_eq!(end.connection.exposed(), 0);
            assert_eq!(end.connection.calls_out(), 0);
            assert_eq!(end.connection.calls_in(), 0);
        }
        assert!(self.client.connection.is_quiet() && self.server.connection.is_quiet());
        assert_eq!(self.client.qp.inner().outstanding().regions, 0);
    }
}

#[test]
#[should_panic(expected = "it has no end: client: calls out 1")]
fn conversation_without_end_is_stopped() {
    let mut pair = Pair::new();
    pair.call(request(5, call(5, 40, &[]), bound(100, &[])));
    pair.drive_within(1);
}

#[test]
#[should_panic(expected = "executes call")]
fn broken_rule_is_told_at_the_end_of_a_test() {
    Pair::new().server.qp.party().executed(5);
}
