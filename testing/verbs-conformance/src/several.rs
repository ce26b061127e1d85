//! Several handles that one Send invalidates.
//!
//! A provider without it ([`Limits::invalidations`](verbs::Limits::invalidations) is 1) refuses such a Send, which each
//! test checks instead.

use crate::bench::Bench;
use crate::pair::{At, Pair, pattern, segment, whole};
use verbs::{Gather, Handle, Handles, Invalidation, PostError, WorkError, WorkRequest, WrId};

/// Bytes of each region.
const LENGTH: usize = 4096;

/// The Receive names all handles in the order of the Send, and has the memory of each, with all that was written before.
pub async fn handles_of_one_send_come_back_with_its_message(bench: &Bench<'_>) {
    for length in [0, 4096] {
        bench
            .both_ways(async |pair| {
                let Some(most) = most(pair).await else {
                    return;
                };
                for count in [2, most] {
                    let handles = regions(pair, count).await;
                    let receive = pair.far.receive_one();
                    for (seed, &handle) in handles.iter().enumerate().skip(1).step_by(2) {
                        pair.near.write(handle, 0, &pattern(seed, LENGTH));
                    }
                    let all = Handles::new(handles.iter().copied());
                    let send = pair.near.send_and_all(&pattern(99, length), all);
                    let (message, invalidated) = pair.message(At::Far, receive).await;
                    assert_eq!(*message, pattern(99, length));
                    let first = invalidated.expect("the Send invalidated handles");
                    let also = first.also.into_iter().map(|it| (it.handle, it.memory));
                    let all = std::iter::once((first.handle, first.memory)).chain(also);
                    let all: Vec<_> = all.collect();
                    let found: Vec<Handle> = all.iter().map(|(handle, _)| *handle).collect();
                    assert_eq!(found, handles);
                    for (seed, (_, memory)) in all.into_iter().enumerate() {
                        assert!(whole(memory)[..LENGTH] == pattern(seed, LENGTH));
                    }
                    pair.success(At::Near, send).await;
                }
                pair.works().await;
            })
            .await;
    }
}

/// Each of them is out of the peer's reach.
pub async fn each_handle_of_one_send_is_invalid_at_once(bench: &Bench<'_>) {
    for attempt in 0..4 {
        bench
            .both_ways(async |pair| {
                if most(pair).await.is_none() {
                    return;
                }
                let handles = regions(pair, 4).await;
                let receive = pair.far.receive_one();
                pair.far.receive_one();
                let all = Handles::new(handles.iter().copied());
                pair.near.send_and_all(b"done with all", all);
                match attempt % 2 {
                    0 => pair.near.read(&[segment(handles[attempt], 0, 1)]),
                    _ => pair.near.write(handles[attempt], 0, b"x"),
                };
                pair.message(At::Far, receive).await;
                pair.offence().await;
            })
            .await;
    }
}

/// One that is not there, wherever it is in the list, ends the connection, and the message is not delivered.
pub async fn unknown_handle_among_several_ends_the_connection(bench: &Bench<'_>) {
    for at in 0..3 {
        bench
            .both_ways(async |pair| {
                if most(pair).await.is_none() {
                    return;
                }
                let mut handles = regions(pair, 2).await;
                handles.insert(at, Handle(handles[0].0 ^ 1));
                refused(pair, &handles).await;
            })
            .await;
    }
}

/// A handle dies once, also by one Send.
pub async fn handle_named_twice_ends_the_connection(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            if most(pair).await.is_none() {
                return;
            }
            let handles = regions(pair, 2).await;
            refused(pair, &[handles[0], handles[1], handles[0]]).await;
        })
        .await;
}

/// A Send with more handles than the limit is not taken, and its work comes back.
pub async fn more_handles_than_the_limit_are_not_accepted(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let most = pair.near.qp.limits().invalidations;
            not_accepted(pair, most + 1);
            pair.works().await;
        })
        .await;
}

fn not_accepted(pair: &mut Pair<'_>, count: usize) {
    let count = u32::try_from(count).expect("it is a small limit");
    let all = Handles::new((1..=count).map(Handle)).expect("at least one");
    let send = WorkRequest::Send {
        wr: WrId(1 << 40),
        buffer: pair.near.filled(b"with too many"),
        rest: Gather::new(),
        invalidate: Some(all.clone()),
    };
    match pair.near.qp.post(send) {
        Err(PostError::Invalid(WorkRequest::Send { invalidate, .. })) => {
            assert_eq!(invalidate, Some(all));
        }
        other => panic!("{other:?}"),
    }
}

/// The largest number of handles; `None` if it is one, and two are refused.
async fn most(pair: &mut Pair<'_>) -> Option<usize> {
    let limits = pair.far.qp.limits();
    let able = limits.remote_invalidation == Invalidation::Region;
    if able && limits.invalidations > 1 {
        return Some(limits.invalidations.min(64));
    }
    not_accepted(pair, 2);
    None
}

/// Registers so many regions of the far end, sources and sinks by turns.
async fn regions(pair: &mut Pair<'_>, count: usize) -> Vec<Handle> {
    let mut handles = Vec::new();
    for seed in 0..count {
        handles.push(match seed % 2 {
            0 => pair.source(At::Far, &pattern(seed, LENGTH)).await,
            _ => pair.sink(At::Far, LENGTH).await,
        });
    }
    handles
}

async fn refused(pair: &mut Pair<'_>, handles: &[Handle]) {
    let receive = pair.far.receive_one();
    let all = Handles::new(handles.iter().copied());
    pair.near.send_and_all(b"with a bad handle", all);
    pair.offence_beyond_devices().await;
    pair.far.assert_failed(receive, WorkError::Flushed);
}
