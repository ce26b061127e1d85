//! Locks that are held.

use super::range::{LockKind, Range};
use super::waiters::{Wait, Waiters};
use crate::limits::MAX_LOCKS_PER_FILE;
use crate::steady_map::SteadyMap;
use std::hash::Hash;
use std::time::Instant;

/// A lock that an owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock<O> {
    /// The bytes.
    pub range: Range,
    /// The kind.
    pub kind: LockKind,
    /// The owner.
    pub owner: O,
    /// The state through which the owner has it: an owner may have locks of one file through several opens (RFC 8881
    /// §9.5).
    pub(crate) via: u32,
}

/// A file or the server has as many locks as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit;

/// Locks and waiters of one file. Locks are in the order of their first bytes; those of one owner do not overlap.
#[derive(Debug)]
struct FileLocks<O> {
    held: Vec<Lock<O>>,
    waiting: Waiters<O>,
}

impl<O> Default for FileLocks<O> {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            waiting: Waiters::default(),
        }
    }
}

impl<O: Copy + Eq> FileLocks<O> {
    /// Locks that share a byte with a range.
    fn overlapping(&self, range: Range) -> impl Iterator<Item = &Lock<O>> {
        let end = self
            .held
            .partition_point(|lock| lock.range.first() <= range.last());
        self.held[..end]
            .iter()
            .filter(move |lock| lock.range.overlaps(range))
    }

    fn conflicts(&self, owner: O, range: Range, kind: LockKind) -> impl Iterator<Item = &Lock<O>> {
        self.overlapping(range)
            .filter(move |lock| lock.owner != owner && lock.kind.conflicts(kind))
    }

    fn insert(&mut self, lock: Lock<O>) {
        let first = lock.range.first();
        let at = self.held.partition_point(|l| l.range.first() < first);
        self.held.insert(at, lock);
    }

    /// Gives an owner a lock on a range in place of all that it has there, or none.
    fn replace(&mut self, owner: O, range: Range, new: Option<(LockKind, u32)>) {
        let mut joined = range;
        let mut parts: Vec<Lock<O>> = Vec::new();
        let is_touched = |lock: &Lock<O>| lock.owner == owner && lock.range.touches(range);
        let behind = range.last().saturating_add(1);
        let end = self.held.partition_point(|l| l.range.first() <= behind);
        // Most locks touch nothing that their owner has.
        if self.held[..end].iter().any(is_touched) {
            self.held.retain(|lock| {
                if !is_touched(lock) {
                    return true;
                }
                if new == Some((lock.kind, lock.via)) {
                    joined = joined.joined(lock.range);
                    return false;
                }
                if !lock.range.overlaps(range) {
                    return true;
                }
                let rest = lock.range.without(range).into_iter().flatten();
                parts.extend(rest.map(|range| Lock { range, ..*lock }));
                false
            });
        }
        parts.into_iter().for_each(|lock| self.insert(lock));
        if let Some((kind, via)) = new {
            self.insert(Lock {
                range: joined,
                kind,
                owner,
                via,
            });
        }
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }
}

/// Locks of byte ranges of all files, with those who wait for them.
///
/// An operation costs time in proportion to the locks of its file, of which there are [`MAX_LOCKS_PER_FILE`] at most, and to its waiters; where
/// many are told that their locks are free, to the square of their number.
#[derive(Debug)]
pub struct LockTable<F, O> {
    files: SteadyMap<F, FileLocks<O>>,
    held: usize,
    waiting: usize,
    max: usize,
    /// Owners that were told that their lock is free.
    told: Vec<(F, O)>,
    /// Owners of waiters that are gone, once for each.
    gone: Vec<O>,
}

