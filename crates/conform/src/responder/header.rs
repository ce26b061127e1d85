//! Headers that are wrong (RFC 8166 §4.5, §4.6).

use crate::bed::Bed;
use crate::case::Case;
use crate::header::{Version, error, procedure};
use crate::link::{Heard, Link};
use crate::message::{Body, Message};
use crate::verdict::Level::{Must, Robustness, Should};
use crate::verdict::{Tested, ensure, fail, skip};
use crate::{rpc, words};
use fastrand::Rng;

/// RDMA_MSGP and RDMA_DONE, which are not to be used (RFC 8166 §4.6).
const MSGP: u32 = 2;
const DONE: u32 = 3;

/// A procedure that nobody has.
const NO_PROCEDURE: u32 = 77;

/// Versions that nobody has.
const NO_VERSIONS: [u32; 3] = [0, 77, u32::MAX];

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "HDR-01",
        Must,
        "RFC 8166 §4.5",
        "messages of less than 28 octets are silently discarded",
        too_short,
    ),
    Case::responder(
        "HDR-02",
        Must,
        "RFC 8166 §4.5.1",
        "a version that is not supported draws RDMA_ERROR with ERR_VERS",
        unknown_version,
    ),
    Case::responder(
        "HDR-03",
        Must,
        "RFC 8166 §4.5",
        "rdma_xid of ERR_VERS is that of the failing request",
        version_error_has_the_xid,
    ),
    Case::responder(
        "HDR-04",
        Must,
        "RFC 8166 §4.5",
        "rdma_vers of ERR_VERS is that of the failing request",
        version_error_has_the_version,
    ),
    Case::responder(
        "HDR-05",
        Must,
        "RFC 8166 §4.5.1",
        "ERR_VERS has the lowest and the highest version, between which is version 1",
        version_error_has_a_range,
    ),
    Case::responder(
        "HDR-06",
        Must,
        "RFC 8166 §4.5.2",
        "an invalid rdma_proc draws ERR_CHUNK",
        unknown_procedure,
    ),
    Case::responder(
        "HDR-07",
        Should,
        "RFC 8166 §4.6.1",
        "RDMA_MSGP draws ERR_CHUNK",
        msgp,
    ),
    Case::responder(
        "HDR-08",
        Must,
        "RFC 8166 §4.6.2",
        "RDMA_DONE is silently discarded",
        done,
    ),
    Case::responder(
        "HDR-09",
        Must,
        "RFC 8166 §4.2.4",
        "RDMA_ERROR is silently discarded",
        errors,
    ),
    Case::responder(
        "HDR-10",
        Must,
        "RFC 8166 §4.5",
        "RDMA_ERROR that cannot be decoded is silently discarded",
        unknown_errors,
    ),
    Case::responder(
        "HDR-11",
        Must,
        "RFC 8166 §4.5.2",
        "RDMA_NOMSG without any chunk draws ERR_CHUNK",
        nomsg_without_chunks,
    ),
    Case::responder(
        "HDR-12",
        Must,
        "RFC 8166 §4.5.2, §4.2.1",
        "a call whose XID is not rdma_xid draws ERR_CHUNK, or is answered by rdma_xid alone",
        other_xid,
    ),
    Case::responder(
        "HDR-13",
        Must,
        "RFC 8166 §4.5.2, §4.2.1",
        "the same for a call in a Position Zero Read chunk",
        other_xid_in_a_chunk,
    ),
    Case::responder(
        "HDR-14",
        Robustness,
        "RFC 8166 §4.5.2, RFC 4506 §4.4, §4.19",
        "a mark of the Read list that is neither 0 nor 1 draws ERR_CHUNK, or is taken for one of these",
        |bed| bad_mark(bed, [2, 0, 0]),
    ),
    Case::responder(
        "HDR-15",
        Robustness,
        "RFC 8166 §4.5.2, RFC 4506 §4.4, §4.19",
        "a mark of the Write list that is neither 0 nor 1 draws ERR_CHUNK, or is taken for one of these",
        |bed| bad_mark(bed, [0, 2, 0]),
    ),
    Case::responder(
        "HDR-16",
        Robustness,
        "RFC 8166 §4.5.2, RFC 4506 §4.4, §4.19",
        "a mark of the Reply chunk that is neither 0 nor 1 draws ERR_CHUNK, or is taken for one of these",
        |bed| bad_mark(bed, [0, 0, 2]),
    ),
    Case::responder(
        "HDR-17",
        Must,
        "RFC 8166 §4.5.2",
        "a Read list that ends in the middle of a segment draws ERR_CHUNK",
        |bed| cut_off(bed, &[1, 44, 7]),
    ),
    Case::responder(
        "HDR-18",
        Must,
        "RFC 8166 §4.5.2",
        "a Write chunk with fewer segments than its count draws ERR_CHUNK",
        |bed| cut_off(bed, &[0, 1, 3, 7, 4, 0, 0]),
    ),
    Case::responder(
        "HDR-19",
        Must,
        "RFC 8166 §4.5.2",
        "a header that ends before the Reply chunk's count draws ERR_CHUNK",
        |bed| cut_off(bed, &[0, 0, 1]),
    ),
    Case::responder(
        "HDR-20",
        Must,
        "RFC 8166 §4.5.2",
        "segment counts that overflow 32 bits of octets draw ERR_CHUNK",
        overflowing_counts,
    ),
    Case::responder(
        "HDR-21",
        Must,
        "RFC 8166 §4.5.2",
        "a Read list that goes on to the end of the message draws ERR_CHUNK",
        endless_list,
    ),
    Case::responder(
        "HDR-22",
        Must,
        "RFC 8166 §4.5, §4.1.2",
        "ERR_CHUNK has rdma_xid and rdma_vers of the request, and nothing behind rdma_err",
        form_of_an_error,
    ),
    Case::responder(
        "HDR-23",
        Robustness,
        "RFC 8166 §4.5",
        "calls behind one that drew an RDMA_ERROR are answered on the same connection",
        goes_on_after_an_error,
    ),
    Case::responder(
        "HDR-24",
        Robustness,
        "RFC 8166 §4.5.2",
        "RDMA_MSG without an RPC message harms nobody",
        no_rpc_message,
    ),
    Case::responder(
        "HDR-25",
        Robustness,
        "RFC 8166 §4.5",
        "headers that are broken at random harm nobody",
        random,
    ),
];

