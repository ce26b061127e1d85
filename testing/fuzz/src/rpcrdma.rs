//! One end of RPC-over-RDMA, its user, and a peer that sends arbitrary messages at any time.

mod calls;
mod control;
mod form;
pub(crate) mod ietf07;
mod owner;
mod peer;
mod setup;

use crate::hand::Hand;
use crate::memory::within_and_back;
use crate::script::Script;
use buffer::gather_len;
use calls::{Calls, Handed};
use form::{Body, Form, Message};
use owner::{Budget, Connection, Owner};
use peer::Peer;
use rpcrdma_proto::limits::{CONTROL_RECEIVES, FIRST_MESSAGE, MAX_CONTROL_MESSAGES};
use rpcrdma_proto::v2::characteristics::{ReceiveBufferSize, ReceiveSize, XcharVal};
use rpcrdma_proto::v2::session::Session;
use rpcrdma_proto::{Config, Design, Direction, Role, Versions, Violation};
use setup::{Setup, setup};
use std::time::Instant;
use verbs::{Handle, Handles, Invalidation, QueuePair, WorkError, WorkRequest};

type Event = rpcrdma_proto::Event<Owner>;

/// Chunks of both directions, Receives, and what the pool keeps of them.
const MEMORY: usize = 16 << 20;

/// Things that happen.
const STEPS: usize = 300;

/// Bytes of the largest chunk.
const MAX_CHUNK: usize = 64 << 10;

/// The end that connected.
pub fn rpcrdma_client(bytes: &[u8]) {
    within_and_back(MEMORY, || play(Role::Client, bytes));
}

/// The end that accepted.
pub fn rpcrdma_server(bytes: &[u8]) {
    within_and_back(MEMORY, || play(Role::Server, bytes));
}

fn play(role: Role, bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut stage = Stage::new(role, &mut script);
    if stage.config.versions != Versions::One && !script.one_in(4) {
        stage.introduce(&mut script);
    }
    for _ in 0..STEPS {
        if script.is_over() || stage.connection.violation().is_some() {
            break;
        }
        stage.step(&mut script);
        stage.check();
    }
    stage.finish(&mut script);
}

struct Stage {
    connection: Connection,
    config: Config,
    budget: Budget,
    hand: Hand,
    /// Calls of our user, and the reasons for them.
    calls: Calls,
    peer: Peer,
    /// Bytes of the largest message that could be sent since nothing waited to be.
    largest: usize,
    /// Whether something was sent before it was settled what is spoken.
    offered: bool,
}

