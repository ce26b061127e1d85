//! Random conversations, each decided by its seed.

use super::pair::{Pair, Setup};
use super::*;
use crate::v2::characteristics::{BackwardSupport, ReceiveBufferSize, ReceiveSize, XcharVal};
use crate::v2::session::Session;
use crate::{Design, Version};
use oncrpc::xdr;
use oncrpc::{Reply, TransportError};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;
use verbs_sim::Cut;

/// One call: bytes of the fixed part and of the items, of the call and of its reply.
#[derive(Clone, Debug)]
struct Exchange {
    call: (usize, Vec<usize>),
    reply: (usize, Vec<usize>),
    cancelled: bool,
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let size = prop_oneof![1..200_usize, 3000..5000_usize, 1..30_000_usize];
    let message = || {
        let fixed = prop_oneof![4 => 0..200_usize, 1 => 3000..9000_usize];
        (fixed, prop::collection::vec(size.clone(), 0..3))
    };
    (message(), message(), prop::bool::weighted(0.1)).prop_map(|(call, reply, cancelled)| {
        Exchange {
            call,
            reply,
            cancelled,
        }
    })
}

#[derive(Clone, Debug)]
struct World {
    seed: u64,
    max_segment: usize,
    reads: usize,
    /// Pieces of work, regions and credits.
    room: (usize, usize, u32),
    remote_invalidation: bool,
    private_data: bool,
    budget: usize,
    mixed: bool,
    one_region: bool,
    /// Of the client and of the server.
    versions: [Versions; 2],
    /// Of both.
    dialect: Dialect,
    /// New sizes of Receives in version two, in KiB: of the client and of the server.
    raise_to: [usize; 2],
    backward: BackwardSupport,
    /// Of the client and of the server.
    designs: [Vec<Design>; 2],
}

/// Versions of which both ends speak one.
fn versions() -> impl Strategy<Value = [Versions; 2]> {
    use Versions::{Auto, One, Two};
    prop_oneof![
        3 => Just([One, One]),
        1 => Just([One, Auto]),
        1 => Just([Auto, One]),
        1 => Just([Two, Auto]),
        4 => Just([Auto, Auto]),
    ]
}

/// Designs that an end is ready for: mostly one, so that two ends often agree.
fn designs() -> impl Strategy<Value = Vec<Design>> {
    prop_oneof![
        2 => Just(Vec::new()),
        3 => prop::sample::select(&Design::ALL).prop_map(|design| vec![design]),
        1 => Just(Design::ALL.to_vec()),
    ]
}

fn world() -> impl Strategy<Value = World> {
    (
        any::<u64>(),
        prop_oneof![Just(0), 5000..9000_usize],
        1..5_usize,
        // Two regions are enough for every call: one for itself, and one for its reply.
        (
            prop_oneof![1..4_usize, Just(1024)],
            prop_oneof![2..4_usize, Just(4096)],
            prop_oneof![1..3_u32, Just(8)],
        ),
        any::<[bool; 5]>(),
        prop_oneof![Just(1 << 20), Just(40_000_usize)],
        versions(),
        [1..16_usize, 1..16_usize],
        prop_oneof![
            Just(BackwardSupport::Inline),
            Just(BackwardSupport::General)
        ],
        [designs(), designs()],
    )
        .prop_map(
            |(
                seed,
                max_segment,
                reads,
                room,
                flags,
                budget,
                versions,
                raise_to,
                backward,
                designs,
            )| {
                let [remote_invalidation, private_data, mixed, one_region, later] = flags;
                World {
                    seed,
                    max_segment,
                    reads,
                    room,
                    remote_invalidation,
                    private_data,
                    budget,
                    mixed,
                    one_region,
                    versions,
                    dialect: if later {
                        Dialect::Ietf07
                    } else {
                        Dialect::Cel01
                    },
                    raise_to,
                    backward,
                    designs,
                }
            },
        )
}

