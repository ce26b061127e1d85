//! COPY and CLONE (RFC 7862 §15.2, §15.13).

use super::*;
use nfs_proto::Stable;
use nfs_proto::v4::copy::{CloneArgs, CopyArgs, CopyOk, NetLocation};
use nfs_proto::v4::file::{CommitArgs, ReadArgs, WriteArgs};
use nfs_proto::v4::{Array, SpecialStateId, StateId};

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);

fn anonymous() -> StateId {
    SpecialStateId::Anonymous.into()
}

fn copy_with(states: [StateId; 2], offsets: [u64; 2], count: u64) -> ArgOp<'static> {
    ArgOp::Copy(CopyArgs {
        source_state: states[0],
        destination_state: states[1],
        source_offset: offsets[0],
        destination_offset: offsets[1],
        count,
        consecutive: true,
        synchronous: true,
        source_servers: Array::default(),
    })
}

fn copy(offsets: [u64; 2], count: u64) -> ArgOp<'static> {
    copy_with([anonymous(); 2], offsets, count)
}

fn clone(offsets: [u64; 2], count: u64) -> ArgOp<'static> {
    ArgOp::Clone(CloneArgs {
        source_state: anonymous(),
        destination_state: anonymous(),
        source_offset: offsets[0],
        destination_offset: offsets[1],
        count,
    })
}

