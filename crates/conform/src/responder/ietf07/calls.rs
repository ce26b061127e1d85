//! Calls and replies of ietf-07: parts, chunks, and the handle that a reply may invalidate.

use super::super::nfs;
use super::super::results::{inline_data, read_data, written_by};
use super::super::write_chunks::{same_segments, write_list};
use super::receive_buffer;
use super::talk::{DEFAULT_SIZE, Reply, Talk, is_error, null, sizes};
use crate::bed::Bed;
use crate::case::Case;
use crate::fixture::content;
use crate::ietf07::{Body, call, error, external_lists, htype, message, part};
use crate::message::{Segment, chunk_len};
use crate::responder::read_chunks::read_list;
use crate::responder::reply_chunks::reply_chunk;
use crate::verdict::Level::{Must, Robustness, Should};
use crate::verdict::{Tested, ensure, fail, skip};
use crate::{as_words, rpc, words};
use std::collections::BTreeSet;

/// Octets of a READ whose reply fits no message of the default size.
const LARGE: usize = 9000;

pub(in crate::responder) const CASES: &[Case] = &[
    Case::responder(
        "ICALL-01",
        Must,
        "ietf-07 §6.3.7, §6.3.10",
        "a call is answered by RDMA2_REPLY_INLINE with its XID",
        inline,
    ),
    Case::responder(
        "ICALL-02",
        Must,
        "ietf-07 §4.2.2, §4.3.1",
        "messages of 4096 octets are taken in, without properties of the Requester",
        default_size,
    ),
    Case::responder(
        "ICALL-03",
        Must,
        "ietf-07 §6.3.6, §6.1",
        "a call in parts is answered, wherever it is divided",
        in_parts,
    ),
    Case::responder(
        "ICALL-04",
        Must,
        "ietf-07 §6.3.6, §7.1.4",
        "another message amid the parts of a call draws RDMA2_ERR_INVAL_CONT",
        interrupted,
    ),
    Case::responder(
        "ICALL-05",
        Must,
        "ietf-07 §7.1.4, §6.3.6",
        "parts that do not fit rdma_remaining draw RDMA2_ERR_INVAL_CONT or RDMA2_ERR_BAD_XDR, or the call fails",
        contradictory,
    ),
    Case::responder(
        "ICALL-06",
        Robustness,
        "ietf-07 §6.3.6",
        "a call that begins with 4 GiB to come harms nobody",
        endless,
    ),
    Case::responder(
        "ICALL-07",
        Robustness,
        "ietf-07 §6.3.6",
        "parts without octets harm nobody",
        empty_parts,
    ),
    Case::responder(
        "ICALL-08",
        Robustness,
        "ietf-07 §4.6.2, §6.3.6",
        "a connection that ends amid the parts of a call harms nobody",
        gone_amid_parts,
    ),
    Case::responder(
        "ICALL-09",
        Must,
        "ietf-07 §6.3.5, §6.6.3",
        "a call in a Call chunk is answered",
        external,
    ),
    Case::responder(
        "ICALL-10",
        Must,
        "ietf-07 §6.3.5, §7.2.1",
        "RDMA2_CALL_EXTERNAL without a segment in its Call chunk draws RDMA2_ERR_BAD_XDR",
        no_call_chunk,
    ),
    Case::responder(
        "ICALL-11",
        Must,
        "ietf-07 §4.5.2, §6.3.7",
        "a Write chunk for a reply without an eligible result comes back unused",
        unused_chunk,
    ),
    Case::responder(
        "ICALL-12",
        Must,
        "ietf-07 §4.4.2, §6.3.7, §6.3.10",
        "data of a WRITE and a READ moves in chunks",
        data_in_chunks,
    ),
    Case::responder(
        "ICALL-13",
        Must,
        "ietf-07 §5.2.2, §4.2.2",
        "no message is longer than the Receive Buffer Size of the Requester, or 4096 octets without one",
        sizes_of_replies,
    ),
    Case::responder(
        "ICALL-14",
        Should,
        "ietf-07 §6.6.4",
        "a reply without room in a chunk comes in several messages",
        continued_reply,
    ),
    Case::responder(
        "ICALL-15",
        Must,
        "ietf-07 §6.3.9",
        "rdma_remaining of each part of a reply is what remains to be sent",
        remaining,
    ),
    Case::responder(
        "ICALL-16",
        Must,
        "ietf-07 §6.3.8, §6.6.3",
        "a reply in its Reply chunk is whole",
        reply_in_its_chunk,
    ),
    Case::responder(
        "ICALL-17",
        Must,
        "ietf-07 §7.3.4",
        "data that outgrows its Write chunk draws RDMA2_ERR_WRITE_RESOURCE with the chunk and the octets needed",
        write_chunk_too_small,
    ),
    Case::responder(
        "ICALL-18",
        Must,
        "ietf-07 §7.3.2",
        "more Write chunks than it can return draw RDMA2_ERR_WRITE_CHUNKS with their number",
        many_write_chunks,
    ),
    Case::responder(
        "ICALL-19",
        Must,
        "ietf-07 §7.3.1, §7.3.3",
        "more Read chunks than it can process draw RDMA2_ERR_READ_CHUNKS or RDMA2_ERR_SEGMENTS with their number",
        many_read_chunks,
    ),
    Case::responder(
        "ICALL-20",
        Must,
        "ietf-07 §6.5",
        "nothing is invalidated for a call whose rdma_inv_handle is zero",
        no_invalidation,
    ),
    Case::responder(
        "ICALL-21",
        Must,
        "ietf-07 §6.5",
        "the handle that a reply invalidates is rdma_inv_handle of its call",
        invalidation,
    ),
    Case::responder(
        "ICALL-22",
        Robustness,
        "ietf-07 §6.5",
        "rdma_inv_handle that is none of the header is not invalidated",
        foreign_handle,
    ),
    Case::responder(
        "ICALL-23",
        Must,
        "ietf-07 §6.5",
        "RDMA2_ERROR invalidates nothing",
        error_without_invalidation,
    ),
    Case::responder(
        "ICALL-24",
        Must,
        "ietf-07 §6.3.10, §4.2.1",
        "calls in flight are each answered once",
        in_flight,
    ),
];