impl World {
    fn setup(&self) -> Setup {
        let mut setup = Setup {
            seed: self.seed,
            private_data: self.private_data,
            ..Setup::default()
        };
        setup.client.max_segment = self.max_segment;
        setup.client.one_region = self.one_region;
        setup.client.own.remote_invalidation = self.remote_invalidation;
        setup.budget = self.budget;
        for (end, of_end) in [&mut setup.client, &mut setup.server].into_iter().zip(0..) {
            end.versions = self.versions[of_end];
            end.dialect = self.dialect;
            end.characteristics = Characteristics {
                raise_to: InlineThreshold::at_most(self.raise_to[of_end] << 10),
                largest: InlineThreshold::at_most(LARGEST),
                backward: self.backward,
                designs: self.designs[of_end].clone(),
                remote_invalidation_by_version: self.designs[of_end].contains(&Design::PerVersion),
                ..Characteristics::default()
            };
        }
        let (sends, regions, credits) = self.room;
        setup.client.credits = credits;
        setup.server.credits = credits;
        for end in [&mut setup.ends.left, &mut setup.ends.right] {
            end.limits.sends = sends;
            end.limits.regions = regions;
            end.limits.outstanding_reads = self.reads;
            end.faults.refuse_post = NonZeroU64::new(5);
            end.faults.latency = Duration::ZERO..=Duration::from_millis(3);
        }
        setup
    }
}

fn ask(pair: &mut Pair, xid: u32, exchange: &Exchange, mixed: bool) {
    let (fixed, items) = &exchange.call;
    let (reply_fixed, results) = &exchange.reply;
    let head = 12 + xdr::padded(*reply_fixed) + 8 * results.len();
    let request = request(xid, call(xid, *fixed, items), bound(head, results));
    pair.call(match mixed {
        true => request
            .with_read_chunks_beside_position_zero()
            .with_write_chunks_beside_reply_chunk(),
        false => request,
    });
}

/// Answers one call that is at the server, whichever `pick` says, and checks that it is whole.
fn answer_one(pair: &mut Pair, exchanges: &[Exchange], pick: Index) {
    let (id, received) = pair.calls.remove(pick.index(pair.calls.len()));
    let xid = xdr::Reader::from(&received).u32().expect("an XID");
    let exchange = &exchanges[xid as usize];
    let (fixed, items) = &exchange.call;
    assert_eq!(stream(&received), stream(&call(xid, *fixed, items)));
    let (fixed, items) = &exchange.reply;
    pair.answer(id, Reply::Message(reply(xid, *fixed, items)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_call_is_answered_once_and_whole(
        world in world(),
        exchanges in prop::collection::vec(exchange(), 1..20),
        picks in prop::collection::vec(any::<Index>(), 20),
    ) {
        let mut pair = Pair::with(world.setup());
        for (xid, exchange) in exchanges.iter().enumerate() {
            ask(&mut pair, xid as u32, exchange, world.mixed);
        }
        pair.drive();
        for (xid, exchange) in exchanges.iter().enumerate() {
            if exchange.cancelled {
                pair.client.cancel(CallToken(xid as u64));
            }
        }
        for pick in picks {
            if !pair.calls.is_empty() {
                answer_one(&mut pair, &exchanges, pick);
            }
        }
        let mut replies: BTreeMap<_, _> = BTreeMap::new();
        for (token, reply) in pair.replies.drain(..) {
            prop_assert!(replies.insert(token.0, reply).is_none(), "one end for each call");
        }
        for (xid, exchange) in exchanges.iter().enumerate() {
            match replies.remove(&(xid as u64)) {
                Some(reply) => {
                    let (fixed, items) = &exchange.reply;
                    check_reply(&reply.expect("answered"), xid as u32, *fixed, items);
                }
                None => prop_assert!(exchange.cancelled, "call {} has no end", xid),
            }
        }
        pair.check_idle();
    }

    #[test]
    fn when_the_connection_is_cut_every_call_is_answered_or_handed_back(
        world in world(),
        exchanges in prop::collection::vec(exchange(), 1..10),
        cut in 0..200_000_u64,
        client in any::<bool>(),
        picks in prop::collection::vec(any::<Index>(), 10),
    ) {
        let mut setup = world.setup();
        let end = if client { &mut setup.ends.left } else { &mut setup.ends.right };
        end.faults.cut = Some(Cut::Bytes(cut));
        let mut pair = Pair::with(setup);
        for (xid, exchange) in exchanges.iter().enumerate() {
            ask(&mut pair, xid as u32, exchange, world.mixed);
        }
        pair.drive();
        for pick in picks {
            if !pair.calls.is_empty() {
                answer_one(&mut pair, &exchanges, pick);
            }
        }
        let mut ends = Vec::new();
        for (token, reply) in pair.replies.drain(..) {
            let (fixed, items) = &exchanges[token.0 as usize].reply;
            check_reply(&reply.expect("answered"), token.0 as u32, *fixed, items);
            ends.push(token.0);
        }
        for unfinished in pair.client.connection.into_unfinished() {
            match unfinished {
                Unfinished::Again(request) => ends.push(request.call().0),
                Unfinished::Ended(token, reply) => {
                    let (fixed, items) = &exchanges[token.0 as usize].reply;
                    check_reply(&reply.expect("answered"), token.0 as u32, *fixed, items);
                    ends.push(token.0);
                }
            }
        }
        ends.sort_unstable();
        prop_assert_eq!(ends, (0..exchanges.len() as u64).collect::<Vec<_>>());
    }
}

/// Bytes of the largest Receive there may be in version two.
const LARGEST: usize = 32 << 10;

/// Which end.
#[derive(Clone, Copy, Debug)]
enum Side {
    Client,
    Server,
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Client), Just(Side::Server)]
}

