//! The cost model of a host and its RNIC.

use std::time::Duration;
use verbs::{Buffer, Completion, Memory, QueuePair, WorkRequest, WrId};
use verbs_sim::{Costs, EndOptions, Fabric, PairOptions, SimQp};

const COSTS: Costs = Costs {
    post: us(1),
    completion: us(2),
    interrupt: us(50),
    register: us(30),
    register_page: us(0),
    invalidate: us(7),
    invalidate_locally: us(5),
    signal_last: false,
    message: us(3),
    wire: us(200),
    line_rate: 1_000_000,
    copy_rate: 10_000_000,
    jitter: 0,
    seed: 0,
};

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn pair() -> (Fabric, SimQp, SimQp) {
    pair_with(COSTS)
}

fn pair_with(costs: Costs) -> (Fabric, SimQp, SimQp) {
    let fabric = Fabric::new(1);
    let end = EndOptions {
        costs,
        ..EndOptions::default()
    };
    let (left, right) = fabric.pair(&PairOptions::both(end));
    (fabric, left, right)
}

fn receive(qp: &mut SimQp) {
    let buffer = Buffer::with_capacity(1000);
    qp.post(WorkRequest::Receive {
        wr: WrId(1),
        buffer,
    })
    .unwrap();
}

fn send(qp: &mut SimQp, bytes: usize, invalidate: Option<verbs::Handle>) {
    qp.post(WorkRequest::Send {
        wr: WrId(2),
        buffer: Buffer::from(vec![7; bytes]),
        rest: verbs::Gather::new(),
        invalidate: invalidate.map(Into::into),
    })
    .unwrap();
}

/// Both RNICs go on, from event to event, until this end sees a completion that a host waits for.
fn until_seen(fabric: &Fabric, by: &mut SimQp, other: &mut SimQp) -> (Duration, Completion) {
    loop {
        while by.progress() | other.progress() {}
        match by.poll_cq() {
            Some(Completion::Send { .. }) => {}
            Some(completion) => return (fabric.now(), completion),
            None => fabric.advance_to(fabric.next_event().expect("something is to come")),
        }
    }
}

/// The RNICs go on, from event to event, until this time.
fn run_to(fabric: &Fabric, time: Duration, ends: [&mut SimQp; 2]) {
    let [one, other] = ends;
    loop {
        while one.progress() | other.progress() {}
        match fabric.next_event().filter(|event| *event < time) {
            Some(event) => fabric.advance_to(event),
            None => break fabric.advance_to(time),
        }
    }
}

#[test]
fn message_costs_post_rnic_wire_and_interrupt_time() {
    let (fabric, mut left, mut right) = pair();
    receive(&mut right);
    send(&mut left, 500, None);
    assert_eq!(left.busy_until(), us(1));
    let (seen, _) = until_seen(&fabric, &mut right, &mut left);
    // 500 bytes at a megabyte in a second.
    assert_eq!(seen, us(1 + 3 + 500 + 200));
    assert_eq!(right.busy_until(), seen + us(50 + 2));
    assert_eq!((left.traffic().wakeups, right.traffic().wakeups), (0, 1));
    assert_eq!(left.busy_until(), us(1), "a Send is not waited for");
}

#[test]
fn messages_of_one_end_go_one_after_the_other() {
    let (fabric, mut left, mut right) = pair();
    receive(&mut right);
    receive(&mut right);
    send(&mut left, 500, None);
    send(&mut left, 100, None);
    until_seen(&fabric, &mut right, &mut left);
    let (seen, _) = until_seen(&fabric, &mut right, &mut left);
    assert_eq!(seen, us(1 + 3 + 500 + 3 + 100 + 200));
}

#[test]
fn busy_cpu_needs_no_interrupt() {
    let (fabric, mut left, mut right) = pair();
    receive(&mut right);
    send(&mut left, 500, None);
    let at = us(1 + 3 + 500 + 200);
    run_to(&fabric, at - us(10), [&mut left, &mut right]);
    let handle = right.register(Memory::Sink(Buffer::with_capacity(64)));
    handle.unwrap();
    assert_eq!(right.busy_until(), at + us(20));
    run_to(&fabric, right.busy_until(), [&mut left, &mut right]);
    let (seen, _) = until_seen(&fabric, &mut right, &mut left);
    assert_eq!(right.busy_until(), seen + us(2));
    assert_eq!(right.traffic().wakeups, 0);
}

#[test]
fn read_costs_its_owner_a_completion_and_a_wake_up() {
    let (fabric, mut left, mut right) = pair();
    let source = verbs::Gather::from_elem(vec![7; 500].into(), 1);
    let at = right.register(Memory::Source(source)).unwrap();
    fabric.advance_to(us(1000));
    let sink = Buffer::with_capacity(500);
    let from = [verbs::Segment {
        handle: at.handle,
        length: 500,
        offset: at.offset,
    }];
    left.post(WorkRequest::Read {
        wr: WrId(3),
        sink,
        from: from.into_iter().collect(),
    })
    .unwrap();
    let (seen, completion) = until_seen(&fabric, &mut left, &mut right);
    assert!(matches!(completion, Completion::Read { .. }));
    // The request, and the response with its bytes.
    assert_eq!(seen, us(1000 + 1 + (3 + 200) + (3 + 500 + 200)));
    assert_eq!(left.busy_until(), seen + us(50 + 2));
    assert_eq!((left.traffic().wakeups, right.traffic().wakeups), (1, 0));
}

