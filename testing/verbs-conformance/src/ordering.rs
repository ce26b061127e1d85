//! Ordering of messages and Writes.

use crate::bench::{Bench, both};
use crate::pair::{At, pattern, segment};
use std::time::Duration;
use verbs::{QpOptions, WorkRequest, WrId};

/// Messages of one end arrive in the order in which they were posted, while the other end sends
/// its own.
pub async fn sends_arrive_in_order(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            const COUNT: usize = 100;
            let message = |number: usize| pattern(number, number * 41 % 4096);
            let mut receives = Vec::new();
            for number in 0..COUNT {
                receives.push((At::Far, number, pair.far.receive_one()));
                receives.push((At::Near, COUNT - number, pair.near.receive_one()));
            }
            for number in 0..COUNT {
                pair.near.send(&message(number));
                pair.far.send(&message(COUNT - number));
            }
            for (at, number, wr) in receives {
                let (buffer, invalidated) = pair.message(at, wr).await;
                assert_eq!(&*buffer, message(number), "message {number} at {at:?}");
                assert!(invalidated.is_none());
            }
        })
        .await;
}

/// When a message has arrived, so has what was written before it (RFC 5040 §5.5).
pub async fn write_is_placed_before_the_send_behind_it(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            for round in 0..8 {
                let bytes = pattern(round, 70_001);
                let handle = pair.sink(At::Far, bytes.len()).await;
                let receive = pair.far.receive_one();
                let write = pair.near.write(handle, 0, &bytes);
                let send = pair.near.send(b"look");
                pair.message(At::Far, receive).await;
                let written = pair.contents(At::Far, handle).await;
                assert_eq!(written[..bytes.len()], bytes);
                pair.success(At::Near, write).await;
                pair.success(At::Near, send).await;
            }
        })
        .await;
}

/// The same for many Writes into many regions.
pub async fn many_writes_are_placed_before_the_send_behind_them(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let mut handles = Vec::new();
            for _ in 0..16 {
                handles.push(pair.sink(At::Far, 8192).await);
            }
            let receive = pair.far.receive_one();
            for part in (0..4).rev() {
                for (number, handle) in handles.iter().enumerate() {
                    let bytes = pattern(number * 4 + part, 2048);
                    pair.near.write(*handle, part as u64 * 2048, &bytes);
                }
            }
            pair.near.send(b"look");
            pair.message(At::Far, receive).await;
            for (number, handle) in handles.into_iter().enumerate() {
                let written = pair.contents(At::Far, handle).await;
                for part in 0..4 {
                    let at = part * 2048;
                    assert_eq!(written[at..at + 2048], pattern(number * 4 + part, 2048));
                }
            }
        })
        .await;
}

/// A Send goes out though Reads posted before it wait for their turn.
pub async fn send_does_not_wait_behind_queued_reads(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let bytes = pattern(1, 256 << 10);
            let handle = pair.source(At::Far, &bytes).await;
            let most = pair.near.qp.limits().outstanding_reads;
            let from = [segment(handle, 0, bytes.len())];
            let reads: Vec<_> = (0..2 * most + 1).map(|_| pair.near.read(&from)).collect();
            let receive = pair.far.receive_one();
            pair.near.send(b"me first");
            pair.message(At::Far, receive).await;
            pair.near.collect();
            assert!(!pair.near.is_done(reads[2 * most]));
            for read in reads {
                let sink = pair.sink_of(At::Near, read).await;
                assert!(*sink == *bytes);
            }
        })
        .await;
}

/// Receives handed over when the connection is made take in the first messages.
pub async fn receives_given_at_setup_are_used_first(bench: &Bench<'_>) {
    let receives = |first: u64| -> Vec<WorkRequest> {
        (first..first + 3)
            .map(|wr| WorkRequest::Receive {
                wr: WrId(wr),
                buffer: verbs::Buffer::with_capacity(64),
            })
            .collect()
    };
    let options = QpOptions::default();
    let mut listener = bench.listen().await;
    let addr = listener.local_addr();
    let connecting = bench
        .connector()
        .connect(addr, &options, &[], receives(1000));
    let accepting = async {
        let mut incoming = listener.accept().await?;
        incoming.request(Duration::from_secs(10)).await?;
        incoming.accept(&options, &[], receives(2000)).await
    };
    let (connected, accepted) = bench
        .soon("a connection", both(connecting, accepting))
        .await;
    let mut pair = bench.pair_of(connected.unwrap().qp, accepted.unwrap());
    pair.near.expect_receives(1000..1003);
    pair.far.expect_receives(2000..2003);
    for number in 0..3 {
        pair.near.send(&[number]);
        pair.far.send(&[number, number]);
    }
    for (at, first, length) in [(At::Far, 2000, 1), (At::Near, 1000, 2)] {
        for number in 0..3u8 {
            let wr = WrId(first + u64::from(number));
            let (message, _) = pair.message(at, wr).await;
            assert_eq!(*message, vec![number; length]);
        }
    }
    pair.finish().await;
}
