//! Owners that wait for a lock: in the order in which they came, each called once the lock is free.

use super::range::{LockKind, Range};
use super::table::Lock;
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
    /// The open through which it asked.
    pub(super) open: u32,
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
    pub(super) fn enter(
        &mut self,
        now: Instant,
        (owner, open): (O, u32),
        range: Range,
        kind: LockKind,
    ) -> bool {
        let same = |w: &&mut Wait<O>| w.owner == owner && w.range == range && w.kind == kind;
        if let Some(waiter) = self.0.iter_mut().find(same) {
            waiter.asked = now;
            waiter.told = None;
            waiter.open = open;
            return false;
        }
        if self.0.len() >= MAX_WAITERS_PER_FILE {
            return false;
        }
        self.0.push_back(Wait {
            owner,
            range,
            kind,
            open,
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

    /// Returns for each waiter whether it was not told so far, and nothing that is held is in its way. Locks are in the order of their
    /// first bytes.
    ///
    /// All are decided in one pass over the locks: a table may have thousands of both.
    pub(super) fn free(&self, held: &[Lock<O>]) -> Vec<bool> {
        let mut free: Vec<bool> = self.0.iter().map(|waiter| waiter.told.is_none()).collect();
        let mut asked: Vec<usize> = (0..free.len()).filter(|&at| free[at]).collect();
        asked.sort_unstable_by_key(|&at| self.0[at].range.last());
        let (mut any, mut exclusive) = (Furthest::default(), Furthest::default());
        let mut held = held.iter().peekable();
        for at in asked {
            let waiter = &self.0[at];
            while let Some(lock) = held.next_if(|lock| lock.range.first() <= waiter.range.last()) {
                any.add(lock);
                if lock.kind == LockKind::Exclusive {
                    exclusive.add(lock);
                }
            }
            let in_the_way = match waiter.kind {
                LockKind::Shared => &exclusive,
                LockKind::Exclusive => &any,
            };
            let last = in_the_way.last_of_others(waiter.owner);
            free[at] = last.is_none_or(|last| last < waiter.range.first());
        }
        free
    }

    /// Tells those that are [free](Self::free), in their order, and reports each. A waiter in whose way there is one that was told before is
    /// not told.
    pub(super) fn tell(&mut self, now: Instant, free: &[bool], told: &mut impl FnMut(O)) {
        let mut expected: Vec<Wait<O>> = Vec::new();
        for (waiter, &is_free) in self.0.iter_mut().zip(free) {
            let is_behind_one = |waiter: &Wait<O>| {
                let mut before = expected.iter();
                before.any(|before| before.blocks(waiter.owner, waiter.range, waiter.kind))
            };
            if is_free && !is_behind_one(waiter) {
                waiter.told = Some(now);
                told(waiter.owner);
            }
            let is_fresh = |told| now.saturating_duration_since(told) < RESERVATION;
            if waiter.told.is_some_and(is_fresh) {
                expected.push(*waiter);
            }
        }
    }
}

/// How far some locks reach: the last byte of the one that reaches furthest, and of the one of another owner that does.
struct Furthest<O> {
    first: Option<(u64, O)>,
    second: Option<(u64, O)>,
}

impl<O> Default for Furthest<O> {
    fn default() -> Self {
        Self {
            first: None,
            second: None,
        }
    }
}

impl<O: Copy + Eq> Furthest<O> {
    fn add(&mut self, lock: &Lock<O>) {
        let new = (lock.range.last(), lock.owner);
        let reaches_beyond = |other: Option<(u64, O)>| other.is_none_or(|(last, _)| last < new.0);
        let is_of_first = self.first.is_some_and(|(_, owner)| owner == new.1);
        if reaches_beyond(self.first) {
            if !is_of_first {
                self.second = self.first;
            }
            self.first = Some(new);
        } else if !is_of_first && reaches_beyond(self.second) {
            self.second = Some(new);
        }
    }

    /// The last byte of the locks that are not this owner's.
    fn last_of_others(&self, owner: O) -> Option<u64> {
        let of_others = [self.first, self.second].into_iter().flatten();
        let mut of_others = of_others.filter(|&(_, its)| its != owner);
        of_others.next().map(|(last, _)| last)
    }
}
