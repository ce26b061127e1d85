//! Tests of attributes: values by octets, and what holds for every set of attributes.

use super::support::supported;
use super::*;
use crate::fs::{
    self, Abilities, Acl, AclEntry, AclWho, Acls, FileKind, SetAcl, SetAttributes, Space,
};
use nfs_proto::v4::acl::{Ace, AceFlags, AceMask, AceType};
use nfs_proto::v4::locations::ModeUmask;
use nfs_proto::v4::{self, Attribute, AttributeAccess, AttributeNumber, Bitmap, Fattr};
use nfs_proto::v4::{FsId, Principal, SetTime, Status, Time};
use nfs_proto::{FileId, Wire};
use oncrpc::xdr::{Reader, Writer};
use proptest::prelude::*;

const SERVER: ServerValues = ServerValues {
    lease: 90,
    max_read: 1 << 20,
    max_write: 1 << 19,
};

const ALL: Support = Support {
    minor: 2,
    acls: true,
    clones: true,
};

/// The attributes that the Linux client asks for most.
const FULL: [u32; 15] = [1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55];

fn at(seconds: i64, nanos: u32) -> fs::Time {
    fs::Time { seconds, nanos }
}

fn file() -> fs::Attributes {
    fs::Attributes {
        kind: FileKind::Regular,
        mode: 0o644,
        links: 2,
        uid: 1000,
        gid: 100,
        size: 0x1_0000_0005,
        used: 8192,
        device: (0, 0),
        fileid: 77,
        atime: at(1, 2),
        mtime: at(-1, 999_999_999),
        ctime: at(5, 6),
        change: 0x0123_4567_89ab_cdef,
    }
}

/// Owner of the facts in a [`Subject`].
#[derive(Debug)]
struct World {
    file: fs::Attributes,
    abilities: Abilities,
    acls: Acls,
    space: Space,
}

impl World {
    fn new(file: fs::Attributes) -> Self {
        Self {
            file,
            abilities: Abilities {
                max_links: 65_000,
                time_step: 4_000_000,
                clone_block: std::num::NonZeroU32::new(4096),
                ..Abilities::default()
            },
            acls: Acls {
                access: Acl::of_mode(file.mode),
                default: None,
            },
            space: Space {
                total: 6,
                free: 5,
                available: 4,
                total_files: 3,
                free_files: 2,
                available_files: 1,
            },
        }
    }

    fn subject(&self, support: Support) -> Subject<'_> {
        Subject {
            attributes: &self.file,
            fsid: FsId { major: 3, minor: 4 },
            mounted_on: 22,
            handle: &[7; 30],
            abilities: &self.abilities,
            support,
            space: Some(self.space),
            acls: support.acls.then_some(&self.acls),
            server: &SERVER,
            error: Ok(()),
        }
    }
}

fn written(wanted: &Bitmap, subject: &Subject<'_>) -> Vec<u8> {
    let mut w = Writer::default();
    write_attributes(&mut w, wanted, subject);
    w.finish().head().to_vec()
}

fn read(bytes: &[u8]) -> Fattr<'_> {
    let mut r = Reader::new(bytes);
    let fattr = Fattr::parse(&mut r).unwrap();
    r.finish().unwrap();
    fattr
}

