//! Remote invalidation in version one (RFC 8797 §4.1), and handles at the Responder.

use super::read_chunks::read_list;
use super::reply_chunks::reply_chunk;
use super::write_chunks::write_list;
use crate::bed::{Bed, private_data};
use crate::case::Case;
use crate::header::{Version, procedure};
use crate::link::{Heard, Link};
use crate::message::Segment;
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure, fail};
use crate::words;
use rpcrdma_proto::PrivateData;

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "INV-01",
        Must,
        "RFC 8797 §4.1",
        "nothing is invalidated for a Requester that has cleared R",
        requester_without_r,
    ),
    Case::responder(
        "INV-02",
        Must,
        "RFC 8797 §4.1, §5.1",
        "nothing is invalidated for a Requester without private data",
        requester_without_private_data,
    ),
    Case::responder(
        "INV-03",
        Must,
        "RFC 8797 §4.1",
        "a Responder that has cleared R, or has no private data, invalidates nothing",
        responder_without_r,
    ),
    Case::responder(
        "INV-04",
        Must,
        "RFC 8797 §4.1",
        "the handle that is invalidated is one of the call with that XID",
        handle_of_the_call,
    ),
    Case::responder(
        "INV-05",
        Must,
        "RFC 8797 §4.1",
        "nothing is invalidated with a reply to a call without handles",
        no_handle,
    ),
    Case::responder(
        "INV-06",
        Robustness,
        "RFC 5040 §5.3, RFC 8166 §8.1",
        "a Requester that invalidates a handle at the Responder ends its connection at most",
        stray_invalidation,
    ),
    Case::responder(
        "INV-07",
        Must,
        "RFC 8166 §8.1, RFC 5040 §8.1.1",
        "memory of the Responder cannot be written",
        memory_of_the_responder_is_written,
    ),
    Case::responder(
        "INV-08",
        Must,
        "RFC 8166 §8.1, RFC 5040 §8.1.1",
        "memory of the Responder cannot be read",
        memory_of_the_responder_is_read,
    ),
];

/// Calls NULL with memory of each kind: of each call, its handles, and the one that was invalidated.
fn calls(bed: &Bed, link: &mut Link) -> Tested<Vec<(Vec<u32>, Option<u32>)>> {
    let mut all = Vec::new();
    for kind in 0..3 {
        let xid = bed.xid();
        let call = bed.null(xid);
        let (handles, message) = match kind {
            0 => {
                let source = link.source(&words(&call))?;
                let lists = read_list(&[(0, source)]);
                (
                    vec![source.handle],
                    Bed::message(procedure::NOMSG, xid, &lists, &[]),
                )
            }
            1 => {
                let sink = link.sink(256)?;
                let lists = write_list(&[vec![sink]]);
                (
                    vec![sink.handle],
                    Bed::message(procedure::MSG, xid, &lists, &call),
                )
            }
            _ => {
                let (one, other) = (link.sink(64)?, link.sink(256)?);
                let lists = reply_chunk(&[one, other]);
                let handles = vec![one.handle, other.handle];
                (handles, Bed::message(procedure::MSG, xid, &lists, &call))
            }
        };
        let answer = bed.ask(link, &message)?;
        answer.message.chunks()?;
        all.push((handles, answer.invalidated));
    }
    Ok(all)
}

fn nothing_is_invalidated(bed: &Bed, link: &mut Link) -> Tested {
    match calls(bed, link)?.iter().find_map(|(_, taken)| *taken) {
        Some(handle) => fail(format!("handle {handle:#010x} is invalidated")),
        None => Ok(()),
    }
}

fn requester_without_r(bed: &Bed) -> Tested {
    let mut link = bed.connect_saying(&private_data(false, 4096))?;
    nothing_is_invalidated(bed, &mut link)
}

fn requester_without_private_data(bed: &Bed) -> Tested {
    nothing_is_invalidated(bed, &mut bed.connect_saying(&[])?)
}

fn responder_without_r(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let announced = PrivateData::find(&link.private_data);
    if announced.is_some_and(|data| data.remote_invalidation) {
        return crate::verdict::skip("the Responder has set R");
    }
    nothing_is_invalidated(bed, &mut link)
}

fn handle_of_the_call(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    for (handles, taken) in calls(bed, &mut link)? {
        ensure(taken.is_none_or(|handle| handles.contains(&handle)), || {
            format!("{taken:x?} is invalidated, and the call has {handles:x?}")
        })?;
    }
    bed.goes_on(&mut link, Version::One)
}

fn no_handle(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    // One that is registered, and that no call names.
    link.sink(64)?;
    for _ in 0..4 {
        let xid = bed.xid();
        let answer = bed.ask(&mut link, &bed.null_message(xid))?;
        ensure(answer.invalidated.is_none(), || {
            format!("{:x?} is invalidated", answer.invalidated)
        })?;
    }
    Ok(())
}

fn stray_invalidation(bed: &Bed) -> Tested {
    for handle in [1, 0x00c0_ffee] {
        let mut link = bed.connect()?;
        bed.goes_on(&mut link, Version::One)?;
        let call = words(&bed.null_message(bed.xid()));
        link.send_invalidating(&call, Some(handle))?;
        bed.settles(&mut link);
    }
    Ok(())
}

/// Handles that a Responder could have.
const GUESSES: [u32; 4] = [1, 0x100, 0x00c0_ffee, u32::MAX];

fn memory_of_the_responder_is_written(bed: &Bed) -> Tested {
    for handle in GUESSES {
        let mut link = bed.connect()?;
        bed.goes_on(&mut link, Version::One)?;
        let to = Segment {
            handle,
            length: 1,
            offset: 0,
        };
        link.write(to, b"x")?;
        // Behind the Write in the stream, so that it cannot be answered before that is refused.
        let _ = bed.send(&mut link, &bed.null_message(bed.xid()));
        match link.hear() {
            Heard::End(_) => {}
            Heard::Silence => return fail("the connection does not end"),
            Heard::Message { .. } => {
                return fail(format!("a Write to handle {handle:#x} is not refused"));
            }
        }
    }
    Ok(())
}

fn memory_of_the_responder_is_read(bed: &Bed) -> Tested {
    for handle in GUESSES {
        let mut link = bed.connect()?;
        bed.goes_on(&mut link, Version::One)?;
        let from = Segment {
            handle,
            length: 16,
            offset: 0,
        };
        if let Ok(octets) = link.read(&[from])? {
            return fail(format!("handle {handle:#x} gives {octets:02x?}"));
        }
    }
    Ok(())
}
