//! Extended attributes (RFC 8276).

use super::*;
use nfs_proto::Cookie;
use nfs_proto::v4::ChangeInfo;
use nfs_proto::v4::directory::{CreateArgs, CreateType};
use nfs_proto::v4::file::{Access, AccessArgs, AccessOk};
use nfs_proto::v4::xattr::{ListXattrsArgs, SetXattrArgs, SetXattrOption, XattrArgs, XattrValue};

const XATTRS: Access = Access::XATTR_READ
    .union(Access::XATTR_WRITE)
    .union(Access::XATTR_LIST);

fn set<'a>(option: SetXattrOption, of: &'a str, value: &'a [u8]) -> ArgOp<'a> {
    ArgOp::SetXattr(SetXattrArgs {
        option,
        name: name(of),
        value: XattrValue::new(value).unwrap(),
    })
}

fn value(of: &str) -> ArgOp<'_> {
    ArgOp::GetXattr(XattrArgs { name: name(of) })
}

fn remove(of: &str) -> ArgOp<'_> {
    ArgOp::RemoveXattr(XattrArgs { name: name(of) })
}

fn list(cookie: u64, max_count: u32) -> ArgOp<'static> {
    ArgOp::ListXattrs(ListXattrsArgs {
        cookie: Cookie(cookie),
        max_count,
    })
}

fn access(access: Access) -> ArgOp<'static> {
    ArgOp::Access(AccessArgs { access })
}

#[track_caller]
fn granted(results: &Results) -> AccessOk {
    match results.last() {
        ResOp::Access(Ok(granted)) => granted,
        other => panic!("{other:?}"),
    }
}

/// A client with a file `f`.
fn with_file<'s>(site: &'s Site) -> Client<'s> {
    let client = site.client(b"one");
    client.open("f", ShareAccess::WRITE);
    client
}

#[test]
fn attribute_is_set_and_read_as_the_option_says() {
    for site in Site::all() {
        let client = with_file(&site);
        let run = |operation| client.at(&["f"], vec![operation]);
        let absent = Err(Status::NoXattr);
        assert_eq!(run(value("user.a")).status(), absent);
        let replaced = run(set(SetXattrOption::Replace, "user.a", b"one"));
        assert_eq!(replaced.status(), absent);
        run(set(SetXattrOption::Create, "user.a", b"one")).ok();
        let created = run(set(SetXattrOption::Create, "user.a", b"two"));
        assert_eq!(created.status(), Err(Status::Exist));
        run(set(SetXattrOption::Replace, "user.a", b"two")).ok();
        run(set(SetXattrOption::Either, "user.a", b"three")).ok();
        let found = run(value("user.a"));
        let ResOp::GetXattr(Ok(found)) = found.last() else {
            panic!("{found:?}");
        };
        assert_eq!(&*found.value, b"three");
        run(remove("user.a")).ok();
        assert_eq!(run(remove("user.a")).status(), absent);
    }
}

#[test]
fn change_of_an_attribute_is_one_of_the_file() {
    for site in Site::all() {
        let client = with_file(&site);
        let change = |results: &Results| match results.attributes()[..] {
            [Attribute::Change(change)] => change,
            ref other => panic!("{other:?}"),
        };
        let now = || change(&client.at(&["f"], vec![get(&[AttributeNumber::Change])]));
        let told = |info: ChangeInfo| assert_eq!(info.after, now());
        let before = now();
        let done = client.at(&["f"], vec![set(SetXattrOption::Either, "a", b"1")]);
        let ResOp::SetXattr(Ok(info)) = done.last() else {
            panic!("{done:?}");
        };
        told(info);
        let between = now();
        assert_ne!(between, before);
        let done = client.at(&["f"], vec![remove("a")]);
        let ResOp::RemoveXattr(Ok(info)) = done.last() else {
            panic!("{done:?}");
        };
        told(info);
        assert_ne!(now(), between);
    }
}