/// Attributes as they arrive in a message.
fn sent(attributes: &[Attribute<'_>]) -> Vec<u8> {
    let mut w = Writer::default();
    Fattr::new(attributes).unwrap().write(&mut w);
    w.finish().head().to_vec()
}

fn one(number: AttributeNumber) -> Bitmap {
    Bitmap::of([number as u32])
}

/// The supported attributes that can be read.
fn readable(support: Support) -> Bitmap {
    let all = supported(support);
    let can_read = |&number: &u32| {
        AttributeNumber::new(number).is_some_and(|known| known.access() != AttributeAccess::W)
    };
    Bitmap::of(all.iter().filter(can_read))
}

#[test]
fn attributes_of_a_file_are_written_as_linux_reads_them() {
    let world = World::new(file());
    let bytes = written(&Bitmap::of(FULL), &world.subject(ALL));
    let expected: [&[u8]; 18] = [
        &[0, 0, 0, 2, 0x00, 0x10, 0x01, 0x1a, 0x00, 0xb0, 0xa2, 0x3a],
        &[0, 0, 0, 128],
        // type, change, size
        &[0, 0, 0, 1],
        &[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef],
        &[0, 0, 0, 1, 0, 0, 0, 5],
        // fsid, fileid
        &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4],
        &[0, 0, 0, 0, 0, 0, 0, 77],
        // mode, numlinks
        &[0, 0, 1, 0xa4],
        &[0, 0, 0, 2],
        // owner, owner_group
        &[0, 0, 0, 4, b'1', b'0', b'0', b'0'],
        &[0, 0, 0, 3, b'1', b'0', b'0', 0],
        // rawdev, space_used
        &[0; 8],
        &[0, 0, 0, 0, 0, 0, 0x20, 0],
        // time_access, time_metadata, time_modify
        &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2],
        &[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6],
        &[
            255, 255, 255, 255, 255, 255, 255, 255, 0x3b, 0x9a, 0xc9, 0xff,
        ],
        // mounted_on_fileid
        &[0, 0, 0, 0, 0, 0, 0, 22],
        &[],
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn usual_attributes_are_written_as_they_are_beside_others() {
    let world = World::new(file());
    let subject = world.subject(ALL);
    let usual = Bitmap::of([1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55]);
    for number in usual.iter() {
        let beside = Bitmap::of([number, AttributeNumber::LeaseTime as u32]);
        let alone = written(&Bitmap::of([number]), &subject);
        let both = written(&beside, &subject);
        let of = |bytes: &[u8]| -> Attribute<'static> {
            let mut all = read(bytes.to_vec().leak()).iter().map(Result::unwrap);
            all.find(|value| value.number() as u32 == number).unwrap()
        };
        assert_eq!(of(&alone), of(&both));
    }
    let all = written(&usual, &subject);
    assert_eq!(read(&all).iter().count(), 15);
}

#[test]
fn what_a_mount_asks_for_is_answered() {
    let world = World::new(file());
    let subject = world.subject(ALL);
    let numbers = [0, 2, 5, 6, 13, 16, 17, 75, 86];
    let bytes = written(&Bitmap::of(numbers), &subject);
    let expected = [
        Attribute::SupportedAttrs(supported(ALL)),
        Attribute::FhExpireType(0),
        Attribute::LinkSupport(true),
        Attribute::SymlinkSupport(true),
        Attribute::AclSupport(v4::acl::AclSupport::ALLOW | v4::acl::AclSupport::DENY),
        Attribute::CaseInsensitive(false),
        Attribute::CasePreserving(true),
        Attribute::SuppAttrExclCreat(Bitmap::of([4, 12, 33, 36, 37, 81])),
    ];
    assert_eq!(read(&bytes), Fattr::new(&expected).unwrap());

    let bytes = written(
        &Bitmap::of([10, 27, 30, 31, 51, 62, 65, 76, 77, 82]),
        &subject,
    );
    let expected = [
        Attribute::LeaseTime(90),
        Attribute::MaxFileSize(i64::MAX.unsigned_abs()),
        Attribute::MaxRead(1 << 20),
        Attribute::MaxWrite(1 << 19),
        Attribute::TimeDelta(Time {
            seconds: 0,
            nanoseconds: 4_000_000,
        }),
        Attribute::FsCharsetCap(1),
        Attribute::CloneBlockSize(4096),
        Attribute::XattrSupport(false),
    ];
    assert_eq!(read(&bytes), Fattr::new(&expected).unwrap());

    let bytes = written(&Bitmap::of([21, 22, 23, 42, 43, 44]), &subject);
    let expected = [
        Attribute::FilesAvail(1),
        Attribute::FilesFree(2),
        Attribute::FilesTotal(3),
        Attribute::SpaceAvail(4),
        Attribute::SpaceFree(5),
        Attribute::SpaceTotal(6),
    ];
    assert_eq!(read(&bytes), Fattr::new(&expected).unwrap());
}

