//! Credits (RFC 8166 §3.3.1).

use crate::bed::{Bed, parse};
use crate::case::Case;
use crate::header::Version;
use crate::responder::header::err_chunk;
use crate::rpc;
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure, fail};

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "CRED-01",
        Must,
        "RFC 8166 §3.3.1",
        "the granted value is not zero",
        granted,
    ),
    Case::responder(
        "CRED-02",
        Must,
        "RFC 8166 §3.3.1",
        "the granted value is not zero when none are asked for",
        none_asked_for,
    ),
    Case::responder(
        "CRED-03",
        Must,
        "RFC 8166 §3.3.1",
        "the granted value is not zero when 2^32-1 are asked for",
        all_asked_for,
    ),
    Case::responder(
        "CRED-04",
        Must,
        "RFC 8166 §3.3.1",
        "the granted value of an RDMA_ERROR is not zero",
        granted_with_an_error,
    ),
    Case::responder(
        "CRED-05",
        Must,
        "RFC 8166 §3.3.1",
        "as many calls as are granted are taken in at a time and answered",
        as_many_as_granted,
    ),
    Case::responder(
        "CRED-06",
        Robustness,
        "RFC 8166 §3.3.1",
        "a request that changes from call to call is followed, and calls are answered",
        changing_request,
    ),
    Case::responder(
        "CRED-07",
        Robustness,
        "RFC 8166 §3.3.1, §8.1.4",
        "many more calls than are granted end their connection at most",
        far_more_than_granted,
    ),
];

/// The grant in the reply to a call that asks for so many.
fn grant(bed: &Bed, asked: u32) -> Tested<u32> {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let answer = bed.ask(&mut link, &rpc::msg(xid, asked, &bed.null(xid)))?;
    answer.accepted(xid)?;
    link.close();
    Ok(answer.message.credits)
}

fn is_positive(granted: u32) -> Tested {
    ensure(granted > 0, || "no credit is granted".to_owned())
}

fn granted(bed: &Bed) -> Tested {
    for asked in [1, 32] {
        is_positive(grant(bed, asked)?)?;
    }
    Ok(())
}

fn none_asked_for(bed: &Bed) -> Tested {
    is_positive(grant(bed, 0)?)
}

fn all_asked_for(bed: &Bed) -> Tested {
    is_positive(grant(bed, u32::MAX)?)
}

fn granted_with_an_error(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let answer = err_chunk(bed, &mut link)?;
    is_positive(answer.credits)
}

/// Most calls that are in flight at a time: a link has Receives for as many replies.
const MOST: u32 = 128;

fn as_many_as_granted(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let first = bed.ask(&mut link, &rpc::msg(xid, MOST, &bed.null(xid)))?;
    let mut granted = first.message.credits;
    // A grant may grow as it is used.
    for _ in 0..3 {
        let count = granted.min(MOST);
        let mut open = Vec::new();
        for _ in 0..count {
            let xid = bed.xid();
            bed.send(&mut link, &rpc::msg(xid, MOST, &bed.null(xid)))?;
            open.push(xid);
        }
        while !open.is_empty() {
            let (bytes, _) = link.message()?;
            let message = parse(&bytes)?;
            match open.iter().position(|xid| *xid == message.xid) {
                Some(at) => open.swap_remove(at),
                None => return fail(format!("{:#x} is answered twice", message.xid)),
            };
            granted = message.credits;
            is_positive(granted)?;
        }
    }
    link.close();
    Ok(())
}

fn changing_request(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    for asked in [1, 128, 1, 0, 64, u32::MAX, 2] {
        let xid = bed.xid();
        let answer = bed.ask(&mut link, &rpc::msg(xid, asked, &bed.null(xid)))?;
        answer.accepted(xid)?;
        is_positive(answer.message.credits)?;
    }
    bed.goes_on(&mut link, Version::One)
}

fn far_more_than_granted(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    bed.goes_on(&mut link, Version::One)?;
    for _ in 0..600 {
        let xid = bed.xid();
        // The connection may have ended meanwhile.
        if link.closed().is_some() || bed.send(&mut link, &bed.null_message(xid)).is_err() {
            break;
        }
    }
    bed.settles(&mut link);
    Ok(())
}