fn inline(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let xid = bed.xid();
    let answer = talk.ask(&null(bed, xid, 0, &[0; 3]))?;
    match answer.message.body {
        Body::Reply {
            external: false, ..
        } => crate::bed::accepted(&answer.message.payload, xid).map(drop),
        _ => fail(format!("it is answered by {}", answer.message)),
    }
}

/// A NULL call of so many octets as a message.
fn padded(bed: &Bed, octets: usize) -> Vec<u32> {
    let mut call = null(bed, bed.xid(), 0, &[0; 3]);
    call.resize(octets / 4, 0);
    call
}

fn default_size(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07_saying(&[0])?;
    for octets in [1024, 1028, 4096] {
        talk.call(&padded(bed, octets))?.accepted()?;
    }
    Ok(())
}

/// A message with octets that need not be words behind its header.
fn with_octets(header: &[u32], octets: &[u8]) -> Vec<u8> {
    [&words(header), octets].concat()
}

fn in_parts(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    for cuts in [&[4][..], &[20], &[36], &[1, 2, 3, 39], &[13, 26]] {
        let xid = bed.xid();
        let whole = words(&bed.null(xid));
        let mut from = 0;
        for &to in cuts {
            let remaining = u32::try_from(whole.len() - to).expect("a call is short");
            let header = part(xid, remaining, &[]);
            talk.send_octets(&with_octets(&header, &whole[from..to]))?;
            from = to;
        }
        let header = call(xid, 0, &[0; 3], &[]);
        talk.send_octets(&with_octets(&header, &whole[from..]))?;
        talk.reply(xid, None)?.accepted()?;
    }
    Ok(())
}

