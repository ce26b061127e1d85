//! Version two: operations for characteristics (draft-dnoveck-nfsv4-rpcrdma-xcharext-02).

use super::nfs::read_with_reply_chunk;
use super::read_chunks::read_list;
use super::two::message;
use crate::bed::Bed;
use crate::case::Case;
use crate::header::characteristic::{BRS, RBSIZ, REQREMINV};
use crate::header::operation::{INITXCH, REQXCH, RESPXCH, UPDXCH};
use crate::header::{
    Version, direction, error, initial, optional, procedure, specification, update,
};
use crate::link::Link;
use crate::message::Body;
use crate::verdict::Level::{Must, Robustness, Should};
use crate::verdict::{Tested, ensure, fail};
use crate::{as_words, words};

/// A characteristic that nobody knows.
const UNKNOWN: u32 = 0x7fff_fff0;

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "XCH-01",
        Must,
        "cel-01 §3.1, xcharext §4",
        "an operation that is not known draws RDMA2_ERR_INVAL_OPTION with its XID",
        unknown_operation,
    ),
    Case::responder(
        "XCH-02",
        Must,
        "xcharext §4, §4.1",
        "ROPT_INITXCH is taken in, or draws RDMA2_ERR_INVAL_OPTION",
        initial_is_taken_in,
    ),
    Case::responder(
        "XCH-03",
        Must,
        "xcharext §2.1, §4.1",
        "characteristics that are not known are ignored without an error",
        unknown_characteristics,
    ),
    Case::responder(
        "XCH-04",
        Must,
        "xcharext §2.1",
        "a value that extends beyond the message is an XDR error",
        value_beyond_the_message,
    ),
    Case::responder(
        "XCH-05",
        Must,
        "xcharext §2.1",
        "a value that is too short for its type is an XDR error",
        value_too_short,
    ),
    Case::responder(
        "XCH-06",
        Must,
        "xcharext §2.1, §3.2",
        "a Requester Remote Invalidation that is no bool is an XDR error",
        no_bool,
    ),
    Case::responder(
        "XCH-07",
        Must,
        "xcharext §2.1, §3.3",
        "a Backward Request Support that there is not is an XDR error",
        no_support,
    ),
    Case::responder(
        "XCH-08",
        Must,
        "cel-01 §4.2.3, RFC 8166 §4.5.2",
        "an rdma_optinfo that is longer than the message is an XDR error",
        info_too_long,
    ),
    Case::responder(
        "XCH-09",
        Must,
        "xcharext §4.3",
        "ROPT_REQXCH is answered by ROPT_RESPXCH with its XID",
        request_is_answered,
    ),
    Case::responder(
        "XCH-10",
        Should,
        "xcharext §4.3",
        "done, rejected and pending do not overlap, and cover all that was asked for",
        sets_of_an_answer,
    ),
    Case::responder(
        "XCH-11",
        Must,
        "xcharext §4.3",
        "a request for a characteristic that is not known is rejected, and no error",
        unknown_request,
    ),
    Case::responder(
        "XCH-12",
        Must,
        "xcharext §3.1, §4.4",
        "no reply is longer than the Receive Buffer Size that ROPT_INITXCH has announced",
        announced_size,
    ),
    Case::responder(
        "XCH-13",
        Must,
        "xcharext §3.1, §4.4",
        "no reply is longer than the Receive Buffer Size that ROPT_UPDXCH has announced",
        updated_size,
    ),
    Case::responder(
        "XCH-14",
        Must,
        "xcharext §3.2",
        "nothing is invalidated for a Requester whose Requester Remote Invalidation is false",
        no_invalidation,
    ),
    Case::responder(
        "XCH-15",
        Must,
        "xcharext §3.2",
        "the handle that is invalidated is one of the call",
        invalidation,
    ),
    Case::responder(
        "XCH-16",
        Must,
        "xcharext §2.1, §4.4",
        "a ROPT_UPDXCH that is no XDR draws RDMA2_ERR_BAD_HEADER",
        malformed_update,
    ),
    Case::responder(
        "XCH-17",
        Robustness,
        "xcharext §4.3",
        "a ROPT_RESPXCH to a request that was never made disturbs nothing",
        stray_response,
    ),
    Case::responder(
        "XCH-18",
        Robustness,
        "xcharext §4.1",
        "a second ROPT_INITXCH harms nobody",
        repeated_initial,
    ),
];

fn call(xid: u32, operation: u32, info: &[u32]) -> Vec<u32> {
    optional(xid, direction::CALL, operation, info)
}

