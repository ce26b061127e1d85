//! Characteristics against their bytes, good and bad.

use super::*;
use crate::invalidation::design::Design;
use crate::limits::{MAX_CHARACTERISTIC_LEN, MAX_CHARACTERISTICS};
use crate::wire::header::tests::words;
use buffer::Buffer;
use oncrpc::xdr;
use proptest::prelude::*;

fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::new(Buffer::default());
    write(&mut w);
    w.finish().head().to_vec()
}

fn value(which: u32, data: &[u8]) -> XcharVal {
    XcharVal {
        which: XcharId(which),
        data: data.to_vec(),
    }
}

fn spec(values: &[XcharVal]) -> XcharSpec {
    let mut spec = XcharSpec::default();
    for value in values {
        spec.put(value.clone());
    }
    spec
}

/// The table of xcharext §3.
#[test]
fn what_is_not_said_is_what_the_text_has_as_default() {
    assert_eq!(ReceiveBufferSize::default().bytes(), 4096);
    assert!(!RequesterRemoteInvalidation::default());
    assert_eq!(BackwardRequestSupport::default(), BackwardSupport::Inline);
    let default = |id| {
        let registry = Registry::standard();
        let descriptor = registry.get(XcharId(id)).expect("of the text");
        assert_eq!(descriptor.id().0, id);
        descriptor.default_value()
    };
    assert_eq!(default(1), value(1, &[0, 0, 0x10, 0]));
    assert_eq!(default(2), value(2, &[0, 0, 0, 0]));
    assert_eq!(default(3), value(3, &[0, 0, 0, 1]));
    let nothing = XcharSpec::default();
    assert_eq!(nothing.get::<ReceiveBufferSize>(), None);
}

#[test]
fn values_are_read_and_made() {
    fn check<C: Characteristic>(data: &[u8], expected: C::Value) {
        assert_eq!(XcharVal::of::<C>(&expected).data, data);
        let read = value(C::ID.0, data).read::<C>();
        assert_eq!(read, Ok(Some(expected)));
        assert_eq!(value(77, data).read::<C>(), Ok(None), "of another one");
    }
    let size = |bytes| ReceiveSize::new(bytes).expect("large enough");
    check::<ReceiveBufferSize>(&[0, 0, 4, 0], ReceiveSize::MIN);
    check::<ReceiveBufferSize>(&[0, 0, 0x40, 1], size(16_385));
    check::<ReceiveBufferSize>(&[0xff; 4], size(u32::MAX));
    check::<RequesterRemoteInvalidation>(&[0, 0, 0, 1], true);
    check::<BackwardRequestSupport>(&[0, 0, 0, 0], BackwardSupport::None);
    check::<BackwardRequestSupport>(&[0, 0, 0, 2], BackwardSupport::General);
    let offer = [Design::Fixed, Design::PerCallSeveral];
    let offer = DesignBits::offer(offer.into_iter().collect());
    check::<InvalidationDesigns>(&[0, 0, 0, 0b1_0100], offer);
    check::<InvalidationDesigns>(&[0, 0, 0, 0b1000], DesignBits::answer(Design::PerCall));
}

#[test]
fn value_that_is_none_makes_the_set_invalid() {
    let check = |id, data: &[u8]| {
        let spec = spec(&[value(9, b"odd"), value(id, data)]);
        let error = Registry::standard().check(&spec).expect_err("no value");
        assert_eq!(error.id, XcharId(id), "{error}");
    };
    // Too small for anybody, too short, no Boolean, not in the enumeration.
    check(1, &[0, 0, 3, 0xff]);
    check(1, &[0, 0, 0, 0]);
    check(1, &[0, 0, 4]);
    check(1, &[]);
    check(2, &[0, 0, 0, 2]);
    check(2, &[1]);
    check(3, &[0, 0, 0, 3]);
    check(3, &[]);
}

