//! Registration, and invalidation by either end.

use crate::bench::Bench;
use crate::pair::{At, Pair, pattern, segment, whole};
use buffer::Pool;
use std::collections::BTreeSet;
use verbs::{Buffer, Completion, Gather, Handle, Invalidation, Memory, RegisterError, WorkError};

/// Handles of one connection are unlike each other and never 0, and do not follow one another.
pub async fn handles_are_all_different_and_never_zero(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let piece = pair.near.piece(b"shared");
            let mut handles = Vec::new();
            for _ in 0..200.min(pair.near.qp.limits().regions) {
                let memory = Memory::Source(Gather::from_iter([piece.clone()]));
                handles.push(pair.near.register(memory).0);
            }
            let different: BTreeSet<_> = handles.iter().copied().collect();
            assert_eq!(different.len(), handles.len());
            assert!(!different.contains(&0));
            let steps: BTreeSet<_> = handles
                .windows(2)
                .map(|two| two[1].wrapping_sub(two[0]))
                .collect();
            assert!(
                steps.len() > handles.len() / 2,
                "handles can be guessed from others: {handles:08x?}"
            );
        })
        .await;
}

/// A handle that is remembered from before does not open the same memory again.
pub async fn memory_registered_again_has_another_handle(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let mut seen = BTreeSet::new();
            let buffer = pair.near.buffer(4096);
            let mut memory = Memory::Sink(buffer);
            for _ in 0..100 {
                let handle = pair.near.register(memory);
                assert!(seen.insert(handle), "{handle:?} came twice");
                memory = pair.take_back(At::Near, handle).await;
            }
        })
        .await;
}

/// Both kinds of memory come back as they went, the length of a sink's data included.
pub async fn invalidation_returns_the_memory(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let bytes = pattern(1, 3001);
            let source = pair.near.source(&bytes);
            let mut buffer = pair.near.filled(&bytes);
            buffer.set_len(17);
            let capacity = buffer.capacity();
            let sink = pair.near.register(Memory::Sink(buffer));
            match pair.take_back(At::Near, source).await {
                Memory::Source(pieces) => assert_eq!(pieces.concat(), bytes),
                other => panic!("a source came back as {other:?}"),
            }
            match pair.take_back(At::Near, sink).await {
                Memory::Sink(mut buffer) => {
                    assert_eq!((buffer.len(), buffer.capacity()), (17, capacity));
                    assert_eq!(buffer.memory_mut()[..3001], bytes);
                }
                other => panic!("a sink came back as {other:?}"),
            }
        })
        .await;
}

/// From the completion on, the peer cannot reach the memory.
pub async fn invalidated_handle_is_invalid_at_once(bench: &Bench<'_>) {
    for access in ACCESSES {
        bench
            .both_ways(async |pair| {
                let handle = access.register(pair).await;
                pair.take_back(At::Far, handle).await;
                access.attempt(pair, handle);
                pair.offence().await;
            })
            .await;
    }
}

/// Memory that the peer is just reading comes back when nothing refers to it any more, be it
/// after the last byte or with the end of the connection.
pub async fn invalidation_waits_for_reads_being_served(bench: &Bench<'_>) {
    const LENGTH: usize = 8 << 20;
    bench
        .both_ways_to_the_end(async |mut pair| {
            let pool = Pool::new(LENGTH);
            let mut buffer = pool.take(LENGTH);
            buffer.set_len(LENGTH);
            let pieces = Gather::from_iter([buffer.freeze()]);
            let handle = pair.register(At::Far, Memory::Source(pieces)).await;
            pair.near.read(&[segment(handle, 0, LENGTH)]);
            // The request arrives, and a part of the response goes out.
            let receive = pair.far.receive_one();
            pair.near.send(b"it is on its way");
            pair.message(At::Far, receive).await;
            let invalidate = pair.far.invalidate(handle);
            match pair.completion(At::Far, invalidate).await {
                Completion::Invalidate { invalidated, .. } => {
                    drop(invalidated);
                    assert_eq!(pool.stats().out, 0, "something still refers to the memory");
                }
                Completion::Failed { .. } => assert!(pair.far.qp.closed().is_some()),
                other => panic!("{other:?}"),
            }
            pair.finish().await;
            assert_eq!(pool.stats().out, 0);
        })
        .await;
}