fn interrupted(bed: &Bed) -> Tested {
    // Which XID the error has is left open: that of the message that came between, or of the call that was begun.
    for between in 0..3 {
        let mut talk = bed.ietf07()?;
        let (xid, other) = (bed.xid(), bed.xid());
        let whole = bed.null(xid);
        talk.send(&part(xid, 20, &whole[..5]))?;
        talk.send(&match between {
            0 => null(bed, other, 0, &[0; 3]),
            1 => part(other, 20, &bed.null(other)[..5]),
            _ => message(other, htype::CONNPROP_FINAL, &[0]),
        })?;
        let answer = talk.hear()?;
        is_error(&answer, &[error::INVAL_CONT])?;
        ensure([xid, other].contains(&answer.message.xid), || {
            format!("it has XID {:#010x}", answer.message.xid)
        })?;
    }
    Ok(())
}

fn contradictory(bed: &Bed) -> Tested {
    // Octets that remain by the first part, of a call of 40 octets of which it has 20.
    for remaining in [4, 400] {
        let mut talk = bed.ietf07()?;
        let xid = bed.xid();
        let whole = bed.null(xid);
        talk.send(&part(xid, remaining, &whole[..5]))?;
        talk.send(&call(xid, 0, &[0; 3], &whole[5..]))?;
        let answer = talk.hear()?;
        match answer.message.error() {
            Some(_) => {
                is_error(&answer, &[error::INVAL_CONT, error::BAD_XDR, error::SYSTEM])?;
            }
            None => {
                let status = crate::bed::accepted(&answer.message.payload, xid)?;
                ensure(status != rpc::accept::SUCCESS, || {
                    "the call is carried out".to_owned()
                })?;
            }
        }
        talk.goes_on(bed)?;
    }
    Ok(())
}

fn endless(bed: &Bed) -> Tested {
    let xid = bed.xid();
    let begin = part(xid, u32::MAX, &bed.null(xid));
    let more = part(xid, u32::MAX - 400, &[0; 100]);
    bed.survives_ietf07(&[begin, more.clone(), more])
}

fn empty_parts(bed: &Bed) -> Tested {
    let xid = bed.xid();
    bed.survives_ietf07(&vec![part(xid, 40, &[]); 100])
}

fn gone_amid_parts(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let xid = bed.xid();
    talk.send(&part(xid, 20, &bed.null(xid)[..5]))?;
    talk.link.close();
    Ok(())
}

/// A call in a Call chunk, with this handle to invalidate.
fn in_a_chunk(xid: u32, handle: u32, source: Segment) -> Vec<u32> {
    let lists = external_lists(&[(0, source)], &[]);
    let rest = [&[handle], &lists[..]].concat();
    message(xid, htype::CALL_EXTERNAL, &rest)
}

fn external(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let xid = bed.xid();
    let source = talk.link.source(&words(&bed.null(xid)))?;
    talk.call(&in_a_chunk(xid, 0, source))?.accepted().map(drop)
}

fn no_call_chunk(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let rest = [&[0], &external_lists(&[], &[])[..]].concat();
    let bad = message(bed.xid(), htype::CALL_EXTERNAL, &rest);
    talk.refused(&bad, &[error::BAD_XDR])?;
    talk.goes_on(bed)
}

fn unused_chunk(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let xid = bed.xid();
    let sink = talk.link.sink(1024)?;
    let reply = talk.call(&null(bed, xid, 0, &write_list(&[vec![sink]])))?;
    reply.accepted()?;
    match reply.writes.as_slice() {
        [chunk] => {
            same_segments(&[sink], chunk)?;
            let length = chunk_len(chunk);
            ensure(length == 0, || {
                format!("it comes back with {length} octets")
            })
        }
        chunks => fail(format!("{} Write chunks come back of 1", chunks.len())),
    }
}

