//! Version two as draft-ietf-nfsv4-rpcrdma-version-two-07 has it: the version, credits, properties and errors.

pub(super) mod calls;
mod talk;

use crate::bed::{Bed, NFS};
use crate::case::Case;
use crate::header::{Version, initial, operation, optional};
use crate::ietf07::{Body, error, grant, htype, message, number, part, properties, property};
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure, fail};
use crate::{rpc, words};
use talk::{DEFAULT_SIZE, Talk, is_error, let_go_on, null, sizes};

/// A property that there is not.
const UNKNOWN: u32 = 0x7fff_fff0;

/// Parts of a call that are sent one after the other: more than any Responder of a sane size lets wait.
const MANY_PARTS: u32 = 600;

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "IETF-01",
        Must,
        "ietf-07 §4.3.1, §4.3.2",
        "a first message of version two is answered in version two, or draws RDMA2_ERR_VERS with its XID and a range",
        first_message,
    ),
    Case::responder(
        "IETF-02",
        Must,
        "ietf-07 §6.3.4",
        "the last properties of the Responder come in a message of at most 4096 octets, and none behind them",
        said_once,
    ),
    Case::responder(
        "IETF-03",
        Must,
        "ietf-07 §5.2",
        "each property that the Responder sends has the type of its number",
        said_by_type,
    ),
    Case::responder(
        "IETF-04",
        Must,
        "ietf-07 §4.3, §4.2.1",
        "after properties, and after each reply, there is a credit for another call",
        credits,
    ),
    Case::responder(
        "IETF-05",
        Must,
        "ietf-07 §4.2.1",
        "a credit limit is less than 2^31-1",
        credit_limit,
    ),
    Case::responder(
        "IETF-06",
        Must,
        "ietf-07 §4.2.1, §4.2.1.1",
        "credits are granted amid a call in many parts, which draw no reply",
        credits_amid_parts,
    ),
    Case::responder(
        "IETF-07",
        Must,
        "ietf-07 §4.2.1, §4.2.1.1",
        "without credits the Responder sends no reply, and goes on when it is granted some",
        waits_for_credits,
    ),
    Case::responder(
        "IETF-08",
        Must,
        "ietf-07 §6.3.2",
        "RDMA2_GRANT draws no answer, whatever its XID",
        grants_draw_nothing,
    ),
    Case::responder(
        "IETF-09",
        Must,
        "ietf-07 §6.3.2",
        "rdma_xid of an RDMA2_GRANT is zero",
        xid_of_a_grant,
    ),
    Case::responder(
        "IETF-10",
        Must,
        "ietf-07 §7.1.1, §7.1.2",
        "a call of another version draws RDMA2_ERR_VERS or RDMA2_ERR_VERS_MISMATCH",
        other_version,
    ),
    Case::responder(
        "IETF-11",
        Must,
        "ietf-07 §6.1, §7.1.3",
        "a header type that there is not draws RDMA2_ERR_INVAL_HTYPE",
        unknown_type,
    ),
    Case::responder(
        "IETF-12",
        Must,
        "ietf-07 §7.2.1",
        "lists that are no XDR draw RDMA2_ERR_BAD_XDR",
        bad_lists,
    ),
    Case::responder(
        "IETF-13",
        Must,
        "ietf-07 §7.2, §7.2.1",
        "a call whose XID is not rdma_xid draws RDMA2_ERR_BAD_XDR",
        other_xid,
    ),
    Case::responder(
        "IETF-14",
        Must,
        "ietf-07 §7, §6.3.1",
        "an error has XID and version of the message, and nothing behind rdma_err but its arguments",
        form_of_an_error,
    ),
    Case::responder(
        "IETF-15",
        Must,
        "ietf-07 §7",
        "RDMA2_ERROR with an rdma_err that there is not is silently discarded",
        unknown_errors,
    ),
    Case::responder(
        "IETF-16",
        Must,
        "ietf-07 §7",
        "a message without a whole prefix is silently discarded",
        short_messages,
    ),
    Case::responder(
        "IETF-17",
        Must,
        "ietf-07 §5.1, §6.3.4",
        "properties that are not known are ignored without an error",
        unknown_properties,
    ),
    Case::responder(
        "IETF-18",
        Must,
        "ietf-07 §5.1",
        "a property without octets stands for its default",
        empty_properties,
    ),
    Case::responder(
        "IETF-19",
        Must,
        "ietf-07 §5.1, §7.2.2",
        "a value that is too short for its property draws RDMA2_ERR_BAD_PROPVAL",
        short_property,
    ),
    Case::responder(
        "IETF-20",
        Must,
        "ietf-07 §5.1, §7.2",
        "a value that extends beyond the message draws RDMA2_ERR_BAD_PROPVAL or RDMA2_ERR_BAD_XDR",
        property_beyond_the_message,
    ),
    Case::responder(
        "IETF-21",
        Must,
        "ietf-07 §6.3.4, §7.1.4",
        "properties behind RDMA2_CONNPROP_FINAL draw RDMA2_ERR_INVAL_CONT",
        properties_again,
    ),
    Case::responder(
        "IETF-22",
        Must,
        "ietf-07 §6.3.3",
        "properties may come in several messages",
        several_messages,
    ),
    Case::responder(
        "IETF-23",
        Must,
        "ietf-07 §6.3.3, §7.1.4",
        "a call behind RDMA2_CONNPROP_MIDDLE draws RDMA2_ERR_INVAL_CONT",
        call_amid_properties,
    ),
    Case::responder(
        "IETF-24",
        Robustness,
        "ietf-07 §5.1",
        "more properties than there are harm nobody",
        many_properties,
    ),
    Case::responder(
        "IETF-25",
        Robustness,
        "ietf-07 §5.2",
        "properties of zero and of 2^32-1 harm nobody",
        odd_properties,
    ),
    Case::responder(
        "IETF-26",
        Robustness,
        "ietf-07 §4.2.1",
        "more calls than there are credits for harm nobody else",
        overrun,
    ),
    Case::responder(
        "IETF-27",
        Robustness,
        "ietf-07 §4.2.1.1",
        "a thousand RDMA2_GRANTs harm nobody",
        many_grants,
    ),
    Case::responder(
        "IETF-28",
        Robustness,
        "ietf-07 §7, §7.3",
        "errors with and without their arguments, for calls that the Responder never made, harm nobody",
        stray_errors,
    ),
    Case::responder(
        "IETF-29",
        Robustness,
        "ietf-07 §6.3.8 to §6.3.10",
        "replies to calls that the Responder never made harm nobody",
        stray_replies,
    ),
    Case::responder(
        "IETF-30",
        Robustness,
        "ietf-07 §6.1, cel-01 §4.2",
        "messages of cel-01 on a connection of ietf-07 harm nobody",
        other_draft,
    ),
];