/// The Receive that takes in a Send with Invalidate names the handle and has its memory, with all
/// that was written before.
pub async fn invalidation_by_the_peer_returns_the_memory_with_its_message(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            if pair.far.qp.limits().remote_invalidation == Invalidation::None {
                return;
            }
            let bytes = pattern(1, 50_001);
            for length in [0, 3, 4096] {
                let sink = pair.sink(At::Far, bytes.len()).await;
                let source = pair.source(At::Far, b"to be read").await;
                let (first, second) = (pair.far.receive_one(), pair.far.receive_one());
                pair.near.write(sink, 0, &bytes);
                let send = pair.near.send_and(&pattern(2, length), Some(sink));
                pair.near.send_and(b"and this", Some(source));
                let (message, invalidated) = pair.message(At::Far, first).await;
                assert_eq!(*message, pattern(2, length));
                let invalidated = invalidated.expect("the Send invalidated a handle");
                assert_eq!(invalidated.handle, sink);
                assert!(whole(invalidated.memory)[..bytes.len()] == bytes);
                let (message, invalidated) = pair.message(At::Far, second).await;
                assert_eq!(&*message, b"and this");
                let invalidated = invalidated.expect("the Send invalidated a handle");
                assert_eq!(invalidated.handle, source);
                assert_eq!(whole(invalidated.memory), b"to be read");
                pair.success(At::Near, send).await;
            }
            pair.works().await;
        })
        .await;
}

/// A peer that takes away what it is still reading gets its message through or not; the memory
/// that comes with it is free in any case.
pub async fn peer_may_invalidate_what_it_is_reading(bench: &Bench<'_>) {
    const LENGTH: usize = 8 << 20;
    bench
        .both_ways_to_the_end(async |mut pair| {
            let pool = Pool::new(LENGTH);
            let mut buffer = pool.take(LENGTH);
            buffer.set_len(LENGTH);
            let pieces = Gather::from_iter([buffer.freeze()]);
            let handle = pair.register(At::Far, Memory::Source(pieces)).await;
            let possible = pair.far.qp.limits().remote_invalidation != Invalidation::None;
            let receive = pair.far.receive_one();
            pair.near.read(&[segment(handle, 0, LENGTH)]);
            pair.near
                .send_and(b"enough of it", possible.then_some(handle));
            match pair.completion(At::Far, receive).await {
                Completion::Receive { invalidated, .. } => {
                    assert_eq!(invalidated.is_some(), possible);
                    drop(invalidated);
                    let out = if possible { 0 } else { LENGTH };
                    assert_eq!(
                        pool.stats().out,
                        out,
                        "something still refers to the memory"
                    );
                }
                Completion::Failed { .. } => pair.offence().await,
                other => panic!("{other:?}"),
            }
            pair.finish().await;
            assert_eq!(pool.stats().out, 0);
        })
        .await;
}

/// A handle that the peer has invalidated itself cannot be used by it either.
pub async fn handle_invalidated_by_the_peer_is_invalid_at_once(bench: &Bench<'_>) {
    for access in ACCESSES {
        bench
            .both_ways(async |pair| {
                if pair.far.qp.limits().remote_invalidation == Invalidation::None {
                    return;
                }
                let handle = access.register(pair).await;
                let receive = pair.far.receive_one();
                pair.far.receive_one();
                pair.near.send_and(b"done with it", Some(handle));
                access.attempt(pair, handle);
                let (_, invalidated) = pair.message(At::Far, receive).await;
                assert_eq!(invalidated.map(|it| it.handle), Some(handle));
                pair.offence().await;
            })
            .await;
    }
}

/// A handle dies once.
pub async fn handle_invalidated_by_the_peer_cannot_be_invalidated_again(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            if pair.far.qp.limits().remote_invalidation == Invalidation::None {
                return;
            }
            let handle = pair.sink(At::Far, 64).await;
            let receive = pair.far.receive_one();
            let again = pair.far.receive_one();
            pair.near.send_and(b"once", Some(handle));
            pair.near.send_and(b"twice", Some(handle));
            pair.message(At::Far, receive).await;
            pair.offence_beyond_devices().await;
            pair.far.assert_failed(again, WorkError::Flushed);
        })
        .await;
}

