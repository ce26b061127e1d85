//! The current and the saved handle, their state ids, and what an operation may be used on.

use super::*;
use nfs_proto::v4::directory::{CreateArgs, CreateType, ReadDirArgs, RemoveArgs, RenameArgs};
use nfs_proto::v4::file::{Access, AccessArgs, ReadArgs};
use nfs_proto::v4::open::CloseArgs;
use nfs_proto::v4::security::{SecInfoArgs, SecInfoStyle};
use nfs_proto::v4::{FileType, SpecialStateId, StateId};
use nfs_proto::{Cookie, CookieVerifier};

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);

fn current() -> StateId {
    SpecialStateId::Current.into()
}

fn read(state: StateId) -> ArgOp<'static> {
    ArgOp::Read(ReadArgs {
        state,
        offset: 0,
        count: 9,
    })
}

fn make(kind: CreateType<'static>, of: &'static str) -> ArgOp<'static> {
    ArgOp::Create(CreateArgs {
        kind,
        name: name(of),
        attributes: v4::fattr::Fattr::default(),
    })
}

fn text(text: &'static str) -> CreateType<'static> {
    let text = oncrpc::xdr::Gather::from_elem(text.into(), 1);
    CreateType::Symlink(nfs_proto::Path::from(text))
}

#[test]
fn saved_handle_comes_back_with_its_state_id() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.open("f", BOTH);
        let [directory, file] = [&[][..], &["f"]].map(|path| {
            let found = client.at(path, vec![ArgOp::GetFh]);
            match found.last() {
                ResOp::GetFh(Ok(found)) => found.handle.to_vec(),
                other => panic!("{other:?}"),
            }
        });
        let opens = || open("f", BOTH, ShareDeny::empty());
        let back = vec![
            put(&directory),
            opens(),
            ArgOp::SaveFh,
            ArgOp::PutRootFh,
            ArgOp::RestoreFh,
            read(current()),
        ];
        client.run(back).ok();
        let other = vec![put(&directory), opens(), put(&file), read(current())];
        assert_eq!(client.run(other).status(), Err(Status::BadStateId));
        let nothing = client.run(vec![ArgOp::PutRootFh, ArgOp::RestoreFh]);
        assert_eq!(nothing.status(), Err(Status::NoFileHandle));
    }
}

#[test]
fn state_id_of_a_close_is_of_no_use() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let close = ArgOp::Close(CloseArgs {
        seqid: 7,
        state: current(),
    });
    let opens = open("f", BOTH, ShareDeny::empty());
    let closed = client.at(&[], vec![opens.clone(), close.clone()]);
    let ResOp::Close(Ok(state)) = closed.last() else {
        panic!("{closed:?}");
    };
    assert_eq!(state.special(), Some(SpecialStateId::Invalid));
    let used = client.at(&[], vec![opens, close, read(current())]);
    assert_eq!(used.status(), Err(Status::BadStateId));
    let close = ArgOp::Close(CloseArgs { seqid: 0, state });
    let directory = client.run(vec![ArgOp::PutRootFh, close]);
    assert_eq!(directory.status(), Err(Status::BadStateId));
    let used = client.at(&["f"], vec![read(SpecialStateId::Invalid.into())]);
    assert_eq!(used.status(), Err(Status::BadStateId));
}

#[test]
fn security_is_told_and_takes_the_handle() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.at(&[], vec![make(CreateType::Directory, "d")]).ok();
        let of = |of| ArgOp::SecInfo(SecInfoArgs { name: name(of) });
        let parent = || ArgOp::SecInfoNoName(SecInfoStyle::Parent);
        client.at(&[], vec![of("d")]).ok();
        client.at(&["d"], vec![parent()]).ok();
        for asks in [of("d"), parent()] {
            let lost = client.at(&[], vec![asks, ArgOp::GetFh]);
            assert_eq!(lost.status(), Err(Status::NoFileHandle));
        }
        let absent = client.at(&[], vec![of("e")]);
        assert_eq!(absent.status(), Err(Status::NoEntry));
        let above = client.run(vec![ArgOp::PutRootFh, parent()]);
        assert_eq!(above.status(), Err(Status::NoEntry));
    }
}

