//! SEQUENCE, connections and status flags.

use super::*;
use crate::limits::MAX_CONNECTIONS_PER_SESSION;
use bytes::Bytes;
use nfs_proto::v4::Array;
use nfs_proto::v4::security::{CallbackSecurity, GssCallbackHandles, GssService, SysCredential};
use nfs_proto::v4::session::{
    BindConnToSessionArgs, ClientDirection, SequenceStatus, ServerDirection,
};

#[test]
fn reply_that_was_kept_comes_again_on_any_connection() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    let Ok(Sequenced::New(request)) = world.sequence(&peer) else {
        panic!("it is new")
    };
    assert!(matches!(world.sequence(&peer), Ok(Sequenced::InProgress)));
    world
        .server
        .finish(world.now, request, Some(Bytes::from_static(b"reply")));
    world.server.handle_disconnect(peer.connection);
    peer.connection = ConnectionId(2);
    let Ok(Sequenced::Replay(reply)) = world.sequence(&peer) else {
        panic!("it was executed")
    };
    assert_eq!(reply, &b"reply"[..]);
}

#[test]
fn reply_larger_than_the_session_keeps_is_not_kept() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    for (size, is_kept) in [(128, true), (129, false)] {
        let Ok(Sequenced::New(request)) = world.sequence(&peer) else {
            panic!("it is new")
        };
        world
            .server
            .finish(world.now, request, Some(vec![0; size].into()));
        match world.sequence(&peer).unwrap() {
            Sequenced::Replay(reply) => assert!(is_kept && reply.len() == size),
            Sequenced::Uncached(result) => {
                assert!(!is_kept && result.sequence.0 == peer.next);
            }
            other => panic!("{other:?}"),
        }
        peer.next += 1;
    }
}

#[test]
fn request_that_outlives_its_session_is_finished_without_harm() {
    let mut world = World::new(config());
    let peer = world.peer("a", 1);
    let Ok(Sequenced::New(request)) = world.sequence(&peer) else {
        panic!("it is new")
    };
    world
        .server
        .destroy_session(peer.session, &1, peer.connection)
        .unwrap();
    world.server.finish(world.now, request, Some(Bytes::new()));
    let destroyed = world
        .server
        .destroy_session(peer.session, &1, peer.connection);
    assert_eq!(destroyed, Err(Status::BadSession));
}

#[test]
fn request_beyond_the_limits_of_its_session_changes_no_slot() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    let args = world.sequence_args(&peer);
    let mut check = |operations, size, expected| {
        let call = SequenceCall {
            args: &args,
            connection: peer.connection,
            digest: RequestDigest(0),
            operations,
            size,
        };
        assert_eq!(
            world.server.sequence(world.now, &call).err(),
            Some(expected)
        );
    };
    check(9, 100, Status::TooManyOperations);
    check(8, (1 << 16) + 1, Status::RequestTooBig);
    assert!(world.renew(&mut peer).is_ok());
}

#[test]
fn session_ids_are_not_guessed_by_their_index() {
    let mut world = World::new(config());
    let peer = world.peer("a", 1);
    let mut id = peer.session;
    assert_eq!(id.0[..4], [0; 4]);
    id.0[15] ^= 1;
    let guess = Peer {
        session: id,
        ..peer
    };
    assert_eq!(world.sequence(&guess).err(), Some(Status::BadSession));
    id = peer.session;
    id.0[3] = 1;
    let guess = Peer {
        session: id,
        ..peer
    };
    assert_eq!(world.sequence(&guess).err(), Some(Status::BadSession));
}

fn bind(
    world: &mut World,
    peer: &Peer,
    connection: u64,
    direction: ClientDirection,
    can_call: bool,
) -> Result<ServerDirection, Status> {
    let args = BindConnToSessionArgs {
        session: peer.session,
        direction,
        use_rdma: false,
    };
    let connection = ConnectionId(connection);
    let bound = (world.server).bind_connection(&args, &1, connection, can_call);
    bound.map(|bound| bound.direction)
}

