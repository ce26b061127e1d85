//! Memory that an endpoint borrows: blocks of a shared receive queue, and of its pool.

use super::hostile::{frame, tagged, untagged};
use super::*;
use crate::rdmap::Opcode;
use verbs::SharedReceiveQueue;

/// Calls that a connection may have out.
const CALLS: u64 = 128;

/// A pair whose responder takes from this queue.
fn pair(queue: &SharedReceiveQueue, share: usize) -> Pair {
    let mut pair = Pair::new();
    pair.b = Endpoint::new(EndpointConfig {
        receives: share,
        shared_receives: Some(queue.clone()),
        ..config(Role::Responder)
    });
    pair
}

/// The messages that have arrived.
fn messages(endpoint: &mut Endpoint) -> Vec<Buffer> {
    let received = completions(endpoint).into_iter();
    let message = |completion| match completion {
        Completion::Receive { wr, buffer, .. } => {
            assert_eq!(wr, SharedReceiveQueue::WR);
            Some(buffer)
        }
        _ => None,
    };
    received.filter_map(message).collect()
}

#[test]
fn messages_of_any_size_come_in_blocks_that_go_back() {
    let queue = SharedReceiveQueue::new(3, 65_536);
    let mut pair = pair(&queue, 3);
    for len in [0, 1, 4096, 40_000, 65_536] {
        pair.a.post(send(1, &pattern(len, 1))).unwrap();
        pair.drive();
        let found = messages(&mut pair.b);
        assert_eq!(found.len(), 1, "a message of {len} bytes");
        assert!(*found[0] == *pattern(len, 1));
        assert_eq!(queue.stats().lent, 1);
        drop(found);
        assert_eq!(queue.stats().lent, 0);
    }
    let refused = pair.b.post(receive(1, 10));
    assert!(matches!(
        refused,
        Err(PostError::Invalid(WorkRequest::Receive { .. }))
    ));
    pair.a.post(send(2, &pattern(65_537, 1))).unwrap();
    pair.drive();
    pair.b.recv_with(|_| Ok(0)).unwrap();
    assert_eq!(pair.b.closed(), Some(&peer_error(Cause::DDP_TOO_LONG)));
    // Nobody posted what failed.
    assert!(completions(&mut pair.b).is_empty());
    assert_eq!(queue.stats().lent, 0);
}

#[test]
fn message_without_a_block_waits_and_delays_what_is_behind_it() {
    let queue = SharedReceiveQueue::new(1, 64);
    let mut pair = pair(&queue, 9);
    let region = pair.b.register(sink(100)).unwrap();
    pair.a.post(send(1, b"one")).unwrap();
    pair.a.post(send(2, b"two")).unwrap();
    pair.a.post(write(3, vec![7; 100], region, 0)).unwrap();
    let bytes = output(&mut pair.a, usize::MAX);
    assert_eq!(pair.b.recv_slice(&bytes), 0);
    let one = messages(&mut pair.b);
    assert_eq!((one.len(), &*one[0]), (1, b"one".as_slice()));
    assert!(!pair.b.wants_input() && !pair.b.has_staged() && !pair.b.resume());
    assert!(pair.b.awaited_share().is_some());
    // What comes meanwhile is not looked at.
    assert_eq!(pair.b.recv_slice(&bytes[..10]), 10);
    assert_eq!(pair.b.counters().held_back, 1);
    drop(one);
    assert!(pair.b.resume());
    assert!(pair.b.wants_input() && pair.b.awaited_share().is_none());
    assert_eq!(&*messages(&mut pair.b)[0], b"two");
    let slot = pair.b.places.region(region.0).unwrap();
    let Some(Memory::Sink(written)) = pair.b.places.table.release(slot) else {
        panic!("it is a sink");
    };
    assert_eq!(written.memory(), [7; 100]);
}

#[test]
fn message_that_waits_is_dropped_when_the_connection_ends() {
    let queue = SharedReceiveQueue::new(1, 64);
    let mut pair = pair(&queue, 9);
    pair.a.post(send(1, b"one")).unwrap();
    pair.a.post(send(2, b"two")).unwrap();
    pair.drive();
    assert!(pair.b.awaited_share().is_some());
    pair.b.close();
    // It takes octets again, to see the end of the stream.
    assert!(pair.b.wants_input() && pair.b.awaited_share().is_none());
    pair.drive();
    pair.b.recv_with(|_| Ok(0)).unwrap();
    assert_eq!(pair.b.closed(), Some(&CloseReason::Local));
    assert_eq!(queue.stats().lent, 1);
    assert_eq!(messages(&mut pair.b).len(), 1);
    assert_eq!((queue.stats().lent, queue.stats().waiting), (0, 0));
}

