//! The scan of messages that pass by, and the codec: both see the same ends and the same DDP-eligible items.

use super::{payload, stream};
use crate::limits::MAX_V4_HANDLE;
use crate::scan::{CallScan, ItemPlace, ReplyScan, ScannedCall};
use crate::tests::{Rng, Sample};
use crate::v4::file::{ReadOk, WriteArgs};
use crate::v4::{ArgOp, Bitmap, CallWriter, Operation, ReplyWriter, ResOp, Tag};
use oncrpc::xdr::{Payload, Writer};
use proptest::prelude::*;

/// Operations that a call may have in minor version 2.
fn operations() -> impl Iterator<Item = Operation> {
    Operation::ALL
        .iter()
        .copied()
        .filter(|operation| operation.is_in(2))
}

/// A call with AUTH_NONE of these operations.
fn call(operations: impl IntoIterator<Item = ArgOp<'static>>) -> Payload {
    let mut w = Writer::default();
    w.words([9, 0, 2, 100_003, 4, 1, 0, 0, 0, 0]);
    let mut call = CallWriter::new(&mut w, Tag::new(b"tag").unwrap(), 2);
    operations
        .into_iter()
        .for_each(|operation| call.push(operation));
    call.finish();
    w.finish()
}

/// An accepted reply of these results.
fn reply(results: impl IntoIterator<Item = ResOp<'static>>) -> Payload {
    let mut w = Writer::default();
    w.words([9, 1, 0, 0, 0, 0]);
    let mut reply = ReplyWriter::new(w, Tag::new(b"tag").unwrap(), Ok(()));
    results.into_iter().for_each(|result| reply.push(result));
    reply.finish().finish()
}

fn scanned(call: &Payload) -> ScannedCall {
    let mut scan = CallScan::default();
    stream(call).chunks(7).for_each(|piece| scan.push(piece));
    scan.finish().expect("a call")
}

/// The items that the codec made.
fn places(message: &Payload) -> Vec<ItemPlace> {
    let items = message.items().iter().enumerate();
    let place = |(index, item): (usize, &oncrpc::xdr::Item)| ItemPlace {
        offset: message.position(index),
        length: item.len(),
    };
    items.map(place).collect()
}

fn number(operation: Operation) -> u8 {
    u8::try_from(operation as u32).unwrap()
}

fn write_behind(rng: &mut Rng) -> ArgOp<'static> {
    ArgOp::Write(WriteArgs {
        data: (&b"behind"[..]).into(),
        ..Sample::sample(rng)
    })
}

fn read_behind() -> ResOp<'static> {
    ResOp::Read(Ok(ReadOk {
        eof: true,
        data: (&b"behind"[..]).into(),
    }))
}

proptest! {
    #[test]
    fn scan_and_codec_agree_about_the_arguments_of_every_operation(seed: u64) {
        let rng = &mut Rng::new(seed);
        for operation in operations() {
            let message = call([ArgOp::sample_of(operation, rng), write_behind(rng)]);
            let found = scanned(&message);
            prop_assert!(!found.truncated, "{operation:?}");
            prop_assert_eq!(&found.arguments[..], &places(&message)[..], "{:?}", operation);
            prop_assert_eq!(found.arguments.last().map(|item| item.length), Some(6));
            prop_assert_eq!(&found.operations[..], &[number(operation), 38][..]);
        }
    }

    #[test]
    fn scan_and_codec_agree_about_the_result_of_every_operation(seed: u64) {
        let rng = &mut Rng::new(seed);
        let request = scanned(&call([]));
        for operation in operations() {
            let message = reply([ResOp::sample_of(operation, rng), read_behind()]);
            let mut scan = ReplyScan::new(&request);
            stream(&message).chunks(7).for_each(|piece| scan.push(piece));
            let found = scan.finish();
            prop_assert_eq!(&found.results[..], &places(&message)[..], "{:?}", operation);
            prop_assert_eq!(found.results.last().map(|item| item.length), Some(6));
            prop_assert_eq!(&found.operations[..], &[number(operation), 25][..]);
        }
    }

    /// The room in a reply is for the largest result that the codec can make, where the arguments do not limit
    /// that.
    #[test]
    fn bound_of_the_scan_has_room_for_every_result(seed: u64) {
        let rng = &mut Rng::new(seed);
        for operation in operations().filter(|&operation| !is_limited_by_arguments(operation)) {
            let found = scanned(&call([ArgOp::sample_of(operation, rng)]));
            let Some(bound) = found.reply else {
                prop_assert!(has_no_limit(operation), "{operation:?}");
                continue;
            };
            let message = reply([ResOp::sample_of(operation, rng)]);
            let room = bound.fixed + bound.results.iter().sum::<usize>();
            prop_assert!(stream(&message).len() <= room, "{operation:?}");
        }
    }
}

fn is_limited_by_arguments(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::GetAttr
            | Operation::GetDeviceInfo
            | Operation::GetDeviceList
            | Operation::LayoutGet
            | Operation::ListXattrs
            | Operation::Read
            | Operation::ReadDir
            | Operation::ReadPlus
            | Operation::TestStateId
    )
}

/// Operations whose result the protocol does not limit. In EXCHANGE_ID it is that to SP4_SSV.
fn has_no_limit(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::CopyNotify
            | Operation::ExchangeId
            | Operation::GetXattr
            | Operation::SecInfo
            | Operation::SecInfoNoName
            | Operation::SetSsv
    )
}

#[test]
fn room_for_attributes_is_that_of_the_largest_values() {
    let rng = &mut Rng::new(4);
    use crate::v4::{Attribute, AttributeNumber, Fattr, Handle, file};
    let handle = Handle::new(&[7; MAX_V4_HANDLE as usize]).unwrap();
    for &number in AttributeNumber::ALL {
        let wanted = Bitmap::of([number as u32]);
        let found = scanned(&call([ArgOp::GetAttr(file::GetAttrArgs { wanted })]));
        let Some(bound) = found.reply else {
            continue;
        };
        let largest = match number {
            AttributeNumber::FileHandle => vec![Attribute::FileHandle(handle)],
            number => (0..40).map(|_| Attribute::sample(number, rng)).collect(),
        };
        for value in largest {
            let values: &[Attribute<'_>] = vec![value].leak();
            let attributes = Fattr::new(values).unwrap();
            let message = reply([ResOp::GetAttr(Ok(file::GetAttrOk { attributes }))]);
            assert!(stream(&message).len() <= bound.fixed, "{number:?}");
        }
    }
}

#[test]
fn only_data_and_link_text_are_items() {
    let rng = &mut Rng::new(1);
    for operation in operations() {
        for _ in 0..40 {
            let arguments = payload(&ArgOp::sample_of(operation, rng)).items().len();
            let result = payload(&ResOp::sample_of(operation, rng)).items().len();
            match operation {
                Operation::Write => assert_eq!((arguments, result), (1, 0)),
                Operation::Create => assert!(arguments <= 1 && result == 0),
                Operation::Read | Operation::ReadLink => assert!(arguments == 0 && result <= 1),
                _ => assert_eq!((arguments, result), (0, 0), "{operation:?}"),
            }
        }
    }
}