fn too_short(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let whole = words(&Bed::message(procedure::MSG, xid, &[0, 0, 0], &[]));
    for len in [4, 12, 15, 16, 20, 27] {
        bed.discarded_on(&mut link, Version::One, &whole[..len])?;
    }
    // The version of a message that short is not looked at either.
    let other = words(&[xid, 77, 32, procedure::MSG, 0, 0]);
    bed.discarded_on(&mut link, Version::One, &other)
}

/// The answer to a call of a version that nobody has, which must be ERR_VERS.
fn version_error(bed: &Bed, version: u32, xid: u32) -> Tested<crate::message::Message> {
    let mut link = bed.connect()?;
    let mut call = bed.null_message(xid);
    call[1] = version;
    bed.send(&mut link, &call)?;
    let (bytes, _) = link.message()?;
    let message = crate::bed::parse(&bytes)?;
    message.is_error(error::VERS)?;
    link.close();
    Ok(message)
}

fn unknown_version(bed: &Bed) -> Tested {
    for version in NO_VERSIONS {
        version_error(bed, version, bed.xid())?;
    }
    Ok(())
}

fn version_error_has_the_xid(bed: &Bed) -> Tested {
    for xid in [bed.xid(), 0, u32::MAX] {
        let message = version_error(bed, 77, xid)?;
        ensure(message.xid == xid, || {
            format!("rdma_xid is {:#x}, and not {xid:#x}", message.xid)
        })?;
    }
    Ok(())
}

fn version_error_has_the_version(bed: &Bed) -> Tested {
    for version in NO_VERSIONS {
        let message = version_error(bed, version, bed.xid())?;
        ensure(message.version == version, || {
            format!("rdma_vers is {}, and not {version}", message.version)
        })?;
    }
    Ok(())
}

