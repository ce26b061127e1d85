//! RDMA Read: what it brings, how many at a time, and what is refused.

use crate::bench::Bench;
use crate::pair::{At, Pair, pattern, segment};
use verbs::{
    Completion, Gather, Handle, Memory, PostError, QpOptions, Segment, WorkError, WorkRequest,
};

/// A Read sets its sink to exactly the bytes asked for.
pub async fn read_transfers_exactly_its_bytes(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let bytes = pattern(1, 5001);
            let handle = pair.source(At::Far, &bytes).await;
            for (at, length) in [(0, 5001), (0, 1), (5000, 1), (7, 13), (1001, 3999), (4, 4)] {
                let read = pair.near.read(&[segment(handle, at as u64, length)]);
                let sink = pair.sink_of(At::Near, read).await;
                assert_eq!(*sink, bytes[at..at + length]);
            }
            let back = pair.contents(At::Far, handle).await;
            assert!(back == bytes);
        })
        .await;
}

/// Short Reads bring the right bytes where their source crosses a page, wherever in the region that is.
pub async fn short_reads_pass_the_end_of_a_page(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let bytes = pattern(1, 4096 + 64);
            let handle = pair.source(At::Far, &bytes).await;
            for length in [2, 13, 31, 32, 33] {
                // One of these crosses each place where a page may end.
                for at in (0..4096 + 32).step_by(length - 1) {
                    let read = pair.near.read(&[segment(handle, at as u64, length)]);
                    let sink = pair.sink_of(At::Near, read).await;
                    assert_eq!(*sink, bytes[at..at + length], "{length} bytes at {at}");
                }
            }
        })
        .await;
}

/// Segments of several regions, of odd lengths, come one behind the other.
pub async fn read_gathers_its_segments(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let (one, two) = (pattern(1, 3000), pattern(2, 2001));
            let (a, b) = (
                pair.source(At::Far, &one).await,
                pair.source(At::Far, &two).await,
            );
            let read = pair.near.read(&[
                segment(b, 1000, 1001),
                segment(a, 0, 1),
                segment(a, 2999, 1),
                segment(b, 0, 3),
                segment(a, 1, 0),
                segment(a, 17, 1023),
            ]);
            let sink = pair.sink_of(At::Near, read).await;
            let expected = [
                &two[1000..2001],
                &one[..1],
                &one[2999..],
                &two[..3],
                &one[17..1040],
            ];
            assert_eq!(*sink, expected.concat());
        })
        .await;
}

/// The bounds between the pieces of a source cannot be seen from outside.
pub async fn read_spans_the_pieces_of_a_source(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let bytes = pattern(1, 1000);
            let cuts = [0, 1, 1, 400, 403, 1000];
            let piece = |ends: &[usize]| pair.far.piece(&bytes[ends[0]..ends[1]]);
            let pieces: Gather = cuts.windows(2).map(piece).collect();
            let handle = pair.register(At::Far, Memory::Source(pieces)).await;
            for (at, length) in [(0, 1000), (399, 6), (0, 2), (401, 599), (402, 1)] {
                let read = pair.near.read(&[segment(handle, at as u64, length)]);
                let sink = pair.sink_of(At::Near, read).await;
                assert_eq!(*sink, bytes[at..at + length]);
            }
        })
        .await;
}

/// A Read is not limited to what fits a packet.
pub async fn large_read_arrives_whole(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let bytes = pattern(1, (4 << 20) - 3);
            let handle = pair.source(At::Far, &bytes).await;
            let read = pair.near.read(&[segment(handle, 0, bytes.len())]);
            let sink = pair.sink_of(At::Near, read).await;
            assert!(*sink == *bytes);
        })
        .await;
}

/// A Read of nothing completes, with nothing.
pub async fn empty_read_completes(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = pair.source(At::Far, b"something").await;
            let read = pair.near.read(&[segment(handle, 3, 0)]);
            let sink = pair.sink_of(At::Near, read).await;
            assert!(sink.is_empty());
            pair.works().await;
        })
        .await;
}

/// Reads beyond the limit wait in the provider and are done in their turn.
pub async fn more_reads_than_can_be_outstanding_all_complete(bench: &Bench<'_>) {
    for outstanding_reads in [1, 2, 7] {
        let options = QpOptions::default()
            .with_outstanding_reads(outstanding_reads)
            .with_inbound_reads(outstanding_reads);
        bench
            .both_ways_with(&options, async |pair| {
                let bytes = pattern(1, 9000);
                let handle = pair.source(At::Far, &bytes).await;
                let place = |number: usize| (number * 31, 1 + number * 97 % 4000);
                let mut reads = Vec::new();
                for number in 0..40 {
                    let (at, length) = place(number);
                    reads.push(pair.near.read(&[segment(handle, at as u64, length)]));
                }
                for (number, read) in reads.into_iter().enumerate() {
                    let (at, length) = place(number);
                    let sink = pair.sink_of(At::Near, read).await;
                    assert_eq!(*sink, bytes[at..at + length]);
                }
            })
            .await;
    }
}

/// One Read may have more segments than requests can be outstanding.
pub async fn more_segments_than_can_be_outstanding_all_arrive(bench: &Bench<'_>) {
    let options = QpOptions::default()
        .with_outstanding_reads(2)
        .with_inbound_reads(2);
    bench
        .both_ways_with(&options, async |pair| {
            let bytes = pattern(1, 4096);
            let handle = pair.source(At::Far, &bytes).await;
            let places: Vec<_> = (0..15).map(|n| ((15 - n) * 200, 1 + n * 13)).collect();
            let segments: Vec<_> = places
                .iter()
                .map(|(at, length)| segment(handle, *at as u64, *length))
                .collect();
            let read = pair.near.read(&segments);
            let sink = pair.sink_of(At::Near, read).await;
            let expected: Vec<&[u8]> = places
                .iter()
                .map(|(at, length)| &bytes[*at..at + length])
                .collect();
            assert_eq!(*sink, expected.concat());
        })
        .await;
}

