//! Negotiation of characteristics at one end, against a peer that sends arbitrary messages.

use super::operations::made_up;
use crate::memory::within_and_back;
use crate::script::Script;
use rpcrdma_proto::limits::{CONTROL_RECEIVES, FIRST_MESSAGE, MAX_CONTROL_MESSAGES};
use rpcrdma_proto::v2::characteristics::{
    BackwardSupport, InvalidationDesigns, ReceiveBufferSize, ReceiveSize, Registry, XcharVal,
};
use rpcrdma_proto::v2::header::{Direction, Optional, RdmaError, optional_len};
use rpcrdma_proto::v2::operations::{Operation, Supported, code};
use rpcrdma_proto::v2::session::{Config, Event, Message, Opening, Session};
use rpcrdma_proto::{Design, Role};
use std::collections::VecDeque;

/// Memory that it may hold without a peer, and for each byte of a peer's messages.
const MEMORY: usize = 64 << 10;
const MEMORY_PER_BYTE: usize = 64;

/// XIDs of calls: few, so that replies are often for one of them.
const XIDS: u32 = 8;

/// A session, what happens to it, and what its user wants.
pub fn rpcrdma_v2_session(bytes: &[u8]) {
    let most = MEMORY + MEMORY_PER_BYTE * bytes.len();
    within_and_back(most, || Story::new(Script::new(bytes)).tell());
}

struct Story<'a> {
    script: Script<'a>,
    session: Session,
    designs: Vec<Design>,
    most: usize,
    registry: Registry,
    /// Of our own messages.
    next_xid: u32,
    /// Messages of the peer that are owed an answer: for a REQXCH, how many values it has.
    owed: VecDeque<(u32, Option<usize>)>,
    /// Errors that were queued for the peer.
    refused: u64,
    requested: usize,
    settled: usize,
}

impl<'a> Story<'a> {
    fn new(mut script: Script<'a>) -> Self {
        let mut config = Config::new(script.pick(&[Role::Client, Role::Server]));
        config.supported = match script.one_in(4) {
            true => script.pick(&Supported::ALL),
            false => Supported::All,
        };
        config.receive_size = size(script.pick(&[4096, 5000, 65_536]));
        config.max_receive_size = size(script.pick(&[65_536, 4096, 8192]));
        config.remote_invalidation = script.flag();
        config.backward = script.pick(&[BackwardSupport::General, BackwardSupport::None]);
        if script.flag() {
            config.designs = vec![Design::PerCall, Design::Fixed];
        }
        let most = config.max_receive_size.max(config.receive_size).bytes();
        let designs = config.designs.clone();
        let mut registry = Registry::standard();
        if !designs.is_empty() {
            let added = registry.register::<InvalidationDesigns>();
            added.expect("its id is none of the text");
        }
        Self {
            script,
            session: Session::new(config).expect("it is in order"),
            designs,
            most,
            registry,
            next_xid: 0,
            owed: VecDeque::new(),
            refused: 0,
            requested: 0,
            settled: 0,
        }
    }

    fn tell(mut self) {
        while !self.script.is_over() && !self.session.is_flooded() {
            self.step();
            self.check();
        }
    }

    fn step(&mut self) {
        let script = &mut self.script;
        match script.byte() {
            0..96 => self.hear(),
            96..160 => self.send(),
            160..176 => {
                let xid = script.word() % XIDS;
                let error = script.pick(&[
                    RdmaError::InvalOption,
                    RdmaError::BadHeader,
                    RdmaError::Version { low: 1, high: 1 },
                ]);
                let outstanding = self.session.outstanding();
                let ours = self.session.handle_error(xid, error);
                assert_eq!(ours, self.session.outstanding() < outstanding);
            }
            176..184 => self.session.handle_unreadable_reply(script.word() % XIDS),
            184..192 => self.session.handle_message(),
            192..200 => self.session.handle_backward_call(script.flag()),
            200..212 => {
                // Whatever is posted, it was as large as its session said.
                let smallest = self.session.receive_size();
                self.session.handle_old_receives_gone(smallest);
            }
            212..224 => self.session.handle_calls_drained(),
            224..236 => {
                let to = size(1024 + script.number() % 100_000);
                let now = self.session.receive_size();
                let raised = self.session.raise_receive_size(to).is_ok();
                assert!(!raised || self.session.receive_size() == to.bytes());
                assert!(self.session.receive_size() >= now);
            }
            236.. => {
                let to = size(1024 + script.number() % 100_000);
                let wanted = XcharVal::of::<ReceiveBufferSize>(&to);
                let asked = self.session.request_peer(vec![wanted]).is_ok();
                self.requested += usize::from(asked);
                assert!(!asked || self.session.send_limit() <= to.bytes());
            }
        }
    }