#[test]
fn supported_attributes_depend_on_file_system_and_minor_version() {
    let words = |minor, acls| {
        let clones = minor == 2;
        let support = Support {
            minor,
            acls,
            clones,
        };
        supported(support).words().to_vec()
    };
    assert_eq!(words(2, true), [0xfcff_bfff, 0x00f9_be3e, 0x0006_3800]);
    let without = Support {
        clones: false,
        ..ALL
    };
    let without = supported(without).words().to_vec();
    assert_eq!(without, [0xfcff_bfff, 0x00f9_be3e, 0x0006_1800]);
    assert_eq!(words(1, true), [0xfcff_bfff, 0x00f9_be3e, 0x0000_1800]);
    assert_eq!(words(1, false), [0xfcff_8fff, 0x00f9_be3e, 0x0000_1800]);
}

#[test]
fn needs_are_those_of_wanted_attributes() {
    let check = |numbers: &[u32], space, acls| {
        let wanted = Bitmap::of(numbers.iter().copied());
        assert_eq!(
            needs(&wanted),
            Needs {
                space,
                acls,
                handle: false
            },
            "{numbers:?}"
        );
    };
    check(&FULL, false, false);
    check(&[1, 12], false, true);
    for number in [21, 22, 23, 42, 43, 44] {
        check(&[3, number], true, false);
    }
}

#[test]
fn attributes_that_can_only_be_set_cannot_be_read() {
    for number in [48, 54, 63, 70, 72, 74, 81] {
        assert_eq!(
            check_get(&Bitmap::of([1, number])),
            Err(Status::Invalid),
            "{number}"
        );
    }
    let others = (0..256).filter(|number| ![48, 54, 63, 70, 72, 74, 81].contains(number));
    assert_eq!(check_get(&Bitmap::of(others)), Ok(()));
}

#[test]
fn entry_with_an_error_says_no_more_than_that() {
    let world = World::new(file());
    let mut subject = world.subject(ALL);
    subject.error = Err(Status::Access);
    let bytes = written(&readable(ALL), &subject);
    let expected = [
        Attribute::RdattrError(Err(Status::Access)),
        Attribute::MountedOnFileId(FileId(22)),
    ];
    assert_eq!(read(&bytes), Fattr::new(&expected).unwrap());
    let bytes = written(&one(AttributeNumber::RdattrError), &world.subject(ALL));
    assert_eq!(bytes[bytes.len() - 8..], [0, 0, 0, 4, 0, 0, 0, 0]);
}

#[test]
fn list_that_a_message_cannot_have_is_left_out() {
    let mut world = World::new(file());
    let entry = |who, rights| AclEntry { who, rights };
    let users = (0..1021).map(|id| entry(AclWho::User(id), 0));
    let mut entries = Acl::of_mode(0o777).entries().to_vec();
    entries.extend(users.chain([entry(AclWho::Mask, 7)]));
    world.acls.access = Acl::new(entries).unwrap();
    let bytes = written(&Bitmap::of([1, 12]), &world.subject(ALL));
    assert_eq!(read(&bytes).mask(), Bitmap::of([1]));
}

fn change(
    attributes: &[Attribute<'_>],
    purpose: Purpose,
    kind: FileKind,
) -> Result<Changes, Status> {
    changes(&read(&sent(attributes)), purpose, kind, ALL)
}

fn mode_umask(mode: u32, umask: u32) -> Attribute<'static> {
    Attribute::ModeUmask(ModeUmask { mode, umask })
}

#[test]
fn changes_are_read_from_the_attributes_of_a_client() {
    let owner = |name: &'static str| Principal::new(name.as_bytes()).unwrap();
    let time = Time {
        seconds: -3,
        nanoseconds: 4,
    };
    let attributes = [
        Attribute::Size(9),
        Attribute::Mode(0o4755),
        Attribute::Owner(owner("1000")),
        Attribute::OwnerGroup(owner("root@example.org")),
        Attribute::TimeAccessSet(SetTime::ServerTime),
        Attribute::TimeModifySet(SetTime::ClientTime(time)),
    ];
    let expected = Changes {
        set: SetAttributes {
            mode: Some(0o4755),
            umask: 0,
            uid: Some(1000),
            gid: Some(0),
            size: Some(9),
            atime: fs::SetTime::Now,
            mtime: fs::SetTime::To(at(-3, 4)),
        },
        acls: None,
        given: Bitmap::of([4, 33, 36, 37, 48, 54]),
    };
    for purpose in [Purpose::SetAttr, Purpose::Create] {
        let changes = change(&attributes, purpose, FileKind::Regular);
        assert_eq!(changes.as_ref(), Ok(&expected));
    }
    let changes = change(&attributes, Purpose::ExclusiveCreate, FileKind::Regular);
    assert_eq!(
        changes,
        Err(Status::Invalid),
        "both times keep the verifier"
    );
    let changes = change(
        &attributes[..4],
        Purpose::ExclusiveCreate,
        FileKind::Regular,
    );
    assert_eq!(changes.map(|changes| changes.set.size), Ok(Some(9)));
    let nothing = change(&[], Purpose::SetAttr, FileKind::Symlink).unwrap();
    assert_eq!(nothing.set, SetAttributes::default());
    assert!(nothing.given.is_empty());
}

