//! Operations against their bytes, good and bad. The bytes of the vectors were written by hand
//! from the XDR of xcharext §5.2.

use super::*;
use crate::v2::characteristics::{
    BackwardRequestSupport, BackwardSupport, Oddities, ReceiveBufferSize, ReceiveSize, Registry,
    RequesterRemoteInvalidation, XcharId,
};
use crate::v2::header::{Body, Direction, Disposition, Header, WordLayout};
use crate::wire::header::tests::words;
use buffer::Buffer;
use proptest::prelude::*;

fn value(which: u32, data: &[u8]) -> XcharVal {
    XcharVal {
        which: XcharId(which),
        data: data.to_vec(),
    }
}

/// Decodes a whole message, or returns the error that is owed for it.
fn received(message: &[u8], supported: Supported) -> Result<(Operation, Oddities), Disposition> {
    let (header, at) = match Header::parse(message, WordLayout::One) {
        Ok(parsed) => parsed,
        Err(error) => return Err(error.disposition()),
    };
    let direction = header.direction();
    let Body::Optional(optional) = &header.body else {
        panic!("an RDMA2_OPTIONAL");
    };
    Operation::parse(optional, &message[at..], supported, &Registry::standard())
        .map_err(|error| error.disposition(header.xid, header.credits, direction))
}

fn emitted(operation: &Operation, direction: Direction) -> Vec<u8> {
    let mut out = Buffer::default();
    operation.emit(&mut out, 7, 32, direction);
    assert_eq!(out.len(), operation.emitted_len());
    out.to_vec()
}

/// Each vector is a message on the wire, and the operation in it.
#[test]
fn vectors_are_read_and_made() {
    let check = |wire: &[u32], direction, operation: Operation| {
        let bytes = words(wire);
        assert_eq!(emitted(&operation, direction), bytes);
        let expected = Ok((operation, Oddities::default()));
        assert_eq!(received(&bytes, Supported::All), expected);
    };
    let init = InitXch::default()
        .with::<ReceiveBufferSize>(&ReceiveSize::new(8192).expect("large enough"))
        .with::<RequesterRemoteInvalidation>(&true)
        .with::<BackwardRequestSupport>(&BackwardSupport::General);
    check(
        &[
            7, 2, 32, 5, 0, 1, 48, 3, 1, 4, 8192, 2, 4, 1, 3, 4, 2, 1, 0b110,
        ],
        Direction::Call,
        Operation::InitXch(init),
    );
    check(
        &[7, 2, 32, 5, 1, 1, 8, 0, 0],
        Direction::Reply,
        Operation::InitXch(InitXch::default()),
    );
    let mut want = XcharSpec::default();
    want.set::<ReceiveBufferSize>(&ReceiveSize::MIN);
    check(
        &[7, 2, 32, 5, 0, 2, 16, 1, 1, 4, 1024],
        Direction::Call,
        Operation::ReqXch(ReqXch { want }),
    );
    check(
        &[7, 2, 32, 5, 0, 2, 4, 0],
        Direction::Call,
        Operation::ReqXch(ReqXch::default()),
    );
    let outcomes = [Outcome::Pending, Outcome::Rejected, Outcome::Done];
    check(
        &[7, 2, 32, 5, 1, 3, 24, 1, 4, 1, 2, 1, 1],
        Direction::Reply,
        Operation::RespXch(outcomes.into_iter().collect()),
    );
    check(
        &[7, 2, 32, 5, 0, 4, 16, 1, 4, 65536, 1],
        Direction::Call,
        Operation::UpdXch(UpdXch {
            now: value(1, &[0, 1, 0, 0]),
            pendclr: true,
        }),
    );
}

#[test]
fn malformed_operation_draws_bad_header_and_as_a_reply_nothing() {
    let bad = Disposition::BadHeader {
        xid: 7,
        credits: 32,
    };
    let of = |direction: u32, operation: u32, info: &[u32]| {
        let len = u32::try_from(4 * info.len()).expect("short");
        let wire = [&[7, 2, 32, 5, direction, operation, len], info].concat();
        received(&words(&wire), Supported::All).expect_err("malformed")
    };
    let check = |operation, info: &[u32]| {
        assert_eq!(of(0, operation, info), bad, "{operation}: {info:?}");
        assert_eq!(of(1, operation, info), Disposition::Discard);
    };
    let init = |info: &[u32]| check(code::INITXCH, info);
    init(&[]);
    init(&[0]);
    init(&[1, 1, 4, 1023, 0]);
    init(&[1, 1, 0, 0]);
    init(&[1, 1, 8, 4096, 0]);
    init(&[1, 2, 4, 2, 0]);
    init(&[1, 3, 4, 3, 0]);
    init(&[2, 1, 4, 4096, 1, 4, 4096, 0]);
    init(&[129, 0, 0, 0]);
    init(&[u32::MAX, 0]);
    init(&[0, 5, 0, 0, 0, 0, 0]);
    init(&[0, u32::MAX]);
    // More than its type has.
    init(&[0, 0, 0]);
    check(code::REQXCH, &[]);
    check(code::REQXCH, &[1, 1, 4]);
    check(code::REQXCH, &[1, 1, 4, 0]);
    check(code::UPDXCH, &[1, 4, 4096]);
    check(code::UPDXCH, &[1, 4, 4096, 2]);
    check(code::UPDXCH, &[1, 4, 512, 0]);
    check(code::RESPXCH, &[0, 0]);
    // These go the wrong way.
    assert_eq!(of(0, code::RESPXCH, &[0, 0, 0]), bad);
    assert_eq!(of(1, code::REQXCH, &[0]), Disposition::Discard);
}