fn data_in_chunks(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut talk = bed.ietf07()?;
    let data = content(bed.xid() as usize, 5003);
    let writing = nfs::call(bed, &nfs::write(files.scratch, &data));
    let source = talk.link.source(&data)?;
    let lists = read_list(&[(writing.position, source)]);
    let reply = talk.call(&call(writing.xid, 0, &lists, &writing.reduced))?;
    let count = written_by(&reply.stream, writing.xid, data.len())?;
    let reading = nfs::read(bed, files.scratch, 0, count);
    let sink = talk.link.sink(count)?;
    let lists = write_list(&[vec![sink]]);
    let reply = talk.call(&call(reading.xid, 0, &lists, &reading.reduced))?;
    let length = read_data(&reply.stream, reading.xid, count)?.length;
    let written = reply.writes.first().map_or(0, |chunk| chunk_len(chunk));
    ensure(written == length as u64, || {
        format!("the chunk comes back with {written} octets, and the data has {length}")
    })?;
    let (memory, _) = talk.link.take(sink)?;
    ensure(memory[..length] == data[..length], || {
        "the data is not that which was written".to_owned()
    })
}

/// A READ of the file with these lists, whose reply must have its data inline.
fn read_inline(bed: &Bed, talk: &mut Talk, count: usize, sink: Option<Segment>) -> Tested<Reply> {
    let reading = nfs::read(bed, bed.files()?.file, 0, count);
    let lists = match sink {
        Some(sink) => reply_chunk(&[sink]),
        None => vec![0; 3],
    };
    talk.send(&call(reading.xid, 0, &lists, &reading.reduced))?;
    let reply = talk.reply(reading.xid, sink)?;
    let data = inline_data(&reply.stream, reading.xid, count)?;
    ensure(data == content(0, data.len()), || {
        "the data is not that of the file".to_owned()
    })?;
    Ok(reply)
}

fn sizes_of_replies(bed: &Bed) -> Tested {
    bed.files()?;
    for (set, size) in [(sizes(2048), 2048), (vec![0], DEFAULT_SIZE)] {
        let mut talk = bed.ietf07_saying(&set)?;
        for count in [size - 200, size, size + 1000] {
            let sink = talk.link.sink(count + 1024)?;
            let reply = read_inline(bed, &mut talk, count, Some(sink))?;
            let longest = reply.longest;
            ensure(longest <= size, || format!("a message of {longest} octets"))?;
        }
    }
    Ok(())
}

/// The reply to a large READ without a chunk, or `None` if it is refused for want of one.
fn large_without_a_chunk(bed: &Bed) -> Tested<Option<Reply>> {
    let files = bed.files()?;
    let mut talk = bed.ietf07()?;
    let reading = nfs::read(bed, files.file, 0, LARGE);
    talk.send(&call(reading.xid, 0, &[0; 3], &reading.reduced))?;
    // The first message tells which it is.
    let mut answer = talk.hear()?;
    if answer.message.error().is_some() {
        is_error(&answer, &[error::REPLY_RESOURCE, error::WRITE_RESOURCE])?;
        return Ok(None);
    }
    let mut parts = Vec::new();
    let mut stream = Vec::new();
    let mut longest = 0;
    while let Body::Part { remaining } = answer.message.body {
        ensure(answer.message.xid == reading.xid, || {
            format!("a part has XID {:#010x}", answer.message.xid)
        })?;
        longest = longest.max(answer.message.len);
        parts.push((answer.message.payload.len(), remaining));
        stream.extend(answer.message.payload);
        answer = talk.hear()?;
    }
    ensure(
        matches!(
            answer.message.body,
            Body::Reply {
                external: false,
                ..
            }
        ),
        || format!("the last part of a reply is {}", answer.message),
    )?;
    stream.extend(answer.message.payload);
    let data = inline_data(&stream, reading.xid, LARGE)?;
    ensure(data == content(0, data.len()), || {
        "the data is not that of the file".to_owned()
    })?;
    Ok(Some(Reply {
        xid: reading.xid,
        stream,
        writes: Vec::new(),
        chunk: None,
        parts,
        longest,
        invalidated: answer.invalidated,
    }))
}