fn first_message(bed: &Bed) -> Tested {
    let mut talk = Talk::over(bed.connect()?);
    let xid = bed.xid();
    talk.send(&message(xid, htype::CONNPROP_FINAL, &sizes(4096)))?;
    let (answer, _) = talk.next()?;
    match &answer.body {
        Body::Error { code, rest } => {
            ensure(*code == error::VERS, || format!("rdma_err is {code}"))?;
            ensure(answer.xid == xid, || {
                format!("rdma_xid is {:#010x}", answer.xid)
            })?;
            ensure(matches!(rest[..], [low, high] if low <= high), || {
                format!("the range of versions is {rest:?}")
            })
        }
        _ => ensure(answer.version == 2, || {
            format!("rdma_vers is {}", answer.version)
        }),
    }
}

fn said_once(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let len = talk.longest_said;
    ensure(len <= DEFAULT_SIZE, || format!("it has {len} octets"))?;
    // What comes behind the last is looked at as it comes.
    talk.goes_on(bed)?;
    talk.stays_silent()
}

fn said_by_type(bed: &Bed) -> Tested {
    let talk = bed.ietf07()?;
    for (which, value) in &talk.said {
        let is_number = (property::SBSIZ..=property::BRS).contains(which);
        let fits = !is_number || value.is_empty() || value.len() == 4;
        ensure(fits, || {
            format!("property {which} has {} octets", value.len())
        })?;
    }
    Ok(())
}