fn version_error_has_a_range(bed: &Bed) -> Tested {
    let message = version_error(bed, 77, bed.xid())?;
    let Body::Error { rest, .. } = &message.body else {
        return fail("it was an error a moment ago");
    };
    let [low, high] = rest[..] else {
        return fail(format!(
            "{} words are behind rdma_err, and not 2",
            rest.len()
        ));
    };
    ensure(low <= 1 && (1..77).contains(&high), || {
        format!("versions {low} to {high} cannot be right: version 1 is spoken, and 77 is not")
    })
}

fn unknown_procedure(bed: &Bed) -> Tested {
    for proc in [6, NO_PROCEDURE, u32::MAX] {
        let xid = bed.xid();
        bed.refused_with_err_chunk(&Bed::message(proc, xid, &[0, 0, 0], &bed.null(xid)))?;
    }
    Ok(())
}

fn msgp(bed: &Bed) -> Tested {
    let xid = bed.xid();
    // Alignment and threshold stand before the lists (RFC 5666 §4).
    let lists = [16, 1024, 0, 0, 0];
    bed.refused_with_err_chunk(&Bed::message(MSGP, xid, &lists, &bed.null(xid)))
}

fn done(bed: &Bed) -> Tested {
    let message = Bed::message(DONE, bed.xid(), &[0, 0, 0], &[]);
    bed.discarded(Version::One, &words(&message))
}

fn errors(bed: &Bed) -> Tested {
    // As long as a header without chunks, so that it is not discarded for its length.
    for body in [[error::VERS, 1, 1], [error::HEADER, 0, 0]] {
        let message = Bed::message(procedure::ERROR, bed.xid(), &body, &[]);
        bed.discarded(Version::One, &words(&message))?;
    }
    Ok(())
}

fn unknown_errors(bed: &Bed) -> Tested {
    for body in [[99, 0, 0], [0, 0, 0], [u32::MAX, 1, 1]] {
        let message = Bed::message(procedure::ERROR, bed.xid(), &body, &[]);
        bed.discarded(Version::One, &words(&message))?;
    }
    Ok(())
}

fn nomsg_without_chunks(bed: &Bed) -> Tested {
    let message = Bed::message(procedure::NOMSG, bed.xid(), &[0, 0, 0], &[]);
    bed.refused_with_err_chunk(&message)
}

/// RFC 8166 §4.5.2 names this as an error, and §4.2.1 lets a receiver look at rdma_xid alone: either will do.
fn answered_by_header(bed: &Bed, link: &mut crate::link::Link, xid: u32) -> Tested {
    is_err_chunk_or_reply(&bed.answer(link, xid)?.message)
}

fn is_err_chunk_or_reply(message: &Message) -> Tested {
    match message.error() {
        Some(error::HEADER) => Ok(()),
        Some(other) => fail(format!("RDMA_ERROR with {other} is no answer to this")),
        None => message.chunks().map(drop),
    }
}

fn other_xid(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let other = bed.null(bed.xid());
    bed.send(
        &mut link,
        &Bed::message(procedure::MSG, xid, &[0, 0, 0], &other),
    )?;
    answered_by_header(bed, &mut link, xid)
}

fn other_xid_in_a_chunk(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let source = link.source(&words(&bed.null(bed.xid())))?;
    let [handle, length, high, low] = source.words();
    let lists = [1, 0, handle, length, high, low, 0, 0, 0];
    bed.send(&mut link, &Bed::message(procedure::NOMSG, xid, &lists, &[]))?;
    answered_by_header(bed, &mut link, xid)
}

/// It is an error to encode such a mark (RFC 4506 §4.3, §4.4), and no text has a decoder look for it. One that does meets
/// an XDR parsing error, which draws ERR_CHUNK; one that does not finds a list or none, and chunks of nobody's memory in it.
fn bad_mark(bed: &Bed, lists: [u32; 3]) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let message = Bed::message(procedure::MSG, xid, &lists, &bed.null(xid));
    bed.send(&mut link, &message)?;
    match link.hear() {
        Heard::End(_) => Ok(()),
        Heard::Silence => fail(format!("no answer within {:?}", bed.patience)),
        Heard::Message { bytes, .. } => {
            let answer = crate::bed::parse(&bytes)?;
            ensure(answer.xid == xid, || {
                format!("rdma_xid is {:#x}", answer.xid)
            })?;
            is_err_chunk_or_reply(&answer)
        }
    }
}

