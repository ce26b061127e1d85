//! Messages: Send and Receive.

use crate::bench::Bench;
use crate::pair::{At, pattern, segment};
use buffer::gather_len;
use verbs::{
    Buffer, Gather, Handle, Invalidation, PostError, QpOptions, RemoteAddress, WorkError,
    WorkRequest,
};

/// Empty, tiny, odd and full messages arrive as they were sent.
pub async fn message_of_any_size_arrives_whole(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            for length in [0, 1, 2, 3, 4, 5, 127, 1000, 1460, 2047, 4095, 4096, 0] {
                let bytes = pattern(length, length);
                let receive = pair.far.receive_one();
                let send = pair.near.send(&bytes);
                let (message, _) = pair.message(At::Far, receive).await;
                assert_eq!(*message, bytes, "a message of {length} bytes");
                pair.success(At::Near, send).await;
            }
        })
        .await;
}

/// Statistics count work by its kind. A provider may count nothing.
pub async fn work_is_counted_by_kind(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let before = (pair.near.qp.io_counters(), pair.far.qp.io_counters());
            let sink = pair.sink(At::Far, 100).await;
            let source = pair.source(At::Far, b"to be read").await;
            let receive = pair.far.receive_one();
            pair.near.write(sink, 0, b"one");
            pair.near.write(sink, 3, b"two");
            let read = pair.near.read(&[segment(source, 0, 10)]);
            pair.success(At::Near, read).await;
            let invalidates = pair.far.qp.limits().remote_invalidation != Invalidation::None;
            let send = pair.near.send_and(b"three", invalidates.then_some(sink));
            pair.message(At::Far, receive).await;
            pair.success(At::Near, send).await;
            let (mut near, mut far) = (pair.near.qp.io_counters(), pair.far.qp.io_counters());
            near -= before.0;
            far -= before.1;
            if near.work.posts() == 0 {
                return;
            }
            let posted = (near.work.sends, near.work.writes, near.work.rdma_reads);
            assert_eq!(posted, (1, 2, 1), "{:?}", near.work);
            let invalidated = far.work.remote_invalidations;
            assert_eq!(invalidated, u64::from(invalidates), "{:?}", far.work);
        })
        .await;
}

/// A Receive takes in as much as its buffer's capacity, which may hold old data.
pub async fn message_may_fill_its_receive_exactly(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            for capacity in [1, 3, 64, 1021] {
                let bytes = pattern(9, capacity);
                let receive = pair.far.receive(Buffer::from(vec![0xee; capacity]));
                pair.near.send(&bytes);
                let (message, _) = pair.message(At::Far, receive).await;
                assert_eq!(*message, bytes);
                let receive = pair.far.receive(Buffer::from(vec![0xee; capacity]));
                pair.near.send(&bytes[1..]);
                let (message, _) = pair.message(At::Far, receive).await;
                assert_eq!(*message, bytes[1..]);
            }
        })
        .await;
}

/// Messages are not limited to what fits a packet.
pub async fn message_of_a_mebibyte_arrives_whole(bench: &Bench<'_>) {
    const LENGTH: usize = 1 << 20;
    let options = QpOptions::default().with_receive_size(LENGTH);
    bench
        .both_ways_with(&options, async |pair| {
            for length in [LENGTH, LENGTH - 1] {
                let bytes = pattern(3, length);
                let buffer = pair.far.buffer(LENGTH);
                let receive = pair.far.receive(buffer);
                pair.near.send(&bytes);
                let (message, _) = pair.message(At::Far, receive).await;
                assert!(*message == *bytes);
            }
        })
        .await;
}