fn credits(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    for _ in 0..200 {
        talk.goes_on(bed)?;
    }
    Ok(())
}

fn credit_limit(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    for _ in 0..3 {
        let limit = talk.may_send();
        ensure(limit < (1 << 31) - 1, || format!("{limit} credits"))?;
        talk.goes_on(bed)?;
    }
    Ok(())
}

/// A NULL call of this program with octets behind it, in parts of four octets each.
fn long_call(bed: &Bed, talk: &mut Talk, parts: u32) -> Tested {
    let xid = bed.xid();
    let mut stream = rpc::call(xid, NFS, 3, 0);
    let fixed = u32::try_from(stream.len()).expect("a call is short");
    stream.resize(stream.len().max(parts as usize), 0);
    for (at, word) in (0..parts - 1).zip(&stream) {
        let left = parts.max(fixed) - 1 - at;
        talk.send(&part(xid, 4 * left, &[*word]))?;
    }
    let rest = &stream[parts as usize - 1..];
    let reply = talk.call(&crate::ietf07::call(xid, 0, &[0; 3], rest))?;
    reply.accepted().map(drop)
}

fn credits_amid_parts(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    long_call(bed, &mut talk, MANY_PARTS)
}

fn waits_for_credits(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    talk.goes_on(bed)?;
    talk.granting = false;
    let xid = bed.xid();
    talk.send(&null(bed, xid, 0, &[0; 3]))?;
    talk.stays_silent()?;
    let_go_on(&mut talk)?;
    talk.reply(xid, None)?.accepted().map(drop)
}

fn grants_draw_nothing(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    talk.goes_on(bed)?;
    for xid in [0, bed.xid(), u32::MAX] {
        let mut message = grant();
        message[0] = xid;
        talk.send(&message)?;
    }
    talk.stays_silent()?;
    talk.goes_on(bed)
}

fn xid_of_a_grant(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let mut wrong = None;
    let xid = bed.xid();
    // Parts draw grants, whose XIDs are seen as they come.
    for at in 0..MANY_PARTS {
        talk.send(&part(xid, 4 * (MANY_PARTS - at), &[0]))?;
        while talk.may_send() == 0 {
            let (message, _) = talk.next()?;
            if message.body == Body::Grant && message.xid != 0 {
                wrong = Some(message.xid);
            }
        }
    }
    match wrong {
        Some(xid) => fail(format!("it is {xid:#010x}")),
        None if talk.grants == 0 => crate::verdict::skip("no RDMA2_GRANT came"),
        None => Ok(()),
    }
}

fn other_version(bed: &Bed) -> Tested {
    for version in [1, 3, u32::MAX] {
        let mut talk = bed.ietf07()?;
        let mut call = bed.null_message(bed.xid());
        call[1] = version;
        let answer = talk.ask(&call)?;
        is_error(&answer, &[error::VERS, error::VERS_MISMATCH])?;
        let echoed = answer.message.version;
        ensure(echoed == version, || format!("rdma_vers is {echoed}"))?;
    }
    Ok(())
}

fn unknown_type(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    for unknown in [14, 77, u32::MAX] {
        let xid = bed.xid();
        let rest = [&[0; 4], &bed.null(xid)[..]].concat();
        talk.refused(&message(xid, unknown, &rest), &[error::INVAL_HTYPE])?;
        talk.goes_on(bed)?;
    }
    Ok(())
}

fn bad_lists(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    for lists in [
        &[2, 0, 0][..],
        &[0, 2, 0],
        &[0, 0, 2],
        &[1, 3, 8, 8, 0, 0, 0, 0, 0],
    ] {
        let xid = bed.xid();
        talk.refused(&null(bed, xid, 0, lists), &[error::BAD_XDR])?;
        talk.goes_on(bed)?;
    }
    // The message ends within its lists.
    let short = message(bed.xid(), htype::CALL_INLINE, &[0, 0, 1, 1, 8]);
    talk.refused(&short, &[error::BAD_XDR])?;
    talk.goes_on(bed)
}

