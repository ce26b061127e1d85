//! Read chunks (RFC 8166 §3.4.5, §3.5.3), without files of the peer.

use crate::bed::{Bed, CREDITS, NFS};
use crate::case::Case;
use crate::header::{error, procedure};
use crate::link::{Heard, Link};
use crate::message::Segment;
use crate::verdict::Level::{Must, Robustness, Should};
use crate::verdict::{Tested, ensure, fail};
use crate::{rpc, words};

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "RDCH-01",
        Must,
        "RFC 8166 §3.5.3",
        "a call in a Position Zero Read chunk is answered",
        long_call,
    ),
    Case::responder(
        "RDCH-02",
        Must,
        "RFC 8166 §3.4.4, §3.4.5",
        "a Read chunk may be divided into segments at any octet",
        odd_segments,
    ),
    Case::responder(
        "RDCH-03",
        Must,
        "RFC 8166 §3.4.4",
        "a Read chunk may have segments without octets",
        empty_segments,
    ),
    Case::responder(
        "RDCH-04",
        Must,
        "RFC 8166 §3.4.5, §4.5.2",
        "a Position that is no multiple of four draws ERR_CHUNK or GARBAGE_ARGS",
        unaligned,
    ),
    Case::responder(
        "RDCH-05",
        Must,
        "RFC 8166 §6.1",
        "an argument that is not DDP-eligible and is in a Read chunk draws ERR_CHUNK or GARBAGE_ARGS",
        not_eligible,
    ),
    Case::responder(
        "RDCH-06",
        Should,
        "RFC 8166 §4.5.2",
        "a Read chunk behind the end of the arguments draws GARBAGE_ARGS or ERR_CHUNK, or is not looked at",
        beyond_the_end,
    ),
    Case::responder(
        "RDCH-07",
        Robustness,
        "RFC 8166 §4.5.3",
        "a handle that is not registered ends its connection at most",
        unknown_handle,
    ),
    Case::responder(
        "RDCH-08",
        Robustness,
        "RFC 8166 §4.5.3",
        "a segment that is longer than its memory ends its connection at most",
        too_long_a_segment,
    ),
    Case::responder(
        "RDCH-09",
        Robustness,
        "RFC 8166 §8.1.4",
        "a chunk of 4 GiB is refused, or ends its connection at most",
        unreasonable,
    ),
    Case::responder(
        "RDCH-10",
        Robustness,
        "RFC 8166 §3.4.5",
        "segments whose lengths overflow 32 bits together harm nobody",
        overflowing_lengths,
    ),
    Case::responder(
        "RDCH-11",
        Robustness,
        "RFC 8166 §3.4.5",
        "Read chunks that overlap or go backwards harm nobody",
        overlapping,
    ),
    Case::responder(
        "RDCH-12",
        Robustness,
        "RFC 8166 §3.5.3",
        "a Position Zero Read chunk without octets harms nobody",
        empty_call,
    ),
    Case::responder(
        "RDCH-13",
        Robustness,
        "RFC 8166 §3.5.3",
        "a call that is both in the message and in a Position Zero Read chunk harms nobody",
        call_twice,
    ),
    Case::responder(
        "RDCH-14",
        Robustness,
        "RFC 8166 §3.4.5.1",
        "a connection that ends while its chunks are pulled harms nobody",
        gone_while_pulled,
    ),
    Case::responder(
        "RDCH-15",
        Must,
        "RFC 8166 §3.4.5.1",
        "the source of a Read chunk is not read any more when the reply has come",
        source_after_the_reply,
    ),
];

/// A Read list of these segments, an empty Write list, and no Reply chunk.
pub(super) fn read_list(segments: &[(u32, Segment)]) -> Vec<u32> {
    let mut lists = Vec::new();
    for (position, segment) in segments {
        lists.extend([1, *position]);
        lists.extend(segment.words());
    }
    lists.extend([0, 0, 0]);
    lists
}

/// A call in a Position Zero Read chunk of these parts of its octets.
fn in_parts(bed: &Bed, link: &mut Link, cuts: &[usize]) -> Tested {
    let xid = bed.xid();
    let call = words(&bed.null(xid));
    let mut segments = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&call.len()]) {
        // A segment without octets lies in the memory of the others.
        let segment = match to - from {
            0 => link.source(&call)?.part(0, 0),
            _ => link.source(&call[from..to])?,
        };
        segments.push((0, segment));
        from = to;
    }
    let message = Bed::message(procedure::NOMSG, xid, &read_list(&segments), &[]);
    bed.ask(link, &message)?.accepted(xid)?;
    Ok(())
}

fn long_call(bed: &Bed) -> Tested {
    in_parts(bed, &mut bed.connect()?, &[])
}

fn odd_segments(bed: &Bed) -> Tested {
    for cuts in [&[1][..], &[39], &[3, 4, 17], &[1, 2, 3, 5, 8, 13, 21]] {
        in_parts(bed, &mut bed.connect()?, cuts)?;
    }
    Ok(())
}

fn empty_segments(bed: &Bed) -> Tested {
    for cuts in [&[0][..], &[20, 20], &[40]] {
        in_parts(bed, &mut bed.connect()?, cuts)?;
    }
    Ok(())
}

/// A GETATTR whose handle is in a Read chunk, so many octets before its place.
fn getattr(bed: &Bed, link: &mut Link, before: u32) -> Tested<Vec<u32>> {
    let xid = bed.xid();
    let handle = link.source(&[0x11; 32])?;
    let mut call = bed.user_call(xid, 1);
    call.push(32);
    let place = u32::try_from(4 * call.len()).expect("a call is short");
    let lists = read_list(&[(place - before, handle)]);
    Ok(Bed::message(procedure::MSG, xid, &lists, &call))
}