/// Possible event of a connection that is used in both directions.
#[derive(Clone, Debug)]
enum Step {
    Call(Exchange),
    /// Bytes of the fixed parts; and of an item of each, where calls have chunks.
    CallBack {
        call: usize,
        reply: usize,
        item: usize,
    },
    /// An end asks the other for Receives of so many bytes.
    Ask(Side, u32),
    /// An end makes its Receives larger.
    Raise(Side, u32),
    Turns(usize),
    Answer(Index),
    AnswerBack(Index),
    Cancel(Index),
    CancelBack(Index),
    Grant(u32),
    GrantBack(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => exchange().prop_map(Step::Call),
        4 => (0..800_usize, 0..800_usize, 0..20_000_usize)
            .prop_map(|(call, reply, item)| Step::CallBack { call, reply, item }),
        1 => (side(), 4096..LARGEST as u32).prop_map(|(side, bytes)| Step::Ask(side, bytes)),
        1 => (side(), 4096..LARGEST as u32).prop_map(|(side, bytes)| Step::Raise(side, bytes)),
        6 => (1..8_usize).prop_map(Step::Turns),
        5 => any::<Index>().prop_map(Step::Answer),
        5 => any::<Index>().prop_map(Step::AnswerBack),
        1 => any::<Index>().prop_map(Step::Cancel),
        1 => any::<Index>().prop_map(Step::CancelBack),
        1 => (0..12_u32).prop_map(Step::Grant),
        1 => (0..8_u32).prop_map(Step::GrantBack),
    ]
}

/// Both directions of one connection. XIDs of both begin with 0, so that they are the same.
struct TwoWays {
    pair: Pair,
    mixed: bool,
    exchanges: Vec<Exchange>,
    /// Bytes of call and reply, and the items of each.
    back: Vec<(usize, usize, Vec<usize>)>,
    cancelled: Vec<u32>,
    cancelled_back: Vec<u32>,
}

impl TwoWays {
    /// On a pair whose client is ready for calls.
    fn new(world: &World, mut pair: Pair) -> Self {
        pair.client_is_ready();
        let mut this = Self {
            pair,
            mixed: world.mixed,
            exchanges: Vec::new(),
            back: Vec::new(),
            cancelled: Vec::new(),
            cancelled_back: Vec::new(),
        };
        // By its first call a client says that it is ready, and what it speaks.
        this.step(Step::Call(Exchange {
            call: (0, Vec::new()),
            reply: (0, Vec::new()),
            cancelled: false,
        }));
        this.pair.drive();
        this
    }

    fn end(&mut self, side: Side) -> &mut Connection {
        match side {
            Side::Client => &mut self.pair.client.connection,
            Side::Server => &mut self.pair.server.connection,
        }
    }

