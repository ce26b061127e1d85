//! DDP and RDMAP (RFC 5040, RFC 5041), where the peer is reached by TCP.

use super::mpa::{answer, is_answered};
use super::read_chunks::read_list;
use crate::bed::Bed;
use crate::case::Case;
use crate::header::procedure;
use crate::iwarp::{Cause, Heard, Peer, Request, Segment, opcode};
use crate::message;
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure, fail};
use crate::words;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "DDP-01",
        Must,
        "RFC 5041 §5.2",
        "a message may be in several DDP segments",
        several_segments,
    ),
    Case::responder(
        "DDP-02",
        Must,
        "RFC 5044 §5.1",
        "FPDUs may be split at any octet by TCP",
        split_by_tcp,
    ),
    Case::responder(
        "DDP-03",
        Must,
        "RFC 5044 §5.1",
        "several FPDUs may come at a time",
        several_fpdus,
    ),
    Case::responder(
        "DDP-04",
        Must,
        "RFC 5041 §7.1, §7.2",
        "an untagged segment of another DDP version draws Terminate: invalid DDP version",
        ddp_version,
    ),
    Case::responder(
        "DDP-05",
        Must,
        "RFC 5041 §7.1, §7.2",
        "a queue that there is not draws Terminate: invalid QN",
        queue,
    ),
    Case::responder(
        "DDP-06",
        Must,
        "RFC 5041 §7.1, §7.2",
        "a message sequence number out of range draws Terminate: invalid MSN",
        sequence_number,
    ),
    Case::responder(
        "DDP-07",
        Must,
        "RFC 5041 §7.1, §7.2",
        "a message offset out of range draws Terminate: invalid MO",
        offset,
    ),
    Case::responder(
        "DDP-08",
        Must,
        "RFC 5040 §7.2, §4.8",
        "a segment of another RDMAP version draws Terminate: invalid RDMAP version",
        rdmap_version,
    ),
    Case::responder(
        "DDP-09",
        Must,
        "RFC 5040 §7.2, §4.8",
        "an unknown opcode draws Terminate: unexpected opcode",
        unknown_opcode,
    ),
    Case::responder(
        "DDP-10",
        Must,
        "RFC 5040 §7.2, RFC 5041 §7.1",
        "an RDMA Write to an STag that was not advertised draws Terminate: invalid STag",
        write_to_unknown,
    ),
    Case::responder(
        "DDP-11",
        Must,
        "RFC 5040 §5.2.1, §7.2",
        "an RDMA Read of an STag that was not advertised draws Terminate: invalid STag",
        read_of_unknown,
    ),
    Case::responder(
        "DDP-12",
        Must,
        "RFC 5041 §5.2",
        "STag and offset of an RDMA Write without octets are not checked",
        empty_write,
    ),
    Case::responder(
        "DDP-13",
        Must,
        "RFC 5040 §5.2.1",
        "an RDMA Read of no octets is answered, and its STag is not checked",
        empty_read,
    ),
    Case::responder(
        "DDP-14",
        Must,
        "RFC 5040 §5.3, §7.2",
        "a message that invalidates an STag that was not advertised is not delivered",
        stray_invalidation,
    ),
    Case::responder(
        "DDP-15",
        Must,
        "RFC 5040 §7.2",
        "an RDMA Read Response that nobody asked for ends the connection",
        stray_response,
    ),
    Case::responder(
        "DDP-16",
        Must,
        "RFC 5040 §6.1, RFC 6581 §9.1",
        "no more RDMA Reads are outstanding than the Initiator's IRD",
        read_depth,
    ),
    Case::responder(
        "DDP-17",
        Must,
        "RFC 5040 §5.4",
        "a Terminate ends the connection without an answer",
        terminate,
    ),
    Case::responder(
        "DDP-18",
        Robustness,
        "RFC 5041 §7.1",
        "segments that are too short for their headers harm nobody",
        short_segments,
    ),
    Case::responder(
        "DDP-19",
        Robustness,
        "RFC 5044 §8",
        "connections that end in the middle of an FPDU harm nobody",
        cut_off,
    ),
    Case::responder(
        "DDP-20",
        Must,
        "RFC 5041 §7.1, §7.2",
        "a message longer than any Receive draws Terminate: message too long",
        too_long,
    ),
];