fn continued_reply(bed: &Bed) -> Tested {
    match large_without_a_chunk(bed)? {
        Some(reply) if reply.parts.is_empty() => skip("READ gives what fits one message"),
        Some(_) => Ok(()),
        None => fail("it is refused"),
    }
}

fn remaining(bed: &Bed) -> Tested {
    let Some(reply) = large_without_a_chunk(bed)? else {
        return skip("the Responder sends no reply in parts");
    };
    let whole = reply.stream.len();
    let mut sent = 0;
    // The text can be read to count what this message has as well, in all of them.
    let (mut behind, mut with) = (true, true);
    for (octets, remaining) in &reply.parts {
        with &= *remaining as usize == whole - sent;
        sent += octets;
        behind &= *remaining as usize == whole - sent;
    }
    if reply.parts.is_empty() {
        return skip("READ gives what fits one message");
    }
    ensure(behind || with, || {
        format!("the parts have {:?} of {whole} octets", reply.parts)
    })
}

fn reply_in_its_chunk(bed: &Bed) -> Tested {
    bed.files()?;
    let mut talk = bed.ietf07()?;
    let sink = talk.link.sink(LARGE + 1024)?;
    let reply = read_inline(bed, &mut talk, LARGE, Some(sink))?;
    match &reply.chunk {
        Some(chunk) => same_segments(&[sink], chunk),
        None => skip("the Responder does not use the Reply chunk"),
    }
}

fn write_chunk_too_small(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut talk = bed.ietf07()?;
    let reading = nfs::read(bed, files.file, 0, LARGE);
    let sink = talk.link.sink(2000)?;
    let lists = write_list(&[vec![sink]]);
    let answer = talk.ask(&call(reading.xid, 0, &lists, &reading.reduced))?;
    if answer.message.error().is_none() {
        let length = read_data(&answer.message.payload, reading.xid, LARGE)?.length;
        return match length {
            0..=2000 => skip("READ gives what fits the Write chunk"),
            _ => fail(format!("{length} octets are said to be in 2000")),
        };
    }
    match is_error(&answer, &[error::WRITE_RESOURCE])?[..] {
        [0 | 1, needed] => ensure(needed == 0 || needed > 2000, || {
            format!("{needed} octets are said to be needed, and 2000 are there")
        }),
        ref rest => fail(format!("its arguments are {rest:?}")),
    }
}

/// An error with a largest number, which must be less than there were.
fn is_limit(answer: &super::talk::Answer, codes: &[u32], sent: usize) -> Tested {
    match is_error(answer, codes)?[..] {
        [max] => ensure((max as usize) < sent, || {
            format!("{sent} are said to be more than {max}")
        }),
        ref rest => fail(format!("its arguments are {rest:?}")),
    }
}

fn many_write_chunks(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let room = receive_buffer(&talk).min(8192) - 100;
    let sink = talk.link.sink(64)?;
    let chunks = vec![vec![sink.part(0, 8)]; room / 24];
    let xid = bed.xid();
    let answer = talk.ask(&null(bed, xid, 0, &write_list(&chunks)))?;
    match answer.message.body {
        Body::Reply { .. } => crate::bed::accepted(&answer.message.payload, xid).map(drop),
        _ => is_limit(
            &answer,
            &[error::WRITE_CHUNKS, error::SEGMENTS],
            chunks.len(),
        ),
    }
}