#[test]
fn names_are_listed_in_pages() {
    for site in Site::all() {
        let client = with_file(&site);
        let all: Vec<String> = (0..20).map(|number| format!("name{number:02}")).collect();
        for of in &all {
            client
                .at(&["f"], vec![set(SetXattrOption::Create, of, b"")])
                .ok();
        }
        let (mut cookie, mut found) = (0, Vec::new());
        loop {
            let page = client.at(&["f"], vec![list(cookie, 70)]);
            let ResOp::ListXattrs(Ok(page)) = page.last() else {
                panic!("{page:?}");
            };
            assert!(page.names.len() <= 4);
            found.extend(page.names.iter().map(|name| name.to_vec()));
            cookie = page.cookie.0;
            if page.eof {
                break;
            }
        }
        found.sort();
        assert!(
            all.iter()
                .map(String::as_bytes)
                .eq(found.iter().map(Vec::as_slice))
        );
        let none = client.at(&["f"], vec![list(0, 16 + 11)]);
        assert_eq!(none.status(), Err(Status::TooSmall));
    }
}

#[test]
fn file_without_attributes_has_an_empty_list() {
    for site in Site::all() {
        let client = with_file(&site);
        let page = client.at(&["f"], vec![list(0, 8192)]);
        let ResOp::ListXattrs(Ok(page)) = page.last() else {
            panic!("{page:?}");
        };
        assert!(page.eof && page.names.is_empty());
    }
}

#[test]
fn names_and_values_that_cannot_be_are_refused() {
    for site in Site::all() {
        let client = with_file(&site);
        let long = "x".repeat(251);
        for (bad, status) in [
            ("", Status::Invalid),
            ("a\0b", Status::Invalid),
            (long.as_str(), Status::NameTooLong),
        ] {
            for operation in [
                set(SetXattrOption::Either, bad, b"value"),
                value(bad),
                remove(bad),
            ] {
                let refused = client.at(&["f"], vec![operation]);
                assert_eq!(refused.status(), Err(status), "{bad:?}");
            }
        }
        let large = vec![0; (64 << 10) + 1];
        let refused = client.at(&["f"], vec![set(SetXattrOption::Either, "a", &large)]);
        assert_eq!(refused.status(), Err(Status::XattrTooBig));
    }
}

#[test]
fn value_that_exceeds_the_reply_is_too_big() {
    let site = Site::in_memory();
    let client = with_file(&site);
    let large = vec![7; 64 << 10];
    client
        .at(&["f"], vec![set(SetXattrOption::Either, "a", &large)])
        .ok();
    // Each request here asks for its reply to be kept.
    let kept = client.at(&["f"], vec![value("a")]);
    assert_eq!(kept.status(), Err(Status::ReplyTooBigToCache));
    client.sequence.set(client.sequence.get() + 1);
    let path = [ArgOp::PutRootFh, lookup("srv"), lookup("data"), lookup("f")];
    let mut all = vec![client.sequence(client.sequence.get(), false)];
    all.extend(path);
    all.push(value("a"));
    let found = site.call(&client.caller, all);
    let ResOp::GetXattr(Ok(found)) = found.last() else {
        panic!("{found:?}");
    };
    assert_eq!(&*found.value, large);
}

#[test]
fn only_files_and_directories_have_attributes() {
    for site in Site::all() {
        let client = site.client(b"one");
        let make = |kind, of| {
            ArgOp::Create(CreateArgs {
                kind,
                name: name(of),
                attributes: v4::fattr::Fattr::default(),
            })
        };
        client.at(&[], vec![make(CreateType::Fifo, "p")]).ok();
        client.at(&[], vec![make(CreateType::Directory, "d")]).ok();
        for operation in [
            set(SetXattrOption::Either, "a", b"value"),
            value("a"),
            list(0, 100),
            remove("a"),
        ] {
            let refused = client.at(&["p"], vec![operation.clone()]);
            assert_eq!(refused.status(), Err(Status::WrongType));
            client.at(&["d"], vec![operation]).ok();
        }
        let asked = access(XATTRS | Access::READ);
        let of_fifo = granted(&client.at(&["p"], vec![asked]));
        assert_eq!(of_fifo.supported, Access::READ);
        let all = granted(&client.at(&["d"], vec![access(XATTRS)]));
        assert_eq!((all.supported, all.access), (XATTRS, XATTRS));
    }
}