#[test]
fn lost_back_channel_is_told_until_another_connection_is_bound() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    let status = |world: &mut World, peer: &mut Peer| world.renew(peer).unwrap().status;
    let down = SequenceStatus::CB_PATH_DOWN | SequenceStatus::CB_PATH_DOWN_SESSION;
    assert!(status(&mut world, &mut peer).is_empty());
    assert_eq!(world.server.callback_paths(peer.client).count(), 1);
    world.server.handle_disconnect(peer.connection);
    assert_eq!(world.server.callback_paths(peer.client).count(), 0);
    peer.connection = ConnectionId(2);
    assert_eq!(status(&mut world, &mut peer), down);
    // Its SEQUENCE bound the connection to the fore channel; now it is the back channel, too.
    let both = ClientDirection::ForeOrBoth;
    assert_eq!(
        bind(&mut world, &peer, 2, both, true),
        Ok(ServerDirection::Both)
    );
    assert!(status(&mut world, &mut peer).is_empty());
    let path = world.server.callback_paths(peer.client).next().unwrap();
    assert_eq!(
        (path.session, path.connection),
        (peer.session, ConnectionId(2))
    );
    assert_eq!(path.program, 0x4000_0000);

    world.server.set_callback_program(peer.session, 5).unwrap();
    let path = world.server.callback_paths(peer.client).next().unwrap();
    assert_eq!(path.program, 5);
    let ended = (world.server).end_callback(world.now, peer.session, CallbackResult::Unknown);
    assert_eq!(ended, Ok(()));
    let fault = SequenceStatus::BACKCHANNEL_FAULT;
    assert_eq!(status(&mut world, &mut peer), fault);
}

#[test]
fn other_session_of_the_client_is_another_path_for_callbacks() {
    let mut world = World::new(config());
    let mut first = world.peer("a", 1);
    let known = world.exchange("a", 1, 1).unwrap();
    world.create(known, 1, 2).unwrap();
    world.server.handle_disconnect(first.connection);
    first.connection = ConnectionId(3);
    let status = world.renew(&mut first).unwrap().status;
    assert_eq!(status, SequenceStatus::CB_PATH_DOWN_SESSION);
}

#[test]
fn connection_is_bound_to_the_channels_that_it_can_have() {
    use ClientDirection::{Back, BackOrBoth, Fore, ForeOrBoth};
    let mut world = World::new(config());
    let peer = world.peer("a", 1);
    let invalid = Err(Status::Invalid);
    let mut check = |connection, direction, can_call, expected| {
        let bound = bind(&mut world, &peer, connection, direction, can_call);
        assert_eq!(bound, expected, "{connection} {direction:?} {can_call}");
    };
    check(2, Fore, true, Ok(ServerDirection::Fore));
    check(2, Fore, true, Ok(ServerDirection::Fore));
    check(2, Back, true, invalid);
    check(3, Back, false, invalid);
    check(3, Back, true, Ok(ServerDirection::Back));
    check(3, Fore, true, invalid);
    check(4, ForeOrBoth, false, Ok(ServerDirection::Fore));
    check(5, ForeOrBoth, true, Ok(ServerDirection::Both));
    check(5, Fore, true, invalid);
    check(6, BackOrBoth, false, invalid);
    check(6, BackOrBoth, true, Ok(ServerDirection::Both));
}

#[test]
fn connections_beyond_the_limit_are_served_and_not_bound() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    for connection in 0..MAX_CONNECTIONS_PER_SESSION as u64 + 10 {
        peer.connection = ConnectionId(100 + connection);
        world.renew(&mut peer).unwrap();
    }
    let both = ClientDirection::ForeOrBoth;
    assert_eq!(bind(&mut world, &peer, 5, both, true), Err(Status::Invalid));
    let bound = MAX_CONNECTIONS_PER_SESSION;
    // Client, owner, address; session, of client, of address; plan, look; record.
    assert_eq!(world.server.entries(), 9 + bound);
    for connection in 0..200 {
        world.server.handle_disconnect(ConnectionId(connection));
    }
    assert_eq!(world.server.entries(), 9);
}

#[test]
fn address_leaves_sessions_to_others() {
    let mut config = config();
    config.limits.sessions = 4;
    let mut world = World::new(config);
    world.peer("a", 1);
    let known = world.exchange("a", 1, 1).unwrap();
    world.create(known, 1, 1).unwrap();
    let again = world.exchange("a", 1, 1).unwrap();
    assert_eq!(world.create(again, 1, 1), Err(Status::NoSpace));
    world.peer("b", 2);
    assert_eq!(world.server.usage().sessions, 3);
}