/// Returns the handle of a file of the export, or of its root.
fn handle(client: &Client<'_>, path: &[&'static str]) -> Vec<u8> {
    let results = client.at(path, vec![ArgOp::GetFh]);
    match results.last() {
        ResOp::GetFh(Ok(found)) => found.handle.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Does something from one file of the export to another.
fn between(
    client: &Client<'_>,
    [from, to]: [&'static str; 2],
    operations: Vec<ArgOp<'_>>,
) -> Results {
    let (from, to) = (handle(client, &[from]), handle(client, &[to]));
    let mut all = vec![put(&from), ArgOp::SaveFh, put(&to)];
    all.extend(operations);
    client.run(all)
}

#[track_caller]
fn copied(results: &Results) -> CopyOk {
    match results.last() {
        ResOp::Copy(Ok(done)) => done,
        other => panic!("{other:?}"),
    }
}

fn data(client: &Client<'_>, of: &'static str) -> Vec<u8> {
    let read = ArgOp::Read(ReadArgs {
        state: anonymous(),
        offset: 0,
        count: 4096,
    });
    let results = client.at(&[of], vec![read]);
    match results.last() {
        ResOp::Read(Ok(read)) => read.data.0.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// A client with a file `f` that has data, and an empty file `g`.
fn with_files(site: &Site) -> (Client<'_>, [StateId; 2]) {
    let client = site.client(b"one");
    let states = ["f", "g"].map(|of| client.open(of, BOTH).state);
    let write = ArgOp::Write(WriteArgs {
        state: states[0],
        offset: 0,
        stable: Stable::FileSync,
        data: (&b"some data"[..]).into(),
    });
    client.at(&["f"], vec![write]).ok();
    (client, states)
}

#[test]
fn range_is_copied_in_order_before_the_reply() {
    for site in Site::all() {
        let (client, states) = with_files(&site);
        let commit = ArgOp::Commit(CommitArgs {
            offset: 0,
            count: 0,
        });
        let results = between(&client, ["f", "g"], vec![copy_with(states, [5, 2], 4)]);
        let done = copied(&results);
        assert_eq!((done.response.count, done.response.callback), (4, None));
        assert!(done.requirements.consecutive && done.requirements.synchronous);
        assert_eq!(data(&client, "g"), b"\0\0data");
        let results = between(&client, ["f", "g"], vec![copy([0, 0], 0), commit]);
        let ResOp::Commit(Ok(committed)) = results.last() else {
            panic!("{results:?}");
        };
        assert_eq!(committed.verifier, done.response.verifier);
        assert_eq!(data(&client, "g"), b"some data");
        let nothing = between(&client, ["f", "g"], vec![copy([9, 0], 0)]);
        assert_eq!(copied(&nothing).response.count, 0);
    }
}

#[test]
fn large_copy_is_made_in_several_calls() {
    for site in Site::all() {
        let (client, _) = with_files(&site);
        let size = [Attribute::Size(5 << 20)];
        let set = ArgOp::SetAttr(v4::file::SetAttrArgs {
            state: anonymous(),
            attributes: v4::fattr::Fattr::new(&size).unwrap(),
        });
        client.at(&["f"], vec![set]).ok();
        let mut done = 0;
        for count in [4 << 20, 1 << 20] {
            let results = between(&client, ["f", "g"], vec![copy([done, done], 0)]);
            assert_eq!(copied(&results).response.count, count);
            done += count;
        }
        let found = client.at(&["g"], vec![get(&[AttributeNumber::Size])]);
        assert_eq!(found.attributes(), size);
    }
}

#[test]
fn saved_state_id_is_that_of_the_source() {
    let site = Site::in_memory();
    let (client, _) = with_files(&site);
    let current = SpecialStateId::Current.into();
    let root = handle(&client, &[]);
    let done = client.run(vec![
        put(&root),
        open("f", ShareAccess::READ, ShareDeny::empty()),
        ArgOp::SaveFh,
        put(&root),
        open("g", ShareAccess::WRITE, ShareDeny::empty()),
        copy_with([current; 2], [0, 0], 0),
    ]);
    assert_eq!(copied(&done).response.count, 9);
    let lost = between(
        &client,
        ["f", "g"],
        vec![copy_with([current, anonymous()], [0, 0], 0)],
    );
    assert_eq!(lost.status(), Err(Status::BadStateId));
}

#[test]
fn copies_that_cannot_be_are_refused() {
    for site in Site::all() {
        let (client, _) = with_files(&site);
        let refused = |files, operation, status| {
            let done = between(&client, files, vec![operation]);
            assert_eq!(done.status(), Err(status));
        };
        refused(["f", "g"], copy([10, 0], 0), Status::Invalid);
        refused(["f", "g"], copy([5, 0], 5), Status::Invalid);
        refused(["f", "g"], copy([0, u64::MAX], 4), Status::TooBig);
        refused(["f", "f"], copy([0, 4], 4), Status::Invalid);
        let nothing_saved = client.at(&["g"], vec![copy([0, 0], 0)]);
        assert_eq!(nothing_saved.status(), Err(Status::NoFileHandle));
        let from_directory = client.at(&[], vec![ArgOp::SaveFh, lookup("g"), copy([0, 0], 0)]);
        assert_eq!(from_directory.status(), Err(Status::WrongType));
        let to_directory = client.at(
            &["f"],
            vec![ArgOp::SaveFh, ArgOp::PutRootFh, copy([0, 0], 0)],
        );
        assert_eq!(to_directory.status(), Err(Status::WrongType));
        let ArgOp::Copy(args) = copy([0, 0], 0) else {
            unreachable!()
        };
        let servers = [NetLocation::Name(nfs_proto::Bytes::new(b"other").unwrap())];
        let elsewhere = ArgOp::Copy(CopyArgs {
            source_servers: Array::new(&servers).unwrap(),
            ..args
        });
        refused(["f", "g"], elsewhere, Status::NotSupported);
    }
}

#[test]
fn copy_needs_state_ids_to_read_and_to_write() {
    let site = Site::in_memory();
    let (one, _) = with_files(&site);
    let two = site.client(b"two");
    let [read, write] = [ShareAccess::READ, ShareAccess::WRITE];
    let (of_f, of_g) = (two.open("f", read).state, two.open("g", read).state);
    let done = between(&two, ["f", "g"], vec![copy_with([of_f, of_g], [0, 0], 4)]);
    assert_eq!(done.status(), Err(Status::OpenMode));
    let three = site.client(b"three");
    let (of_f, of_g) = (three.open("f", write).state, three.open("g", write).state);
    let done = between(&three, ["g", "f"], vec![copy_with([of_f, of_g], [0, 0], 0)]);
    assert_eq!(done.status(), Err(Status::BadStateId));
    one.at(&[], vec![open("h", BOTH, ShareDeny::READ)]).ok();
    let done = between(&two, ["h", "g"], vec![copy([0, 0], 0)]);
    assert_eq!(done.status(), Err(Status::Locked));
}

#[test]
fn range_is_cloned_where_the_file_system_shares_data() {
    for site in Site::all() {
        let (client, _) = with_files(&site);
        let results = client.at(
            &[],
            vec![get(&[
                AttributeNumber::SupportedAttrs,
                AttributeNumber::CloneBlockSize,
            ])],
        );
        let shares = match results.attributes()[..] {
            [Attribute::SupportedAttrs(all)] => {
                assert!(!all.contains(AttributeNumber::CloneBlockSize as u32));
                false
            }
            [_, Attribute::CloneBlockSize(block)] => block > 0,
            ref other => panic!("{other:?}"),
        };
        let done = between(&client, ["f", "g"], vec![clone([0, 0], 0)]);
        if !shares {
            assert_eq!(done.status(), Err(Status::NotSupported));
            continue;
        }
        done.ok();
        assert_eq!(data(&client, "g"), b"some data");
        let refused = |files, operation| {
            let done = between(&client, files, vec![operation]);
            assert_eq!(done.status(), Err(Status::Invalid));
        };
        refused(["f", "g"], clone([0, 0], 10));
        refused(["f", "g"], clone([10, 0], 0));
        refused(["f", "f"], clone([0, 4], 9));
        let directory = client.at(&[], vec![ArgOp::SaveFh, lookup("g"), clone([0, 0], 0)]);
        assert_eq!(directory.status(), Err(Status::WrongType));
    }
}

#[test]
fn files_of_two_exports_share_nothing() {
    let site = Site::in_memory();
    let (client, _) = with_files(&site);
    let into_other = |operation| {
        let of = |access| open("x", access, ShareDeny::empty());
        client
            .run(vec![
                ArgOp::PutRootFh,
                lookup("srv"),
                lookup("other"),
                of(BOTH),
            ])
            .ok();
        let handle = client.run(vec![
            ArgOp::PutRootFh,
            lookup("srv"),
            lookup("other"),
            lookup("x"),
            ArgOp::GetFh,
        ]);
        let ResOp::GetFh(Ok(found)) = handle.last() else {
            panic!("{handle:?}");
        };
        let all = vec![ArgOp::SaveFh, put(&found.handle), operation];
        client.at(&["f"], all).status()
    };
    assert_eq!(into_other(copy([0, 0], 0)), Err(Status::OffloadDenied));
    assert_eq!(into_other(clone([0, 0], 0)), Err(Status::CrossDevice));
}
