//! Read chunks of a call: validation before they are pulled, reassembly afterwards.

use crate::wire::direction::{PREFIX_LEN, prefix};
use crate::wire::header::{Malformation, ReadChunk};
use buffer::{Buffer, Gather};
use oncrpc::xdr::{Item, Payload, padded};

/// Place of the stream of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamAt {
    /// In the Send, from this offset on.
    Message(usize),
    /// In the first Read chunk, which is at Position zero.
    FirstChunk,
}

/// Validates the Read chunks of a call, sorts them by Position, and removes empty ones.
///
/// `stream` is the place of the stream, with the number of its inline bytes.
pub(crate) fn check(
    reads: &mut Vec<ReadChunk>,
    at: StreamAt,
    inline: usize,
    max_chunk: usize,
) -> Result<(), Malformation> {
    reads.sort_unstable_by_key(|chunk| chunk.position);
    // All together, so that the number of chunks does not multiply what one call may take.
    let all: u64 = reads.iter().map(ReadChunk::len).sum();
    if all > max_chunk as u64 {
        return Err(Malformation::ChunkTooLarge {
            len: all,
            limit: max_chunk,
        });
    }
    let long = matches!(reads.first(), Some(first) if first.position == 0);
    let (head, items) = match at {
        // RFC 8166 §4.5.2: the stream is in one place.
        StreamAt::Message(_) if long => return Err(Malformation::NoStream),
        StreamAt::Message(_) => (inline, 0),
        StreamAt::FirstChunk if long && !reads[0].is_empty() => (len(&reads[0]), 1),
        StreamAt::FirstChunk => return Err(Malformation::NoStream),
    };
    reads.retain(|chunk| !chunk.is_empty());
    // What says which message this is cannot be in an item of it.
    let first = PREFIX_LEN;
    let (mut before, mut end) = (0, 0);
    for chunk in &reads[items..] {
        // RFC 8166 §3.4.5: a Position is an offset in the whole stream, in which the items before
        // it have their bytes and their padding.
        let position = chunk.position as usize;
        if position < first || position < end || position - before > head {
            return Err(Malformation::MisplacedChunk(chunk.position));
        }
        end = position + padded(len(chunk));
        before += padded(len(chunk));
    }
    Ok(())
}

/// Returns the bytes of a chunk that is within the limit.
fn len(chunk: &ReadChunk) -> usize {
    usize::try_from(chunk.len()).unwrap_or(usize::MAX)
}