#[test]
fn directories_above_exports_have_no_attributes() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let at_root = |operation| client.run(vec![ArgOp::PutRootFh, operation]);
    let support = at_root(get(&[AttributeNumber::XattrSupport]));
    assert_eq!(support.attributes(), [Attribute::XattrSupport(false)]);
    assert_eq!(at_root(value("a")).status(), Err(Status::NotSupported));
    assert_eq!(at_root(list(0, 100)).status(), Err(Status::NotSupported));
    let set = at_root(set(SetXattrOption::Either, "a", b"value"));
    assert_eq!(set.status(), Err(Status::ReadOnly));
    assert_eq!(granted(&at_root(access(XATTRS))).supported, Access::empty());
    let support = client.at(&[], vec![get(&[AttributeNumber::XattrSupport])]);
    assert_eq!(support.attributes(), [Attribute::XattrSupport(true)]);
}

#[test]
fn rights_are_those_to_read_and_write_the_file() {
    let site = Site::in_memory();
    let client = with_file(&site);
    let mode = [Attribute::Mode(0o640)];
    let set_mode = ArgOp::SetAttr(v4::file::SetAttrArgs {
        state: v4::SpecialStateId::Anonymous.into(),
        attributes: v4::fattr::Fattr::new(&mode).unwrap(),
    });
    client
        .at(
            &["f"],
            vec![set(SetXattrOption::Create, "a", b"value"), set_mode],
        )
        .ok();
    let as_user = |gid, operation| {
        client.sequence.set(client.sequence.get() + 1);
        let mut all = vec![client.sequence(client.sequence.get(), true)];
        all.extend([ArgOp::PutRootFh, lookup("srv"), lookup("data"), lookup("f")]);
        all.push(operation);
        site.call_as(&client.caller, 1000, gid, all)
    };
    let denied = Err(Status::Access);
    // The group may read, and no one else anything.
    as_user(0, value("a")).ok();
    as_user(0, list(0, 100)).ok();
    let of_group = granted(&as_user(0, access(XATTRS)));
    assert_eq!(of_group.access, Access::XATTR_READ | Access::XATTR_LIST);
    assert_eq!(as_user(0, remove("a")).status(), denied);
    let set = |gid| as_user(gid, set(SetXattrOption::Either, "a", b"other"));
    assert_eq!(set(0).status(), denied);
    assert_eq!(set(7).status(), denied);
    assert_eq!(as_user(7, value("a")).status(), denied);
    assert_eq!(as_user(7, list(0, 100)).status(), denied);
    assert_eq!(granted(&as_user(7, access(XATTRS))).access, Access::empty());
}

#[test]
fn minor_version_1_has_no_attributes() {
    let site = Site::in_memory();
    let client = with_file(&site);
    client.sequence.set(client.sequence.get() + 1);
    let mut all = vec![client.sequence(client.sequence.get(), true)];
    all.extend([ArgOp::PutRootFh, lookup("srv"), lookup("data"), lookup("f")]);
    all.extend([access(XATTRS | Access::READ), value("a")]);
    let results = Results::of(match site.programs.call(compound(1, all), &client.caller) {
        Answer::Now(reply) => reply,
        Answer::Deferred(job) => Respond::wait(job).expect("a reply"),
        _ => panic!("COMPOUND waits for nothing else"),
    });
    let (status, all) = results.all();
    assert_eq!(status, Err(Status::IllegalOperation));
    let ResOp::Access(Ok(granted)) = all[all.len() - 2] else {
        panic!("{all:?}");
    };
    assert_eq!(granted.supported, Access::READ);
}
