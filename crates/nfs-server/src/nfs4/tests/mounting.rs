//! The way to an export, as clients go it at a mount.

use super::*;
use nfs_proto::v4::directory::{ReadDirArgs, ReadDirOk};
use nfs_proto::v4::file::{Access, AccessArgs};
use nfs_proto::v4::security::{SecInfo, SecInfoStyle};
use nfs_proto::{Cookie, CookieVerifier};

fn names(results: &Results) -> Vec<String> {
    let ResOp::ReadDir(Ok(ReadDirOk { entries, eof, .. })) = results.last() else {
        panic!("{results:?}");
    };
    assert!(eof);
    let names = entries
        .0
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.name).into_owned());
    names.collect()
}

fn list(wanted: &[AttributeNumber]) -> ArgOp<'static> {
    ArgOp::ReadDir(ReadDirArgs {
        cookie: Cookie(0),
        verifier: CookieVerifier::default(),
        dir_count: 0,
        max_count: 8192,
        wanted: Bitmap::of(wanted.iter().map(|&number| number as u32)),
    })
}

#[test]
fn path_leads_from_the_root_to_an_export() {
    for site in Site::all() {
        let client = site.client(b"one");
        let style = ArgOp::SecInfoNoName(SecInfoStyle::CurrentHandle);
        let security = client.run(vec![ArgOp::PutRootFh, style]);
        let ResOp::SecInfoNoName(Ok(flavors)) = security.last() else {
            panic!("{security:?}");
        };
        assert_eq!(
            flavors.flavors.iter().collect::<Vec<_>>(),
            [SecInfo::Flavor(1)]
        );

        let wanted = [AttributeNumber::Type, AttributeNumber::FsId];
        let root = client.run(vec![ArgOp::PutRootFh, ArgOp::GetFh, get(&wanted)]);
        let directory = Attribute::Type(v4::FileType::Directory);
        let zero = v4::FsId::default();
        assert_eq!(root.attributes(), [directory, Attribute::FsId(zero)]);
        let export = client.at(&[], vec![ArgOp::GetFh, get(&wanted)]);
        let found = export.attributes();
        assert_eq!(found[0], directory);
        assert_ne!(found[1], Attribute::FsId(zero));

        let mut up = vec![ArgOp::LookupP, ArgOp::LookupP];
        up.extend([get(&[AttributeNumber::FsId])]);
        let up = client.at(&[], up);
        assert_eq!(up.attributes(), [Attribute::FsId(zero)]);
        let above = client.run(vec![ArgOp::PutRootFh, ArgOp::LookupP]);
        assert_eq!(above.status(), Err(Status::NoEntry));
    }
}

#[test]
fn directories_above_exports_are_listed_and_cannot_be_changed() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let wanted = [AttributeNumber::Type, AttributeNumber::MountedOnFileId];
    assert_eq!(
        names(&client.run(vec![ArgOp::PutRootFh, list(&wanted)])),
        ["srv"]
    );
    let srv = client.run(vec![ArgOp::PutRootFh, lookup("srv"), list(&wanted)]);
    assert_eq!(names(&srv), ["data", "other"]);
    let remove = ArgOp::Remove(v4::directory::RemoveArgs { name: name("srv") });
    let removed = client.run(vec![ArgOp::PutRootFh, remove]);
    assert_eq!(removed.status(), Err(Status::ReadOnly));
    let access = ArgOp::Access(AccessArgs {
        access: Access::READ | Access::MODIFY,
    });
    let granted = client.run(vec![ArgOp::PutRootFh, access]);
    let ResOp::Access(Ok(granted)) = granted.last() else {
        panic!("{granted:?}");
    };
    assert_eq!(granted.access, Access::READ);
    let absent = client.run(vec![ArgOp::PutRootFh, lookup("etc")]);
    assert_eq!(absent.status(), Err(Status::NoEntry));
}

