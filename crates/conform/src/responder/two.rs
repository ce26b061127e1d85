//! Version two: negotiation and messages (draft-cel-nfsv4-rpcrdma-version-two-01).

use super::base::padded_null;
use super::nfs::{read_with_reply_chunk, round_trip};
use super::read_chunks::read_list;
use crate::bed::{Bed, CREDITS};
use crate::case::Case;
use crate::header::{Version, direction, error, procedure};
use crate::link::Link;
use crate::message::Body;
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure, fail, skip};
use crate::words;

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "V2-01",
        Must,
        "cel-01 §5.1, §5.2, RFC 8166 §4.5.1",
        "a first call of version two is answered in version two, or draws ERR_VERS with a range",
        first_call,
    ),
    Case::responder(
        "V2-02",
        Must,
        "cel-01 §5.2, §5.3",
        "version one is served on the same connection after ERR_VERS for version two",
        fallback,
    ),
    Case::responder(
        "V2-03",
        Must,
        "cel-01 §4.2.2",
        "the direction of a reply is REPLY",
        direction_of_a_reply,
    ),
    Case::responder(
        "V2-04",
        Must,
        "cel-01 §5.3",
        "a reply has the version of its call",
        version_of_a_reply,
    ),
    Case::responder(
        "V2-05",
        Must,
        "cel-01 §2.3",
        "messages of 4096 octets are taken in, once the version is agreed on",
        default_threshold,
    ),
    Case::responder(
        "V2-06",
        Must,
        "cel-01 §5, RFC 8166 §3.3.1",
        "the granted value of every message is not zero",
        credits,
    ),
    Case::responder(
        "V2-07",
        Must,
        "cel-01 §4.2, §4.2.3",
        "a direction that there is not draws RDMA2_ERR_BAD_HEADER",
        bad_direction,
    ),
    Case::responder(
        "V2-08",
        Must,
        "cel-01 §4.2.3, RFC 8166 §4.5.2",
        "RDMA2_NOMSG without any chunk draws RDMA2_ERR_BAD_HEADER",
        nomsg_without_chunks,
    ),
    Case::responder(
        "V2-09",
        Must,
        "cel-01 §4.2.3, RFC 8166 §4.5.2",
        "lists that are no XDR draw RDMA2_ERR_BAD_HEADER",
        bad_lists,
    ),
    Case::responder(
        "V2-10",
        Must,
        "cel-01 §4.2.3, RFC 8166 §4.5.2",
        "an rdma_proc that there is not draws an RDMA2_ERROR",
        unknown_procedure,
    ),
    Case::responder(
        "V2-11",
        Must,
        "cel-01 §4.2, §4.2.1",
        "RDMA2_ERR_BAD_HEADER has the XID of the message, and nothing behind rdma_err",
        form_of_an_error,
    ),
    Case::responder(
        "V2-12",
        Must,
        "cel-01 §4.2.3, RFC 8166 §4.2.4",
        "RDMA2_ERROR is silently discarded",
        errors,
    ),
    Case::responder(
        "V2-13",
        Must,
        "cel-01 §4.2.3, RFC 8166 §4.3.1, §3.5.3",
        "a call in a Position Zero Read chunk is answered, without a Read list",
        long_call,
    ),
    Case::responder(
        "V2-14",
        Must,
        "cel-01 §4.2.3, RFC 8166 §4.3.2.2",
        "a Write chunk for a reply without an eligible result comes back unused",
        unused_chunk,
    ),
    Case::responder(
        "V2-15",
        Must,
        "cel-01 §2.3, §4.2",
        "data of a WRITE and a READ moves in chunks",
        data_in_chunks,
    ),
    Case::responder(
        "V2-16",
        Must,
        "cel-01 §2.3",
        "no reply is longer than 4096 octets for a Requester that has announced nothing",
        default_threshold_of_replies,
    ),
    Case::responder(
        "V2-17",
        Robustness,
        "cel-01 §4.2.2",
        "a call that says it is a reply, and a reply that says it is a call, harm nobody",
        contradictory_direction,
    ),
    Case::responder(
        "V2-18",
        Robustness,
        "cel-01 §5.3",
        "a call of version one on a connection of version two harms nobody",
        change_of_version,
    ),
    Case::responder(
        "V2-19",
        Robustness,
        "cel-01 §4.2.2, RFC 8167 §5.2",
        "a reply to a call that the Responder never made disturbs nothing",
        stray_reply,
    ),
    Case::responder(
        "V2-20",
        Robustness,
        "cel-01 §5.3",
        "connections of both versions are served at the same time",
        both_versions,
    ),
];