fn many_read_chunks(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let room = receive_buffer(&talk).min(8192) - 100;
    let source = talk.link.source(&[0; 64])?;
    let count = u32::try_from(room / 24).expect("it is small");
    let xid = bed.xid();
    let stream = bed.null(xid);
    let end = u32::try_from(4 * stream.len()).expect("a call is short");
    let reads: Vec<_> = (0..count)
        .map(|at| (end + 8 * at, source.part(0, 8)))
        .collect();
    let answer = talk.ask(&null(bed, xid, 0, &read_list(&reads)))?;
    match answer.message.body {
        Body::Reply { .. } => crate::bed::accepted(&answer.message.payload, xid).map(drop),
        _ => is_limit(&answer, &[error::READ_CHUNKS, error::SEGMENTS], reads.len()),
    }
}

/// The reply to a NULL call in a Call chunk that names this handle.
fn naming(bed: &Bed, talk: &mut Talk, handle: impl Fn(Segment) -> u32) -> Tested<(Reply, Segment)> {
    let xid = bed.xid();
    let source = talk.link.source(&words(&bed.null(xid)))?;
    let reply = talk.call(&in_a_chunk(xid, handle(source), source))?;
    reply.accepted()?;
    Ok((reply, source))
}

fn no_invalidation(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    for _ in 0..3 {
        let (reply, _) = naming(bed, &mut talk, |_| 0)?;
        let taken = reply.invalidated;
        ensure(taken.is_none(), || format!("{taken:x?} is invalidated"))?;
    }
    Ok(())
}

fn invalidation(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    for _ in 0..3 {
        let xid = bed.xid();
        let source = talk.link.source(&words(&bed.null(xid)))?;
        let (one, other) = (talk.link.sink(64)?, talk.link.sink(64)?);
        let mut lists = external_lists(&[(0, source)], &[]);
        // In place of the Write list and the Reply chunk, which are empty.
        lists.truncate(lists.len() - 2);
        lists.extend(&write_list(&[vec![one], vec![other]])[1..]);
        let rest = [&[other.handle], &lists[..]].concat();
        let reply = talk.call(&message(xid, htype::CALL_EXTERNAL, &rest))?;
        reply.accepted()?;
        let (taken, named) = (reply.invalidated, other.handle);
        ensure(taken.is_none_or(|taken| taken == named), || {
            format!("{taken:x?} is invalidated, and {named:#x} is named")
        })?;
    }
    Ok(())
}

fn foreign_handle(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let kept = talk.link.source(&[7; 64])?;
    let (reply, _) = naming(bed, &mut talk, |_| kept.handle)?;
    let taken = reply.invalidated;
    ensure(taken.is_none(), || format!("{taken:x?} is invalidated"))?;
    naming(bed, &mut talk, |source| source.handle ^ 0x0155_5500)?;
    talk.goes_on(bed)
}

fn error_without_invalidation(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let sink = talk.link.sink(64)?;
    let xid = bed.xid();
    let mut bad = null(bed, xid, sink.handle, &write_list(&[vec![sink]]));
    // The XID of the RPC message.
    let at = bad.len() - as_words(&words(&bed.null(xid))).len();
    bad[at] ^= 1;
    talk.refused(&bad, &[error::BAD_XDR])?;
    talk.goes_on(bed)
}

fn in_flight(bed: &Bed) -> Tested {
    let mut talk = bed.ietf07()?;
    let calls = talk.may_send().min(16);
    let mut open = BTreeSet::new();
    for _ in 0..calls {
        let xid = bed.xid();
        talk.send(&null(bed, xid, 0, &[0; 3]))?;
        open.insert(xid);
    }
    for _ in 0..calls {
        let answer = talk.hear()?;
        let xid = answer.message.xid;
        ensure(open.remove(&xid), || {
            format!("a second reply, or one that nobody asked for, with XID {xid:#010x}")
        })?;
        crate::bed::accepted(&answer.message.payload, xid)?;
    }
    talk.stays_silent()
}
