//! Lists for an administrator, the end of state of some files, and events.

use super::*;
use crate::lock::LockKind;
use nfs_proto::v4::lock::LockType::{Read, Write};

/// All states, in pages of so many places.
fn all(world: &World, page: u32) -> Vec<StateView<u32>> {
    let (mut states, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        let mut next = world.server.listing().states_from(at, page);
        assert!(next.states.len() <= page as usize);
        states.append(&mut next.states);
        from = next.next;
    }
    states
}

fn events(world: &mut World) -> Vec<Event> {
    std::iter::from_fn(|| world.server.poll_event()).collect()
}

#[test]
fn clients_are_listed_in_pages_with_all_they_have() {
    let mut world = World::new(config());
    let peers: Vec<Peer> = (0..25)
        .map(|n| world.peer(&format!("client {n}"), 1))
        .collect();
    let open = world.open(&peers[3], "o", 7, 3, 0).unwrap();
    let locker = Locker::New { open, owner: b"l" };
    for first in [0, 20] {
        world
            .lock_with(&peers[3], 7, locker, Write, (first, 10), false)
            .unwrap();
    }
    world.open(&peers[3], "other", 8, 1, 0).unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = world.server.listing().clients_after(after, 10);
        let Some(last) = page.last() else { break };
        after = Some(last.client);
        seen.extend(page);
    }
    assert_eq!(seen.len(), 25);
    assert!(seen.is_sorted_by_key(|client| client.client.0));
    for client in &seen {
        let has_all = client.client == peers[3].client;
        let expected = if has_all { (2, 2) } else { (0, 0) };
        assert_eq!((client.opens, client.locks), expected);
        assert_eq!((client.sessions, client.stage), (1, ClientStage::Confirmed));
        assert!(client.slots > 0 && client.connections.len() == 1 && client.has_reclaimed);
    }
    world.close(&peers[3], 7, open).unwrap();
    let all = world.server.listing().clients_after(None, usize::MAX);
    let mut having = all.iter().filter(|client| client.opens > 0);
    let client = having.next().unwrap();
    assert_eq!((client.opens, client.locks), (1, 0));
}

#[test]
fn states_are_listed_in_pages_and_locks_are_bounded() {
    let mut world = World::new(config());
    let peer = world.peer("a", 1);
    let open = world.open(&peer, "o", 7, 3, 1).unwrap();
    let mut locker = Locker::New { open, owner: b"l" };
    for n in 0..=MAX_LISTED_LOCKS as u64 {
        let kind = if n == 0 { Read } else { Write };
        let state = world.lock_with(&peer, 7, locker, kind, (3 * n, 1), false);
        locker = Locker::Existing(state.unwrap());
    }
    for file in 10..40 {
        world.open(&peer, "o", file, 1, 0).unwrap();
    }
    let states = all(&world, 7);
    assert_eq!(states.len(), 32);
    assert_eq!(states, all(&world, u32::MAX));
    let StateKind::Open { access, deny } = states[0].kind else {
        panic!("{states:?}");
    };
    assert_eq!((access.bits(), deny.bits()), (3, 1));
    assert_eq!((&*states[0].owner, states[0].file), (&b"o"[..], 7));
    let StateKind::Locks { locks, has_more } = &states[1].kind else {
        panic!("{states:?}");
    };
    assert!(*has_more && locks.len() == MAX_LISTED_LOCKS);
    let first = (Range::new(0, 1).unwrap(), LockKind::Shared);
    assert_eq!((locks[0], &*states[1].owner), (first, &b"l"[..]));
}