/// The message of an invalid Send with Invalidate is not delivered.
pub async fn invalidation_by_the_peer_of_an_unknown_handle_ends_the_connection(bench: &Bench<'_>) {
    for other in [1, 0x8000_0000] {
        bench
            .both_ways(async |pair| {
                let handle = Handle(pair.sink(At::Far, 64).await.0 ^ other);
                invalid_invalidation(pair, handle).await;
            })
            .await;
    }
    bench
        .both_ways(async |pair| invalid_invalidation(pair, Handle(0)).await)
        .await;
}

/// The handle with the next index may be that of memory, or of a window, which nobody was told of.
pub async fn invalidation_by_the_peer_of_the_next_handle_ends_the_connection(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = Handle(pair.sink(At::Far, 64).await.0 ^ 0x100);
            invalid_invalidation(pair, handle).await;
        })
        .await;
}

/// A handle can be invalidated on its own connection only.
pub async fn invalidation_by_the_peer_of_a_handle_of_another_connection_ends_it(bench: &Bench<'_>) {
    let mut other = bench.pair().await;
    let foreign = other.sink(At::Far, 64).await;
    bench
        .both_ways(async |pair| invalid_invalidation(pair, foreign).await)
        .await;
    other.near.write(foreign, 0, b"still there");
    other.works().await;
    assert_eq!(
        other.contents(At::Far, foreign).await[..11],
        *b"still there"
    );
    other.finish().await;
}

async fn invalid_invalidation(pair: &mut Pair<'_>, handle: Handle) {
    let receive = pair.far.receive_one();
    pair.near.send_and(b"with a bad handle", Some(handle));
    pair.offence_beyond_devices().await;
    pair.far.assert_failed(receive, WorkError::Flushed);
}

/// To invalidate what is not there is a fault of our own, and ends the connection too.
pub async fn invalidation_of_an_unknown_handle_ends_the_connection(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            let handle = Handle(pair.near.sink(64).0 ^ 0x100);
            let receive = pair.near.receive_one();
            let invalidate = pair.near.invalidate(handle);
            pair.over().await;
            pair.near.assert_failed(invalidate, WorkError::NoSuchHandle);
            pair.near.assert_failed(receive, WorkError::Flushed);
            pair.near.assert_nothing_owed();
        })
        .await;
}

/// There is no region without bytes.
pub async fn empty_memory_is_not_registered(bench: &Bench<'_>) {
    bench
        .both_ways(async |pair| {
            for memory in [
                Memory::Sink(Buffer::default()),
                Memory::Source(Gather::new()),
            ] {
                match pair.near.try_register(memory) {
                    Err(RegisterError::Size(memory)) => assert!(memory.is_empty()),
                    other => panic!("{other:?}"),
                }
            }
            pair.works().await;
        })
        .await;
}

/// Memory beyond the limit comes back.
pub async fn memory_larger_than_the_limit_is_not_registered(bench: &Bench<'_>) {
    /// Largest region made of the same mebibyte again and again.
    const MOST: usize = 1 << 36;
    bench
        .both_ways(async |pair| {
            let most = pair.near.qp.limits().max_region;
            assert!(most <= MOST, "regions of {most} bytes are no limit");
            let piece = pair.near.piece(&vec![0; 1 << 20]);
            let mut pieces: Gather = std::iter::repeat_n(&piece, most >> 20).cloned().collect();
            pieces.push(piece.slice(..(most & 0xf_ffff) + 1));
            match pair.near.try_register(Memory::Source(pieces)) {
                Err(RegisterError::Size(memory)) => assert_eq!(memory.len(), most + 1),
                other => panic!("{:?}", other.map_err(|error| error.to_string())),
            }
            drop(piece);
            pair.works().await;
        })
        .await;
}

/// A way to reach memory.
#[derive(Clone, Copy)]
enum Access {
    Write,
    Read,
}

const ACCESSES: [Access; 2] = [Access::Write, Access::Read];

impl Access {
    /// Registers memory of the far end for this access.
    async fn register(self, pair: &mut Pair<'_>) -> Handle {
        match self {
            Self::Write => pair.sink(At::Far, 64).await,
            Self::Read => pair.source(At::Far, &[1; 64]).await,
        }
    }

    /// Lets the near end try it.
    fn attempt(self, pair: &mut Pair<'_>, handle: Handle) {
        match self {
            Self::Write => pair.near.write(handle, 0, &[2; 16]),
            Self::Read => pair.near.read(&[segment(handle, 0, 16)]),
        };
    }
}
