//! Changes of directories as operations tell them (`change_info4`).

use super::*;
use nfs_proto::v4::ChangeInfo;
use nfs_proto::v4::directory::{CreateArgs, CreateType, LinkArgs, RemoveArgs, RenameArgs};

fn change(results: &Results) -> v4::ChangeId {
    match results.attributes()[..] {
        [Attribute::Change(change)] => change,
        ref other => panic!("{other:?}"),
    }
}

/// So a client keeps what it knows of the directory.
#[test]
fn changes_of_a_directory_are_atomic_while_nobody_else_changes_it() {
    for site in Site::all() {
        let client = site.client(b"one");
        let now =
            |path: &[&'static str]| change(&client.at(path, vec![get(&[AttributeNumber::Change])]));
        let told = |info: ChangeInfo, before: v4::ChangeId| {
            assert!(info.atomic, "{info:?}");
            assert_eq!(info.before, before);
            assert_ne!(info.after, before);
            info.after
        };
        let opened = |of| client.open(of, ShareAccess::READ).change;
        // The state before has another value at each look, if the kernel has coarse times.
        let first = opened("f");
        assert!(first.atomic && first.before != first.after);
        let change = told(opened("g"), first.after);
        let there = opened("g");
        assert_eq!((there.before, there.after), (change, change));
        let create = |kind, of| {
            ArgOp::Create(CreateArgs {
                kind,
                name: name(of),
                attributes: v4::fattr::Fattr::default(),
            })
        };
        let made = client.at(&[], vec![create(CreateType::Directory, "d")]);
        let ResOp::Create(Ok(made)) = made.last() else {
            panic!("{made:?}");
        };
        let change = told(made.change, change);
        let link = ArgOp::Link(LinkArgs { name: name("l") });
        let found = client.at(&["f"], vec![ArgOp::GetFh]);
        let ResOp::GetFh(Ok(f)) = found.last() else {
            panic!("{found:?}");
        };
        let (f, root) = (put(&f.handle), ArgOp::PutRootFh);
        let to = [f, ArgOp::SaveFh, root, lookup("srv"), lookup("data"), link];
        let linked = client.run(to.into());
        let ResOp::Link(Ok(info)) = linked.last() else {
            panic!("{linked:?}");
        };
        let change = told(info, change);
        let rename = |of, to| {
            ArgOp::Rename(RenameArgs {
                from: name(of),
                to: name(to),
            })
        };
        let renamed = client.at(&[], vec![ArgOp::SaveFh, rename("l", "m")]);
        let ResOp::Rename(Ok(info)) = renamed.last() else {
            panic!("{renamed:?}");
        };
        assert_eq!(info.from, info.to);
        let change = told(info.from, change);
        let renamed = client.at(&[], vec![ArgOp::SaveFh, lookup("d"), rename("m", "m")]);
        let ResOp::Rename(Ok(info)) = renamed.last() else {
            panic!("{renamed:?}");
        };
        let change = told(info.from, change);
        assert!(info.to.atomic && info.to.before != info.to.after);
        let removed = client.at(&[], vec![ArgOp::Remove(RemoveArgs { name: name("g") })]);
        let ResOp::Remove(Ok(info)) = removed.last() else {
            panic!("{removed:?}");
        };
        assert_eq!(told(info, change), now(&[]));
    }
}

/// Linux takes a file for one that was there if both values are the same.
#[test]
fn value_from_before_that_is_not_known_is_another_one() {
    let unknown = crate::fs::Wcc::default();
    let info = convert::change(&unknown);
    assert!(!info.atomic);
    assert_ne!(info.before, info.after);
}
