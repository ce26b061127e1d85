//! Data of NFS version 3 in chunks (RFC 8267 §4, RFC 8166 §3.4 to §4.3), with files of the peer.

use super::read_chunks::read_list;
use super::reply_chunks::{reply_chunk, returned, stream};
use super::write_chunks::{come_back, write_list};
use crate::bed::{Answer, Bed, accepted};
use crate::case::Case;
use crate::fixture::{FILE_SIZE, LINK_TEXT, content};
use crate::header::{Version, error, procedure};
use crate::link::{Heard, Link, UNTOUCHED};
use crate::message::{Chunk, Segment, chunk_len};
use crate::verdict::Level::{Must, Robustness, Should};
use crate::verdict::{Tested, ensure, fail};
use crate::{as_words, rpc};
use buffer::Buffer;
use nfs_proto::{Arguments, FileHandle, Filename, SetAttributes, Stable, args};
use oncrpc::xdr::Writer;
use oncrpc::{Procedure, write_call};

pub(super) const CASES: &[Case] = &[
    Case::responder(
        "NFS-01",
        Must,
        "RFC 8267 §4, RFC 8166 §3.4.5",
        "data of a WRITE in a Read chunk is in the file",
        |bed| write_is_in_the_file(bed, 4096, Pad::None, &[]),
    ),
    Case::responder(
        "NFS-02",
        Must,
        "RFC 8166 §3.4.5.2",
        "a Read chunk of odd length without roundup is taken in",
        |bed| write_is_in_the_file(bed, 4093, Pad::None, &[]),
    ),
    Case::responder(
        "NFS-03",
        Must,
        "RFC 8166 §3.4.5.2",
        "a Read chunk of odd length with its roundup is taken in",
        |bed| write_is_in_the_file(bed, 4093, Pad::InSegment, &[]),
    ),
    Case::responder(
        "NFS-04",
        Must,
        "RFC 8166 §3.4.5.2",
        "the roundup of a Read chunk may be in a segment of its own",
        |bed| write_is_in_the_file(bed, 4093, Pad::Alone, &[]),
    ),
    Case::responder(
        "NFS-05",
        Must,
        "RFC 8166 §3.4.4",
        "data of a WRITE may be divided into segments at any octet",
        |bed| write_is_in_the_file(bed, 5001, Pad::None, &[1, 1000, 1001, 4000]),
    ),
    Case::responder(
        "NFS-06",
        Should,
        "RFC 8166 §4.5.2",
        "a Read chunk shorter than the data draws GARBAGE_ARGS or ERR_CHUNK",
        short_chunk,
    ),
    Case::responder(
        "NFS-07",
        Must,
        "RFC 8166 §3.5.3",
        "a WRITE that is in a Position Zero Read chunk as a whole is in the file",
        long_write,
    ),
    Case::responder(
        "NFS-08",
        Must,
        "RFC 8267 §4",
        "the text of a SYMLINK in a Read chunk is taken in",
        symlink,
    ),
    Case::responder(
        "NFS-09",
        Must,
        "RFC 8166 §4.3.2",
        "data of a READ is in the Write chunk, and not in the reply",
        read_by_chunk,
    ),
    Case::responder(
        "NFS-10",
        Must,
        "RFC 8166 §3.4.6.2",
        "a returned Write chunk is as long as the data",
        chunk_has_the_length_of_the_data,
    ),
    Case::responder(
        "NFS-11",
        Must,
        "RFC 8166 §3.4.6.2",
        "no roundup is written into a Write chunk",
        no_roundup_written,
    ),
    Case::responder(
        "NFS-12",
        Must,
        "RFC 8166 §3.4.6",
        "a Write chunk of several segments is filled contiguously and in order",
        several_segments,
    ),
    Case::responder(
        "NFS-13",
        Must,
        "RFC 8166 §3.4.6",
        "segments that no data reached come back without length",
        short_read,
    ),
    Case::responder(
        "NFS-14",
        Must,
        "RFC 8166 §4.3.2.2",
        "the second of two Write chunks of a READ comes back unused",
        two_chunks,
    ),
    Case::responder(
        "NFS-15",
        Robustness,
        "RFC 8166 §4.3.2.3, RFC 8267 §3.1",
        "with an empty Write chunk, data of a READ is inline and the chunk comes back empty, or the call is refused",
        empty_chunk,
    ),
    Case::responder(
        "NFS-16",
        Must,
        "RFC 8166 §4.3.2.3",
        "without a Write list, data of a READ is inline",
        inline,
    ),
    Case::responder(
        "NFS-17",
        Must,
        "RFC 8267 §4, RFC 8166 §4.3.2",
        "the text of a READLINK is in the Write chunk",
        read_link,
    ),
    Case::responder(
        "NFS-18",
        Must,
        "RFC 8166 §3.5.3",
        "a reply larger than the inline threshold is in the Reply chunk",
        long_reply,
    ),
    Case::responder(
        "NFS-19",
        Must,
        "RFC 8166 §3.5.3",
        "a reply in a Reply chunk has its roundup",
        long_reply_has_roundup,
    ),
    Case::responder(
        "NFS-20",
        Robustness,
        "RFC 8166 §4.5.3, RFC 8267 §3.1",
        "a reply that outgrows its Reply chunk is not written beyond it",
        reply_chunk_too_small,
    ),
    Case::responder(
        "NFS-21",
        Robustness,
        "RFC 8166 §4.5.3, RFC 8267 §3.1",
        "data that outgrows its Write chunk is not written beyond it",
        write_chunk_too_small,
    ),
    Case::responder(
        "NFS-22",
        Must,
        "RFC 8166 §3.3.2, §3.5.3",
        "no reply is longer than the inline threshold, if nothing is offered for it",
        no_room_at_all,
    ),
    Case::responder(
        "NFS-23",
        Must,
        "RFC 8166 §3.4.6, §4.3.2",
        "a large READ into an odd place is whole",
        large_read,
    ),
    Case::responder(
        "NFS-24",
        Must,
        "RFC 8166 §4.3.3, §4.3.2.1",
        "a READ with a Write chunk and a Reply chunk has its data in the Write chunk",
        both_chunks,
    ),
];

