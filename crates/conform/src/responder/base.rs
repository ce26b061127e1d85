//! A call and its reply (RFC 8166 §3.5, §4.2), and calls of the Responder (RFC 8167).

use crate::bed::{Bed, CREDITS, NFS};
use crate::case::Case;
use crate::header::{Version, procedure};
use crate::link::Heard;
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure};
use crate::{rpc, words};

const fn case(
    code: &'static str,
    level: crate::verdict::Level,
    section: &'static str,
    title: &'static str,
    test: fn(&Bed) -> Tested,
) -> Case {
    Case::responder(code, level, section, title, test)
}

pub(super) const CASES: &[Case] = &[
    case(
        "BASE-01",
        Must,
        "RFC 8166 §3.5.1, §4.2.4",
        "a call in RDMA_MSG without chunks is answered in RDMA_MSG without chunks",
        short_call,
    ),
    case(
        "BASE-02",
        Must,
        "RFC 8166 §4.2.1",
        "rdma_xid of a reply is the XID of its RPC message, whatever it is",
        xids,
    ),
    case(
        "BASE-03",
        Must,
        "RFC 8166 §4.2.2",
        "rdma_vers of a reply is 1",
        version,
    ),
    case(
        "BASE-04",
        Must,
        "RFC 8166 §4.3.1",
        "the Read list of every reply is empty",
        no_read_list,
    ),
    case(
        "BASE-05",
        Must,
        "RFC 8166 §3.3.3",
        "a message of 1024 octets is taken in",
        default_threshold,
    ),
    case(
        "BASE-06",
        Robustness,
        "RFC 8166 §3.3.1",
        "calls one after the other on a connection are all answered",
        many_calls,
    ),
    case(
        "BASE-07",
        Robustness,
        "RFC 8166 §4.2.1",
        "calls in flight are told apart by their XIDs",
        interleaved,
    ),
    case(
        "BWD-01",
        Must,
        "RFC 8167 §6",
        "no calls are made in the backward direction before the Requester is ready for them",
        no_backward_calls,
    ),
    case(
        "BWD-02",
        Robustness,
        "RFC 8167 §5.2, RFC 8166 §4.5",
        "a reply to a call that the Responder never made disturbs nothing",
        stray_reply,
    ),
    case(
        "BWD-03",
        Robustness,
        "RFC 8167 §4.1",
        "the credits of a message in the backward direction do not change those of calls",
        stray_credits,
    ),
];

fn short_call(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let answer = bed.ask(&mut link, &bed.null_message(xid))?;
    answer.accepted(xid)?;
    let lists = answer.message.chunks()?;
    ensure(lists.writes.is_empty() && lists.reply.is_none(), || {
        "the reply has chunks that no call offered".to_owned()
    })?;
    link.close();
    Ok(())
}

fn xids(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    for xid in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let answer = bed.ask(&mut link, &bed.null_message(xid))?;
        answer.accepted(xid)?;
    }
    link.close();
    Ok(())
}

fn version(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let answer = bed.ask(&mut link, &bed.null_message(xid))?;
    ensure(answer.message.version == 1, || {
        format!("rdma_vers is {}", answer.message.version)
    })
}

fn no_read_list(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let xid = bed.xid();
    let call = words(&bed.null(xid));
    let source = link.source(&call)?;
    let [handle, length, high, low] = source.words();
    let lists = [1, 0, handle, length, high, low, 0, 0, 0];
    for message in [
        bed.null_message(xid),
        Bed::message(procedure::NOMSG, xid, &lists, &[]),
    ] {
        let answer = bed.ask(&mut link, &message)?;
        ensure(answer.message.chunks()?.reads.is_empty(), || {
            "a reply has a Read list".to_owned()
        })?;
    }
    Ok(())
}

/// A NULL call whose message is as long as this. What is behind a call is nothing that a transport looks at, so that any
/// RPC reply will do.
pub(super) fn padded_null(bed: &Bed, version: Version, xid: u32, octets: usize) -> Vec<u32> {
    let mut call = version.call(&bed.null_message(xid));
    call.resize(octets / 4, 0);
    call
}

fn default_threshold(bed: &Bed) -> Tested {
    let mut link = bed.connect_saying(&[])?;
    let xid = bed.xid();
    let call = padded_null(bed, Version::One, xid, 1024);
    let answer = bed.ask(&mut link, &call)?;
    answer.accepted(xid)?;
    Ok(())
}

fn many_calls(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    for _ in 0..200 {
        bed.goes_on(&mut link, Version::One)?;
    }
    link.close();
    Ok(())
}

fn interleaved(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    let first = bed.xid();
    let granted = bed
        .ask(&mut link, &bed.null_message(first))?
        .message
        .credits;
    let count = granted.min(CREDITS) / 2;
    let mut open: Vec<u32> = Vec::new();
    for _ in 0..count {
        // A program that there is, and one that there is not, so that the replies differ.
        let (known, unknown) = (bed.xid(), bed.xid());
        bed.send(&mut link, &bed.null_message(known))?;
        let call = rpc::call(unknown, NFS + 999_999, 1, 0);
        bed.send(&mut link, &rpc::msg(unknown, CREDITS, &call))?;
        open.extend([known, unknown]);
    }
    while !open.is_empty() {
        let (bytes, _) = link.message()?;
        let message = crate::bed::parse(&bytes)?;
        let at = open.iter().position(|xid| *xid == message.xid);
        match at {
            Some(at) => open.swap_remove(at),
            None => {
                return crate::verdict::fail(format!("{:#x} is answered twice", message.xid));
            }
        };
        crate::bed::accepted(&message.payload, message.xid)?;
    }
    link.close();
    Ok(())
}

fn no_backward_calls(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    bed.goes_on(&mut link, Version::One)?;
    bed.stays_silent(&mut link)?;
    link.close();
    Ok(())
}

fn stray_reply(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    bed.goes_on(&mut link, Version::One)?;
    let xid = bed.xid();
    bed.send(&mut link, &rpc::msg(xid, 1, &rpc::accepted(xid, 0, &[])))?;
    // A Responder without calls of its own may end the connection (RFC 8167 §6).
    match link.hear_within(bed.patience / 8) {
        Heard::Silence => bed.goes_on(&mut link, Version::One),
        Heard::Message { .. } | Heard::End(_) => Ok(()),
    }
}

fn stray_credits(bed: &Bed) -> Tested {
    let mut link = bed.connect()?;
    bed.goes_on(&mut link, Version::One)?;
    let xid = bed.xid();
    // A grant of nothing, for calls in the backward direction.
    bed.send(&mut link, &rpc::msg(xid, 0, &rpc::accepted(xid, 0, &[])))?;
    if let Heard::End(_) = link.hear_within(bed.patience / 8) {
        return Ok(());
    }
    let xid = bed.xid();
    let answer = bed.ask(&mut link, &bed.null_message(xid))?;
    ensure(answer.message.credits > 0, || {
        "no credits are left".to_owned()
    })
}
