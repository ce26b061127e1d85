//! One end of RPC-over-RDMA, its user, and a peer that says anything at any time.

mod calls;
mod peer;

use crate::hand::Hand;
use crate::memory::within_and_back;
use crate::script::Script;
use buffer::{Pool, gather_len};
use calls::{Calls, Handed};
use peer::Peer;
use rpcrdma_proto::header::{Body, Header};
use rpcrdma_proto::{
    Budget, Characteristics, Config, Connection, Event, FailedCalls, InlineSize, PrivateData,
    Registrations, Role, Versions, Xids,
};
use std::task::Waker;
use verbs::{QueuePair, WorkError, WorkRequest};

/// Chunks of both directions, Receives, and what the pool keeps of them.
const MEMORY: usize = 16 << 20;

/// Things that happen.
const STEPS: usize = 300;

/// Octets of the largest chunk.
const MAX_CHUNK: usize = 64 << 10;

/// The end that connected.
pub fn rpcrdma_client(octets: &[u8]) {
    within_and_back(MEMORY, || play(Role::Client, octets));
}

/// The end that accepted.
pub fn rpcrdma_server(octets: &[u8]) {
    within_and_back(MEMORY, || play(Role::Server, octets));
}

fn play(role: Role, octets: &[u8]) {
    let mut script = Script::new(octets);
    let mut stage = Stage::new(role, &mut script);
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
    hand: Hand,
    /// What our user calls, and what it was called for.
    calls: Calls,
    peer: Peer,
}

impl Stage {
    fn new(role: Role, script: &mut Script<'_>) -> Self {
        let config = Config {
            role,
            versions: Versions::One,
            xids: Xids::starting_at(1 << 31),
            own: private_data(script),
            characteristics: Characteristics::default(),
            credits: 1 + u32::from(script.octet() % 8),
            backward_credits: u32::from(script.octet() % 4),
            reserve_credit: script.one_in(4),
            max_chunk: MAX_CHUNK,
            max_segment: script.pick(&[0, 0, 4096, 5001]),
            mixed_long: script.flag(),
            registrations: Registrations::OF_CALLS,
            persistent: None,
            failed_calls: FailedCalls::new(),
            budget: Budget::new(script.pick(&[40_000, 1 << 20])),
            pool: Pool::new(1 << 20),
        };
        let peer = (!script.one_in(4)).then(|| private_data(script));
        let mut hand = Hand::new(script);
        for receive in config.initial_receives() {
            hand.post(receive).expect("there is room for Receives");
        }
        Self {
            connection: Connection::new(&config, peer, hand.limits()),
            peer: Peer::new(role, &config),
            calls: Calls::default(),
            config,
            hand,
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.octet() % 32 {
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
                _ => self.connection.handle_memory(Waker::noop()),
            },
            _ => {
                // Everything at once, as a driver does it.
                while !self.hand.work.is_empty() {
                    self.complete(script);
                }
                self.connection.handle_memory(Waker::noop());
                self.post(false);
            }
        }
        self.events();
    }

    /// What is to be posted is, unless the provider has no room after all.
    fn turn(&mut self, script: &mut Script<'_>) {
        self.post(script.one_in(6));
    }

    fn post(&mut self, refuse: bool) {
        while let Some(work) = self.connection.poll_post() {
            self.judge(&work);
            if refuse {
                self.connection.handle_refused(work);
                return;
            }
            if let WorkRequest::Send { buffer, rest, .. } = &work {
                let message = [&buffer[..], &rest.concat()].concat();
                self.peer.heard(&message);
            }
            self.hand.post(work).expect("it keeps to the limits");
        }
        self.all_posted();
    }

    /// With everything posted there is a Receive for whatever the peer may send.
    fn all_posted(&self) {
        if self.connection.violation().is_some() {
            return;
        }
        let receives = self.hand.receives.len();
        let grant = self.connection.grant() as usize;
        let unanswered = self.calls.unanswered();
        assert!(
            receives >= grant + unanswered,
            "{receives} Receives for a grant of {grant} and {unanswered} calls"
        );
        assert!(receives <= self.config.receives());
    }

    /// Work has to be right in itself.
    fn judge(&self, work: &WorkRequest) {
        match work {
            WorkRequest::Receive { buffer, .. } => {
                assert!(buffer.capacity() >= self.config.own.receive.octets());
            }
            WorkRequest::Send { buffer, rest, .. } => {
                let message = [&buffer[..], &rest.concat()].concat();
                assert!(message.len() <= self.connection.thresholds().send.octets());
                let (header, at) = peer::parse(&message);
                self.judge_message(&header, &message[at..]);
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
    }

    fn judge_message(&self, header: &Header, stream: &[u8]) {
        let is_call = match &header.body {
            Body::Msg(_) => stream[4..8] == [0; 4],
            Body::NoMsg(lists) => lists.reads.first().is_some_and(|chunk| chunk.position == 0),
            Body::Error(_) => false,
            Body::Done => panic!("nobody says RDMA_DONE any more"),
        };
        assert!(header.credits > 0);
        if is_call {
            self.calls.judge(header, &self.hand);
            return;
        }
        assert!(header.credits <= self.config.credits.max(self.config.backward_credits));
        // Whoever has the answer may free what the call offered.
        if self.peer.calls_with(header.xid) == 1 {
            let reading = self.hand.work.iter().any(|work| match work {
                WorkRequest::Read { from, .. } => from
                    .iter()
                    .any(|segment| self.peer.xid_of(segment.handle) == Some(header.xid)),
                _ => false,
            });
            assert!(!reading, "an answer while chunks of its call are read");
        }
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
        let message = say(&mut self.peer, script, &mut self.hand);
        let invalidate = if script.one_in(3) {
            self.peer.victim(script, &message, &self.hand)
        } else {
            None
        };
        let Some(completion) = self.hand.receive(&message, invalidate) else {
            return;
        };
        self.peer.said(&message);
        self.calls.said(self.config.role, &message);
        self.connection.handle_completion(completion);
    }

    fn events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Call { id, message } => {
                    assert!(self.peer.has_called(&message), "a call that nobody made");
                    self.calls.handed.push(Handed { id, message });
                }
                Event::Reply { token, reply } => self.calls.ended(token, reply, &self.hand),
            }
        }
    }

    fn check(&self) {
        if self.connection.violation().is_some() {
            return;
        }
        assert_eq!(self.connection.exposed(), self.hand.regions.len());
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
        let (pool, budget) = (self.config.pool.clone(), self.config.budget.clone());
        let total = budget.free();
        drop((self.hand, self.calls, self.peer, self.config));
        assert!(budget.free() >= total);
        assert_eq!(pool.stats().out, 0, "octets of the pool that are lost");
    }
}

fn private_data(script: &mut Script<'_>) -> PrivateData {
    let size = |octet: u8| InlineSize::at_most(1024 * (1 + usize::from(octet % 6)));
    PrivateData {
        send: size(script.octet()),
        receive: size(script.octet()),
        remote_invalidation: script.flag(),
    }
}