fn cut_off(bed: &Bed, lists: &[u32]) -> Tested {
    bed.refused_with_err_chunk(&Bed::message(procedure::MSG, bed.xid(), lists, &[]))
}

fn overflowing_counts(bed: &Bed) -> Tested {
    for count in [1 << 28, (1 << 28) - 1, u32::MAX] {
        let xid = bed.xid();
        let lists = [0, 1, count, 7, 4, 0, 0, 0, 0];
        bed.refused_with_err_chunk(&Bed::message(procedure::MSG, xid, &lists, &bed.null(xid)))?;
        let xid = bed.xid();
        let lists = [0, 0, 1, count, 7, 4, 0, 0];
        bed.refused_with_err_chunk(&Bed::message(procedure::MSG, xid, &lists, &bed.null(xid)))?;
    }
    Ok(())
}

fn endless_list(bed: &Bed) -> Tested {
    let endless = [1, 44, 7, 4, 0, 0].repeat(40);
    bed.refused_with_err_chunk(&Bed::message(procedure::MSG, bed.xid(), &endless, &[]))
}

/// The ERR_CHUNK that a message draws whose procedure there is not. Whether it must is for other cases to say.
pub(super) fn err_chunk(bed: &Bed, link: &mut Link) -> Tested<Message> {
    let xid = bed.xid();
    bed.send(link, &Bed::message(NO_PROCEDURE, xid, &[0, 0, 0], &[]))?;
    let Heard::Message { bytes, .. } = link.hear() else {
        return skip("no RDMA_ERROR comes for a procedure that there is not");
    };
    let answer = crate::bed::parse(&bytes)?;
    if answer.error() != Some(error::HEADER) {
        return skip("no RDMA_ERROR comes for a procedure that there is not");
    }
    ensure(answer.xid == xid, || {
        format!("rdma_xid is {:#x}", answer.xid)
    })?;
    Ok(answer)
}

fn form_of_an_error(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let answer = err_chunk(bed, &mut link)?;
    ensure(answer.version == 1, || {
        format!("rdma_vers is {}", answer.version)
    })?;
    ensure(answer.len == 20, || {
        format!("it has {} octets, and ERR_CHUNK has 20", answer.len)
    })
}

fn goes_on_after_an_error(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    for _ in 0..3 {
        err_chunk(bed, &mut link)?;
        bed.goes_on(&mut link, Version::One)?;
    }
    link.close();
    Ok(())
}

fn no_rpc_message(bed: &Bed) -> Tested {
    for stream in [&[][..], &[1], &[1, 0], &[1, 7, 2]] {
        let message = Bed::message(procedure::MSG, bed.xid(), &[0, 0, 0], stream);
        bed.survives(&words(&message))?;
    }
    Ok(())
}

/// Messages that are broken at random.
const RANDOM: usize = 100;

/// Seed of [`random`], so that each run sends the same.
const SEED: u64 = 0x8166;

fn random(bed: &Bed) -> Tested {
    let mut rng = Rng::with_seed(SEED);
    let mut link = bed.connect()?;
    for _ in 0..RANDOM {
        let xid = bed.xid();
        let lists = [1, 0, 7, 64, 0, 0, 0, 1, 1, 8, 64, 0, 0, 0, 0];
        let mut message = words(&match rng.u8(..3) {
            0 => bed.null_message(xid),
            1 => Bed::message(procedure::MSG, xid, &lists, &bed.null(xid)),
            _ => Bed::message(procedure::NOMSG, xid, &lists, &rpc::call(xid, 1, 1, 1)),
        });
        for _ in 0..rng.usize(1..4) {
            // Not the version, which would be all that is looked at.
            let at = rng.usize(12..message.len());
            message[at] ^= 1 << rng.u8(..8);
        }
        message.truncate(rng.usize(4..=message.len()));
        if link.closed().is_some() || link.send(&message).is_err() {
            link = bed.connect()?;
        }
        while let crate::link::Heard::Message { .. } = link.hear_within(std::time::Duration::ZERO) {
        }
    }
    bed.settles(&mut link);
    Ok(())
}
