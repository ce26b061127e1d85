//! Much state: it costs others little.

use super::*;
use crate::limits::{MAX_ENDED_AT_ONCE, MAX_LOCK_OWNERS_PER_OPEN, MAX_LOOKS};

const BOTH: u32 = 3;

fn by(open: StateId, owner: &str) -> Locker<'_> {
    Locker::New {
        open,
        owner: owner.as_bytes(),
    }
}

/// A client with opens of as many files, from file 1000 on, and an owner of locks in each.
fn rich(world: &mut World, owner: &str, principal: u32, files: u32) -> Peer {
    let peer = world.peer(owner, principal);
    for file in 1000..1000 + files {
        let open = world.open(&peer, "process", file, BOTH, 0).unwrap();
        let locker = by(open, "locker");
        world
            .lock(&peer, file, locker, LockType::Write, (0, 10))
            .unwrap();
    }
    peer
}

#[test]
fn client_with_much_state_ends_in_steps_between_which_others_are_served() {
    let mut world = World::new(config());
    let files = 5 * MAX_ENDED_AT_ONCE as u32 / 2;
    let rich = rich(&mut world, "rich", 1, files);
    let other = world.peer("other", 2);
    world.server.expire_client(world.now, rich.client).unwrap();
    // Its record goes, and then what it had.
    let demand = world.server.poll_demand();
    let Some(Demand::Remove(ticket, _)) = demand else {
        panic!("{demand:?}");
    };
    let mut before = world.server.usage().states;
    world.server.handle_removed(world.now, ticket);
    let mut steps = 1;
    loop {
        let now = world.server.usage().states;
        assert!(before - now <= MAX_ENDED_AT_ONCE, "{before} {now}");
        before = now;
        if now == 0 {
            break;
        }
        // It is in the way of who wants what it has, and of nobody else.
        let wanted = world.open(&other, "process", 1000, BOTH, 1);
        let open = world.open(&other, "process", 1, BOTH, 0).unwrap();
        world.close(&other, 1, open).unwrap();
        match wanted {
            Ok(open) => drop(world.close(&other, 1000, open)),
            Err(status) => assert_eq!(status, Status::Delay),
        }
        assert!(
            world
                .server
                .poll_timeout()
                .is_some_and(|due| due <= world.now)
        );
        world.server.handle_timeout(world.now);
        world.settle();
        steps += 1;
    }
    assert_eq!(steps, 5);
    world.settle();
    let released = world.released.iter();
    let released = released.filter(|(file, _)| *file >= 1000);
    assert!(released.count() >= 2 * files as usize);
    assert_eq!(world.server.usage().locks, 0);
    assert_eq!(world.server.usage().clients, 1);
}

#[test]
fn new_instance_of_a_client_with_much_state_begins_at_once() {
    let mut world = World::new(config());
    let files = 2 * MAX_ENDED_AT_ONCE as u32;
    rich(&mut world, "rich", 1, files);
    let known = world.exchange("rich", 2, 1).unwrap();
    let session = world.create(known, 1, 1).unwrap();
    let again = Peer {
        client: known.client,
        session: session.session,
        connection: ConnectionId(1),
        next: 1,
    };
    world.complete(&again).unwrap();
    // What the earlier instance had goes, though it denies nothing.
    let (first, last) = (1000, 1000 + files - 1);
    for file in [first, last] {
        let open = world.open(&again, "process", file, BOTH, 0).unwrap();
        let locker = by(open, "locker");
        let locked = world.lock(&again, file, locker, LockType::Write, (0, 10));
        let is_left = file == first;
        assert_eq!(locked.is_err(), is_left, "{locked:?}");
        if is_left {
            assert_eq!(locked, Err(LockError::Status(Status::Delay)));
        }
    }
    world.pass(Duration::ZERO);
    assert_eq!(world.server.usage().clients, 1);
    let open = world.open(&again, "process", first, BOTH, 0).unwrap();
    let locked = world.lock(&again, first, by(open, "locker"), LockType::Write, (0, 10));
    assert!(locked.is_ok());
    assert_eq!(world.server.usage().states, 4);
}

#[test]
fn leases_that_run_out_at_once_are_looked_at_in_parts() {
    let mut world = World::new(config());
    let clients = 2 * MAX_LOOKS + 10;
    for number in 0..clients {
        let owner = format!("client {number}");
        world.exchange(&owner, 1, number as u32).unwrap();
    }
    world.now += LEASE;
    for left in [clients - MAX_LOOKS, 10, 0] {
        assert!(
            world
                .server
                .poll_timeout()
                .is_some_and(|due| due <= world.now)
        );
        world.server.handle_timeout(world.now);
        assert_eq!(world.server.usage().clients, left);
    }
    assert_eq!(world.server.poll_timeout(), None);
}

#[test]
fn owners_of_locks_in_an_open_have_a_limit_and_end_with_it() {
    let mut world = World::new(config());
    let peer = world.peer("client", 1);
    let open = world.open(&peer, "process", 1, BOTH, 0).unwrap();
    let names: Vec<_> = (0..=MAX_LOCK_OWNERS_PER_OPEN)
        .map(|number| format!("owner {number}"))
        .collect();
    let lock = |world: &mut World, number: usize, open| {
        let range = (2 * number as u64, 1);
        world.lock(&peer, 1, by(open, &names[number]), LockType::Read, range)
    };
    for number in 0..MAX_LOCK_OWNERS_PER_OPEN {
        lock(&mut world, number, open).unwrap();
    }
    let refused = lock(&mut world, MAX_LOCK_OWNERS_PER_OPEN, open);
    assert_eq!(refused, Err(LockError::Status(Status::Delay)));
    // Through another open there is room.
    let other = world.open(&peer, "other", 1, BOTH, 0).unwrap();
    lock(&mut world, MAX_LOCK_OWNERS_PER_OPEN, other).unwrap();
    world.close(&peer, 1, open).unwrap();
    let usage = world.server.usage();
    assert_eq!((usage.states, usage.locks), (2, 1));
}

#[test]
fn owners_of_locks_leave_their_open_in_any_order() {
    let mut world = World::new(config());
    let peer = world.peer("client", 1);
    let open = world.open(&peer, "process", 1, BOTH, 0).unwrap();
    let mut left = Vec::new();
    for round in 0..200_u64 {
        let owner = format!("owner {round}");
        let bytes = (2 * round, 1);
        let lock = world.lock(&peer, 1, by(open, &owner), LockType::Write, bytes);
        left.push((bytes, lock.unwrap()));
        if round % 3 > 0 {
            let (bytes, state) = left.swap_remove(world.rng.usize(..left.len()));
            let state = world.unlock(&peer, 1, state, bytes).unwrap();
            world.server.free_state(peer.client, state).unwrap();
        }
    }
    for (bytes, state) in &left {
        let state = world.unlock(&peer, 1, *state, *bytes).unwrap();
        assert_eq!(state.seqid, 2);
    }
    assert_eq!(world.server.usage().locks, 0);
    world.close(&peer, 1, open).unwrap();
    assert_eq!(world.server.usage().states, 0);
}
