//! Two sessions in both directions over a wire that keeps the order of messages, with calls and
//! replies beside them, until it is quiet or the connection ends.

use super::*;
use crate::v2::header::optional_len;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Calls of each end that may be on their way.
const CALLS: usize = 2;

/// One end, as a connection would have it.
struct End {
    session: Session,
    /// Bytes of each Receive that is posted, in order.
    receives: VecDeque<usize>,
    /// Messages on their way to this end.
    coming: VecDeque<Sent>,
    /// Calls of this end without a reply.
    calls: BTreeSet<u32>,
    /// Of these, those whose end is awaited before the size is lowered.
    draining: Option<BTreeSet<u32>>,
    /// Calls of the peer that are to be answered.
    asked: Vec<Call>,
    /// Of the last message with a number of this end.
    xid: u32,
    /// Values for each REQXCH of this end.
    requests: BTreeMap<u32, usize>,
    /// Value of our registered characteristic that the peer asks for.
    wanted: Option<u32>,
    requested: usize,
    settled: usize,
    /// Whether it may call, as far as its role goes.
    ready: bool,
}

enum Sent {
    Control(Message),
    Call(Call),
    Reply { xid: u32, len: usize },
}

#[derive(Clone, Copy)]
struct Call {
    xid: u32,
    len: usize,
    /// Bytes of its reply.
    reply: usize,
    /// Whether it has a Reply chunk.
    chunk: bool,
}

/// Step of an end, or event at it. Sizes are in steps of 1024 bytes.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A message arrives.
    Deliver,
    /// A control message is sent, if there is one.
    Control,
    Call {
        len: usize,
        most: usize,
        reply: usize,
    },
    /// This one of the calls that wait.
    Answer(usize),
    Raise(u32),
    AskForSize(u32),
    AskForQueue(u32),
    Tell(u32),
    Settle(u32),
}

impl Sent {
    fn len(&self) -> usize {
        match self {
            Self::Control(Message::Optional { optional, .. }) => optional_len(optional.info.len()),
            Self::Control(Message::Error { .. }) => 20,
            Self::Call(call) => call.len,
            Self::Reply { len, .. } => *len,
        }
    }
}

impl End {
    fn new(config: Config) -> Self {
        let ready = config.role == Role::Client;
        let session = Session::new(config).expect("it is in order");
        let receives = 2 * CALLS + CONTROL_RECEIVES;
        Self {
            receives: vec![session.receive_size(); receives].into(),
            session,
            coming: VecDeque::new(),
            calls: BTreeSet::new(),
            draining: None,
            asked: Vec::new(),
            xid: 0,
            requests: BTreeMap::new(),
            wanted: None,
            requested: 0,
            settled: 0,
            ready,
        }
    }

    /// Whether a call may be sent.
    fn may_call(&self) -> bool {
        let most = match self.session.opening() {
            Opening::Exchanging => 0,
            Opening::Cautious => 1,
            // A server calls nobody before it was called (RFC 8167 §6).
            Opening::Done if !self.ready => 0,
            Opening::Done => CALLS,
        };
        self.calls.len() < most
    }

    fn call(&mut self, peer: &mut End, len: usize, most: usize, reply: usize) {
        if !self.may_call() {
            return;
        }
        self.xid += 1;
        let call = Call {
            xid: self.xid,
            len: len.min(self.session.send_limit()),
            reply: reply.min(most),
            chunk: most > self.session.reply_limit(),
        };
        self.calls.insert(call.xid);
        peer.coming.push_back(Sent::Call(call));
    }

    fn answer(&mut self, peer: &mut End, pick: usize) {
        if self.asked.is_empty() {
            return;
        }
        let Call {
            xid, reply, chunk, ..
        } = self.asked.remove(pick % self.asked.len());
        let len = if reply <= self.session.send_limit() {
            reply
        } else if chunk {
            100
        } else {
            assert!(
                reply <= self.session.last_resort_limit(),
                "a reply of {reply} bytes fits no way"
            );
            reply
        };
        peer.coming.push_back(Sent::Reply { xid, len });
    }

