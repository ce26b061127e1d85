//! Regions in parts, against a peer that goes beyond them.

use super::hostile::{frame, request, tagged, untagged};
use super::*;
use crate::rdmap::Opcode;
use verbs::{Part, Parts};

const LEN: usize = 20_000;

/// A responder with one region: a part to be read, two to be written one after the other, and another one to be read.
fn responder() -> (Endpoint, Handle) {
    let mut endpoint = Endpoint::new(config(Role::Responder));
    let source = || Part::Source(gather(vec![5; LEN]));
    let sink = || Part::Sink(Buffer::with_capacity(LEN));
    let parts = Parts::new(vec![source(), sink(), sink(), source()]);
    let handle = endpoint.register(Memory::Parts(parts)).unwrap();
    endpoint.post(receive(1, 100)).unwrap();
    endpoint.recv_slice(&frame(tagged(Opcode::Write, 0, 0), &[]));
    (endpoint, handle)
}

#[track_caller]
fn check(bytes: impl FnOnce(Handle) -> Vec<u8>, cause: Cause) {
    let (mut endpoint, handle) = responder();
    endpoint.recv_slice(&bytes(handle));
    let terminate = terminate_in(&output(&mut endpoint, usize::MAX));
    assert_eq!(terminate.expect("it ends with a Terminate").cause, cause);
    let slot = endpoint.places.region(handle.0).unwrap();
    let Memory::Parts(parts) = endpoint.places.release(slot) else {
        panic!("a region in parts was registered");
    };
    for part in &parts {
        match part {
            Part::Source(pieces) => assert!(pieces.concat().iter().all(|byte| *byte == 5)),
            Part::Sink(buffer) => assert!(buffer.memory().iter().all(|byte| *byte == 0)),
        }
    }
}

#[test]
fn write_past_the_rights_or_the_end_of_a_part_ends_with_a_terminate() {
    let write = |offset: u64, len: usize| {
        move |handle: Handle| frame(tagged(Opcode::Write, handle.0, offset), &vec![1; len])
    };
    let begin = Parts::offset_of;
    for len in [1, 18_000] {
        check(write(begin(0), len), Cause::RDMA_ACCESS);
        check(write(begin(3), len), Cause::RDMA_ACCESS);
        check(write(begin(1) + LEN as u64, len), Cause::DDP_BOUNDS);
        check(write(begin(2) + LEN as u64, len), Cause::DDP_BOUNDS);
        check(write(begin(4), len), Cause::DDP_BOUNDS);
        check(write(u64::MAX - len as u64, len), Cause::DDP_BOUNDS);
        check(write(u64::MAX, len), Cause::DDP_WRAP);
    }
    // From one sink on into the next.
    check(write(begin(2) - 1, 2), Cause::DDP_BOUNDS);
    check(write(begin(1) + LEN as u64 - 1, 2), Cause::DDP_BOUNDS);
}

#[test]
fn read_past_the_rights_or_the_end_of_a_part_ends_with_a_terminate() {
    let read = |offset: u64, len: u32| {
        move |handle: Handle| {
            let request = request(handle.0, offset, len);
            frame(untagged(Opcode::ReadRequest, 1, 1, 0), &request.emit())
        }
    };
    let begin = Parts::offset_of;
    check(read(begin(1), 1), Cause::RDMA_ACCESS);
    check(read(begin(2), 1), Cause::RDMA_ACCESS);
    check(read(begin(0) + LEN as u64, 1), Cause::RDMA_BOUNDS);
    check(read(begin(3), LEN as u32 + 1), Cause::RDMA_BOUNDS);
    check(read(begin(3) + 1, u32::MAX), Cause::RDMA_BOUNDS);
    check(read(begin(4), 1), Cause::RDMA_BOUNDS);
    check(read(u64::MAX, 1), Cause::RDMA_WRAP);
}

#[test]
fn region_whose_part_is_being_read_cannot_be_invalidated_by_the_peer() {
    let all = |handle: Handle| {
        let request = request(handle.0, Parts::offset_of(3), LEN as u32);
        let read = frame(untagged(Opcode::ReadRequest, 1, 1, 0), &request.emit());
        let mut send = untagged(Opcode::SendInvalidate, 0, 1, 0);
        if let Header::Untagged { rsvd_ulp_word, .. } = &mut send {
            *rsvd_ulp_word = handle.0;
        }
        [read, frame(send, b"x")].concat()
    };
    check(all, Cause::RDMA_CANNOT_INVALIDATE);
}

#[test]
fn memory_of_all_parts_comes_back_when_the_last_response_is_sent() {
    let (mut endpoint, handle) = responder();
    let request = request(handle.0, Parts::offset_of(3), LEN as u32);
    let read = frame(untagged(Opcode::ReadRequest, 1, 1, 0), &request.emit());
    endpoint.recv_slice(&read);
    let invalidate = WorkRequest::Invalidate {
        wr: WrId(7),
        handle,
    };
    endpoint.post(invalidate).unwrap();
    assert!(completions(&mut endpoint).is_empty());
    output(&mut endpoint, usize::MAX);
    let back = completions(&mut endpoint).pop();
    let Some(Completion::Invalidate { wr, invalidated }) = back else {
        panic!("{back:?}");
    };
    assert_eq!((wr, invalidated.handle), (WrId(7), handle));
    assert!(matches!(invalidated.memory, Memory::Parts(parts) if parts.iter().len() == 4));
}
