//! EXCHANGE_ID, CREATE_SESSION and DESTROY_CLIENTID.

use super::*;

#[test]
fn new_owner_is_confirmed_by_its_first_session() {
    let mut world = World::new(config());
    let known = world.exchange("a", 1, 1).unwrap();
    assert_eq!(known.flags, ExchangeFlags::empty());
    let session = world.create(known, 1, 1).unwrap();
    assert_eq!(session.sequence, known.sequence);
    let again = world.exchange("a", 1, 1).unwrap();
    assert_eq!(
        (again.client, again.flags),
        (known.client, ExchangeFlags::CONFIRMED_R)
    );
}

#[test]
fn unconfirmed_record_is_replaced_by_any_principal() {
    let mut world = World::new(config());
    let first = world.exchange("a", 1, 1).unwrap();
    let second = world.exchange("a", 1, 1).unwrap();
    assert_ne!(first.client, second.client);
    let third = world.exchange("a", 2, 2).unwrap();
    assert_eq!(world.create(first, 1, 1), Err(Status::StaleClientId));
    assert_eq!(world.create(second, 1, 1), Err(Status::StaleClientId));
    assert_eq!(world.create(third, 2, 1).map(drop), Ok(()));
    assert_eq!(world.server.usage().clients, 1);
}

#[test]
fn state_of_the_old_instance_ends_when_the_new_one_is_confirmed() {
    let mut world = World::new(config());
    let old = world.peer("a", 1);
    let open = world.open(&old, "o", 7, 3, 3).unwrap();
    let known = world.exchange("a", 2, 1).unwrap();
    assert_ne!(known.client, old.client);
    assert!(
        world.check_io(&old, 7, open, true).is_ok(),
        "it may be a fake"
    );
    assert!(world.released.is_empty());
    world.create(known, 1, 1).unwrap();
    assert_eq!(world.released, [(7, open)]);
    assert_eq!(world.sequence(&old).err(), Some(Status::BadSession));
    assert_eq!(world.server.usage().clients, 1);
    assert_eq!(world.records.len(), 1);
}

#[test]
fn owner_of_another_principal_is_in_use_while_it_has_sessions_or_state() {
    let mut world = World::new(config());
    let victim = world.peer("a", 1);
    assert_eq!(world.exchange("a", 1, 2), Err(Status::ClientIdInUse));
    world.open(&victim, "o", 7, 1, 0).unwrap();
    let connection = victim.connection;
    world
        .server
        .destroy_session(victim.session, &1, connection)
        .unwrap();
    assert_eq!(world.exchange("a", 1, 2), Err(Status::ClientIdInUse));
    world.pass(LEASE * 2);
    let other = world.exchange("a", 1, 2).unwrap();
    assert_ne!(other.client, victim.client);
    assert_eq!(world.released.len(), 1, "its lease had run out");
    assert!(world.records.is_empty());
}

#[test]
fn owner_without_sessions_or_state_is_free_for_another_principal() {
    let mut world = World::new(config());
    let first = world.peer("a", 1);
    world
        .server
        .destroy_session(first.session, &1, first.connection)
        .unwrap();
    let second = world.exchange("a", 1, 2).unwrap();
    assert!(world.create(second, 2, 2).is_ok());
    assert_eq!(world.server.usage().clients, 1);
}

#[test]
fn update_needs_the_confirmed_record_of_the_same_instance_and_principal() {
    let mut world = World::new(config());
    let update = |world: &mut World, verifier, principal| {
        let flags = ExchangeFlags::UPD_CONFIRMED_REC_A;
        world.exchange_with("a", verifier, principal, flags)
    };
    assert_eq!(update(&mut world, 1, 1), Err(Status::NoEntry));
    let known = world.exchange("a", 1, 1).unwrap();
    assert_eq!(
        update(&mut world, 1, 1),
        Err(Status::NoEntry),
        "not confirmed"
    );
    world.create(known, 1, 1).unwrap();
    assert_eq!(update(&mut world, 2, 1), Err(Status::NotSame));
    assert_eq!(update(&mut world, 2, 2), Err(Status::NotSame));
    assert_eq!(update(&mut world, 1, 2), Err(Status::Perm));
    let updated = update(&mut world, 1, 1).unwrap();
    assert_eq!(
        (updated.client, updated.flags),
        (known.client, ExchangeFlags::CONFIRMED_R)
    );
}

