//! Tests of the table of locks, also against one with an entry for each byte.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

type Table = LockTable<u8, u8>;

fn range(first: u64, last: u64) -> Range {
    Range::of_bytes(first, last).unwrap()
}

fn held(table: &Table) -> Vec<(u64, u64, LockKind, u8)> {
    let locks = table.of_file(&0).iter();
    locks
        .map(|l| (l.range.first(), l.range.last(), l.kind, l.owner))
        .collect()
}

#[track_caller]
fn check(steps: &[(u64, u64, Option<LockKind>)], expected: &[(u64, u64, LockKind)]) {
    let mut table = Table::new(100);
    let now = Instant::now();
    for &(first, last, kind) in steps {
        let range = range(first, last);
        match kind {
            Some(kind) => table.lock(now, &0, 1, range, kind, 1).unwrap(),
            None => table.unlock(now, &0, 1, range).unwrap(),
        }
    }
    let expected: Vec<_> = expected.iter().map(|&(f, l, k)| (f, l, k, 1)).collect();
    assert_eq!(held(&table), expected);
    assert_eq!(table.held(), expected.len());
}

#[test]
fn locks_of_one_owner_split_merge_and_change_kind() {
    use LockKind::{Exclusive as E, Shared as S};
    const END: u64 = u64::MAX;
    check(&[(0, 9, Some(S)), (10, 19, Some(S))], &[(0, 19, S)]);
    check(
        &[(0, 9, Some(S)), (11, 19, Some(S))],
        &[(0, 9, S), (11, 19, S)],
    );
    check(
        &[(0, 9, Some(S)), (10, 19, Some(E))],
        &[(0, 9, S), (10, 19, E)],
    );
    check(
        &[(0, END, Some(E)), (5, 6, None)],
        &[(0, 4, E), (7, END, E)],
    );
    check(&[(0, END, Some(E)), (5, END, None)], &[(0, 4, E)]);
    check(&[(0, END, Some(E)), (0, END, None)], &[]);
    let upgraded = [(0, 4, S), (5, 6, E), (7, 20, S)];
    check(&[(0, 20, Some(S)), (5, 6, Some(E))], &upgraded);
    let downgraded = [(0, 20, Some(S)), (5, 6, Some(E)), (5, 6, Some(S))];
    check(&downgraded, &[(0, 20, S)]);
    check(
        &[(END, END, Some(E)), (0, END - 1, Some(E))],
        &[(0, END, E)],
    );
    check(&[(3, 4, Some(S)), (0, 9, Some(E))], &[(0, 9, E)]);
}

#[test]
fn locks_through_two_opens_stay_apart() {
    let (mut table, now) = (Table::new(10), Instant::now());
    let lock = |table: &mut Table, first, last, via| {
        table.lock(now, &0, 1, range(first, last), LockKind::Shared, via)
    };
    lock(&mut table, 0, 9, 1).unwrap();
    lock(&mut table, 5, 14, 2).unwrap();
    assert!(table.has(&0, 1) && table.has(&0, 2));
    table.release(now, &0, |via| via == 2);
    assert_eq!(held(&table), [(0, 4, LockKind::Shared, 1)]);
    table.release(now, &0, |via| via == 1);
    assert!(table.files.is_empty());
}

#[test]
fn full_table_refuses_what_makes_it_larger_and_takes_what_makes_it_smaller() {
    let (mut table, now) = (Table::new(4), Instant::now());
    for at in [0, 10] {
        table
            .lock(now, &0, 1, range(at, at + 4), LockKind::Shared, 1)
            .unwrap();
    }
    table
        .lock(now, &1, 1, range(0, 4), LockKind::Shared, 1)
        .unwrap();
    table
        .lock(now, &2, 1, range(0, 4), LockKind::Shared, 1)
        .unwrap();
    let over = Err(OverLimit);
    assert_eq!(
        table.lock(now, &3, 1, Range::ALL, LockKind::Shared, 1),
        over
    );
    assert_eq!(
        table.lock(now, &0, 1, range(20, 20), LockKind::Shared, 1),
        over
    );
    assert_eq!(
        table.unlock(now, &0, 1, range(2, 2)),
        over,
        "one would become two"
    );
    assert_eq!(table.held(), 4);
    assert_eq!(table.unlock(now, &0, 1, range(0, 2)), Ok(()));
    assert_eq!(table.unlock(now, &0, 1, Range::ALL), Ok(()));
    assert_eq!(table.held(), 2);
}

#[test]
fn file_refuses_locks_beyond_its_limit() {
    let (mut table, now) = (Table::new(usize::MAX / 2), Instant::now());
    let mut lock = |at: u64| table.lock(now, &0, 1, range(2 * at, 2 * at), LockKind::Shared, 1);
    let most = MAX_LOCKS_PER_FILE as u64 - 1;
    assert!((0..most).rev().all(|at| lock(at).is_ok()));
    assert_eq!(lock(most), Err(OverLimit));
    assert_eq!(
        table.lock(now, &1, 1, Range::ALL, LockKind::Shared, 1),
        Ok(())
    );
}