fn unaligned(bed: &Bed) -> Tested {
    for before in [1, 2, 3] {
        let mut link = bed.connect()?;
        let message = getattr(bed, &mut link, before)?;
        bed.does_not_fit(&mut link, &message)?;
    }
    Ok(())
}

fn not_eligible(bed: &Bed) -> Tested {
    bed.nfs3()?;
    let mut link = bed.connect()?;
    let message = getattr(bed, &mut link, 0)?;
    bed.does_not_fit(&mut link, &message)
}

fn beyond_the_end(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let source = link.source(&[0; 8])?;
    let lists = read_list(&[(400, source)]);
    let message = Bed::message(procedure::MSG, xid, &lists, &bed.null(xid));
    let answer = bed.ask(&mut link, &message)?;
    if answer.message.error() == Some(error::HEADER) {
        return Ok(());
    }
    // Who pulls chunks while it decodes (RFC 8166 §3.4.5.1) finds nothing wrong with NULL, which has no arguments.
    let status = answer.accepted(xid)?;
    let allowed = [rpc::accept::SUCCESS, rpc::accept::GARBAGE_ARGS];
    ensure(allowed.contains(&status), || {
        format!("it is answered with accept_stat {status}")
    })
}

/// ERR_CHUNK or another answer, or the end of the connection, but not silence.
pub(super) fn ends_somehow(bed: &Bed, link: &mut Link, message: &[u32]) -> Tested {
    bed.send(link, message)?;
    match link.hear() {
        Heard::Message { .. } | Heard::End(_) => Ok(()),
        Heard::Silence => fail(format!(
            "neither an answer nor the end of the connection within {:?}",
            bed.patience
        )),
    }
}

/// A handle that no link has: they cannot be guessed from others.
const UNKNOWN: Segment = Segment {
    handle: 0x00c0_ffee,
    length: 40,
    offset: 0,
};

fn unknown_handle(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let lists = read_list(&[(0, UNKNOWN)]);
    let message = Bed::message(procedure::NOMSG, bed.xid(), &lists, &[]);
    ends_somehow(bed, &mut link, &message)
}

fn too_long_a_segment(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let source = link.source(&words(&bed.null(xid)))?;
    let lists = read_list(&[(0, source.part(0, 8192))]);
    let message = Bed::message(procedure::NOMSG, xid, &lists, &[]);
    ends_somehow(bed, &mut link, &message)
}

/// A Responder is not obliged to pull the chunk (RFC 8166 §8.1.4), and may: until its memory ends, which ends the
/// connection.
fn unreasonable(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let source = link.source(&words(&bed.null(xid)))?;
    let lists = read_list(&[(0, source.part(0, u32::MAX))]);
    let message = Bed::message(procedure::NOMSG, xid, &lists, &[]);
    ends_somehow(bed, &mut link, &message)
}

fn overflowing_lengths(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let source = link.source(&words(&bed.null(xid)))?;
    let segments = [(0, source.part(0, u32::MAX)), (0, source.part(0, 41))];
    let message = Bed::message(procedure::NOMSG, xid, &read_list(&segments), &[]);
    ends_somehow(bed, &mut link, &message)
}

fn overlapping(bed: &Bed) -> Tested {
    for positions in [[44, 48], [48, 44], [44, 56], [0, 44]] {
        let mut link = bed.connect()?;
        let xid = bed.xid();
        let source = link.source(&[0; 8])?;
        let call = rpc::call_with(xid, [NFS, 3, 7], &[8]);
        let lists = read_list(&positions.map(|position| (position, source)));
        bed.send(&mut link, &Bed::message(procedure::MSG, xid, &lists, &call))?;
        bed.settles(&mut link);
    }
    Ok(())
}

fn empty_call(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let source = link.source(&[0; 8])?;
    let lists = read_list(&[(0, source.part(0, 0))]);
    let message = Bed::message(procedure::NOMSG, bed.xid(), &lists, &[]);
    bed.send(&mut link, &message)?;
    bed.settles(&mut link);
    Ok(())
}

fn call_twice(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let call = bed.null(xid);
    let source = link.source(&words(&call))?;
    let lists = read_list(&[(0, source)]);
    bed.send(&mut link, &Bed::message(procedure::MSG, xid, &lists, &call))?;
    bed.settles(&mut link);
    Ok(())
}

fn gone_while_pulled(bed: &Bed) -> Tested {
    for _ in 0..4 {
        let mut link = bed.connect()?;
        let xid = bed.xid();
        let call = [words(&bed.null(xid)), vec![0; 256 << 10]].concat();
        let source = link.source(&call)?;
        let message = [
            &[xid, 1, CREDITS, procedure::NOMSG],
            &read_list(&[(0, source)])[..],
        ]
        .concat();
        bed.send(&mut link, &message)?;
        // Dropped: the connection is torn down at once.
        drop(link);
    }
    Ok(())
}

fn source_after_the_reply(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    for _ in 0..8 {
        let xid = bed.xid();
        let source = link.source(&words(&bed.null(xid)))?;
        let message = Bed::message(procedure::NOMSG, xid, &read_list(&[(0, source)]), &[]);
        bed.ask(&mut link, &message)?.accepted(xid)?;
        // A Read that came now would be refused, and end the connection.
        link.take(source)?;
    }
    bed.stays_silent(&mut link)?;
    bed.goes_on(&mut link, crate::header::Version::One)
}
