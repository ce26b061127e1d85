//! Cases that disturb the work of a Requester with wrong messages.

use super::observation::Received;
use super::player::{Player, chunk_words};
use super::stage::{IDLE, QUIET, Stage, Workload};
use crate::bed::private_data;
use crate::case::Case;
use crate::header::{error, procedure};
use crate::ietf07::{self, htype};
use crate::iwarp::ANNOUNCEMENT;
use crate::link::Heard;
use crate::message::{Message, Segment};
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure, fail, skip};
use crate::{rpc, words};
use rpcrdma_proto::PrivateData;
use std::time::Instant;

pub(super) const CASES: &[Case] = &[
    Case::requester(
        "RDIS-01",
        Must,
        "RFC 8166 §4.5",
        "messages of less than 28 octets are silently discarded",
        |stage| {
            discards(stage, |xid| {
                vec![words(&[xid, 1, 32, 0, 0, 0]), vec![0; 4], vec![7; 27]]
            })
        },
    ),
    Case::requester(
        "RDIS-02",
        Robustness,
        "RFC 8166 §4.2.1, RFC 5531 §9",
        "a reply to a call that was never made is discarded",
        |stage| {
            discards(stage, |xid| {
                let other = xid ^ 0x4000_0000;
                vec![words(&rpc::msg(other, 32, &rpc::accepted(other, 0, &[])))]
            })
        },
    ),
    Case::requester(
        "RDIS-03",
        Must,
        "RFC 8166 §4.5",
        "a reply whose header is no XDR is silently discarded",
        |stage| {
            discards(stage, |xid| {
                let stream = rpc::accepted(xid, 0, &[]);
                [[0, 2, 0], [0, 0, 2], [2, 0, 0]]
                    .map(|lists| words(&[&[xid, 1, 32, 0], &lists[..], &stream].concat()))
                    .to_vec()
            })
        },
    ),
    Case::requester(
        "RDIS-04",
        Must,
        "RFC 8166 §4.6.1",
        "RDMA_MSGP is silently discarded",
        |stage| {
            discards(stage, |xid| {
                let stream = rpc::accepted(xid, 0, &[]);
                vec![words(
                    &[&[xid, 1, 32, 2, 16, 1024, 0, 0, 0], &stream[..]].concat(),
                )]
            })
        },
    ),
    Case::requester(
        "RDIS-05",
        Must,
        "RFC 8166 §4.6.2",
        "RDMA_DONE is silently discarded",
        |stage| discards(stage, |xid| vec![words(&[xid, 1, 32, 3, 0, 0, 0])]),
    ),
    Case::requester(
        "RDIS-06",
        Must,
        "RFC 8166 §4.5",
        "an RDMA_ERROR that cannot be decoded is silently discarded",
        |stage| {
            discards(stage, |xid| {
                vec![words(&[xid, 1, 32, procedure::ERROR, 99, 0, 0])]
            })
        },
    ),
    Case::requester(
        "RDIS-07",
        Must,
        "RFC 8166 §4.5, §4.2.2",
        "a reply of a version that is not that of its call is silently discarded",
        |stage| {
            discards(stage, |xid| {
                let mut reply = rpc::msg(xid, 32, &rpc::accepted(xid, 0, &[]));
                reply[1] = 77;
                vec![words(&reply)]
            })
        },
    ),
    Case::requester(
        "RDIS-08",
        Robustness,
        "RFC 8166 §4.5.2, §4.2.1",
        "a reply with another XID than rdma_xid is discarded, or ends its call by rdma_xid alone",
        other_xid,
    ),
    Case::requester(
        "RERR-01",
        Must,
        "RFC 8166 §4.5",
        "ERR_CHUNK completes a call: it is not sent again on the connection",
        err_chunk,
    ),
    Case::requester(
        "RCRED-01",
        Must,
        "RFC 8166 §3.3.3",
        "one call is sent before the first reply",
        one_call_first,
    ),
    Case::requester(
        "RCRED-02",
        Must,
        "RFC 8166 §3.3.1",
        "with one credit, no second call is sent before a reply",
        one_credit,
    ),
    Case::requester(
        "RCRED-03",
        Robustness,
        "RFC 8166 §3.3.1",
        "a grant of zero does not keep the Requester from its work for ever",
        |stage| granting(stage, 0),
    ),
    Case::requester(
        "RCRED-04",
        Robustness,
        "RFC 8166 §3.3.1",
        "a grant of 2^32-1 harms nobody",
        |stage| granting(stage, u32::MAX),
    ),
    Case::requester(
        "RPD-02",
        Must,
        "RFC 8797 §5.1, RFC 8166 §3.3.3",
        "no message is longer than 1024 octets where the Responder has no private data",
        |stage| no_message_is_longer(stage, &[], 1024),
    ),
    Case::requester(
        "RPD-03",
        Must,
        "RFC 8797 §4.2",
        "no message is longer than 2048 octets where the Responder announces that",
        |stage| no_message_is_longer(stage, &private_data(true, 2048), 2048),
    ),
    Case::requester(
        "RPD-04",
        Must,
        "RFC 8797 §5.1, §5.2",
        "private data that is unknown, cut off or of another version is taken for none",
        |stage| no_message_is_longer(stage, &[0xf6, 0xab, 0x0e, 0x18, 9, 1, 3, 3], 1024),
    ),
    Case::requester(
        "RINV-01",
        Must,
        "RFC 8797 §4.1",
        "a reply that invalidates a handle of its call is taken in, where both ends have set R",
        invalidation,
    ),
    Case::requester(
        "RINV-02",
        Robustness,
        "RFC 5040 §5.3",
        "a reply that invalidates what is no handle ends its connection at most",
        stray_invalidation,
    ),
    Case::requester(
        "RMEM-01",
        Robustness,
        "RFC 8166 §4.4.1, §8.1.3",
        "memory for a result cannot be written when its call is answered",
        sink_after_the_reply,
    ),
    Case::requester(
        "RMEM-02",
        Robustness,
        "RFC 8166 §4.4.1, §8.1.3",
        "memory of an argument cannot be read when its call is answered",
        source_after_the_reply,
    ),
    Case::requester(
        "RMEM-03",
        Must,
        "RFC 8166 §8.1, RFC 5040 §8.1.1",
        "memory behind a handle that was not offered cannot be written",
        guessed_handle,
    ),
    Case::requester(
        "RBWD-01",
        Must,
        "RFC 8167 §5.2, §6",
        "a call in the backward direction is answered with its XID and version, or not at all",
        backward_call,
    ),
    Case::requester(
        "RBWD-02",
        Must,
        "RFC 8167 §5.3",
        "a call in the backward direction with a chunk is served, or draws ERR_CHUNK",
        backward_call_with_a_chunk,
    ),
    Case::requester(
        "RLOST-01",
        Robustness,
        "RFC 8167 §5.4, RFC 8166 §4.5.5",
        "a Requester whose connection is lost amid a call connects again",
        lost_connection,
    ),
    Case::requester(
        "RV2-01",
        Must,
        "cel-01 §5",
        "a first message of version two has at most 1024 octets",
        first_message_of_two,
    ),
    Case::requester(
        "RV2-02",
        Must,
        "cel-01 §5.2",
        "ERR_VERS for version two is followed by version one",
        fallback,
    ),
    Case::requester(
        "RV2-03",
        Must,
        "ietf-07 §4.3",
        "a first message of ietf-07 has at most 1024 octets",
        first_message_of_ietf07,
    ),
    Case::requester(
        "RV2-04",
        Must,
        "ietf-07 §4.3, §4.3.2, §7.1.1",
        "one message of ietf-07 is sent, and RDMA2_ERR_VERS for it is followed by version one",
        fallback_from_ietf07,
    ),
];

