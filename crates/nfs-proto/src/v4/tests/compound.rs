//! COMPOUND operation by operation, replies result by result, and directories entry by entry.

use super::{hex, stream};
use crate::v4::directory::{DirectoryWriter, ReadDirArgs, ReadDirOk};
use crate::v4::fattr::write_fattr;
use crate::v4::file::{GetAttrArgs, ReadOk};
use crate::v4::open::{DelegationWish, ShareAccess};
use crate::v4::{
    ArgOp, Attribute, AttributeNumber, BadOperation, Bitmap, CallWriter, CompoundArgs, CompoundRes,
    Operation, ReplyWriter, ResOp, SpecialStateId, StateId, Status, Tag, Time,
};
use crate::{Cookie, CookieVerifier, Filename, Wire};
use oncrpc::xdr::{Error, Reader, Writer};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn tag() -> Tag<'static> {
    Tag::new(b"tag").unwrap()
}

/// Reads all operations of a call without a tag.
fn read(minor_version: u32, operations: &str) -> Vec<Result<Operation, BadOperation>> {
    let message = hex(&format!("00000000 {minor_version:08x} {operations}"));
    let mut args = CompoundArgs::parse(Reader::new(&message)).unwrap();
    std::iter::from_fn(|| args.next_operation())
        .map(|operation| operation.map(|operation| operation.number()))
        .collect()
}

#[test]
fn operation_of_another_minor_version_is_illegal_and_ends_the_compound() {
    // PUTROOTFH, OFFLOAD_CANCEL, SAVEFH.
    let operations = "00000003 00000018 00000042 00000000000000000000000000000000 00000020";
    let root = Ok(Operation::PutRootFh);
    assert_eq!(
        read(2, operations),
        [root, Ok(Operation::OffloadCancel), Ok(Operation::SaveFh)]
    );
    assert_eq!(read(1, operations), [root, Err(BadOperation::Illegal(66))]);
    // No operation is known of other minor versions.
    assert_eq!(read(0, operations), [Err(BadOperation::Illegal(24))]);
    assert_eq!(read(3, operations), [Err(BadOperation::Illegal(24))]);
    for number in [0, 2, 76, 10_044, u32::MAX] {
        let bad = BadOperation::Illegal(number);
        assert_eq!(read(2, &format!("00000001 {number:08x}")), [Err(bad)]);
        assert_eq!(bad.result(), ResOp::Illegal(Err(Status::IllegalOperation)));
    }
}

#[test]
fn malformed_arguments_are_those_of_their_operation() {
    // PUTROOTFH, OPENATTR with a Boolean of 2.
    let found = read(1, "00000003 00000018 00000013 00000002 00000018");
    let (value, of) = (2, "bool");
    let bad = BadOperation::Malformed(Operation::OpenAttr, Error::NotInEnum { value, of });
    assert_eq!(found, [Ok(Operation::PutRootFh), Err(bad)]);
    assert_eq!(bad.result(), ResOp::OpenAttr(Err(Status::BadXdr)));
    // The message ends within the arguments, and before an operation.
    let short = read(1, "00000001 00000013");
    assert!(matches!(
        short[..],
        [Err(BadOperation::Malformed(Operation::OpenAttr, _))]
    ));
    let short = read(1, "00000001");
    assert!(matches!(
        short[..],
        [Err(BadOperation::Malformed(Operation::Illegal, _))]
    ));
}

#[test]
fn octets_behind_the_operations_are_found() {
    let message = hex("00000000 00000001 00000001 00000018 00000000");
    let mut args = CompoundArgs::parse(Reader::new(&message)).unwrap();
    assert_eq!(args.operations_left(), 1);
    assert_eq!(args.next_operation(), Some(Ok(ArgOp::PutRootFh)));
    assert_eq!(args.next_operation(), None);
    assert_eq!(args.finish(), Err(Error::Trailing { len: 4 }));
}

#[test]
fn operations_are_read_as_they_were_written() {
    let mut w = Writer::default();
    let mut call = CallWriter::new(&mut w, tag(), 2);
    let getattr = ArgOp::GetAttr(GetAttrArgs {
        wanted: Bitmap::of([1]),
    });
    call.push(ArgOp::PutRootFh);
    call.push(getattr.clone());
    call.finish();
    let message = w.finish();
    assert_eq!(
        message.head(),
        hex("00000003 74616700 00000002 00000002 00000018 00000009 00000001 00000002")
    );
    let mut args = CompoundArgs::parse(Reader::from(&message)).unwrap();
    assert_eq!((args.tag, args.minor_version), (tag(), 2));
    assert_eq!(args.next_operation(), Some(Ok(ArgOp::PutRootFh)));
    assert_eq!(args.next_operation(), Some(Ok(getattr)));
    assert_eq!(args.finish(), Ok(()));
}

#[test]
fn reply_has_the_status_of_its_last_result() {
    let mut w = Writer::default();
    w.u32(0xfeed);
    let mut reply = ReplyWriter::new(w, tag(), Ok(()));
    reply.push(ResOp::PutRootFh(Ok(())));
    reply.push_with(Operation::ReadDir, |w| {
        w.u64(1);
        Err(Status::TooSmall)
    });
    assert_eq!(reply.status(), Err(Status::TooSmall));
    assert_eq!(reply.stream_len(), 4 + 8 + 4 + 8 + 8);
    let message = reply.finish().finish();
    let expected = "0000feed 00002715 00000003 74616700 00000002
                    00000018 00000000 0000001a 00002715";
    assert_eq!(message.head(), hex(expected));
    let mut results = CompoundRes::parse(Reader::new(&message.head()[4..])).unwrap();
    assert_eq!(
        (results.status, results.tag),
        (Err(Status::TooSmall), tag())
    );
    assert_eq!(results.next_result(), Some(Ok(ResOp::PutRootFh(Ok(())))));
    let failed = ResOp::ReadDir(Err(Status::TooSmall));
    assert_eq!(results.next_result(), Some(Ok(failed)));
    assert_eq!(results.next_result(), None);
    assert_eq!(results.finish(), Ok(()));
}

