//! Connection teardown.

use crate::bench::Bench;
use crate::pair::{At, Pair, pattern, segment, whole};
use crate::peer::Peer;
use std::task::Poll;
use verbs::{CloseReason, Handle, Invalidation, Memory, RegisterError, Segment, WorkError, WrId};

/// Work that was posted before the close arrives, and completes as done.
pub async fn orderly_close_delivers_what_was_posted(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let bytes = pattern(1, 600_000);
            let handle = pair.sink(At::Far, bytes.len()).await;
            let receives: Vec<_> = (0..10).map(|_| pair.far.receive_one()).collect();
            let invalidating = pair.far.qp.limits().remote_invalidation != Invalidation::None;
            let mut posted = vec![pair.near.write(handle, 0, &bytes)];
            let with = invalidating.then_some(handle);
            posted.push(pair.near.send_and(b"0", with));
            for number in 1..10 {
                posted.push(pair.near.send(number.to_string().as_bytes()));
            }
            pair.near.qp.close();
            for (number, receive) in receives.into_iter().enumerate() {
                let (message, invalidated) = pair.message(At::Far, receive).await;
                assert_eq!(*message, *number.to_string().as_bytes());
                if let Some(invalidated) = invalidated {
                    let written = whole(invalidated.memory);
                    assert!(written[..bytes.len()] == bytes);
                }
            }
            for wr in posted {
                pair.success(At::Near, wr).await;
            }
            pair.over().await;
            assert_eq!(pair.near.qp.closed(), Some(&CloseReason::Local));
            assert_eq!(pair.far.qp.closed(), Some(&CloseReason::Peer));
        })
        .await;
}

/// Work that can no longer complete is given up: Receives, and Reads that are not answered.
pub async fn close_flushes_receives_and_reads(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = pair.source(At::Far, &pattern(1, 4096)).await;
            let outstanding = outstand(pair, &[segment(handle, 0, 4096)]);
            pair.near.qp.close();
            pair.over().await;
            assert_eq!(pair.near.qp.closed(), Some(&CloseReason::Local));
            for wr in outstanding {
                pair.near.assert_failed(wr, WorkError::Flushed);
            }
            pair.near.assert_nothing_owed();
            pair.far.assert_nothing_owed();
        })
        .await;
}

/// Both may close at the same time, and both have closed then.
pub async fn close_by_both_at_once_is_orderly(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            for peer in [&mut pair.near, &mut pair.far] {
                peer.receive_one();
                peer.qp.close();
            }
            pair.over().await;
            assert_eq!(pair.near.qp.closed(), Some(&CloseReason::Local));
            assert_eq!(pair.far.qp.closed(), Some(&CloseReason::Local));
            pair.near.assert_nothing_owed();
            pair.far.assert_nothing_owed();
        })
        .await;
}

/// When the peer has closed, everything that is outstanding here ends, each once.
pub async fn close_by_the_peer_flushes_outstanding_work(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let receives: Vec<_> = (0..20).map(|_| pair.near.receive_one()).collect();
            pair.far.qp.close();
            let reason = pair.over_at(At::Near).await;
            assert_eq!(reason, CloseReason::Peer);
            for wr in receives {
                pair.near.assert_failed(wr, WorkError::Flushed);
            }
            pair.near.assert_nothing_owed();
        })
        .await;
}

/// An owner that goes away without a word is noticed by an end that only waits.
pub async fn dropped_peer_is_detected_when_idle(bench: &Bench<'_>) {
    for connector_is_dropped in [true, false] {
        let Pair {
            near: mut dropped,
            far: mut left,
            ..
        } = bench.pair().await;
        if !connector_is_dropped {
            std::mem::swap(&mut dropped, &mut left);
        }
        let receive = left.receive_one();
        drop(dropped);
        lost(bench, &mut left).await;
        assert_ne!(left.qp.closed(), Some(&CloseReason::Local));
        left.assert_failed(receive, WorkError::Flushed);
        left.assert_nothing_owed();
        left.retire();
    }
}