#[test]
fn mode_and_umask_of_a_new_object_are_left_to_the_file_system() {
    for purpose in [Purpose::Create, Purpose::ExclusiveCreate] {
        let changes = change(&[mode_umask(0o2777, 0o022)], purpose, FileKind::Directory).unwrap();
        let set = SetAttributes {
            umask: 0o022,
            ..SetAttributes::mode(0o2777)
        };
        assert_eq!(changes.set, set);
        assert_eq!(changes.given, Bitmap::of([81]));
        let both = [Attribute::Mode(0o644), mode_umask(0o666, 0o022)];
        assert_eq!(
            change(&both, purpose, FileKind::Regular),
            Err(Status::Invalid)
        );
    }
    let changes = change(
        &[mode_umask(0o666, 0o022)],
        Purpose::SetAttr,
        FileKind::Regular,
    );
    assert_eq!(changes, Err(Status::Invalid));
    let minor_1 = Support { minor: 1, ..ALL };
    let bytes = sent(&[mode_umask(0o666, 0o022)]);
    let changes = changes_of(&bytes, Purpose::Create, minor_1);
    assert_eq!(changes, Err(Status::AttributeNotSupported));
}

fn changes_of(bytes: &[u8], purpose: Purpose, support: Support) -> Result<Changes, Status> {
    changes(&read(bytes), purpose, FileKind::Regular, support)
}

#[test]
fn lists_are_changed_where_the_file_system_has_them() {
    let aces = [Ace {
        kind: AceType(0),
        flags: AceFlags::empty(),
        mask: AceMask::READ_DATA,
        who: Principal::new(b"OWNER@").unwrap(),
    }];
    let list = [Attribute::Acl(v4::acl::Acl::new(&aces).unwrap())];
    for (kind, default) in [
        (FileKind::Regular, SetAcl::Keep),
        (FileKind::Directory, SetAcl::Remove),
    ] {
        let changes = change(&list, Purpose::SetAttr, kind).unwrap();
        let acls = changes.acls.unwrap();
        assert_eq!(acls.access, SetAcl::To(Acl::of_mode(0o400)));
        assert_eq!(acls.default, default);
    }
    let without = Support { acls: false, ..ALL };
    let changes = changes_of(&sent(&list), Purpose::SetAttr, without);
    assert_eq!(changes, Err(Status::AttributeNotSupported));
}

#[test]
fn changes_that_cannot_be_are_refused() {
    let check = |attribute: Attribute<'_>, kind, expected| {
        let changes = change(&[attribute], Purpose::SetAttr, kind);
        assert_eq!(changes.map(drop), expected, "{attribute:?}");
    };
    let (regular, directory) = (FileKind::Regular, FileKind::Directory);
    let late = Time {
        seconds: 0,
        nanoseconds: 1_000_000_000,
    };
    let owner = |name: &'static [u8]| Attribute::Owner(Principal::new(name).unwrap());
    check(Attribute::Mode(0o10_0644), regular, Err(Status::Invalid));
    check(
        Attribute::TimeAccessSet(SetTime::ClientTime(late)),
        regular,
        Err(Status::Invalid),
    );
    check(
        Attribute::TimeModifySet(SetTime::ClientTime(late)),
        regular,
        Err(Status::Invalid),
    );
    check(owner(b""), regular, Err(Status::Invalid));
    check(owner(b"alice"), regular, Err(Status::BadOwner));
    check(Attribute::Size(0), directory, Err(Status::WrongType));
    check(
        Attribute::Size(0),
        FileKind::Symlink,
        Err(Status::WrongType),
    );
    // Attributes that clients only get, and attributes that are not supported.
    check(
        Attribute::Change(v4::ChangeId(1)),
        regular,
        Err(Status::Invalid),
    );
    check(Attribute::TimeModify(late), regular, Err(Status::Invalid));
    check(
        Attribute::Hidden(true),
        regular,
        Err(Status::AttributeNotSupported),
    );
    check(
        Attribute::TimeCreate(late),
        regular,
        Err(Status::AttributeNotSupported),
    );
    let new = |kind| change(&[Attribute::Size(0)], Purpose::Create, kind).map(drop);
    assert_eq!(new(regular), Ok(()));
    assert_eq!(new(directory), Err(Status::Invalid));
}

