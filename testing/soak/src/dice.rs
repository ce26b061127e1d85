//! Choices from a seed.

use std::time::Duration;
use verbs_sim::Rng;

/// Choices, one after the other; the same seed makes the same ones.
#[derive(Clone, Debug)]
pub struct Dice(Rng);

impl Dice {
    /// The choices of a seed, for one purpose: those of another are no likeness of them.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(Rng::stream(seed, purpose))
    }

    /// More choices, which do not depend on how many are made here later.
    pub fn split(&mut self) -> Self {
        Self(Rng::new(self.0.next()))
    }

    /// A number, any.
    pub fn any(&mut self) -> u64 {
        self.0.next()
    }

    /// Heads or tails.
    pub fn coin(&mut self) -> bool {
        self.0.coin()
    }

    /// One of several.
    pub fn of<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.below(several.len())]
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.below(bound as u64)).expect("less than the bound")
    }

    /// A number within `from..=to`.
    pub fn within(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }

    /// True about once in so many times; never if 0.
    pub fn once_in(&mut self, many: u32) -> bool {
        many > 0 && self.below(many as usize) == 0
    }

    /// A size up to `most`: each order of magnitude is as likely as any other.
    pub fn magnitude(&mut self, most: usize) -> usize {
        let bits = most.max(1).ilog2() as usize + 1;
        let most = most.min((1 << self.within(0, bits)) - 1);
        self.within(0, most)
    }

    /// A time up to so many milliseconds, with the same.
    pub fn milliseconds(&mut self, most: usize) -> Duration {
        Duration::from_millis(self.magnitude(most) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_are_within_their_bound_and_reach_it() {
        let mut dice = Dice::new(1, 1);
        let drawn: Vec<_> = (0..4000).map(|_| dice.magnitude(40)).collect();
        assert_eq!(drawn.iter().max(), Some(&40));
        assert_eq!(drawn.iter().min(), Some(&0));
        let small = drawn.iter().filter(|&&size| size < 8).count();
        assert!((2000..3600).contains(&small), "{small} of 4000 are small");
    }
}