#[test]
fn what_is_unknown_is_skipped_and_what_is_too_long_is_cut() {
    let spec = spec(&[
        value(0, &[]),
        value(1, &[0, 0, 0x20, 0, 9, 9, 9]),
        value(77, b"whatever"),
        value(2, &[0, 0, 0, 1]),
    ]);
    let oddities = Registry::standard().check(&spec).expect("valid");
    let expected = Oddities {
        unknown: 2,
        trailing: 1,
        bits_for_nothing: 0,
    };
    assert_eq!(oddities, expected);
    assert_eq!(spec.get::<ReceiveBufferSize>(), ReceiveSize::new(8192));
    assert_eq!(spec.get::<RequesterRemoteInvalidation>(), Some(true));
    assert_eq!(spec.get::<BackwardRequestSupport>(), None);
}

#[test]
fn sets_are_read_and_made() {
    let set = spec(&[value(1, &[0, 0, 0x20, 0]), value(7, b"seven")]);
    let wire = words(&[2, 1, 4, 8192, 7, 5, 0x7365_7665, 0x6e00_0000]);
    assert_eq!(written(|w| set.emit(w)), wire);
    assert_eq!(XcharSpec::parse(&mut Reader::new(&wire)), Ok(set));
}

#[test]
fn no_characteristic_is_in_a_set_twice() {
    for id in [1, 77] {
        let wire = words(&[3, id, 0, 2, 4, 0, id, 0]);
        let error = XcharSpec::parse(&mut Reader::new(&wire));
        assert_eq!(error, Err(SpecMalformed::Twice(XcharId(id))));
    }
    let mut spec = spec(&[value(1, b"old"), value(2, b"")]);
    spec.put(value(1, b"new"));
    assert_eq!(spec.values(), [value(1, b"new"), value(2, b"")]);
}

#[test]
fn one_past_each_limit_is_refused_and_the_limit_is_not() {
    let set = |count: usize| {
        let mut wire = vec![u32::try_from(count).expect("few")];
        wire.extend((0..*wire.first().expect("one")).flat_map(|id| [id, 0]));
        XcharSpec::parse(&mut Reader::new(&words(&wire)))
    };
    assert_eq!(set(MAX_CHARACTERISTICS).expect("the most").len(), 128);
    assert_eq!(set(MAX_CHARACTERISTICS + 1), Err(SpecMalformed::TooMany));
    let one = |len: u32| {
        let mut wire = words(&[9, len]);
        wire.resize(wire.len() + xdr::padded(len as usize), 0);
        XcharVal::parse(&mut Reader::new(&wire))
    };
    assert!(one(MAX_CHARACTERISTIC_LEN).is_ok());
    assert!(matches!(
        one(MAX_CHARACTERISTIC_LEN + 1),
        Err(xdr::Error::TooLong { .. })
    ));
    let subset = |count: u32| {
        let mut wire = vec![count];
        wire.resize(1 + count as usize, 0);
        XcharSubset::parse(&mut Reader::new(&words(&wire)))
    };
    assert_eq!(subset(4), Ok(XcharSubset::EMPTY));
    assert!(subset(5).is_err());
}

#[test]
fn set_that_says_it_is_larger_than_the_message_is_refused() {
    let check = |wire: &[u32]| {
        let error = XcharSpec::parse(&mut Reader::new(&words(wire)));
        assert!(matches!(error, Err(SpecMalformed::Xdr(_))), "{error:?}");
    };
    check(&[1]);
    check(&[1, 1]);
    check(&[1, 1, 5, 0]);
    check(&[1, 1, MAX_CHARACTERISTIC_LEN, 0]);
    check(&[1, 1, u32::MAX, 0]);
    check(&[2, 1, 4, 8192]);
}

