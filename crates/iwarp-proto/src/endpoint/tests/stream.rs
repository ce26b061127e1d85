//! Properties of the stream: how it is cut does not matter, and what is corrupt is never passed on.

use super::*;
use proptest::prelude::*;

/// A conversation, from one number.
#[derive(Clone, Debug)]
enum Step {
    /// Octets in all, and those of them that are in the buffer at most.
    Send(usize, usize),
    Write(usize, usize),
    Read(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![0_usize..200, 7000_usize..10_000, 0_usize..150_000];
    let step = (0..3, size, 0_usize..1000).prop_map(|(kind, size, offset)| match kind {
        0 => Step::Send(size.min(20_000), 20 * offset),
        1 => Step::Write(size, offset),
        _ => Step::Read(size, offset),
    });
    proptest::collection::vec(step, 1..12)
}

const REGION: usize = 151_000;

/// State after the steps: the messages received, the region written, and the octets read.
type Outcome = (Vec<Vec<u8>>, Vec<u8>, Vec<Vec<u8>>);

fn post(pair: &mut Pair, steps: &[Step]) -> Handle {
    let sink = pair.b.register(sink(REGION)).unwrap();
    let source = pair
        .b
        .register(Memory::Source(
            pattern(REGION, 1)
                .chunks(7000)
                .map(Bytes::copy_from_slice)
                .collect(),
        ))
        .unwrap();
    for (n, step) in (0..).zip(steps) {
        let work = match *step {
            Step::Send(len, head) => {
                pair.b.post(receive(n, 20_000)).unwrap();
                let bytes = pattern(len, n);
                let (head, rest) = bytes.split_at(head.min(len));
                send_from(n, head, rest)
            }
            Step::Write(len, offset) => write(n, pattern(len, n), sink, offset as u64),
            Step::Read(len, offset) => {
                let first = len / 3;
                let segment = |offset: usize, length: usize| Segment {
                    handle: source,
                    length: length as u32,
                    offset: offset as u64,
                };
                read(
                    n,
                    len,
                    &[segment(offset, first), segment(offset + first, len - first)],
                )
            }
        };
        pair.a.post(work).unwrap();
    }
    sink
}

fn expected(steps: &[Step]) -> Outcome {
    let mut outcome = (Vec::new(), vec![0; REGION], Vec::new());
    let source = pattern(REGION, 1);
    for (n, step) in (0..).zip(steps) {
        match *step {
            Step::Send(len, _) => outcome.0.push(pattern(len, n)),
            Step::Write(len, offset) => {
                outcome.1[offset..offset + len].copy_from_slice(&pattern(len, n));
            }
            Step::Read(len, offset) => outcome.2.push(source[offset..offset + len].to_vec()),
        }
    }
    outcome
}

fn outcome(pair: &mut Pair, handle: Handle) -> Outcome {
    let received = completions(&mut pair.b)
        .into_iter()
        .map(|completion| match completion {
            Completion::Receive { buffer, .. } => buffer.to_vec(),
            other => panic!("{other:?}"),
        })
        .collect();
    let read = completions(&mut pair.a)
        .into_iter()
        .filter_map(|completion| match completion {
            Completion::Read { sink, .. } => Some(sink.to_vec()),
            Completion::Send { .. } | Completion::Write { .. } => None,
            other => panic!("{other:?}"),
        })
        .collect();
    let slot = pair.b.places.region(handle.0).unwrap();
    let Memory::Sink(mut region) = pair.b.places.release(slot) else {
        panic!("a sink was registered");
    };
    (received, region.memory_mut().to_vec(), read)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_work_arrives_however_the_stream_is_cut(
        steps in steps(),
        piece in prop_oneof![1_usize..50, 50_usize..5000, 5000_usize..300_000],
        max_ulpdu in prop_oneof![Just(fpdu::LARGE_MULPDU), 128_usize..65_000],
        crc: bool,
        strict: bool,
    ) {
        let mut pair = Pair::with(|config| {
            config.max_ulpdu = max_ulpdu;
            config.crc = crc;
            config.strict = strict;
        });
        pair.piece = piece;
        let handle = post(&mut pair, &steps);
        pair.drive();
        prop_assert_eq!(outcome(&mut pair, handle), expected(&steps));
    }

    #[test]
    fn markers_do_not_change_what_is_sent(steps in steps(), crc: bool) {
        let make = |markers| {
            let mut pair = Pair::with(|config| config.crc = crc);
            pair.a = Endpoint::new(EndpointConfig { crc, markers, ..config(Role::Initiator) });
            post(&mut pair, &steps);
            output(&mut pair.a, usize::MAX)
        };
        let (plain, marked) = (make(false), make(true));
        let without: Vec<u8> = marked
            .chunks(fpdu::MARKER_PERIOD)
            .flat_map(|period| period[fpdu::MARKER_LEN..].iter().copied())
            .collect();
        // All but the CRCs, which cover the markers.
        prop_assert_eq!(fpdus(&without), fpdus(&plain));
    }

    #[test]
    fn corruption_is_never_delivered(
        steps in steps(),
        at in any::<prop::sample::Index>(),
        bit in 0..8,
        cut in 1_usize..100_000,
    ) {
        let mut pair = Pair::new();
        post(&mut pair, &steps);
        let mut stream = output(&mut pair.a, usize::MAX);
        let at = at.index(stream.len());
        stream[at] ^= 1_u8 << bit;
        for piece in stream.chunks(cut) {
            pair.b.recv_slice(piece);
        }
        let sent = expected(&steps).0;
        let mut received = 0;
        for completion in completions(&mut pair.b) {
            if let Completion::Receive { buffer, .. } = completion {
                prop_assert_eq!(&*buffer, &sent[received]);
                received += 1;
            }
        }
        // Either the error is found, or the rest of the FPDU with it is still awaited.
        let found = pair.b.is_ending() || pair.b.closed().is_some();
        prop_assert!(found || !pair.b.rx.is_between_fpdus());
    }

    #[test]
    fn garbage_never_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        crc: bool,
        cut in 1_usize..3000,
    ) {
        let mut endpoint = Endpoint::new(EndpointConfig { crc, ..config(Role::Responder) });
        endpoint.post(receive(1, 100)).unwrap();
        endpoint.register(sink(1000)).unwrap();
        for piece in bytes.chunks(cut) {
            endpoint.recv_slice(piece);
        }
        output(&mut endpoint, usize::MAX);
    }
}
