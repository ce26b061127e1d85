//! Files: opened, written, read, renamed, removed.

use super::*;
use nfs_proto::Stable;
use nfs_proto::v4::directory::{CreateArgs, CreateType, RemoveArgs, RenameArgs};
use nfs_proto::v4::file::{CommitArgs, ReadArgs, SetAttrArgs, WriteArgs};
use nfs_proto::v4::locations::ModeUmask;
use nfs_proto::v4::open::{CloseArgs, ExclusiveCreate};
use nfs_proto::v4::{SpecialStateId, StateId};

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);

fn write(state: StateId, offset: u64, data: &'static [u8]) -> ArgOp<'static> {
    ArgOp::Write(WriteArgs {
        state,
        offset,
        stable: Stable::Unstable,
        data: data.into(),
    })
}

fn read(state: StateId, offset: u64, count: u32) -> ArgOp<'static> {
    ArgOp::Read(ReadArgs {
        state,
        offset,
        count,
    })
}

fn data(results: &Results) -> (Vec<u8>, bool) {
    match results.last() {
        ResOp::Read(Ok(read)) => (read.data.0.to_vec(), read.eof),
        other => panic!("{other:?}"),
    }
}

#[test]
fn file_that_is_written_is_read() {
    for site in Site::all() {
        let client = site.client(b"one");
        let state = client.open("f", BOTH).state;
        client
            .at(
                &["f"],
                vec![
                    write(state, 0, b"some data"),
                    ArgOp::Commit(CommitArgs {
                        offset: 0,
                        count: 0,
                    }),
                ],
            )
            .ok();
        assert_eq!(
            data(&client.at(&["f"], vec![read(state, 5, 100)])),
            (b"data".to_vec(), true)
        );
        assert_eq!(
            data(&client.at(&["f"], vec![read(state, 0, 4)])),
            (b"some".to_vec(), false)
        );
        let close = ArgOp::Close(CloseArgs { seqid: 0, state });
        client.at(&["f"], vec![close.clone()]).ok();
        let twice = client.at(&["f"], vec![close]);
        assert_eq!(twice.status(), Err(Status::BadStateId));
        let anonymous = SpecialStateId::Anonymous.into();
        assert_eq!(
            data(&client.at(&["f"], vec![read(anonymous, 0, 4)])).0,
            b"some"
        );
    }
}

#[test]
fn current_state_id_is_that_of_the_last_open() {
    for site in Site::all() {
        let client = site.client(b"one");
        let current = StateId::from(SpecialStateId::Current);
        let done = client.at(
            &[],
            vec![
                open("f", BOTH, ShareDeny::empty()),
                write(current, 0, b"x"),
                read(current, 0, 9),
            ],
        );
        assert_eq!(data(&done).0, b"x");
        let lost = client.at(&["f"], vec![read(current, 0, 9)]);
        assert_eq!(lost.status(), Err(Status::BadStateId));
    }
}

#[test]
fn open_for_reading_does_not_allow_to_write() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    client.open("f", BOTH);
    let other = site.client(b"two");
    let state = other.open("f", ShareAccess::READ).state;
    let written = other.at(&["f"], vec![write(state, 0, b"x")]);
    assert_eq!(written.status(), Err(Status::OpenMode));
}

#[test]
fn share_reservations_keep_others_out() {
    let site = Site::in_memory();
    let (one, two) = (site.client(b"one"), site.client(b"two"));
    one.at(&[], vec![open("f", BOTH, ShareDeny::WRITE)]).ok();
    let denied = two.at(&[], vec![open("f", BOTH, ShareDeny::empty())]);
    assert_eq!(denied.status(), Err(Status::ShareDenied));
    two.at(&[], vec![open("f", ShareAccess::READ, ShareDeny::empty())])
        .ok();
}

fn exclusive(verifier: u8) -> ArgOp<'static> {
    let ArgOp::Open(args) = open("x", BOTH, ShareDeny::empty()) else {
        unreachable!()
    };
    ArgOp::Open(OpenArgs {
        how: OpenHow::Create(CreateHow::Exclusive41(ExclusiveCreate {
            verifier: Verifier([verifier; 8]),
            attributes: v4::fattr::Fattr::default(),
        })),
        ..args
    })
}

#[test]
fn exclusive_create_knows_its_own_file() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.at(&[], vec![exclusive(1)]).ok();
        client.at(&[], vec![exclusive(1)]).ok();
        let other = client.at(&[], vec![exclusive(2)]);
        assert_eq!(other.status(), Err(Status::Exist));
    }
}

