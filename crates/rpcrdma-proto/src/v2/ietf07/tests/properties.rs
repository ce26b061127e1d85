//! Properties against their octets.

use super::*;
use crate::limits::{MAX_HOST_AUTH, MAX_PROPERTIES};

/// §5.2, Table 1.
#[test]
fn properties_have_the_defaults_of_the_text() {
    let defaults = Properties {
        max_send: 4096,
        receive_buffer: 4096,
        max_segment_size: 1_048_576,
        max_segments: 16,
        reverse: ReverseSupport::None,
        host_auth: None,
    };
    assert_eq!(Properties::default(), defaults);
}

#[test]
fn properties_are_read_and_made() {
    let properties = |last, set| Body::Properties { last, set };
    check(&[7, 2, 32, 6, 0], properties(false, PropertySet::default()));
    check(&[7, 2, 32, 7, 0], properties(true, PropertySet::default()));
    let all = PropertySet {
        max_send: Some(8192),
        receive_buffer: Some(16384),
        max_segment_size: Some(1 << 30),
        max_segments: Some(0),
        reverse: Some(ReverseSupport::General),
        host_auth: Some(b"abcde".to_vec()),
    };
    let wire = [
        7,
        2,
        32,
        7,
        6, // number of properties
        1,
        4,
        8192,
        2,
        4,
        16384,
        3,
        4,
        1 << 30,
        4,
        4,
        0,
        5,
        4,
        3, // numbers
        6,
        12,
        5,
        0x6162_6364,
        0x6500_0000, // an array in opaque data
    ];
    assert_eq!(words(&wire).len(), properties_len(&all));
    check(&wire, properties(true, all));
    let empty = PropertySet {
        host_auth: Some(vec![]),
        ..PropertySet::default()
    };
    check(&[7, 2, 32, 6, 1, 6, 4, 0], properties(false, empty));
}

#[test]
fn set_has_no_order() {
    let ascending = set(3, &[1, 4, 8192, 3, 4, 4096, 5, 4, 2]);
    let mixed = set(3, &[5, 4, 2, 1, 4, 8192, 3, 4, 4096]);
    assert!(ascending.is_ok());
    assert_eq!(mixed, ascending);
}

/// The set of a message with so many properties that are these words.
fn set(count: u32, wire: &[u32]) -> Result<PropertySet, HeaderError> {
    let message = words(&[&[7, 2, 32, 7, count], wire].concat());
    Header::parse(&message).map(|(header, _)| match header.body {
        Body::Properties { set, .. } => set,
        other => panic!("{other:?}"),
    })
}

#[test]
fn value_without_octets_is_the_default() {
    let defaults = PropertySet {
        max_send: Some(4096),
        receive_buffer: Some(4096),
        max_segment_size: Some(1_048_576),
        max_segments: Some(16),
        reverse: Some(ReverseSupport::None),
        host_auth: None,
    };
    assert_eq!(set(6, &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]), Ok(defaults));
}

#[test]
fn unknown_properties_and_octets_behind_a_value_are_skipped() {
    let wire = [
        0,
        4,
        1, // id zero
        99,
        5,
        0,
        0, // padded
        2,
        8,
        8192,
        5, // a value and more
        99,
        0, // an unknown one again
        u32::MAX,
        4,
        1,
    ];
    let receive_buffer = Some(8192);
    let expected = PropertySet {
        receive_buffer,
        ..PropertySet::default()
    };
    assert_eq!(set(5, &wire), Ok(expected));
}

#[test]
fn level_that_the_text_does_not_define_is_none() {
    for (word, level) in [
        (0, ReverseSupport::None),
        (1, ReverseSupport::Simple),
        (2, ReverseSupport::Continued),
        (3, ReverseSupport::General),
        (4, ReverseSupport::None),
        (u32::MAX, ReverseSupport::None),
    ] {
        let read = set(1, &[5, 4, word]).expect("valid by its type");
        assert_eq!(read.reverse, Some(level));
    }
}

