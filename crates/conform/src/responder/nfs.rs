//! Data of NFS version 3 in chunks (RFC 8267 §4, RFC 8166 §3.4 to §4.3), with files of the peer.

use super::read_chunks::read_list;
use super::reply_chunks::{reply_chunk, returned, stream};
use super::results::{inline_data, is_done, read_data, written_by};
use super::write_chunks::{come_back, write_list};
use crate::as_words;
use crate::bed::{Answer, Bed};
use crate::case::Case;
use crate::fixture::{FILE_SIZE, LINK_TEXT, content};
use crate::header::{Version, error, procedure};
use crate::link::{Heard, Link, UNTOUCHED};
use crate::message::{Chunk, Segment, chunk_len};
use crate::verdict::Level::{Must, Robustness, Should};
use crate::verdict::{Tested, ensure, fail, skip};
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
    let count = written_by(&answer.message.payload, call.xid, length)?;
    is_in_the_file(bed, &mut link, Version::One, &data[..count])
}

/// Most READs that look for data in the file. A server that gives little at a time has shown enough with them.
const MAX_READS: usize = 16;

/// READs give what was written.
fn is_in_the_file(bed: &Bed, link: &mut Link, version: Version, data: &[u8]) -> Tested {
    let file = bed.files()?.scratch;
    let mut rest = data;
    for _ in 0..MAX_READS {
        if rest.is_empty() {
            break;
        }
        let sink = link.sink(rest.len())?;
        let call = read(bed, file, data.len() - rest.len(), rest.len());
        let lists = write_list(&[vec![sink]]);
        let message = Bed::message(procedure::MSG, call.xid, &lists, &call.reduced);
        let answer = bed.ask(link, &version.call(&message))?;
        let length = read_data(&answer.message.payload, call.xid, rest.len())?.length;
        let (memory, _) = link.take(sink)?;
        let (read, behind) = rest.split_at(length);
        ensure(memory.starts_with(read), || {
            "the file has not the data that was written".to_owned()
        })?;
        rest = behind;
    }
    Ok(())
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
    let count = written_by(&answer.message.payload, call.xid, data.len())?;
    is_in_the_file(bed, &mut link, Version::One, &data[..count])
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

/// A READ with these Write chunks, which must be done: the answer to it, and the octets that it gives.
fn read_into(
    bed: &Bed,
    link: &mut Link,
    offset: usize,
    count: usize,
    chunks: &[Chunk],
) -> Tested<(Answer, usize)> {
    let (xid, answer) = ask_to_read(bed, link, (offset, count), chunks)?;
    let length = read_data(&answer.message.payload, xid, count)?.length;
    Ok((answer, length))
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
    let (xid, answer) = ask_to_read(bed, &mut link, (100, 1024), &[vec![sink]])?;
    let reply = &answer.message.payload;
    let data = read_data(reply, xid, 1024)?;
    ensure(data.begin == reply.len(), || {
        "the reply does not end with the count of the data, as it is reduced".to_owned()
    })?;
    is_content(&link.take(sink)?.0[..data.length], 100)
}

fn chunk_has_the_length_of_the_data(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    for count in [1, 1000, 1021, 4096] {
        let sink = link.sink(8192)?;
        let (answer, length) = read_into(bed, &mut link, 0, count, &[vec![sink]])?;
        let written = written(&answer, 0)?;
        ensure(written == length as u64, || {
            format!("the chunk comes back with {written} octets, and the data has {length}")
        })?;
    }
    Ok(())
}

fn no_roundup_written(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    // A READ may give fewer octets, and these may need no roundup: a single one does.
    for count in [1021, 5, 1] {
        let sink = link.sink(1024)?;
        let (answer, length) = read_into(bed, &mut link, 0, count, &[vec![sink]])?;
        ensure(written(&answer, 0)? == length as u64, || {
            format!("not {length} octets come back")
        })?;
        let (memory, _) = link.take(sink)?;
        is_content(&memory[..length], 0)?;
        let roundup = &memory[length..length.next_multiple_of(4)];
        ensure(roundup.iter().all(|octet| *octet == UNTOUCHED), || {
            "octets behind the data were written".to_owned()
        })?;
    }
    Ok(())
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
    let (answer, length) = read_into(bed, &mut link, 7, 4096, &chunks)?;
    come_back(&answer, &chunks)?;
    let mut data = Vec::new();
    for sink in sinks {
        data.extend(link.take(sink)?.0);
    }
    is_content(&data[..length], 7)
}

fn short_read(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let sink = link.sink(4096)?;
    let segments = [
        sink.part(0, 1024),
        sink.part(1024, 1024),
        sink.part(2048, 2048),
    ];
    let chunks = [segments.to_vec()];
    // The file ends 1500 octets behind.
    let (answer, length) = read_into(bed, &mut link, FILE_SIZE - 1500, 4096, &chunks)?;
    ensure(length <= 1500, || {
        format!("{length} octets come of the last 1500")
    })?;
    come_back(&answer, &chunks)?;
    let lengths = answer.message.chunks()?.writes[0].iter();
    let lengths: Vec<u32> = lengths.map(|segment| segment.length).collect();
    let mut left = u32::try_from(length).expect("it is small");
    let due = segments.map(|segment| {
        let filled = segment.length.min(left);
        left -= filled;
        filled
    });
    ensure(lengths == due, || {
        format!("the lengths are {lengths:?}, and {due:?} is due")
    })?;
    is_content(&link.take(sink)?.0[..length], FILE_SIZE - 1500)
}

fn two_chunks(bed: &Bed) -> Tested {
    bed.files()?;
    let mut link = bed.connect()?;
    let (one, other) = (link.sink(2048)?, link.sink(2048)?);
    let (answer, length) = read_into(bed, &mut link, 0, 1024, &[vec![one], vec![other]])?;
    let lengths = (written(&answer, 0)?, written(&answer, 1)?);
    ensure(lengths == (length as u64, 0), || {
        format!("the chunks have {lengths:?} octets, and the data {length}")
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
        let (xid, answer) = ask_to_read(bed, &mut link, (0, count), &[])?;
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

/// The data of a READ of so many octets whose reply is in the Reply chunk, with its roundup. A READ that gives fewer may
/// have a reply that fits a message, which may be inline (RFC 8166 §4.3.3).
fn in_the_reply_chunk(bed: &Bed, count: usize) -> Tested<Vec<u8>> {
    let mut link = bed.connect()?;
    let (xid, answer, sink) = read_long(bed, &mut link, count)?;
    let nomsg = answer.message.chunks()?.nomsg;
    let reply = stream(&mut link, &answer.message, sink)?;
    let data = inline_data(&reply, xid, count)?;
    if !nomsg && data.len() < count && answer.message.len <= 4096 {
        return skip(format!(
            "a READ of {count} octets gives {}, which need no Reply chunk",
            data.len()
        ));
    }
    ensure(nomsg, || "it is not RDMA_NOMSG".to_owned())?;
    Ok(data)
}

fn long_reply(bed: &Bed) -> Tested {
    bed.files()?;
    is_content(&in_the_reply_chunk(bed, 9000)?, 0)
}

fn long_reply_has_roundup(bed: &Bed) -> Tested {
    bed.files()?;
    let data = in_the_reply_chunk(bed, 9001)?;
    is_content(&data, 0)?;
    match data.len() % 4 {
        0 => skip("a READ of 9001 octets gives fewer, which need no roundup"),
        _ => Ok(()),
    }
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
    let (answer, length) = read_into(bed, &mut link, 1001, count, &[vec![part]])?;
    let written = written(&answer, 0)?;
    let (memory, _) = link.take(sink)?;
    ensure(written == length as u64, || {
        format!("the chunk comes back with {written} octets, and the data has {length}")
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
    let written = written(&answer, 0)?;
    let reply = stream(&mut link, &answer.message, whole)?;
    let length = read_data(&reply, call.xid, 9000)?.length;
    ensure(written == length as u64, || {
        "the data is not in the Write chunk".to_owned()
    })?;
    is_content(&link.take(data)?.0[..length], 0)
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
    let count = written_by(&answer.message.payload, writing.xid, data.len())?;
    is_in_the_file(bed, link, version, &data[..count])
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