#[test]
fn client_has_a_bounded_number_of_sessions() {
    let mut world = World::new(config());
    world.peer("a", 1);
    for _ in 1..crate::limits::MAX_SESSIONS_PER_CLIENT {
        let known = world.exchange("a", 1, 1).unwrap();
        world.create(known, 1, 1).unwrap();
    }
    let known = world.exchange("a", 1, 1).unwrap();
    assert_eq!(world.create(known, 1, 1), Err(Status::NoSpace));
}

#[test]
fn lease_is_renewed_by_sequence_and_by_no_failure_of_it() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    for _ in 0..5 {
        world.pass(LEASE - Duration::from_secs(1));
        world.renew(&mut peer).unwrap();
    }
    world.pass(LEASE - Duration::from_secs(1));
    let misordered = Peer {
        next: peer.next + 7,
        ..peer
    };
    assert_eq!(
        world.sequence(&misordered).err(),
        Some(Status::SequenceMisordered)
    );
    world.pass(Duration::from_secs(1));
    assert_eq!(world.renew(&mut peer).err(), Some(Status::BadSession));
    assert_eq!(world.server.entries(), 0, "it had no state that could stay");
}

#[test]
fn calls_that_are_executed_allocate_nothing_here() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    let open = world.open(&peer, "o", 7, 3, 0).unwrap();
    world.renew(&mut peer).unwrap();
    let mut count = || {
        let counted = allocation_counter::measure(|| {
            world.renew(&mut peer).unwrap();
            let (now, client) = (world.now, peer.client);
            let io = world.server.check_io(now, client, &7, open, true);
            assert_eq!(io, Ok(Some(open)));
        });
        counted.count_total
    };
    assert_eq!([count(), count()], [0, 0]);
}

#[test]
fn request_that_takes_longer_than_a_lease_keeps_its_client() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    let Ok(Sequenced::New(request)) = world.sequence(&peer) else {
        panic!("it is new")
    };
    world.pass(LEASE * 3);
    world.server.finish(world.now, request, None);
    peer.next += 1;
    assert!(world.renew(&mut peer).is_ok());
}

#[test]
fn lease_lasts_from_the_end_of_a_request_on() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    let almost = LEASE - Duration::from_secs(1);
    let Ok(Sequenced::New(request)) = world.sequence(&peer) else {
        panic!("it is new")
    };
    world.pass(almost);
    world.server.finish(world.now, request, None);
    world.pass(almost);
    peer.next += 1;
    assert!(world.renew(&mut peer).is_ok(), "RFC 8881 §8.3");
}

#[test]
fn sequence_is_answered_with_its_place() {
    let mut world = World::new(config());
    let peer = world.peer("a", 1);
    for slot in [0, 5, 7] {
        let args = SequenceArgs {
            slot: SlotId(slot),
            highest_slot: SlotId(slot),
            ..world.sequence_args(&peer)
        };
        let call = SequenceCall {
            args: &args,
            connection: peer.connection,
            digest: RequestDigest(1),
            operations: 1,
            size: 100,
        };
        let Ok(Sequenced::New(request)) = world.server.sequence(world.now, &call) else {
            panic!("it is new")
        };
        let result = *request.result();
        assert_eq!(
            (result.session, result.slot, result.sequence),
            (args.session, args.slot, args.sequence)
        );
        assert!(result.highest_slot >= args.highest_slot);
        world.server.finish(world.now, request, None);
    }
}

#[test]
fn callbacks_of_a_session_have_one_place_after_the_other() {
    let mut world = World::new(config());
    let mut peer = world.peer("a", 1);
    let session = peer.session;
    let begin = |world: &mut World| {
        let slot = world.server.begin_callback(session);
        slot.map(|slot| (slot.slot.0, slot.sequence.0))
    };
    let end = |world: &mut World, result| {
        let now = world.now;
        world.server.end_callback(now, session, result).unwrap();
    };
    assert_eq!(begin(&mut world), Some((0, 1)), "RFC 8881 §18.36.4");
    assert_eq!(begin(&mut world), None, "one at a time");
    end(&mut world, CallbackResult::NotExecuted);
    assert_eq!(begin(&mut world), Some((0, 1)));
    world.pass(LEASE - Duration::from_secs(1));
    end(&mut world, CallbackResult::Executed);
    assert_eq!(begin(&mut world), Some((0, 2)));
    world.pass(LEASE - Duration::from_secs(1));
    assert!(
        world.renew(&mut peer).is_ok(),
        "the callback renewed the lease"
    );
    end(&mut world, CallbackResult::Unknown);
    assert_eq!(begin(&mut world), None);
    assert_eq!(world.server.callback_paths(peer.client).count(), 0);
    let status = world.renew(&mut peer).unwrap().status;
    assert_eq!(status, SequenceStatus::BACKCHANNEL_FAULT);
}