/// Messages that come before the reply to a call are discarded, one for each call, and the calls are answered.
fn discards(stage: &Stage, messages: impl Fn(u32) -> Vec<Vec<u8>>) -> Tested {
    let mut player = stage.connection()?;
    // No call comes while it is looked whether the message is discarded.
    player.grant = 1;
    let mut call = player.first_call()?;
    for variant in 0..messages(0).len() {
        let message = messages(call.message.xid).swap_remove(variant);
        player.link.send(&message)?;
        player.discards()?;
        player.answer(&call)?;
        call = match player.call_within(IDLE)? {
            Some(next) => next,
            None if variant == 0 => return stage.work_is_done(),
            None => break,
        };
    }
    player.grant = 32;
    player.answer(&call)?;
    player.goes_on()
}

/// RFC 8166 §4.2.1 lets a receiver look at rdma_xid alone: what it takes for the reply is up to it.
fn other_xid(stage: &Stage) -> Tested {
    let mut player = stage.connection()?;
    let call = player.first_call()?;
    let xid = call.message.xid;
    let reply = rpc::msg(xid, 32, &rpc::accepted(xid ^ 0x0100_0000, 0, &[]));
    player.link.send(&words(&reply))?;
    match player.link.hear_within(QUIET) {
        Heard::Silence => {
            player.answer(&call)?;
            player.goes_on()
        }
        // It was taken for the reply, which the work of the Requester may not survive.
        Heard::Message { .. } | Heard::End(_) => Ok(()),
    }
}

