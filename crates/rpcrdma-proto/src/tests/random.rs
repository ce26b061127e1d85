//! Random conversations, each decided by its seed.

use super::pair::{Pair, Setup};
use super::*;
use oncrpc::Reply;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;
use verbs_sim::Cut;

/// One call: octets of the fixed part and of the items, of the call and of its reply.
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
    remote_invalidation: bool,
    private_data: bool,
    budget: usize,
}

fn world() -> impl Strategy<Value = World> {
    (
        any::<u64>(),
        prop_oneof![Just(0), 5000..9000_usize],
        1..5_usize,
        any::<bool>(),
        any::<bool>(),
        prop_oneof![Just(1 << 20), Just(40_000_usize)],
    )
        .prop_map(
            |(seed, max_segment, reads, remote_invalidation, private_data, budget)| World {
                seed,
                max_segment,
                reads,
                remote_invalidation,
                private_data,
                budget,
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
        setup.client.own.remote_invalidation = self.remote_invalidation;
        setup.server.budget = Budget::new(self.budget);
        for end in [&mut setup.ends.left, &mut setup.ends.right] {
            end.limits.outstanding_reads = self.reads;
            end.faults.refuse_post = NonZeroU64::new(5);
            end.faults.latency = Duration::ZERO..=Duration::from_millis(3);
        }
        setup
    }
}

fn ask(pair: &mut Pair, xid: u32, exchange: &Exchange) {
    let (fixed, items) = &exchange.call;
    let (reply_fixed, results) = &exchange.reply;
    let head = 12 + xdr::padded(*reply_fixed) + 8 * results.len();
    pair.call(request(xid, call(xid, *fixed, items), bound(head, results)));
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
            ask(&mut pair, xid as u32, exchange);
        }
        pair.drive();
        for (xid, exchange) in exchanges.iter().enumerate() {
            if exchange.cancelled {
                pair.client.connection.cancel(xid as u32, CallToken(xid as u64));
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
        end.faults.cut = Some(Cut::Octets(cut));
        let mut pair = Pair::with(setup);
        for (xid, exchange) in exchanges.iter().enumerate() {
            ask(&mut pair, xid as u32, exchange);
        }
        pair.drive();
        for pick in picks {
            if !pair.calls.is_empty() {
                answer_one(&mut pair, &exchanges, pick);
            }
        }
        let mut ends: Vec<_> = pair.waiting.iter().map(|request| request.token().0).collect();
        for (token, reply) in pair.replies.drain(..) {
            let (fixed, items) = &exchanges[token.0 as usize].reply;
            check_reply(&reply.expect("answered"), token.0 as u32, *fixed, items);
            ends.push(token.0);
        }
        for unfinished in pair.client.connection.into_unfinished() {
            match unfinished {
                Unfinished::Again(request) => ends.push(request.token().0),
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