/// Assembles the call from the message and its pulled chunks.
pub(crate) fn assemble(
    xid: u32,
    message: Buffer,
    at: StreamAt,
    chunks: impl Iterator<Item = (u32, Buffer)>,
) -> Result<Payload, Malformation> {
    let mut chunks = chunks.peekable();
    let (head, start) = match at {
        StreamAt::Message(start) => (message, start),
        StreamAt::FirstChunk => {
            let (_, sink) = chunks.next().expect("a long call has its first chunk");
            (sink, 0)
        }
    };
    match prefix(&head[start..]) {
        Some((found, _)) if found == xid => {}
        _ => return Err(Malformation::XidMismatch),
    }
    if chunks.peek().is_none() {
        return Ok(Payload::new(head, start));
    }
    let mut before = 0;
    let items = chunks.map(|(position, sink)| {
        let at = position as usize - before;
        before += padded(sink.len());
        Item {
            at,
            data: Gather::from_elem(sink.freeze(), 1),
        }
    });
    let items = items.collect();
    Ok(Payload::with_items(head, start, items))
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{Handle, Segment};

    fn chunk(position: u32, lengths: &[u32]) -> ReadChunk {
        let segment = |&length: &u32| Segment {
            handle: Handle(1),
            length,
            offset: 0,
        };
        ReadChunk {
            position,
            segments: lengths.iter().map(segment).collect(),
        }
    }

    #[test]
    fn chunks_stand_in_the_stream_without_overlap() {
        let inline = StreamAt::Message(28);
        let misplaced = |position| Err(Malformation::MisplacedChunk(position));
        let check = |chunks: &[ReadChunk], at, bytes, expected| {
            let mut reads = chunks.into();
            assert_eq!(
                super::check(&mut reads, at, bytes, 1000),
                expected,
                "{chunks:?}"
            );
        };
        check(&[], inline, 40, Ok(()));
        check(&[chunk(40, &[5])], inline, 40, Ok(()));
        check(&[chunk(44, &[5])], inline, 40, misplaced(44));
        check(&[chunk(8, &[5])], inline, 40, Ok(()));
        check(&[chunk(4, &[5])], inline, 40, misplaced(4));
        check(&[chunk(20, &[5]), chunk(28, &[4])], inline, 40, Ok(()));
        check(
            &[chunk(20, &[5]), chunk(24, &[4])],
            inline,
            40,
            misplaced(24),
        );
        check(
            &[chunk(20, &[5]), chunk(52, &[4])],
            inline,
            40,
            misplaced(52),
        );
        check(&[chunk(20, &[5]), chunk(48, &[4])], inline, 40, Ok(()));
        check(&[chunk(0, &[5])], inline, 40, Err(Malformation::NoStream));
        let long = StreamAt::FirstChunk;
        check(&[], long, 0, Err(Malformation::NoStream));
        check(&[chunk(0, &[0])], long, 0, Err(Malformation::NoStream));
        check(&[chunk(4, &[8])], long, 0, Err(Malformation::NoStream));
        check(&[chunk(0, &[40])], long, 0, Ok(()));
        check(&[chunk(0, &[30, 10]), chunk(40, &[5])], long, 0, Ok(()));
        check(&[chunk(0, &[40]), chunk(44, &[5])], long, 0, misplaced(44));
    }

    #[test]
    fn chunk_one_past_the_limit_is_refused_before_it_is_pulled() {
        let check = |lengths: &[u32], expected| {
            let mut reads = vec![chunk(8, lengths)];
            assert_eq!(
                super::check(&mut reads, StreamAt::Message(0), 8, 1000),
                expected
            );
        };
        check(&[1000], Ok(()));
        check(&[999, 1], Ok(()));
        let too_large = |len| Err(Malformation::ChunkTooLarge { len, limit: 1000 });
        check(&[1000, 1], too_large(1001));
        check(&[u32::MAX, u32::MAX], too_large(2 * u64::from(u32::MAX)));
    }

    #[test]
    fn empty_chunks_are_forgotten() {
        let mut reads = vec![chunk(8, &[0, 0]), chunk(12, &[4])];
        super::check(&mut reads, StreamAt::Message(0), 12, 1000).expect("valid");
        assert_eq!(reads.as_slice(), [chunk(12, &[4])]);
    }

    #[test]
    fn items_are_put_where_they_were() {
        let sink = |bytes: &[u8]| Buffer::from(bytes.to_vec());
        let mut head = vec![0; 28];
        head.extend_from_slice(b"\0\0\0\x07\0\0\0\0\0\0\0\x05\0\0\0\x03last");
        let chunks = [(12, sink(b"abcde")), (24, sink(b"fgh\0"))];
        let call = assemble(
            7,
            Buffer::from(head),
            StreamAt::Message(28),
            chunks.into_iter(),
        )
        .expect("valid");
        let mut whole = Buffer::default();
        call.copy_stream_into(&mut whole);
        assert_eq!(
            &*whole,
            b"\0\0\0\x07\0\0\0\0\0\0\0\x05abcde\0\0\0\0\0\0\x03fgh\0last"
        );
    }

    #[test]
    fn stream_of_another_transaction_is_refused() {
        let head = Buffer::from(b"\0\0\0\x07\0\0\0\0".to_vec());
        let none = std::iter::empty();
        let result = assemble(8, head, StreamAt::Message(0), none);
        assert_eq!(result.err(), Some(Malformation::XidMismatch));
    }
}