#[test]
fn positions_are_counted_from_the_least_significant_bit() {
    let check = |wire: &[u32], positions: &[usize]| {
        let subset: XcharSubset = positions.iter().copied().collect();
        assert_eq!(written(|w| subset.emit(w)), words(wire));
        let read = XcharSubset::parse(&mut Reader::new(&words(wire)));
        assert_eq!(read, Ok(subset));
        assert!(subset.positions().eq(positions.iter().copied()));
        assert_eq!(subset.len(), positions.len());
    };
    check(&[0], &[]);
    check(&[1, 1], &[0]);
    check(&[1, 0b110], &[1, 2]);
    check(&[1, 0x8000_0000], &[31]);
    check(&[2, 0, 1], &[32]);
    check(&[4, 1, 0, 0, 0x8000_0000], &[0, 127]);
    assert!(!XcharSubset::first(128).contains(128));
}

/// xcharext §2.1: words that are not there are zero, and so those that are may be as well.
#[test]
fn words_of_zero_say_nothing() {
    let read = |wire: &[u32]| XcharSubset::parse(&mut Reader::new(&words(wire)));
    assert_eq!(read(&[1, 2]), read(&[3, 2, 0, 0]));
    assert_eq!(read(&[0]), Ok(XcharSubset::EMPTY));
}

/// A characteristic as a user of the library would add it.
struct Weather;

impl Characteristic for Weather {
    type Value = Vec<u8>;

    const ID: XcharId = XcharId(4_294_967_295);
    const NAME: &'static str = "Weather";
    const XDR: &'static str = "string<8>";
    const FIXED: bool = false;

    fn default() -> Vec<u8> {
        b"fair".to_vec()
    }

    fn parse(r: &mut Reader<'_>) -> Result<Vec<u8>, ValueError> {
        let sky = r.string(8)?.to_vec();
        if sky.is_empty() {
            return Err(ValueError::Invalid("there is always some weather"));
        }
        Ok(sky)
    }

    fn emit(value: &Vec<u8>, w: &mut Writer) {
        w.opaque(value);
    }
}

#[test]
fn characteristic_of_a_user_takes_the_same_road() {
    let mut registry = Registry::standard();
    registry.register::<Weather>().expect("its id is free");
    let mut spec = XcharSpec::default();
    spec.set::<Weather>(&b"rain".to_vec());
    assert_eq!(registry.check(&spec), Ok(Oddities::default()));
    assert_eq!(spec.get::<Weather>(), Some(b"rain".to_vec()));
    let descriptor = registry.get(Weather::ID).expect("registered");
    assert_eq!(
        descriptor.default_value(),
        XcharVal::of::<Weather>(&Weather::default())
    );
    assert_eq!(
        (descriptor.name(), descriptor.xdr()),
        ("Weather", "string<8>")
    );
    assert!(!descriptor.is_fixed());
    let none = value(Weather::ID.0, &[0, 0, 0, 0]);
    spec.put(none.clone());
    assert_eq!(registry.check(&spec).expect_err("empty").id, Weather::ID);
    // Who does not know it does not mind.
    assert_eq!(Registry::standard().check(&spec).expect("valid").unknown, 1);
    assert!(descriptor.show(&none.data).is_err());
}

#[test]
fn id_means_one_thing() {
    let mut registry = Registry::standard();
    registry.register::<InvalidationDesigns>().expect("free");
    let ids: Vec<u32> = registry.iter().map(|known| known.id().0).collect();
    assert_eq!(ids, [1, 2, 3, 4_294_967_040]);
    let error = registry.register::<InvalidationDesigns>();
    assert_eq!(
        error.expect_err("taken").to_string(),
        "characteristic 4294967040 is already registered as Remote Invalidation Designs"
    );
    assert!(registry.register::<ReceiveBufferSize>().is_err());
}

#[test]
fn ids_for_experiments_are_the_last_256() {
    let check = |id, expected| assert_eq!(XcharId(id).is_experimental(), expected, "{id}");
    check(0, false);
    check(3, false);
    check(4_294_967_039, false);
    check(4_294_967_040, true);
    check(4_294_967_295, true);
}

