//! Connection setup of MPA (RFC 5044 §7.1, RFC 6581), where Requesters come by TCP.

use super::stage::{QUIET, Stage};
use crate::case::Case;
use crate::iwarp::{DEPTH, FLAG_A, Header, Heard, Peer, is_end, private_data};
use crate::message::describe;
use crate::verdict::Level::Must;
use crate::verdict::{Tested, ensure, fail};
use std::io::Read;

pub(super) const CASES: &[Case] = &[
    Case::requester(
        "RMPA-01",
        Must,
        "RFC 5044 §7.1.1",
        "the Request has a revision of 1 or 2, and reserved bits of zero",
        request_is_well_formed,
    ),
    Case::requester(
        "RMPA-02",
        Must,
        "RFC 6581 §9.2",
        "without control flag A, the other control flags are zero",
        control_flags,
    ),
    Case::requester(
        "RMPA-03",
        Must,
        "RFC 5044 §7.1.2",
        "nothing is sent between Request and Reply",
        waits_for_the_reply,
    ),
    Case::requester(
        "RMPA-04",
        Must,
        "RFC 5044 §7.1.1, §7.1.2",
        "a Reply with another key ends the connection",
        other_key,
    ),
    Case::requester(
        "RMPA-05",
        Must,
        "RFC 5044 §7.1.1",
        "a Reply with more than 512 octets of private data ends the connection",
        too_much_private_data,
    ),
    Case::requester(
        "RMPA-06",
        Must,
        "RFC 5044 §7.1.2",
        "a Reply that rejects is not followed by an FPDU",
        rejected,
    ),
    Case::requester(
        "RMPA-07",
        Must,
        "RFC 5044 §4.4",
        "FPDUs have a CRC that is right, where either end asks for it",
        crc,
    ),
    Case::requester(
        "RMPA-08",
        Must,
        "RFC 5044 §7.1.1, RFC 6581 §10",
        "a Reply of an unknown revision is not accepted",
        unknown_revision,
    ),
];

/// A connection, and the Request on it.
fn request(stage: &Stage) -> Tested<(Peer, Header)> {
    let mut peer = stage.raw()?;
    let request = peer.request()?;
    stage
        .log
        .came(format!("MPA Request {request:x?}"), &peer.private_data);
    Ok((peer, request))
}

fn request_is_well_formed(stage: &Stage) -> Tested {
    let (_peer, request) = request(stage)?;
    ensure(matches!(request.revision(), 1 | 2), || {
        format!("its revision is {}", request.revision())
    })?;
    ensure(request.flags() & 0x0f == 0, || {
        format!("its flags are {:#010b}", request.flags())
    })?;
    ensure(!request.rejected(), || {
        "it has the bit that rejects".to_owned()
    })
}

fn control_flags(stage: &Stage) -> Tested {
    let (peer, _) = request(stage)?;
    let Some([ird, ord]) = peer.depths else {
        return crate::verdict::skip("the Request is not enhanced");
    };
    ensure(ird & FLAG_A != 0 || (ird | ord) & !DEPTH == 0, || {
        format!("the words of IRD and ORD are {ird:#x} and {ord:#x}")
    })
}

fn waits_for_the_reply(stage: &Stage) -> Tested {
    let (mut peer, _) = request(stage)?;
    match peer.comes_within(QUIET) {
        Ok(false) => Ok(()),
        Ok(true) => fail("something comes before the Reply"),
        Err(why) => fail(format!("the socket failed: {why}")),
    }
}

/// Nothing comes but the end of the connection.
fn is_closed(stage: &Stage, peer: &mut Peer) -> Tested {
    match peer.socket().read(&mut [0; 64]) {
        Ok(0) => Ok(()),
        Ok(read) => fail(format!("{read} octets come")),
        Err(why) if is_end(why.kind()) => Ok(()),
        Err(_) => fail(format!(
            "the connection does not end within {:?}",
            stage.patience
        )),
    }
}

fn answered_with(stage: &Stage, change: impl FnOnce(&mut Vec<u8>)) -> Tested {
    let (mut peer, request) = request(stage)?;
    let mut reply = request.accepting_depths(peer.depths, &private_data(true));
    change(&mut reply);
    stage.log.sent("MPA Reply", &reply);
    peer.bytes(&reply)?;
    is_closed(stage, &mut peer)
}

fn other_key(stage: &Stage) -> Tested {
    answered_with(stage, |reply| reply[8] ^= 0x20)
}

fn too_much_private_data(stage: &Stage) -> Tested {
    answered_with(stage, |reply| {
        let length = u16::try_from(513).expect("it is small");
        reply[18..20].copy_from_slice(&length.to_be_bytes());
        reply.resize(Header::LEN + 513, 0);
    })
}

fn rejected(stage: &Stage) -> Tested {
    let (mut peer, request) = request(stage)?;
    let mut reply = request.accepting_depths(peer.depths, b"");
    reply[16] |= 0x20;
    stage.log.sent("MPA Reply that rejects", &reply);
    peer.bytes(&reply)?;
    match peer.comes_within(QUIET) {
        Ok(false) => Ok(()),
        Ok(true) => is_closed(stage, &mut peer),
        Err(why) => fail(format!("the socket failed: {why}")),
    }
}

fn crc(stage: &Stage) -> Tested {
    let (mut peer, request) = request(stage)?;
    // The Reply asks for it.
    peer.uses_crc(true);
    peer.bytes(&request.accepting_depths(peer.depths, &private_data(true)))?;
    match peer.hear()? {
        Heard::Message { bytes, .. } => {
            stage.log.came(describe(&bytes), &bytes);
            Ok(())
        }
        other => fail(format!("no message, but {other:?}")),
    }
}

fn unknown_revision(stage: &Stage) -> Tested {
    answered_with(stage, |reply| reply[17] = 99)
}
