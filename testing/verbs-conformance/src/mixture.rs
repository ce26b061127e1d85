//! Random work of all kinds in both directions at once.

use crate::bench::Bench;
use crate::pair::{At, Pair, pattern, segment};
use verbs::{Handle, Invalidation, WrId};

const SIZE: usize = 100_000;
const ROUNDS: usize = 30;

/// Handles that the peer may invalidate in a round, which are announced before it.
const SPARE: usize = 8;

/// Acts that the peer of one end may do, and their expected results.
struct Ground {
    /// Memory of the other end that this end writes, and what should be in it.
    sink: Handle,
    written: Vec<u8>,
    /// Memory of the other end that this end reads, and what is in it.
    source: Handle,
    bytes: Vec<u8>,
    /// Small memory of the other end, for this end to invalidate.
    spare: Vec<Handle>,
}

/// Writes, Reads, messages, invalidations by both ends, of random sizes and in random order, in
/// both directions at a time.
pub async fn everything_at_once_in_both_directions(bench: &Bench<'_>) {
    let mut dice = Dice(42);
    for _ in 0..2 {
        let mut pair = bench.pair().await;
        let mut grounds = [
            ground(&mut pair, At::Far).await,
            ground(&mut pair, At::Near).await,
        ];
        for _ in 0..ROUNDS {
            round(&mut pair, &mut grounds, &mut dice).await;
        }
        pair.works().await;
        for (at, ground) in [At::Far, At::Near].into_iter().zip(grounds) {
            let written = pair.contents(at, ground.sink).await;
            assert!(written[..SIZE] == ground.written);
        }
        pair.finish().await;
    }
}

async fn ground(pair: &mut Pair<'_>, victim: At) -> Ground {
    let bytes = pattern(77, SIZE);
    Ground {
        sink: pair.sink(victim, SIZE).await,
        written: vec![0; SIZE],
        source: pair.source(victim, &bytes).await,
        spare: Vec::new(),
        bytes,
    }
}

/// Work that a round has posted, to be compared with its completions.
#[derive(Default)]
struct Expected {
    reads: Vec<(At, WrId, Vec<u8>)>,
    messages: Vec<(At, WrId, Vec<u8>, Option<Handle>)>,
}

async fn round(pair: &mut Pair<'_>, grounds: &mut [Ground; 2], dice: &mut Dice) {
    let mut expected = Expected::default();
    for (victim, ground) in [At::Far, At::Near].into_iter().zip(&mut *grounds) {
        if pair.at(victim).qp.limits().remote_invalidation == Invalidation::None {
            continue;
        }
        while ground.spare.len() < SPARE {
            let size = 1 + dice.below(SIZE);
            ground.spare.push(pair.sink(victim, size).await);
        }
    }
    for _ in 0..dice.below(40) {
        let near = dice.below(2) == 0;
        let (actor, victim) = if near {
            (At::Near, At::Far)
        } else {
            (At::Far, At::Near)
        };
        let ground = &mut grounds[usize::from(!near)];
        act(pair, actor, victim, ground, dice, &mut expected);
        if dice.below(8) == 0 {
            pair.near.qp.progress();
        }
        if dice.below(8) == 0 {
            pair.far.qp.progress();
        }
    }
    for (at, wr, bytes) in expected.reads {
        let sink = pair.sink_of(at, wr).await;
        assert!(*sink == *bytes);
    }
    for (at, wr, bytes, handle) in expected.messages {
        let (message, invalidated) = pair.message(at, wr).await;
        assert!(*message == *bytes);
        assert_eq!(invalidated.map(|invalidated| invalidated.handle), handle);
    }
    pair.idle().await;
}

fn act(
    pair: &mut Pair<'_>,
    actor: At,
    victim: At,
    ground: &mut Ground,
    dice: &mut Dice,
    expected: &mut Expected,
) {
    let length = 1 << dice.below(16);
    let length = length + dice.below(length);
    let at = dice.below(SIZE - length);
    match dice.below(5) {
        0 => {
            let bytes = pattern(dice.below(1000), length);
            ground.written[at..at + length].copy_from_slice(&bytes);
            pair.at(actor).write(ground.sink, at as u64, &bytes);
        }
        1 => {
            let half = length / 2;
            let from = [
                segment(ground.source, at as u64, half),
                segment(ground.source, (at + half) as u64, length - half),
            ];
            let wr = pair.at(actor).read(&from);
            let bytes = ground.bytes[at..at + length].to_vec();
            expected.reads.push((actor, wr, bytes));
        }
        2 | 3 => {
            let bytes = pattern(at, length % 4097);
            let handle = (dice.below(2) == 0).then(|| ground.spare.pop()).flatten();
            let wr = pair.at(victim).receive_one();
            pair.at(actor).send_and(&bytes, handle);
            expected.messages.push((victim, wr, bytes, handle));
        }
        _ => {
            let handle = pair.at(actor).source(&[1, 2, 3]);
            pair.at(actor).invalidate(handle);
        }
    }
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound.max(1)
    }
}