#[test]
fn changes_follow_the_rules_of_each_characteristic() {
    let registry = Registry::standard();
    let check = |id, from: u32, to: u32, expected| {
        let descriptor = registry.get(XcharId(id)).expect("of the text");
        let change = descriptor.may_change(&from.to_be_bytes(), &to.to_be_bytes());
        assert_eq!(change, Ok(expected), "{id}: {from} to {to}");
    };
    check(1, 4096, 8192, MayChange::Unasked);
    check(1, 4096, 4096, MayChange::Unasked);
    check(1, 8192, 4096, MayChange::OnRequest);
    check(2, 0, 1, MayChange::Never);
    check(3, 1, 2, MayChange::Never);
    assert_eq!(Weather::may_change(&vec![], &vec![]), MayChange::Unasked);
    let fixed = |id| registry.get(XcharId(id)).expect("of the text").is_fixed();
    assert_eq!([1, 2, 3].map(fixed), [false, true, true]);
    let size = registry.get(XcharId(1)).expect("of the text");
    assert!(size.may_change(&[0; 4], &[0, 0, 4, 0]).is_err());
    assert_eq!(
        size.show(&[0, 0, 4, 0]).expect("a size"),
        "ReceiveSize(1024)"
    );
}

#[test]
fn answer_of_exactly_one_design_agrees() {
    let bits = |data: u32| {
        let value = value(InvalidationDesigns::ID.0, &data.to_be_bytes());
        let bits = value.read::<InvalidationDesigns>();
        bits.expect("any bits are").expect("it is one")
    };
    let agrees = |data: u32, design| assert_eq!(bits(data).answered(), design, "{data:#b}");
    agrees(0b100, Some(Design::Fixed));
    agrees(0b1000, Some(Design::PerCall));
    agrees(0b1_0000, Some(Design::PerCallSeveral));
    agrees(0b10_0000, Some(Design::InterCall));
    agrees(0b100_0000, Some(Design::PerCallAll));
    // None, two, those that are agreed on in another way, and what nobody knows.
    agrees(0, None);
    agrees(0b1100, None);
    agrees(0b1, None);
    agrees(0b10, None);
    agrees(0b1000_0000, None);
    agrees(1 << 31 | 0b100, None);
    let offered: Vec<Design> = bits(u32::MAX).offered().iter().collect();
    assert_eq!(offered.len(), 5);
    let all = DesignBits::offer(Design::ALL.into_iter().collect());
    assert_eq!(all.bits(), 0b111_1100);
    assert_eq!(
        DesignBits::answer(Design::PerConnection),
        DesignBits::default()
    );
}

#[test]
fn view_shows_what_is_there_even_if_it_is_wrong() {
    let wire = words(&[9, 1, 4, 0, 1, 100, 5]);
    let mut view = SpecView::default();
    assert!(view.read(&mut Reader::new(&wire)).is_err());
    assert_eq!(view.count, Some(9));
    let seen: Vec<_> = view
        .values
        .iter()
        .map(|v| (v.which, v.len, v.data.len()))
        .collect();
    assert_eq!(seen, [(1, Some(4), 4), (1, Some(100), 4)]);
    let mut view = SubsetView::default();
    assert!(view.read(&mut Reader::new(&words(&[u32::MAX, 7]))).is_err());
    assert_eq!((view.count, view.words), (Some(u32::MAX), vec![7]));
}

proptest! {
    #[test]
    fn sets_that_are_made_are_read_back(
        values in prop::collection::btree_map(any::<u32>(), prop::collection::vec(any::<u8>(), 0..20), 0..20),
        positions in prop::collection::btree_set(0..MAX_CHARACTERISTICS, 0..10),
    ) {
        let values: Vec<_> = values.iter().map(|(id, data)| value(*id, data)).collect();
        let set = spec(&values);
        let wire = written(|w| set.emit(w));
        prop_assert_eq!(XcharSpec::parse(&mut Reader::new(&wire)), Ok(set));
        let subset: XcharSubset = positions.into_iter().collect();
        let wire = written(|w| subset.emit(w));
        prop_assert_eq!(XcharSubset::parse(&mut Reader::new(&wire)), Ok(subset));
    }
}