    fn control(&mut self, peer: &mut End) -> bool {
        let Some(message) = self.session.poll_message(&mut || counted(&mut self.xid)) else {
            return false;
        };
        if let Message::Optional { xid, optional } = &message {
            let registry = self.session.own.registry();
            let parsed = Operation::parse(optional, &[], Supported::All, registry);
            match parsed.expect("we send nothing else").0 {
                Operation::ReqXch(request) => {
                    self.requests.insert(*xid, request.want.len());
                }
                Operation::RespXch(response) => {
                    assert!(response.is_answer_to(peer.requests[xid]), "{response:?}");
                }
                Operation::InitXch(_) | Operation::UpdXch(_) => {}
            }
        }
        let message = Sent::Control(message);
        assert!(message.len() <= FIRST_MESSAGE);
        peer.coming.push_back(message);
        true
    }

    fn deliver(&mut self) -> bool {
        let Some(message) = self.coming.pop_front() else {
            return false;
        };
        let receive = self.receives.pop_front().expect("each message has one");
        assert!(
            message.len() <= receive,
            "{} bytes of {receive}",
            message.len()
        );
        match message {
            Sent::Control(message) => deliver(message, &mut self.session),
            Sent::Call(call) => {
                self.session.handle_message();
                self.ready = true;
                self.asked.push(call);
            }
            Sent::Reply { xid, .. } => {
                self.session.handle_message();
                assert!(self.calls.remove(&xid), "a reply to nothing");
                if let Some(draining) = &mut self.draining {
                    draining.remove(&xid);
                }
            }
        }
        self.say_what_happened();
        self.receives.push_back(self.session.receive_size());
        self.say_what_happened();
        true
    }

    fn say_what_happened(&mut self) {
        let session = &mut self.session;
        if session.awaits_receives() {
            let smallest = self.receives.iter().min().expect("some are posted");
            session.handle_old_receives_gone(*smallest);
        }
        if session.awaits_calls() {
            let draining = self.draining.get_or_insert_with(|| self.calls.clone());
            if draining.is_empty() {
                session.handle_calls_drained();
                self.draining = None;
            }
        }
        for event in events(session) {
            match event {
                Event::Settled { .. } => self.settled += 1,
                Event::Wanted(value) => {
                    let wanted = value.read::<Queue>().expect("it was checked");
                    assert_eq!(std::mem::replace(&mut self.wanted, wanted), None);
                }
                Event::PeerChanged(_) => {}
            }
        }
    }

    fn settle(&mut self, length: u32) {
        if let Some(wanted) = self.wanted.take() {
            // As was asked for, as it was, or something else.
            let value = match length % 3 {
                0 => wanted,
                1 => self.session.own::<Queue>(),
                _ => length,
            };
            self.session.settle(queue(value)).expect("it was asked for");
        }
    }

    fn ask(&mut self, value: XcharVal) {
        let asked = self.session.request_peer(vec![value]);
        self.requested += usize::from(asked.is_ok());
    }

    /// Checks the invariants of any time, with this end as the sender.
    fn check(&self, peer: &End) {
        let session = &self.session;
        assert!(session.outstanding() <= MAX_CONTROL_MESSAGES);
        assert!(!session.is_flooded());
        let control = |sent: &&Sent| matches!(sent, Sent::Control(_));
        assert!(peer.coming.iter().filter(control).count() <= CONTROL_RECEIVES);
        // What is sent now finds one of these.
        let free = peer.receives.iter().skip(peer.coming.len());
        assert!(
            free.min()
                .is_none_or(|&least| session.send_limit() <= least)
        );
        assert_eq!(self.requested, self.settled + session.unsettled().count());
    }
}

struct World {
    ends: [End; 2],
}

impl World {
    fn step(&mut self, end: usize, step: Step) {
        let (left, right) = self.ends.split_at_mut(1);
        let (end, peer) = match end {
            0 => (&mut left[0], &mut right[0]),
            _ => (&mut right[0], &mut left[0]),
        };
        match step {
            Step::Deliver => {
                end.deliver();
            }
            Step::Control => {
                end.control(peer);
            }
            Step::Call { len, most, reply } => end.call(peer, len, most, reply),
            Step::Answer(pick) => end.answer(peer, pick),
            Step::Raise(to) => {
                let _ = end.session.raise_receive_size(size(to));
            }
            Step::AskForSize(bytes) => end.ask(receives(bytes)),
            Step::AskForQueue(length) => end.ask(queue(length)),
            Step::Tell(length) => {
                let _ = end.session.tell(queue(length));
            }
            Step::Settle(length) => end.settle(length),
        }
        end.say_what_happened();
        end.check(peer);
        peer.check(end);
    }