/// A call of NFS version 3.
pub(super) struct Call {
    pub(super) xid: u32,
    /// The stream without its DDP-eligible argument.
    pub(super) reduced: Vec<u32>,
    /// The whole stream.
    pub(super) whole: Vec<u8>,
    /// Position of the argument.
    pub(super) position: u32,
}

/// Encodes a call as the user.
pub(super) fn call<'a, A: Arguments<'a>>(bed: &Bed, arguments: &A) -> Call {
    let xid = bed.xid();
    let mut w = Writer::default();
    let procedure = Procedure {
        prog: A::PROGRAM,
        vers: A::VERSION,
        proc: A::PROCEDURE,
    };
    write_call(&mut w, xid, procedure, &bed.credential);
    arguments.write(&mut w);
    let payload = w.finish();
    let (mut whole, mut reduced) = (Buffer::default(), Buffer::default());
    payload.copy_stream_into(&mut whole);
    payload.copy_reduced_into(&mut reduced, |_| true);
    let position = match payload.items() {
        [] => 0,
        _ => u32::try_from(payload.position(0)).expect("a call is short"),
    };
    Call {
        xid,
        reduced: as_words(&reduced),
        whole: whole.to_vec(),
        position,
    }
}

/// A READ of the file with known content.
pub(super) fn read(bed: &Bed, file: FileHandle, offset: usize, count: usize) -> Call {
    let count = u32::try_from(count).expect("a READ of a case is small");
    let offset = offset as u64;
    call(
        bed,
        &args::Read {
            file,
            offset,
            count,
        },
    )
}

pub(super) fn write<'a>(file: FileHandle, data: &'a [u8]) -> args::Write<'a> {
    args::Write {
        file,
        offset: 0,
        count: u32::try_from(data.len()).expect("a WRITE of a case is small"),
        stable: Stable::FileSync,
        data: data.into(),
    }
}

/// Status of the results of NFS, which a call that was carried out has in front.
fn nfs_status(stream: &[u8], xid: u32) -> Tested<u32> {
    let status = accepted(stream, xid)?;
    ensure(status == rpc::accept::SUCCESS, || {
        format!("accept_stat {status}")
    })?;
    let words = as_words(&stream[..stream.len() / 4 * 4]);
    let verifier = words.get(4).copied().unwrap_or_default() as usize;
    match words.get(6 + verifier.div_ceil(4)) {
        Some(status) => Ok(*status),
        None => fail("a reply without results"),
    }
}

