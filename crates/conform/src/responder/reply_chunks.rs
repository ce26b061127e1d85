//! Reply chunks (RFC 8166 §4.3.3) of small replies, without files of the peer.

use super::read_chunks::ends_somehow;
use super::write_chunks::same_segments;
use crate::bed::{Bed, accepted};
use crate::case::Case;
use crate::header::procedure;
use crate::link::{Link, UNTOUCHED};
use crate::message::{Message, Segment, chunk_len};
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure, fail};

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "RPCH-01",
        Must,
        "RFC 8166 §4.3.3",
        "a Reply chunk comes back, with handle and offset of every segment",
        copied,
    ),
    Case::responder(
        "RPCH-02",
        Must,
        "RFC 8166 §4.3.3",
        "the lengths of a Reply chunk are those of what was written to it",
        lengths,
    ),
    Case::responder(
        "RPCH-03",
        Must,
        "RFC 8166 §3.5.3",
        "a reply in a Reply chunk is whole, from its XID on, and is in no other place",
        whole,
    ),
    Case::responder(
        "RPCH-04",
        Must,
        "RFC 8166 §4.3.3",
        "a Reply chunk of several segments is filled in order",
        in_order,
    ),
    Case::responder(
        "RPCH-05",
        Robustness,
        "RFC 8166 §4.3.3",
        "memory of a Reply chunk beyond the reply stays as it was",
        untouched,
    ),
    Case::responder(
        "RPCH-06",
        Must,
        "RFC 8166 §3.5.3",
        "a call and its reply can both be in chunks",
        long_both_ways,
    ),
    Case::responder(
        "RPCH-07",
        Robustness,
        "RFC 8166 §4.5.3",
        "a Reply chunk with a handle that is not registered ends its connection at most",
        unknown_handle,
    ),
    Case::responder(
        "RPCH-08",
        Robustness,
        "RFC 8166 §4.5.3",
        "a Reply chunk without segments harms nobody",
        no_segments,
    ),
];

/// Empty lists, and a Reply chunk of these segments.
pub(super) fn reply_chunk(segments: &[Segment]) -> Vec<u32> {
    let count = u32::try_from(segments.len()).expect("a case has few segments");
    let mut lists = vec![0, 0, 1, count];
    lists.extend(segments.iter().flat_map(|segment| segment.words()));
    lists
}

/// A NULL call with a Reply chunk of these segments, and the answer to it.
fn null_with(bed: &Bed, link: &mut Link, xid: u32, segments: &[Segment]) -> Tested<Message> {
    let message = Bed::message(procedure::MSG, xid, &reply_chunk(segments), &bed.null(xid));
    Ok(bed.ask(link, &message)?.message)
}

/// The Reply chunk that came back.
pub(super) fn returned(message: &Message) -> Tested<&[Segment]> {
    match &message.chunks()?.reply {
        Some(chunk) => Ok(chunk),
        None => fail("the Reply chunk does not come back"),
    }
}

/// The RPC reply, from the message or from the memory of its Reply chunk, which begins with `sink`.
pub(super) fn stream(link: &mut Link, message: &Message, sink: Segment) -> Tested<Vec<u8>> {
    let chunk = returned(message)?;
    let length = usize::try_from(chunk_len(chunk)).unwrap_or(usize::MAX);
    match message.chunks()?.nomsg {
        false => {
            ensure(length == 0, || {
                format!("the reply is in RDMA_MSG, and {length} octets in the Reply chunk")
            })?;
            Ok(message.payload.clone())
        }
        true => {
            ensure(message.payload.is_empty(), || {
                "octets are behind the header of RDMA_NOMSG".to_owned()
            })?;
            let (memory, _) = link.take(sink)?;
            match memory.get(..length) {
                Some(reply) => Ok(reply.to_vec()),
                None => fail(format!(
                    "{length} octets in {} of a Reply chunk",
                    memory.len()
                )),
            }
        }
    }
}

fn copied(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let sink = link.sink(2048)?;
    let offered = [sink.part(1, 1000), sink.part(1024, 512)];
    let message = null_with(bed, &mut link, bed.xid(), &offered)?;
    same_segments(&offered, returned(&message)?)
}

fn lengths(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let sink = link.sink(2048)?;
    let xid = bed.xid();
    let message = null_with(bed, &mut link, xid, &[sink])?;
    let length = chunk_len(returned(&message)?);
    match message.chunks()?.nomsg {
        false => ensure(length == 0, || {
            format!("{length} octets of an unused chunk")
        }),
        true => {
            let reply = stream(&mut link, &message, sink)?;
            accepted(&reply, xid)?;
            ensure(reply.len() % 4 == 0, || {
                format!("a reply of {} octets is no XDR", reply.len())
            })
        }
    }
}

fn whole(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let sink = link.sink(2048)?;
    let xid = bed.xid();
    let message = null_with(bed, &mut link, xid, &[sink])?;
    let reply = stream(&mut link, &message, sink)?;
    accepted(&reply, xid)?;
    Ok(())
}

fn in_order(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let (one, other) = (link.sink(10)?, link.sink(2048)?);
    let xid = bed.xid();
    let message = null_with(bed, &mut link, xid, &[one, other])?;
    let chunk = returned(&message)?.to_vec();
    if !message.chunks()?.nomsg {
        return ensure(chunk_len(&chunk) == 0, || {
            "the chunk was not used".to_owned()
        });
    }
    same_segments(&[one, other], &chunk)?;
    ensure(chunk[0].length == 10, || {
        format!("the first segment has {} octets of 10", chunk[0].length)
    })?;
    let (mut reply, _) = link.take(one)?;
    let (rest, _) = link.take(other)?;
    reply.extend_from_slice(&rest[..chunk[1].length as usize]);
    accepted(&reply, xid)?;
    Ok(())
}

fn untouched(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let sink = link.sink(2048)?;
    let message = null_with(bed, &mut link, bed.xid(), &[sink])?;
    let length = usize::try_from(chunk_len(returned(&message)?)).unwrap_or(usize::MAX);
    let (memory, _) = link.take(sink)?;
    let rest = memory.get(length..).unwrap_or_default();
    ensure(rest.iter().all(|octet| *octet == UNTOUCHED), || {
        format!("octets behind the {length} of the reply were written")
    })
}

fn long_both_ways(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let source = link.source(&crate::words(&bed.null(xid)))?;
    let sink = link.sink(2048)?;
    let [handle, length, high, low] = source.words();
    let read = [1, 0, handle, length, high, low];
    let lists = [&read[..], &reply_chunk(&[sink])].concat();
    let message = Bed::message(procedure::NOMSG, xid, &lists, &[]);
    let answer = bed.ask(&mut link, &message)?.message;
    let reply = stream(&mut link, &answer, sink)?;
    accepted(&reply, xid)?;
    Ok(())
}

fn unknown_handle(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let segment = Segment {
        handle: 0x00c0_ffee,
        length: 4096,
        offset: 0,
    };
    let xid = bed.xid();
    let lists = reply_chunk(&[segment]);
    let message = Bed::message(procedure::MSG, xid, &lists, &bed.null(xid));
    ends_somehow(bed, &mut link, &message)
}

fn no_segments(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let lists = reply_chunk(&[]);
    bed.send(
        &mut link,
        &Bed::message(procedure::MSG, xid, &lists, &bed.null(xid)),
    )?;
    bed.settles(&mut link);
    Ok(())
}
