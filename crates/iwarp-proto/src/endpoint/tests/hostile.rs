//! One endpoint against a peer that breaks rules: each case sends the right Terminate and changes
//! no memory.

use super::*;
use crate::crc;
use crate::ddp::Control;
use crate::rdmap::{self, Opcode, ReadRequest};

/// Frames a segment, with a right CRC.
pub(super) fn frame(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let ulpdu = header.wire_len() + payload.len();
    out.extend_from_slice(&(ulpdu as u16).to_be_bytes());
    header.emit(&mut out);
    out.extend_from_slice(payload);
    out.resize(out.len() + fpdu::pad_len(ulpdu), 0);
    let crc = crc::emit(crc::crc32c(&out));
    out.extend_from_slice(&crc);
    out
}

pub(super) fn tagged(opcode: Opcode, stag: u32, offset: u64) -> Header {
    Header::Tagged {
        control: Control::new(true, true),
        rsvd_ulp: rdmap::Control::new(opcode).0,
        stag,
        offset,
    }
}

pub(super) fn untagged(opcode: Opcode, queue: u32, sequence: u32, offset: u32) -> Header {
    Header::Untagged {
        control: Control::new(false, true),
        rsvd_ulp: rdmap::Control::new(opcode).0,
        rsvd_ulp_word: 0,
        queue,
        sequence,
        offset,
    }
}

pub(super) fn with_control(header: Header, byte: u8) -> Header {
    let mut header = header;
    match &mut header {
        Header::Tagged { control, .. } | Header::Untagged { control, .. } => {
            *control = Control(byte);
        }
    }
    header
}

pub(super) fn with_rdmap(header: Header, byte: u8) -> Header {
    let mut header = header;
    match &mut header {
        Header::Tagged { rsvd_ulp, .. } | Header::Untagged { rsvd_ulp, .. } => *rsvd_ulp = byte,
    }
    header
}

const REGION: usize = 20_000;

/// A responder with one region each way, a Receive of 100 octets, and a Read that is out.
struct Victim {
    endpoint: Endpoint,
    sink: Handle,
    source: Handle,
    read_stag: u32,
}

impl Victim {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut EndpointConfig)) -> Self {
        let mut config = config(Role::Responder);
        change(&mut config);
        let mut endpoint = Endpoint::new(config);
        let sink = endpoint.register(sink(REGION)).unwrap();
        let source = endpoint
            .register(Memory::Source(gather(vec![5; REGION])))
            .unwrap();
        endpoint.post(receive(1, 100)).unwrap();
        endpoint.recv_slice(&frame(tagged(Opcode::Write, 0, 0), &[]));
        let segment = Segment {
            handle: Handle(9),
            length: 16_000,
            offset: 0,
        };
        endpoint.post(read(2, 16_000, &[segment])).unwrap();
        let request = fpdus(&output(&mut endpoint, usize::MAX)).pop().unwrap().1;
        let read_stag = ReadRequest::parse(request.first_chunk().unwrap()).sink_stag;
        Self {
            endpoint,
            sink,
            source,
            read_stag,
        }
    }

    /// Says this to it, and looks at what it answers.
    #[track_caller]
    fn check(mut self, bytes: &[u8], cause: Cause) -> Terminate {
        self.endpoint.recv_slice(bytes);
        let out = output(&mut self.endpoint, usize::MAX);
        let terminate = terminate_in(&out).expect("it ends with a Terminate");
        assert_eq!(terminate.cause, cause);
        assert!(self.endpoint.wants_shutdown());
        // What comes now is dropped.
        self.endpoint
            .recv_slice(&frame(tagged(Opcode::Write, self.sink.0, 0), &[1; REGION]));
        self.endpoint.recv_with(|_| Ok(0)).unwrap();
        assert_eq!(self.endpoint.closed(), Some(&peer_error(cause)));
        for completion in completions(&mut self.endpoint) {
            assert!(
                matches!(completion, Completion::Failed { .. }),
                "{completion:?}"
            );
        }
        let slot = self.endpoint.places.region(self.sink.0).unwrap();
        let Memory::Sink(mut buffer) = self.endpoint.places.release(slot) else {
            panic!("a sink was registered");
        };
        assert!(
            buffer.memory_mut().iter().all(|byte| *byte == 0),
            "the region is untouched"
        );
        terminate
    }
}

