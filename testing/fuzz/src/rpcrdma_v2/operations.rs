//! The operations and characteristics of version two (xcharext §2, §4).

use crate::memory::within;
use crate::rpcrdma_header::{MEMORY, MEMORY_PER_BYTE, bytes};
use crate::script::Script;
use buffer::Buffer;
use oncrpc::xdr::padded;
use rpcrdma_proto::limits::{MAX_CHARACTERISTIC_LEN, MAX_CHARACTERISTICS};
use rpcrdma_proto::v2::characteristics::{
    BackwardRequestSupport, InvalidationDesigns, Oddities, ReceiveBufferSize, ReceiveSize,
    Registry, RequesterRemoteInvalidation, SpecView, SubsetView, XcharSpec, XcharSubset,
};
use rpcrdma_proto::v2::header::{Body, Direction, Disposition, Header, Optional, WordLayout};
use rpcrdma_proto::v2::operations::{
    Operation, OperationError, OperationFields, OperationView, Supported, code,
};

/// The information of a received RDMA2_OPTIONAL.
pub fn rpcrdma_v2_operations(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let optional = Optional {
        direction: script.pick(&[Direction::Call, Direction::Reply]),
        operation: script.pick(&[1, 1, 1, 2, 3, 4, 4, 0, 5]),
        info: Vec::new(),
    };
    let supported = script.pick(&[
        Supported::All,
        Supported::All,
        Supported::InitUpdXch,
        Supported::InitRespXch,
        Supported::InitXch,
        Supported::None,
    ]);
    let registry = registry(&mut script);
    let rest = if script.one_in(16) { &b"rest"[..] } else { &[] };
    let cut = script.word() as usize;
    let info = script.rest_or(|script| made_up(script, optional.operation));
    let optional = Optional {
        info: info.into_owned(),
        ..optional
    };
    let most = MEMORY + MEMORY_PER_BYTE * optional.info.len();
    match within(most, || {
        Operation::parse(&optional, rest, supported, &registry)
    }) {
        Ok((operation, oddities)) => {
            assert!(supported.takes(optional.operation) && rest.is_empty());
            valid(&optional, &operation, oddities, &registry);
            cut_short(&optional, cut, &registry);
        }
        Err(error) => invalid(&optional, supported, error),
    }
    for operation in 0..6 {
        within(most, || {
            OperationView::new(operation, &optional.info).is_some()
        });
    }
}

fn registry(script: &mut Script<'_>) -> Registry {
    let mut registry = Registry::standard();
    if script.flag() {
        let added = registry.register::<InvalidationDesigns>();
        added.expect("its id is none of the text");
    }
    registry
}

/// The fields of an operation as the script has them, and whatever else to its end.
pub(crate) fn made_up(script: &mut Script<'_>, operation: u32) -> Vec<u8> {
    let mut words = Vec::new();
    match operation {
        code::INITXCH => {
            made_up_spec(script, &mut words);
            made_up_subset(script, &mut words);
        }
        code::REQXCH => made_up_spec(script, &mut words),
        code::RESPXCH => (0..3).for_each(|_| made_up_subset(script, &mut words)),
        _ => {
            made_up_value(script, &mut words);
            words.push(script.pick(&[0, 1, 1, 2]));
        }
    }
    if script.one_in(8) {
        words.push(script.number());
    }
    let mut made = bytes(&words);
    made.extend_from_slice(script.rest());
    made
}

fn made_up_spec(script: &mut Script<'_>, words: &mut Vec<u32>) {
    let values = script.pick(&[3, 1, 2, 4, 0, 20, 127, 128, 129]);
    let count = if script.one_in(16) {
        script.number()
    } else {
        values
    };
    words.push(count);
    for at in 0..values {
        if at < 8 {
            made_up_value(script, words);
        } else {
            // Of ids that nobody knows, each once.
            words.extend([1000 + at, 0]);
        }
    }
}

fn made_up_value(script: &mut Script<'_>, words: &mut Vec<u32>) {
    let id = script.pick(&[1, 2, 3, 4, 5, 4_294_967_040]);
    match script.byte() {
        0..160 => words.extend([
            id,
            4,
            script.pick(&[1, 0, 2, 3, 1023, 1024, 8192, u32::MAX]),
        ]),
        160..192 => words.extend([id, 8, script.number(), script.number()]),
        192..208 => words.extend([script.word(), 0]),
        208..224 => words.extend([id, 3, script.number() << 8]),
        224.. => words.extend([id, script.number(), script.number()]),
    }
}

fn made_up_subset(script: &mut Script<'_>, words: &mut Vec<u32>) {
    let count = script.pick(&[1, 0, 2, 3, 4, 5]);
    words.push(if script.one_in(16) {
        script.number()
    } else {
        count
    });
    for _ in 0..count {
        words.push(script.number());
    }
}