fn other_xid(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let xid = bed.xid();
    let mut call = null(bed, xid, 0, &[0; 3]);
    call[8] ^= 0x0100_0000;
    talk.refused(&call, &[error::BAD_XDR])?;
    talk.goes_on(bed)
}

fn form_of_an_error(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    for (bad, expected) in [
        (null(bed, bed.xid(), 0, &[2, 0, 0]), error::BAD_XDR),
        (message(bed.xid(), 77, &[0; 5]), error::INVAL_HTYPE),
    ] {
        let answer = talk.ask(&bad)?;
        is_error(&answer, &[expected])?;
        let answer = answer.message;
        ensure(answer.version == 2, || {
            format!("rdma_vers is {}", answer.version)
        })?;
        ensure(answer.len == 20, || {
            format!("it has {} octets, and not 20", answer.len)
        })?;
    }
    Ok(())
}

fn unknown_errors(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    talk.goes_on(bed)?;
    for code in [0, 12, 99, 101, u32::MAX] {
        talk.send(&message(bed.xid(), htype::ERROR, &[code, 0, 0]))?;
    }
    talk.stays_silent()?;
    talk.goes_on(bed)
}

fn short_messages(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    talk.goes_on(bed)?;
    let whole = words(&null(bed, bed.xid(), 0, &[0; 3]));
    for len in [1, 4, 8, 12, 15] {
        talk.send_octets(&whole[..len])?;
    }
    talk.stays_silent()?;
    talk.goes_on(bed)
}

/// A connection that begins with a call, so that properties can still be sent; they draw no error.
fn before_properties(bed: &Bed) -> Tested<Talk> {
    let xid = bed.xid();
    let mut talk = bed.ietf07_first(&null(bed, xid, 0, &[0; 3]))?;
    talk.reply(xid, None)?.accepted()?;
    Ok(talk)
}

/// Properties that are taken in without an answer.
fn are_taken_in(bed: &Bed, set: &[u32]) -> Tested {
    let mut talk = bed.ietf07_saying(set)?;
    talk.stays_silent()?;
    talk.goes_on(bed)
}

fn unknown_properties(bed: &Bed) -> Tested {
    are_taken_in(
        bed,
        &properties(&[(UNKNOWN, 1), (property::RBSIZ, 4096), (0, 7), (u32::MAX, 2)]),
    )
}

fn empty_properties(bed: &Bed) -> Tested {
    let set = [2, property::RBSIZ, 0, property::SBSIZ, 0];
    are_taken_in(bed, &set)
}

fn short_property(bed: &Bed) -> Tested {
    for which in [property::SBSIZ, property::RBSIZ, property::RCSIZ] {
        let mut talk = before_properties(bed)?;
        let set = [1, which, 2, 0x1000_0000];
        let bad = message(bed.xid(), htype::CONNPROP_FINAL, &set);
        talk.refused(&bad, &[error::BAD_PROPVAL])?;
        talk.goes_on(bed)?;
    }
    Ok(())
}

fn property_beyond_the_message(bed: &Bed) -> Tested {
    for which in [property::RBSIZ, UNKNOWN] {
        let mut talk = before_properties(bed)?;
        let set = [1, which, 4000, 4096];
        let bad = message(bed.xid(), htype::CONNPROP_FINAL, &set);
        talk.refused(&bad, &[error::BAD_PROPVAL, error::BAD_XDR])?;
        talk.goes_on(bed)?;
    }
    Ok(())
}

fn properties_again(bed: &Bed) -> Tested {
    for again in [htype::CONNPROP_MIDDLE, htype::CONNPROP_FINAL] {
        let mut talk = bed.ietf07()?;
        talk.refused(
            &message(bed.xid(), again, &sizes(4096)),
            &[error::INVAL_CONT],
        )?;
        talk.goes_on(bed)?;
    }
    Ok(())
}