/// Work of all kinds ends when the peer is gone, each once, and gives its memory back.
pub async fn dropped_peer_flushes_outstanding_work(bench: &Bench<'_>) {
    for connector_is_dropped in [true, false] {
        let mut pair = bench.pair().await;
        if connector_is_dropped {
            pair.swap();
        }
        let handle = pair.source(At::Far, &pattern(1, 4096)).await;
        let sink = pair.sink(At::Far, 4096).await;
        pair.near.sink(4096);
        let reads = outstand(&mut pair, &[segment(handle, 0, 4096)]);
        pair.near.write(sink, 0, &pattern(2, 4096));
        let Pair {
            near: mut left,
            far: dropped,
            ..
        } = pair;
        drop(dropped);
        lost(bench, &mut left).await;
        for wr in reads {
            left.assert_failed(wr, WorkError::Flushed);
        }
        left.assert_nothing_owed();
        left.retire();
    }
}

/// On a connection that is over, work is taken and flushed, again and again.
pub async fn work_posted_after_the_end_is_flushed(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = pair.source(At::Far, &[1; 64]).await;
            let mut posted = outstand(pair, &[segment(handle, 0, 64)]);
            pair.near.qp.close();
            posted.extend(everything(pair));
            pair.over().await;
            posted.extend(everything(pair));
            pair.near.qp.progress();
            pair.near.collect();
            for wr in posted {
                pair.near.assert_failed(wr, WorkError::Flushed);
            }
            let far = pair.far.receive_one();
            pair.far.qp.progress();
            pair.far.collect();
            pair.far.assert_failed(far, WorkError::Flushed);
        })
        .await;
}

/// On a connection that is over, memory comes back at once.
pub async fn memory_is_not_registered_after_the_end(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            pair.near.qp.close();
            pair.over().await;
            for at in [At::Near, At::Far] {
                let buffer = pair.at(at).buffer(4096);
                match pair.at(at).try_register(Memory::Sink(buffer)) {
                    Err(RegisterError::Closed(memory)) => assert_eq!(memory.len(), 4096),
                    other => panic!("{other:?}"),
                }
            }
        })
        .await;
}

/// Memory that nobody took back is dropped with its queue pair, whichever way that ends.
pub async fn registered_memory_is_dropped_with_its_owner(bench: &Bench<'_>) {
    for close in [true, false] {
        let mut pair = bench.pair().await;
        for peer in [&mut pair.near, &mut pair.far] {
            for _ in 0..10 {
                peer.sink(4096);
                peer.source(&[1; 4096]);
                peer.receive_one();
            }
        }
        if close {
            pair.finish().await;
        } else {
            pair.near.retire();
            pair.far.retire();
        }
    }
}

/// Drives one end, whose peer is gone, until it knows.
async fn lost(bench: &Bench<'_>, left: &mut Peer) {
    let noticed = std::future::poll_fn(|cx| {
        while left.qp.progress() {
            left.collect();
        }
        left.collect();
        if left.qp.closed().is_some() {
            return Poll::Ready(());
        }
        if left.qp.poll_ready(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    });
    bench.soon("the loss of the peer", noticed).await;
    left.collect();
}

/// Posts Receives, and Reads beyond what can be outstanding, none of which is done yet.
fn outstand(pair: &mut Pair<'_>, from: &[Segment]) -> Vec<WrId> {
    let mut posted: Vec<_> = (0..20).map(|_| pair.near.receive_one()).collect();
    let reads = pair.near.qp.limits().outstanding_reads + 3;
    posted.extend((0..reads).map(|_| pair.near.read(from)));
    posted
}

/// Posts work of every kind at the near end.
fn everything(pair: &mut Pair<'_>) -> [WrId; 5] {
    let handle = Handle(0x0102_0304);
    let near = &mut pair.near;
    [
        near.receive_one(),
        near.send(b"too late"),
        near.write(handle, 0, b"too late"),
        near.read(&[segment(handle, 0, 8)]),
        near.invalidate(handle),
    ]
}