#[test]
fn values_that_are_not_those_of_the_mask_are_malformed() {
    let setattr = |bytes: &[u8]| changes_of(bytes, Purpose::SetAttr, ALL).map(drop);
    let malformed = Err(Status::BadXdr);
    // size without its second half, behind it another word, and an attribute that is not known.
    assert_eq!(
        setattr(&[0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0, 0, 4, 0, 0, 0, 0]),
        malformed
    );
    let longer = [
        0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(setattr(&longer), malformed);
    let unknown = [
        0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(setattr(&unknown), Err(Status::AttributeNotSupported));
    let world = World::new(file());
    let verify = |bytes: &[u8]| same(&read(bytes), &world.subject(ALL));
    assert_eq!(verify(&longer), Err(Status::BadXdr));
    assert_eq!(verify(&unknown), Err(Status::AttributeNotSupported));
}

#[test]
fn values_are_compared_for_verify() {
    let world = World::new(file());
    let check = |attributes: &[Attribute<'_>], expected| {
        let bytes = sent(attributes);
        let found = same(&read(&bytes), &world.subject(ALL));
        assert_eq!(found, expected, "{attributes:?}");
    };
    let owner = |name: &'static [u8]| Attribute::Owner(Principal::new(name).unwrap());
    let time = |nanoseconds| {
        Attribute::TimeAccess(Time {
            seconds: 1,
            nanoseconds,
        })
    };
    check(&[], Ok(true));
    check(
        &[Attribute::Size(0x1_0000_0005), Attribute::Mode(0o644)],
        Ok(true),
    );
    check(&[Attribute::Size(4), Attribute::Mode(0o644)], Ok(false));
    check(&[owner(b"1000")], Ok(true));
    check(&[owner(b"1001")], Ok(false));
    check(&[owner(b"somebody")], Ok(false));
    check(&[time(2)], Ok(true));
    check(&[time(3)], Ok(false));
    check(&[time(1_000_000_000)], Err(Status::Invalid));
    check(&[Attribute::Mode(0o10_0644)], Err(Status::Invalid));
    check(&[Attribute::RdattrError(Ok(()))], Err(Status::Invalid));
    check(
        &[Attribute::TimeModifySet(SetTime::ServerTime)],
        Err(Status::Invalid),
    );
    check(&[mode_umask(0, 0)], Err(Status::Invalid));
    check(
        &[Attribute::Archive(false)],
        Err(Status::AttributeNotSupported),
    );
    let mut without = world.subject(ALL);
    without.space = None;
    let bytes = sent(&[Attribute::SpaceFree(5)]);
    assert_eq!(
        same(&read(&bytes), &without),
        Err(Status::AttributeNotSupported)
    );
}

fn any_time() -> impl Strategy<Value = fs::Time> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| at(seconds, nanos))
}