    /// Lets everything come to its end: control messages, calls, and Receives of former sizes.
    fn finish(&mut self) {
        // What arrives last may have something sent in the next round.
        let mut quiet_rounds = 0;
        for round in 0.. {
            assert!(round < 200, "it does not become quiet");
            let sent = self.ends.each_ref().map(|end| end.session.counters().sent);
            for end in [0, 1] {
                for step in [
                    Step::Settle(0),
                    Step::Control,
                    Step::Answer(0),
                    Step::Deliver,
                ] {
                    self.step(end, step);
                }
                let (len, most, reply) = (100, 100, 100);
                if self.ends.iter().any(|end| end.session.awaits_receives()) {
                    self.step(end, Step::Call { len, most, reply });
                }
            }
            let quiet = |end: &End| {
                let session = &end.session;
                let awaits = session.awaits_receives() || session.awaits_calls();
                end.coming.is_empty() && end.calls.is_empty() && !awaits
            };
            let now = self.ends.each_ref().map(|end| end.session.counters().sent);
            let all_quiet = now == sent && self.ends.iter().all(quiet);
            quiet_rounds = if all_quiet { quiet_rounds + 1 } else { 0 };
            if quiet_rounds == 2 {
                break;
            }
        }
    }

    /// Checks the invariant of a quiet connection: both ends know the same.
    fn check_quiet(&self) {
        let server = &self.ends[1].session;
        assert_eq!(
            server.own::<InvalidationDesigns>().answered(),
            server.design()
        );
        for (this, other) in [(0, 1), (1, 0)].map(|(a, b)| (&self.ends[a], &self.ends[b])) {
            assert!(this.coming.is_empty() && this.calls.is_empty());
            assert_eq!(this.session.unsettled().count(), 0);
            assert!(!this.session.awaits_receives() && !this.session.awaits_calls());
            let (this, other) = (&this.session, &other.session);
            assert_eq!(this.design(), other.design());
            if this.peer_has_characteristics() {
                let said = other.own::<ReceiveBufferSize>();
                assert_eq!(this.peer::<ReceiveBufferSize>(), said);
                assert_eq!(this.peer::<Queue>(), other.own::<Queue>());
                let most = this.own.sizes.most();
                assert_eq!(this.send_limit(), said.min(most).bytes());
            }
            if this.supported.requests() {
                assert_eq!(this.outstanding(), 0);
                if other.supported == Supported::All {
                    assert_eq!(this.receive_size(), this.own::<ReceiveBufferSize>().bytes());
                }
            }
        }
    }
}

fn bytes() -> impl Strategy<Value = u32> {
    prop_oneof![Just(4096), 4096..20_000_u32, Just(65_536)]
}

fn step() -> impl Strategy<Value = Step> {
    let len = || 100..20_000_usize;
    prop_oneof![
        12 => Just(Step::Deliver),
        6 => Just(Step::Control),
        6 => (len(), len(), len())
            .prop_map(|(len, most, reply)| Step::Call { len, most, reply }),
        6 => (0..CALLS).prop_map(Step::Answer),
        1 => bytes().prop_map(Step::Raise),
        2 => (1024..40_000_u32).prop_map(Step::AskForSize),
        1 => (0..64_u32).prop_map(Step::AskForQueue),
        1 => (0..64_u32).prop_map(Step::Tell),
        1 => (0..64_u32).prop_map(Step::Settle),
    ]
}

prop_compose! {
    fn end(role: Role)(
        supported in prop_oneof![
            4 => Just(Supported::All),
            1 => prop::sample::select(&Supported::ALL[..]),
        ],
        now in bytes(),
        most in bytes(),
        designs in prop::sample::subsequence(&Design::ALL[..], 0..=3),
    ) -> Config {
        let mut config = config(role);
        config.supported = supported;
        config.receive_size = size(now);
        config.max_receive_size = size(most);
        config.designs = designs;
        config
    }
}

prop_compose! {
    fn world()(client in end(Role::Client), server in end(Role::Server)) -> World {
        World { ends: [client, server].map(End::new) }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.ends.iter().map(|end| &end.session))
            .finish()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// A connection that ends at any point is a sequence of steps that ends there: each of them is
    /// checked, and that each request has had its end or is known to have none.
    #[test]
    fn two_sessions_agree_whatever_they_ask_of_each_other(
        mut world in world(),
        steps in prop::collection::vec((0..2_usize, step()), 0..300),
    ) {
        for (end, step) in steps {
            world.step(end, step);
        }
        world.finish();
        world.check_quiet();
    }
}