/// Causes of a Terminate (RFC 5040 §4.8, RFC 5041 §7.2).
const TAGGED_INVALID_STAG: Cause = Cause(1, 1, 0);
const TAGGED_OTHER_STREAM: Cause = Cause(1, 1, 2);
const INVALID_QUEUE: Cause = Cause(1, 2, 1);
const NO_BUFFER: Cause = Cause(1, 2, 2);
const INVALID_SEQUENCE: Cause = Cause(1, 2, 3);
const INVALID_OFFSET: Cause = Cause(1, 2, 4);
const TOO_LONG: Cause = Cause(1, 2, 5);
const UNTAGGED_VERSION: Cause = Cause(1, 2, 6);
const INVALID_STAG: Cause = Cause(0, 1, 0);
const OTHER_STREAM: Cause = Cause(0, 1, 3);
const RDMAP_VERSION: Cause = Cause(0, 2, 5);
const UNEXPECTED_OPCODE: Cause = Cause(0, 2, 6);

/// A peer whose first call was answered.
fn served(bed: &Bed) -> Tested<Peer> {
    let mut peer = bed.raw_with(&Request::default())?;
    is_answered(bed, &mut peer)?;
    Ok(peer)
}

/// The segment that is sent draws a Terminate with one of these causes.
fn terminated(bed: &Bed, peer: &mut Peer, segment: &Segment, causes: &[Cause]) -> Tested {
    bed.log.sent("DDP segment", &segment.emit());
    peer.segment(segment)?;
    draws(bed, peer, causes)
}

fn draws(bed: &Bed, peer: &mut Peer, causes: &[Cause]) -> Tested {
    match peer.hear()? {
        Heard::Terminate(cause) => {
            bed.log.came(format!("Terminate {cause:?}"), &[]);
            ensure(causes.contains(&cause), || {
                format!("Terminate has layer, type and code {cause:?}, and {causes:?} is due")
            })
        }
        Heard::Closed => fail("the connection ends without a Terminate"),
        other => fail(format!("no Terminate, but {other:?}")),
    }
}

fn next_call(bed: &Bed, peer: &mut Peer) -> Segment {
    let call = words(&bed.null_message(bed.xid()));
    peer.next_send(&call)
}

fn several_segments(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let xid = bed.xid();
    let call = words(&bed.null_message(xid));
    let sequence = peer.next(0);
    for (at, piece) in (0u32..).step_by(8).zip(call.chunks(8)) {
        let segment = Segment::untagged(opcode::SEND, 0, [0, sequence, at], piece);
        match at as usize + piece.len() < call.len() {
            true => peer.segment(&segment.not_last())?,
            false => peer.segment(&segment)?,
        }
    }
    answer(bed, &mut peer, xid)
}

fn split_by_tcp(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let xid = bed.xid();
    let segment = peer.next_send(&words(&bed.null_message(xid)));
    for octet in peer.framed(&segment.emit()) {
        peer.bytes(&[octet])?;
    }
    answer(bed, &mut peer, xid)
}

fn several_fpdus(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let xids = [bed.xid(), bed.xid()];
    let mut octets = Vec::new();
    // Empty Writes between, so that one credit is enough for all but the last.
    for (at, xid) in xids.into_iter().enumerate() {
        let segment = peer.next_send(&words(&bed.null_message(xid)));
        let empty = Segment::tagged(opcode::WRITE, 0, 0, b"");
        octets.extend(peer.framed(&empty.emit()));
        octets.extend(peer.framed(&segment.emit()));
        if at == 0 {
            peer.bytes(&octets)?;
            octets.clear();
            answer(bed, &mut peer, xid)?;
        }
    }
    octets.extend(peer.framed(&Segment::tagged(opcode::WRITE, 0, 0, b"").emit()));
    peer.bytes(&octets)?;
    answer(bed, &mut peer, xids[1])
}