fn unknown_operation(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    for operation in [77, u32::MAX] {
        for info in [&[][..], &[1, 2, 3]] {
            let message = call(bed.xid(), operation, info);
            bed.refused(&mut link, &message, error::INVAL_OPTION)?;
            bed.goes_on(&mut link, Version::Two)?;
        }
    }
    Ok(())
}

/// Sends an operation that needs no answer. It may be refused as a whole; what it draws otherwise has to be an operation.
fn say(bed: &Bed, link: &mut Link, operation: u32, info: &[u32]) -> Tested {
    let (xid, after) = (bed.xid(), bed.xid());
    bed.send(link, &call(xid, operation, info))?;
    bed.send(link, &Version::Two.call(&bed.null_message(after)))?;
    // An answer may come before that to the call, or behind it.
    loop {
        let (bytes, _) = link.message()?;
        let answer = crate::bed::parse(&bytes)?;
        match &answer.body {
            Body::Optional { .. } => {}
            Body::Error { code, .. } if *code == error::INVAL_OPTION && answer.xid == xid => {}
            Body::Chunks(_) if answer.xid == after => return Ok(()),
            _ => return fail(format!("it draws {answer}")),
        }
    }
}

fn initial_is_taken_in(bed: &Bed) -> Tested {
    let mut link = bed.two()?;
    let info = initial(&[(RBSIZ, 4096), (REQREMINV, 0), (BRS, 1)], &[]);
    say(bed, &mut link, INITXCH, &info)?;
    bed.goes_on(&mut link, Version::Two)
}

fn unknown_characteristics(bed: &Bed) -> Tested {
    let mut link = bed.characteristics()?;
    let info = initial(&[(UNKNOWN, 1), (RBSIZ, 4096), (UNKNOWN + 1, 2)], &[]);
    say(bed, &mut link, INITXCH, &info)?;
    bed.goes_on(&mut link, Version::Two)
}

/// An operation that must draw RDMA2_ERR_BAD_HEADER: the one error that there is for XDR.
fn is_xdr_error(bed: &Bed, operation: u32, info: &[u32]) -> Tested {
    let mut link = bed.characteristics()?;
    bed.refused(&mut link, &call(bed.xid(), operation, info), error::HEADER)?;
    bed.goes_on(&mut link, Version::Two)
}

fn value_beyond_the_message(bed: &Bed) -> Tested {
    is_xdr_error(bed, INITXCH, &[1, RBSIZ, 4000, 4096, 0])?;
    is_xdr_error(bed, INITXCH, &[1, UNKNOWN, 4000, 4096, 0])
}

fn value_too_short(bed: &Bed) -> Tested {
    is_xdr_error(bed, INITXCH, &[1, RBSIZ, 0, 0])
}

fn no_bool(bed: &Bed) -> Tested {
    is_xdr_error(bed, INITXCH, &initial(&[(REQREMINV, 7)], &[]))
}

fn no_support(bed: &Bed) -> Tested {
    is_xdr_error(bed, INITXCH, &initial(&[(BRS, 77)], &[]))
}

fn info_too_long(bed: &Bed) -> Tested {
    let mut link = bed.characteristics()?;
    let xid = bed.xid();
    let rest = [direction::CALL, INITXCH, 4000, 0, 0];
    let message = message(xid, procedure::OPTIONAL, &rest);
    bed.refused(&mut link, &message, error::HEADER)
}

/// The sets of the answer to a request: done, rejected, pending.
fn request(bed: &Bed, link: &mut Link, values: &[(u32, u32)]) -> Tested<[Vec<u32>; 3]> {
    let xid = bed.xid();
    let answer = bed.ask(link, &call(xid, REQXCH, &specification(values)))?;
    let Body::Optional {
        direction,
        operation,
        info,
    } = &answer.message.body
    else {
        return fail(format!("it is answered by {}", answer.message));
    };
    ensure(
        (*direction, *operation) == (direction::REPLY, RESPXCH),
        || format!("it is answered by operation {operation} with direction {direction}"),
    )?;
    ensure(info.len() % 4 == 0, || {
        format!("{} octets of information", info.len())
    })?;
    let mut words = as_words(info).into_iter();
    let mut sets: [Vec<u32>; 3] = Default::default();
    for set in &mut sets {
        let Some(count) = words.next() else {
            return fail("the answer has fewer than three sets");
        };
        *set = words.by_ref().take(count as usize).collect();
        ensure(set.len() == count as usize, || {
            "a set is cut off".to_owned()
        })?;
    }
    Ok(sets)
}

fn request_is_answered(bed: &Bed) -> Tested {
    let mut link = bed.characteristics()?;
    request(bed, &mut link, &[])?;
    request(bed, &mut link, &[(RBSIZ, 4096)])?;
    Ok(())
}