#[test]
fn all_state_of_some_files_is_revoked_in_pages_and_the_rest_stays() {
    let mut world = World::new(config());
    let [a, b] = [1, 2].map(|n| world.peer(&format!("client {n}"), 1));
    let mut kept = Vec::new();
    for file in 0..40 {
        for peer in [a, b] {
            let open = world.open(&peer, "o", file, 3, 0).unwrap();
            if file % 2 == 1 {
                kept.push((peer, file, open));
                continue;
            }
            let locker = Locker::New { open, owner: b"l" };
            let range = (u64::from(peer.session == a.session), 1);
            let locked = world.lock_with(&peer, file, locker, Write, range, false);
            locked.unwrap();
        }
    }
    let (mut revoked, mut from) = (0, Some(0));
    while let Some(at) = from {
        let is_even = |file: &u32| file.is_multiple_of(2);
        let some = world.server.revoke_where(world.now, (at, 9), is_even);
        revoked += some.states;
        from = some.next;
    }
    assert_eq!(revoked, 20 * 2 * 2);
    world.settle();
    assert_eq!(world.released.len(), revoked, "their files are released");
    assert_eq!(world.server.usage().locks, 0);
    for (peer, file, open) in kept {
        assert!(world.check_io(&peer, file, open, true).is_ok());
    }
    for client in world.server.listing().clients_after(None, 10) {
        assert_eq!((client.opens, client.revoked), (20, 40));
    }
    assert!(
        all(&world, 100)
            .iter()
            .all(|state| state.is_revoked == state.file.is_multiple_of(2))
    );
}

#[test]
fn administrator_hears_how_grace_ended() {
    let ended = |why, lost| vec![Event::GraceEnded { why, lost }];
    let mut world = World::recorded(config(), &[("a", 1), ("b", 2)]);
    let grace = world.server.grace().unwrap();
    assert_eq!((grace.awaited, grace.until), (2, world.now + LEASE));
    world.peer("a", 1);
    assert_eq!(world.server.grace().unwrap().awaited, 1);
    assert_eq!(events(&mut world), []);
    world.peer("b", 2);
    assert_eq!(events(&mut world), ended(GraceEnd::Complete, 0));
    assert_eq!(world.server.grace(), None);

    let mut world = World::recorded(config(), &[("a", 1)]);
    world.pass(LEASE);
    assert_eq!(events(&mut world), ended(GraceEnd::TimeUp, 1));

    let mut world = World::recorded(config(), &[("a", 1)]);
    world.server.end_grace();
    world.server.end_grace();
    assert_eq!(events(&mut world), ended(GraceEnd::Administrator, 1));
}

#[test]
fn administrator_hears_of_clients_that_lose_what_they_have() {
    let mut world = World::new(config());
    let [a, b, _] = [1, 2, 3].map(|n| world.peer(&format!("client {n}"), 1));
    let open = world.open(&a, "o", 7, 3, 3).unwrap();
    let locker = Locker::New { open, owner: b"l" };
    let locked = world.lock_with(&a, 7, locker, Write, (0, 10), false);
    locked.unwrap();
    world.open(&b, "o", 8, 3, 0).unwrap();
    world.pass(LEASE);
    assert_eq!(events(&mut world), [], "they stay in courtesy");
    let stages: Vec<_> = world.server.listing().clients_after(None, 10);
    let stages: Vec<_> = stages.iter().map(|client| client.stage).collect();
    assert_eq!(stages, [ClientStage::Courtesy; 2], "c had nothing");
    let c = world.peer("client 3", 1);
    assert_eq!(world.open(&c, "o", 7, 1, 0), Err(Status::Delay));
    world.server.expire_client(world.now, b.client).unwrap();
    let gone = |peer: Peer, owner: &str, why, opens, locks| Event::ClientEnded {
        client: peer.client,
        owner: owner.as_bytes().into(),
        why,
        opens,
        locks,
    };
    assert_eq!(
        events(&mut world),
        [
            gone(a, "client 1", ClientEnd::InTheWay, 1, 1),
            gone(b, "client 2", ClientEnd::Administrator, 1, 0),
        ]
    );
    world.settle();
    world.server.expire_client(world.now, c.client).unwrap();
    assert_eq!(events(&mut world), [], "it had nothing");
}

#[test]
fn administrator_hears_once_of_a_limit_that_is_reached_often() {
    let limits = Limits {
        states: 4,
        ..Limits::default()
    };
    let mut world = World::new(Config { limits, ..config() });
    let peer = world.peer("a", 1);
    let refused = (0..20).filter(|file| world.open(&peer, "o", *file, 1, 0).is_err());
    assert!(refused.count() > 10);
    let reached = vec![Event::LimitReached(Limit::Opens)];
    assert_eq!(events(&mut world), reached);
}
