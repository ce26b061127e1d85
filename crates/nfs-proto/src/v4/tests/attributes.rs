//! Attributes: their numbers and access, sets of them, bitmaps.

use super::{bytes, hex};
use crate::tests::{Rng, Sample};
use crate::v4::fattr::write_fattr;
use crate::v4::{
    Attribute, AttributeAccess, AttributeNumber, BadAttribute, Bitmap, ChangeId, Fattr, FileType,
    Principal, Status,
};
use crate::{FileId, Wire};
use oncrpc::xdr::{Error, Reader, Writer};
use proptest::prelude::*;

fn numbers(numbers: &[AttributeNumber]) -> Bitmap {
    Bitmap::of(numbers.iter().map(|&number| number as u32))
}

#[test]
fn numbers_of_attributes_are_without_gaps() {
    let all = AttributeNumber::ALL.iter().map(|&number| number as u32);
    assert!(all.eq(0..=86));
    assert_eq!(AttributeNumber::new(87), None);
}

#[test]
fn access_is_that_of_the_tables() {
    // RFC 8881 §5.6, §5.7, RFC 7862 §12.1, RFC 8275, RFC 8276 §8.2.1.
    let set_only = [48, 54, 63, 70, 72, 74, 81];
    let both = [
        4, 12, 14, 25, 32, 33, 36, 37, 46, 49, 50, 58, 59, 73, 80, 84, 85,
    ];
    for &attribute in AttributeNumber::ALL {
        let number = attribute as u32;
        let expected = match (set_only.contains(&number), both.contains(&number)) {
            (true, _) => AttributeAccess::W,
            (_, true) => AttributeAccess::RW,
            _ => AttributeAccess::R,
        };
        assert_eq!(attribute.access(), expected, "{attribute:?}");
    }
}

#[test]
fn attributes_of_a_stat_are_those_that_linux_asks_for() {
    use AttributeNumber::*;
    let asked = hex("00000002 0010011a 00b0a23a");
    let asked = Bitmap::parse(&mut Reader::new(&asked)).unwrap();
    let named = [
        Type,
        Change,
        Size,
        FsId,
        FileId,
        Mode,
        NumLinks,
        Owner,
        OwnerGroup,
        RawDev,
        SpaceUsed,
        TimeAccess,
        TimeMetadata,
        TimeModify,
        MountedOnFileId,
    ];
    assert_eq!(asked, numbers(&named));
    assert_eq!(bytes(&asked), hex("00000002 0010011a 00b0a23a"));
}

#[test]
fn attributes_of_a_linux_server_have_their_numbers() {
    use AttributeNumber::*;
    let told = hex("00000003 fdffbfff 40fdbe3e 00062803");
    let told = Bitmap::parse(&mut Reader::new(&told)).unwrap();
    let first_word = Bitmap::of(0..32) - numbers(&[Archive, Hidden]);
    let others = [
        Mode,
        NoTrunc,
        NumLinks,
        Owner,
        OwnerGroup,
        RawDev,
        SpaceAvail,
        SpaceFree,
        SpaceTotal,
        SpaceUsed,
        TimeAccess,
        TimeAccessSet,
        TimeCreate,
        TimeDelta,
        TimeMetadata,
        TimeModify,
        TimeModifySet,
        MountedOnFileId,
        FsLayoutTypes,
        LayoutTypes,
        LayoutBlockSize,
        SuppAttrExclCreat,
        CloneBlockSize,
        ModeUmask,
        XattrSupport,
    ];
    assert_eq!(told, first_word | numbers(&others));
}

#[test]
fn attributes_are_written_in_order_with_the_mask_of_those_given() {
    let mut w = Writer::default();
    w.u32(0xfeed);
    // Type, size, acl and mode are wanted, and one that is unknown; there is no acl.
    let wanted = Bitmap::of([33, 12, 1, 4, 95]);
    let mut asked = Vec::new();
    write_fattr(&mut w, &wanted, |number| {
        asked.push(number as u32);
        Some(match number {
            AttributeNumber::Type => Attribute::Type(FileType::Regular),
            AttributeNumber::Size => Attribute::Size(5),
            AttributeNumber::Mode => Attribute::Mode(0o644),
            _ => return None,
        })
    });
    assert_eq!(asked, [1, 4, 12, 33]);
    let expected = "0000feed  00000003 00000012 00000002 00000000
                    00000010  00000001  00000000 00000005  000001a4";
    let message = w.finish();
    assert_eq!(message.head(), hex(expected));
    let read = Fattr::parse(&mut Reader::new(&message.head()[4..])).unwrap();
    assert_eq!(read.mask(), Bitmap::of([1, 4, 33]));
    let values = [
        Attribute::Type(FileType::Regular),
        Attribute::Size(5),
        Attribute::Mode(0o644),
    ];
    assert_eq!(Some(read), Fattr::new(&values));
    assert_eq!(
        read.iter().collect::<Result<Vec<_>, _>>(),
        Ok(values.to_vec())
    );
}

