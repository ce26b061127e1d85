//! Bytes put down by hand from RFC 1813 and RFC 4506.

use super::bytes;
use crate::limits::{MAX_FILENAME, MAX_HANDLE};
use crate::results::{self, Res};
use crate::*;
use oncrpc::xdr::{Error, Reader};

/// Bytes from hexadecimal digits; blanks are for reading.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn lookup_has_a_handle_and_a_padded_name() {
    let args = args::Lookup {
        what: args::Place {
            dir: FileHandle::new(&[1, 2, 3, 4, 5]).unwrap(),
            name: Filename::new(b"readme").unwrap(),
        },
    };
    let expected = "00000005 01020304 05000000  00000006 72656164 6d650000";
    assert_eq!(bytes(&args), hex(expected));
}

#[test]
fn write_says_its_length_twice() {
    let args = args::Write {
        file: FileHandle::new(&[0xab; 4]).unwrap(),
        offset: 0x1_0000_0002,
        count: 3,
        stable: Stable::DataSync,
        data: (&b"xyz"[..]).into(),
    };
    let expected = "00000004 abababab  00000001 00000002  00000003  00000001  00000003 78797a00";
    assert_eq!(bytes(&args), hex(expected));
}

#[test]
fn sattr3_switches_each_field() {
    let set = SetAttributes {
        mode: Some(0o644),
        size: Some(0),
        mtime: SetTime::ClientTime(NfsTime {
            seconds: 1,
            nanoseconds: 2,
        }),
        atime: SetTime::ServerTime,
        ..SetAttributes::default()
    };
    let expected = "00000001 000001a4  00000000  00000000  00000001 0000000000000000
                    00000001  00000002 00000001 00000002";
    assert_eq!(bytes(&set), hex(expected));
}

#[test]
fn exclusive_create_has_a_verifier_and_no_attributes() {
    let how = args::CreateHow::Exclusive(CreateVerifier(*b"verifier"));
    assert_eq!(bytes(&how), hex("00000002 7665726966696572"));
}

#[test]
fn mknod_of_types_with_their_own_procedure_has_only_the_type() {
    for (node, number) in [
        (args::Node::Regular, 1),
        (args::Node::Directory, 2),
        (args::Node::Symlink, 5),
    ] {
        let bytes = bytes(&node);
        assert_eq!(bytes, [0, 0, 0, number]);
        assert_eq!(args::Node::parse(&mut Reader::new(&bytes)), Ok(node));
    }
}

#[test]
fn failed_read_has_a_status_and_optional_attributes() {
    type ReadRes<'a> = Res<results::Read<'a>, Option<Attributes>>;
    let stale: ReadRes<'_> = Err(Status::Stale.into());
    let expected = hex("00000046 00000000");
    assert_eq!(bytes(&stale), expected);
    assert_eq!(ReadRes::parse(&mut Reader::new(&expected)), Ok(stale));
}

#[test]
fn readdir_is_a_linked_list() {
    let list = hex("00000000  00000000  6162636465666768
         00000001 000000000000000a 00000001 61000000 0000000000000001
         00000001 000000000000000b 00000002 62630000 0000000000000002
         00000000 00000001");
    let mut r = Reader::new(&list);
    let read = Res::<results::ReadDir<'_>, Option<Attributes>>::parse(&mut r)
        .unwrap()
        .unwrap();
    r.finish().unwrap();
    let entries: Vec<_> = read
        .entries
        .0
        .iter()
        .map(|entry| (entry.file_id.0, entry.name.get(), entry.cookie.0))
        .collect();
    assert_eq!(entries, [(10, &b"a"[..], 1), (11, &b"bc"[..], 2)]);
    assert!(read.eof);
}

#[test]
fn mounted_directory_has_a_handle_and_flavours() {
    let mounted: Result<mount::Mounted, mount::MountStatus> = Ok(mount::Mounted {
        handle: FileHandle::new(b"root").unwrap(),
        flavors: vec![1, 0],
    });
    let expected = "00000000  00000004 726f6f74  00000002 00000001 00000000";
    assert_eq!(bytes(&mounted), hex(expected));
}

#[test]
fn one_byte_past_each_limit_is_refused() {
    #[track_caller]
    fn check<'a, T: Wire<'a> + std::fmt::Debug>(length: &'a [u8; 4], limit: u32) {
        let error = Error::TooLong {
            len: limit + 1,
            limit,
        };
        assert_eq!(T::parse(&mut Reader::new(length)).unwrap_err(), error);
    }
    check::<FileHandle>(&65u32.to_be_bytes(), MAX_HANDLE);
    check::<Filename<'_>>(&4097u32.to_be_bytes(), MAX_FILENAME);
    check::<Path<'_>>(&4097u32.to_be_bytes(), limits::MAX_PATH);
    check::<Data<'_>>(
        &(4u32 << 20).wrapping_add(1).to_be_bytes(),
        limits::MAX_DATA,
    );
    check::<mount::DirPath<'_>>(&1025u32.to_be_bytes(), limits::MAX_EXPORT_PATH);
    check::<mount::HostName<'_>>(&256u32.to_be_bytes(), limits::MAX_MOUNT_NAME);
}