fn err_chunk(stage: &Stage) -> Tested {
    let mut player = stage.connection()?;
    let call = player.first_call()?;
    let xid = call.message.xid;
    player.link.send(&words(&[
        xid,
        1,
        player.grant,
        procedure::ERROR,
        error::HEADER,
    ]))?;
    while let Some(later) = player.call_within(stage.patience.min(super::stage::IDLE))? {
        ensure(later.message.xid != xid, || {
            "the call is sent again".to_owned()
        })?;
        player.answer(&later)?;
    }
    Ok(())
}

fn one_call_first(stage: &Stage) -> Tested {
    let mut player = stage.connection()?;
    let call = player.first_call()?;
    player.is_quiet()?;
    player.answer(&call)?;
    player.goes_on()
}

/// Calls after which it is looked whether another one is there.
const LOOKS: usize = 12;

fn one_credit(stage: &Stage) -> Tested {
    let mut player = stage.connection()?;
    player.grant = 1;
    let mut call = player.first_call()?;
    for _ in 0..LOOKS {
        match player.link.hear_within(QUIET / 4) {
            Heard::Silence => {}
            Heard::Message { bytes, .. } => {
                return fail(format!(
                    "a second call comes: {}",
                    crate::message::describe(&bytes)
                ));
            }
            Heard::End(why) => return fail(format!("it ends the connection: {why}")),
        }
        player.answer(&call)?;
        call = match player.call_within(super::stage::IDLE)? {
            Some(call) => call,
            None => return stage.work_is_done(),
        };
    }
    player.answer(&call)?;
    player.serve_rest()?;
    stage.work_is_done()
}

fn granting(stage: &Stage, grant: u32) -> Tested {
    let mut player = stage.connection()?;
    let call = player.first_call()?;
    player.grant = grant;
    player.answer(&call)?;
    // Only the first grant is out of range.
    player.grant = 32;
    player.serve_rest()?;
    drop(player);
    // That a connection, or the work, is given up for it is no fault. That it does not end is one.
    match stage.attend(&private_data(true, 4096), |_| ())? {
        Workload::Failed(why) if why.starts_with("it did not end") => fail(why),
        Workload::Done | Workload::Unknown | Workload::Failed(_) => Ok(()),
    }
}

fn no_message_is_longer(stage: &Stage, said: &[u8], most: usize) -> Tested {
    let mut player = stage.connection_saying(said)?;
    let first = player.first_call()?;
    player.answer(&first)?;
    let mut lengths = vec![first.bytes.len()];
    lengths.extend(player.serve_rest()?.iter().map(|call| call.bytes.len()));
    drop(player);
    let workload = stage.attend(said, |call| lengths.push(call.bytes.len()))?;
    for len in lengths {
        ensure(len <= most, || {
            format!("a message of {len} octets, where {most} are allowed")
        })?;
    }
    match workload {
        Workload::Done | Workload::Unknown => Ok(()),
        Workload::Failed(why) => fail(format!("the work of the Requester fails: {why}")),
    }
}

/// Handles that a call offers.
fn handles(call: &Received) -> Vec<Segment> {
    let Some(lists) = call.message.lists_of() else {
        return Vec::new();
    };
    let reads = lists.reads.iter().map(|(_, segment)| *segment);
    let writes = lists.writes.iter().flatten().copied();
    let reply = lists.reply.iter().flatten().copied();
    reads.chain(writes).chain(reply).collect()
}

fn invalidation(stage: &Stage) -> Tested {
    let Some((mut player, call)) = Player::at_call(stage, |call| !handles(call).is_empty())? else {
        return skip("the Requester made no call with a chunk");
    };
    let announced = PrivateData::find(&player.link.private_data);
    if !announced.is_some_and(|data| data.remote_invalidation) {
        return skip("the Requester has not set R");
    }
    player.invalidate = handles(&call).first().map(|segment| segment.handle);
    player.answer(&call)?;
    player.goes_on()
}

fn stray_invalidation(stage: &Stage) -> Tested {
    let mut player = stage.connection()?;
    let call = player.first_call()?;
    player.invalidate = Some(0x00c0_ffee);
    player.answer(&call)?;
    player.serve_rest()?;
    Ok(())
}