#[test]
fn client_is_called_as_it_wants() {
    let mut world = World::new(config());
    let peer = world.peer("a", 1);
    let credential = |world: &World| {
        let path = world.server.callback_paths(peer.client).next();
        path.map(|path| (path.credential, path.minor_version))
    };
    assert_eq!(
        credential(&world),
        Some((CallbackCredential::None, 1)),
        "it listed none"
    );
    let gss = CallbackSecurity::Gss(GssCallbackHandles {
        service: GssService::None,
        from_server: Default::default(),
        from_client: Default::default(),
    });
    let gids = [3, 4];
    let sys = CallbackSecurity::Sys(SysCredential {
        stamp: 5,
        machine_name: nfs_proto::Bytes::new(b"client").unwrap(),
        uid: 1,
        gid: 2,
        gids: Array::new(&gids).unwrap(),
    });
    let expected = SysCallbackCredential {
        stamp: 5,
        machine_name: (*b"client").into(),
        uid: 1,
        gid: 2,
        gids: gids.into(),
    };
    let mut check = |listed: &[CallbackSecurity<'_>], expected: Option<CallbackCredential>| {
        let security = Array::new(listed).unwrap();
        let session = peer.session;
        world
            .server
            .set_callback_security(session, &security)
            .unwrap();
        let found = credential(&world).map(|(credential, _)| credential);
        assert_eq!(found, expected, "{listed:?}");
    };
    let sys_first = Some(CallbackCredential::Sys(Arc::new(expected)));
    check(&[gss, sys, CallbackSecurity::None], sys_first);
    check(
        &[CallbackSecurity::None, sys],
        Some(CallbackCredential::None),
    );
    check(&[gss], None);
}

#[test]
fn request_in_a_slot_is_in_progress_until_it_is_finished() {
    let mut world = World::new(config());
    let peer = world.peer("a", 1);
    let is_in_progress = |world: &World, slot| {
        let server = &world.server;
        server.is_in_progress(peer.session, SlotId(slot))
    };
    assert!(!is_in_progress(&world, 0));
    let Ok(Sequenced::New(request)) = world.sequence(&peer) else {
        panic!("it is new");
    };
    assert!(is_in_progress(&world, 0) && !is_in_progress(&world, 1) && !is_in_progress(&world, 99));
    world.server.finish(world.now, request, None);
    assert!(!is_in_progress(&world, 0));
    let before = world.server.sessions_destroyed();
    world
        .server
        .destroy_session(peer.session, &1, peer.connection)
        .unwrap();
    assert_eq!(world.server.sessions_destroyed(), before + 1);
}

/// A server with few slots: a client of one address has a session with half of them, and clients of other addresses follow.
fn crowded() -> (World, Peer, Vec<Peer>) {
    let limits = Limits {
        slots: 120,
        ..Limits::default()
    };
    let mut world = World::new(Config { limits, ..config() });
    let known = world.exchange("first", 1, 1).unwrap();
    let created = world.create_with(known, 1, 1, attributes(64)).unwrap();
    assert_eq!(created.fore.max_requests, 64);
    let first = Peer {
        client: known.client,
        session: created.session,
        connection: ConnectionId(1),
        next: 1,
    };
    let others = (2..15).map(|n| world.peer(&n.to_string(), n));
    let others = others.collect();
    (world, first, others)
}

#[test]
fn client_with_more_slots_than_its_part_is_told_once_that_others_lack_some() {
    let (mut world, mut first, others) = crowded();
    assert_eq!(world.recalled, [first.session]);
    let target = world.server.recalled_slots(first.session).unwrap();
    for mut other in others {
        let result = world.renew(&mut other).unwrap();
        assert_eq!(result.highest_slot, SlotId(7), "it lacks none");
        assert_eq!(world.server.recalled_slots(other.session), None);
    }
    // It reads the target in three results.
    for (n, highest) in [(0, 63), (1, 63), (2, 63), (3, target.0)] {
        let result = world.renew(&mut first).unwrap();
        let slots = (result.highest_slot.0, result.target_highest_slot);
        assert_eq!(slots, (highest, target), "request {n}");
    }
    assert_eq!(world.server.recalled_slots(first.session), None);
    world.settle();
    assert_eq!(world.recalled, [first.session]);
}

