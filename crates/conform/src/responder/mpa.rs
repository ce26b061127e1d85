//! Connection setup of MPA (RFC 5044 §7.1, RFC 6581), where the peer is reached by TCP.

use crate::bed::Bed;
use crate::case::Case;
use crate::iwarp::{DEPTH, FLAG_A, FLAG_B, Header, Heard, Peer, Request, is_end, private_data};
use crate::verdict::Level::{Must, Robustness, Should};
use crate::verdict::{Tested, ensure, fail, skip};
use crate::{rpc, words};
use std::io::Read;
use std::time::Duration;

/// Flags of a frame: C and S.
const CRC: u8 = 0x40;
const ENHANCED: u8 = 0x10;

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "MPA-01",
        Must,
        "RFC 5044 §7.1.1, §7.1.2",
        "a frame with another key ends the connection without an MPA Reply",
        other_keys,
    ),
    Case::responder(
        "MPA-02",
        Must,
        "RFC 5044 §7.1.2",
        "an MPA Reply in place of a Request ends the connection",
        reply_for_request,
    ),
    Case::responder(
        "MPA-03",
        Must,
        "RFC 5044 §7.1.1",
        "a revision that is not known is not accepted",
        unknown_revision,
    ),
    Case::responder(
        "MPA-04",
        Must,
        "RFC 5044 §7.1.1",
        "private data of more than 512 octets ends the connection",
        too_much_private_data,
    ),
    Case::responder(
        "MPA-05",
        Must,
        "RFC 5044 §7.1.1",
        "private data that is shorter than PD_Length is not accepted",
        too_little_private_data,
    ),
    Case::responder(
        "MPA-06",
        Must,
        "RFC 5044 §7.1.1, RFC 6581 §6",
        "reserved bits of a Request are not checked",
        reserved_bits,
    ),
    Case::responder(
        "MPA-07",
        Must,
        "RFC 6581 §6, §10",
        "a Request of revision 1 is accepted, with an unenhanced Reply",
        revision_one,
    ),
    Case::responder(
        "MPA-08",
        Must,
        "RFC 6581 §10",
        "an enhanced Request has an enhanced Reply",
        enhanced,
    ),
    Case::responder(
        "MPA-09",
        Must,
        "RFC 6581 §9.1",
        "ORD of the Reply is at most IRD of the Request",
        depth,
    ),
    Case::responder(
        "MPA-10",
        Must,
        "RFC 5044 §7.1.1",
        "reserved bits of the Reply are zero",
        reply_is_well_formed,
    ),
    Case::responder(
        "MPA-11",
        Must,
        "RFC 6581 §9.2",
        "the control flags of a Reply to a Request without them are zero",
        no_peer_to_peer,
    ),
    Case::responder(
        "MPA-12",
        Must,
        "RFC 6581 §9.2",
        "a Request with control flag A has a Reply with A and an RTR indication, or is rejected",
        peer_to_peer,
    ),
    Case::responder(
        "MPA-13",
        Must,
        "RFC 6581 §9.1",
        "IRD and ORD of 0x3fff are answered with 0x3fff",
        no_negotiation_of_depths,
    ),
    Case::responder(
        "MPA-14",
        Must,
        "RFC 5044 §7.1.1",
        "CRCs are generated and checked if the Request asks for them",
        crc,
    ),
    Case::responder(
        "MPA-15",
        Must,
        "RFC 5044 §4.4, §8",
        "an FPDU with a wrong CRC is not delivered",
        wrong_crc,
    ),
    Case::responder(
        "MPA-16",
        Must,
        "RFC 5044 §7.1.1",
        "CRCs are not checked if neither end asks for them",
        no_crc,
    ),
    Case::responder(
        "MPA-17",
        Must,
        "RFC 5044 §4.3, §7.1.1",
        "Markers are sent, in their places, to an end that requires them",
        markers,
    ),
    Case::responder(
        "MPA-18",
        Must,
        "RFC 5044 §7.1.2",
        "no FPDU is sent before the first one of the Initiator",
        speaks_second,
    ),
    Case::responder(
        "MPA-19",
        Must,
        "RFC 5044 §4.1",
        "the pad of an FPDU is ignored",
        pad,
    ),
    Case::responder(
        "MPA-20",
        Robustness,
        "RFC 5044 §7.1.2",
        "a Request that comes octet by octet is accepted",
        dripping,
    ),
    Case::responder(
        "MPA-21",
        Robustness,
        "RFC 5044 §7.1.2",
        "peers that hang up in the middle of setup harm nobody",
        gone_during_setup,
    ),
    Case::responder(
        "MPA-22",
        Should,
        "RFC 5044 §7.1.2",
        "silent peers do not keep others from connecting",
        silent_peers,
    ),
];