/// An owner that counts how often it is compared.
#[derive(Clone, Copy, Debug)]
struct Counted(u32);

thread_local! {
    static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Eq for Counted {}

/// However many wait, and for whatever: a hostile client that fills both tables makes no operation of others slow.
#[test]
fn operations_on_a_full_file_do_not_look_at_each_lock_for_each_waiter() {
    let (mut table, now) = (
        LockTable::<u8, Counted>::new(usize::MAX / 2),
        Instant::now(),
    );
    let exclusive = LockKind::Exclusive;
    let locks = MAX_LOCKS_PER_FILE as u64 - 4;
    let at = |n: u64| range(2 * n, 2 * n);
    let greedy = Counted(1);
    for n in (0..locks).rev() {
        table.lock(now, &0, greedy, at(n), exclusive, 1).unwrap();
    }
    // Each waits for the last lock, with all those before it that are its own.
    for n in 0..MAX_WAITERS as u64 {
        let range = range(n, 2 * locks);
        assert!(table.wait(now, &0, (greedy, 1), range, exclusive));
    }
    let honest = Counted(2);
    table
        .lock(now, &0, honest, at(locks), exclusive, 2)
        .unwrap();
    // Of two waiters that are both told, one may be in the way of the other.
    let most = 8 * (MAX_LOCKS_PER_FILE + MAX_WAITERS) + MAX_WAITERS * MAX_WAITERS / 2;
    let mut check = |what: &str, operation: &mut dyn FnMut(&mut LockTable<u8, Counted>)| {
        COMPARED.set(0);
        operation(&mut table);
        assert!(COMPARED.get() < most, "{what}: {}", COMPARED.get());
    };
    check("unlock", &mut |table| {
        table.unlock(now, &0, honest, at(locks)).unwrap();
    });
    check("lock", &mut |table| {
        table
            .lock(now, &0, honest, at(locks + 1), exclusive, 2)
            .unwrap();
    });
    check("release", &mut |table| {
        table.release(now, &0, |via| via == 2);
    });
    check("conflicts", &mut |table| {
        assert!(
            table
                .conflicts(&0, honest, at(locks - 1), exclusive)
                .next()
                .is_some()
        );
    });
    check("release of all", &mut |table| {
        table.release(now, &0, |_| true)
    });
    assert_eq!(table.held(), 0);
}

#[test]
fn waiters_are_told_in_their_order() {
    use LockKind::{Exclusive as E, Shared as S};
    let (mut table, now) = (Table::new(100), Instant::now());
    table.lock(now, &0, 1, range(0, 9), E, 1).unwrap();
    for (owner, kind) in [(2, E), (3, E), (4, S)] {
        assert!(table.wait(now, &0, (owner, 1), range(0, 9), kind));
    }
    assert!(table.wait(now, &0, (5, 1), range(20, 29), S));
    assert!(
        !table.wait(now, &0, (2, 1), range(0, 9), E),
        "it waits already"
    );
    assert_eq!(table.waiting(), 4);
    table.unlock(now, &0, 1, range(0, 4)).unwrap();
    let told = |table: &mut Table| table.drain_told().map(|(_, o)| o).collect::<Vec<_>>();
    assert_eq!(told(&mut table), [5], "nothing was in its way");
    table.unlock(now, &0, 1, range(5, 9)).unwrap();
    assert_eq!(told(&mut table), [2], "the others are behind it");
    let reserved = |table: &Table, now, owner| {
        table
            .reservation(now, &0, owner, range(0, 9), E)
            .map(|l| l.owner)
    };
    assert_eq!(reserved(&table, now, 3), Some(2));
    assert_eq!(reserved(&table, now, 2), None, "for itself");
    let later = now + RESERVATION_IS_OVER;
    assert_eq!(reserved(&table, later, 3), None);
    table.lock(now, &0, 2, range(0, 9), E, 1).unwrap();
    assert_eq!((table.waiting(), table.drain_gone()), (3, vec![2]));
    table.unlock(now, &0, 2, range(0, 9)).unwrap();
    assert_eq!(told(&mut table), [3]);
    table.forget_waiters_of(&0, 3, Range::ALL);
    table.forget_waiters_of(&0, 4, Range::ALL);
    table.forget_waiters_of(&0, 5, Range::ALL);
    assert!(table.files.is_empty() && table.waiting() == 0);
}

const RESERVATION_IS_OVER: Duration = crate::limits::RESERVATION;

#[test]
fn waiter_that_asks_no_more_is_forgotten() {
    let (mut table, now) = (Table::new(100), Instant::now());
    table
        .lock(now, &0, 1, Range::ALL, LockKind::Exclusive, 1)
        .unwrap();
    table.wait(now, &0, (2, 1), Range::ALL, LockKind::Exclusive);
    let later = now + crate::limits::WAITER_LIFE + Duration::from_secs(1);
    table.unlock(later, &0, 1, Range::ALL).unwrap();
    assert_eq!(table.drain_told().count(), 0);
    assert_eq!((table.waiting(), table.drain_gone()), (0, vec![2]));
    assert!(table.files.is_empty());
}

#[test]
fn waiter_is_forgotten_with_the_open_through_which_it_asked_last() {
    let (mut table, now) = (Table::new(100), Instant::now());
    for open in [1, 2] {
        table.wait(now, &0, (2, open), Range::ALL, LockKind::Exclusive);
    }
    table.forget_waiters_through(&0, 1);
    assert_eq!((table.waiting(), table.drain_gone()), (1, vec![]));
    table.forget_waiters_through(&0, 2);
    assert_eq!((table.waiting(), table.drain_gone()), (0, vec![2]));
}

#[test]
fn waiters_beyond_the_limit_poll() {
    let (mut table, now) = (LockTable::<u8, usize>::new(10), Instant::now());
    let mut wait = |owner| table.wait(now, &0, (owner, 1), Range::ALL, LockKind::Shared);
    assert!((0..MAX_WAITERS).all(&mut wait));
    assert!(!wait(MAX_WAITERS));
    assert_eq!(table.waiting(), MAX_WAITERS);
}

const MAX_WAITERS: usize = crate::limits::MAX_WAITERS_PER_FILE;

/// One step of an owner.
#[derive(Clone, Copy, Debug)]
struct Step {
    owner: u8,
    first: u64,
    length: u64,
    kind: Option<LockKind>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        Just(None),
        Just(Some(LockKind::Shared)),
        Just(Some(LockKind::Exclusive)),
    ];
    let step =
        (0..4_u8, 0..24_u64, 1..12_u64, kind).prop_map(|(owner, first, length, kind)| Step {
            owner,
            first,
            length,
            kind,
        });
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Of any locks and waiters, those are free in whose way no lock of another owner is.
    #[test]
    fn waiter_is_free_if_no_lock_of_another_owner_is_in_its_way(held in steps(), waiting in steps()) {
        let (mut table, now) = (Table::new(1000), Instant::now());
        for Step { owner, first, length, kind } in held {
            let range = Range::new(first, length).unwrap();
            let kind = kind.unwrap_or(LockKind::Shared);
            if table.conflicts(&0, owner, range, kind).next().is_none() {
                table.lock(now, &0, owner, range, kind, 1).unwrap();
            }
        }
        let mut waiters = Waiters::default();
        let mut expected = Vec::new();
        for Step { owner, first, length, kind } in waiting {
            let range = Range::new(first, length).unwrap();
            let kind = kind.unwrap_or(LockKind::Shared);
            if waiters.enter(now, (owner, 1), range, kind) {
                expected.push(table.conflicts(&0, owner, range, kind).next().is_none());
            }
        }
        prop_assert_eq!(waiters.free(table.of_file(&0)), expected);
    }

    /// The table has the same locks as one that has an entry for each byte and owner.
    #[test]
    fn table_agrees_with_one_entry_per_byte(steps in steps()) {
        let (mut table, now) = (Table::new(1000), Instant::now());
        let mut bytes: HashMap<(u64, u8), LockKind> = HashMap::new();
        for Step { owner, first, length, kind } in steps {
            let range = Range::new(first, length).unwrap();
            let its = first..first + length;
            match kind {
                Some(kind) => {
                    let free = its.clone().all(|byte| (0..4).filter(|&o| o != owner).all(|other| {
                        bytes.get(&(byte, other)).is_none_or(|k| !k.conflicts(kind))
                    }));
                    let is_free = table.conflicts(&0, owner, range, kind).next().is_none();
                    prop_assert_eq!(is_free, free);
                    if free {
                        table.lock(now, &0, owner, range, kind, 1).unwrap();
                        bytes.extend(its.map(|byte| ((byte, owner), kind)));
                    }
                }
                None => {
                    table.unlock(now, &0, owner, range).unwrap();
                    its.for_each(|byte| { bytes.remove(&(byte, owner)); });
                }
            }
            let mut of_table = HashMap::new();
            for lock in table.of_file(&0) {
                for byte in lock.range.first()..=lock.range.last() {
                    let twice = of_table.insert((byte, lock.owner), lock.kind);
                    prop_assert!(twice.is_none());
                }
            }
            prop_assert_eq!(&of_table, &bytes);
            prop_assert_eq!(table.held(), table.of_file(&0).len());
        }
    }
}