#[test]
fn root_of_an_export_has_the_number_that_the_directory_above_lists() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let wanted = [AttributeNumber::MountedOnFileId];
    let listed = client.run(vec![ArgOp::PutRootFh, lookup("srv"), list(&wanted)]);
    let ResOp::ReadDir(Ok(listed)) = listed.last() else {
        panic!("{listed:?}");
    };
    let in_list: Vec<_> = listed.entries.0[0]
        .attributes
        .iter()
        .map(Result::unwrap)
        .collect();
    let found = client.at(&[], vec![get(&wanted)]);
    assert_eq!(found.attributes(), in_list);
}

#[test]
fn handle_outlasts_the_compound() {
    for site in Site::all() {
        let client = site.client(b"one");
        let found = client.at(&[], vec![ArgOp::GetFh]);
        let ResOp::GetFh(Ok(handle)) = found.last() else {
            panic!("{found:?}");
        };
        client
            .run(vec![put(&handle.handle), get(&[AttributeNumber::Type])])
            .ok();
        let mut bad = handle.handle.to_vec();
        bad[12] ^= 1;
        assert_eq!(client.run(vec![put(&bad)]).status(), Err(Status::Stale));
    }
}

#[test]
fn operations_need_a_session() {
    let site = Site::in_memory();
    let caller = Caller::new("127.0.0.1:700".parse().unwrap());
    let alone = site.call(&caller, vec![ArgOp::PutRootFh]);
    assert_eq!(alone.status(), Err(Status::OperationNotInSession));
    let two = site.call(&caller, vec![exchange(b"one"), ArgOp::PutRootFh]);
    assert_eq!(two.status(), Err(Status::NotOnlyOperation));
    let client = site.client(b"one");
    let second = client.run(vec![client.sequence(9, false)]);
    assert_eq!(second.status(), Err(Status::SequencePosition));
    let without_handle = client.run(vec![ArgOp::GetFh]);
    assert_eq!(without_handle.status(), Err(Status::NoFileHandle));
    assert!(site.call(&caller, vec![]).all().1.is_empty());
}

#[test]
fn other_minor_versions_are_refused() {
    let site = Site::in_memory();
    let caller = Caller::new("127.0.0.1:700".parse().unwrap());
    for minor in [0, 3] {
        let call = compound(minor, vec![exchange(b"one")]);
        let Answer::Now(reply) = site.programs.call(call, &caller) else {
            panic!("it does not wait");
        };
        let (status, results) = (Results::of(reply).status(), ());
        assert_eq!((status, results), (Err(Status::MinorVersionMismatch), ()));
    }
}

#[test]
fn root_with_an_absent_export_is_listed() {
    let options = ExportOptions::default().with_squash(Squash::None);
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
    let exports = Exports::new(HandleKey::random().unwrap())
        .with("/srv/data", Arc::clone(&fs), options.clone())
        .unwrap()
        .with_absent("/srv/gone", "no disk", options)
        .unwrap();
    let state = Nfs4State::open(Nfs4Settings::default()).unwrap();
    let nfs = Nfs4::new(exports, Pool::new(1 << 20), state);
    let site = Site {
        programs: Programs::new().with(nfs.clone()),
        nfs,
        fs,
        _dir: None,
    };
    let client = site.client(b"one");
    let list = |wanted: &[AttributeNumber]| {
        client.run(vec![ArgOp::PutRootFh, lookup("srv"), list(wanted)])
    };
    // As Linux asks.
    let told = list(&[AttributeNumber::RdattrError, AttributeNumber::FileId]);
    assert_eq!(names(&told), ["data", "gone"]);
    // Others are not to try again for ever.
    let told = list(&[AttributeNumber::MountedOnFileId]);
    assert_eq!(names(&told), ["data", "gone"]);
    assert_eq!(names(&list(&[])), ["data", "gone"]);
    let above = client.run(vec![ArgOp::PutRootFh, list_of_root()]);
    assert_eq!(names(&above), ["srv"]);
    let entered = client.run(vec![ArgOp::PutRootFh, lookup("srv"), lookup("gone")]);
    assert_eq!(entered.status(), Err(Status::Delay));
}

fn list_of_root() -> ArgOp<'static> {
    list(&[AttributeNumber::FileId])
}