#[test]
fn set_of_attributes_is_in_ascending_order() {
    let (size, mode) = (Attribute::Size(0), Attribute::Mode(0o600));
    assert!(Fattr::new(&[size, mode]).is_some());
    assert!(Fattr::new(&[mode, size]).is_none());
    assert!(Fattr::new(&[size, size]).is_none());
    let both = [size, mode];
    let expected = "00000002 00000010 00000002  0000000c  00000000 00000000  00000180";
    assert_eq!(bytes(&Fattr::new(&both).unwrap()), hex(expected));
}

#[test]
fn attributes_are_read_up_to_one_that_is_unknown_or_malformed() {
    let read = |text: &str| -> Vec<Result<Attribute<'static>, BadAttribute>> {
        let message = hex(text).leak();
        Fattr::parse(&mut Reader::new(message))
            .unwrap()
            .iter()
            .collect()
    };
    let change = Ok(Attribute::Change(ChangeId(7)));
    // Change and 95.
    let unknown = read("00000003 00000008 00000000 80000000  0000000c 0000000000000007 00000001");
    assert_eq!(unknown, [change, Err(BadAttribute::Unknown(95))]);
    assert_eq!(
        Status::from(unknown[1].unwrap_err()),
        Status::AttributeNotSupported
    );
    // Change and size, of which half is missing.
    let short = read("00000001 00000018  0000000c 0000000000000007 00000001");
    assert_eq!(short[0], change);
    let missing = BadAttribute::Malformed(Error::Short { missing: 4 });
    assert_eq!(short[1..], [Err(missing)]);
    assert_eq!(Status::from(missing), Status::BadXdr);
    // A word more than the mask has.
    let long = read("00000001 00000008  0000000c 0000000000000007 00000001");
    let trailing = BadAttribute::Malformed(Error::Trailing { len: 4 });
    assert_eq!(long, [change, Err(trailing)]);
    // No attribute at all.
    assert_eq!(read("00000000 00000000"), []);
    assert_eq!(read("00000000 00000004 00000000").len(), 1);
}

#[test]
fn owners_are_strings() {
    let values = [
        Attribute::FileId(FileId(9)),
        Attribute::Owner(Principal::new(b"1000").unwrap()),
    ];
    let expected = "00000002 00100000 00000010  00000010
                    0000000000000009  00000004 31303030";
    assert_eq!(bytes(&Fattr::new(&values).unwrap()), hex(expected));
}

proptest! {
    #[test]
    fn every_attribute_is_read_as_it_was_written(seed: u64) {
        let rng = &mut Rng::new(seed);
        for &number in AttributeNumber::ALL {
            let value = Attribute::sample(number, rng);
            prop_assert_eq!(value.number(), number);
            let mut w = Writer::default();
            value.write(&mut w);
            let message = w.finish();
            let mut r = Reader::from(&message);
            prop_assert_eq!(Attribute::parse(number, &mut r).unwrap(), value);
            prop_assert!(r.finish().is_ok());
        }
    }

    #[test]
    fn bitmap_is_a_set(seed: u64) {
        let rng = &mut Rng::new(seed);
        let (one, two) = (Bitmap::sample(rng), Bitmap::sample(rng));
        prop_assert_eq!(Bitmap::of(one.iter()), one);
        prop_assert!(one.iter().is_sorted());
        for number in 0..300 {
            let (a, b) = (one.contains(number), two.contains(number));
            prop_assert_eq!(one.iter().any(|other| other == number), a);
            prop_assert_eq!((one & two).contains(number), a && b);
            prop_assert_eq!((one | two).contains(number), a || b);
            prop_assert_eq!((one - two).contains(number), a && !b);
        }
        prop_assert_eq!(one.is_empty(), one.iter().next().is_none());
    }
}

#[test]
fn words_of_zeroes_at_the_end_of_a_bitmap_mean_nothing() {
    let long = hex("00000003 00000002 00000000 00000000");
    let bitmap = Bitmap::parse(&mut Reader::new(&long)).unwrap();
    assert_eq!(bitmap, Bitmap::of([1]));
    assert_eq!(bytes(&bitmap), hex("00000001 00000002"));
}