#[test]
fn invalidation_by_the_owner_costs_a_post_a_completion_and_a_wake_up() {
    let (fabric, mut left, mut right) = pair();
    let handle = left
        .register(Memory::Sink(Buffer::with_capacity(64)))
        .unwrap()
        .handle;
    fabric.advance_to(left.busy_until());
    left.post(WorkRequest::Invalidate {
        wr: WrId(3),
        handle,
    })
    .unwrap();
    let (seen, completion) = until_seen(&fabric, &mut left, &mut right);
    assert!(matches!(completion, Completion::Invalidate { .. }));
    assert_eq!(seen, us(30 + 1 + 5));
    assert_eq!(left.busy_until(), seen + us(50 + 2));
}

#[test]
fn invalidation_by_the_peer_costs_the_rnic_only() {
    let (fabric, mut left, mut right) = pair();
    let handle = right
        .register(Memory::Sink(Buffer::with_capacity(64)))
        .unwrap()
        .handle;
    receive(&mut right);
    fabric.advance_to(us(1000));
    send(&mut left, 10, Some(handle));
    let (seen, _) = until_seen(&fabric, &mut right, &mut left);
    assert_eq!(seen, us(1000 + 1 + 3 + 10 + 200 + 7));
}

#[test]
fn copying_costs_time_per_byte() {
    let (_, mut left, _right) = pair();
    let memory = Memory::Persistent(verbs::Access::Read, Buffer::with_capacity(64));
    let handle = left.register(memory).unwrap().handle;
    left.copy_in(handle, 0, &[1; 50]).unwrap();
    assert_eq!(left.busy_until(), us(30 + 5));
}

#[test]
fn without_costs_everything_happens_at_once() {
    let fabric = Fabric::new(1);
    let (mut left, mut right) = fabric.pair(&PairOptions::default());
    receive(&mut right);
    send(&mut left, 500, None);
    let (seen, _) = until_seen(&fabric, &mut right, &mut left);
    assert_eq!((seen, right.busy_until()), (us(0), us(0)));
}

#[test]
fn registering_costs_more_with_more_pages() {
    for (bytes, pages) in [(1, 1), (4096, 1), (4097, 2), (40_960, 10)] {
        let (_, mut left, _right) = pair_with(Costs {
            register_page: us(4),
            ..COSTS
        });
        let memory = Memory::Sink(Buffer::with_capacity(bytes));
        left.register(memory).unwrap();
        assert_eq!(left.busy_until(), us(30 + 4 * pages), "{bytes} bytes");
    }
}

/// When the host has seen the end of two invalidations that it posted together.
fn two_invalidations(costs: Costs) -> Duration {
    let (fabric, mut left, mut right) = pair_with(costs);
    let mut register = || {
        let memory = Memory::Sink(Buffer::with_capacity(64));
        left.register(memory).unwrap().handle
    };
    let handles = [register(), register()];
    let begun = left.busy_until();
    fabric.advance_to(begun);
    for handle in handles {
        left.post(WorkRequest::Invalidate {
            wr: WrId(3),
            handle,
        })
        .unwrap();
    }
    for _ in handles {
        until_seen(&fabric, &mut left, &mut right);
        fabric.advance_to(left.busy_until());
    }
    left.busy_until() - begun
}

#[test]
fn cpu_is_interrupted_once_if_only_the_last_invalidation_is_signalled() {
    // Post, invalidate, wake up; the second is seen while the host is at the first.
    assert_eq!(two_invalidations(COSTS), us(1 + 5 + 50 + 2 + 2));
    let costs = Costs {
        signal_last: true,
        ..COSTS
    };
    assert_eq!(two_invalidations(costs), us(1 + 5 + 5 + 50 + 2));
}

#[test]
fn jitter_moves_each_time_within_bounds_as_the_seed_says() {
    let with = |jitter, seed| {
        let costs = Costs {
            jitter,
            seed,
            ..COSTS
        };
        two_invalidations(costs)
    };
    let exact = with(0, 1);
    assert_eq!(exact, with(0, 2));
    assert_eq!(with(20, 1), with(20, 1));
    let drawn: std::collections::BTreeSet<_> = (0..20).map(|seed| with(20, seed)).collect();
    assert!(drawn.len() > 10, "{drawn:?}");
    let bounds = exact * 4 / 5..=exact * 6 / 5;
    assert!(drawn.iter().all(|time| bounds.contains(time)), "{drawn:?}");
}
