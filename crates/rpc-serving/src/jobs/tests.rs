//! Order of jobs.

use super::*;
use std::net::{IpAddr, SocketAddr};

fn group(last: u8) -> PeerGroup {
    PeerGroup::of(IpAddr::from([127, 0, 0, last]))
}

fn connection() -> ConnectionId {
    Caller::new(SocketAddr::from(([127, 0, 0, 1], 1))).connection
}

/// A queue for so many threads, with 100 places of stuck jobs.
fn queue(threads: usize) -> Queue<u32> {
    Queue::new(threads, 100)
}

/// Number of running jobs that are not stuck.
fn running_in(queue: &Queue<u32>) -> usize {
    queue.threads.total() - queue.threads.left()
}

/// Whether nothing is known of any address.
fn is_unused(queue: &Queue<u32>) -> bool {
    let holders = queue.threads.holders() + queue.places.holders();
    holders == 0 && queue.waiting.is_empty()
}

/// Takes jobs until there is none for any thread; the address of each.
fn take_all(queue: &mut Queue<u32>) -> Vec<PeerGroup> {
    std::iter::from_fn(|| queue.next())
        .map(|(group, _)| group)
        .collect()
}

fn count(taken: &[PeerGroup], last: u8) -> usize {
    taken.iter().filter(|&&taken| taken == group(last)).count()
}

fn running(group: PeerGroup, since: Instant) -> Running {
    Running {
        group,
        since,
        without_thread: Arc::default(),
    }
}

/// A job of this address, which counts as running, returns.
fn give_back(queue: &mut Queue<u32>, group: PeerGroup) {
    let number = queue.began(running(group, Instant::now()));
    queue.returned(number);
}

#[test]
fn addresses_take_turns_and_so_do_their_connections() {
    let mut queue = queue(100);
    let [busy, other] = [(); 2].map(|()| connection());
    for job in 0..4 {
        queue.push(group(1), busy, job);
    }
    queue.push(group(1), other, 10);
    queue.push(group(2), connection(), 20);
    let taken: Vec<u32> = std::iter::from_fn(|| queue.next())
        .map(|(_, job)| job)
        .collect();
    assert_eq!(taken, [0, 20, 10, 1, 2, 3]);
}

#[test]
fn address_leaves_as_many_threads_as_it_has() {
    let mut queue = queue(128);
    for job in 0..1000 {
        queue.push(group(1), connection(), job);
    }
    assert_eq!(take_all(&mut queue).len(), 64);
    for job in 0..1000 {
        queue.push(group(2), connection(), job);
    }
    assert_eq!(count(&take_all(&mut queue), 2), 32);
    // One that has none so far gets the last thread.
    for last in 3..=34 {
        queue.push(group(last), connection(), 0);
    }
    assert_eq!(take_all(&mut queue).len(), 32);
    assert_eq!(running_in(&queue), 128);
    assert!(queue.next().is_none());
}

#[test]
fn jobs_that_wait_go_on_as_others_return() {
    let mut queue = queue(4);
    for job in 0..100 {
        queue.push(group(1), connection(), job);
    }
    let mut done = 0;
    while let Some((group, _)) = queue.next() {
        done += 1;
        give_back(&mut queue, group);
    }
    assert_eq!(done, 100);
    assert!(is_unused(&queue));
}

#[test]
fn jobs_of_a_connection_that_is_over_are_forgotten_and_those_that_run_still_count() {
    let mut queue = queue(2);
    let [gone, other] = [(); 2].map(|()| connection());
    for job in 0..10 {
        queue.push(group(1), gone, job);
        queue.push(group(1), other, 100 + job);
    }
    assert!(queue.next().is_some());
    assert_eq!(queue.waiting.cancel(group(1), gone).len(), 9);
    assert!(queue.next().is_none(), "its share is used up");
    give_back(&mut queue, group(1));
    let rest = std::iter::from_fn(|| {
        let (group, job) = queue.next()?;
        give_back(&mut queue, group);
        Some(job)
    });
    assert!(rest.collect::<Vec<_>>().iter().all(|&job| job >= 100));
    assert!(is_unused(&queue));
}

#[test]
fn job_starts_at_once_where_none_waits_and_its_address_has_a_thread() {
    let mut queue = queue(4);
    assert!(queue.start_at_once(group(1)));
    assert!(queue.start_at_once(group(1)), "it leaves two");
    assert!(!queue.start_at_once(group(1)), "its share");
    queue.push(group(1), connection(), 0);
    assert!(!queue.start_at_once(group(2)), "another waits");
    queue.push(group(2), connection(), 1);
    assert_eq!(queue.next(), Some((group(2), 1)));
    for address in [1, 1, 2] {
        give_back(&mut queue, group(address));
    }
    assert_eq!(queue.next(), Some((group(1), 0)));
    give_back(&mut queue, group(1));
    assert!(is_unused(&queue));
}

#[test]
fn job_that_returns_may_make_room_for_two() {
    let mut queue = queue(4);
    assert!(queue.start_at_once(group(1)) && queue.start_at_once(group(2)));
    let own = connection();
    queue.push(group(2), connection(), 20);
    queue.push(group(1), own, 10);
    assert_eq!(queue.next(), None, "one is left to who comes next");
    give_back(&mut queue, group(1));
    assert_eq!(queue.next(), Some((group(2), 20)));
    let other = queue.next();
    assert_eq!(other, Some((group(1), 10)), "it has none that runs");
}

/// Has jobs of an address begin, as many as find a thread; their numbers.
fn begin(queue: &mut Queue<u32>, from: u8, since: Instant) -> Vec<u64> {
    let starts = |queue: &mut Queue<u32>| queue.start_at_once(group(from));
    let mut numbers = Vec::new();
    while starts(queue) {
        numbers.push(queue.began(running(group(from), since)));
    }
    numbers
}

#[test]
fn stuck_jobs_leave_their_threads_to_others() {
    let mut queue = queue(8);
    let start = Instant::now();
    let numbers: Vec<u64> = (1..=4)
        .flat_map(|from| begin(&mut queue, from, start))
        .collect();
    assert_eq!(running_in(&queue), 8);
    queue.push(group(9), connection(), 0);
    let soon = start + STUCK_AFTER - Duration::from_millis(1);
    assert_eq!(queue.write_off(soon), 0);
    assert!(queue.next().is_none());
    assert_eq!(queue.write_off(start + STUCK_AFTER), 8);
    assert_eq!(queue.next(), Some((group(9), 0)));
    assert_eq!((running_in(&queue), queue.stuck.len()), (1, 8));
    for number in numbers {
        queue.returned(number);
    }
    assert_eq!((running_in(&queue), queue.stuck.len()), (1, 0));
    assert_eq!((queue.threads.holders(), queue.places.holders()), (1, 0));
}

#[test]
fn address_leaves_as_many_stuck_jobs_to_others_as_it_has() {
    let mut queue = Queue::<u32>::new(100, 8);
    let start = Instant::now();
    let later = start + STUCK_AFTER;
    for _ in 0..10 {
        begin(&mut queue, 1, start);
        queue.write_off(later);
    }
    assert_eq!(queue.stuck.len(), 4);
    for from in 2..100 {
        begin(&mut queue, from, start);
        queue.write_off(later);
    }
    assert_eq!(queue.stuck.len(), 8);
    assert!(running_in(&queue) <= 100);
}
