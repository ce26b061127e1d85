//! Space of ranges of files, data and holes (RFC 7862 §15).

use super::*;
use nfs_proto::Stable;
use nfs_proto::v4::copy::{AllocateArgs, SeekArgs, SeekOk, SeekTo};
use nfs_proto::v4::file::{ReadArgs, WriteArgs};
use nfs_proto::v4::{SpecialStateId, StateId};

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);
const MIB: u64 = 1 << 20;

fn special(state: SpecialStateId) -> StateId {
    state.into()
}

fn allocate(state: StateId, offset: u64, length: u64) -> ArgOp<'static> {
    ArgOp::Allocate(AllocateArgs {
        state,
        offset,
        length,
    })
}

fn deallocate(state: StateId, offset: u64, length: u64) -> ArgOp<'static> {
    ArgOp::Deallocate(AllocateArgs {
        state,
        offset,
        length,
    })
}

fn seek(state: StateId, offset: u64, to: SeekTo) -> ArgOp<'static> {
    ArgOp::Seek(SeekArgs { state, offset, to })
}

fn write(state: StateId, offset: u64, data: &'static [u8]) -> ArgOp<'static> {
    ArgOp::Write(WriteArgs {
        state,
        offset,
        stable: Stable::FileSync,
        data: data.into(),
    })
}

#[track_caller]
fn found(results: &Results) -> (u64, bool) {
    match results.last() {
        ResOp::Seek(Ok(SeekOk { eof, offset })) => (offset, eof),
        other => panic!("{other:?}"),
    }
}

/// A server of a local directory: that in memory reserves no space.
fn on_disk() -> Site {
    let [_, local] = Site::all();
    local
}

#[test]
fn space_is_reserved_with_a_state_id_for_writing_or_a_special_one() {
    let site = on_disk();
    let client = site.client(b"one");
    let state = client.open("f", BOTH).state;
    let size = |size| {
        let found = client.at(&["f"], vec![get(&[AttributeNumber::Size])]);
        assert_eq!(found.attributes(), [Attribute::Size(size)]);
    };
    client.at(&["f"], vec![allocate(state, 0, 1)]).ok();
    size(1);
    let anonymous = special(SpecialStateId::Anonymous);
    client.at(&["f"], vec![allocate(anonymous, 10, 90)]).ok();
    size(100);
    let bypass = special(SpecialStateId::ReadBypass);
    client.at(&["f"], vec![allocate(bypass, 0, 50)]).ok();
    size(100);
    let stale = StateId { seqid: 9, ..state };
    let refused = client.at(&["f"], vec![allocate(stale, 0, 1)]);
    assert_eq!(refused.status(), Err(Status::BadStateId));
}

#[test]
fn ranges_are_changed_by_who_may_write_only() {
    for site in Site::all() {
        let (one, two) = (site.client(b"one"), site.client(b"two"));
        one.at(&[], vec![open("f", BOTH, ShareDeny::WRITE)]).ok();
        let state = two.open("f", ShareAccess::READ).state;
        let anonymous = special(SpecialStateId::Anonymous);
        for (state, status) in [(state, Status::OpenMode), (anonymous, Status::Locked)] {
            for operation in [allocate(state, 0, 1), deallocate(state, 0, 1)] {
                let refused = two.at(&["f"], vec![operation]);
                assert_eq!(refused.status(), Err(status));
            }
        }
    }
}

#[test]
fn range_that_is_given_back_is_zero() {
    for site in Site::all() {
        let client = site.client(b"one");
        let state = client.open("f", BOTH).state;
        client.at(&["f"], vec![write(state, 0, &[1; 6000])]).ok();
        client.at(&["f"], vec![deallocate(state, 10, 5000)]).ok();
        let read = ArgOp::Read(ReadArgs {
            state,
            offset: 9,
            count: 6000,
        });
        // A reply of this size is not kept.
        client.sequence.set(client.sequence.get() + 1);
        let sequence = client.sequence(client.sequence.get(), false);
        let way = ["srv", "data", "f"].map(lookup);
        let operations = [sequence, ArgOp::PutRootFh].into_iter().chain(way);
        let results = site.call(&client.caller, operations.chain([read]).collect());
        let ResOp::Read(Ok(read)) = results.last() else {
            panic!("{results:?}");
        };
        let data = read.data.0.to_vec();
        assert_eq!(data.len(), 6000 - 9);
        assert_eq!((data[0], data[5001]), (1, 1));
        assert!(data[1..5001].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    for site in Site::all() {
        let client = site.client(b"one");
        let state = client.open("f", BOTH).state;
        let anonymous = special(SpecialStateId::Anonymous);
        for of in [allocate, deallocate] {
            let empty = client.at(&["f"], vec![of(state, 5, 0)]);
            assert_eq!(empty.status(), Err(Status::Invalid));
            let directory = client.at(&[], vec![of(anonymous, 0, 1)]);
            assert_eq!(directory.status(), Err(Status::WrongType));
        }
        let far = client.at(&["f"], vec![deallocate(state, u64::MAX, 2)]);
        assert_eq!(far.status(), Err(Status::TooBig));
    }
}

#[test]
fn data_and_holes_are_found() {
    for site in Site::all() {
        let client = site.client(b"one");
        let state = client.open("f", BOTH).state;
        client.at(&["f"], vec![write(state, MIB, b"data")]).ok();
        for state in [state, special(SpecialStateId::Anonymous)] {
            let seek = |offset, to| client.at(&["f"], vec![seek(state, offset, to)]);
            assert_eq!(found(&seek(0, SeekTo::Data)), (MIB, false));
            assert_eq!(found(&seek(0, SeekTo::Hole)), (0, false));
            // RFC 7862 §15.11.3: there is a hole at the end of each file.
            assert_eq!(found(&seek(MIB, SeekTo::Hole)), (MIB + 4, true));
            for to in [SeekTo::Data, SeekTo::Hole] {
                let behind = seek(MIB + 5, to);
                assert_eq!(behind.status(), Err(Status::NoDeviceAddress));
            }
        }
    }
}

#[test]
fn data_that_is_not_found_is_the_end_of_the_file() {
    for site in Site::all() {
        let client = site.client(b"one");
        let state = client.open("f", BOTH).state;
        client.at(&["f"], vec![write(state, MIB, b"data")]).ok();
        client
            .at(&["f"], vec![deallocate(state, MIB - 8, 4096)])
            .ok();
        let size = MIB + 4;
        let results = client.at(&["f"], vec![seek(state, 0, SeekTo::Data)]);
        let (offset, eof) = found(&results);
        // Blocks are larger than what was given back, and are zeroed.
        assert!(eof && offset == size || offset <= MIB, "{offset} {eof}");
        let directory = client.at(
            &[],
            vec![seek(special(SpecialStateId::Anonymous), 0, SeekTo::Data)],
        );
        assert_eq!(directory.status(), Err(Status::IsDirectory));
    }
}