#[track_caller]
fn check(cause: Cause, bytes: impl FnOnce(&Victim) -> Vec<u8>) -> Terminate {
    let victim = Victim::new();
    let bytes = bytes(&victim);
    victim.check(&bytes, cause)
}

/// The same with little and much payload: the second is about to be placed directly.
#[track_caller]
fn check_write(cause: Cause, header: impl Fn(&Victim, usize) -> Header) {
    for len in [1, 10, 9000, 20_000] {
        check(cause, |victim| frame(header(victim, len), &vec![1; len]));
    }
}

#[test]
fn write_to_an_unknown_stag() {
    check_write(Cause::DDP_INVALID_STAG, |victim, _| {
        tagged(Opcode::Write, victim.sink.0 ^ 1, 0)
    });
    check_write(Cause::DDP_INVALID_STAG, |victim, _| {
        tagged(Opcode::Write, victim.sink.0 ^ 0x8000_0000, 0)
    });
    check_write(Cause::DDP_INVALID_STAG, |_, _| tagged(Opcode::Write, 0, 0));
}

#[test]
fn write_beyond_the_region() {
    check_write(Cause::DDP_BOUNDS, |victim, len| {
        tagged(Opcode::Write, victim.sink.0, (REGION - len + 1) as u64)
    });
    check_write(Cause::DDP_BOUNDS, |victim, _| {
        tagged(Opcode::Write, victim.sink.0, 1 << 32)
    });
    check_write(Cause::DDP_BOUNDS, |victim, len| {
        tagged(Opcode::Write, victim.sink.0, u64::MAX - len as u64)
    });
}

#[test]
fn write_whose_end_wraps() {
    check_write(Cause::DDP_WRAP, |victim, _| {
        tagged(Opcode::Write, victim.sink.0, u64::MAX)
    });
}

#[test]
fn write_to_a_read_source_or_to_the_sink_of_a_read() {
    check_write(Cause::RDMA_ACCESS, |victim, _| {
        tagged(Opcode::Write, victim.source.0, 0)
    });
    check_write(Cause::RDMA_ACCESS, |victim, _| {
        tagged(Opcode::Write, victim.read_stag, 0)
    });
}

#[test]
fn headers_of_other_versions() {
    check_write(Cause::DDP_TAGGED_VERSION, |victim, _| {
        with_control(tagged(Opcode::Write, victim.sink.0, 0), 0xc2)
    });
    check_write(Cause::RDMA_VERSION, |victim, _| {
        with_rdmap(tagged(Opcode::Write, victim.sink.0, 0), 0x80)
    });
    check(Cause::DDP_UNTAGGED_VERSION, |_| {
        frame(with_control(untagged(Opcode::Send, 0, 1, 0), 0x40), b"x")
    });
    check(Cause::RDMA_VERSION, |_| {
        frame(with_rdmap(untagged(Opcode::Send, 0, 1, 0), 0x03), b"x")
    });
}

#[test]
fn misplaced_opcodes() {
    for opcode in [Opcode::Send, Opcode::ReadRequest, Opcode::Terminate] {
        check_write(Cause::RDMA_OPCODE, |victim, _| {
            tagged(opcode, victim.sink.0, 0)
        });
    }
    for (opcode, queue) in [
        (Opcode::Write, 0),
        (Opcode::ReadResponse, 0),
        (Opcode::ReadRequest, 0),
        (Opcode::Terminate, 0),
        (Opcode::Send, 1),
        (Opcode::Send, 2),
        (Opcode::ReadRequest, 2),
    ] {
        check(Cause::RDMA_OPCODE, |_| {
            frame(untagged(opcode, queue, 1, 0), &[0; 28])
        });
    }
    check(Cause::RDMA_OPCODE, |_| {
        frame(with_rdmap(untagged(Opcode::Send, 0, 1, 0), 0x48), b"x")
    });
}