/// Calls on several connections hold all blocks. Each has a Read Response to come, which its peer
/// sends behind the rest of its calls.
#[test]
fn read_responses_behind_many_sends_arrive_though_all_blocks_are_held() {
    let queue = SharedReceiveQueue::new(3, 64);
    let mut pairs = [(); 3].map(|()| pair(&queue, CALLS as usize));
    let mut held = Vec::new();
    for pair in &mut pairs {
        let region = pair.a.register(Memory::Source(gather(vec![9; 500])));
        let region = region.unwrap();
        pair.a.post(send(0, b"call 0")).unwrap();
        pair.drive();
        held.extend(messages(&mut pair.b));
        let segment = Segment {
            handle: region,
            length: 500,
            offset: 0,
        };
        pair.b.post(read(7, 500, &[segment])).unwrap();
    }
    assert_eq!((held.len(), queue.stats().lent), (3, 3));
    for pair in &mut pairs {
        for number in 1..CALLS {
            pair.a.post(send(number, b"another call")).unwrap();
        }
        // The calls are on their way before the Read Request has arrived.
        let calls = output(&mut pair.a, usize::MAX);
        assert_eq!(pair.b.recv_slice(&calls), 0);
        pair.drive();
        let found = completions(&mut pair.b);
        let is_read = |completion: &Completion| match completion {
            Completion::Read { wr, sink } => *wr == WrId(7) && **sink == [9; 500],
            _ => false,
        };
        assert!(found.iter().any(is_read), "the Read Response never came");
        held.extend(found.into_iter().filter_map(|completion| match completion {
            Completion::Receive { buffer, .. } => Some(buffer),
            _ => None,
        }));
        assert_eq!(pair.b.closed(), None);
    }
    assert_eq!(held.len() as u64, 3 * CALLS);
    drop(held);
    assert_eq!(queue.stats().lent, 0);
}

/// The way out ends where its peer has more calls out than were granted to it: waiting for a block
/// would be waiting for what stands behind this message.
#[test]
fn peer_with_more_messages_than_its_share_is_closed_if_a_read_stands_behind_them() {
    let queue = SharedReceiveQueue::new(100, 64);
    let mut pair = pair(&queue, 4);
    pair.a.post(send(0, b"call")).unwrap();
    pair.drive();
    let mut held = messages(&mut pair.b);
    let segment = Segment {
        handle: Handle(1),
        length: 5,
        offset: 0,
    };
    pair.b.post(read(7, 5, &[segment])).unwrap();
    for number in 1..5 {
        pair.a.post(send(number, b"call")).unwrap();
    }
    let calls = output(&mut pair.a, usize::MAX);
    pair.b.recv_slice(&calls);
    held.extend(messages(&mut pair.b));
    assert_eq!(held.len(), 4);
    assert_eq!(
        terminate_in(&output(&mut pair.b, usize::MAX)).map(|terminate| terminate.cause),
        Some(Cause::DDP_NO_BUFFER)
    );
}

/// Without a Read of ours it is only not read any further, whatever others have left.
#[test]
fn peer_with_more_messages_than_its_share_waits_for_its_own_blocks() {
    let queue = SharedReceiveQueue::new(100, 64);
    let (mut greedy, mut modest) = (pair(&queue, 4), pair(&queue, 4));
    for number in 0..9 {
        greedy.a.post(send(number, b"call")).unwrap();
    }
    greedy.drive();
    let mut held = messages(&mut greedy.b);
    assert_eq!((held.len(), queue.stats().lent), (4, 4));
    modest.a.post(send(1, b"call")).unwrap();
    modest.drive();
    assert_eq!(messages(&mut modest.b).len(), 1);
    assert!(!greedy.b.resume());
    held.pop();
    assert!(greedy.b.resume());
    held.extend(messages(&mut greedy.b));
    assert_eq!(held.len(), 4);
    // It posts a Read now: what waits could stand before its response.
    let segment = Segment {
        handle: Handle(1),
        length: 5,
        offset: 0,
    };
    assert!(!greedy.b.has_staged());
    greedy.b.post(read(7, 5, &[segment])).unwrap();
    assert!(greedy.b.has_staged() && greedy.b.resume());
    assert!(greedy.b.is_ending());
}