fn ddp_version(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let mut segment = next_call(bed, &mut peer);
    segment.ddp = segment.ddp & !3 | 2;
    terminated(bed, &mut peer, &segment, &[UNTAGGED_VERSION])
}

fn queue(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let segment = Segment::untagged(opcode::SEND, 0, [77, 1, 0], b"xxxx");
    terminated(bed, &mut peer, &segment, &[INVALID_QUEUE])
}

fn sequence_number(bed: &Bed) -> Tested {
    // The first message was number 1, the next is number 2.
    for sequence in [1, u32::MAX] {
        let mut peer = served(bed)?;
        let segment = Segment::untagged(opcode::SEND, 0, [0, sequence, 0], b"xxxx");
        terminated(bed, &mut peer, &segment, &[INVALID_SEQUENCE, NO_BUFFER])?;
    }
    Ok(())
}

fn offset(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let sequence = peer.next(0);
    let segment = Segment::untagged(opcode::SEND, 0, [0, sequence, u32::MAX - 3], b"xxxx");
    terminated(bed, &mut peer, &segment, &[INVALID_OFFSET])
}

fn rdmap_version(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let mut segment = next_call(bed, &mut peer);
    // Versions 0 and 1 are both valid (RFC 5040 §4.1).
    segment.rdmap = segment.rdmap & 0x3f | 2 << 6;
    terminated(bed, &mut peer, &segment, &[RDMAP_VERSION])
}

fn unknown_opcode(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let mut segment = next_call(bed, &mut peer);
    segment.rdmap = segment.rdmap & 0xf0 | 0x0f;
    terminated(bed, &mut peer, &segment, &[UNEXPECTED_OPCODE])
}

/// STags that were not advertised: none is to a Requester.
const STAGS: [u32; 3] = [1, 0x0100, 0xdead_beef];

fn write_to_unknown(bed: &Bed) -> Tested {
    for stag in STAGS {
        let mut peer = served(bed)?;
        let segment = Segment::tagged(opcode::WRITE, stag, 0, b"xxxx");
        terminated(
            bed,
            &mut peer,
            &segment,
            &[TAGGED_INVALID_STAG, TAGGED_OTHER_STREAM],
        )?;
    }
    Ok(())
}

fn read_of_unknown(bed: &Bed) -> Tested {
    for stag in STAGS {
        let mut peer = served(bed)?;
        bed.log.sent(format!("Read Request of STag {stag:#x}"), &[]);
        peer.read_request(stag, 0, 16)?;
        draws(bed, &mut peer, &[INVALID_STAG, OTHER_STREAM])?;
    }
    Ok(())
}

fn empty_write(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let segment = Segment::tagged(opcode::WRITE, 0xdead_beef, u64::MAX, b"");
    bed.log.sent("RDMA Write without octets", &segment.emit());
    peer.segment(&segment)?;
    is_answered(bed, &mut peer)
}

fn empty_read(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    bed.log.sent("Read Request of no octets", &[]);
    peer.read_request(0xdead_beef, u64::MAX, 0)?;
    match peer.hear()? {
        Heard::Read(octets) => ensure(octets.is_empty(), || {
            format!("{} octets come", octets.len())
        })?,
        other => return fail(format!("no Read Response, but {other:?}")),
    }
    is_answered(bed, &mut peer)
}

fn stray_invalidation(bed: &Bed) -> Tested {
    for stag in STAGS {
        let mut peer = served(bed)?;
        let mut segment = next_call(bed, &mut peer);
        segment.rdmap = segment.rdmap & 0xf0 | opcode::SEND_INVALIDATE;
        segment.rest[..4].copy_from_slice(&stag.to_be_bytes());
        bed.log.sent("Send with Invalidate", &segment.emit());
        peer.segment(&segment)?;
        match peer.hear()? {
            Heard::Terminate(_) | Heard::Closed => {}
            other => return fail(format!("it is delivered: {other:?}")),
        }
    }
    Ok(())
}

fn stray_response(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let segment = Segment::tagged(opcode::READ_RESPONSE, 1, 0, b"xxxx");
    bed.log.sent("RDMA Read Response", &segment.emit());
    peer.segment(&segment)?;
    match peer.hear()? {
        Heard::Terminate(_) | Heard::Closed => Ok(()),
        other => fail(format!("it is taken in: {other:?}")),
    }
}

