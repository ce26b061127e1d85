//! The grace period.

use super::*;
use crate::limits::BETWEEN_RECLAIMS;
use crate::lock::LockKind;
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
    world.complete(&a).unwrap();
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
    world.complete(&a).unwrap();
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
    world.complete(&b).unwrap();
    assert_eq!(world.records.len(), 2, "it is recorded anew");
}

#[test]
fn grace_goes_on_for_a_client_that_reclaims_until_it_has_twice_its_length() {
    let mut world = World::recorded(config(), &[("a", 1), ("b", 2)]);
    let started = world.now;
    let a = world.new_peer("a", 1);
    let grace = config().grace;
    let step = Duration::from_millis(500);
    let mut file = 0;
    while world.open_with(&a, "o", file, 1, 0, true).is_ok() {
        file += 1;
        world.now += step;
        world.server.handle_timeout(world.now);
        assert!(world.now < started + 3 * grace, "it ends");
    }
    let lasted = world.now - started;
    assert!(
        lasted >= 2 * grace && lasted < 2 * grace + BETWEEN_RECLAIMS,
        "{lasted:?}"
    );
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
fn clients_that_were_not_recorded_reclaim_nothing() {
    let mut world = World::recorded(config(), &[("a", 1)]);
    let other = world.new_peer("b", 2);
    let reclaimed = world.open_with(&other, "o", 7, 1, 0, true);
    assert_eq!(reclaimed, Err(Status::NoGrace));
    let a = world.new_peer("a", 1);
    assert!(world.open_with(&a, "o", 7, 1, 0, true).is_ok());
}

#[test]
fn locks_wait_for_the_end_of_grace() {
    let mut world = World::recorded(config(), &[("a", 1), ("b", 2)]);
    let a = world.new_peer("a", 1);
    let open = world.open_with(&a, "o", 7, 3, 0, true).unwrap();
    let locker = Locker::New { open, owner: b"l" };
    let lock = |world: &mut World| world.lock(&a, 7, locker, Write, (0, 10));
    let test = |world: &mut World| {
        let (now, kind) = (world.now, LockKind::Shared);
        (world.server).test_lock(now, a.client, &7, Range::ALL, kind, b"m")
    };
    let waits = Status::Grace.into();
    assert_eq!(lock(&mut world).err(), Some(waits));
    assert_eq!(test(&mut world), Err(Status::Grace.into()));
    world.complete(&a).unwrap();
    assert_eq!(lock(&mut world).err(), Some(Status::Grace.into()));
    world.peer("b", 2);
    assert!(lock(&mut world).is_ok());
    assert!(matches!(test(&mut world), Err(LockError::Denied(_))));
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
    world.complete(&second).unwrap();
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

#[test]
fn client_makes_new_state_once_it_is_recorded() {
    let mut world = World::new(config());
    let a = world.new_peer("a", 1);
    assert!(world.records.is_empty());
    let completed = world.server.reclaim_complete(a.client, false);
    assert!(matches!(completed, Ok(Completed::AfterRecord(_))));
    let open = |world: &mut World| {
        let request = OpenRequest {
            client: a.client,
            owner: b"o",
            file: &7,
            access: ShareAccess::READ,
            deny: ShareDeny::empty(),
            reclaims: false,
        };
        let random = &mut |bytes: &mut [u8]| world.rng.fill(bytes);
        world.server.open(world.now, random, &request)
    };
    assert_eq!(open(&mut world), Err(Status::Grace));
    let again = world.server.reclaim_complete(a.client, false);
    assert_eq!(again, Err(Status::Delay), "it is being recorded");

    // The disk was full, and then it was not.
    let Some(Demand::Record(ticket, _)) = world.server.poll_demand() else {
        panic!("the client is to be recorded")
    };
    let answer = world.server.handle_recorded(ticket, false);
    assert_eq!(answer, Some(Err(Status::Delay)));
    assert_eq!(world.complete(&a), Ok(()));
    assert_eq!(world.records.len(), 1);
    assert!(open(&mut world).is_ok());
    assert_eq!(world.complete(&a), Err(Status::CompleteAlready));
}

#[test]
fn record_of_a_client_id_that_is_gone_does_not_stay() {
    let mut world = World::new(config());
    let a = world.new_peer("a", 1);
    let completed = world.server.reclaim_complete(a.client, false);
    assert!(matches!(completed, Ok(Completed::AfterRecord(_))));
    world.server.expire_client(world.now, a.client).unwrap();
    assert_eq!(world.settle(), Some(Err(Status::StaleClientId)));
    assert!(world.records.is_empty());
    assert_eq!(world.server.entries(), 0);
}

#[test]
fn second_restart_lets_no_client_reclaim_what_it_lost_at_the_first() {
    let mut world = World::recorded(config(), &[("a", 1)]);
    world.pass(LEASE);
    assert!(
        !world.server.is_in_grace(),
        "what it had is free for others"
    );
    world.new_peer("a", 1);
    // The server may restart now, before the client has heard that it is too late.
    assert!(world.records.is_empty());

    let mut world = World::recorded(config(), &[("a", 1), ("b", 2)]);
    let mut a = world.new_peer("a", 1);
    world.pass(LEASE - Duration::from_secs(1));
    world.renew(&mut a).unwrap();
    world.pass(Duration::from_secs(1));
    assert!(!world.server.is_in_grace());
    assert!(
        world.records.is_empty(),
        "it came back, and reclaimed nothing"
    );
    assert_eq!(world.complete(&a), Ok(()));
    assert_eq!(world.records.len(), 1);
}

#[test]
fn record_that_is_removed_after_it_was_demanded_does_not_count() {
    let mut world = World::new(config());
    let first = world.new_peer("a", 1);
    let complete = |world: &mut World, peer: &Peer| {
        let completed = world.server.reclaim_complete(peer.client, false);
        assert!(
            matches!(completed, Ok(Completed::AfterRecord(_))),
            "{completed:?}"
        );
    };
    complete(&mut world, &first);
    let known = world.exchange_silently("a", 2);
    let session = world.create_silently(known);
    let second = Peer {
        client: known.client,
        session,
        ..first
    };
    complete(&mut world, &second);
    // The first record is there, and the second is still to be made and then removed.
    let Some(Demand::Record(ticket, _)) = world.server.poll_demand() else {
        panic!("the client is to be recorded")
    };
    let gone = world.server.handle_recorded(ticket, true);
    assert_eq!(gone, Some(Err(Status::StaleClientId)));
    world
        .server
        .expire_client(world.now, second.client)
        .unwrap();
    let known = world.exchange_silently("a", 2);
    let session = world.create_silently(known);
    let third = Peer {
        client: known.client,
        session,
        ..first
    };
    world.settle();
    assert!(world.records.is_empty());
    complete(&mut world, &third);
    world.settle();
    assert_eq!(world.records.len(), 1);
}

impl World {
    /// EXCHANGE_ID of principal 1 without doing what is demanded.
    fn exchange_silently(&mut self, owner: &str, verifier: u8) -> Exchanged {
        let call = ExchangeCall {
            owner: owner.as_bytes(),
            verifier: Verifier([verifier; 8]),
            principal: &1,
            address: AddressKey(1),
            flags: ExchangeFlags::empty(),
            protection: None,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        self.server.exchange_id(self.now, random, &call).unwrap()
    }

    /// CREATE_SESSION without doing what is demanded.
    fn create_silently(&mut self, known: Exchanged) -> SessionId {
        let args = CreateSessionArgs {
            client: known.client,
            sequence: known.sequence,
            flags: CreateSessionFlags::empty(),
            fore: attributes(8),
            back: attributes(4),
            callback_program: 1,
            callback_security: Default::default(),
        };
        let call = CreateCall {
            args: &args,
            principal: &1,
            connection: ConnectionId(1),
            can_call: false,
            minor_version: 1,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        let created = self.server.create_session(self.now, random, &call);
        created.unwrap().session
    }
}