/// A message of version two with this behind `rdma_proc`.
pub(super) fn message(xid: u32, proc: u32, rest: &[u32]) -> Vec<u32> {
    [&[xid, 2, CREDITS, proc], rest].concat()
}

fn first_call(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let call = Version::Two.call(&bed.null_message(xid));
    let answer = bed.ask(&mut link, &call)?;
    match &answer.message.body {
        Body::Error { code, rest } => {
            ensure(*code == error::VERS, || format!("rdma_err is {code}"))?;
            ensure(matches!(rest[..], [low, high] if low <= high), || {
                format!("the range of versions is {rest:?}")
            })
        }
        _ => answer.accepted(xid).map(|_| ()),
    }
}

fn fallback(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let call = Version::Two.call(&bed.null_message(xid));
    let answer = bed.ask(&mut link, &call)?;
    match answer.message.error() {
        Some(error::VERS) => bed.goes_on(&mut link, Version::One),
        _ => skip("the peer speaks version two"),
    }
}

/// The answer to a NULL call.
fn null(bed: &Bed, link: &mut Link) -> Tested<crate::bed::Answer> {
    let xid = bed.xid();
    let answer = bed.ask(link, &Version::Two.call(&bed.null_message(xid)))?;
    answer.accepted(xid)?;
    Ok(answer)
}

fn direction_of_a_reply(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    let answer = null(bed, &mut link)?;
    let found = answer.message.chunks()?.direction;
    ensure(found == Some(direction::REPLY), || {
        format!("it is {found:?}")
    })
}

fn version_of_a_reply(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    let version = null(bed, &mut link)?.message.version;
    ensure(version == 2, || format!("rdma_vers is {version}"))
}

fn default_threshold(bed: &Bed) -> Tested {
    let mut link = bed.two_saying(&[])?;
    for octets in [1024, 1028, 4096] {
        let xid = bed.xid();
        let call = padded_null(bed, Version::Two, xid, octets);
        bed.ask(&mut link, &call)?.accepted(xid)?;
    }
    Ok(())
}

fn credits(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    for asked in [0, 1, 32, u32::MAX] {
        let xid = bed.xid();
        let mut call = Version::Two.call(&bed.null_message(xid));
        call[2] = asked;
        let granted = bed.ask(&mut link, &call)?.message.credits;
        ensure(granted > 0, || format!("no credit is granted of {asked}"))?;
    }
    Ok(())
}

/// A header that draws RDMA2_ERR_BAD_HEADER, after which the connection goes on.
pub(super) fn is_bad_header(bed: &Bed, link: &mut Link, message: &[u32]) -> Tested {
    bed.refused(link, message, error::HEADER)?;
    bed.goes_on(link, Version::Two)
}

fn bad_direction(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    for bad in [2, u32::MAX] {
        let xid = bed.xid();
        let rest = [&[bad, 0, 0, 0], &bed.null(xid)[..]].concat();
        is_bad_header(bed, &mut link, &message(xid, procedure::MSG, &rest))?;
    }
    Ok(())
}

fn nomsg_without_chunks(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    let rest = [direction::CALL, 0, 0, 0];
    let message = message(bed.xid(), procedure::NOMSG, &rest);
    is_bad_header(bed, &mut link, &message)
}

fn bad_lists(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    for lists in [
        &[2, 0, 0][..],
        &[0, 2, 0],
        &[0, 0, 2],
        &[0, 1, 1 << 28, 0],
        &[0, 0, 1, u32::MAX],
        &[1, 3, 8, 8, 0, 0, 0, 0, 0],
    ] {
        let xid = bed.xid();
        let rest = [&[direction::CALL], lists, &bed.null(xid)].concat();
        is_bad_header(bed, &mut link, &message(xid, procedure::MSG, &rest))?;
    }
    Ok(())
}