#[test]
fn wrong_queues_sequence_numbers_and_offsets() {
    let send = |queue, sequence, offset| {
        move |_: &Victim| frame(untagged(Opcode::Send, queue, sequence, offset), b"x")
    };
    check(Cause::DDP_QUEUE, send(3, 1, 0));
    check(Cause::DDP_QUEUE, send(u32::MAX, 1, 0));
    check(Cause::DDP_SEQUENCE, send(0, 0, 0));
    check(Cause::DDP_SEQUENCE, send(0, 2, 0));
    check(Cause::DDP_OFFSET, send(0, 1, 1));
    check(Cause::DDP_OFFSET, send(0, 1, u32::MAX));
}

#[test]
fn a_send_without_a_receive() {
    let mut victim = Victim::new();
    let first = frame(untagged(Opcode::Send, 0, 1, 0), b"first");
    victim.endpoint.recv_slice(&first);
    assert_eq!(completions(&mut victim.endpoint).len(), 1);
    let second = frame(untagged(Opcode::Send, 0, 2, 0), b"second");
    victim.check(&second, Cause::DDP_NO_BUFFER);
}

impl Victim {
    /// Failed work requests after these octets have come.
    fn failed(mut self, bytes: &[u8]) -> Vec<(u64, WorkError)> {
        self.endpoint.recv_slice(bytes);
        completions(&mut self.endpoint)
            .into_iter()
            .map(|completion| match completion {
                Completion::Failed { wr, error } => (wr.0, error),
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

#[test]
fn a_send_longer_than_its_receive() {
    for len in [101, 20_000, 60_000] {
        let bytes = frame(untagged(Opcode::Send, 0, 1, 0), &vec![1; len]);
        Victim::new().check(&bytes, Cause::DDP_TOO_LONG);
        assert_eq!(
            Victim::new().failed(&bytes),
            [(1, WorkError::TooLong), (2, WorkError::Flushed)]
        );
    }
}

#[test]
fn send_with_invalidate_of_an_stag_that_cannot_be_invalidated() {
    let invalidate = |stag| {
        let mut header = untagged(Opcode::SendInvalidate, 0, 1, 0);
        if let Header::Untagged { rsvd_ulp_word, .. } = &mut header {
            *rsvd_ulp_word = stag;
        }
        header
    };
    let refused = |stag: fn(&Victim) -> u32| {
        let victim = Victim::new();
        let header = invalidate(stag(&victim));
        let terminate = victim.check(&frame(header, b"x"), Cause::RDMA_CANNOT_INVALIDATE);
        assert_eq!(terminate.segment.unwrap().header, header);
    };
    refused(|_| 0);
    refused(|victim| victim.sink.0 ^ 1);
    refused(|victim| victim.read_stag);
    // What was asked for is still on its way out.
    let mut victim = Victim::new();
    let request = request(victim.source.0, 0, REGION as u32);
    let header = untagged(Opcode::ReadRequest, 1, 1, 0);
    victim.endpoint.recv_slice(&frame(header, &request.emit()));
    let header = invalidate(victim.source.0);
    victim.check(&frame(header, b"x"), Cause::RDMA_CANNOT_INVALIDATE);
}

pub(super) fn request(stag: u32, offset: u64, length: u32) -> ReadRequest {
    ReadRequest {
        sink_stag: 77,
        sink_offset: 5,
        length,
        source_stag: stag,
        source_offset: offset,
    }
}

#[track_caller]
fn check_read(cause: Cause, request: impl FnOnce(&Victim) -> ReadRequest) {
    let victim = Victim::new();
    let request = request(&victim);
    let header = untagged(Opcode::ReadRequest, 1, 1, 0);
    let terminate = victim.check(&frame(header, &request.emit()), cause);
    let segment = terminate.segment.unwrap();
    assert_eq!(segment.length, 46);
    assert_eq!(segment.header, header);
    assert_eq!(segment.read_request, Some(request));
}

#[test]
fn read_of_memory_that_is_not_readable() {
    check_read(Cause::RDMA_INVALID_STAG, |victim| {
        request(victim.source.0 ^ 1, 0, 1)
    });
    check_read(Cause::RDMA_ACCESS, |victim| request(victim.sink.0, 0, 1));
    check_read(Cause::RDMA_ACCESS, |victim| request(victim.read_stag, 0, 1));
    check_read(Cause::RDMA_BOUNDS, |victim| {
        request(victim.source.0, REGION as u64, 1)
    });
    check_read(Cause::RDMA_BOUNDS, |victim| {
        request(victim.source.0, 0, u32::MAX)
    });
    check_read(Cause::RDMA_WRAP, |victim| {
        request(victim.source.0, u64::MAX, 1)
    });
}

#[test]
fn more_reads_than_the_ird() {
    let victim = Victim::with(|config| config.ird = 2);
    let bytes: Vec<_> = (1..=3)
        .flat_map(|sequence| {
            let request = request(victim.source.0, 0, 1);
            frame(
                untagged(Opcode::ReadRequest, 1, sequence, 0),
                &request.emit(),
            )
        })
        .collect();
    victim.check(&bytes, Cause::DDP_NO_BUFFER);
}

#[test]
fn served_reads_free_their_place_in_the_ird() {
    let mut victim = Victim::with(|config| config.ird = 1);
    for sequence in 1..=5 {
        let request = request(victim.source.0, 0, 100);
        let header = untagged(Opcode::ReadRequest, 1, sequence, 0);
        victim.endpoint.recv_slice(&frame(header, &request.emit()));
        let out = fpdus(&output(&mut victim.endpoint, usize::MAX));
        assert!(
            matches!(out[..], [(Header::Tagged { stag: 77, offset: 5, .. }, ref bytes)] if bytes == &[5; 100])
        );
    }
}

#[test]
fn malformed_read_requests() {
    let read = |sequence, offset, payload: &'static [u8]| {
        move |_: &Victim| frame(untagged(Opcode::ReadRequest, 1, sequence, offset), payload)
    };
    let terminate = check(Cause::DDP_SEQUENCE, read(2, 0, &[0; 28]));
    // Only what was found at fault beyond DDP comes back with its own header.
    assert_eq!(terminate.segment.unwrap().read_request, None);
    check(Cause::DDP_OFFSET, read(1, 4, &[0; 28]));
    check(Cause::DDP_TOO_LONG, read(1, 0, &[0; 29]));
    check(Cause::RDMA_OPERATION, read(1, 0, &[0; 27]));
    check(Cause::RDMA_OPERATION, |_| {
        let header = with_control(untagged(Opcode::ReadRequest, 1, 1, 0), 0x01);
        frame(header, &[0; 28])
    });
}

#[test]
fn unsolicited_read_responses() {
    for len in [100, 9000, 16_000] {
        let respond = |offset, last: bool| {
            move |victim: &Victim| {
                let header = tagged(Opcode::ReadResponse, victim.read_stag, offset);
                let header = with_control(header, if last { 0xc1 } else { 0x81 });
                frame(header, &vec![1; len])
            }
        };
        check(Cause::DDP_BOUNDS, respond(1, false));
        check(Cause::DDP_BOUNDS, respond(u64::MAX, false));
        if len < 16_000 {
            check(Cause::RDMA_OPERATION, respond(0, true));
        }
        check(Cause::DDP_INVALID_STAG, |victim| {
            let header = tagged(Opcode::ReadResponse, victim.read_stag ^ 1, 0);
            frame(header, &vec![1; len])
        });
        check(Cause::DDP_INVALID_STAG, |victim| {
            let header = tagged(Opcode::ReadResponse, victim.sink.0, 0);
            frame(header, &vec![1; len])
        });
    }
    check(Cause::DDP_BOUNDS, |victim| {
        frame(
            tagged(Opcode::ReadResponse, victim.read_stag, 0),
            &[1; 16_001],
        )
    });
}

#[test]
fn a_response_after_the_last_read() {
    let mut pair = Pair::new();
    pair.introduce();
    let bytes = frame(tagged(Opcode::ReadResponse, 5, 0), &[1; 10]);
    pair.b.recv_slice(&bytes);
    let terminate = terminate_in(&output(&mut pair.b, usize::MAX)).unwrap();
    assert_eq!(terminate.cause, Cause::RDMA_OPCODE);
}

#[test]
fn the_first_of_several_errors_is_reported() {
    let terminate = {
        let victim = Victim::new();
        let mut bytes = frame(tagged(Opcode::Write, victim.sink.0 ^ 1, 3), b"first");
        bytes.extend(frame(untagged(Opcode::Send, 3, 1, 0), b"second"));
        victim.check(&bytes, Cause::DDP_INVALID_STAG)
    };
    let segment = terminate.segment.unwrap();
    assert_eq!(segment.length, 14 + 5);
    assert!(matches!(segment.header, Header::Tagged { offset: 3, .. }));
    assert_eq!(segment.read_request, None);
}

#[test]
fn terminate_for_a_stream_error_has_no_ddp_header() {
    let victim = Victim::new();
    let mut bytes = frame(tagged(Opcode::Write, victim.sink.0, 0), b"x");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let terminate = victim.check(&bytes, Cause::MPA_CRC);
    assert_eq!(terminate.segment, None);
}

#[test]
fn nothing_is_sent_behind_a_terminate() {
    let mut victim = Victim::new();
    victim.endpoint.post(send(5, &[1; 5000])).unwrap();
    // Half of it is out when the error comes.
    victim.endpoint.send_with(|_| Ok(1000)).unwrap();
    victim.endpoint.post(send(6, b"never")).unwrap();
    victim
        .endpoint
        .recv_slice(&frame(untagged(Opcode::Send, 3, 1, 0), b"x"));
    victim.endpoint.post(send(7, b"never")).unwrap();
    victim.endpoint.nudge();
    let mut out = vec![0; 1000];
    out[..2].copy_from_slice(&5018_u16.to_be_bytes());
    out[2..4].copy_from_slice(&[0x41, 0x43]);
    out.extend(output(&mut victim.endpoint, usize::MAX));
    let sent = fpdus(&out);
    assert_eq!(sent.len(), 2, "what was begun, and the Terminate");
    assert_eq!(terminate_in(&out).unwrap().cause, Cause::DDP_QUEUE);
}

#[test]
fn fpdus_too_short_for_a_header() {
    for ulpdu in 0..18_u16 {
        let mut bytes = ulpdu.to_be_bytes().to_vec();
        bytes.resize(2 + usize::from(ulpdu), 0);
        bytes.resize(bytes.len() + fpdu::pad_len(usize::from(ulpdu)), 0);
        let crc = crc::emit(crc::crc32c(&bytes));
        bytes.extend_from_slice(&crc);
        Victim::new().check(&bytes, Cause::DDP_CATASTROPHIC);
    }
}

#[test]
fn a_wrong_crc_delivers_nothing() {
    for payload in [10, 100, 9000, 20_000] {
        for (opcode, at) in [(Opcode::Write, 30), (Opcode::Write, 17)] {
            let mut victim = Victim::new();
            let mut bytes = frame(tagged(opcode, victim.sink.0, 0), &vec![0; payload]);
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= 0x10;
            victim.endpoint.recv_slice(&bytes);
            let out = output(&mut victim.endpoint, usize::MAX);
            assert_eq!(terminate_in(&out).unwrap().cause, Cause::MPA_CRC);
            assert_eq!(victim.failed(&[]).len(), 2);
        }
    }
}

#[test]
fn corrupt_header_of_a_large_fpdu_is_a_crc_error() {
    let victim = Victim::new();
    let mut bytes = frame(tagged(Opcode::Write, victim.sink.0, 0), &[0; 20_000]);
    bytes[4] ^= 1;
    victim.check(&bytes, Cause::MPA_CRC);
}

#[test]
fn strict_places_nothing_before_it_is_verified() {
    let victim = Victim::with(|config| config.strict = true);
    let mut bytes = frame(tagged(Opcode::Write, victim.sink.0, 0), &[9; 20_000]);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    victim.check(&bytes, Cause::MPA_CRC);
}

#[test]
fn responder_sends_no_terminate_before_a_valid_fpdu() {
    let mut endpoint = Endpoint::new(config(Role::Responder));
    endpoint.post(receive(1, 10)).unwrap();
    let mut bytes = frame(untagged(Opcode::Send, 0, 1, 0), b"x");
    bytes[20] ^= 1;
    endpoint.recv_slice(&bytes);
    assert!(!endpoint.has_output());
    assert_eq!(endpoint.closed(), Some(&peer_error(Cause::MPA_CRC)));
    assert_eq!(completions(&mut endpoint).len(), 1);
}

#[test]
fn solicited_sends_are_delivered_as_sends() {
    for (sequence, opcode) in (1..).zip([Opcode::SendSolicited, Opcode::SendSolicitedInvalidate]) {
        let mut victim = Victim::new();
        let mut header = untagged(opcode, 0, 1, 0);
        if let Header::Untagged { rsvd_ulp_word, .. } = &mut header {
            *rsvd_ulp_word = victim.sink.0;
        }
        victim.endpoint.recv_slice(&frame(header, b"hello"));
        match completions(&mut victim.endpoint).pop() {
            Some(Completion::Receive {
                buffer,
                invalidated,
                ..
            }) => {
                assert_eq!(&*buffer, b"hello");
                assert_eq!(invalidated.is_some(), sequence == 2);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn unchecked_crc_field_may_be_anything() {
    let mut endpoint = {
        let mut config = config(Role::Responder);
        config.crc = false;
        Endpoint::new(config)
    };
    endpoint.post(receive(1, 10)).unwrap();
    let mut bytes = frame(untagged(Opcode::Send, 0, 1, 0), b"x");
    let last = bytes.len() - 1;
    bytes[last] ^= 0xff;
    endpoint.recv_slice(&bytes);
    assert!(matches!(
        completions(&mut endpoint)[..],
        [Completion::Receive { .. }]
    ));
}

#[test]
fn terminate_of_siw_is_reported_in_words() {
    let mut pair = Pair::new();
    let mut payload = Terminate {
        cause: Cause::DDP_NO_BUFFER,
        segment: None,
    }
    .emit();
    payload[0] = payload[0].rotate_left(4);
    pair.a
        .recv_slice(&frame(untagged(Opcode::Terminate, 2, 1, 0), &payload));
    assert_eq!(
        pair.a.closed(),
        Some(&CloseReason::Terminated(Cause::DDP_NO_BUFFER.into()))
    );
}

#[test]
fn a_second_terminate_is_ignored() {
    let mut pair = Pair::new();
    let say = |cause| {
        let terminate = Terminate {
            cause,
            segment: None,
        };
        frame(untagged(Opcode::Terminate, 2, 1, 0), &terminate.emit())
    };
    pair.a.recv_slice(&say(Cause::RDMA_ACCESS));
    for _ in 0..1000 {
        pair.a.recv_slice(&say(Cause::MPA_CRC));
    }
    assert_eq!(
        pair.a.closed(),
        Some(&CloseReason::Terminated(Cause::RDMA_ACCESS.into()))
    );
    assert_eq!(pair.a.counters().fpdus_in, 1);
    assert!(!pair.a.has_output(), "a Terminate is not answered");
}

#[test]
fn stream_that_ends_within_an_fpdu_is_lost() {
    let mut victim = Victim::new();
    let bytes = frame(tagged(Opcode::Write, victim.sink.0, 0), &[0; 20_000]);
    victim.endpoint.recv_slice(&bytes[..10_000]);
    victim.endpoint.recv_with(|_| Ok(0)).unwrap();
    assert!(matches!(
        victim.endpoint.closed(),
        Some(CloseReason::Lost(_))
    ));
}