impl Stage {
    fn new(role: Role, script: &mut Script<'_>) -> Self {
        let Setup {
            config,
            peer,
            mut hand,
            budget,
            mixed,
        } = setup(role, script);
        for receive in config.initial_receives() {
            hand.post(receive).expect("there is room for Receives");
        }
        Self {
            connection: Connection::new(&config, Owner::default(), peer, hand.limits()),
            peer: Peer::new(role, &config),
            calls: Calls::new(mixed),
            budget,
            config,
            hand,
            largest: 0,
            offered: false,
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let choices = match self.config.versions {
            Versions::One => 32,
            Versions::Two | Versions::Auto => 48,
        };
        match script.byte() % choices {
            32.. => self.of_version_two(script),
            0..5 => self
                .calls
                .call(script, &mut self.connection, &mut self.hand),
            5 => self.calls.cancel(script, &mut self.connection),
            6..9 => self.calls.answer(script, &mut self.connection),
            9..14 => self.turn(script),
            14..19 => self.complete(script),
            19..24 => self.hear(script, Peer::call),
            24..28 => self.hear(script, Peer::reply),
            28 => self.hear(script, Peer::anything),
            29 => self.peer.write(script, &mut self.hand),
            30 => match script.below(4) {
                0 => self.connection.handle_client_ready(),
                1 => self.connection.set_grant(script.number()),
                _ => self.lend_memory(),
            },
            _ => {
                // Everything at once, as a driver does it.
                while !self.hand.work.is_empty() {
                    self.complete(script);
                }
                self.lend_memory();
                self.post(false);
            }
        }
        self.events();
    }

    /// Version two is spoken from the beginning, as between two that are in order.
    fn introduce(&mut self, script: &mut Script<'_>) {
        self.post(false);
        self.hear(script, Peer::introduction);
        self.events();
    }

    /// Steps that only occur where version two may be spoken.
    fn of_version_two(&mut self, script: &mut Script<'_>) {
        match script.byte() % 16 {
            0..12 => self.hear(script, Peer::control),
            12..14 => {
                let to = size(1024 + script.number() % (32 << 10));
                let _ = self.connection.raise_receive_size(to);
            }
            _ => {
                let to = size(1024 + script.number() % (32 << 10));
                let want = XcharVal::of::<ReceiveBufferSize>(&to);
                let _ = self.connection.request_peer(vec![want]);
            }
        }
    }

    /// Lends memory to the calls of the peer, as far as it goes.
    fn lend_memory(&mut self) {
        while let Some(need) = self.connection.poll_memory() {
            match self.budget.take(need.pulls + need.offered) {
                Some(lease) => self.connection.handle_memory(lease),
                None => return self.connection.handle_no_memory(),
            }
        }
    }

    /// Posts the work that is to be posted, unless the provider has no room after all.
    fn turn(&mut self, script: &mut Script<'_>) {
        self.post(script.one_in(6));
    }

    fn post(&mut self, refuse: bool) {
        self.connection.send_waiting(Instant::now(), &mut self.hand);
        let waited = self.calls.waited(&self.connection);
        self.events();
        self.calls.check_waited(&waited, &self.connection);
        loop {
            self.note_limits();
            let Some(work) = self.connection.poll_post() else {
                break;
            };
            // What it says itself may be in force from then on.
            self.note_limits();
            let message = self.judge(&work);
            if refuse {
                self.connection.handle_refused(work);
                return;
            }
            if let (WorkRequest::Send { invalidate, .. }, Some(message)) = (&work, message) {
                if Form::of(&self.connection).is_none() && self.config.role == Role::Client {
                    // cel-01 §5: one message, until it is answered.
                    let again = std::mem::replace(&mut self.offered, true);
                    assert!(
                        !again,
                        "a second message before it is settled what is spoken"
                    );
                }
                for handle in invalidate.iter().flat_map(Handles::iter) {
                    self.judge_invalidation(message.xid, handle);
                }
                if let Body::Rpc {
                    direction, lists, ..
                } = &message.body
                {
                    // A Long call does not say that it is one, but a reply has no Read list.
                    let is_call = match direction {
                        Some(direction) => *direction == Direction::Call,
                        None => !lists.reads.is_empty(),
                    };
                    if is_call {
                        self.calls.posted(message.xid);
                    }
                }
                self.peer.heard(&message);
            }
            self.hand.post(work).expect("it keeps to the limits");
        }
        self.all_posted();
    }

    /// A message that was made before a limit was lowered may still go.
    fn note_limits(&mut self) {
        // A call may also be kept back, by a grant that was lowered.
        if self.connection.is_quiet() && self.connection.calls_out() == 0 {
            self.largest = 0;
        }
        let connection = &self.connection;
        let now = match (Form::of(connection), connection.session()) {
            (None, _) if self.config.role == Role::Client => FIRST_MESSAGE,
            (Some(Form::Two(_)), Some(session)) => session.last_resort_limit(),
            _ => connection.thresholds().send.bytes(),
        };
        self.largest = self.largest.max(now);
    }

    /// With everything posted there is a Receive for whatever the peer may send.
    fn all_posted(&self) {
        if self.connection.violation().is_some() {
            return;
        }
        let receives = self.hand.receives.len();
        // An end that takes no calls has nothing for any, though a grant is never none.
        let most = match self.config.role {
            Role::Client => self.config.backward_credits,
            Role::Server => self.config.credits,
        };
        let grant = self.connection.grant().min(most) as usize;
        let unanswered = self.calls.unanswered();
        let control = match self.config.versions {
            Versions::One => 0,
            Versions::Two | Versions::Auto => CONTROL_RECEIVES,
        };
        assert!(
            receives >= grant + unanswered + control,
            "{receives} Receives for a grant of {grant} and {unanswered} calls"
        );
        assert!(receives <= self.config.posted_receives());
        let least = self.receive_size();
        for (_, buffer) in &self.hand.receives {
            assert!(buffer.capacity() >= least, "a Receive of less than {least}");
        }
    }

    /// Bytes that every Receive holds: what the peer was told, unless it asked for less.
    fn receive_size(&self) -> usize {
        let session = self.connection.session();
        match session.filter(|_| self.connection.version().is_some()) {
            None => self.config.own.receive.bytes(),
            Some(session) => {
                let told = session.own::<ReceiveBufferSize>().bytes();
                assert!(session.receive_size() <= self.config.largest_receive().bytes());
                told.min(session.receive_size())
            }
        }
    }

    /// Work has to be right in itself. Of a Send it is the message.
    fn judge(&mut self, work: &WorkRequest) -> Option<Message> {
        match work {
            WorkRequest::Receive { buffer, .. } => {
                assert!(buffer.capacity() >= self.receive_size());
            }
            WorkRequest::Send { buffer, rest, .. } => {
                let bytes = [&buffer[..], &rest.concat()].concat();
                assert!(bytes.len() <= self.largest, "{} bytes", bytes.len());
                let form = Form::of(&self.connection);
                let first = || Form::of_first(&bytes, self.config.versions);
                let message = form.unwrap_or_else(first).parse_own(&bytes);
                self.judge_message(&message, bytes.len());
                return Some(message);
            }
            WorkRequest::Write { source, to, .. } => {
                let len = gather_len(source);
                assert!(len > 0, "a Write of nothing");
                assert!(self.peer.has_offered_sink(*to, len), "a Write to {to:?}");
            }
            WorkRequest::Read { sink, from, .. } => {
                let len: usize = from.iter().map(|segment| segment.length as usize).sum();
                assert!(len <= MAX_CHUNK && len <= sink.capacity());
                for segment in from {
                    assert!(segment.length > 0);
                    assert!(self.peer.has_offered_source(*segment), "{segment:?}");
                }
            }
            WorkRequest::Invalidate { handle, .. } => {
                assert!(self.hand.regions.contains_key(handle), "{handle:?} is dead");
            }
        }
        None
    }

    fn judge_message(&mut self, message: &Message, bytes: usize) {
        let most = self.config.credits.max(self.config.backward_credits);
        let is_call = match &message.body {
            Body::Rpc {
                direction,
                named,
                lists,
            } => {
                let is_call = *direction == Some(Direction::Call);
                if is_call {
                    self.calls.judge(message.xid, named, lists, &self.hand);
                }
                is_call
            }
            Body::Error => false,
            Body::Optional(optional) => {
                assert!(bytes <= FIRST_MESSAGE);
                assert!(message.credits <= most);
                return assert!(!optional.info.is_empty(), "each operation says something");
            }
            Body::Done => panic!("nobody says RDMA_DONE any more"),
        };
        assert!(message.credits > 0);
        if is_call {
            return;
        }
        assert!(message.credits <= most);
        // Whoever has the answer may free what the call offered.
        if self.peer.calls_with(message.xid) == 1 {
            let reading = self.hand.work.iter().any(|work| match work {
                WorkRequest::Read { from, .. } => from
                    .iter()
                    .any(|segment| self.peer.xid_of(segment.handle) == Some(message.xid)),
                _ => false,
            });
            assert!(!reading, "an answer while chunks of its call are read");
        }
    }

    /// A handle of the peer's goes with the answer to `xid`: one that it may lose, and that nobody
    /// needs any more.
    fn judge_invalidation(&mut self, xid: u32, handle: Handle) {
        let alone = self.peer.killed(handle);
        let reading = self.hand.work.iter().any(|work| match work {
            WorkRequest::Read { from, .. } => from.iter().any(|segment| segment.handle == handle),
            _ => false,
        });
        assert!(
            !reading || !alone,
            "{handle:?} is invalidated while it is read"
        );
        let session = self.connection.session();
        let design = session.and_then(Session::design);
        let own = self.config.own.remote_invalidation;
        let allowed = session.map_or(own, |session| {
            let by_version = self.config.characteristics.remote_invalidation_by_version;
            design.is_some() || (by_version || own) && session.peer_allows_invalidation()
        });
        assert!(
            allowed,
            "{handle:?} is invalidated and nobody said that it may be"
        );
        let Some(call) = self.peer.call_with(xid) else {
            return;
        };
        match design {
            Some(Design::PerCall | Design::PerCallSeveral | Design::PerCallAll) => {
                assert!(call.named.contains(&handle), "{handle:?} was not named");
            }
            Some(Design::InterCall) if !call.offers(handle) => {
                let owner = self.peer.xid_of(handle);
                // What was said twice with one XID may have been answered once.
                if let Some(owner) = owner.and_then(|owner| self.peer.call_with(owner)) {
                    assert!(owner.offers_source(handle));
                    let answered = self.peer.was_answered(owner.xid);
                    assert!(!answered, "{handle:?} may be used again");
                }
                return;
            }
            _ => {}
        }
        assert!(call.offers(handle), "{handle:?} is of another call");
    }

    fn complete(&mut self, script: &mut Script<'_>) {
        let wrong = script.one_in(8);
        let peer = &self.peer;
        let completion = self.hand.complete(script, |work| {
            let WorkRequest::Read { from, .. } = work else {
                return Vec::new();
            };
            let xid = from.first().and_then(|segment| peer.xid_of(segment.handle));
            let xid = xid.unwrap_or(0) ^ u32::from(wrong);
            [xid, 0, 2, 7, 7, 7, 0, 0, 0, 0]
                .map(u32::to_be_bytes)
                .concat()
        });
        if let Some(completion) = completion {
            self.connection.handle_completion(completion);
        }
    }

    fn hear(
        &mut self,
        script: &mut Script<'_>,
        say: fn(&mut Peer, &mut Script<'_>, &mut Hand) -> Vec<u8>,
    ) {
        self.peer.form = Form::of(&self.connection);
        let message = say(&mut self.peer, script, &mut self.hand);
        let able = self.hand.limits().remote_invalidation == Invalidation::Region;
        let invalidate = if script.one_in(3) && able {
            self.peer.victim(script, &message, &self.hand)
        } else {
            None
        };
        let Some(completion) = self.hand.receive(&message, invalidate) else {
            return;
        };
        self.peer.said(&message);
        if let Some(message) = self.peer.form_of(&message).parse(&message) {
            self.calls.said(self.config.role, &message);
        }
        self.connection.handle_completion(completion);
    }

    fn events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Call { id, message } => {
                    assert!(self.peer.has_called(&message), "a call that nobody made");
                    self.calls.handed.push(Handed { id, message });
                }
                Event::Reply { call, reply } => self.calls.ended(call, reply, &self.hand),
            }
        }
        while self.connection.poll_characteristics().is_some() {}
        self.note_limits();
    }

    fn check(&self) {
        if let Some(violation) = self.connection.violation() {
            assert!(!is_ours(violation), "{violation}");
            return;
        }
        assert_eq!(self.connection.exposed(), self.hand.of_calls().count());
        let session = self.connection.session();
        let outstanding = session.map_or(0, Session::outstanding);
        assert!(outstanding <= MAX_CONTROL_MESSAGES);
        assert!(self.connection.calls_out() >= self.calls.on_their_way());
        let most = 2 * self.config.credits.max(self.config.backward_credits) as usize;
        assert!(self.connection.calls_in() <= most.max(2));
    }

    /// The connection is lost: each call has one end, and all memory is given back.
    fn finish(mut self, script: &mut Script<'_>) {
        let error = script.pick(&[WorkError::Flushed, WorkError::RemoteAccess]);
        for completion in self.hand.flush(error) {
            self.connection.handle_completion(completion);
        }
        self.events();
        for unfinished in self.connection.into_unfinished() {
            self.calls.unfinished(unfinished);
        }
        self.calls.assert_settled();
        let (pool, budget) = (self.config.pool.clone(), self.budget.clone());
        let total = budget.free();
        drop((self.hand, self.calls, self.peer, self.config));
        assert!(budget.free() >= total);
        assert_eq!(pool.stats().out, 0, "bytes of the pool that are lost");
    }
}

/// Whether it is this end that cannot go on, though everything that it posts is done.
fn is_ours(violation: Violation) -> bool {
    match violation {
        Violation::OtherDialect(..)
        | Violation::ForeignHandle(_)
        | Violation::UnwantedInvalidation(_)
        | Violation::UnpermittedInvalidation(_)
        | Violation::BeyondCredits(_)
        | Violation::NoCommonVersion { .. }
        | Violation::OfferNotUnderstood
        | Violation::UnclearDesign
        | Violation::ControlFlood => false,
        Violation::WorkFailed(_) | Violation::LostHandle | Violation::NotRegistered => true,
    }
}

fn size(bytes: u32) -> ReceiveSize {
    ReceiveSize::new(bytes).expect("not too small")
}