#[test]
fn reply_without_results_has_its_own_status() {
    let w = Writer::default();
    let w = ReplyWriter::new(w, Tag::default(), Err(Status::MinorVersionMismatch)).finish();
    assert_eq!(w.finish().head(), hex("00002725 00000000 00000000"));
}

#[test]
fn last_result_is_replaced_with_its_data() {
    let w = Writer::default();
    let mut reply = ReplyWriter::new(w, Tag::default(), Ok(()));
    let read = |data: &'static [u8]| {
        let data = data.into();
        ResOp::Read(Ok(ReadOk { eof: false, data }))
    };
    reply.push(read(b"kept"));
    reply.push(read(b"too big"));
    reply.replace_last(ResOp::failed(Operation::Read, Status::ReplyTooBig));
    let message = reply.finish().finish();
    assert_eq!(message.items().len(), 1);
    let expected = "00002752 00000000 00000002
                    00000019 00000000 00000000 00000004 6b657074  00000019 00002752";
    assert_eq!(stream(&message), hex(expected));
}

/// How many of three entries of 40 bytes fit, and the length of the structure.
fn fill(max_count: u32, dir_count: u32) -> Result<(usize, usize), Status> {
    let mut w = Writer::default();
    w.u32(0xfeed);
    let args = ReadDirArgs {
        cookie: Cookie(0),
        verifier: CookieVerifier::default(),
        dir_count,
        max_count,
        wanted: Bitmap::of([1, 11]),
    };
    let mut dir = DirectoryWriter::new(&mut w, &args, 1000, args.verifier);
    let fit = ["one.txt", "two.txt", "tri.txt"]
        .iter()
        .take_while(|name| {
            let name = Filename::new(name.as_bytes()).unwrap();
            dir.push(Cookie(3), name, |w| {
                write_fattr(w, &args.wanted, |number| match number {
                    AttributeNumber::RdattrError => Some(Attribute::RdattrError(Ok(()))),
                    _ => None,
                });
            })
        })
        .count();
    let done = dir.finish(fit == 3);
    let message = w.finish();
    match done {
        Ok(()) => {
            let read = ReadDirOk::parse(&mut Reader::new(&message.head()[4..])).unwrap();
            assert_eq!((read.entries.0.len(), read.eof), (fit, fit == 3));
        }
        Err(_) => assert_eq!(message.head().len(), 4, "nothing is left"),
    }
    done.map(|()| (fit, message.head().len() - 4))
}

#[test]
fn entry_that_would_exceed_the_size_is_left_out() {
    // Verifier 8; each entry 4 + 8 + 4 + 8, mask 8, values 4 + 4; end 8.
    assert_eq!(fill(16 + 120, 0), Ok((3, 136)));
    assert_eq!(fill(16 + 119, 0), Ok((2, 96)));
    assert_eq!(fill(16 + 40, 0), Ok((1, 56)));
    assert_eq!(fill(16 + 39, 0), Err(Status::TooSmall));
    // The server has room for less.
    assert_eq!(fill(u32::MAX, 0), Ok((3, 136)));
}

#[test]
fn bytes_of_names_are_limited_but_one_entry_always_fits() {
    assert_eq!(fill(1000, 40), Ok((2, 96)));
    assert_eq!(fill(1000, 39), Ok((1, 56)));
    assert_eq!(fill(1000, 1), Ok((1, 56)));
}

#[test]
fn special_state_ids_are_told_from_others() {
    use SpecialStateId::*;
    for special in [Anonymous, ReadBypass, Current, Invalid] {
        assert_eq!(StateId::from(special).special(), Some(special));
    }
    let other = [1; 12];
    for seqid in [0, 1, u32::MAX] {
        assert_eq!(StateId { seqid, other }.special(), None);
    }
    let two = StateId {
        seqid: 2,
        ..StateId::default()
    };
    assert_eq!(two.special(), None);
}

#[test]
fn time_before_1970_is_rounded_down() {
    let time = |seconds, nanoseconds| Time {
        seconds,
        nanoseconds,
    };
    let ms = Duration::from_millis;
    assert_eq!(Time::from(UNIX_EPOCH + ms(1500)), time(1, 500_000_000));
    assert_eq!(Time::from(UNIX_EPOCH - ms(1500)), time(-2, 500_000_000));
    assert_eq!(Time::from(UNIX_EPOCH - ms(2000)), time(-2, 0));
    for millis in [0, 1, 999, 1000, 1500] {
        for system in [UNIX_EPOCH + ms(millis), UNIX_EPOCH - ms(millis)] {
            assert_eq!(SystemTime::try_from(Time::from(system)), Ok(system));
        }
    }
    assert!(SystemTime::try_from(time(0, 999_999_999)).is_ok());
    assert_eq!(
        SystemTime::try_from(time(0, 1_000_000_000)),
        Err(Status::Invalid)
    );
}

#[test]
fn wish_about_a_delegation_is_a_field_of_the_access() {
    let access = ShareAccess::from_bits_retain(0x0030_0401);
    assert_eq!(access.wish(), Some(DelegationWish::NoDelegation));
    assert!(access.contains(ShareAccess::READ | ShareAccess::WANT_OPEN_XOR_DELEGATION));
    assert_eq!(access.with_wish(DelegationWish::Any).bits(), 0x0030_0301);
    assert_eq!(ShareAccess::from_bits_retain(0x600).wish(), None);
}