#[test]
fn flags_that_mean_nothing_are_invalid() {
    let mut world = World::new(config());
    let mut check = |bits, expected: Result<(), Status>| {
        let flags = ExchangeFlags::from_bits_retain(bits);
        assert_eq!(
            world.exchange_with("a", 1, 1, flags).map(drop),
            expected,
            "{bits:x}"
        );
    };
    check(0x101, Ok(()));
    check(0x4, Err(Status::Invalid));
    check(0x8, Err(Status::Invalid));
    check(0x8000_0000, Err(Status::Invalid));
}

#[test]
fn create_session_is_executed_once() {
    let mut world = World::new(config());
    let known = world.exchange("a", 1, 1).unwrap();
    let at = |by: u32| Exchanged {
        sequence: SequenceId(known.sequence.0.wrapping_add(by)),
        ..known
    };
    let misordered = Err(Status::SequenceMisordered);
    assert_eq!(
        world.create(at(u32::MAX), 1, 1),
        misordered,
        "as if it was cached"
    );
    assert_eq!(world.create(at(1), 1, 1), misordered);
    assert_eq!(
        world.create(known, 2, 2),
        Err(Status::ClientIdInUse),
        "not confirmed by others"
    );
    let session = world.create(known, 1, 1).unwrap();
    assert_eq!(world.create(known, 1, 2), Ok(session));
    assert_eq!(world.create(known, 2, 2), Ok(session));
    assert_eq!(world.server.usage().sessions, 1);
    let second = world.create(at(1), 1, 1).unwrap();
    assert_ne!(second.session, session.session);
    assert_eq!(world.create(known, 1, 2), misordered);
    let small = ChannelAttributes {
        max_request: 100,
        ..attributes(8)
    };
    let too_small = Err(Status::TooSmall);
    assert_eq!(world.create_with(at(2), 1, 1, small), too_small);
    assert_eq!(world.create_with(at(2), 1, 1, small), too_small);
    assert!(world.create_with(at(3), 1, 1, small).is_err(), "it counted");
    assert!(world.create(at(3), 1, 1).is_ok(), "it did not");
    assert_eq!(world.create(at(2), 1, 1), misordered);
}

#[test]
fn session_is_granted_no_more_than_both_want() {
    let mut world = World::new(config());
    let known = world.exchange("a", 1, 1).unwrap();
    let wanted = ChannelAttributes {
        header_pad: 100,
        max_request: 1 << 24,
        max_response: 1 << 10,
        max_response_cached: 7584,
        max_operations: 8,
        max_requests: 1000,
        rdma_ird: Some(16),
    };
    let session = world.create_with(known, 1, 1, wanted).unwrap();
    assert_eq!(session.flags, CreateSessionFlags::CONN_BACK_CHAN);
    let expected = ChannelAttributes {
        header_pad: 0,
        max_request: 1 << 20,
        max_response: 1 << 10,
        max_response_cached: 128,
        max_operations: 8,
        max_requests: 64,
        rdma_ird: None,
    };
    assert_eq!((session.fore, session.back), (expected, attributes(4)));
}

#[test]
fn callbacks_may_be_as_many_as_the_client_offers() {
    let mut world = World::new(config());
    let known = world.exchange("a", 1, 1).unwrap();
    let offered = ChannelAttributes {
        max_operations: 500,
        max_requests: 1000,
        ..attributes(8)
    };
    let args = CreateSessionArgs {
        client: known.client,
        sequence: known.sequence,
        flags: CreateSessionFlags::CONN_BACK_CHAN,
        fore: offered,
        back: offered,
        callback_program: 1,
        callback_security: Default::default(),
    };
    let call = CreateCall {
        args: &args,
        principal: &1,
        connection: ConnectionId(1),
        can_call: true,
        minor_version: 1,
    };
    let random = &mut |bytes: &mut [u8]| world.rng.fill(bytes);
    let created = world.server.create_session(world.now, random, &call);
    let (fore, back) = created.map(|created| (created.fore, created.back)).unwrap();
    assert_eq!((fore.max_operations, fore.max_requests), (8, 64));
    assert_eq!(back, offered, "RFC 8881 §18.36.3");
}