/// §5.1, §7.2.2.
#[test]
fn invalid_values_of_known_properties_draw_bad_propval() {
    let draws = |count, wire: &[u32], error| {
        let answer = set(count, wire).map_err(HeaderError::disposition);
        assert_eq!(
            answer,
            Err(Disposition::Answer { xid: 7, error }),
            "{wire:?}"
        );
    };
    let bad = RdmaError::BadPropval;
    for which in 1..=5 {
        // No length, too few octets, more than the message has, and no padding where it belongs.
        draws(1, &[which], bad);
        draws(1, &[which, 3, 0], bad);
        draws(1, &[which, 8, 0], bad);
        draws(1, &[which, u32::MAX, 0], bad);
        draws(1, &[which, 5, 4096, 1], bad);
        draws(2, &[which, 4, 4096, which, 4, 4096], bad);
    }
    // The array is longer than the data, ends without its padding, or is longer than any message.
    draws(1, &[6, 4, 1], bad);
    draws(1, &[6, 8, 5, 0], bad);
    draws(1, &[6, 8, 1, 1], bad);
    draws(1, &[6, 2, 0], bad);
    draws(2, &[6, 0, 6, 0], bad);
    // Nothing is applied of a message that has one such value.
    draws(2, &[1, 4, 8192, 2, 3, 0], bad);
    // There is no known property that is malformed.
    let bad = RdmaError::BadXdr;
    draws(1, &[], bad);
    draws(1, &[99], bad);
    draws(1, &[99, 8, 0], bad);
    draws(1, &[99, 1, 1], bad);
    draws(u32::MAX, &[1, 4, 8192], bad);
}

/// A message about properties is answered, whichever of both it is.
#[test]
fn middle_messages_draw_the_same() {
    draws(&[7, 2, 32, 6, 1, 1, 3, 0], RdmaError::BadPropval);
    draws(&[7, 2, 32, 6], RdmaError::BadXdr);
}

#[test]
fn limits_of_properties_are_exact() {
    let count = |count: usize| {
        let wire: Vec<u32> = (0..count).flat_map(|_| [99, 0]).collect();
        set(u32::try_from(count).expect("few"), &wire)
    };
    assert_eq!(count(MAX_PROPERTIES), Ok(PropertySet::default()));
    let error = count(MAX_PROPERTIES + 1).expect_err("one too many");
    let HeaderError::Malformed { cause, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(cause, Malformation::TooManyProperties);
    assert_eq!(cause.answer(), RdmaError::BadXdr);
    let auth = |len: u32| {
        let words = len.div_ceil(4) as usize;
        let mut wire = vec![6, len.next_multiple_of(4) + 4, len];
        wire.resize(3 + words, 0);
        set(1, &wire).map(|set| set.host_auth.map(|auth| auth.len()))
    };
    assert_eq!(auth(MAX_HOST_AUTH), Ok(Some(MAX_HOST_AUTH as usize)));
    let error = auth(MAX_HOST_AUTH + 1).expect_err("one too many");
    let error = error.disposition();
    let bad = RdmaError::BadPropval;
    assert_eq!(error, Disposition::Answer { xid: 7, error: bad });
}

#[test]
fn later_message_replaces_what_it_sets() {
    let mut properties = Properties::default();
    properties.apply(PropertySet {
        max_send: Some(1),
        receive_buffer: Some(2),
        max_segment_size: Some(3),
        max_segments: Some(4),
        reverse: Some(ReverseSupport::Continued),
        host_auth: Some(b"one".to_vec()),
    });
    let first = properties.clone();
    properties.apply(PropertySet::default());
    assert_eq!(properties, first);
    properties.apply(PropertySet {
        receive_buffer: Some(8192),
        host_auth: Some(b"two".to_vec()),
        ..PropertySet::default()
    });
    let expected = Properties {
        receive_buffer: 8192,
        host_auth: Some(b"two".to_vec()),
        ..first
    };
    assert_eq!(properties, expected);
}