    fn step(&mut self, step: Step) {
        let pair = &mut self.pair;
        match step {
            Step::Call(exchange) => {
                ask(pair, self.exchanges.len() as u32, &exchange, self.mixed);
                self.exchanges.push(exchange);
            }
            Step::CallBack {
                call: len,
                reply,
                item,
            } => {
                let xid = self.back.len() as u32;
                let session = pair.server.connection.session();
                let general = |s: &Session| s.backward() == BackwardSupport::General;
                let settled = pair.server.connection.version() == Some(Version::Two);
                let items = match settled && session.is_some_and(general) {
                    true => vec![item],
                    false => Vec::new(),
                };
                pair.call_back(request(
                    xid,
                    call(xid, len, &items),
                    bound(12 + xdr::padded(reply) + 8 * items.len(), &items),
                ));
                self.back.push((len, reply, items));
            }
            // Whether it can be done is not known here.
            Step::Ask(side, bytes) => {
                let size = ReceiveSize::new(bytes).expect("no less than the least");
                let want = vec![XcharVal::of::<ReceiveBufferSize>(&size)];
                let _ = self.end(side).request_peer(want);
            }
            Step::Raise(side, bytes) => {
                let size = ReceiveSize::new(bytes).expect("no less than the least");
                let _ = self.end(side).raise_receive_size(size);
            }
            Step::Turns(turns) => {
                for _ in 0..turns {
                    pair.turn();
                }
            }
            Step::Answer(pick) if !pair.calls.is_empty() => {
                let pick = pick.index(pair.calls.len());
                self.answer(pick);
            }
            Step::AnswerBack(pick) if !pair.back.calls.is_empty() => {
                let pick = pick.index(pair.back.calls.len());
                self.answer_back(pick);
            }
            Step::Cancel(pick) if !self.exchanges.is_empty() => {
                let xid = pick.index(self.exchanges.len()) as u32;
                pair.client.cancel(CallToken(u64::from(xid)));
                self.cancelled.push(xid);
            }
            Step::CancelBack(pick) if !self.back.is_empty() => {
                let xid = pick.index(self.back.len()) as u32;
                pair.server.cancel(CallToken(u64::from(xid)));
                self.cancelled_back.push(xid);
            }
            Step::Grant(credits) => pair.server.connection.set_grant(credits),
            Step::GrantBack(credits) => pair.client.connection.set_grant(credits),
            Step::Answer(_) | Step::AnswerBack(_) | Step::Cancel(_) | Step::CancelBack(_) => {}
        }
    }

    /// As [`answer_one`], without what follows from it.
    fn answer(&mut self, pick: usize) {
        let pair = &mut self.pair;
        let (id, received) = pair.calls.remove(pick);
        let xid = xdr::Reader::from(&received).u32().expect("an XID");
        let exchange = &self.exchanges[xid as usize];
        let (fixed, items) = &exchange.call;
        assert_eq!(stream(&received), stream(&call(xid, *fixed, items)));
        let (fixed, items) = &exchange.reply;
        let answer = Reply::Message(reply(xid, *fixed, items));
        pair.server.connection.reply(id, answer);
    }

    fn answer_back(&mut self, pick: usize) {
        let back = &mut self.pair.back;
        let (id, received) = back.calls.remove(pick);
        let xid = xdr::Reader::from(&received).u32().expect("an XID");
        let (len, answer, items) = &self.back[xid as usize];
        assert_eq!(stream(&received), stream(&call(xid, *len, items)));
        let answer = Reply::Message(reply(xid, *answer, items));
        self.pair.client.connection.reply(id, answer);
    }

