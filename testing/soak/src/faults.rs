//! Faults and limits of the provider, drawn for each connection.

use crate::dice::Dice;
use std::num::NonZeroU64;
use std::time::Duration;
use verbs::{Invalidation, Limits, WorkError};
use verbs_sim::{Cut, EndOptions, Setup, Stall, Way};

/// How likely each fault of a connection is.
#[derive(Clone, Copy, Debug)]
pub struct FaultRates {
    /// Longest latency of a message in milliseconds.
    pub latency: usize,
    /// One end in this many is cut off, at any byte.
    pub cuts: u32,
    /// One end in this many stalls for some time, or forever, in one direction or both, up to three
    /// times.
    pub stalls: u32,
    /// At one end in this many a work request fails.
    pub failures: u32,
    /// Setup of one connection in this many fails.
    pub setups: u32,
    /// One end in this many refuses posts that there is room for.
    pub posts: u32,
    /// One end in this many refuses registrations.
    pub registrations: u32,
}

/// Latency, but no faults.
pub(crate) const NO_FAULTS: FaultRates = FaultRates {
    latency: 5,
    cuts: 0,
    stalls: 0,
    failures: 0,
    setups: 0,
    posts: 0,
    registrations: 0,
};

/// Limits of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Those of the simulation by default.
    Usual,
    /// Drawn between what is just enough and the default.
    Tiny,
}

/// Longest stall in milliseconds that is not forever.
const STALL: usize = 4000;

impl FaultRates {
    /// Draws the limits of a provider.
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

    /// Draws the options of one end of a connection of such a provider.
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