#[test]
fn client_id_in_use_is_not_destroyed() {
    let mut world = World::new(config());
    let peer = world.peer("a", 1);
    let destroy = |world: &mut World| {
        let destroyed = world.server.destroy_client(world.now, peer.client, &1);
        world.settle();
        destroyed
    };
    let open = world.open(&peer, "o", 7, 1, 0).unwrap();
    assert_eq!(destroy(&mut world), Err(Status::ClientIdBusy));
    world
        .server
        .destroy_session(peer.session, &1, peer.connection)
        .unwrap();
    assert_eq!(
        destroy(&mut world),
        Err(Status::ClientIdBusy),
        "a file is open"
    );
    world.close(&peer, 7, open).unwrap();
    assert_eq!(destroy(&mut world), Ok(()));
    assert_eq!(destroy(&mut world), Err(Status::StaleClientId));
    assert!(world.records.is_empty());
    assert_eq!(world.server.entries(), 0);
}

#[test]
fn unconfirmed_client_id_is_forgotten_after_a_lease() {
    let mut world = World::new(config());
    let known = world.exchange("a", 1, 1).unwrap();
    world.pass(LEASE - Duration::from_secs(1));
    assert_eq!(world.server.usage().clients, 1);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.create(known, 1, 1), Err(Status::StaleClientId));
    assert_eq!(world.server.entries(), 0);
}

#[test]
fn address_leaves_client_ids_to_others() {
    let mut config = config();
    config.limits.clients = 10;
    let mut world = World::new(config);
    for owner in ["a", "b", "c", "d", "e"] {
        world.exchange(owner, 1, 1).unwrap();
    }
    assert_eq!(world.exchange("f", 1, 1), Err(Status::Delay));
    assert!(world.exchange("e", 2, 1).is_ok(), "in place of its own");
    assert!(world.exchange("g", 1, 2).is_ok());
    assert_eq!(world.server.usage().clients, 6);
}

#[test]
fn expired_client_makes_room() {
    let mut config = config();
    config.limits.clients = 2;
    let mut world = World::new(config);
    let first = world.peer("a", 1);
    world.open(&first, "o", 7, 1, 0).unwrap();
    world.exchange("b", 1, 2).unwrap();
    assert_eq!(world.exchange("c", 1, 3), Err(Status::Delay));
    assert_eq!(world.server.usage().clients, 2);
    world.pass(LEASE);
    world.exchange("b", 1, 2).unwrap();
    assert_eq!(world.exchange("c", 1, 3), Err(Status::Delay));
    assert_eq!(world.server.usage().clients, 1, "the expired one went");
    assert!(world.exchange("c", 1, 3).is_ok());
}

#[test]
fn protected_client_id_is_for_its_principal_alone() {
    let mut world = World::new(config());
    let call = ExchangeCall {
        owner: b"a",
        verifier: Verifier([1; 8]),
        principal: &1,
        address: AddressKey(1),
        flags: ExchangeFlags::empty(),
        protection: Some(Default::default()),
    };
    let random = &mut |bytes: &mut [u8]| world.rng.fill(bytes);
    let known = world.server.exchange_id(world.now, random, &call).unwrap();
    let session = world.create(known, 1, 1).unwrap().session;
    let wrong = Err(Status::WrongCredential);
    let (foreign, own) = (ConnectionId(9), ConnectionId(1));
    assert_eq!(world.server.destroy_session(session, &2, own), wrong);
    let not_bound = Err(Status::ConnectionNotBound);
    assert_eq!(
        world.server.destroy_session(session, &1, foreign),
        not_bound
    );
    let peer = Peer {
        client: known.client,
        session,
        connection: foreign,
        next: 1,
    };
    assert_eq!(
        world.sequence(&peer).err(),
        Some(Status::ConnectionNotBound)
    );
    assert_eq!(
        world.server.destroy_client(world.now, known.client, &2),
        wrong
    );
    assert_eq!(world.server.destroy_session(session, &1, own), Ok(()));
    assert_eq!(
        world.server.destroy_client(world.now, known.client, &1),
        Ok(())
    );
}