impl<F: Clone + Eq + Hash, O: Copy + Eq> LockTable<F, O> {
    /// Creates an empty table that takes up to `max` locks.
    pub fn new(max: usize) -> Self {
        Self {
            files: SteadyMap::default(),
            held: 0,
            waiting: 0,
            max,
            told: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// Returns the number of locks.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of waiters.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns locks of other owners that are in the way of one.
    pub fn conflicts(
        &self,
        file: &F,
        owner: O,
        range: Range,
        kind: LockKind,
    ) -> impl Iterator<Item = &Lock<O>> {
        let file = self.files.get(file).into_iter();
        file.flat_map(move |file| file.conflicts(owner, range, kind))
    }

    /// Returns all locks of a file, in the order of their first bytes.
    pub fn of_file(&self, file: &F) -> &[Lock<O>] {
        self.files.get(file).map_or(&[], |file| &file.held)
    }

    /// Returns whether anything is held through a state of an owner.
    pub(crate) fn has(&self, file: &F, via: u32) -> bool {
        self.of_file(file).iter().any(|lock| lock.via == via)
    }

    /// Gives an owner a lock in which nothing is in the way. What it has in this range is replaced; what it has of the
    /// same kind beside it becomes one with it.
    ///
    /// # Errors
    ///
    /// Nothing is changed, as there would be too many locks.
    ///
    /// # Panics
    ///
    /// If another owner has a lock that is in the way.
    pub fn lock(
        &mut self,
        now: Instant,
        file: &F,
        owner: O,
        range: Range,
        kind: LockKind,
        via: u32,
    ) -> Result<(), OverLimit> {
        assert!(
            self.conflicts(file, owner, range, kind).next().is_none(),
            "no other owner may be in the way of a lock that is given"
        );
        self.change(now, file, owner, range, Some((kind, via)))?;
        self.forget_waiters_of(file, owner, range);
        Ok(())
    }

    /// Takes what an owner has in a range.
    ///
    /// # Errors
    ///
    /// Nothing is changed, as a lock would become two, and there would be too many.
    pub fn unlock(
        &mut self,
        now: Instant,
        file: &F,
        owner: O,
        range: Range,
    ) -> Result<(), OverLimit> {
        self.change(now, file, owner, range, None)
    }

    /// Returns whether there may be as many locks as there are after an owner has locked a range, or has unlocked it.
    pub(crate) fn has_room(&self, file: &F, owner: O, range: Range, locks: bool) -> bool {
        let Some(of_file) = self.files.get(file) else {
            return !locks || self.held < self.max;
        };
        // One lock more, and one of another kind around it becomes two.
        let most = if locks { 2 } else { 1 };
        if of_file.held.len() + most <= MAX_LOCKS_PER_FILE && self.held + most <= self.max {
            return true;
        }
        // What is only made smaller is never refused: a full table must be able to get empty.
        let splits = |lock: &Lock<O>| {
            lock.owner == owner && lock.range.without(range).iter().all(Option::is_some)
        };
        !locks && !of_file.overlapping(range).any(splits)
    }

    fn change(
        &mut self,
        now: Instant,
        file: &F,
        owner: O,
        range: Range,
        new: Option<(LockKind, u32)>,
    ) -> Result<(), OverLimit> {
        if !self.has_room(file, owner, range, new.is_some()) {
            return Err(OverLimit);
        }
        let Some(locks) = self.files.get_mut(file) else {
            if let Some((kind, via)) = new {
                let locks = self
                    .files
                    .get_or_insert_with(file.clone(), FileLocks::default);
                locks.insert(Lock {
                    range,
                    kind,
                    owner,
                    via,
                });
                self.held += 1;
            }
            return Ok(());
        };
        let before = locks.held.len();
        locks.replace(owner, range, new);
        self.held = self.held - before + locks.held.len();
        self.tell(now, file);
        Ok(())
    }

    /// Takes all that is held through some states.
    pub(crate) fn release(&mut self, now: Instant, file: &F, is_via: impl Fn(u32) -> bool) {
        let Some(locks) = self.files.get_mut(file) else {
            return;
        };
        let before = locks.held.len();
        locks.held.retain(|lock| !is_via(lock.via));
        self.held -= before - locks.held.len();
        self.tell(now, file);
    }

    /// Enters an owner among those who wait, through an open. Returns whether it did not wait for this lock before.
    pub(crate) fn wait(
        &mut self,
        now: Instant,
        file: &F,
        (owner, open): (O, u32),
        range: Range,
        kind: LockKind,
    ) -> bool {
        let locks = self
            .files
            .get_or_insert_with(file.clone(), FileLocks::default);
        let before = locks.waiting.len();
        let gone = &mut self.gone;
        locks.waiting.remove_old(now, &mut |owner| gone.push(owner));
        let is_new = locks.waiting.enter(now, (owner, open), range, kind);
        self.waiting = self.waiting - before + locks.waiting.len();
        is_new
    }

    /// Lets an owner wait no more for locks that touch a range.
    pub(crate) fn forget_waiters_of(&mut self, file: &F, owner: O, range: Range) {
        self.forget_waiters(file, |waiter| {
            waiter.owner == owner && waiter.range.overlaps(range)
        });
    }

    /// Lets owners wait no more through an open.
    pub(crate) fn forget_waiters_through(&mut self, file: &F, open: u32) {
        self.forget_waiters(file, |waiter| waiter.open == open);
    }

    fn forget_waiters(&mut self, file: &F, goes: impl Fn(&Wait<O>) -> bool) {
        let Some(locks) = self.files.get_mut(file) else {
            return;
        };
        let before = locks.waiting.len();
        let gone = &mut self.gone;
        locks.waiting.remove(goes, &mut |owner| gone.push(owner));
        self.waiting = self.waiting - before + locks.waiting.len();
        if locks.is_empty() {
            self.files.remove(file);
        }
    }

    /// Returns the owner and lock for which a lock is reserved that another owner also waits for: the owner was told
    /// that the lock is free, and has some time to come and take it (RFC 8881 §9.6).
    pub(crate) fn reservation(
        &self,
        now: Instant,
        file: &F,
        owner: O,
        range: Range,
        kind: LockKind,
    ) -> Option<Lock<O>> {
        let waiting = &self.files.get(file)?.waiting;
        let waiter = waiting.reservation(now, owner, range, kind)?;
        Some(Lock {
            range: waiter.range,
            kind: waiter.kind,
            owner: waiter.owner,
            via: u32::MAX,
        })
    }

    /// Tells waiters whose lock is free now, and forgets a file without locks.
    fn tell(&mut self, now: Instant, file: &F) {
        let Some(locks) = self.files.get_mut(file) else {
            return;
        };
        let FileLocks { held, waiting } = locks;
        if !waiting.is_empty() {
            let before = waiting.len();
            let gone = &mut self.gone;
            waiting.remove_old(now, &mut |owner| gone.push(owner));
            self.waiting = self.waiting - before + waiting.len();
            let told = &mut self.told;
            let free = waiting.free(held);
            waiting.tell(now, &free, &mut |owner| told.push((file.clone(), owner)));
        }
        if locks.is_empty() {
            self.files.remove(file);
        }
    }

    /// Takes the files and owners that are to be told that a lock is free.
    pub fn drain_told(&mut self) -> impl Iterator<Item = (F, O)> {
        self.told.drain(..)
    }

    /// Takes the owners of waiters that are gone, once for each waiter.
    pub(crate) fn drain_gone(&mut self) -> Vec<O> {
        std::mem::take(&mut self.gone)
    }
}

#[cfg(test)]
mod tests;
