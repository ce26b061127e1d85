//! Limits of a queue pair are enforced as announced.

use crate::bench::Bench;
use crate::pair::At;
use verbs::{
    Gather, Handle, Memory, PostError, QpOptions, RegisterError, RemoteAddress, WorkRequest,
};

/// A queue or table that takes more than this is not bounded to speak of.
const MOST: usize = 1 << 20;

/// Receives beyond the limit come back; when one is used there is room for another.
pub async fn receives_beyond_the_limit_are_refused(bench: &Bench<'_>) {
    if !bench.posts_receives() {
        return crate::shared::receive_is_not_posted_beside_a_shared_queue(bench).await;
    }
    let options = QpOptions::default().with_receives(5);
    bench
        .both_ways_with(&options, async |pair| {
            let most = pair.near.qp.limits().receives;
            assert!((5..MOST).contains(&most), "{most} receives");
            let receives: Vec<_> = (0..most).map(|_| pair.near.receive_one()).collect();
            let buffer = pair.near.buffer(100);
            let capacity = buffer.capacity();
            let posted = pair.near.try_post(|wr| WorkRequest::Receive { wr, buffer });
            match posted.map_err(|error| *error) {
                Err(PostError::Full(WorkRequest::Receive { buffer, .. })) => {
                    assert_eq!(buffer.capacity(), capacity);
                }
                other => panic!("{other:?}"),
            }
            pair.far.send(b"room");
            pair.message(At::Near, receives[0]).await;
            pair.near.receive_one();
        })
        .await;
}

/// Other work beyond the limit comes back; when some has completed there is room for more.
pub async fn work_beyond_the_limit_is_refused(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let most = pair.near.qp.limits().sends;
            assert!((1..MOST).contains(&most), "{most} sends");
            let handle = pair.sink(At::Far, 64).await;
            let nothing = |wr| WorkRequest::Write {
                wr,
                source: Gather::new(),
                to: RemoteAddress { handle, offset: 0 },
            };
            let writes: Vec<_> = (0..most).map(|_| pair.near.post(nothing)).collect();
            let posted = pair.near.try_post(nothing).map_err(|error| *error);
            assert!(
                matches!(posted, Err(PostError::Full(WorkRequest::Write { .. }))),
                "{posted:?}"
            );
            pair.success(At::Near, writes[0]).await;
            pair.idle().await;
            let more = pair.near.post(nothing);
            pair.success(At::Near, more).await;
            pair.works().await;
        })
        .await;
}

/// Regions beyond the limit come back; when one is invalidated there is room for another.
pub async fn regions_beyond_the_limit_are_not_registered(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let most = pair.near.qp.limits().regions;
            assert!((1..MOST).contains(&most), "{most} regions");
            let piece = pair.near.piece(b"shared");
            let memory = || Memory::Source(Gather::from_iter([piece.clone()]));
            let handles: Vec<Handle> = (0..most).map(|_| pair.near.register(memory())).collect();
            match pair.near.try_register(memory()) {
                Err(RegisterError::Full(memory)) => assert_eq!(memory.len(), piece.len()),
                other => panic!("{other:?}"),
            }
            pair.take_back(At::Near, handles[most / 2]).await;
            pair.near.register(memory());
        })
        .await;
}

/// The limits of a connection follow from the options, and from what its provider can do.
pub async fn limits_asked_for_at_setup_are_not_exceeded(bench: &Bench<'_>) {
    let options = QpOptions::default()
        .with_receives(11)
        .with_inbound_reads(3)
        .with_outstanding_reads(2);
    let at_most = [bench.connector().limits(), bench.acceptor().limits()];
    bench
        .both_ways_with(&options, async |pair| {
            for peer in [&pair.near, &pair.far] {
                let limits = peer.qp.limits();
                assert!(limits.receives >= 11);
                assert!(limits.inbound_reads <= 3, "{limits:?}");
                assert!((1..=2).contains(&limits.outstanding_reads), "{limits:?}");
                assert!(at_most.iter().any(|most| limits.regions <= most.regions));
                assert!(at_most.iter().any(|most| limits.sends <= most.sends));
            }
            pair.works().await;
        })
        .await;
}

/// The one that reads keeps to what the one that is read from serves at a time.
pub async fn outstanding_reads_do_not_exceed_what_the_peer_serves(bench: &Bench<'_>) {
    let many = QpOptions::default()
        .with_outstanding_reads(16)
        .with_inbound_reads(16);
    let few = many.clone().with_inbound_reads(3);
    let mut pair = bench.pair_with(&many, &few).await;
    assert!((1..=3).contains(&pair.near.qp.limits().outstanding_reads));
    pair.works().await;
    pair.finish().await;
    let mut pair = bench.pair_with(&few, &many).await;
    assert!((1..=3).contains(&pair.far.qp.limits().outstanding_reads));
    pair.works().await;
    pair.finish().await;
}
