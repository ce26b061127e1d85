//! The transport header of version one (RFC 8166 §4).

use crate::memory::within;
use crate::script::Script;
use buffer::Buffer;
use rpcrdma_proto::header::{
    self, Body, Disposition, Header, HeaderError, HeaderView, Lists, ListsView, MIN_LEN, RdmaError,
    VERSION, procedure,
};
use rpcrdma_proto::limits::{
    MAX_READ_CHUNKS, MAX_READ_SEGMENTS, MAX_SEGMENTS_PER_CHUNK, MAX_WRITE_CHUNKS,
};

/// A chunk is made of at least eight bytes, and lists grow by half.
pub(crate) const MEMORY_PER_BYTE: usize = 32;
pub(crate) const MEMORY: usize = 4 << 10;

/// A received message.
pub fn rpcrdma_header(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let message = &script.rest_or(made_up);
    let most = MEMORY + MEMORY_PER_BYTE * message.len();
    match within(most, || Header::parse(message)) {
        Ok((header, at)) => valid(message, &header, at),
        Err(error) => invalid(message, error),
    }
    within(most, || {
        ListsView::new(message.get(HeaderView::FIXED_LEN..).unwrap_or(&[]))
    });
}

/// A header with lists as the script has them, to its end.
pub(crate) fn made_up(script: &mut Script<'_>) -> Vec<u8> {
    let mut words = vec![script.word(), script.pick(&[1, 1, 1, 1, 1, 1, 1, 2])];
    words.extend([script.number(), script.pick(&[0, 0, 0, 1, 1, 2, 3, 4])]);
    made_up_lists(script, &mut words);
    bytes(&words)
}

/// Lists as the script has them, to its end.
pub(crate) fn made_up_lists(script: &mut Script<'_>, words: &mut Vec<u32>) {
    while !script.is_over() {
        match script.byte() {
            0..64 => words.push(0),
            64..128 => words.push(1),
            128..192 => words.push(script.number() & !3),
            192..208 => words.extend([
                1,
                script.number() & !3,
                script.word(),
                script.number(),
                0,
                0,
            ]),
            208..224 => words.extend([1, 1, script.word(), script.number(), 0, script.number()]),
            224..240 => {
                let count = script.number() % 300;
                let repeated = [script.word(), script.number(), 0, 0];
                words.extend([1, count]);
                words.extend(repeated.repeat(count as usize));
            }
            240.. => words.push(script.number()),
        }
    }
}

/// Words as they are on the wire.
pub(crate) fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn valid(message: &[u8], header: &Header, at: usize) {
    assert!(at <= message.len());
    let view = HeaderView::new(message).expect("a valid header has its fixed words");
    assert_eq!((view.xid(), view.credits()), (header.xid, header.credits));
    assert_eq!(view.version(), VERSION);
    let mut emitted = Buffer::default();
    match &header.body {
        Body::Msg(lists) | Body::NoMsg(lists) => {
            within_limits(lists);
            agree(lists, &ListsView::new(&message[HeaderView::FIXED_LEN..]));
            header::emit(
                &mut emitted,
                view.procedure(),
                header.xid,
                header.credits,
                lists,
            );
            assert_eq!(emitted.len(), at, "as many bytes as it was read from");
            let reads = lists.reads.iter().map(|chunk| chunk.segments.len()).sum();
            let writes = lists.writes.iter().map(|chunk| chunk.segments.len());
            let reply = lists.reply.as_ref().map(|chunk| chunk.segments.len());
            assert_eq!(header::emitted_len(reads, writes, reply), at);
            returned(lists, view.credits() as usize);
        }
        Body::Error(error) => {
            header::emit_error(&mut emitted, header.xid, VERSION, header.credits, *error);
        }
        Body::Done => {
            assert_eq!(view.procedure(), procedure::DONE);
            return;
        }
    }
    let (again, end) = Header::parse(&emitted).expect("what we send is valid");
    assert_eq!((&again, end), (header, emitted.len()));
}

pub(crate) fn within_limits(lists: &Lists) {
    assert!(lists.reads.len() <= MAX_READ_CHUNKS);
    let read_segments: usize = lists.reads.iter().map(|chunk| chunk.segments.len()).sum();
    assert!(read_segments <= MAX_READ_SEGMENTS);
    assert!(lists.writes.len() <= MAX_WRITE_CHUNKS);
    for chunk in lists.writes.iter().chain(&lists.reply) {
        assert!(chunk.segments.len() <= MAX_SEGMENTS_PER_CHUNK);
    }
    let mut positions: Vec<u32> = lists.reads.iter().map(|chunk| chunk.position).collect();
    positions.sort_unstable();
    assert!(
        positions.is_sorted_by(|a, b| a < b),
        "one chunk for each position"
    );
    assert!(
        lists
            .reads
            .iter()
            .all(|chunk| chunk.position.is_multiple_of(4))
    );
}

/// The view of the decoder reads the same.
pub(crate) fn agree(lists: &Lists, view: &ListsView) {
    assert_eq!(view.error, None);
    let reads: usize = lists.reads.iter().map(|chunk| chunk.segments.len()).sum();
    assert_eq!(view.reads.len(), reads);
    assert_eq!(view.writes.len(), lists.writes.len());
    for (seen, chunk) in view.writes.iter().zip(&lists.writes) {
        assert_eq!(seen.segments.as_slice(), chunk.segments.as_slice());
    }
    assert_eq!(view.reply.is_some(), lists.reply.is_some());
}

/// RFC 8166 §4.3.2.2: what is returned is the same chunk with what was written.
fn returned(lists: &Lists, filled: usize) {
    for chunk in lists.writes.iter().chain(&lists.reply) {
        let returned = chunk.returned(filled);
        assert_eq!(returned.segments.len(), chunk.segments.len());
        assert_eq!(returned.len(), chunk.len().min(filled as u64));
    }
}

fn invalid(message: &[u8], error: HeaderError) {
    let xid = HeaderView::new(message).map(HeaderView::xid);
    match error.disposition() {
        Disposition::Discard => {}
        Disposition::ErrVers {
            xid: echoed,
            version,
            ..
        } => {
            assert_eq!(Some(echoed), xid);
            assert_ne!(version, VERSION);
            assert!(message.len() >= MIN_LEN);
        }
        Disposition::ErrChunk { xid: echoed, .. } => {
            assert_eq!(Some(echoed), xid);
            assert!(message.len() >= MIN_LEN);
        }
    }
    // What is owed can be read by whoever it is for.
    let mut emitted = Buffer::default();
    header::emit_error(&mut emitted, 7, VERSION, 1, RdmaError::Chunk);
    assert!(Header::parse(&emitted).is_ok());
}