pub(super) fn is_done(stream: &[u8], xid: u32) -> Tested {
    match nfs_status(stream, xid)? {
        0 => Ok(()),
        status => fail(format!("it fails with NFS status {status}")),
    }
}

/// Data of a READ that is inline: the last item of its results (RFC 1813 §3.3.6).
fn inline_data(stream: &[u8], xid: u32, count: usize) -> Tested<Vec<u8>> {
    is_done(stream, xid)?;
    let Some(begin) = stream.len().checked_sub(count.next_multiple_of(4)) else {
        return fail("the reply is shorter than the data");
    };
    let length = begin
        .checked_sub(4)
        .and_then(|at| stream[at..].first_chunk())
        .copied()
        .map(u32::from_be_bytes);
    ensure(
        length.is_some_and(|length| length as usize == count),
        || format!("{count} octets are not inline at the end of the reply"),
    )?;
    Ok(stream[begin..begin + count].to_vec())
}

/// The content of the file, octet by octet.
fn is_content(data: &[u8], offset: usize) -> Tested {
    ensure(data == content(offset, data.len()), || {
        "the data is not that of the file".to_owned()
    })
}

/// Place of the roundup of a Read chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pad {
    None,
    InSegment,
    Alone,
}

fn write_is_in_the_file(bed: &Bed, length: usize, pad: Pad, cuts: &[usize]) -> Tested {
    let files = bed.files()?;
    let mut link = bed.connect()?;
    // Other data each time, so that what a case before wrote does not count.
    let data = content(bed.xid() as usize, length);
    let call = call(bed, &write(files.scratch, &data));
    let mut bytes = data.clone();
    if pad == Pad::InSegment {
        bytes.resize(length.next_multiple_of(4), 0);
    }
    let mut segments = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&bytes.len()]) {
        segments.push((call.position, link.source(&bytes[from..to])?));
        from = to;
    }
    if pad == Pad::Alone {
        let roundup = vec![0; length.next_multiple_of(4) - length];
        segments.push((call.position, link.source(&roundup)?));
    }
    let message = Bed::message(
        procedure::MSG,
        call.xid,
        &read_list(&segments),
        &call.reduced,
    );
    let answer = bed.ask(&mut link, &message)?;
    is_done(&answer.message.payload, call.xid)?;
    is_in_the_file(bed, &mut link, &data)
}

/// A READ gives what was written.
fn is_in_the_file(bed: &Bed, link: &mut Link, data: &[u8]) -> Tested {
    let file = bed.files()?.scratch;
    let sink = link.sink(data.len())?;
    let call = read(bed, file, 0, data.len());
    let lists = write_list(&[vec![sink]]);
    let message = Bed::message(procedure::MSG, call.xid, &lists, &call.reduced);
    let answer = bed.ask(link, &message)?;
    is_done(&answer.message.payload, call.xid)?;
    let (memory, _) = link.take(sink)?;
    ensure(memory == data, || {
        "the file has not the data that was written".to_owned()
    })
}

fn short_chunk(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut link = bed.connect()?;
    let data = content(0, 4096);
    let call = call(bed, &write(files.scratch, &data));
    let source = link.source(&data[..4000])?;
    let lists = read_list(&[(call.position, source)]);
    let message = Bed::message(procedure::MSG, call.xid, &lists, &call.reduced);
    bed.does_not_fit(&mut link, &message)
}

fn long_write(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut link = bed.connect()?;
    let data = content(bed.xid() as usize, 3001);
    let call = call(bed, &write(files.scratch, &data));
    let source = link.source(&call.whole)?;
    let message = Bed::message(procedure::NOMSG, call.xid, &read_list(&[(0, source)]), &[]);
    let answer = bed.ask(&mut link, &message)?;
    is_done(&answer.message.payload, call.xid)?;
    is_in_the_file(bed, &mut link, &data)
}

fn symlink(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut link = bed.connect()?;
    let text = b"of seventeen octs";
    let name = format!("symlink-{:x}", bed.xid());
    let Some(name) = Filename::new(name.as_bytes()) else {
        return crate::verdict::error("this is no name");
    };
    let arguments = args::Symlink {
        place: args::Place {
            dir: files.directory,
            name,
        },
        attributes: SetAttributes::default(),
        target: text[..].into(),
    };
    let call = call(bed, &arguments);
    let source = link.source(text)?;
    let lists = read_list(&[(call.position, source)]);
    let message = Bed::message(procedure::MSG, call.xid, &lists, &call.reduced);
    let answer = bed.ask(&mut link, &message)?;
    is_done(&answer.message.payload, call.xid)
}

