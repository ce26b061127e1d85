//! Owners that wait for a lock: in the order in which they came, each called once the lock is free.

use super::range::{LockKind, Range};
use crate::limits::{MAX_WAITERS_PER_FILE, RESERVATION, WAITER_LIFE};
use std::collections::VecDeque;
use std::time::Instant;

/// An owner that waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait<O> {
    /// The owner.
    pub owner: O,
    /// The bytes.
    pub range: Range,
    /// The kind.
    pub kind: LockKind,
    /// When it last asked.
    pub(super) asked: Instant,
    /// When it was told that the lock is free.
    pub(super) told: Option<Instant>,
}

impl<O: Copy + Eq> Wait<O> {
    /// Returns whether a lock of this owner would be in the way of another.
    fn blocks(&self, owner: O, range: Range, kind: LockKind) -> bool {
        self.owner != owner && self.range.overlaps(range) && self.kind.conflicts(kind)
    }
}

/// Owners that wait for locks of one file, the first first.
#[derive(Debug)]
pub(super) struct Waiters<O>(VecDeque<Wait<O>>);

impl<O> Default for Waiters<O> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<O: Copy + Eq> Waiters<O> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Enters an owner, or notes that it asked again: it keeps its place. Returns whether it is new. An owner for
    /// which there is no place polls.
    pub(super) fn enter(&mut self, now: Instant, owner: O, range: Range, kind: LockKind) -> bool {
        let same = |w: &&mut Wait<O>| w.owner == owner && w.range == range && w.kind == kind;
        if let Some(waiter) = self.0.iter_mut().find(same) {
            waiter.asked = now;
            waiter.told = None;
            return false;
        }
        if self.0.len() >= MAX_WAITERS_PER_FILE {
            return false;
        }
        self.0.push_back(Wait {
            owner,
            range,
            kind,
            asked: now,
            told: None,
        });
        true
    }

    /// Removes waiters, and reports the owner of each.
    pub(super) fn remove(
        &mut self,
        mut goes: impl FnMut(&Wait<O>) -> bool,
        gone: &mut impl FnMut(O),
    ) {
        self.0.retain(|waiter| {
            let goes = goes(waiter);
            if goes {
                gone(waiter.owner);
            }
            !goes
        });
    }

    /// Removes those that have not asked for long: their clients wait no more (RFC 8881 §9.6 has clients poll).
    pub(super) fn remove_old(&mut self, now: Instant, gone: &mut impl FnMut(O)) {
        self.remove(
            |waiter| now.saturating_duration_since(waiter.asked) > WAITER_LIFE,
            gone,
        );
    }

    /// Returns the waiter for whom a lock is reserved that another owner also wants to wait for: it was told that the
    /// lock is free, and has a moment to come (RFC 8881 §9.6), or waits for longer.
    pub(super) fn reservation(
        &self,
        now: Instant,
        owner: O,
        range: Range,
        kind: LockKind,
    ) -> Option<&Wait<O>> {
        self.0
            .iter()
            .take_while(|waiter| waiter.owner != owner || !waiter.range.overlaps(range))
            .find(|waiter| {
                let is_fresh = |told| now.saturating_duration_since(told) < RESERVATION;
                waiter.blocks(owner, range, kind) && waiter.told.is_some_and(is_fresh)
            })
    }

    /// Tells those that now could have their lock, in their order, and reports each: `free` says whether nothing that
    /// is held is in the way. A waiter in whose way there is one that was told before is not told.
    pub(super) fn tell(
        &mut self,
        now: Instant,
        free: impl Fn(&Wait<O>) -> bool,
        told: &mut impl FnMut(O),
    ) {
        for at in 0..self.0.len() {
            let waiter = self.0[at];
            let is_behind_one = |w: &Wait<O>| {
                w.blocks(waiter.owner, waiter.range, waiter.kind)
                    && (w.told)
                        .is_some_and(|told| now.saturating_duration_since(told) < RESERVATION)
            };
            if waiter.told.is_none() && free(&waiter) && !self.0.iter().take(at).any(is_behind_one)
            {
                self.0[at].told = Some(now);
                told(waiter.owner);
            }
        }
    }
}