#[test]
fn values_longer_than_their_limit_cannot_be_constructed() {
    assert!(FileHandle::new(&[0; 64]).is_some());
    assert!(FileHandle::new(&[0; 65]).is_none());
    assert!(Filename::new(&[b'n'; 4096]).is_some());
    assert!(Filename::new(&[b'n'; 4097]).is_none());
    assert!(mount::DirPath::new(&[b'p'; 1025]).is_none());
}

#[test]
fn list_past_its_limit_is_refused() {
    let ones = [0, 0, 0, 1].repeat(8);
    let error = Error::TooLong { len: 3, limit: 2 };
    assert_eq!(List::<u32, 2>::parse(&mut Reader::new(&ones)), Err(error));
}

#[test]
fn values_outside_their_enumeration_are_refused() {
    let error = Error::NotInEnum {
        value: 3,
        of: "stable_how",
    };
    assert_eq!(Stable::parse(&mut Reader::new(&[0, 0, 0, 3])), Err(error));
    let error = Error::NotInEnum {
        value: 3,
        of: "nfsstat3",
    };
    assert_eq!(
        Res::<(), ()>::parse(&mut Reader::new(&[0, 0, 0, 3])),
        Err(error)
    );
}

#[test]
fn handles_of_different_length_are_different() {
    assert_ne!(FileHandle::new(&[0; 3]), FileHandle::new(&[0; 4]));
    assert_eq!(FileHandle::new(&[0; 65]), None);
    assert_eq!(FileHandle::new(b"").map(|handle| handle.len()), Some(0));
}

#[test]
fn times_out_of_range_are_clamped() {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};
    let there_and_back = |time: SystemTime| SystemTime::from(NfsTime::from(time));
    let now = UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
    assert_eq!(there_and_back(now), now);
    assert_eq!(
        there_and_back(UNIX_EPOCH - Duration::from_secs(1)),
        UNIX_EPOCH
    );
    let late = NfsTime::from(UNIX_EPOCH + Duration::from_secs(1 << 33));
    assert_eq!(late.seconds, u32::MAX);
}

#[test]
fn list_has_its_count_twice_and_entries_of_three_words() {
    let entry = |tag, id, rights| acl::AclEntry { tag, id, rights };
    let args = acl::SetAcl {
        file: FileHandle::new(&[0xab; 4]).unwrap(),
        mask: acl::AclMask::ACCESS | acl::AclMask::DEFAULT,
        access: acl::AclList {
            count: 2,
            entries: vec![
                entry(acl::ACL_USER_OBJ, 1000, 6),
                entry(acl::ACL_MASK, 0, 4),
            ],
        },
        default: acl::AclList {
            count: 1,
            entries: vec![entry(acl::ACL_DEFAULT | acl::ACL_OTHER, 0, 7)],
        },
    };
    let expected = "00000004 abababab  00000005  00000002 00000002 00000001 000003e8 00000006 \
                    00000010 00000000 00000004  00000001 00000001 00001020 00000000 00000007";
    assert_eq!(bytes(&args), hex(expected));
}

#[test]
fn list_of_more_entries_than_the_limit_is_refused() {
    let list = |len: u32| [0, len].map(u32::to_be_bytes).concat();
    let refused = acl::AclList::parse(&mut Reader::new(&list(1025)));
    let error = Error::TooLong {
        len: 1025,
        limit: 1024,
    };
    assert_eq!(refused, Err(error));
    let mut whole = list(1024);
    whole.resize(8 + 12 * 1024, 0);
    let read = acl::AclList::parse(&mut Reader::new(&whole)).unwrap();
    assert_eq!(read.entries.len(), 1024);
}