/// A READ with these Write chunks, which must be done, and the answer to it.
fn read_into(
    bed: &Bed,
    link: &mut Link,
    offset: usize,
    count: usize,
    chunks: &[Chunk],
) -> Tested<(u32, Answer)> {
    let (xid, answer) = ask_to_read(bed, link, (offset, count), chunks)?;
    is_done(&answer.message.payload, xid)?;
    Ok((xid, answer))
}

/// A READ with these Write chunks, and whatever answers it.
fn ask_to_read(
    bed: &Bed,
    link: &mut Link,
    (offset, count): (usize, usize),
    chunks: &[Chunk],
) -> Tested<(u32, Answer)> {
    let call = read(bed, bed.files()?.file, offset, count);
    let lists = write_list(chunks);
    let message = Bed::message(procedure::MSG, call.xid, &lists, &call.reduced);
    Ok((call.xid, bed.ask(link, &message)?))
}

/// Octets in the Write chunk with this number.
fn written(answer: &Answer, at: usize) -> Tested<u64> {
    match answer.message.chunks()?.writes.get(at) {
        Some(chunk) => Ok(chunk_len(chunk)),
        None => fail("the Write chunk does not come back"),
    }
}

fn read_by_chunk(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let sink = link.sink(1024)?;
    let (_, answer) = read_into(bed, &mut link, 100, 1024, &[vec![sink]])?;
    let last = answer
        .message
        .payload
        .last_chunk()
        .copied()
        .unwrap_or_default();
    ensure(u32::from_be_bytes(last) == 1024, || {
        "the reply does not end with the count of the data, as it is reduced".to_owned()
    })?;
    is_content(&link.take(sink)?.0, 100)
}

fn chunk_has_the_length_of_the_data(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    for count in [1, 1000, 1021, 4096] {
        let sink = link.sink(8192)?;
        let (_, answer) = read_into(bed, &mut link, 0, count, &[vec![sink]])?;
        let length = written(&answer, 0)?;
        ensure(length == count as u64, || {
            format!("the chunk comes back with {length} octets, and the data has {count}")
        })?;
    }
    Ok(())
}

fn no_roundup_written(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let sink = link.sink(1024)?;
    let (_, answer) = read_into(bed, &mut link, 0, 1021, &[vec![sink]])?;
    ensure(written(&answer, 0)? == 1021, || {
        "not 1021 octets come back".to_owned()
    })?;
    let (memory, _) = link.take(sink)?;
    is_content(&memory[..1021], 0)?;
    ensure(memory[1021..] == [UNTOUCHED; 3], || {
        "octets behind the data were written".to_owned()
    })
}

fn several_segments(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let lengths = [1, 999, 2000, 1096];
    let mut sinks = Vec::new();
    for length in lengths {
        sinks.push(link.sink(length)?);
    }
    let chunks = [sinks.clone()];
    let (_, answer) = read_into(bed, &mut link, 7, 4096, &chunks)?;
    come_back(&answer, &chunks)?;
    let mut data = Vec::new();
    for sink in sinks {
        data.extend(link.take(sink)?.0);
    }
    is_content(&data, 7)
}

fn short_read(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let sink = link.sink(4096)?;
    let chunks = [vec![
        sink.part(0, 1024),
        sink.part(1024, 1024),
        sink.part(2048, 2048),
    ]];
    // The file ends 1500 octets behind.
    let (_, answer) = read_into(bed, &mut link, FILE_SIZE - 1500, 4096, &chunks)?;
    come_back(&answer, &chunks)?;
    let lengths: Vec<u32> = answer.message.chunks()?.writes[0]
        .iter()
        .map(|segment| segment.length)
        .collect();
    ensure(lengths == [1024, 476, 0], || {
        format!("the lengths are {lengths:?}")
    })?;
    is_content(&link.take(sink)?.0[..1500], FILE_SIZE - 1500)
}