/// A NULL call, answered. The nudge behind it is for receivers that overlook the first FPDU until more arrives.
pub(super) fn is_answered(bed: &Bed, peer: &mut Peer) -> Tested {
    let xid = bed.xid();
    let call = words(&bed.null_message(xid));
    bed.log.sent("FPDU with a NULL call", &call);
    peer.send(&call)?;
    answer(bed, peer, xid)
}

/// The answer to a call that was sent.
pub(super) fn answer(bed: &Bed, peer: &mut Peer, xid: u32) -> Tested {
    nudge(bed, peer)?;
    match peer.hear()? {
        Heard::Message { bytes, .. } => {
            bed.log.came(crate::message::describe(&bytes), &bytes);
            let message = crate::bed::parse(&bytes)?;
            ensure(message.xid == xid, || format!("XID {:#x}", message.xid))?;
            crate::bed::accepted(&message.payload, xid)?;
            Ok(())
        }
        other => fail(format!("no answer, but {other:?}")),
    }
}

/// How long the first message may stay unanswered before an empty Write is sent behind it.
const NUDGE_AFTER: Duration = Duration::from_millis(300);

/// Sends an empty RDMA Write, which touches no memory (RFC 5041 §7.1), if nothing comes for a while.
pub(super) fn nudge(bed: &Bed, peer: &mut Peer) -> Tested {
    match peer.comes_within(NUDGE_AFTER.min(bed.patience)) {
        Ok(true) => Ok(()),
        Ok(false) => {
            use crate::iwarp::{Segment, opcode};
            peer.segment(&Segment::tagged(opcode::WRITE, 0, 0, b""))?;
            Ok(())
        }
        Err(why) => fail(format!("the socket failed: {why}")),
    }
}

/// Answer to octets in place of a Request.
fn outcome(bed: &Bed, octets: &[u8], hang_up: bool) -> Tested<Option<Header>> {
    let mut peer = bed.raw()?;
    bed.log.sent("octets in place of an MPA Request", octets);
    peer.bytes(octets)?;
    if hang_up {
        peer.hang_up()?;
    }
    let mut header = [0; Header::LEN];
    match peer.socket().read_exact(&mut header) {
        Ok(()) => match Header::of_reply(header) {
            Some(reply) => {
                bed.log.came("MPA Reply", &header);
                Ok(Some(reply))
            }
            None => fail(format!("octets that are no MPA Reply: {header:02x?}")),
        },
        Err(why) if is_end(why.kind()) => {
            bed.log.came("the end of the connection", &[]);
            Ok(None)
        }
        Err(_) => fail(format!(
            "the connection is neither answered nor ended within {:?}",
            bed.patience
        )),
    }
}

fn is_closed(bed: &Bed, octets: &[u8]) -> Tested {
    match outcome(bed, octets, false)? {
        None => Ok(()),
        Some(_) => fail("it is answered with an MPA Reply"),
    }
}

/// Either closed or rejected.
fn is_not_accepted(bed: &Bed, octets: &[u8], hang_up: bool) -> Tested {
    match outcome(bed, octets, hang_up)? {
        Some(reply) if !reply.rejected() => fail("it is accepted"),
        Some(_) | None => Ok(()),
    }
}