/// xcharext §4: none of the operations has one.
#[test]
fn payload_behind_an_operation_draws_bad_header() {
    let wire = words(&[7, 2, 32, 5, 0, 1, 8, 0, 0, 0xdead_beef]);
    let bad = Disposition::BadHeader {
        xid: 7,
        credits: 32,
    };
    assert_eq!(received(&wire, Supported::All), Err(bad));
}

#[test]
fn what_is_not_supported_draws_inval_option_and_as_a_reply_nothing() {
    let drawn = |supported, direction, operation| {
        // Its information is not looked at: nobody here knows what it should be.
        let wire = words(&[7, 2, 32, 5, direction, operation, 4, 0xffff_ffff]);
        received(&wire, supported).expect_err("not supported")
    };
    let inval = Disposition::InvalOption {
        xid: 7,
        credits: 32,
    };
    for operation in [0, 5, u32::MAX] {
        assert_eq!(drawn(Supported::All, 0, operation), inval);
        assert_eq!(drawn(Supported::All, 1, operation), Disposition::Discard);
    }
    let taken = |supported: Supported| {
        let operations = [code::INITXCH, code::REQXCH, code::RESPXCH, code::UPDXCH];
        for operation in operations {
            if !supported.takes(operation) {
                assert_eq!(drawn(supported, 0, operation), inval);
            }
        }
        operations.map(|operation| supported.takes(operation))
    };
    assert_eq!(taken(Supported::None), [false; 4]);
    assert_eq!(taken(Supported::InitXch), [true, false, false, false]);
    assert_eq!(taken(Supported::InitRespXch), [true, true, true, false]);
    assert_eq!(taken(Supported::InitUpdXch), [true, false, false, true]);
    assert_eq!(taken(Supported::All), [true; 4]);
}

/// xcharext §4: who sends REQXCH supports RESPXCH and UPDXCH, and who supports one of those supports
/// INITXCH.
#[test]
fn sets_of_supported_operations_keep_to_their_rules() {
    for supported in Supported::ALL {
        let [init, response, update] =
            [code::INITXCH, code::RESPXCH, code::UPDXCH].map(|code| supported.takes(code));
        assert!(init || !(response || update), "{supported:?}");
        assert_eq!(supported.requests(), response && update, "{supported:?}");
    }
}

#[test]
fn odd_things_are_counted_and_do_no_harm() {
    // An unknown characteristic, a value with more than its type takes, and a bit for no value.
    let wire = [
        7,
        2,
        32,
        5,
        0,
        1,
        36,
        2,
        99,
        0,
        1,
        8,
        8192,
        5,
        1,
        0x8000_0002,
    ];
    let (operation, oddities) = received(&words(&wire), Supported::All).expect("valid");
    let expected = Oddities {
        unknown: 1,
        trailing: 1,
        bits_for_nothing: 1,
    };
    assert_eq!(oddities, expected);
    let Operation::InitXch(init) = operation else {
        panic!("an INITXCH");
    };
    assert_eq!(
        init.start.get::<ReceiveBufferSize>(),
        ReceiveSize::new(8192)
    );
    assert_eq!(init.nochg.positions().collect::<Vec<_>>(), [1]);
    assert!(init.is_fixed::<ReceiveBufferSize>());
    assert!(!init.is_fixed::<BackwardRequestSupport>());
}

#[test]
fn answer_says_one_thing_about_each_value() {
    use Outcome::{Done, Pending, Rejected};
    let answer: RespXch = [Done, Done, Pending, Rejected].into_iter().collect();
    let said: Vec<_> = (0..5).map(|at| answer.outcome(at)).collect();
    assert_eq!(
        said,
        [Some(Done), Some(Done), Some(Pending), Some(Rejected), None]
    );
    assert!(answer.is_answer_to(4));
    assert!(!answer.is_answer_to(3), "it says something about a fourth");
    assert!(!answer.is_answer_to(5), "it says nothing about a fifth");
    assert!(RespXch::default().is_answer_to(0));
    let twice = RespXch {
        done: XcharSubset::first(2),
        rejected: XcharSubset::first(1),
        pending: XcharSubset::EMPTY,
    };
    assert_eq!([twice.outcome(0), twice.outcome(1)], [None, Some(Done)]);
    assert!(!twice.is_answer_to(2) && !twice.is_answer_to(3));
}