fn two_chunks(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let (one, other) = (link.sink(2048)?, link.sink(2048)?);
    let (_, answer) = read_into(bed, &mut link, 0, 1024, &[vec![one], vec![other]])?;
    let lengths = (written(&answer, 0)?, written(&answer, 1)?);
    ensure(lengths == (1024, 0), || {
        format!("the chunks have {lengths:?} octets")
    })
}

fn empty_chunk(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let (xid, answer) = ask_to_read(bed, &mut link, (0, 333), &[Vec::new()])?;
    if answer.message.error() == Some(error::HEADER) {
        return Ok(());
    }
    is_done(&answer.message.payload, xid)?;
    let writes = &answer.message.chunks()?.writes;
    ensure(*writes == [Vec::new()], || {
        format!("it comes back as {writes:x?}")
    })?;
    is_content(&inline_data(&answer.message.payload, xid, 333)?, 0)
}

fn inline(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    for count in [0, 1, 700] {
        let (xid, answer) = read_into(bed, &mut link, 0, count, &[])?;
        is_content(&inline_data(&answer.message.payload, xid, count)?, 0)?;
    }
    Ok(())
}

fn read_link(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut link = bed.connect()?;
    let call = call(
        bed,
        &args::ReadLink {
            symlink: files.link,
        },
    );
    let sink = link.sink(1024)?;
    let lists = write_list(&[vec![sink]]);
    let message = Bed::message(procedure::MSG, call.xid, &lists, &call.reduced);
    let answer = bed.ask(&mut link, &message)?;
    is_done(&answer.message.payload, call.xid)?;
    let length = written(&answer, 0)?;
    ensure(length == LINK_TEXT.len() as u64, || {
        format!("{length} octets of the text are in the Write chunk")
    })?;
    let (memory, _) = link.take(sink)?;
    ensure(memory.starts_with(LINK_TEXT.as_bytes()), || {
        "the text is another one".to_owned()
    })
}

/// A READ with a Reply chunk alone, and its reply.
fn read_long(bed: &Bed, link: &mut Link, count: usize) -> Tested<(u32, Answer, Segment)> {
    let call = read(bed, bed.files()?.file, 0, count);
    let sink = link.sink(count + 1024)?;
    let message = Bed::message(
        procedure::MSG,
        call.xid,
        &reply_chunk(&[sink]),
        &call.reduced,
    );
    Ok((call.xid, bed.ask(link, &message)?, sink))
}

fn long_reply(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let (xid, answer, sink) = read_long(bed, &mut link, 9000)?;
    ensure(answer.message.chunks()?.nomsg, || {
        "it is not RDMA_NOMSG".to_owned()
    })?;
    let reply = stream(&mut link, &answer.message, sink)?;
    is_content(&inline_data(&reply, xid, 9000)?, 0)
}

fn long_reply_has_roundup(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let (xid, answer, sink) = read_long(bed, &mut link, 9001)?;
    let reply = stream(&mut link, &answer.message, sink)?;
    ensure(reply.len() % 4 == 0, || {
        format!("the reply in the Reply chunk has {} octets", reply.len())
    })?;
    is_content(&inline_data(&reply, xid, 9001)?, 0)
}

/// Whatever the answer is, or the end of the connection: memory beyond the chunk stays as it was. Only what the peer could
/// reach by the handle can be looked at, while the connection is there.
fn beyond_stays_untouched(bed: &Bed, link: &mut Link, sink: Segment, room: usize) -> Tested {
    match link.hear() {
        Heard::End(_) => Ok(()),
        Heard::Silence => fail(format!("no answer within {:?}", bed.patience)),
        Heard::Message { .. } => {
            let (memory, _) = link.take(sink)?;
            ensure(
                memory[room..].iter().all(|octet| *octet == UNTOUCHED),
                || format!("octets behind the {room} that were offered were written"),
            )
        }
    }
}

fn reply_chunk_too_small(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut link = bed.connect()?;
    let call = read(bed, files.file, 0, 9000);
    let sink = link.sink(16384)?;
    let lists = reply_chunk(&[sink.part(0, 2000)]);
    let message = Bed::message(procedure::MSG, call.xid, &lists, &call.reduced);
    bed.send(&mut link, &message)?;
    beyond_stays_untouched(bed, &mut link, sink, 2000)
}