/// How long Read Requests beyond the IRD may take to come.
const MORE_WITHIN: Duration = Duration::from_millis(300);

fn read_depth(bed: &Bed) -> Tested {
    for ird in [1u8, 2] {
        let mut request = Request::default();
        request.data[1] = ird;
        let mut peer = bed.raw_with(&request)?;
        is_answered(bed, &mut peer)?;
        let xid = bed.xid();
        let call = words(&bed.null(xid));
        // A call in eight segments, each with an STag of its own.
        let mut segments = Vec::new();
        for (stag, piece) in (0x100..).zip(call.chunks(5)) {
            peer.memory.insert(stag, piece.to_vec());
            let segment = message::Segment {
                handle: stag,
                length: 5,
                offset: 0,
            };
            segments.push((0, segment));
        }
        peer.answers_reads = false;
        let message = Bed::message(procedure::NOMSG, xid, &read_list(&segments), &[]);
        bed.log
            .sent(message::describe(&words(&message)), &words(&message));
        peer.send(&words(&message))?;
        let mut outstanding = 0;
        let mut limit = bed.patience;
        while outstanding <= usize::from(ird) && peer.comes_within(limit).is_ok_and(|comes| comes) {
            limit = MORE_WITHIN;
            match peer.next_segment()? {
                Some(segment) if segment.opcode() == opcode::READ_REQUEST => outstanding += 1,
                Some(other) => return fail(format!("no Read Request, but {other:?}")),
                None => return fail("the connection ends"),
            }
        }
        bed.log.came(format!("{outstanding} Read Requests"), &[]);
        ensure((1..=usize::from(ird)).contains(&outstanding), || {
            format!("{outstanding} RDMA Reads are outstanding, and the IRD is {ird}")
        })?;
    }
    Ok(())
}

fn terminate(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let control = [0x11, 0, 0, 0];
    let segment = Segment::untagged(opcode::TERMINATE, 0, [2, 1, 0], &control);
    bed.log.sent("Terminate", &segment.emit());
    peer.segment(&segment)?;
    peer.hang_up()?;
    match peer.hear()? {
        Heard::Closed => Ok(()),
        other => fail(format!("it is answered: {other:?}")),
    }
}

fn short_segments(bed: &Bed) -> Tested {
    for len in [0, 1, 2, 13, 17] {
        let mut peer = served(bed)?;
        let whole = next_call(bed, &mut peer).emit();
        let fpdu = peer.framed(&whole[..len]);
        peer.bytes(&fpdu)?;
        // Whatever comes of it.
        let _ = peer.comes_within(MORE_WITHIN);
    }
    Ok(())
}

fn cut_off(bed: &Bed) -> Tested {
    for len in [1, 2, 10, 40] {
        let mut peer = served(bed)?;
        let segment = next_call(bed, &mut peer);
        let fpdu = peer.framed(&segment.emit());
        peer.bytes(&fpdu[..len])?;
        peer.hang_up()?;
    }
    Ok(())
}

/// More octets than any Receive has: one more than can be announced (RFC 8797 §4.2), in two FPDUs or more.
const PIECE: usize = 32 << 10;
const LONGEST: usize = (256 << 10) + 4;

fn too_long(bed: &Bed) -> Tested {
    let mut peer = served(bed)?;
    let sequence = peer.next(0);
    bed.log.sent(format!("a message of {LONGEST} octets"), &[]);
    let mut at = 0;
    while at < LONGEST {
        let place = [0, sequence, u32::try_from(at).expect("it is small")];
        let segment = Segment::untagged(opcode::SEND, 0, place, &vec![0; PIECE]);
        peer.segment(&segment.not_last())?;
        // What has come may be lost once more is sent to a socket that is closed.
        if peer
            .comes_within(Duration::from_millis(20))
            .is_ok_and(|comes| comes)
        {
            break;
        }
        at += PIECE;
    }
    draws(bed, &mut peer, &[TOO_LONG, INVALID_OFFSET])
}
