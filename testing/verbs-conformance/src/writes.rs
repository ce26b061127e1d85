//! RDMA Write: placement, and what is refused.

use crate::bench::Bench;
use crate::pair::{At, Pair, pattern};
use buffer::Pool;
use std::ops::Range;
use verbs::{Gather, Handle, Memory, QpOptions, WorkError};

/// Content of the victim's memory before and after.
const UNTOUCHED: u8 = 0x55;

/// Bytes of the victim's memory.
const SIZE: usize = 4096;

/// Every byte of the data, and no other, changes; at the beginning, the end and odd places.
pub async fn write_changes_exactly_its_bytes(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let mut expected = vec![0; SIZE];
            let handle = pair.sink(At::Far, SIZE).await;
            let places = [
                (0, 1),
                (SIZE - 1, 1),
                (3, 5),
                (1001, 997),
                (4000, 96),
                (1000, 2),
            ];
            for (seed, (at, length)) in places.into_iter().enumerate() {
                let bytes = pattern(seed, length);
                expected[at..at + length].copy_from_slice(&bytes);
                let write = pair.near.write(handle, at as u64, &bytes);
                pair.success(At::Near, write).await;
            }
            pair.exchange(At::Near).await;
            assert!(pair.contents(At::Far, handle).await == expected);
        })
        .await;
}

/// A gathered source goes out in order, empty pieces included.
pub async fn write_takes_its_bytes_from_all_pieces(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = pair.sink(At::Far, SIZE).await;
            let lengths = [1, 0, 7, 1000, 3, 0, 2048];
            let parts: Vec<_> = (0..).zip(lengths).map(|(i, len)| pattern(i, len)).collect();
            let source: Gather = parts.iter().map(|part| pair.near.piece(part)).collect();
            pair.near.write_from(handle, 11, source);
            pair.exchange(At::Near).await;
            let expected = parts.concat();
            let written = pair.contents(At::Far, handle).await;
            assert!(written[11..11 + expected.len()] == expected);
            assert!(written[11 + expected.len()..].iter().all(|byte| *byte == 0));
        })
        .await;
}

/// A Write is not limited to what fits a packet, and its length need not be round.
pub async fn large_write_arrives_whole(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let bytes = pattern(5, (4 << 20) - 3);
            let handle = pair.sink(At::Far, 4 << 20).await;
            let write = pair.near.write(handle, 2, &bytes);
            pair.success(At::Near, write).await;
            pair.exchange(At::Near).await;
            let written = pair.contents(At::Far, handle).await;
            assert_eq!(written[..2], [0, 0]);
            assert!(written[2..2 + bytes.len()] == bytes);
            assert_eq!(written[2 + bytes.len()..], [0]);
        })
        .await;
}

/// A Write of no bytes completes and changes nothing.
pub async fn empty_write_completes(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = pair.sink(At::Far, SIZE).await;
            let write = pair.near.write(handle, 0, &[]);
            pair.success(At::Near, write).await;
            pair.works().await;
            let written = pair.contents(At::Far, handle).await;
            assert!(written.iter().all(|byte| *byte == 0));
        })
        .await;
}

/// One byte too far is too far. What lies within bounds may have been placed, as a Write is
/// checked segment by segment (RFC 5041 §7.1), and nothing else.
pub async fn write_past_the_end_is_refused(bench: &Bench<'_>) {
    for (offset, length) in [(SIZE, 1), (SIZE - 1, 2), (0, SIZE + 1), (1, SIZE)] {
        refused_but_for(bench, offset..SIZE, async |pair, handle| {
            pair.near.write(handle, offset as u64, &pattern(1, length));
        })
        .await;
    }
}

/// An offset near the end of the numbers does not come out at the beginning.
pub async fn write_whose_offset_overflows_is_refused(bench: &Bench<'_>) {
    let offsets = [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 32, (1 << 32) - 1];
    for offset in offsets {
        refused(bench, async |pair, handle| {
            pair.near.write(handle, offset, &pattern(1, 16));
        })
        .await;
    }
}

/// A handle next to a good one, or none at all, opens nothing.
pub async fn write_to_an_unknown_handle_is_refused(bench: &Bench<'_>) {
    for other in [1, 0x80, 0x100, 0x8000_0000] {
        refused(bench, async |pair, handle| {
            pair.near
                .write(Handle(handle.0 ^ other), 0, &pattern(1, 16));
        })
        .await;
    }
    refused(bench, async |pair, _| {
        pair.near.write(Handle(0), 0, &pattern(1, 16));
    })
    .await;
}

/// A handle works on its own connection only.
pub async fn write_to_a_handle_of_another_connection_is_refused(bench: &Bench<'_>) {
    let mut other = bench.pair().await;
    let foreign = other.sink(At::Far, SIZE).await;
    refused(bench, async |pair, _| {
        pair.near.write(foreign, 0, &pattern(1, 16));
    })
    .await;
    other.works().await;
    let written = other.contents(At::Far, foreign).await;
    assert!(written.iter().all(|byte| *byte == 0));
    other.finish().await;
}

/// Memory that is there to be read is not there to be written.
pub async fn write_to_a_source_is_refused(bench: &Bench<'_>) {
    refused(bench, async |pair, _| {
        let source = pair.source(At::Far, &[UNTOUCHED; 64]).await;
        pair.near.write(source, 0, &pattern(1, 16));
    })
    .await;
}

/// Only the connection on which a rule was broken ends.
pub async fn violation_on_one_connection_leaves_others_alone(bench: &Bench<'_>) {
    let mut listener = bench.listen().await;
    let options = QpOptions::default();
    let mut good = bench.pair_over(&mut *listener, &options, &options).await;
    let mut bad = bench.pair_over(&mut *listener, &options, &options).await;
    good.greet().await;
    let handle = good.sink(At::Far, SIZE).await;
    bad.greet().await;
    bad.near.write(Handle(1), 0, &pattern(1, 16));
    bad.offence().await;
    bad.retire();
    good.near.write(handle, 0, b"fine");
    good.works().await;
    assert_eq!(good.contents(At::Far, handle).await[..4], *b"fine");
    good.finish().await;
}

/// Lets the near end offend, who is given a handle of the victim's, and checks that the connection
/// ends as it should and the memory behind the handle is as it was.
async fn refused(bench: &Bench<'_>, offend: impl AsyncFn(&mut Pair<'_>, Handle)) {
    refused_but_for(bench, 0..0, offend).await;
}

/// The same, where a part of the memory may be touched.
async fn refused_but_for(
    bench: &Bench<'_>,
    touched: Range<usize>,
    offend: impl AsyncFn(&mut Pair<'_>, Handle),
) {
    bench
        .both_ways_to_the_end(async |mut pair| {
            // Memory from a pool of its own is found again there, as it was left.
            let pool = Pool::new(SIZE);
            let mut memory = pool.take(SIZE);
            memory.memory_mut().fill(UNTOUCHED);
            let handle = pair.register(At::Far, Memory::Sink(memory)).await;
            let receive = pair.far.receive_one();
            offend(&mut pair, handle).await;
            pair.near.send(b"never to arrive");
            pair.offence().await;
            pair.far.assert_failed(receive, WorkError::Flushed);
            pair.retire();
            assert_eq!(pool.stats().free, SIZE);
            let mut memory = pool.take(SIZE);
            memory.memory_mut()[touched.clone()].fill(UNTOUCHED);
            let untouched = memory.memory_mut().iter().all(|byte| *byte == UNTOUCHED);
            assert!(untouched, "a refused Write has changed memory");
        })
        .await;
}
