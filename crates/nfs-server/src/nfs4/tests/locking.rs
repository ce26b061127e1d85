//! Locks of byte ranges.

use super::*;
use nfs_proto::v4::lock::{FreeStateIdArgs, LockTArgs, LockUArgs, TestStateIdArgs};
use nfs_proto::v4::{Array, Refused, StateId};

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);

#[test]
fn lock_keeps_other_clients_out_until_it_is_released() {
    for site in Site::all() {
        let (one, two) = (site.client(b"one"), site.client(b"two"));
        let (mine, theirs) = (one.open("f", BOTH).state, two.open("f", BOTH).state);
        let locked = one.at(&["f"], vec![lock(mine, LockType::Write, 0, 100)]);
        let ResOp::Lock(Ok(locks)) = locked.last() else {
            panic!("{locked:?}");
        };
        let refused = two.at(&["f"], vec![lock(theirs, LockType::Read, 99, 1)]);
        let ResOp::Lock(Err(Refused::Explained(denied))) = refused.last() else {
            panic!("{refused:?}");
        };
        assert_eq!((denied.offset, denied.length), (0, 100));
        assert_eq!(
            (denied.kind, &*denied.owner.owner),
            (LockType::Write, &b"locker"[..])
        );
        two.at(&["f"], vec![lock(theirs, LockType::Read, 100, 1)])
            .ok();
        let tested = two.at(
            &["f"],
            vec![ArgOp::LockT(LockTArgs {
                kind: LockType::Read,
                offset: 0,
                length: u64::MAX,
                owner: StateOwner::default(),
            })],
        );
        assert_eq!(tested.status(), Err(Status::Denied));
        let unlock = ArgOp::LockU(LockUArgs {
            kind: LockType::Write,
            seqid: 0,
            state: locks,
            offset: 0,
            length: u64::MAX,
        });
        one.at(&["f"], vec![unlock]).ok();
        two.at(&["f"], vec![lock(theirs, LockType::Write, 0, 50)])
            .ok();
    }
}

#[test]
fn states_are_tested_and_freed() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let open = client.open("f", BOTH).state;
    let bad = StateId {
        other: [9; 12],
        ..open
    };
    let states = [open, bad];
    let test = ArgOp::TestStateId(TestStateIdArgs {
        states: Array::new(&states).unwrap(),
    });
    let tested = client.run(vec![test]);
    let ResOp::TestStateId(Ok(tested)) = tested.last() else {
        panic!("{tested:?}");
    };
    let statuses: Vec<_> = tested.statuses.iter().collect();
    assert_eq!(statuses, [Ok(()), Err(Status::BadStateId)]);
    let held = client.run(vec![ArgOp::FreeStateId(FreeStateIdArgs { state: open })]);
    assert_eq!(held.status(), Err(Status::LocksHeld));
}

#[test]
fn range_that_is_empty_is_refused() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let open = client.open("f", BOTH).state;
    let locked = client.at(&["f"], vec![lock(open, LockType::Write, 5, 0)]);
    assert_eq!(locked.status(), Err(Status::Invalid));
}
