//! The grace period.

use super::*;
use nfs_proto::v4::SpecialStateId;
use nfs_proto::v4::lock::LockType::Write;

#[test]
fn grace_is_over_at_once_if_nobody_is_recorded() {
    assert!(!World::new(config()).server.is_in_grace());
    assert!(World::recorded(config(), &[("a", 1)]).server.is_in_grace());
}

#[test]
fn grace_ends_when_all_recorded_clients_have_reclaimed() {
    let mut world = World::recorded(config(), &[("a", 1), ("b", 2)]);
    let a = world.new_peer("a", 1);
    let c = world.peer("c", 3);
    assert_eq!(world.open(&c, "o", 7, 1, 0), Err(Status::Grace));
    let reclaimed = world.open_with(&c, "o", 7, 1, 0, true);
    assert_eq!(reclaimed, Err(Status::NoGrace), "it had nothing");
    let open = world.open_with(&a, "o", 7, 3, 2, true).unwrap();
    let locker = Locker::New { open, owner: b"l" };
    assert!(world.lock_with(&a, 7, locker, Write, (0, 10), true).is_ok());
    assert_eq!(world.open(&a, "o", 8, 1, 0), Err(Status::Grace));
    let anonymous = SpecialStateId::Anonymous.into();
    assert_eq!(world.check_io(&c, 7, anonymous, false), Err(Status::Grace));
    assert!(world.check_io(&a, 7, open, true).is_ok());
    world.server.reclaim_complete(a.client, false).unwrap();
    let reclaimed = world.open_with(&a, "o", 8, 1, 0, true);
    assert_eq!(
        reclaimed,
        Err(Status::NoGrace),
        "it has said that it is done"
    );
    assert_eq!(
        world.open(&a, "o", 8, 1, 0),
        Err(Status::Grace),
        "b is still to come"
    );
    world.peer("b", 2);
    assert!(!world.server.is_in_grace());
    assert_eq!(world.open(&c, "o", 7, 2, 0), Err(Status::ShareDenied));
    assert!(world.open(&c, "o", 8, 1, 0).is_ok());
    assert_eq!(world.records.len(), 3);
}

#[test]
fn client_that_did_not_come_back_is_forgotten_before_others_get_anything() {
    let mut world = World::recorded(config(), &[("a", 1), ("b", 2)]);
    let a = world.new_peer("a", 1);
    let open = world.open_with(&a, "o", 7, 1, 0, true).unwrap();
    world.pass(LEASE - Duration::from_secs(1));
    let mut a = a;
    world.renew(&mut a).unwrap();
    world.now += Duration::from_secs(1);
    world.server.handle_timeout(world.now);
    assert!(world.server.is_in_grace(), "b is still recorded");
    let reclaimed = world.open_with(&a, "o", 8, 1, 0, true);
    assert_eq!(reclaimed, Err(Status::NoGrace));
    world.settle();
    assert!(!world.server.is_in_grace());
    assert_eq!(
        world
            .records
            .keys()
            .map(|owner| owner[0])
            .collect::<Vec<_>>(),
        [b'a']
    );
    assert!(
        world.check_io(&a, 7, open, false).is_ok(),
        "what it reclaimed stays"
    );
    let b = world.new_peer("b", 2);
    let reclaimed = world.open_with(&b, "o", 9, 1, 0, true);
    assert_eq!(reclaimed, Err(Status::NoGrace));
    assert_eq!(world.records.len(), 2, "it is recorded anew");
}

#[test]
fn other_principal_cannot_come_back_in_the_place_of_a_client() {
    let mut world = World::recorded(config(), &[("a", 1)]);
    assert_eq!(world.exchange("a", 1, 2), Err(Status::ClientIdInUse));
    let a = world.new_peer("a", 1);
    assert!(world.open_with(&a, "o", 7, 1, 0, true).is_ok());
}

#[test]
fn conflicting_reclaims_are_told() {
    let mut world = World::recorded(config(), &[("a", 1), ("b", 2)]);
    let [a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.new_peer(owner, n));
    let open = world.open_with(&a, "o", 7, 3, 0, true).unwrap();
    let conflict = Err(Status::ReclaimConflict);
    assert_eq!(world.open_with(&b, "o", 7, 1, 2, true), conflict);
    let other = world.open_with(&b, "o", 7, 3, 0, true).unwrap();
    let lock = |world: &mut World, peer: &Peer, open| {
        let locker = Locker::New { open, owner: b"l" };
        world.lock_with(peer, 7, locker, LockType::WriteWait, (0, 10), true)
    };
    assert!(lock(&mut world, &a, open).is_ok());
    assert_eq!(
        lock(&mut world, &b, other),
        Err(Status::ReclaimConflict.into())
    );
    assert_eq!(world.server.usage().waiters, 0);
}

#[test]
fn client_that_restarts_in_grace_may_still_reclaim() {
    let mut world = World::recorded(config(), &[("a", 1)]);
    let first = world.new_peer("a", 1);
    world.open_with(&first, "o", 7, 1, 0, true).unwrap();
    let known = world.exchange("a", 2, 1).unwrap();
    let session = world.create(known, 1, 1).unwrap();
    let second = Peer {
        client: known.client,
        session: session.session,
        ..first
    };
    assert!(world.open_with(&second, "o", 7, 1, 0, true).is_ok());
    world.server.reclaim_complete(second.client, false).unwrap();
    assert!(!world.server.is_in_grace());
    assert_eq!(world.server.usage().states, 1);
}

#[test]
fn recorded_client_without_a_client_id_keeps_its_record_until_grace_ends() {
    let mut world = World::recorded(config(), &[("a", 1)]);
    let a = world.new_peer("a", 1);
    world
        .server
        .destroy_session(a.session, &1, a.connection)
        .unwrap();
    world
        .server
        .destroy_client(world.now, a.client, &1)
        .unwrap();
    world.settle();
    assert_eq!(world.records.len(), 1);
    world.pass(LEASE);
    assert!(world.records.is_empty() && !world.server.is_in_grace());
    assert_eq!(world.server.entries(), 0);
}