#[test]
fn umask_is_taken_from_the_mode_of_what_is_made() {
    for site in Site::all() {
        let client = site.client(b"one");
        let wanted = [Attribute::ModeUmask(ModeUmask {
            mode: 0o777,
            umask: 0o027,
        })];
        let attributes = v4::fattr::Fattr::new(&wanted).unwrap();
        let make = |name, how| match open(name, BOTH, ShareDeny::empty()) {
            ArgOp::Open(args) => ArgOp::Open(OpenArgs {
                how: OpenHow::Create(how),
                ..args
            }),
            other => other,
        };
        let exclusive = CreateHow::Exclusive41(ExclusiveCreate {
            verifier: Verifier([1; 8]),
            attributes,
        });
        let directory = ArgOp::Create(CreateArgs {
            kind: CreateType::Directory,
            name: name("d"),
            attributes,
        });
        for made in [
            make("u", CreateHow::Unchecked(attributes)),
            make("g", CreateHow::Guarded(attributes)),
            make("x", exclusive),
            directory,
        ] {
            let made = client.at(&[], vec![made, get(&[AttributeNumber::Mode])]);
            assert_eq!(made.attributes(), [Attribute::Mode(0o750)]);
        }
    }
}

#[test]
fn truncation_of_an_existing_file_is_part_of_its_open() {
    for site in Site::all() {
        let client = site.client(b"one");
        let state = client.open("f", BOTH).state;
        client.at(&["f"], vec![write(state, 0, b"some data")]).ok();
        let ArgOp::Open(args) = open("f", BOTH, ShareDeny::empty()) else {
            unreachable!()
        };
        let size = [Attribute::Size(0)];
        let cut = ArgOp::Open(OpenArgs {
            how: OpenHow::Create(CreateHow::Unchecked(v4::fattr::Fattr::new(&size).unwrap())),
            ..args
        });
        let found = client.at(&[], vec![cut, get(&[AttributeNumber::Size])]);
        assert_eq!(found.attributes(), [Attribute::Size(0)]);
    }
}

#[test]
fn objects_are_made_renamed_and_removed() {
    for site in Site::all() {
        let client = site.client(b"one");
        let make = |kind, of| {
            ArgOp::Create(CreateArgs {
                kind,
                name: name(of),
                attributes: v4::fattr::Fattr::default(),
            })
        };
        client
            .at(
                &[],
                vec![
                    make(CreateType::Directory, "d"),
                    get(&[AttributeNumber::Type]),
                ],
            )
            .ok();
        let taken = client.at(&[], vec![make(CreateType::Directory, "d")]);
        assert_eq!(taken.status(), Err(Status::Exist));
        let link = CreateType::Symlink(nfs_proto::Path::from(oncrpc::xdr::Gather::from_elem(
            "to".into(),
            1,
        )));
        client.at(&[], vec![make(link, "l")]).ok();
        let text = client.at(&["l"], vec![ArgOp::ReadLink]);
        let ResOp::ReadLink(Ok(text)) = text.last() else {
            panic!("{text:?}");
        };
        assert_eq!(text.text.0.to_vec(), b"to");
        let through = client.at(&["l"], vec![lookup("f")]);
        assert_eq!(through.status(), Err(Status::Symlink));
        let rename = ArgOp::Rename(RenameArgs {
            from: name("l"),
            to: name("m"),
        });
        client
            .at(&[], vec![ArgOp::SaveFh, lookup("d"), rename])
            .ok();
        let remove = |of| ArgOp::Remove(RemoveArgs { name: name(of) });
        let full = client.at(&[], vec![remove("d")]);
        assert_eq!(full.status(), Err(Status::NotEmpty));
        client.at(&["d"], vec![remove("m")]).ok();
        client.at(&[], vec![remove("d")]).ok();
        let gone = client.at(&[], vec![remove("d")]);
        assert_eq!(gone.status(), Err(Status::NoEntry));
    }
}

#[test]
fn names_that_cannot_be_are_refused() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    for (bad, status) in [
        ("", Status::Invalid),
        (".", Status::BadName),
        ("..", Status::BadName),
        ("a/b", Status::BadName),
        ("a\0", Status::BadCharacter),
    ] {
        let found = client.at(&[], vec![lookup(bad)]);
        assert_eq!(found.status(), Err(status), "{bad:?}");
    }
}

#[test]
fn attributes_that_are_set_are_told() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.open("f", BOTH);
        let wanted = [Attribute::Size(5), Attribute::Mode(0o600)];
        let set = ArgOp::SetAttr(SetAttrArgs {
            state: SpecialStateId::Anonymous.into(),
            attributes: v4::fattr::Fattr::new(&wanted).unwrap(),
        });
        let done = client.at(
            &["f"],
            vec![set, get(&[AttributeNumber::Size, AttributeNumber::Mode])],
        );
        assert_eq!(done.attributes(), wanted);
    }
}
