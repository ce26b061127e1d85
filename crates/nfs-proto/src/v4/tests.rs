//! NFS version 4: random values there and back, octets by hand, limits, and the scan of passing messages.

mod attributes;
mod compound;
mod limits;
mod scan;
mod vectors;

use crate::Wire;
use crate::tests::{Rng, Sample};
use crate::v4::callback::{CbArgOp, CbCompoundArgs, CbOperation, CbResOp};
use crate::v4::{ArgOp, Array, Operation, Refused, ResOp, Status};
use buffer::Buffer;
use oncrpc::xdr::{Payload, Reader, Writer};
use proptest::prelude::*;

impl Sample for i32 {
    fn sample(rng: &mut Rng) -> Self {
        u32::sample(rng).cast_signed()
    }
}

impl Sample for i64 {
    fn sample(rng: &mut Rng) -> Self {
        u64::sample(rng).cast_signed()
    }
}

impl<'a, T: Sample + 'a, const LIMIT: u32> Sample for Array<'a, T, LIMIT> {
    fn sample(rng: &mut Rng) -> Self {
        let values: Vec<T> = (0..rng.below(4)).map(|_| T::sample(rng)).collect();
        Self::new(values.leak()).unwrap()
    }
}

impl<T: Sample> Sample for Result<T, Status> {
    fn sample(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 => Err(Sample::sample(rng)),
            _ => Ok(T::sample(rng)),
        }
    }
}

impl<T: Sample, F: Sample, const CODE: u32> Sample for Result<T, Refused<F, CODE>> {
    fn sample(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 => Err(Refused::Status(Status::Delay)),
            1 => Err(Refused::Explained(F::sample(rng))),
            _ => Ok(T::sample(rng)),
        }
    }
}

fn payload<'a>(value: &impl Wire<'a>) -> Payload {
    let mut w = Writer::default();
    value.write(&mut w);
    w.finish()
}

fn stream(payload: &Payload) -> Vec<u8> {
    let mut out = Buffer::default();
    payload.copy_stream_into(&mut out);
    out.to_vec()
}

fn bytes<'a>(value: &impl Wire<'a>) -> Vec<u8> {
    stream(&payload(value))
}

/// Octets from hexadecimal digits; blanks are for reading.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

/// A value is read as it was written, with items beside the stream and in it; keeps to the size that its type
/// declares; and no shorter message is taken for it.
macro_rules! round_trip {
    ($rng:expr, $ty:ty, $value:expr) => {{
        let value: $ty = $value;
        let apart = payload(&value);
        prop_assert!(apart.head().len() <= <$ty as Wire>::MAX);
        let mut r = Reader::from(&apart);
        prop_assert_eq!(&<$ty as Wire>::parse(&mut r).unwrap(), &value);
        prop_assert!(r.finish().is_ok());

        let mut w = Writer::default();
        value.clone().hand_over(&mut w);
        let handed_over = w.finish();
        prop_assert_eq!(handed_over.head(), apart.head());
        prop_assert_eq!(handed_over.items().len(), apart.items().len());

        let whole = stream(&apart);
        let mut r = Reader::new(&whole);
        let read = <$ty as Wire>::parse(&mut r).unwrap();
        prop_assert_eq!(&read, &value);
        prop_assert!(r.finish().is_ok());
        prop_assert_eq!(bytes(&read), whole.clone());

        let cut = $rng.below(whole.len().max(1)) & !3;
        if cut < whole.len() {
            let short = <$ty as Wire>::parse(&mut Reader::new(&whole[..cut]));
            prop_assert!(short.is_err());
        }
    }};
}

proptest! {
    #[test]
    fn every_operation_is_read_as_it_was_written(seed: u64) {
        let rng = &mut Rng::new(seed);
        for &operation in Operation::ALL {
            let arguments = ArgOp::sample_of(operation, rng);
            prop_assert_eq!(arguments.number(), operation);
            round_trip!(rng, ArgOp<'_>, arguments);
            let result = ResOp::sample_of(operation, rng);
            prop_assert_eq!(result.number(), operation);
            round_trip!(rng, ResOp<'_>, result);
        }
    }

    #[test]
    fn every_callback_is_read_as_it_was_written(seed: u64) {
        let rng = &mut Rng::new(seed);
        for &operation in CbOperation::ALL {
            let arguments = CbArgOp::sample_of(operation, rng);
            prop_assert_eq!(arguments.number(), operation);
            round_trip!(rng, CbArgOp<'_>, arguments);
            let result = CbResOp::sample_of(operation, rng);
            prop_assert_eq!(result.number(), operation);
            round_trip!(rng, CbResOp<'_>, result);
        }
        round_trip!(rng, CbCompoundArgs<'_>, CbCompoundArgs::sample(rng));
        let results = crate::v4::callback::CbCompoundRes::sample(rng);
        round_trip!(rng, crate::v4::callback::CbCompoundRes<'_>, results);
    }
}

#[test]
fn numbers_of_operations_are_without_gaps() {
    let numbers = Operation::ALL.iter().map(|&number| number as u32);
    assert!(numbers.eq((3..=75).chain([10_044])));
    let numbers = CbOperation::ALL.iter().map(|&number| number as u32);
    assert!(numbers.eq((3..=15).chain([10_044])));
}

#[test]
fn failure_of_every_operation_is_a_status() {
    for &operation in Operation::ALL {
        let failed = ResOp::failed(operation, Status::Delay);
        assert_eq!(failed.status(), Err(Status::Delay));
        let words = match operation {
            Operation::SetAttr => 3,
            _ => 2,
        };
        assert_eq!(bytes(&failed).len(), 4 * words, "{operation:?}");
    }
    let denied = ResOp::failed(Operation::Lock, Status::Denied);
    assert_eq!(denied.status(), Err(Status::Denied));
}
