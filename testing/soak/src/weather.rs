//! What goes wrong below the stack, and how little room there is.

use crate::dice::Dice;
use std::num::NonZeroU64;
use std::time::Duration;
use verbs::{Invalidation, Limits, WorkError};
use verbs_sim::{Cut, EndOptions, Setup, Stall, Way};

/// How likely it is that something goes wrong with a connection.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// The longest time that a message is on its way, in milliseconds.
    pub latency: usize,
    /// One end in so many is cut off somewhere, at any byte.
    pub cuts: u32,
    /// One end in so many stands still for some time, or for ever, in one direction or both,
    /// perhaps several times.
    pub stalls: u32,
    /// At one end in so many a piece of work fails.
    pub failures: u32,
    /// One connection in so many is not made as it should.
    pub setups: u32,
    /// One end in so many refuses posts that there is room for.
    pub posts: u32,
    /// One end in so many refuses registrations.
    pub registrations: u32,
}

/// Nothing goes wrong, and all takes some time.
pub(crate) const CALM: Weather = Weather {
    latency: 5,
    cuts: 0,
    stalls: 0,
    failures: 0,
    setups: 0,
    posts: 0,
    registrations: 0,
};

/// How much there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// As usual.
    Usual,
    /// From what is just enough to what is usual.
    Tiny,
}

/// The longest time that an end stands still, if not for ever, in milliseconds.
const STALL: usize = 4000;

impl Weather {
    /// What a provider is said to be able to do.
    pub(crate) fn limits(sizes: Sizes, receives: &[usize], dice: &mut Dice) -> Limits {
        let mut limits = EndOptions::default().limits;
        limits.remote_invalidation = dice.of(&[
            Invalidation::Region,
            Invalidation::Region,
            Invalidation::None,
        ]);
        if sizes == Sizes::Tiny {
            limits.sends = dice.of(&[4, 5, 8, 20, 1024]);
            limits.outstanding_reads = dice.of(&[1, 2, 5, 32]);
            limits.inbound_reads = dice.of(&[1, 2, 5, 32]);
            // Enough for the largest call: five arguments and five results.
            limits.regions = dice.of(&[10, 11, 25, 4096]);
            limits.max_region = dice.of(&[600_000, 1 << 30]);
        }
        if !receives.is_empty() {
            limits.receives = dice.of(receives);
        }
        limits
    }

    /// One end of a connection of such a provider.
    pub(crate) fn end(&self, limits: &Limits, sizes: Sizes, dice: &mut Dice) -> EndOptions {
        let mut end = EndOptions {
            limits: limits.clone(),
            ..EndOptions::default()
        };
        if sizes == Sizes::Tiny {
            end.window = dice.of(&[1, 2000, 100_000, usize::MAX]);
        }
        let faults = &mut end.faults;
        let least = dice.milliseconds(self.latency);
        faults.latency = least..=least + dice.milliseconds(self.latency);
        if dice.once_in(self.cuts) {
            faults.cut = Some(match dice.coin() {
                true => Cut::Messages(dice.magnitude(60) as u64),
                false => Cut::Bytes(dice.magnitude(400_000) as u64),
            });
        }
        if dice.once_in(self.stalls) {
            let mut after = 0;
            faults.stalls = (0..dice.within(1, 3))
                .map(|_| {
                    after += dice.magnitude(60) as u64;
                    Stall {
                        after,
                        way: dice.of(&[Way::In, Way::Out, Way::Both]),
                        lasting: match dice.once_in(8) {
                            true => Duration::MAX,
                            false => dice.milliseconds(STALL),
                        },
                    }
                })
                .collect();
        }
        if dice.once_in(self.failures) {
            let error = dice.of(&[WorkError::RemoteAccess, WorkError::NoSuchHandle]);
            faults.fail_work = Some((dice.magnitude(60) as u64, error));
        }
        if dice.once_in(self.setups) {
            faults.setup = dice.of(&[Setup::Refused, Setup::RequestLost, Setup::AnswerLost]);
        }
        let one_in = |dice: &mut Dice| NonZeroU64::new(dice.within(2, 12) as u64);
        if dice.once_in(self.posts) {
            faults.refuse_post = one_in(dice);
        }
        if dice.once_in(self.registrations) {
            faults.refuse_registration = one_in(dice);
        }
        end
    }
}
