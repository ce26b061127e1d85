//! Memory in parts: several pieces under one handle.
//!
//! A provider without it ([`Limits::parts`](verbs::Limits::parts) is 0) refuses such memory, which each test checks instead.

use crate::bench::Bench;
use crate::pair::{At, Pair, pattern, segment};
use verbs::{Gather, Handle, Invalidation, Memory, Part, Parts, RegisterError};

/// Bytes of the parts in most tests: read, written, read, written.
const LENGTHS: [usize; 4] = [5001, 4096, 17, 70_000];

/// Each part is read or written at its own address, and all of them come back with one invalidation.
pub async fn parts_are_reached_at_their_addresses_and_come_back_together(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let Some(handle) = in_parts(pair).await else {
                return;
            };
            exchange(pair, handle).await;
            let memory = pair.take_back(At::Far, handle).await;
            check(memory);
            pair.near.write(handle, Parts::offset_of(1), b"too late");
            pair.offence().await;
        })
        .await;
}

/// One Send with Invalidate of the peer ends the access to all parts.
pub async fn peer_invalidates_all_parts_at_once(bench: &Bench<'_>) {
    for attempt in [0, 3] {
        bench
            .both_ways(async |pair| {
                if pair.far.qp.limits().remote_invalidation == Invalidation::None {
                    return;
                }
                let Some(handle) = in_parts(pair).await else {
                    return;
                };
                exchange(pair, handle).await;
                let receive = pair.far.receive_one();
                pair.near.send_and(b"done with all", Some(handle));
                let (_, invalidated) = pair.message(At::Far, receive).await;
                let invalidated = invalidated.expect("the Send invalidated a handle");
                assert_eq!(invalidated.handle, handle);
                check(invalidated.memory);
                match attempt {
                    0 => pair.near.read(&[segment(handle, Parts::offset_of(0), 1)]),
                    _ => pair.near.write(handle, Parts::offset_of(3), b"x"),
                };
                pair.offence().await;
            })
            .await;
    }
}

/// A part is open for its own kind of access, whatever the others are open for.
pub async fn each_part_has_its_own_access_right(bench: &Bench<'_>) {
    for part in 0..LENGTHS.len() {
        bench
            .both_ways(async |pair| {
                let Some(handle) = in_parts(pair).await else {
                    return;
                };
                let begin = Parts::offset_of(part);
                match is_source(part) {
                    true => pair.near.write(handle, begin, b"mine"),
                    false => pair.near.read(&[segment(handle, begin, 4)]),
                };
                pair.offence().await;
            })
            .await;
    }
}

/// The end of a part is the end of its memory, and behind it is not the next part.
pub async fn access_past_the_end_of_a_part_is_refused(bench: &Bench<'_>) {
    let last = LENGTHS.len() - 1;
    for (part, offset, length) in [
        (0, Parts::offset_of(0) + LENGTHS[0] as u64 - 1, 2),
        (1, Parts::offset_of(1) + LENGTHS[1] as u64 - 1, 2),
        // The byte before a part, and those around the whole region.
        (0, Parts::offset_of(2) - 1, 2),
        (1, Parts::offset_of(1) - 1, 2),
        (1, Parts::offset_of(last + 1), 1),
        (0, Parts::offset_of(last + 1), 1),
        (0, u64::MAX, 2),
        (1, u64::MAX, 2),
    ] {
        bench
            .both_ways(async |pair| {
                let Some(handle) = in_parts(pair).await else {
                    return;
                };
                match is_source(part) {
                    true => pair.near.read(&[segment(handle, offset, length)]),
                    false => pair.near.write(handle, offset, &vec![1; length]),
                };
                pair.offence().await;
            })
            .await;
    }
}

/// No part, too many, an empty or a too large one: the memory comes back.
pub async fn parts_beyond_the_limits_are_not_registered(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let most = pair.near.qp.limits().parts;
            let mut refused = |parts: Vec<Part>| match pair.near.try_register(memory(parts)) {
                Err(RegisterError::Size(Memory::Parts(_))) => {}
                other => panic!("{:?}", other.map_err(|error| error.to_string())),
            };
            let sinks = |count| (0..count).map(|_| Part::Sink(verbs::Buffer::with_capacity(8)));
            refused(Vec::new());
            refused(sinks(most + 1).collect());
            let empty = Part::Source(Gather::new());
            refused(sinks(1).chain([empty]).collect());
            if most > 0 {
                let handle = pair.near.register(memory(sinks(most).collect()));
                pair.take_back(At::Near, handle).await;
            }
            pair.works().await;
        })
        .await;
}

fn memory(parts: Vec<Part>) -> Memory {
    Memory::Parts(Parts::new(parts))
}

fn is_source(part: usize) -> bool {
    part.is_multiple_of(2)
}

/// Registers memory of the far end in parts, and announces it. `None` if the provider has no parts, and says so.
async fn in_parts(pair: &mut Pair<'_>) -> Option<Handle> {
    let parts = LENGTHS.iter().enumerate().map(|(number, &length)| {
        let bytes = pattern(number, length);
        match is_source(number) {
            true => Part::Source(Gather::from_iter([pair.far.piece(&bytes)])),
            false => {
                let mut buffer = verbs::Buffer::with_capacity(length);
                buffer.memory_mut().fill(0);
                Part::Sink(buffer)
            }
        }
    });
    let memory = memory(parts.collect());
    if pair.far.qp.limits().parts > 0 {
        return Some(pair.register(At::Far, memory).await);
    }
    match pair.far.try_register(memory) {
        Err(RegisterError::Size(Memory::Parts(_))) => None,
        other => panic!("{:?}", other.map_err(|error| error.to_string())),
    }
}

/// Data that the near end writes to a part.
fn written(number: usize) -> Vec<u8> {
    pattern(100 + number, LENGTHS[number])
}

/// The near end reads and writes each part whole.
async fn exchange(pair: &mut Pair<'_>, handle: Handle) {
    for (number, &length) in LENGTHS.iter().enumerate() {
        let begin = Parts::offset_of(number);
        if is_source(number) {
            let read = pair.near.read(&[segment(handle, begin, length)]);
            let sink = pair.sink_of(At::Near, read).await;
            assert!(*sink == pattern(number, length));
        } else {
            pair.near.write(handle, begin, &written(number));
        }
    }
    pair.exchange(At::Near).await;
}

/// The memory came back as it was, with what was written.
fn check(memory: Memory) {
    let Memory::Parts(parts) = memory else {
        panic!("{memory:?} is not what was registered");
    };
    assert_eq!(parts.iter().len(), LENGTHS.len());
    for (number, part) in parts.into_iter().enumerate() {
        match part {
            Part::Source(pieces) => assert!(pieces.concat() == pattern(number, LENGTHS[number])),
            Part::Sink(buffer) => assert!(buffer.memory() == written(number)),
        }
    }
}