fn unknown_procedure(bed: &Bed) -> Tested {
    for proc in [6, 77, u32::MAX] {
        let mut link = bed.two()?;
        let xid = bed.xid();
        let rest = [&[direction::CALL, 0, 0, 0], &bed.null(xid)[..]].concat();
        let answer = bed.ask(&mut link, &message(xid, proc, &rest))?;
        // The text has RDMA2_ERR_BAD_HEADER for it. An unknown header type can also be one of another draft, which has
        // the same version number: that is what RDMA2_ERR_VERS is for.
        ensure(
            matches!(answer.message.error(), Some(error::HEADER | error::VERS)),
            || format!("it is answered with {}", answer.message),
        )?;
    }
    Ok(())
}

fn form_of_an_error(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    let xid = bed.xid();
    let bad = message(xid, procedure::NOMSG, &[direction::CALL, 0, 0, 0]);
    let answer = bed.ask(&mut link, &bad)?.message;
    answer.is_error(error::HEADER)?;
    ensure(answer.version == 2, || {
        format!("rdma_vers is {}", answer.version)
    })?;
    ensure(answer.len == 20, || {
        format!("it has {} octets, and not 20", answer.len)
    })
}

fn errors(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    for body in [
        &[error::HEADER, 0, 0][..],
        &[error::INVAL_OPTION, 0, 0],
        &[77, 0, 0],
    ] {
        let message = message(bed.xid(), procedure::ERROR, body);
        bed.discarded_on(&mut link, Version::Two, &words(&message))?;
    }
    Ok(())
}

fn long_call(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    let xid = bed.xid();
    let source = link.source(&words(&bed.null(xid)))?;
    let rest = [&[direction::CALL], &read_list(&[(0, source)])[..]].concat();
    let answer = bed.ask(&mut link, &message(xid, procedure::NOMSG, &rest))?;
    answer.accepted(xid)?;
    ensure(answer.message.chunks()?.reads.is_empty(), || {
        "the reply has a Read list".to_owned()
    })
}

fn unused_chunk(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    let xid = bed.xid();
    let sink = link.sink(1024)?;
    let lists = super::write_chunks::write_list(&[vec![sink]]);
    let rest = [&[direction::CALL], &lists[..], &bed.null(xid)].concat();
    let answer = bed.ask(&mut link, &message(xid, procedure::MSG, &rest))?;
    answer.accepted(xid)?;
    let writes = &answer.message.chunks()?.writes;
    match writes.as_slice() {
        [chunk] => {
            super::write_chunks::same_segments(&[sink], chunk)?;
            let length = crate::message::chunk_len(chunk);
            ensure(length == 0, || {
                format!("it comes back with {length} octets")
            })
        }
        _ => fail(format!("{} Write chunks come back of 1", writes.len())),
    }
}

fn data_in_chunks(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.two()?;
    round_trip(bed, &mut link, Version::Two)
}

fn default_threshold_of_replies(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.two_saying(&[])?;
    for count in [3000, 4096, 6000] {
        let (_, length) = read_with_reply_chunk(bed, &mut link, Version::Two, count)?;
        ensure(length <= 4096, || format!("a message of {length} octets"))?;
    }
    Ok(())
}

fn contradictory_direction(bed: &Bed) -> Tested {
    let xid = bed.xid();
    let call = bed.null(xid);
    let reply = crate::rpc::accepted(xid, 0, &[]);
    for (says, stream) in [(direction::REPLY, call), (direction::CALL, reply)] {
        let mut link = bed.two()?;
        let rest = [&[says, 0, 0, 0], &stream[..]].concat();
        bed.send(&mut link, &message(xid, procedure::MSG, &rest))?;
        bed.settles(&mut link);
    }
    Ok(())
}

fn change_of_version(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    bed.send(&mut link, &bed.null_message(bed.xid()))?;
    bed.settles(&mut link);
    Ok(())
}

fn stray_reply(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    let xid = bed.xid();
    let reply = [
        &[direction::REPLY, 0, 0, 0],
        &crate::rpc::accepted(xid, 0, &[])[..],
    ]
    .concat();
    let message = message(xid, procedure::MSG, &reply);
    bed.discarded_on(&mut link, Version::Two, &words(&message))
}

fn both_versions(bed: &Bed) -> Tested {
    let (mut one, mut two) = (bed.connect()?, bed.two()?);
    for _ in 0..8 {
        for version in Version::BOTH {
            match version {
                Version::One => bed.goes_on(&mut one, version)?,
                Version::Two => bed.goes_on(&mut two, version)?,
            }
        }
    }
    Ok(())
}
