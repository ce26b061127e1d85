//! Pseudo-random numbers from a seed.

use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and good enough to shuffle events.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for each `number` under the same seed.
    pub fn stream(seed: u64, number: u64) -> Self {
        let mut rng = Self(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        rng.next();
        rng
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number under `bound`, which is not 0. The bias is below 2^-32 for bounds of 32 bits.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Heads or tails.
    pub fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// Upper half of the next number.
    pub fn half(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).expect("32 bits are left after the shift")
    }

    /// A time from `least` to `most`, both included.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_nanos();
        let span = u64::try_from(span).unwrap_or(u64::MAX - 1);
        if span == 0 {
            return least;
        }
        least + Duration::from_nanos(self.below(span + 1))
    }
}