fn valid(optional: &Optional, operation: &Operation, oddities: Oddities, registry: &Registry) {
    assert_eq!(operation.code(), optional.operation);
    let view = OperationView::new(optional.operation, &optional.info).expect("known");
    assert_eq!((view.error, view.trailing), (None, 0));
    match (operation, &view.fields) {
        (Operation::InitXch(init), OperationFields::InitXch { start, nochg }) => {
            of_spec(&init.start, start, registry);
            let bits = of_subset(init.nochg, nochg);
            assert_eq!(oddities.bits_for_nothing, bits);
            assert!(init.nochg.positions().all(|at| at < init.start.len()));
        }
        (Operation::ReqXch(request), OperationFields::ReqXch { want }) => {
            of_spec(&request.want, want, registry);
        }
        (
            Operation::RespXch(answer),
            OperationFields::RespXch {
                done,
                rejected,
                pending,
            },
        ) => {
            assert_eq!(of_subset(answer.done, done), 0);
            assert_eq!(of_subset(answer.rejected, rejected), 0);
            assert_eq!(of_subset(answer.pending, pending), 0);
            // It answers a request of at most one length.
            let lengths = (0..=MAX_CHARACTERISTICS).filter(|len| answer.is_answer_to(*len));
            assert!(lengths.count() <= 1);
        }
        (Operation::UpdXch(update), OperationFields::UpdXch { now, pendclr }) => {
            assert_eq!(
                (update.now.which.0, &update.now.data[..]),
                (now.which, now.data)
            );
            assert_eq!(*pendclr, Some(update.pendclr.into()));
        }
        (operation, view) => panic!("{operation:?} is seen as {view:?}"),
    }
    sent_again(operation, optional.direction, oddities, registry);
}

/// Only bits for nothing and words of zero are not sent again.
fn sent_again(
    operation: &Operation,
    direction: Direction,
    oddities: Oddities,
    registry: &Registry,
) {
    let mut message = Buffer::default();
    operation.emit(&mut message, 7, 1, direction);
    assert_eq!(message.len(), operation.emitted_len());
    let (header, at) = Header::parse(&message, WordLayout::None).expect("what we send is valid");
    assert_eq!((at, header.direction()), (message.len(), direction));
    let Body::Optional(optional) = header.body else {
        panic!("an RDMA2_OPTIONAL");
    };
    assert_eq!(optional, operation.to_optional(direction));
    let again = Operation::parse(&optional, &[], Supported::All, registry);
    let oddities = Oddities {
        bits_for_nothing: 0,
        ..oddities
    };
    assert_eq!(again.as_ref(), Ok(&(operation.clone(), oddities)));
}

fn of_spec(spec: &XcharSpec, view: &SpecView<'_>, registry: &Registry) {
    assert!(spec.len() <= MAX_CHARACTERISTICS);
    let seen = view.values.iter().map(|seen| (seen.which, seen.data));
    let values = spec.values().iter();
    assert!(
        values
            .map(|value| (value.which.0, &value.data[..]))
            .eq(seen)
    );
    for (at, value) in spec.values().iter().enumerate() {
        assert!(value.data.len() <= MAX_CHARACTERISTIC_LEN as usize);
        assert_eq!(spec.position(value.which), Some(at), "it is there once");
        if let Some(known) = registry.get(value.which) {
            assert!(known.show(&value.data).is_ok());
        }
    }
    // What is known can be read, and nothing less than the least is.
    let is_there = |id| spec.values().iter().any(|value| value.which.0 == id);
    let size = spec.get::<ReceiveBufferSize>();
    assert_eq!(size.is_some(), is_there(1));
    assert!(size.is_none_or(|size| size >= ReceiveSize::MIN));
    assert_eq!(
        spec.get::<RequesterRemoteInvalidation>().is_some(),
        is_there(2)
    );
    assert_eq!(spec.get::<BackwardRequestSupport>().is_some(), is_there(3));
    if let Some(designs) = spec.get::<InvalidationDesigns>()
        && let Some(design) = designs.answered()
    {
        assert!(designs.offered().has(design));
    }
}

/// How many bits of the view are not in the subset.
fn of_subset(subset: XcharSubset, view: &SubsetView) -> usize {
    for at in subset.positions() {
        assert_ne!(view.words[at / 32] >> (at % 32) & 1, 0);
    }
    let bits: u32 = view.words.iter().map(|word| word.count_ones()).sum();
    bits as usize - subset.len()
}

/// No part of an operation is one.
fn cut_short(optional: &Optional, cut: usize, registry: &Registry) {
    let part = Optional {
        info: optional.info[..cut % optional.info.len()].to_vec(),
        ..*optional
    };
    let parsed = Operation::parse(&part, &[], Supported::All, registry);
    assert!(parsed.is_err(), "{} bytes", padded(part.info.len()));
}

/// Nobody is answered who does not call.
fn invalid(optional: &Optional, supported: Supported, error: OperationError) {
    let (xid, credits) = (7, 1);
    let expected = match error {
        OperationError::Unsupported(operation) => {
            assert_eq!(operation, optional.operation);
            assert!(!supported.takes(operation));
            Disposition::InvalOption { xid, credits }
        }
        OperationError::Malformed { operation, .. } => {
            assert!(supported.takes(operation));
            Disposition::BadHeader { xid, credits }
        }
    };
    let call = error.disposition(xid, credits, Direction::Call);
    assert_eq!(call, expected);
    let reply = error.disposition(xid, credits, Direction::Reply);
    assert_eq!(reply, Disposition::Discard);
}