/// A Send with pieces behind its buffer is one message, whatever their sizes.
pub async fn head_and_pieces_arrive_as_one_message(bench: &Bench<'_>) {
    const LENGTHS: [&[usize]; 9] = [
        &[0, 1],
        &[3, 0, 2],
        &[128, 4096],
        &[128, 1023, 1],
        &[128, 1021, 3000, 3],
        &[5000, 4096],
        &[5000, 100],
        &[10_000, 20_000, 7],
        &[128, 70_000],
    ];
    let options = QpOptions::default().with_receive_size(80_000);
    bench
        .both_ways_with(&options, async |pair| {
            for lengths in LENGTHS {
                let bytes = pattern(5, lengths.iter().sum());
                let (head, mut left) = bytes.split_at(lengths[0]);
                let mut rest = Gather::new();
                for &length in &lengths[1..] {
                    let (piece, behind) = left.split_at(length);
                    rest.push(pair.near.piece(piece));
                    left = behind;
                }
                let buffer = pair.far.buffer(bytes.len());
                let receive = pair.far.receive(buffer);
                let send = pair.near.send_from(head, rest);
                let (message, _) = pair.message(At::Far, receive).await;
                assert!(*message == *bytes, "a message of {lengths:?}");
                pair.success(At::Near, send).await;
            }
        })
        .await;
}

/// One byte too many ends the connection, and the Receive says why.
pub async fn message_longer_than_its_receive_ends_the_connection(bench: &Bench<'_>) {
    if !bench.posts_receives() {
        return crate::shared::message_longer_than_a_block_ends_the_connection(bench).await;
    }
    for (capacity, length) in [(1024, 1025), (0, 1), (4096, 4097), (64, 4096)] {
        bench
            .both_ways(async |pair| {
                let receive = pair.far.receive(Buffer::with_capacity(capacity));
                let next = pair.far.receive_one();
                pair.near.send(&pattern(1, length));
                pair.offence().await;
                pair.far.assert_failed(receive, WorkError::TooLong);
                pair.far.assert_failed(next, WorkError::Flushed);
            })
            .await;
    }
}

/// There is no waiting for a Receive: credits are the business of the protocol above.
pub async fn message_without_a_receive_ends_the_connection(bench: &Bench<'_>) {
    if !bench.posts_receives() {
        return crate::shared::message_without_a_block_waits_for_one(bench).await;
    }
    bench
        .both_ways(async |pair| {
            let receive = pair.far.receive_one();
            pair.near.send(b"one");
            pair.near.send(b"two");
            let (message, _) = pair.message(At::Far, receive).await;
            assert_eq!(&*message, b"one");
            pair.offence_beyond_devices().await;
        })
        .await;
}

/// A message longer than the provider can send comes back at once.
pub async fn message_beyond_the_limit_is_refused(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let most = pair.near.qp.limits().max_message as usize;
            // The same mebibyte again and again, so that no memory is needed for it.
            let piece = pair.near.piece(&vec![0; 1 << 20]);
            let mut source: Gather = std::iter::repeat_n(&piece, most >> 20).cloned().collect();
            source.push(piece.slice(..(most & 0xf_ffff) + 1));
            let to = RemoteAddress {
                handle: Handle(1),
                offset: 0,
            };
            // One byte is in the head.
            let mut rest = source.clone();
            rest.pop();
            rest.push(piece.slice(..most & 0xf_ffff));
            let buffer = pair.near.filled(&[0]);
            let posted = pair.near.try_post(|wr| WorkRequest::Send {
                wr,
                buffer,
                rest,
                invalidate: None,
            });
            match posted.map_err(|error| *error) {
                Err(PostError::Invalid(WorkRequest::Send { buffer, rest, .. })) => {
                    assert_eq!(buffer.len() + gather_len(&rest), most + 1);
                }
                other => panic!("expected to have it back as impossible, got {other:?}"),
            }
            let posted = pair
                .near
                .try_post(|wr| WorkRequest::Write { wr, source, to });
            match posted.map_err(|error| *error) {
                Err(PostError::Invalid(WorkRequest::Write { source, .. })) => {
                    assert_eq!(gather_len(&source), most + 1);
                }
                other => panic!("expected to have it back as impossible, got {other:?}"),
            }
            drop(piece);
            pair.works().await;
        })
        .await;
}