    /// Answers all there is, and checks that each call had its one end.
    fn finish(mut self) {
        loop {
            self.pair.drive();
            match (self.pair.calls.is_empty(), self.pair.back.calls.is_empty()) {
                (false, _) => self.answer(0),
                (true, false) => self.answer_back(0),
                (true, true) => break,
            }
        }
        let pair = &mut self.pair;
        for end in [&pair.client, &pair.server] {
            assert_eq!(verbs::QueuePair::closed(&end.qp), None);
            assert_eq!(end.connection.violation(), None);
        }
        for end in [&pair.client, &pair.server] {
            assert_eq!(end.connection.calls_waiting(), 0);
        }
        let mut ends: BTreeMap<_, _> = BTreeMap::new();
        for (token, reply) in pair.replies.drain(..) {
            assert!(
                ends.insert(token.0, reply).is_none(),
                "one end for each call"
            );
        }
        for (xid, exchange) in (0..).zip(&self.exchanges) {
            match ends.remove(&u64::from(xid)) {
                Some(reply) => {
                    let (fixed, items) = &exchange.reply;
                    check_reply(&reply.expect("answered"), xid, *fixed, items);
                }
                None => assert!(self.cancelled.contains(&xid), "call {xid} has no end"),
            }
        }
        let mut ends: BTreeMap<_, _> = BTreeMap::new();
        for (token, reply) in pair.back.replies.drain(..) {
            assert!(
                ends.insert(token.0, reply).is_none(),
                "one end for each call"
            );
        }
        for (xid, (_, fixed, items)) in (0..).zip(&self.back) {
            match ends.remove(&u64::from(xid)) {
                Some(reply) => check_reply(&reply.expect("answered"), xid, *fixed, items),
                None => assert!(self.cancelled_back.contains(&xid), "call {xid} has no end"),
            }
        }
        pair.check_idle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// No order of calls, answers, cancellations and changed grants makes one direction stand in
    /// the way of the other, or a message find no Receive.
    #[test]
    fn both_directions_are_answered_once_and_whole_while_grants_change(
        world in world(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut two_ways = TwoWays::new(&world, Pair::with(world.setup()));
        steps.into_iter().for_each(|step| two_ways.step(step));
        two_ways.finish();
    }
}

/// The calls that one end had no answer for, by XID, of those it has made. Each is there once.
fn without_answer(
    made: usize,
    replies: Vec<(CallToken, Result<Payload, TransportError>)>,
    unfinished: Vec<Unfinished<CallToken>>,
    mut check: impl FnMut(u32, &Payload),
) -> Vec<u32> {
    let mut ends = vec![0; made];
    let ended = unfinished
        .into_iter()
        .filter_map(|unfinished| match unfinished {
            Unfinished::Again(request) => {
                ends[request.xid() as usize] += 1;
                None
            }
            Unfinished::Ended(token, reply) => Some((token, reply)),
        });
    let ended: Vec<_> = ended.collect();
    for (token, reply) in replies.into_iter().chain(ended) {
        ends[token.0 as usize] += 1;
        check(token.0 as u32, &reply.expect("answered"));
    }
    assert!(ends.iter().all(|&ends| ends <= 1), "{ends:?}");
    let none = (0..).zip(&ends).filter(|&(_, &ends)| ends == 0);
    none.map(|(xid, _)| xid).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// At both ends every call is answered, or handed back, or was cancelled.
    #[test]
    fn cut_of_a_connection_loses_no_call_of_either_direction(
        world in world(),
        steps in prop::collection::vec(step(), 20..100),
        cut in 0..60_000_u64,
        client in any::<bool>(),
    ) {
        let mut setup = world.setup();
        let end = if client { &mut setup.ends.left } else { &mut setup.ends.right };
        end.faults.cut = Some(Cut::Bytes(cut));
        let mut two_ways = TwoWays::new(&world, Pair::with(setup));
        steps.into_iter().for_each(|step| two_ways.step(step));
        two_ways.pair.drive();
        let TwoWays { pair, exchanges, back, cancelled, cancelled_back, .. } = two_ways;
        let lost = without_answer(
            exchanges.len(),
            pair.replies,
            pair.client.connection.into_unfinished(),
            |xid, reply| {
                let (fixed, items) = &exchanges[xid as usize].reply;
                check_reply(reply, xid, *fixed, items);
            },
        );
        prop_assert!(lost.iter().all(|xid| cancelled.contains(xid)), "{:?}", lost);
        let lost = without_answer(
            back.len(),
            pair.back.replies,
            pair.server.connection.into_unfinished(),
            |xid, reply| {
                let (_, fixed, items) = &back[xid as usize];
                check_reply(reply, xid, *fixed, items);
            },
        );
        prop_assert!(lost.iter().all(|xid| cancelled_back.contains(xid)), "{:?}", lost);
    }
}