#[test]
fn segments_without_payload_are_handled_a_turn_at_a_time() {
    let mut endpoint = Endpoint::new(config(Role::Responder));
    let empty = frame(tagged(Opcode::Write, 0, 0), &[]);
    let flood = empty.repeat(20_000);
    let mut flood = flood.as_slice();
    let mut taken = 0;
    while !flood.is_empty() {
        let before = endpoint.counters().fpdus_in;
        if endpoint.wants_input() {
            let fill = |places: &mut [std::io::IoSliceMut<'_>]| {
                let now = places[0].len().min(flood.len());
                places[0][..now].copy_from_slice(&flood[..now]);
                flood = &flood[now..];
                Ok(now)
            };
            taken = taken.max(endpoint.recv_with(fill).unwrap());
        } else {
            assert!(endpoint.has_staged());
            assert!(
                endpoint
                    .recv_with(|_| unreachable!("it has enough"))
                    .is_err()
            );
            endpoint.resume();
        }
        let handled = endpoint.counters().fpdus_in - before;
        assert!(handled <= FPDUS_PER_TURN as u64, "{handled} in one turn");
    }
    while endpoint.resume() {}
    assert_eq!(endpoint.counters().fpdus_in, 20_000);
    assert!(
        taken > FPDUS_PER_TURN * empty.len(),
        "nothing was ever left"
    );
    assert!(endpoint.wants_input());
}

#[test]
fn empty_messages_and_end_of_stream_behind_a_flood_are_processed() {
    let mut endpoint = Endpoint::new(config(Role::Responder));
    endpoint.post(receive(1, 10)).unwrap();
    let mut flood = frame(tagged(Opcode::Write, 0, 0), &[]).repeat(FPDUS_PER_TURN + 5);
    flood.extend(frame(untagged(Opcode::Send, 0, 1, 0), b"last"));
    assert_eq!(endpoint.recv_slice(&flood), 0);
    assert_eq!(completions(&mut endpoint).len(), 1);
    endpoint.recv_with(|_| Ok(0)).unwrap();
    assert_eq!(endpoint.closed(), Some(&CloseReason::Peer));
}

/// An idle endpoint has no memory of its pool; a busy one uses the same memory again.
#[test]
fn idle_endpoint_has_returned_its_memory_and_nothing_is_zeroed_again() {
    let pool = Pool::new(4 << 20);
    let mut pair = Pair::with(|config| config.pool = pool.clone());
    let mut warm = None;
    for round in 0..20_u64 {
        for number in 0..8 {
            let wr = round * 16 + number;
            pair.b.post(receive(wr, 30_000)).unwrap();
            let message = pattern(100 + 3000 * number as usize, round);
            pair.a.post(send(wr, &message)).unwrap();
        }
        pair.drive();
        assert!(pool.stats().out > 0);
        completions(&mut pair.a);
        completions(&mut pair.b);
        pair.a.release();
        pair.b.release();
        assert_eq!(pool.stats().out, 0);
        if round == 4 {
            warm = Some(pool.stats().misses);
        }
    }
    assert_eq!(Some(pool.stats().misses), warm);
}

#[test]
fn half_an_fpdu_keeps_its_memory_when_the_rest_is_released() {
    let pool = Pool::new(0);
    let mut pair = Pair::with(|config| config.pool = pool.clone());
    pair.b.post(receive(1, 100)).unwrap();
    pair.a.post(send(1, b"in two halves")).unwrap();
    let bytes = output(&mut pair.a, usize::MAX);
    let (first, rest) = bytes.split_at(20);
    pair.b.recv_slice(first);
    pair.b.trim();
    pair.b.recv_slice(rest);
    pair.b.trim();
    let found = completions(&mut pair.b);
    let [Completion::Receive { buffer, .. }] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(&**buffer, b"in two halves");
    pair.a.trim();
    assert_eq!(pool.stats().out, 0);
}