/// An access to memory after the reply to its call must end the connection.
fn is_refused(mut player: Player<'_>, why: &str) -> Tested {
    // Behind the access in the stream, so that it is not taken in before that is refused.
    let begun = Instant::now();
    while begun.elapsed() < player.stage.patience.min(super::stage::IDLE) {
        match player.link.hear_within(QUIET) {
            Heard::End(_) => return Ok(()),
            Heard::Silence => break,
            Heard::Message { bytes, .. } => {
                if let Ok(message) = Message::parse(&bytes) {
                    let call = Received { message, bytes };
                    player.answer(&call)?;
                }
            }
        }
    }
    match player.link.closed() {
        Some(_) => Ok(()),
        None => fail(why),
    }
}

fn sink_after_the_reply(stage: &Stage) -> Tested {
    let has_sink = |call: &Received| {
        let lists = call.message.lists_of();
        lists.is_some_and(|lists| lists.writes.iter().flatten().next().is_some())
    };
    // With one credit no call is on its way when the reply goes out.
    let Some((mut player, call)) = Player::at_call_granting(stage, 1, has_sink)? else {
        return skip("the Requester made no call with a Write chunk");
    };
    let lists = call.message.lists_of().cloned().unwrap_or_default();
    let Some(&sink) = lists.writes.iter().flatten().next() else {
        return skip("the Requester made no call with a Write chunk");
    };
    player.answer(&call)?;
    // The next call shows that the reply was delivered.
    let Some(next) = player.call_within(IDLE)? else {
        return skip("no call follows on this connection");
    };
    player.link.write(sink.part(0, 1), b"x")?;
    if player.answer(&next).is_err() {
        return Ok(());
    }
    is_refused(
        player,
        "a Write to memory of a call that was answered is not refused",
    )
}

fn source_after_the_reply(stage: &Stage) -> Tested {
    let has_source = |call: &Received| {
        let lists = call.message.lists_of();
        lists.is_some_and(|lists| !lists.reads.is_empty())
    };
    let Some((mut player, call)) = Player::at_call_granting(stage, 1, has_source)? else {
        return skip("the Requester made no call with a Read chunk");
    };
    let lists = call.message.lists_of().cloned().unwrap_or_default();
    let Some(&(_, source)) = lists.reads.first() else {
        return skip("the Requester made no call with a Read chunk");
    };
    player.answer(&call)?;
    if player.call_within(IDLE)?.is_none() {
        return skip("no call follows on this connection");
    }
    match player.link.read(&[source.part(0, source.length.min(16))])? {
        Ok(octets) => fail(format!(
            "{} octets of a call that was answered are read",
            octets.len()
        )),
        Err(_) => Ok(()),
    }
}

fn guessed_handle(stage: &Stage) -> Tested {
    let mut player = stage.connection()?;
    let call = player.first_call()?;
    let to = Segment {
        handle: 0x00c0_ffee,
        length: 1,
        offset: 0,
    };
    player.link.write(to, b"x")?;
    // The call may be lost with the connection.
    if player.answer(&call).is_err() {
        return Ok(());
    }
    is_refused(
        player,
        "a Write to a handle that was not offered is not refused",
    )
}

/// A program that no client serves: its callbacks have another number in each session.
const NO_PROGRAM: u32 = 0x2000_0bad;

/// The answer to a call in the backward direction, if there is one; calls that come before it are let wait.
fn backward(
    player: &mut Player<'_>,
    xid: u32,
    message: &[u32],
) -> Tested<(Option<Message>, Vec<Received>)> {
    player.link.send(&words(message))?;
    let mut calls = Vec::new();
    loop {
        match player.link.hear_within(QUIET) {
            Heard::Message { bytes, .. } => {
                let Ok(message) = Message::parse(&bytes) else {
                    return fail("the answer is no message");
                };
                let is_reply = message.payload.get(4..8) == Some(&[0, 0, 0, 1]);
                if message.xid == xid && (is_reply || message.error().is_some()) {
                    return Ok((Some(message), calls));
                }
                calls.push(Received { message, bytes });
            }
            Heard::Silence | Heard::End(_) => return Ok((None, calls)),
        }
    }
}