    /// The peer says something, well-formed more often than not.
    fn hear(&mut self) {
        let script = &mut self.script;
        let operation = script.pick(&[1, 2, 2, 3, 3, 4, 4, 5]);
        let expected = match operation {
            code::RESPXCH => Direction::Reply,
            _ => Direction::Call,
        };
        let direction = match script.one_in(4) {
            true => script.pick(&[Direction::Call, Direction::Reply]),
            false => expected,
        };
        let xid = script.word() % XIDS;
        let len = script.byte().into();
        let info = made_up(&mut Script::new(script.take(len)), operation);
        let rest: &[u8] = if script.one_in(32) { b"rest" } else { &[] };
        let optional = Optional {
            direction,
            operation,
            info,
        };
        let values = match Operation::parse(&optional, rest, Supported::All, &self.registry) {
            Ok((Operation::ReqXch(request), _)) => Some(request.want.len()),
            _ => None,
        };
        let outstanding = self.session.outstanding();
        self.session.handle_optional(xid, &optional, rest);
        // A valid UPDXCH is not answered, and nor is any reply.
        let counters = self.session.counters();
        let errors = counters.inval_option + counters.bad_header;
        let refused = errors > self.refused;
        self.refused = errors;
        let answered = direction == Direction::Call && (refused || matches!(operation, 1 | 2));
        if answered && !self.session.is_flooded() {
            self.owed.push_back((xid, values.filter(|_| !refused)));
        }
        assert!(self.session.outstanding() <= outstanding);
    }

    fn send(&mut self) {
        let opening = self.session.opening();
        let next_xid = &mut self.next_xid;
        let message = self.session.poll_message(&mut || {
            *next_xid = (*next_xid + 1) % XIDS;
            *next_xid
        });
        let Some(message) = message else {
            let waits = opening == Opening::Exchanging;
            assert!(waits || self.owed.is_empty(), "an answer is kept back");
            return;
        };
        match message {
            Message::Error { xid, .. } => {
                assert_eq!(self.owed.pop_front(), Some((xid, None)));
            }
            Message::Optional { xid, optional } => {
                assert!(optional_len(optional.info.len()) <= FIRST_MESSAGE);
                let parsed = Operation::parse(&optional, &[], Supported::All, &self.registry);
                let (operation, _) = parsed.expect("what we send is valid");
                self.sent(opening, xid, optional.direction, &operation);
            }
        }
    }

    fn sent(&mut self, opening: Opening, xid: u32, direction: Direction, operation: &Operation) {
        match (operation, direction) {
            (Operation::InitXch(_), Direction::Call) => assert_eq!(opening, Opening::Exchanging),
            (Operation::ReqXch(_) | Operation::UpdXch(_), Direction::Call) => {
                assert_eq!(opening, Opening::Done);
                assert!(self.session.peer_has_characteristics());
            }
            (Operation::InitXch(_), Direction::Reply) => {
                assert_eq!(self.owed.pop_front(), Some((xid, None)));
            }
            (Operation::RespXch(response), Direction::Reply) => {
                let (asked, values) = self.owed.pop_front().expect("a request");
                assert_eq!(asked, xid);
                assert!(response.is_answer_to(values.expect("it was valid")));
            }
            (operation, direction) => panic!("{operation:?} as {direction:?}"),
        }
    }

    /// Checks the invariants of any time.
    fn check(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Settled { .. } => self.settled += 1,
                Event::PeerChanged(_) => {}
                Event::Wanted(wanted) => panic!("nobody has registered {wanted:?}"),
            }
        }
        let session = &self.session;
        assert!(session.outstanding() <= MAX_CONTROL_MESSAGES);
        assert!(self.owed.len() <= CONTROL_RECEIVES);
        assert_eq!(self.requested, self.settled + session.unsettled().count());
        let sizes = ReceiveSize::DEFAULT.bytes()..=self.most;
        assert!(sizes.contains(&session.receive_size()));
        assert!((FIRST_MESSAGE..=self.most).contains(&session.send_limit()));
        assert!(session.send_limit() <= session.last_resort_limit());
        assert!(session.last_resort_limit() <= self.most);
        assert!(session.reply_limit() <= session.own::<ReceiveBufferSize>().bytes());
        let design = session.design();
        assert!(design.is_none_or(|design| self.designs.contains(&design)));
    }
}

fn size(bytes: u32) -> ReceiveSize {
    ReceiveSize::new(bytes).expect("not too small")
}
