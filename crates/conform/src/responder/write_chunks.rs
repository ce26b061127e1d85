//! Write chunks (RFC 8166 §3.4.6, §4.3.2) that no result fills, without files of the peer.

use super::read_chunks::ends_somehow;
use crate::bed::{Answer, Bed};
use crate::case::Case;
use crate::header::procedure;
use crate::link::Link;
use crate::message::{Chunk, Segment, chunk_len};
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure};

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "WRCH-01",
        Must,
        "RFC 8166 §4.3.2.2",
        "a Write chunk for a reply without an eligible result comes back unused",
        unused,
    ),
    Case::responder(
        "WRCH-02",
        Must,
        "RFC 8166 §3.4.6",
        "handle and offset of every segment of a Write chunk come back as they were offered",
        copied,
    ),
    Case::responder(
        "WRCH-03",
        Must,
        "RFC 8166 §3.4.6",
        "an empty Write chunk comes back empty",
        empty,
    ),
    Case::responder(
        "WRCH-04",
        Must,
        "RFC 8166 §4.3.2.2",
        "every unused Write chunk of several comes back unused",
        several,
    ),
    Case::responder(
        "WRCH-05",
        Must,
        "RFC 8166 §4.3.2.2",
        "the Write chunk of a READ that fails comes back unused",
        failed_read,
    ),
    Case::responder(
        "WRCH-06",
        Must,
        "RFC 8166 §6.1, §4.3.2.2",
        "a result that is not DDP-eligible is not put into a Write chunk",
        not_eligible,
    ),
    Case::responder(
        "WRCH-07",
        Robustness,
        "RFC 8166 §4.5.3",
        "a Write chunk with a handle that is not registered ends its connection at most",
        unknown_handle,
    ),
    Case::responder(
        "WRCH-08",
        Robustness,
        "RFC 8166 §4.3.2",
        "a Write list with more chunks than any reply has results harms nobody",
        many,
    ),
];

/// An empty Read list, a Write list of these chunks, and no Reply chunk.
pub(super) fn write_list(chunks: &[Chunk]) -> Vec<u32> {
    let mut lists = vec![0];
    for chunk in chunks {
        let count = u32::try_from(chunk.len()).expect("a case has few segments");
        lists.extend([1, count]);
        lists.extend(chunk.iter().flat_map(|segment| segment.words()));
    }
    lists.extend([0, 0]);
    lists
}

/// Chunks of a reply are those of the call: as many, with the same handles and offsets, and no longer.
pub(super) fn come_back(answer: &Answer, offered: &[Chunk]) -> Tested {
    let returned = &answer.message.chunks()?.writes;
    ensure(returned.len() == offered.len(), || {
        format!(
            "{} Write chunks come back of {}",
            returned.len(),
            offered.len()
        )
    })?;
    for (offered, returned) in offered.iter().zip(returned) {
        same_segments(offered, returned)?;
    }
    Ok(())
}

/// Segments are those that were offered, and no longer.
pub(super) fn same_segments(offered: &[Segment], returned: &[Segment]) -> Tested {
    ensure(returned.len() == offered.len(), || {
        format!("{} segments come back of {}", returned.len(), offered.len())
    })?;
    for (offered, returned) in offered.iter().zip(returned) {
        ensure(
            (returned.handle, returned.offset) == (offered.handle, offered.offset),
            || format!("segment {offered:x?} comes back as {returned:x?}"),
        )?;
        ensure(returned.length <= offered.length, || {
            format!(
                "a segment of {} octets comes back with {}",
                offered.length, returned.length
            )
        })?;
    }
    Ok(())
}

fn all_unused(answer: &Answer) -> Tested {
    for chunk in &answer.message.chunks()?.writes {
        let length = chunk_len(chunk);
        ensure(length == 0, || {
            format!("an unused chunk comes back with {length} octets")
        })?;
    }
    Ok(())
}

/// A NULL call with these chunks, and the answer to it.
fn null_with(bed: &Bed, link: &mut Link, chunks: &[Chunk]) -> Tested<Answer> {
    let xid = bed.xid();
    let message = Bed::message(procedure::MSG, xid, &write_list(chunks), &bed.null(xid));
    let answer = bed.ask(link, &message)?;
    answer.accepted(xid)?;
    Ok(answer)
}

fn unused(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let chunk = vec![link.sink(1024)?];
    let answer = null_with(bed, &mut link, &[chunk])?;
    ensure(answer.message.chunks()?.writes.len() == 1, || {
        "the Write chunk does not come back".to_owned()
    })?;
    all_unused(&answer)
}

fn copied(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let one = link.sink(1024)?;
    let other = link.sink(64)?;
    let chunks = [vec![one.part(3, 100), one.part(200, 7), other]];
    let answer = null_with(bed, &mut link, &chunks)?;
    come_back(&answer, &chunks)
}

fn empty(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let answer = null_with(bed, &mut link, &[Vec::new()])?;
    let writes = &answer.message.chunks()?.writes;
    ensure(*writes == [Vec::new()], || {
        format!("it comes back as {writes:x?}")
    })
}

fn several(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let chunks = [vec![link.sink(64)?], vec![link.sink(64)?]];
    let answer = null_with(bed, &mut link, &chunks)?;
    come_back(&answer, &chunks)?;
    all_unused(&answer)
}

/// Arguments with a file handle that no server has made.
fn no_handle() -> Vec<u32> {
    [vec![32], vec![0x1111_1111; 8]].concat()
}

/// A server may also deny the call (RFC 5531 §9): that reply has no result for the chunk either.
fn failed_read(bed: &Bed) -> Tested {
    bed.nfs3()?;
    let mut link = bed.connect()?;
    let chunks = [vec![link.sink(4096)?]];
    let xid = bed.xid();
    let read = [bed.user_call(xid, 6), no_handle(), vec![0, 0, 4096]].concat();
    let message = Bed::message(procedure::MSG, xid, &write_list(&chunks), &read);
    let answer = bed.ask(&mut link, &message)?;
    come_back(&answer, &chunks)?;
    all_unused(&answer)
}

fn not_eligible(bed: &Bed) -> Tested {
    bed.nfs3()?;
    let mut link = bed.connect()?;
    let sink = link.sink(1024)?;
    let xid = bed.xid();
    // FSINFO fails with this handle; its result, whatever it is, has nothing eligible.
    let call = [bed.user_call(xid, 19), no_handle()].concat();
    let message = Bed::message(procedure::MSG, xid, &write_list(&[vec![sink]]), &call);
    let answer = bed.ask(&mut link, &message)?;
    // Its memory may have been written to all the same (RFC 8166 §4.3.2.2).
    all_unused(&answer)
}

fn unknown_handle(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let segment = Segment {
        handle: 0x00c0_ffee,
        length: 4096,
        offset: 0,
    };
    let xid = bed.xid();
    let lists = write_list(&[vec![segment]]);
    let message = Bed::message(procedure::MSG, xid, &lists, &bed.null(xid));
    ends_somehow(bed, &mut link, &message)
}

fn many(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let sink = link.sink(4096)?;
    let chunks: Vec<Chunk> = (0..24).map(|at| vec![sink.part(64 * at, 64)]).collect();
    let xid = bed.xid();
    let lists = write_list(&chunks);
    bed.send(
        &mut link,
        &Bed::message(procedure::MSG, xid, &lists, &bed.null(xid)),
    )?;
    bed.settles(&mut link);
    Ok(())
}