fn backward_call(stage: &Stage) -> Tested {
    let mut player = stage.connection()?;
    let call = player.first_call()?;
    let xid = 0x0bad_0001;
    let message = rpc::msg(xid, 1, &rpc::call(xid, NO_PROGRAM, 1, 0));
    let (answer, calls) = backward(&mut player, xid, &message)?;
    if player.link.closed().is_some() {
        // RFC 8167 §6: an endpoint that is not prepared for it may lose the connection.
        return Ok(());
    }
    if let Some(answer) = answer {
        ensure(answer.version == 1, || {
            format!("rdma_vers is {}", answer.version)
        })?;
        ensure(answer.credits > 0, || "no credit is granted".to_owned())?;
        if answer.error().is_none() {
            let own = answer
                .payload
                .first_chunk()
                .copied()
                .map(u32::from_be_bytes);
            ensure(own == Some(xid), || format!("the reply's XID is {own:x?}"))?;
        }
    }
    for call in [call].into_iter().chain(calls) {
        player.answer(&call)?;
    }
    player.goes_on()
}

fn backward_call_with_a_chunk(stage: &Stage) -> Tested {
    let mut player = stage.connection()?;
    let first = player.first_call()?;
    let xid = 0x0bad_0002;
    let sink = player.link.sink(256)?;
    let lists = chunk_words(&[sink]);
    let header = [&[xid, 1, 1, procedure::MSG, 0, 1], &lists[..], &[0, 0]].concat();
    let message = [header, rpc::call(xid, NO_PROGRAM, 1, 0)].concat();
    let (answer, calls) = backward(&mut player, xid, &message)?;
    if player.link.closed().is_some() {
        return Ok(());
    }
    if let Some(answer) = answer {
        let code = answer.error();
        ensure(matches!(code, None | Some(error::HEADER)), || {
            format!("it draws RDMA_ERROR with {code:?}")
        })?;
    }
    for call in [first].into_iter().chain(calls) {
        player.answer(&call)?;
    }
    player.goes_on()
}

fn lost_connection(stage: &Stage) -> Tested {
    let mut player = stage.connection()?;
    player.first_call()?;
    // Dropped: the connection is torn down at once.
    drop(player);
    let mut again = match stage.connection() {
        Ok(again) => again,
        Err(_) => return fail("the Requester does not connect again"),
    };
    again.first_call()?;
    Ok(())
}

/// The messages of version two that a Requester begins with; each draws ERR_VERS.
fn of_version_two(stage: &Stage, announcement: [u8; 8]) -> Tested<Vec<Vec<u8>>> {
    // A Requester may offer it only to those who announce that they know it.
    let said = [&private_data(true, 4096)[..], &announcement].concat();
    let mut player = stage.connection_saying(&said)?;
    let first = player.call_within(stage.patience)?;
    let messages = std::mem::take(&mut player.of_version_two);
    if messages.is_empty() {
        if let Some(first) = first {
            player.answer(&first)?;
        }
        player.serve_rest()?;
        return skip("the Requester does not offer version two");
    }
    match first {
        Some(first) => {
            player.answer(&first)?;
            player.goes_on()?;
        }
        None => {
            // It may use version one on another connection.
            drop(player);
            let mut next = stage.connection()?;
            let first = next.first_call()?;
            next.answer(&first)?;
            next.goes_on()?;
        }
    }
    Ok(messages)
}

fn first_message_of_two(stage: &Stage) -> Tested {
    is_short(&of_version_two(stage, ANNOUNCEMENT)?)
}

fn is_short(messages: &[Vec<u8>]) -> Tested {
    let len = messages.first().map_or(0, Vec::len);
    ensure(len <= 1024, || format!("it has {len} octets"))
}

fn fallback(stage: &Stage) -> Tested {
    is_one(&of_version_two(stage, ANNOUNCEMENT)?)
}

fn is_one(messages: &[Vec<u8>]) -> Tested {
    ensure(messages.len() == 1, || {
        format!("{} messages of version two are sent", messages.len())
    })
}

/// The same of a Requester that has ietf-07, by the header type of its first message: those of cel-01 are others, but for
/// RDMA2_GRANT, which nobody begins with.
fn of_ietf07(stage: &Stage) -> Tested<Vec<Vec<u8>>> {
    let messages = of_version_two(stage, ietf07::ANNOUNCEMENT)?;
    let htype = messages.first().and_then(|first| first.get(15));
    match htype.is_some_and(|htype| u32::from(*htype) > htype::GRANT) {
        true => Ok(messages),
        false => skip("the Requester offers another draft of version two"),
    }
}

fn first_message_of_ietf07(stage: &Stage) -> Tested {
    is_short(&of_ietf07(stage)?)
}

fn fallback_from_ietf07(stage: &Stage) -> Tested {
    is_one(&of_ietf07(stage)?)
}