/// Both ends read from each other, while messages go both ways.
pub async fn reads_in_both_directions_complete(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let bytes = [pattern(1, 300_000), pattern(2, 300_001)];
            let of_near = pair.source(At::Near, &bytes[0]).await;
            let of_far = pair.source(At::Far, &bytes[1]).await;
            let mut expected = Vec::new();
            for number in 0..10 {
                let length = 200_000 + number;
                let at = number * 1000;
                let read = pair.near.read(&[segment(of_far, at as u64, length)]);
                expected.push((At::Near, read, &bytes[1][at..at + length]));
                let read = pair.far.read(&[segment(of_near, at as u64, length)]);
                expected.push((At::Far, read, &bytes[0][at..at + length]));
                pair.works().await;
            }
            for (at, read, bytes) in expected {
                let sink = pair.sink_of(at, read).await;
                assert!(*sink == *bytes);
            }
        })
        .await;
}

/// A Read that does not fit its sink comes back at once.
pub async fn read_longer_than_its_sink_is_not_accepted(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = pair.source(At::Far, &[1; 5000]).await;
            let halves = [segment(handle, 0, 4000), segment(handle, 0, 97)];
            let (huge, more) = (4_294_967_295, 4_294_967_295);
            let overflowing = [huge, more].map(|length: u32| Segment {
                handle,
                length,
                offset: 0,
            });
            for from in [halves, overflowing] {
                let sink = pair.near.buffer(4096);
                let posted = pair.near.try_post(|wr| WorkRequest::Read {
                    wr,
                    sink,
                    from: from.as_slice().into(),
                });
                let error = posted.map_err(|error| *error);
                assert!(
                    matches!(error, Err(PostError::Invalid(WorkRequest::Read { .. }))),
                    "{error:?}"
                );
            }
            pair.works().await;
        })
        .await;
}

/// No Read is taken if the limits say that none can be outstanding.
pub async fn read_is_refused_when_no_reads_are_possible(bench: &Bench<'_>) {
    let options = QpOptions::default().with_outstanding_reads(0);
    bench
        .both_ways_with(&options, async |pair| {
            assert_eq!(pair.near.qp.limits().outstanding_reads, 0);
            let handle = pair.source(At::Far, b"something").await;
            let sink = pair.near.buffer(9);
            let posted = pair.near.try_post(|wr| WorkRequest::Read {
                wr,
                sink,
                from: [segment(handle, 0, 9)].as_slice().into(),
            });
            let error = posted.map_err(|error| *error);
            assert!(matches!(error, Err(PostError::Invalid(_))), "{error:?}");
            pair.works().await;
        })
        .await;
}

/// One byte too far is too far.
pub async fn read_past_the_end_is_refused(bench: &Bench<'_>) {
    for (offset, length) in [(64, 1), (63, 2), (0, 65), (1, 64), (0, 1 << 20)] {
        refused(bench, async |_, handle| segment(handle, offset, length)).await;
    }
}

/// An offset near the end of the numbers does not come out at the beginning.
pub async fn read_whose_offset_overflows_is_refused(bench: &Bench<'_>) {
    for offset in [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 32, (1 << 32) - 1] {
        refused(bench, async |_, handle| segment(handle, offset, 16)).await;
    }
}

/// A handle next to a good one, or none at all, opens nothing.
pub async fn read_from_an_unknown_handle_is_refused(bench: &Bench<'_>) {
    for other in [1, 0x80, 0x100, 0x8000_0000] {
        refused(bench, async |_, handle| {
            segment(Handle(handle.0 ^ other), 0, 16)
        })
        .await;
    }
    refused(bench, async |_, _| segment(Handle(0), 0, 16)).await;
}

/// A handle works on its own connection only.
pub async fn read_from_a_handle_of_another_connection_is_refused(bench: &Bench<'_>) {
    let mut other = bench.pair().await;
    let foreign = other.source(At::Far, &[7; 64]).await;
    refused(bench, async |_, _| segment(foreign, 0, 16)).await;
    other.works().await;
    other.finish().await;
}

/// Memory that is there to be written is not there to be read.
pub async fn read_from_a_sink_is_refused(bench: &Bench<'_>) {
    refused(bench, async |pair, _| {
        let sink = pair.sink(At::Far, 64).await;
        segment(sink, 0, 16)
    })
    .await;
}

/// Lets the near end read what it is told to read, and checks that it gets nothing
/// and the connection ends as it should.
async fn refused(bench: &Bench<'_>, forbidden: impl AsyncFn(&mut Pair<'_>, Handle) -> Segment) {
    bench
        .both_ways_to_the_end(async |mut pair| {
            let handle = pair.source(At::Far, &pattern(1, 64)).await;
            let forbidden = forbidden(&mut pair, handle).await;
            let read = pair.near.read(&[forbidden]);
            let receive = pair.near.receive_one();
            pair.offence().await;
            match pair.near.take(read) {
                Some(Completion::Failed {
                    error: WorkError::RemoteAccess | WorkError::Flushed,
                    ..
                }) => {}
                other => panic!("a refused Read says {other:?}"),
            }
            pair.near.assert_failed(receive, WorkError::Flushed);
            pair.retire();
        })
        .await;
}