#[test]
fn client_without_a_back_channel_reads_in_its_replies_that_others_lack_slots() {
    let limits = Limits {
        slots: 120,
        ..Limits::default()
    };
    let mut world = World::new(Config { limits, ..config() });
    let known = world.exchange("first", 1, 1).unwrap();
    let created = world.create_with(known, 1, 1, attributes(64)).unwrap();
    world.server.handle_disconnect(ConnectionId(1));
    for n in 2..15 {
        world.peer(&n.to_string(), n);
    }
    assert_eq!(world.recalled, []);
    let mut first = Peer {
        client: known.client,
        session: created.session,
        connection: ConnectionId(1),
        next: 1,
    };
    let result = world.renew(&mut first).unwrap();
    assert!(result.target_highest_slot < result.highest_slot);
}

/// Makes a session of a new client that wants many slots; returns how many it has.
fn slots(world: &mut World, owner: &str, address: u32) -> u32 {
    let known = world.exchange(owner, 1, address).unwrap();
    let wanted = attributes(64);
    let created = world.create_with(known, address, address.into(), wanted);
    created.unwrap().fore.max_requests
}

#[test]
fn address_has_no_more_slots_than_it_leaves_and_its_sessions_share_its_part() {
    let limits = Limits {
        slots: 400,
        ..Limits::default()
    };
    let mut world = World::new(Config { limits, ..config() });
    let of_first: u32 = (0..30).map(|n| slots(&mut world, &n.to_string(), 1)).sum();
    assert!((200..350).contains(&of_first), "{of_first}");
    assert!(slots(&mut world, "other", 2) >= 40);
    assert!(slots(&mut world, "third", 3) >= 16);
}

/// A client of one address that asks for more sessions, and slots for them, than there is room for.
#[test]
fn address_with_many_sessions_leaves_slots_for_those_who_come() {
    let limits = Limits {
        slots: 400,
        ..Limits::default()
    };
    let mut world = World::new(Config { limits, ..config() });
    for n in 0..300 {
        slots(&mut world, &n.to_string(), 1);
    }
    for address in 2..4 {
        let owner = format!("new {address}");
        assert_eq!(slots(&mut world, &owner, address), 64);
    }
}

#[test]
fn slots_that_a_client_does_not_give_back_are_asked_of_others_in_its_place() {
    let limits = Limits {
        slots: 200,
        ..Limits::default()
    };
    let mut world = World::new(Config { limits, ..config() });
    let mut large = [1, 2].map(|n| {
        let known = world.exchange(&n.to_string(), 1, n).unwrap();
        let created = world.create_with(known, n, n.into(), attributes(64));
        let created = created.unwrap();
        assert_eq!(created.fore.max_requests, 64);
        Peer {
            client: known.client,
            session: created.session,
            connection: ConnectionId(n.into()),
            next: 1,
        }
    });
    let mut others: Vec<Peer> = (3..17).map(|n| world.peer(&n.to_string(), n)).collect();
    let [first, second] = large.map(|peer| peer.session);
    assert_eq!(world.recalled, [first]);
    // Both go on to use all slots that they have.
    let mut renew = |world: &mut World| {
        for peer in &mut large {
            let args = SequenceArgs {
                highest_slot: SlotId(63),
                ..world.sequence_args(peer)
            };
            let call = SequenceCall {
                args: &args,
                connection: peer.connection,
                digest: RequestDigest(1),
                operations: 1,
                size: 100,
            };
            let Ok(Sequenced::New(request)) = world.server.sequence(world.now, &call) else {
                panic!("it is new")
            };
            world.server.finish(world.now, request, None);
            peer.next += 1;
        }
        for peer in &mut others {
            world.renew(peer).unwrap();
        }
        world.settle();
    };
    let half = LEASE / 2;
    renew(&mut world);
    world.pass(half);
    renew(&mut world);
    assert_eq!(world.recalled, [first], "it has some time");
    for _ in 0..4 {
        world.pass(half);
        renew(&mut world);
    }
    assert_eq!(world.recalled, [first, second]);
    assert!(world.server.recalled_slots(second).is_some());
    // Nobody is told that the slots are gone, as they are not.
    renew(&mut world);
}
