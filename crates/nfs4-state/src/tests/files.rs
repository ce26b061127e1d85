//! Opens, locks and state ids.

use super::*;
use crate::lock::LockKind;
use nfs_proto::v4::SpecialStateId;
use nfs_proto::v4::lock::LockType::{self, Read, ReadWait, Write, WriteWait};
use nfs_proto::v4::session::SequenceStatus;

const ALL: (u64, u64) = (0, u64::MAX);

fn new(open: StateId, owner: &str) -> Locker<'_> {
    Locker::New {
        open,
        owner: owner.as_bytes(),
    }
}

fn denied_by(result: Result<StateId, LockError>) -> (ClientId, Vec<u8>) {
    match result {
        Err(LockError::Denied(denied)) => (denied.client, denied.owner.to_vec()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn shares_are_granted_as_the_table_has_it() {
    // RFC 8881 §9.7.
    for (access, deny, wants, denies) in (0..256).map(|n| (n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6)) {
        if access == 0 || wants == 0 {
            continue;
        }
        let mut world = World::new(config());
        let [a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
        world.open(&a, "o", 7, access, deny).unwrap();
        let expected = match wants & deny != 0 || denies & access != 0 {
            true => Err(Status::ShareDenied),
            false => Ok(()),
        };
        let case = (access, deny, wants, denies);
        let other = world.open(&b, "o", 7, wants, denies).map(drop);
        assert_eq!(other, expected, "another client: {case:?}");
        if expected.is_err() {
            let own = world.open(&a, "p", 7, wants, denies).map(drop);
            assert_eq!(own, expected, "another owner: {case:?}");
            let same = world.open(&a, "o", 7, wants, denies).map(drop);
            assert_eq!(same, expected, "the same owner: {case:?}");
        }
        assert!(
            world.open(&b, "o", 8, wants, denies).is_ok(),
            "another file"
        );
    }
}

#[test]
fn share_without_access_is_invalid() {
    let mut world = World::new(config());
    let a = world.peer("a", 1);
    assert_eq!(world.open(&a, "o", 7, 0, 0), Err(Status::Invalid));
    assert_eq!(world.open(&a, "o", 7, 0x400, 0), Err(Status::Invalid));
    assert_eq!(world.open(&a, "o", 7, 1, 4), Err(Status::Invalid));
    assert!(
        world.open(&a, "o", 7, 0x401, 0).is_ok(),
        "a wish about a delegation"
    );
}

#[test]
fn opens_of_one_owner_are_one_open() {
    let mut world = World::new(config());
    let a = world.peer("a", 1);
    let first = world.open(&a, "o", 7, 1, 0).unwrap();
    assert_eq!(first.seqid, 1);
    let second = world.open(&a, "o", 7, 2, 0).unwrap();
    assert_eq!((second.seqid, second.other), (2, first.other));
    assert_ne!(world.open(&a, "p", 7, 1, 0).unwrap().other, first.other);
    assert_ne!(world.open(&a, "o", 8, 1, 0).unwrap().other, first.other);
    assert_eq!(world.close(&a, 7, first), Err(Status::OldStateId));
    let invalid = SpecialStateId::Invalid.into();
    assert_eq!(world.close(&a, 7, second), Ok(invalid));
    assert_eq!(world.close(&a, 7, second), Err(Status::BadStateId));
    let again = world.open(&a, "o", 7, 1, 0).unwrap();
    assert_eq!(again.seqid, 1);
    assert_ne!(again.other, first.other);
    assert_eq!(world.released, [(7, second)]);
}

#[test]
fn open_is_downgraded_to_what_some_of_its_opens_had() {
    let check = |opens: &[(u32, u32)], (access, deny), expected: Result<(), Status>| {
        let mut world = World::new(config());
        let a = world.peer("a", 1);
        let mut open = StateId::default();
        for &(access, deny) in opens {
            open = world.open(&a, "o", 7, access, deny).unwrap();
        }
        let [access, deny] = [access, deny];
        let (access, deny) = (
            ShareAccess::from_bits_retain(access),
            ShareDeny::from_bits_retain(deny),
        );
        let downgraded = world.server.downgrade(a.client, &7, open, access, deny);
        let is_next = |state: StateId| assert_eq!(state.seqid, open.seqid + 1);
        assert_eq!(
            downgraded.map(is_next),
            expected,
            "{opens:?} {access:?} {deny:?}"
        );
    };
    let invalid = Err(Status::Invalid);
    check(&[(1, 0), (3, 0)], (1, 0), Ok(()));
    check(&[(1, 0), (3, 0)], (3, 0), Ok(()));
    check(&[(1, 0), (2, 0)], (3, 0), Ok(()));
    check(&[(1, 0), (2, 0)], (2, 0), Ok(()));
    check(&[(3, 0)], (1, 0), invalid);
    check(&[(3, 0)], (0, 0), invalid);
    check(&[(1, 0)], (1, 1), invalid);
    check(&[(1, 2)], (1, 0), invalid);
    check(&[(1, 0), (1, 2)], (1, 0), Ok(()));
}

#[test]
fn downgrade_and_close_let_others_in() {
    let mut world = World::new(config());
    let [a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    world.open(&a, "o", 7, 1, 0).unwrap();
    let open = world.open(&a, "o", 7, 1, 2).unwrap();
    assert_eq!(world.open(&b, "o", 7, 2, 0), Err(Status::ShareDenied));
    let deny = ShareDeny::empty();
    let open = (world.server).downgrade(a.client, &7, open, ShareAccess::READ, deny);
    let open = open.unwrap();
    let second = world.open(&b, "o", 7, 2, 0).unwrap();
    world.close(&b, 7, second).unwrap();
    assert!(world.open(&b, "p", 7, 1, 2).is_ok());
    assert_eq!(world.open(&a, "o", 7, 2, 0), Err(Status::ShareDenied));
    world.close(&a, 7, open).unwrap();
}

#[test]
fn state_ids_are_checked_in_order() {
    let mut world = World::new(config());
    let [a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    let open = world.open(&a, "o", 7, 3, 0).unwrap();
    let open = world.open(&a, "o", 7, 3, 0).map(|_| open).unwrap();
    let at = |seqid| StateId { seqid, ..open };
    let mut other = open;
    other.other[11] ^= 1;
    let mut check = |peer: &Peer, file, state, expected: Result<(), Status>| {
        let io = world.check_io(peer, file, state, true).map(drop);
        assert_eq!(io, expected, "{state:?}");
        if file == 7 {
            let test = world.server.test_state(peer.client, state);
            assert_eq!(test, expected, "{state:?}");
        }
    };
    let bad = Err(Status::BadStateId);
    check(&a, 7, at(0), Ok(()));
    check(&a, 7, at(2), Ok(()));
    check(&a, 7, at(1), Err(Status::OldStateId));
    check(&a, 7, at(3), bad);
    check(&a, 8, at(2), bad);
    check(&b, 7, at(2), bad);
    check(&a, 7, other, bad);
    check(&a, 7, SpecialStateId::Invalid.into(), bad);
    check(&a, 7, SpecialStateId::Current.into(), bad);
    let undefined = StateId {
        seqid: 5,
        other: [0xff; 12],
    };
    check(&a, 7, undefined, bad);
    check(
        &a,
        7,
        StateId {
            seqid: 9,
            other: [0; 12],
        },
        bad,
    );
}

#[test]
fn seqid_wraps_around_to_one() {
    let mut world = World::new(config());
    let a = world.peer("a", 1);
    let open = world.open(&a, "o", 7, 3, 0).unwrap();
    world.server.set_seqid(open, u32::MAX);
    let last = StateId {
        seqid: u32::MAX,
        ..open
    };
    assert_eq!(world.server.test_state(a.client, last), Ok(()));
    assert_eq!(
        world.server.test_state(a.client, open),
        Err(Status::BadStateId)
    );
    let first = world.open(&a, "o", 7, 3, 0).unwrap();
    assert_eq!(first, open);
    assert_eq!(
        world.server.test_state(a.client, last),
        Err(Status::OldStateId)
    );
}

#[test]
fn access_is_that_of_the_open_and_of_special_state_ids_what_others_leave() {
    let mut world = World::new(config());
    let [a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    let reader = world.open(&a, "o", 7, 1, 0).unwrap();
    assert_eq!(world.check_io(&a, 7, reader, false), Ok(Some(reader)));
    assert_eq!(world.check_io(&a, 7, reader, true), Err(Status::OpenMode));
    let writer = world.open(&a, "w", 8, 2, 0).unwrap();
    assert_eq!(
        world.check_io(&a, 8, writer, false),
        Ok(Some(writer)),
        "parts of pages"
    );
    world.open(&b, "o", 7, 1, 2).unwrap();
    world.open(&b, "o", 8, 2, 1).unwrap();
    assert_eq!(world.check_io(&a, 8, writer, false), Err(Status::OpenMode));
    let anonymous = SpecialStateId::Anonymous.into();
    let bypass = SpecialStateId::ReadBypass.into();
    assert_eq!(world.check_io(&a, 7, anonymous, false), Ok(None));
    assert_eq!(world.check_io(&a, 7, anonymous, true), Err(Status::Locked));
    assert_eq!(world.check_io(&a, 8, anonymous, false), Err(Status::Locked));
    assert_eq!(world.check_io(&a, 8, bypass, false), Ok(None));
    assert_eq!(world.check_io(&a, 7, bypass, true), Err(Status::Locked));
    assert_eq!(world.check_io(&a, 9, anonymous, true), Ok(None));
}

#[test]
fn locks_have_a_state_for_each_owner_and_open() {
    let mut world = World::new(config());
    let a = world.peer("a", 1);
    let open = world.open(&a, "o", 7, 3, 0).unwrap();
    let locks = world.lock(&a, 7, new(open, "l"), Write, (0, 10)).unwrap();
    assert_eq!(locks.seqid, 1);
    let same = world.lock(&a, 7, new(open, "l"), Write, (20, 10)).unwrap();
    assert_eq!((same.seqid, same.other), (2, locks.other));
    let existing = Locker::Existing(same);
    let third = world.lock(&a, 7, existing, Read, (0, 5)).unwrap();
    assert_eq!((third.seqid, third.other), (3, locks.other));
    assert_eq!(
        world.lock(&a, 7, existing, Read, (0, 5)),
        Err(Status::OldStateId.into())
    );
    let wrong = world.lock(&a, 7, new(third, "l"), Read, (0, 5));
    assert_eq!(wrong, Err(Status::BadStateId.into()), "not an open");
    let wrong = world.lock(&a, 7, Locker::Existing(open), Read, (0, 5));
    assert_eq!(wrong, Err(Status::BadStateId.into()), "an open");
    assert_eq!(world.check_io(&a, 7, third, true), Ok(Some(open)));
    let unlocked = world.unlock(&a, 7, third, ALL).unwrap();
    assert_eq!((unlocked.seqid, world.server.usage().locks), (4, 0));
    assert_eq!(
        world.server.test_state(a.client, unlocked),
        Ok(()),
        "it stays"
    );
    assert_eq!(world.server.free_state(a.client, unlocked), Ok(()));
    let free = world.server.free_state(a.client, unlocked);
    assert_eq!(free, Err(Status::BadStateId));
}

#[test]
fn lock_needs_the_access_of_its_open() {
    let mut world = World::new(config());
    let a = world.peer("a", 1);
    let reader = world.open(&a, "o", 7, 1, 0).unwrap();
    let writer = world.open(&a, "o", 8, 2, 0).unwrap();
    let mode = Err(Status::OpenMode.into());
    assert_eq!(world.lock(&a, 7, new(reader, "l"), Write, ALL), mode);
    assert_eq!(world.lock(&a, 8, new(writer, "l"), Read, ALL), mode);
    assert!(world.lock(&a, 7, new(reader, "l"), Read, ALL).is_ok());
    assert!(world.lock(&a, 8, new(writer, "l"), Write, ALL).is_ok());
    assert_eq!(
        world.server.usage().states,
        4,
        "nothing is left of the failures"
    );
}

#[test]
fn conflicting_lock_is_named() {
    let mut world = World::new(config());
    let [a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    let open_a = world.open(&a, "o", 7, 3, 0).unwrap();
    let open_b = world.open(&b, "o", 7, 3, 0).unwrap();
    let locks = world
        .lock(&a, 7, new(open_a, "la"), Read, (10, 10))
        .unwrap();
    let denied = world.lock(&b, 7, new(open_b, "lb"), Write, (15, 10));
    let Err(LockError::Denied(denied)) = denied else {
        panic!("{denied:?}")
    };
    assert_eq!((denied.client, &*denied.owner), (a.client, &b"la"[..]));
    let range = (denied.range.first(), denied.range.length());
    assert_eq!((range, denied.kind), ((10, 10), LockKind::Shared));
    assert!(world.lock(&b, 7, new(open_b, "lb"), Read, (15, 10)).is_ok());
    let test = |world: &mut World, peer: &Peer, owner: &str, kind| {
        let range = Range::new(0, u64::MAX).unwrap();
        let (now, owner) = (world.now, owner.as_bytes());
        world
            .server
            .test_lock(now, peer.client, &7, range, kind, owner)
            .is_ok()
    };
    assert!(test(&mut world, &a, "la", LockKind::Shared));
    assert!(
        !test(&mut world, &a, "la", LockKind::Exclusive),
        "b has one"
    );
    assert!(!test(&mut world, &b, "unknown", LockKind::Exclusive));
    world.unlock(&a, 7, locks, ALL).unwrap();
    assert!(test(&mut world, &b, "lb", LockKind::Exclusive), "its own");
    assert!(
        !test(&mut world, &a, "lb", LockKind::Exclusive),
        "another client's name"
    );
}

#[test]
fn close_releases_the_locks_of_its_open_alone() {
    let mut world = World::new(config());
    let a = world.peer("a", 1);
    let first = world.open(&a, "o", 7, 3, 0).unwrap();
    let second = world.open(&a, "p", 7, 3, 0).unwrap();
    let one = world.lock(&a, 7, new(first, "l"), Write, (0, 10)).unwrap();
    let two = world.lock(&a, 7, new(second, "l"), Write, (5, 10)).unwrap();
    assert_ne!(one.other, two.other, "RFC 8881 §9.5");
    world.close(&a, 7, first).unwrap();
    assert_eq!(world.released, [(7, one), (7, first)]);
    assert_eq!(world.server.usage().locks, 1);
    assert_eq!(
        world.server.test_state(a.client, one),
        Err(Status::BadStateId)
    );
    let held = world.server.free_state(a.client, two);
    assert_eq!(held, Err(Status::LocksHeld));
    let held = world.server.free_state(a.client, second);
    assert_eq!(held, Err(Status::LocksHeld));
    world.close(&a, 7, second).unwrap();
    assert_eq!(
        (world.server.usage().locks, world.server.usage().states),
        (0, 0)
    );
}

#[test]
fn waiting_owner_is_told_and_has_its_turn() {
    let mut world = World::new(config());
    let peers = [("a", 1), ("b", 2), ("c", 3)].map(|(owner, n)| world.peer(owner, n));
    let opens = peers.map(|peer| world.open(&peer, "o", 7, 3, 0).unwrap());
    let [a, b, c] = peers;
    let locks = world.lock(&a, 7, new(opens[0], "la"), Write, ALL).unwrap();
    let waits = world.lock(&b, 7, new(opens[1], "lb"), WriteWait, ALL);
    assert_eq!(denied_by(waits), (a.client, b"la".to_vec()));
    let waits = world.lock(&c, 7, new(opens[2], "lc"), ReadWait, ALL);
    assert_eq!(denied_by(waits), (a.client, b"la".to_vec()));
    assert_eq!(world.server.usage().waiters, 2);
    world.unlock(&a, 7, locks, ALL).unwrap();
    assert_eq!(world.told, [(b.client, b"lb".to_vec(), 7)]);
    let waits = world.lock(&c, 7, new(opens[2], "lc"), ReadWait, ALL);
    assert_eq!(
        denied_by(waits),
        (b.client, b"lb".to_vec()),
        "it is b's turn"
    );
    assert!(
        world
            .lock(&b, 7, new(opens[1], "lb"), WriteWait, ALL)
            .is_ok()
    );
    assert_eq!(world.server.usage().waiters, 1);
    world.told.clear();
    world.close(&b, 7, opens[1]).unwrap();
    assert_eq!(world.told, [(c.client, b"lc".to_vec(), 7)]);
    // It no longer wants it.
    world.close(&c, 7, opens[2]).unwrap();
    assert_eq!(world.server.usage().waiters, 0);
}

#[test]
fn lock_that_does_not_wait_ends_the_wait_and_heeds_no_turn() {
    let mut world = World::new(config());
    let peers = [("a", 1), ("b", 2), ("c", 3)].map(|(owner, n)| world.peer(owner, n));
    let opens = peers.map(|peer| world.open(&peer, "o", 7, 3, 0).unwrap());
    let [a, b, c] = peers;
    let locks = world.lock(&a, 7, new(opens[0], "la"), Write, ALL).unwrap();
    denied_by(world.lock(&b, 7, new(opens[1], "lb"), WriteWait, ALL));
    denied_by(world.lock(&c, 7, new(opens[2], "lc"), WriteWait, ALL));
    denied_by(world.lock(&c, 7, new(opens[2], "lc"), Write, ALL));
    assert_eq!(world.server.usage().waiters, 1);
    world.unlock(&a, 7, locks, ALL).unwrap();
    assert_eq!(world.told.len(), 1, "b alone");
    assert!(world.lock(&c, 7, new(opens[2], "lc"), Write, ALL).is_ok());
}

#[test]
fn state_of_an_expired_client_stays_until_it_is_in_the_way() {
    let mut world = World::new(config());
    let [mut a, mut b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    let open = world.open(&a, "o", 7, 3, 2).unwrap();
    world.lock(&a, 7, new(open, "l"), Write, ALL).unwrap();
    let share = world.open(&b, "o", 8, 3, 0).unwrap();
    let expire = |world: &mut World, b: &mut Peer| {
        for _ in 0..2 {
            world.pass(LEASE - Duration::from_secs(1));
            world.renew(b).unwrap();
        }
    };
    expire(&mut world, &mut b);
    assert!(world.renew(&mut a).is_ok(), "nobody wanted what it has");
    assert!(world.check_io(&a, 7, open, true).is_ok());
    assert_eq!(
        world.open(&b, "o", 7, 2, 0),
        Err(Status::ShareDenied),
        "it is back"
    );
    expire(&mut world, &mut b);
    assert_eq!(world.open(&b, "o", 7, 1, 1), Err(Status::Delay));
    assert!(
        !world.records.contains_key(&b"a"[..]),
        "so that it cannot reclaim"
    );
    assert!(world.open(&b, "o", 7, 2, 0).is_ok());
    assert_eq!(world.renew(&mut a).err(), Some(Status::BadSession));
    assert_eq!(
        world.exchange("a", 1, 1).unwrap().flags,
        ExchangeFlags::empty()
    );
    assert!(world.check_io(&b, 8, share, true).is_ok());
}

#[test]
fn nothing_is_granted_before_the_record_of_its_last_holder_is_gone() {
    let mut world = World::new(config());
    let [a, mut b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    world.open(&a, "o", 7, 3, 3).unwrap();
    world.pass(LEASE - Duration::from_secs(1));
    world.renew(&mut b).unwrap();
    world.pass(Duration::from_secs(1));
    let request = OpenRequest {
        client: b.client,
        owner: b"o",
        file: &7,
        access: ShareAccess::READ,
        deny: ShareDeny::empty(),
        reclaims: false,
    };
    let open = |world: &mut World| {
        let random = &mut |bytes: &mut [u8]| world.rng.fill(bytes);
        world.server.open(world.now, random, &request)
    };
    assert_eq!(open(&mut world), Err(Status::Delay));
    assert_eq!(open(&mut world), Err(Status::Delay), "the disk is slow");
    let Some(Demand::Remove(ticket, owner)) = world.server.poll_demand() else {
        panic!("the record is to be removed")
    };
    assert_eq!(*owner, *b"a");
    assert_eq!(open(&mut world), Err(Status::Delay));
    assert!(world.server.poll_demand().is_none());
    world.server.handle_removed(world.now, ticket);
    assert!(open(&mut world).is_ok());
}

#[test]
fn locks_and_denials_of_an_expired_client_give_way_to_each_operation() {
    let wants: [fn(&mut World, &Peer) -> Status; 4] = [
        |world, b| {
            let open = world.open(b, "o", 7, 3, 0).unwrap();
            match world.lock(b, 7, new(open, "l"), Read, (5, 1)) {
                Err(LockError::Status(status)) => status,
                other => panic!("{other:?}"),
            }
        },
        |world, b| {
            let (now, range) = (world.now, Range::ALL);
            let tested = (world.server).test_lock(now, b.client, &7, range, LockKind::Shared, b"l");
            match tested {
                Err(LockError::Status(status)) => status,
                other => panic!("{other:?}"),
            }
        },
        |world, b| {
            let anonymous = SpecialStateId::Anonymous.into();
            world.check_io(b, 8, anonymous, true).unwrap_err()
        },
        |world, _| {
            let (now, range) = (world.now, Range::ALL);
            match world.server.lock_other(now, &7, 5, range, LockKind::Shared) {
                Err(LockError::Status(status)) => status,
                other => panic!("{other:?}"),
            }
        },
    ];
    for wants in wants {
        let mut world = World::new(config());
        let [a, mut b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
        let open = world.open(&a, "o", 7, 3, 0).unwrap();
        world.lock(&a, 7, new(open, "l"), Write, ALL).unwrap();
        world.open(&a, "o", 8, 1, 2).unwrap();
        world.pass(LEASE - Duration::from_secs(1));
        world.renew(&mut b).unwrap();
        world.pass(Duration::from_secs(2));
        assert_eq!(wants(&mut world, &b), Status::Delay);
        world.settle();
        assert_eq!(world.server.usage().locks, 0);
        assert_eq!(world.released.len(), 3);
    }
}

#[test]
fn state_in_nobodys_way_ends_after_the_courtesy() {
    let mut world = World::new(config());
    let a = world.peer("a", 1);
    let open = world.open(&a, "o", 7, 3, 3).unwrap();
    world.lock(&a, 7, new(open, "l"), Write, ALL).unwrap();
    world.pass(LEASE + COURTESY - Duration::from_secs(1));
    assert_eq!(world.server.usage().locks, 1);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.server.entries(), 0);
    assert!(world.records.is_empty());
}

#[test]
fn revoked_state_is_told_until_it_is_freed() {
    let mut world = World::new(config());
    let [mut a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    let open = world.open(&a, "o", 7, 3, 2).unwrap();
    let locks = world.lock(&a, 7, new(open, "l"), Write, ALL).unwrap();
    let kept = world.open(&a, "o", 8, 3, 0).unwrap();
    assert_eq!(world.server.revoke_file(world.now, &7), 2);
    world.settle();
    assert_eq!(world.released.len(), 2);
    let revoked = Err(Status::AdminRevoked);
    assert_eq!(world.server.test_state(a.client, locks), revoked);
    assert_eq!(world.close(&a, 7, open), Err(Status::AdminRevoked));
    assert_eq!(
        world.check_io(&a, 7, newest(open), true),
        Err(Status::AdminRevoked)
    );
    assert_eq!(world.server.test_state(a.client, kept), Ok(()));
    let other = world.open(&b, "o", 7, 3, 3).unwrap();
    assert!(world.lock(&b, 7, new(other, "l"), Write, ALL).is_ok());
    let flag = SequenceStatus::ADMIN_STATE_REVOKED;
    assert_eq!(world.renew(&mut a).unwrap().status, flag);
    assert_eq!(world.server.free_state(a.client, open), Ok(()));
    assert_eq!(world.renew(&mut a).unwrap().status, flag);
    assert_eq!(world.server.free_state(a.client, locks), Ok(()));
    assert!(world.renew(&mut a).unwrap().status.is_empty());
    assert_eq!(
        world.server.test_state(a.client, open),
        Err(Status::BadStateId)
    );
}

#[test]
fn administrator_ends_a_client() {
    let mut world = World::new(config());
    let mut a = world.peer("a", 1);
    world.open(&a, "o", 7, 3, 3).unwrap();
    assert_eq!(world.server.expire_client(world.now, a.client), Ok(()));
    world.settle();
    assert_eq!(world.renew(&mut a).err(), Some(Status::BadSession));
    assert_eq!(world.server.entries(), 0);
    let again = world.server.expire_client(world.now, a.client);
    assert_eq!(again, Err(Status::StaleClientId));
}

#[test]
fn owners_of_other_protocols_share_the_locks() {
    let mut world = World::new(config());
    let a = world.peer("a", 1);
    let open = world.open(&a, "o", 7, 3, 0).unwrap();
    let (now, range) = (world.now, Range::new(0, 10).unwrap());
    let lock =
        |world: &mut World, owner, kind| world.server.lock_other(now, &7, owner, range, kind);
    assert_eq!(lock(&mut world, 5, LockKind::Exclusive), Ok(()));
    assert!(lock(&mut world, 6, LockKind::Shared).is_err());
    let denied = denied_by(world.lock(&a, 7, new(open, "l"), WriteWait, (5, 10)));
    assert_eq!(denied, (ClientId(0), 5_u64.to_be_bytes().to_vec()));
    world.server.unlock_other(now, &7, 5, Range::ALL).unwrap();
    world.settle();
    assert_eq!(world.told, [(a.client, b"l".to_vec(), 7)]);
    world.lock(&a, 7, new(open, "l"), Write, (5, 10)).unwrap();
    assert!(lock(&mut world, 5, LockKind::Shared).is_err());
    world.close(&a, 7, open).unwrap();
    assert_eq!(lock(&mut world, 5, LockKind::Shared), Ok(()));
}

#[test]
fn address_leaves_opens_and_locks_to_others() {
    let mut config = config();
    (config.limits.states, config.limits.locks) = (12, 4);
    let mut world = World::new(config);
    let [a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    let opens: Vec<_> = (0..4)
        .map(|file| world.open(&a, "o", file, 3, 0).unwrap())
        .collect();
    for at in 0..2 {
        world
            .lock(&a, 0, new(opens[0], "l"), Read, (10 * at, 5))
            .unwrap();
    }
    let delay = Err(Status::Delay.into());
    assert_eq!(world.lock(&a, 0, new(opens[0], "l"), Read, (30, 5)), delay);
    assert!(world.open(&a, "o", 5, 3, 0).is_ok());
    assert_eq!(world.open(&a, "o", 6, 3, 0), Err(Status::Delay));
    assert_eq!(world.lock(&a, 1, new(opens[1], "m"), Read, (0, 5)), delay);
    let open = world.open(&b, "o", 6, 3, 0).unwrap();
    assert!(world.lock(&b, 6, new(open, "l"), Read, (0, 5)).is_ok());
    assert!(world.open(&a, "o", 0, 3, 0).is_ok(), "it has that");
    for (file, open) in opens.into_iter().enumerate() {
        world
            .close(&a, u32::try_from(file).unwrap(), newest(open))
            .unwrap();
    }
    assert!(world.open(&a, "o", 6, 3, 0).is_ok());
}

#[test]
fn owners_of_other_protocols_leave_locks_to_clients() {
    let mut config = config();
    config.limits.locks = 4;
    let mut world = World::new(config);
    let a = world.peer("a", 1);
    let open = world.open(&a, "o", 0, 3, 0).unwrap();
    let now = world.now;
    let lock = |world: &mut World, owner| {
        world
            .server
            .lock_other(now, &7, owner, Range::ALL, LockKind::Shared)
    };
    assert_eq!(lock(&mut world, 1), Ok(()));
    assert_eq!(lock(&mut world, 2), Ok(()));
    assert_eq!(lock(&mut world, 3), Err(Status::Delay.into()));
    assert!(world.lock(&a, 0, new(open, "l"), Read, ALL).is_ok());
    world.server.unlock_other(now, &7, 1, Range::ALL).unwrap();
    assert_eq!(lock(&mut world, 3), Ok(()));
}

#[test]
fn address_leaves_waits_to_others() {
    let mut config = config();
    config.limits.waiters = 2;
    let mut world = World::new(config);
    let [a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    let open_a = world.open(&a, "o", 7, 3, 0).unwrap();
    let open_b = world.open(&b, "o", 7, 3, 0).unwrap();
    world.lock(&a, 7, new(open_a, "l"), Write, ALL).unwrap();
    for owner in ["m", "n"] {
        denied_by(world.lock(&a, 7, new(open_a, owner), WriteWait, ALL));
    }
    assert_eq!(world.server.usage().waiters, 1);
    denied_by(world.lock(&b, 7, new(open_b, "l"), WriteWait, ALL));
    assert_eq!(world.server.usage().waiters, 2, "one was left");
    world.close(&b, 7, open_b).unwrap();
    assert_eq!(world.server.usage().waiters, 1);
    world.close(&a, 7, open_a).unwrap();
    assert_eq!(world.server.usage().waiters, 0);
}

#[test]
fn reclaim_is_refused_without_a_restart() {
    let mut world = World::new(config());
    let a = world.new_peer("a", 1);
    let reclaimed = world.open_with(&a, "o", 7, 1, 0, true);
    assert_eq!(reclaimed, Err(Status::NoGrace));
    assert_eq!(
        world.open(&a, "o", 7, 1, 0),
        Err(Status::Grace),
        "RFC 8881 §18.51.3"
    );
    world.server.reclaim_complete(a.client, true).unwrap();
    assert_eq!(
        world.open(&a, "o", 7, 1, 0),
        Err(Status::Grace),
        "of one file system"
    );
    world.complete(&a).unwrap();
    let open = world.open(&a, "o", 7, 1, 0).unwrap();
    let again = world.complete(&a);
    assert_eq!(again, Err(Status::CompleteAlready));
    let lock = world.lock_with(&a, 7, new(open, "l"), Read, ALL, true);
    assert_eq!(lock, Err(Status::NoGrace.into()));
}

#[test]
fn lock_that_the_caller_does_not_permit_changes_nothing() {
    let mut world = World::new(config());
    let a = world.peer("a", 1);
    let open = world.open(&a, "o", 7, 3, 0).unwrap();
    let entries = world.server.entries();
    let veto = || Err(LockError::Status(Status::NoSpace));
    let vetoed = Err(LockError::Status(Status::NoSpace));
    let first = new(open, "l");
    let locked = lock_if(&mut world, &a, first, (0, 10), Write, |state| {
        assert_eq!(state, None);
        veto()
    });
    assert_eq!(locked, vetoed);
    assert_eq!(world.server.entries(), entries, "nothing is left of it");
    let state = lock_if(&mut world, &a, first, (0, 10), Write, |_| Ok(())).unwrap();
    let entries = world.server.entries();
    for locker in [first, Locker::Existing(state)] {
        let locked = lock_if(&mut world, &a, locker, (5, 20), WriteWait, |known| {
            assert_eq!(known, Some(state));
            veto()
        });
        assert_eq!(locked, vetoed);
    }
    assert_eq!(world.server.entries(), entries, "nobody waits");
    let has = |world: &World, state| -> Vec<_> {
        let locks = world.server.locks_of_owner(a.client, state);
        locks
            .map(|(range, kind)| (range.first(), range.last(), kind))
            .collect()
    };
    assert_eq!(has(&world, state), [(0, 9, LockKind::Exclusive)]);
    assert_eq!(has(&world, open), [], "an open has no locks");
}

#[test]
fn caller_is_asked_last() {
    let mut world = World::new(config());
    let [a, b] = [("a", 1), ("b", 2)].map(|(owner, n)| world.peer(owner, n));
    let [of_a, of_b] = [&a, &b].map(|peer| world.open(peer, "o", 7, 1, 0).unwrap());
    world.lock(&a, 7, new(of_a, "l"), Read, ALL).unwrap();
    let never = |_| panic!("something else is in the way");
    let writes = lock_if(&mut world, &b, new(of_b, "l"), ALL, Write, never);
    assert_eq!(writes, Err(Status::OpenMode.into()));
    let stale = newest(of_a);
    let of_other = lock_if(&mut world, &b, new(stale, "l"), ALL, Read, never);
    assert_eq!(of_other, Err(Status::BadStateId.into()));
    let third = world.peer("c", 3);
    let writer = world.open(&third, "o", 7, 2, 0).unwrap();
    denied_by(lock_if(
        &mut world,
        &third,
        new(writer, "l"),
        ALL,
        Write,
        never,
    ));
}

fn lock_if(
    world: &mut World,
    peer: &Peer,
    locker: Locker<'_>,
    (offset, length): (u64, u64),
    kind: LockType,
    permit: impl FnOnce(Option<StateId>) -> Result<(), LockError>,
) -> Result<StateId, LockError> {
    let request = LockRequest {
        client: peer.client,
        file: &7,
        range: Range::new(offset, length)?,
        kind,
        locker,
        reclaims: false,
    };
    let random = &mut |bytes: &mut [u8]| world.rng.fill(bytes);
    world.server.lock_if(world.now, random, &request, permit)
}

#[test]
fn nothing_is_denied_that_is_being_done_with_a_special_state_id() {
    let mut world = World::new(config());
    let peer = world.peer("a", 1);
    let denied = |world: &mut World, file, deny| {
        let open = world.open(&peer, "o", file, 3, deny)?;
        world.close(&peer, file, open).map(drop)
    };
    let before = world.server.entries();
    let [read, write] = [1, 2];
    for (writes, its, other) in [(false, read, write), (true, write, read)] {
        world.server.begin_special_io(&7, writes);
        world.server.begin_special_io(&7, writes);
        assert_eq!(denied(&mut world, 7, its), Err(Status::Delay));
        assert_eq!(denied(&mut world, 7, read | write), Err(Status::Delay));
        assert_eq!(denied(&mut world, 7, 0), Ok(()));
        assert_eq!(denied(&mut world, 7, other), Ok(()));
        assert_eq!(denied(&mut world, 8, its), Ok(()), "another file");
        world.server.end_special_io(&7, writes);
        assert_eq!(denied(&mut world, 7, its), Err(Status::Delay));
        world.server.end_special_io(&7, writes);
        assert_eq!(denied(&mut world, 7, its), Ok(()));
    }
    assert_eq!(world.server.entries(), before);
}