/// xcharext §4.4.
#[test]
fn update_ends_a_request_or_does_not() {
    let meaning = |pendclr, is_pending| {
        let now = value(1, &[0, 0, 4, 0]);
        UpdXch { now, pendclr }.meaning(is_pending)
    };
    assert_eq!(meaning(false, false), Update::Unsolicited);
    assert_eq!(meaning(false, true), Update::Intermediate);
    assert_eq!(meaning(true, true), Update::Final);
    assert_eq!(meaning(true, false), Update::Stray);
}

#[test]
fn view_shows_what_is_there_even_if_it_is_wrong() {
    let info = words(&[1, 1, 4, 12, 2, 6]);
    let view = OperationView::new(code::INITXCH, &info).expect("known");
    let OperationFields::InitXch { start, nochg } = view.fields else {
        panic!("an INITXCH");
    };
    assert_eq!(start.values[0].data, [0, 0, 0, 12]);
    assert_eq!((nochg.count, nochg.words), (Some(2), vec![6]));
    assert!(view.error.is_some());
    let info = words(&[1, 4, 512, 9, 9]);
    let view = OperationView::new(code::UPDXCH, &info).expect("known");
    assert_eq!((view.error, view.trailing), (None, 4));
    assert!(
        matches!(view.fields, OperationFields::UpdXch { now, pendclr: Some(9) } if now.which == 1)
    );
    assert_eq!(OperationView::new(5, &info), None);
}

fn any_spec() -> impl Strategy<Value = XcharSpec> {
    let data = prop::collection::vec(any::<u8>(), 0..20);
    // None of these is known.
    prop::collection::btree_map(4..u32::MAX, data, 0..10).prop_map(|values| {
        let mut spec = XcharSpec::default();
        for (which, data) in values {
            spec.put(value(which, &data));
        }
        spec
    })
}

fn any_subset(below: usize) -> impl Strategy<Value = XcharSubset> {
    any::<u128>().prop_map(move |bits| (0..below).filter(|at| bits >> at & 1 == 1).collect())
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let init = any_spec().prop_flat_map(|start| {
        let nochg = any_subset(start.len());
        nochg.prop_map(move |nochg| {
            let start = start.clone();
            Operation::InitXch(InitXch { start, nochg })
        })
    });
    let answer = [any_subset(128), any_subset(128), any_subset(128)];
    let answer = answer.prop_map(|[done, rejected, pending]| {
        Operation::RespXch(RespXch {
            done,
            rejected,
            pending,
        })
    });
    let update = (any_spec(), any::<bool>()).prop_filter_map("one", |(spec, pendclr)| {
        let now = spec.values().first()?.clone();
        Some(Operation::UpdXch(UpdXch { now, pendclr }))
    });
    prop_oneof![
        init,
        any_spec().prop_map(|want| Operation::ReqXch(ReqXch { want })),
        answer,
        update,
    ]
}

fn usual_direction(operation: &Operation) -> Direction {
    match operation {
        Operation::RespXch(_) => Direction::Reply,
        Operation::InitXch(_) | Operation::ReqXch(_) | Operation::UpdXch(_) => Direction::Call,
    }
}

proptest! {
    #[test]
    fn what_is_made_is_read_back(operation in any_operation()) {
        let bytes = emitted(&operation, usual_direction(&operation));
        let (read, _) = received(&bytes, Supported::All).expect("valid");
        prop_assert_eq!(read, operation);
    }

    #[test]
    fn no_cut_operation_is_valid(operation in any_operation()) {
        let direction = usual_direction(&operation);
        let info = operation.to_optional(direction).info;
        for len in 0..info.len() {
            let cut = crate::v2::header::Optional {
                direction,
                operation: operation.code(),
                info: info[..len].to_vec(),
            };
            let parsed = Operation::parse(&cut, &[], Supported::All, &Registry::standard());
            prop_assert!(parsed.is_err());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(info in prop::collection::vec(any::<u8>(), 0..200), operation in 0..6_u32) {
        for bytes in [info.clone(), info.iter().map(|byte| byte & 1).collect()] {
            let _ = OperationView::new(operation, &bytes);
            let optional = crate::v2::header::Optional {
                direction: Direction::Call,
                operation,
                info: bytes,
            };
            let _ = Operation::parse(&optional, &[], Supported::All, &Registry::standard());
        }
    }
}