fn write_chunk_too_small(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut link = bed.connect()?;
    let call = read(bed, files.file, 0, 9000);
    let sink = link.sink(16384)?;
    let lists = write_list(&[vec![sink.part(0, 2000)]]);
    let message = Bed::message(procedure::MSG, call.xid, &lists, &call.reduced);
    bed.send(&mut link, &message)?;
    beyond_stays_untouched(bed, &mut link, sink, 2000)
}

fn no_room_at_all(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut link = bed.connect()?;
    let call = read(bed, files.file, 0, 9000);
    let message = Bed::message(procedure::MSG, call.xid, &[0, 0, 0], &call.reduced);
    bed.send(&mut link, &message)?;
    match link.hear() {
        Heard::End(_) => Ok(()),
        Heard::Silence => fail(format!("no answer within {:?}", bed.patience)),
        Heard::Message { bytes, .. } => ensure(bytes.len() <= 4096, || {
            format!(
                "a message of {} octets, where 4096 were announced",
                bytes.len()
            )
        }),
    }
}

fn large_read(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let count = 64 << 10;
    let sink = link.sink(count + 100)?;
    let part = sink.part(33, u32::try_from(count).expect("it is small"));
    let (_, answer) = read_into(bed, &mut link, 1001, count, &[vec![part]])?;
    let length = usize::try_from(written(&answer, 0)?).unwrap_or(usize::MAX);
    let (memory, _) = link.take(sink)?;
    ensure(length == count, || {
        format!("{length} octets come back of {count}")
    })?;
    is_content(&memory[33..33 + length], 1001)
}

fn both_chunks(bed: &Bed) -> Tested {
    let files = bed.files()?;
    let mut link = bed.connect()?;
    let call = read(bed, files.file, 0, 9000);
    let (data, whole) = (link.sink(9000)?, link.sink(1024)?);
    let write = write_list(&[vec![data]]);
    let lists = [&write[..write.len() - 1], &reply_chunk(&[whole])[2..]].concat();
    let message = Bed::message(procedure::MSG, call.xid, &lists, &call.reduced);
    let answer = bed.ask(&mut link, &message)?;
    returned(&answer.message)?;
    ensure(written(&answer, 0)? == 9000, || {
        "the data is not in the Write chunk".to_owned()
    })?;
    let reply = stream(&mut link, &answer.message, whole)?;
    is_done(&reply, call.xid)?;
    is_content(&link.take(data)?.0, 0)
}

/// A WRITE and a READ through chunks in this version, on this connection.
pub(super) fn round_trip(bed: &Bed, link: &mut Link, version: Version) -> Tested {
    let files = bed.files()?;
    let data = content(bed.xid() as usize, 5003);
    let writing = call(bed, &write(files.scratch, &data));
    let source = link.source(&data)?;
    let lists = read_list(&[(writing.position, source)]);
    let message = Bed::message(procedure::MSG, writing.xid, &lists, &writing.reduced);
    let answer = bed.ask(link, &version.call(&message))?;
    is_done(&answer.message.payload, writing.xid)?;
    let reading = read(bed, files.scratch, 0, data.len());
    let sink = link.sink(data.len())?;
    let lists = write_list(&[vec![sink]]);
    let message = Bed::message(procedure::MSG, reading.xid, &lists, &reading.reduced);
    let answer = bed.ask(link, &version.call(&message))?;
    is_done(&answer.message.payload, reading.xid)?;
    ensure(link.take(sink)?.0 == data, || {
        "the data is another one".to_owned()
    })
}

/// The answer to a READ of so many octets with a Reply chunk: whether it is inline, and its length as a message.
pub(super) fn read_with_reply_chunk(
    bed: &Bed,
    link: &mut Link,
    version: Version,
    count: usize,
) -> Tested<(bool, usize)> {
    let call = read(bed, bed.files()?.file, 0, count);
    let sink = link.sink(count + 1024)?;
    let message = Bed::message(
        procedure::MSG,
        call.xid,
        &reply_chunk(&[sink]),
        &call.reduced,
    );
    let answer = bed.ask(link, &version.call(&message))?;
    ensure(answer.message.error() != Some(error::HEADER), || {
        "a READ with a Reply chunk is refused".to_owned()
    })?;
    let nomsg = answer.message.chunks()?.nomsg;
    let reply = stream(link, &answer.message, sink)?;
    is_content(&inline_data(&reply, call.xid, count)?, 0)?;
    Ok((!nomsg, answer.message.len))
}