fn several_messages(bed: &Bed) -> Tested {
    let mut talk = before_properties(bed)?;
    for htype in [
        htype::CONNPROP_MIDDLE,
        htype::CONNPROP_MIDDLE,
        htype::CONNPROP_FINAL,
    ] {
        talk.send(&message(bed.xid(), htype, &sizes(4096)))?;
    }
    talk.stays_silent()?;
    talk.goes_on(bed)
}

fn call_amid_properties(bed: &Bed) -> Tested {
    let mut talk = before_properties(bed)?;
    talk.send(&message(bed.xid(), htype::CONNPROP_MIDDLE, &sizes(4096)))?;
    let xid = bed.xid();
    talk.refused(&null(bed, xid, 0, &[0; 3]), &[error::INVAL_CONT])?;
    Ok(())
}

fn many_properties(bed: &Bed) -> Tested {
    let xid = bed.xid();
    let many: Vec<(u32, u32)> = (0..300).map(|at| (UNKNOWN + at, at)).collect();
    let empty: Vec<u32> = std::iter::once(500)
        .chain((0..500).flat_map(|at| [UNKNOWN + at, 0]))
        .collect();
    for set in [properties(&many), empty, vec![u32::MAX]] {
        let mut talk = before_properties(bed)?;
        talk.send(&message(xid, htype::CONNPROP_FINAL, &set))?;
        talk.settles(bed);
    }
    Ok(())
}

fn odd_properties(bed: &Bed) -> Tested {
    for value in [0, 1, u32::MAX] {
        let set: Vec<(u32, u32)> = (property::SBSIZ..=property::BRS)
            .map(|which| (which, value))
            .collect();
        let mut talk = before_properties(bed)?;
        let said = message(bed.xid(), htype::CONNPROP_FINAL, &properties(&set));
        talk.send(&said)?;
        talk.send(&null(bed, bed.xid(), 0, &[0; 3]))?;
        talk.settles(bed);
    }
    Ok(())
}

fn overrun(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let calls = talk.may_send().saturating_mul(2).clamp(64, 4096);
    for _ in 0..calls {
        let call = words(&null(bed, bed.xid(), 0, &[0; 3]));
        if talk.force(&call).is_err() {
            break;
        }
    }
    talk.settles(bed);
    Ok(())
}

fn many_grants(bed: &Bed) -> Tested {
    bed.survives_ietf07(&vec![grant(); 1000])
}

fn stray_errors(bed: &Bed) -> Tested {
    let codes = (error::VERS..=error::VERS_MISMATCH).chain([error::SYSTEM]);
    let messages: Vec<Vec<u32>> = codes
        .flat_map(|code| {
            [&[code][..], &[code, 0], &[code, u32::MAX, u32::MAX]]
                .map(|rest| message(bed.xid(), htype::ERROR, rest))
        })
        .collect();
    bed.survives_ietf07(&messages)
}

fn stray_replies(bed: &Bed) -> Tested {
    let xid = bed.xid();
    let reply = rpc::accepted(xid, 0, &[]);
    let inline = [&[0], &reply[..]].concat();
    let first = [&[400], &reply[..]].concat();
    bed.survives_ietf07(&[
        message(xid, htype::REPLY_INLINE, &inline),
        message(xid, htype::REPLY_EXTERNAL, &[0, 1, 1, 8, 8, 0, 0]),
        message(xid, htype::REPLY_EXTERNAL, &[0, 0]),
        message(xid, htype::REPLY_MIDDLE, &first),
        message(xid, htype::REPLY_INLINE, &inline),
    ])
}

fn other_draft(bed: &Bed) -> Tested {
    let call = Version::Two.call(&bed.null_message(bed.xid()));
    let said = initial(&[(property::SBSIZ, 4096)], &[]);
    let said = optional(bed.xid(), 0, operation::INITXCH, &said);
    bed.survives_ietf07(std::slice::from_ref(&call))?;
    bed.survives_ietf07(std::slice::from_ref(&said))?;
    bed.survives_ietf07(&[said, call])
}

/// The Receive Buffer Size of the Responder, or its default.
fn receive_buffer(talk: &Talk) -> usize {
    let said = number(&talk.said, property::RBSIZ).map(|size| size as usize);
    said.unwrap_or(DEFAULT_SIZE)
}