/// The first word of a set.
fn bits(set: &[u32]) -> u32 {
    set.first().copied().unwrap_or_default()
}

fn sets_of_an_answer(bed: &Bed) -> Tested {
    let mut link = bed.characteristics()?;
    let values = [(RBSIZ, 4096), (UNKNOWN, 1), (BRS, 1)];
    let sets = request(bed, &mut link, &values)?;
    let [done, rejected, pending] = sets.each_ref().map(|set| bits(set));
    ensure(
        done & rejected == 0 && done & pending == 0 && rejected & pending == 0,
        || format!("sets {done:#b}, {rejected:#b} and {pending:#b} overlap"),
    )?;
    let all = done | rejected | pending;
    // Whichever end of a word bit 0 is at: the text does not say.
    ensure(all == 0b111 || all == 0b111 << 29, || {
        format!("{all:#b} is not all that was asked for")
    })
}

fn unknown_request(bed: &Bed) -> Tested {
    let mut link = bed.characteristics()?;
    let sets = request(bed, &mut link, &[(UNKNOWN, 1)])?;
    let [done, rejected, pending] = sets.each_ref().map(|set| bits(set));
    ensure(done == 0 && rejected != 0 && pending == 0, || {
        format!("done is {done:#b}, rejected {rejected:#b}, pending {pending:#b}")
    })
}

/// The longest reply to READs of several sizes.
fn longest_reply(bed: &Bed, link: &mut Link, near: usize) -> Tested<usize> {
    let mut longest = 0;
    for count in [near - 200, near, near + 1000] {
        let (_, length) = read_with_reply_chunk(bed, link, Version::Two, count)?;
        longest = longest.max(length);
    }
    Ok(longest)
}

fn announced_size(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.characteristics()?;
    say(bed, &mut link, INITXCH, &initial(&[(RBSIZ, 2048)], &[]))?;
    let longest = longest_reply(bed, &mut link, 2048)?;
    ensure(longest <= 2048, || format!("a message of {longest} octets"))
}

fn updated_size(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.characteristics()?;
    say(bed, &mut link, INITXCH, &initial(&[(RBSIZ, 4096)], &[]))?;
    say(bed, &mut link, UPDXCH, &update(1024, false))?;
    let longest = longest_reply(bed, &mut link, 1024)?;
    ensure(longest <= 1024, || format!("a message of {longest} octets"))
}

/// The handle that is invalidated with the reply to a call in a chunk, and the one that the call has.
fn invalidated(bed: &Bed, link: &mut Link) -> Tested<(Option<u32>, u32)> {
    let xid = bed.xid();
    let source = link.source(&words(&bed.null(xid)))?;
    let rest = [&[direction::CALL], &read_list(&[(0, source)])[..]].concat();
    let answer = bed.ask(link, &message(xid, procedure::NOMSG, &rest))?;
    answer.accepted(xid)?;
    Ok((answer.invalidated, source.handle))
}

fn no_invalidation(bed: &Bed) -> Tested {
    let mut link = bed.characteristics()?;
    say(bed, &mut link, INITXCH, &initial(&[(REQREMINV, 0)], &[]))?;
    let (taken, _) = invalidated(bed, &mut link)?;
    ensure(taken.is_none(), || format!("{taken:x?} is invalidated"))
}

fn invalidation(bed: &Bed) -> Tested {
    let mut link = bed.characteristics()?;
    say(bed, &mut link, INITXCH, &initial(&[(REQREMINV, 1)], &[]))?;
    for _ in 0..3 {
        let (taken, handle) = invalidated(bed, &mut link)?;
        ensure(taken.is_none_or(|taken| taken == handle), || {
            format!("{taken:x?} is invalidated, and the call has {handle:#x}")
        })?;
    }
    Ok(())
}

fn malformed_update(bed: &Bed) -> Tested {
    is_xdr_error(bed, UPDXCH, &[RBSIZ, 4, 4096, 2])?;
    is_xdr_error(bed, UPDXCH, &[RBSIZ, 4])
}

fn stray_response(bed: &Bed) -> Tested {
    let mut link = bed.characteristics()?;
    let message = optional(bed.xid(), direction::REPLY, RESPXCH, &[0, 0, 0]);
    bed.discarded_on(&mut link, Version::Two, &words(&message))
}

fn repeated_initial(bed: &Bed) -> Tested {
    let mut link = bed.characteristics()?;
    for size in [4096, 1024, 8192] {
        say(bed, &mut link, INITXCH, &initial(&[(RBSIZ, size)], &[]))?;
    }
    bed.goes_on(&mut link, Version::Two)
}