fn other_keys(bed: &Bed) -> Tested {
    for at in [0, 8, 15] {
        let mut request = Request::default();
        request.key[at] ^= 0x20;
        is_closed(bed, &request.emit())?;
    }
    is_closed(bed, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn reply_for_request(bed: &Bed) -> Tested {
    let request = Request {
        key: *b"MPA ID Rep Frame",
        ..Request::default()
    };
    is_closed(bed, &request.emit())
}

fn unknown_revision(bed: &Bed) -> Tested {
    let request = Request {
        revision: 99,
        ..Request::default()
    };
    is_not_accepted(bed, &request.emit(), false)
}

fn too_much_private_data(bed: &Bed) -> Tested {
    let request = Request {
        length: Some(513),
        data: [&Request::default().data[..4], &[0; 509]].concat(),
        ..Request::default()
    };
    is_closed(bed, &request.emit())
}

fn too_little_private_data(bed: &Bed) -> Tested {
    let mut request = Request::default();
    let sent = u16::try_from(request.data.len()).expect("it is short");
    request.length = Some(sent + 8);
    is_not_accepted(bed, &request.emit(), true)
}

fn reserved_bits(bed: &Bed) -> Tested {
    let request = Request {
        flags: CRC | ENHANCED | 0x0f,
        ..Request::default()
    };
    is_answered(bed, &mut bed.raw_with(&request)?)
}

fn revision_one(bed: &Bed) -> Tested {
    let request = Request {
        flags: CRC,
        revision: 1,
        data: private_data(true).to_vec(),
        ..Request::default()
    };
    let Some(reply) = outcome(bed, &request.emit(), false)? else {
        return fail("the connection is closed");
    };
    ensure(!reply.rejected(), || "it is rejected".to_owned())?;
    ensure(!reply.enhanced(), || "the Reply is enhanced".to_owned())?;
    is_answered(bed, &mut bed.raw_with(&request)?)
}

fn enhanced(bed: &Bed) -> Tested {
    let peer = bed.raw_with(&Request::default())?;
    ensure(peer.depths.is_some(), || {
        "the Reply has no IRD and ORD".to_owned()
    })
}

/// A Request with these words of IRD and ORD.
fn with_depths(ird: u16, ord: u16) -> Request {
    let mut request = Request::default();
    request.data[..2].copy_from_slice(&ird.to_be_bytes());
    request.data[2..4].copy_from_slice(&ord.to_be_bytes());
    request
}

/// IRD and ORD of the Reply to such a Request.
fn depths(bed: &Bed, ird: u16, ord: u16) -> Tested<[u16; 2]> {
    match bed.raw_with(&with_depths(ird, ord))?.depths {
        Some(depths) => Ok(depths),
        None => fail("the Reply has no IRD and ORD"),
    }
}

fn depth(bed: &Bed) -> Tested {
    for ird in [1, 2, 8, 128] {
        let [_, ord] = depths(bed, ird, 8)?;
        ensure(ord & DEPTH <= ird, || {
            format!("ORD is {}, and IRD was {ird}", ord & DEPTH)
        })?;
    }
    Ok(())
}

fn reply_is_well_formed(bed: &Bed) -> Tested {
    let Some(reply) = outcome(bed, &Request::default().emit(), false)? else {
        return fail("the connection is closed");
    };
    ensure(reply.flags() & 0x0f == 0, || {
        format!("its flags are {:#010b}", reply.flags())
    })?;
    ensure(matches!(reply.revision(), 1 | 2), || {
        format!("its revision is {}", reply.revision())
    })?;
    ensure(reply.data_len() <= 512, || {
        format!("it has {} octets of private data", reply.data_len())
    })
}

fn no_peer_to_peer(bed: &Bed) -> Tested {
    let [ird, ord] = depths(bed, 8, 8)?;
    ensure((ird | ord) & !DEPTH == 0, || {
        format!("the words of IRD and ORD are {ird:#x} and {ord:#x}")
    })
}

fn peer_to_peer(bed: &Bed) -> Tested {
    // A, and all RTR indications: an empty Send, an empty Write, an empty Read.
    let request = with_depths(FLAG_A | FLAG_B | 8, FLAG_A | FLAG_B | 8);
    let mut peer = bed.raw()?;
    bed.log.sent("MPA Request", &request.emit());
    peer.bytes(&request.emit())?;
    match peer.reply(&request)? {
        Some(reply) if reply.rejected() => return Ok(()),
        Some(_) => {}
        None => return fail("the connection is closed"),
    }
    let Some([ird, ord]) = peer.depths else {
        return fail("the Reply has no IRD and ORD");
    };
    ensure(ird & FLAG_A != 0, || "control flag A is not set".to_owned())?;
    ensure(ird & FLAG_B != 0 || ord & !DEPTH != 0, || {
        "no RTR indication is set".to_owned()
    })
}

fn no_negotiation_of_depths(bed: &Bed) -> Tested {
    let [ird, ord] = depths(bed, DEPTH, DEPTH)?;
    ensure([ird & DEPTH, ord & DEPTH] == [DEPTH; 2], || {
        format!("IRD and ORD are {:#x} and {:#x}", ird & DEPTH, ord & DEPTH)
    })
}

fn crc(bed: &Bed) -> Tested {
    // Each CRC that comes is compared as it is taken in.
    let mut peer = bed.raw_with(&Request::default())?;
    for _ in 0..4 {
        is_answered(bed, &mut peer)?;
    }
    Ok(())
}

fn wrong_crc(bed: &Bed) -> Tested {
    for flags in [CRC | ENHANCED, ENHANCED] {
        let request = Request {
            flags,
            ..Request::default()
        };
        let mut peer = bed.raw_with(&request)?;
        is_answered(bed, &mut peer)?;
        let call = words(&bed.null_message(bed.xid()));
        let segment = peer.next_send(&call);
        let mut fpdu = peer.framed(&segment.emit());
        let last = fpdu.len() - 1;
        if fpdu[last - 3..] == [0; 4] {
            // Neither end asked for CRCs.
            continue;
        }
        fpdu[last] ^= 1;
        bed.log.sent("FPDU with a wrong CRC", &fpdu);
        peer.bytes(&fpdu)?;
        match peer.hear()? {
            Heard::Terminate(_) | Heard::Closed => {}
            other => return fail(format!("it is delivered: {other:?}")),
        }
    }
    Ok(())
}

fn no_crc(bed: &Bed) -> Tested {
    let request = Request {
        flags: ENHANCED,
        ..Request::default()
    };
    let Some(reply) = outcome(bed, &request.emit(), false)? else {
        return fail("the connection is closed");
    };
    if reply.crc() {
        return skip("the Responder asks for CRCs");
    }
    let mut peer = bed.raw_with(&request)?;
    for _ in 0..2 {
        let xid = bed.xid();
        let segment = peer.next_send(&words(&bed.null_message(xid)));
        let mut fpdu = peer.framed(&segment.emit());
        let crc = fpdu.len() - 4;
        fpdu[crc..].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
        peer.bytes(&fpdu)?;
        answer(bed, &mut peer, xid)?;
    }
    Ok(())
}

fn markers(bed: &Bed) -> Tested {
    let request = Request::with_markers();
    let mut peer = bed.raw_with(&request)?;
    for _ in 0..30 {
        is_answered(bed, &mut peer)?;
    }
    ensure(peer.markers_seen > 2, || {
        format!("{} Markers came", peer.markers_seen)
    })
}

fn speaks_second(bed: &Bed) -> Tested {
    let mut peer = bed.raw_with(&Request::default())?;
    match peer.comes_within(NUDGE_AFTER) {
        Ok(false) => is_answered(bed, &mut peer),
        Ok(true) => fail("something comes before the first FPDU of the Initiator"),
        Err(why) => fail(format!("the socket failed: {why}")),
    }
}

fn pad(bed: &Bed) -> Tested {
    let mut peer = bed.raw_with(&Request::default())?;
    is_answered(bed, &mut peer)?;
    let xid = bed.xid();
    let call = words(&bed.null_message(xid));
    let first = peer.next_send(&call[..1]).not_last();
    let mut second = first.clone();
    // Bit L, and the offset in the message.
    second.ddp |= 0x40;
    second.rest[12..].copy_from_slice(&1u32.to_be_bytes());
    second.payload = call[1..].to_vec();
    for segment in [first, second] {
        let fpdu = peer.padded(&segment.emit(), 0xff);
        bed.log.sent("FPDU with a pad of ones", &fpdu);
        peer.bytes(&fpdu)?;
    }
    answer(bed, &mut peer, xid)
}

fn dripping(bed: &Bed) -> Tested {
    let mut peer = bed.raw()?;
    let request = Request::default();
    for octet in request.emit() {
        peer.bytes(&[octet])?;
    }
    match peer.reply(&request)? {
        Some(reply) if !reply.rejected() => is_answered(bed, &mut peer),
        other => fail(format!("it is not accepted: {other:?}")),
    }
}

fn gone_during_setup(bed: &Bed) -> Tested {
    let whole = Request::default().emit();
    for sent in [0, 1, 16, 19, 20, 24, whole.len()] {
        let mut peer = bed.raw()?;
        peer.bytes(&whole[..sent])?;
        peer.hang_up()?;
    }
    Ok(())
}

/// Silent peers at a time: fewer than any server should have room for.
const SILENT: usize = 12;

fn silent_peers(bed: &Bed) -> Tested {
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(bed.raw()?);
    }
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let call = rpc::msg(xid, 1, &bed.null(xid));
    bed.ask(&mut link, &call)?.accepted(xid)?;
    Ok(())
}
