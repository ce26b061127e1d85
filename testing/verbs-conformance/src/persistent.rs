//! Memory that stays registered from one use to the next.

use crate::bench::Bench;
use crate::pair::{At, Pair, pattern, segment};
use verbs::{Access, Handle, Invalidation, Memory, NotPersistent, WorkError};

/// Bytes of the region in most tests.
const LENGTH: usize = 4096;

/// Data that is copied in between two Reads is in the second one.
pub async fn peer_reads_what_was_copied_in_last(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = persistent(pair, Access::Read).await;
            let mut bytes = pattern(1, LENGTH);
            assert_eq!(pair.far.qp.copy_in(handle, 0, &bytes), Ok(()));
            check_read(pair, handle, &bytes).await;
            assert_eq!(pair.far.qp.copy_in(handle, 1001, b"something else"), Ok(()));
            bytes[1001..1015].copy_from_slice(b"something else");
            check_read(pair, handle, &bytes).await;
            check_read(pair, handle, &bytes).await;
        })
        .await;
}

/// A Write is there when the Send behind it is, and the region is open for the next.
pub async fn what_the_peer_wrote_can_be_copied_out(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = persistent(pair, Access::Write).await;
            let mut expected = vec![0; LENGTH];
            assert_eq!(pair.far.qp.copy_in(handle, 0, &expected), Ok(()));
            for (seed, at, length) in [(1, 0, LENGTH), (2, 17, 1001), (3, LENGTH - 1, 1)] {
                let bytes = pattern(seed, length);
                expected[at..at + length].copy_from_slice(&bytes);
                let receive = pair.far.receive_one();
                pair.near.write(handle, at as u64, &bytes);
                pair.near.send(b"written");
                pair.message(At::Far, receive).await;
                let mut found = vec![0xaa; LENGTH - 5];
                assert_eq!(pair.far.qp.copy_out(handle, 5, &mut found), Ok(()));
                assert!(found == expected[5..]);
            }
        })
        .await;
}

/// Memory to be read cannot be written, and the other way round.
pub async fn persistent_memory_has_one_access_right_only(bench: &Bench<'_>) {
    for access in [Access::Read, Access::Write] {
        bench
            .both_ways(async |pair| {
                let handle = persistent(pair, access).await;
                match access {
                    Access::Read => pair.near.write(handle, 0, b"mine"),
                    Access::Write => pair.near.read(&[segment(handle, 0, 4)]),
                };
                pair.offence().await;
            })
            .await;
    }
}

/// The bounds are those of the whole buffer.
pub async fn peer_cannot_reach_past_the_end_of_persistent_memory(bench: &Bench<'_>) {
    for access in [Access::Read, Access::Write] {
        for offset in [1, LENGTH as u64, u64::MAX] {
            bench
                .both_ways(async |pair| {
                    let handle = persistent(pair, access).await;
                    match access {
                        Access::Read => pair.near.read(&[segment(handle, offset, LENGTH)]),
                        Access::Write => pair.near.write(handle, offset, &[1; LENGTH]),
                    };
                    pair.offence().await;
                })
                .await;
        }
    }
}

/// A Send with Invalidate that names it ends the connection, and its message is not delivered.
pub async fn peer_cannot_invalidate_persistent_memory(bench: &Bench<'_>) {
    for access in [Access::Read, Access::Write] {
        bench
            .both_ways(async |pair| {
                if pair.far.qp.limits().remote_invalidation == Invalidation::None {
                    return;
                }
                let handle = persistent(pair, access).await;
                let receive = pair.far.receive_one();
                pair.near.send_and(b"done with it", Some(handle));
                pair.offence_beyond_devices().await;
                pair.far.assert_failed(receive, WorkError::Flushed);
            })
            .await;
    }
}

/// It comes back as it went, and its handle is dead.
pub async fn its_owner_can_invalidate_persistent_memory(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = persistent(pair, Access::Read).await;
            let bytes = pattern(1, LENGTH);
            assert_eq!(pair.far.qp.copy_in(handle, 0, &bytes), Ok(()));
            match pair.take_back(At::Far, handle).await {
                Memory::Persistent(Access::Read, buffer) => assert!(buffer.memory() == bytes),
                other => panic!("{other:?} came back"),
            }
            let gone = Err(NotPersistent(handle));
            assert_eq!(pair.far.qp.copy_in(handle, 0, b"x"), gone);
            pair.near.read(&[segment(handle, 0, 1)]);
            pair.offence().await;
        })
        .await;
}

/// Neither other memory nor what is past the end can be copied.
pub async fn other_memory_cannot_be_copied_in_or_out(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = persistent(pair, Access::Write).await;
            let (sink, source) = (pair.far.sink(64), pair.far.source(b"source"));
            let mut one = [0];
            for (of, at) in [
                (sink, 0),
                (source, 0),
                (handle, LENGTH),
                (handle, usize::MAX),
            ] {
                let refused = Err(NotPersistent(of));
                assert_eq!(pair.far.qp.copy_in(of, at, &one), refused);
                assert_eq!(pair.far.qp.copy_out(of, at, &mut one), refused);
            }
            assert_eq!(pair.far.qp.copy_out(handle, LENGTH - 1, &mut one), Ok(()));
            pair.works().await;
        })
        .await;
}

/// Registers memory of the far end that stays.
async fn persistent(pair: &mut Pair<'_>, access: Access) -> Handle {
    let buffer = pair.far.buffer(LENGTH);
    assert_eq!(buffer.capacity(), LENGTH, "bounds are those of the buffer");
    pair.register(At::Far, Memory::Persistent(access, buffer))
        .await
}

/// Reads the whole region from the near end.
async fn check_read(pair: &mut Pair<'_>, handle: Handle, expected: &[u8]) {
    let read = pair.near.read(&[segment(handle, 0, LENGTH)]);
    let sink = pair.sink_of(At::Near, read).await;
    assert!(*sink == *expected);
}