fn any_world() -> impl Strategy<Value = World> {
    let kind = prop::sample::select(vec![
        FileKind::Regular,
        FileKind::Directory,
        FileKind::BlockDevice,
        FileKind::CharacterDevice,
        FileKind::Symlink,
        FileKind::Socket,
        FileKind::Fifo,
    ]);
    let times = (any_time(), any_time(), any_time());
    let numbers: [_; 4] = std::array::from_fn(|_| any::<u64>());
    let words: [_; 5] = std::array::from_fn(|_| any::<u32>());
    let names = 0..400_u32;
    (kind, 0..0o10000_u32, times, numbers, words, names).prop_map(
        |(kind, mode, (atime, mtime, ctime), [size, used, fileid, change], words, names)| {
            let [links, uid, gid, major, minor] = words;
            let mut world = World::new(fs::Attributes {
                kind,
                mode,
                links,
                uid,
                gid,
                size,
                used,
                device: (major, minor),
                fileid,
                atime,
                mtime,
                ctime,
                change,
            });
            let entry = |who, rights| AclEntry { who, rights };
            let mut entries = world.acls.access.entries().to_vec();
            entries.extend((0..names).map(|at| entry(AclWho::User(u32::MAX - 1 - at), at % 8)));
            entries.push(entry(AclWho::Mask, 7));
            let list = Acl::new(entries).unwrap();
            world.acls.default = (kind == FileKind::Directory && names < 100).then(|| list.clone());
            world.acls.access = list;
            world
        },
    )
}

fn any_support() -> impl Strategy<Value = Support> {
    (1_u32..=2, any::<bool>(), any::<bool>()).prop_map(|(minor, acls, clones)| Support {
        minor,
        acls,
        clones,
    })
}

/// Numbers of attributes in every word of a bitmap.
fn any_wanted() -> impl Strategy<Value = Bitmap> {
    prop_oneof![
        proptest::collection::vec(0_u32..96, 0..64).prop_map(Bitmap::of),
        proptest::collection::vec(0_u32..256, 0..64).prop_map(Bitmap::of),
        Just(Bitmap::of(0..256)),
    ]
}

proptest! {
    #[test]
    fn wanted_attributes_that_are_supported_are_written_within_their_bound(
        world in any_world(),
        support in any_support(),
        wanted in any_wanted(),
    ) {
        let subject = world.subject(support);
        let bytes = written(&wanted, &subject);
        prop_assert!(bytes.len() <= bound(&wanted), "{} > {}", bytes.len(), bound(&wanted));
        let fattr = read(&bytes);
        prop_assert_eq!(fattr.mask(), wanted & readable(support));
        let values: Result<Vec<_>, _> = fattr.iter().collect();
        let values = values.unwrap();
        prop_assert_eq!(values.len(), fattr.mask().iter().count());
        for value in &values {
            let number = value.number();
            let alone = written(&one(number), &subject);
            prop_assert_eq!(read(&alone).iter().next(), Some(Ok(*value)));
        }
        let verified: Vec<_> = values
            .into_iter()
            .filter(|value| value.number() != AttributeNumber::RdattrError)
            .collect();
        prop_assert_eq!(same(&Fattr::new(&verified).unwrap(), &subject), Ok(true));
    }

    #[test]
    fn a_difference_in_one_attribute_is_found(
        one in any_world(),
        other in any_world(),
        number in prop::sample::select(readable(ALL).iter().collect::<Vec<_>>()),
    ) {
        prop_assume!(number != AttributeNumber::RdattrError as u32);
        let wanted = Bitmap::of([number]);
        let bytes = written(&wanted, &one.subject(ALL));
        let differ = bytes != written(&wanted, &other.subject(ALL));
        prop_assert_eq!(same(&read(&bytes), &other.subject(ALL)), Ok(!differ));
    }

    #[test]
    fn octets_of_clients_are_read_or_refused(
        octets in proptest::collection::vec(any::<u8>(), 0..64),
        mask in any_wanted(),
        purpose in prop::sample::select(vec![Purpose::SetAttr, Purpose::Create, Purpose::ExclusiveCreate]),
    ) {
        let mut w = Writer::default();
        (mask & supported(ALL)).write(&mut w);
        w.opaque(&octets);
        let message = w.finish();
        let fattr = read(message.head());
        let _ = same(&fattr, &World::new(file()).subject(ALL));
        if let Ok(changes) = changes(&fattr, purpose, FileKind::Directory, ALL) {
            prop_assert_eq!(changes.given, fattr.mask());
            prop_assert!(changes.set.mode.is_none_or(|mode| mode <= fs::mode::ALL));
        }
    }
}