#[test]
fn public_handle_is_that_of_the_root() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let [root, public] = [ArgOp::PutRootFh, ArgOp::PutPubFh].map(|put| {
        let found = client.run(vec![put, ArgOp::GetFh]);
        match found.last() {
            ResOp::GetFh(Ok(found)) => found.handle.to_vec(),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(root, public);
}

#[test]
fn operations_on_other_kinds_of_objects_are_refused() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.open("f", BOTH);
        let makes = |kind, name| client.at(&[], vec![make(kind, name)]);
        makes(CreateType::Directory, "d").ok();
        makes(text("d"), "l").ok();
        assert_eq!(
            makes(CreateType::Other(1), "r").status(),
            Err(Status::BadType),
            "a regular file"
        );
        let list = || {
            ArgOp::ReadDir(ReadDirArgs {
                cookie: Cookie(0),
                verifier: CookieVerifier::default(),
                dir_count: 0,
                max_count: 8192,
                wanted: Bitmap::default(),
            })
        };
        let remove = || ArgOp::Remove(RemoveArgs { name: name("x") });
        // RFC 8881 §15.2: only LOOKUP, OPEN and the like tell of a link.
        for at in ["f", "l"] {
            for operation in [list(), remove(), make(CreateType::Fifo, "x")] {
                let refused = client.at(&[at], vec![operation]);
                assert_eq!(refused.status(), Err(Status::NotDirectory), "{at}");
            }
            let rename = ArgOp::Rename(RenameArgs {
                from: name("d"),
                to: name("x"),
            });
            let renamed = client.at(&[], vec![ArgOp::SaveFh, lookup(at), rename]);
            assert_eq!(renamed.status(), Err(Status::NotDirectory), "{at}");
        }
        let anonymous = SpecialStateId::Anonymous.into();
        for (at, status) in [("d", Status::IsDirectory), ("l", Status::Symlink)] {
            let read = client.at(&[at], vec![read(anonymous)]);
            assert_eq!(read.status(), Err(status));
            let opened = client.at(&[], vec![open(at, BOTH, ShareDeny::empty())]);
            assert_eq!(opened.status(), Err(status));
        }
        assert_eq!(
            client.at(&["f"], vec![lookup("x")]).status(),
            Err(Status::NotDirectory)
        );
        assert_eq!(
            client.at(&["l"], vec![lookup("x")]).status(),
            Err(Status::Symlink)
        );
        let text = client.at(&["f"], vec![ArgOp::ReadLink]);
        assert_eq!(text.status(), Err(Status::WrongType));
    }
}

#[test]
fn access_tells_no_more_than_was_asked() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.open("f", BOTH);
        let asks = ArgOp::Access(AccessArgs {
            access: Access::READ,
        });
        let told = client.at(&["f"], vec![asks]);
        let ResOp::Access(Ok(told)) = told.last() else {
            panic!("{told:?}");
        };
        assert_eq!((told.supported, told.access), (Access::READ, Access::READ));
    }
}

#[test]
fn attributes_behind_access_are_those_of_the_object_as_it_is() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.open("f", BOTH);
        let asks = || {
            ArgOp::Access(AccessArgs {
                access: Access::READ,
            })
        };
        let get = || get(&[AttributeNumber::Type, AttributeNumber::Size]);
        let told = client.at(&["f"], vec![asks(), get()]);
        let size = |told: &Results| match told.attributes()[..] {
            [Attribute::Type(kind), Attribute::Size(size)] => (kind, size),
            ref other => panic!("{other:?}"),
        };
        assert_eq!(size(&told), (FileType::Regular, 0));
        let grown = [Attribute::Size(9)];
        let set = ArgOp::SetAttr(v4::file::SetAttrArgs {
            state: StateId::default(),
            attributes: v4::fattr::Fattr::new(&grown).unwrap(),
        });
        let told = client.at(&["f"], vec![asks(), set, get()]);
        assert_eq!(size(&told), (FileType::Regular, 9));
        let told = client.at(&["f"], vec![asks(), ArgOp::LookupP, get()]);
        assert_eq!(told.status(), Err(Status::NotDirectory));
        let told = client.at(&[], vec![asks(), lookup("f"), get()]);
        assert_eq!(size(&told), (FileType::Regular, 9));
    }
}

#[test]
fn names_stay_within_an_export() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    client.open("f", BOTH);
    let found = client.at(&[], vec![ArgOp::GetFh]);
    let ResOp::GetFh(Ok(found)) = found.last() else {
        panic!("{found:?}");
    };
    let rename = ArgOp::Rename(RenameArgs {
        from: name("f"),
        to: name("g"),
    });
    let moved = client.run(vec![
        put(&found.handle),
        ArgOp::SaveFh,
        ArgOp::PutRootFh,
        lookup("srv"),
        lookup("other"),
        rename,
    ]);
    assert_eq!(moved.status(), Err(Status::CrossDevice));
}

#[test]
fn listing_has_no_reserved_cookies_and_no_dots() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.open("f", BOTH);
        let list = |cookie| {
            ArgOp::ReadDir(ReadDirArgs {
                cookie: Cookie(cookie),
                verifier: CookieVerifier::default(),
                dir_count: 0,
                max_count: 8192,
                wanted: Bitmap::default(),
            })
        };
        let listed = client.at(&[], vec![list(0)]);
        let ResOp::ReadDir(Ok(listed)) = listed.last() else {
            panic!("{listed:?}");
        };
        let entries = &listed.entries.0;
        assert!(entries.iter().all(|entry| entry.cookie.0 > 2));
        let names: Vec<_> = entries.iter().map(|entry| entry.name.to_vec()).collect();
        assert_eq!(names, [b"f"]);
        for reserved in [1, 2] {
            let refused = client.at(&[], vec![list(reserved)]);
            assert_eq!(refused.status(), Err(Status::BadCookie));
        }
    }
}
