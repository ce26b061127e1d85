//! Chunks of a peer that a Responder pulls, fills and gives back.

use super::lone::*;
use super::*;
use crate::Pulls;
use crate::wire::header::{Lists, Segments, WriteChunk, procedure};
use oncrpc::Reply;
use oncrpc::xdr;
use smallvec::smallvec;
use verbs::{Completion, Handle, Memory, QueuePair, RemoteAddress, Segment, WorkRequest};

#[test]
fn padding_may_be_in_a_read_chunk_or_not() {
    in_each_version(|versions| {
        for extra in [0, 3] {
            let mut lone = Lone::server(versions);
            let mut data = bytes(5).to_vec();
            data.resize(5 + extra, 0);
            let at = lone
                .peer
                .register(Memory::Source(Gather::from_elem(Bytes::from(data), 1)))
                .expect("there is room");
            let message = call(5, 40, &[5]);
            let position = message.position(0) as u32;
            let mut reduced = Buffer::default();
            message.copy_reduced_into(&mut reduced, |_| true);
            // In segments of odd lengths.
            let mut rest = segment_at(at, 2 + extra as u32);
            rest.offset += 3;
            let lists = Lists {
                reads: vec![read_chunk(position, smallvec![segment_at(at, 3), rest])],
                ..Lists::default()
            };
            lone.send_lists(procedure::MSG, 5, &lists, &reduced);
            let (_, received) = lone.called();
            let mut r = xdr::Reader::from(&received);
            r.u32().expect("an XID");
            r.u32().expect("a direction");
            r.opaque(100).expect("the fixed part");
            assert_eq!(r.item(100).expect("the item").to_vec(), bytes(5));
            assert_eq!(r.u32(), Ok(0xfeed));
            r.finish().expect("nothing is left");
        }
    });
}

/// The peer offers memory for a reply; what comes back says how much of it was used.
#[test]
fn offered_chunks_come_back_with_what_was_written() {
    in_each_version(|versions| {
        let check = |answer: Payload,
                     write: &[u32],
                     long: &[u32],
                     writes_back: &[u32],
                     reply_back: &[u32]| {
            let mut lone = Lone::server(versions);
            let total: u32 = write.iter().chain(long).sum();
            let sink = Memory::Sink(Buffer::with_capacity(total.max(1) as usize));
            let at = lone.peer.register(sink).expect("there is room");
            let mut offset = at.offset;
            let mut chunk = |lengths: &[u32]| WriteChunk {
                segments: lengths
                    .iter()
                    .map(|&length| {
                        let mut segment = segment_at(at, length);
                        segment.offset = offset;
                        offset += u64::from(length);
                        segment
                    })
                    .collect(),
            };
            let lists_offered = Lists {
                reads: vec![],
                writes: vec![chunk(write)],
                reply: Some(chunk(long)),
            };
            let message = stream(&call(5, 4, &[]));
            lone.send_lists(procedure::MSG, 5, &lists_offered, &message);
            let (id, _) = lone.called();
            lone.end.connection.reply(id, Reply::Message(answer));
            let (header, _) = lone.receive().expect("the reply");
            let returned = lists(&header);
            let lengths = |chunk: &WriteChunk| -> Vec<u32> {
                chunk.segments.iter().map(|s| s.length).collect()
            };
            assert_eq!(lengths(&returned.writes[0]), writes_back);
            assert_eq!(lengths(&returned.reply.expect("it comes back")), reply_back);
            assert!(returned.reads.is_empty());
            assert_eq!(lone.end.connection.calls_in(), 0);
            assert_eq!(lone.peer.closed(), None);
        };
        // All of it inline: everything comes back unused, as for a READ of no bytes.
        check(reply(5, 4, &[]), &[100, 100], &[100], &[0, 0], &[0]);
        check(reply(5, 4, &[150]), &[100, 100], &[100], &[100, 50], &[0]);
        check(reply(5, 4, &[200]), &[100, 100], &[100], &[100, 100], &[0]);
        check(reply(5, 4, &[7]), &[0, 3, 100], &[100], &[0, 3, 4], &[0]);
        // An empty Write chunk asks for the result inline.
        check(reply(5, 4, &[7]), &[], &[100], &[], &[0]);
        // XID, direction, length and data; then the item's length, the trailer.
        check(
            reply(5, 8000, &[150]),
            &[200],
            &[8000, 100],
            &[150],
            &[8000, 20],
        );
        check(reply(5, 8000, &[]), &[200], &[10_000], &[0], &[8012]);
    });
}

#[test]
fn no_padding_is_written_behind_a_result() {
    in_each_version(|versions| {
        let mut lone = Lone::server(versions);
        // Its segment is longer than the memory, which ends with the result.
        let memory = Memory::Sink(Buffer::with_capacity(5).limited(5));
        let at = lone.peer.register(memory).expect("there is room");
        let segments = smallvec![segment_at(at, 8)];
        let offered = Lists {
            writes: vec![WriteChunk { segments }],
            ..Lists::default()
        };
        let message = stream(&call(5, 4, &[]));
        lone.send_lists(procedure::MSG, 5, &offered, &message);
        let (id, _) = lone.called();
        let reply = reply(5, 4, &[5]);
        lone.end.connection.reply(id, Reply::Message(reply));
        let (header, _) = lone.receive().expect("the reply");
        assert_eq!(lists(&header).writes[0].len(), 5);
        assert_eq!(lone.peer.closed(), None);
    });
}

/// Memory of the peer, in pieces with gaps between them, to be read as one chunk.
fn source(lone: &mut Lone, bytes: &[u8], lengths: &[usize]) -> Segments {
    let (mut memory, mut segments) = (Vec::new(), Segments::new());
    let mut bytes = bytes;
    let mut lengths = lengths.iter();
    while !bytes.is_empty() {
        let len = lengths.next().map_or(bytes.len(), |&len| len);
        let (piece, rest) = bytes.split_at(len.min(bytes.len()));
        memory.resize(memory.len() + 3, 0xee);
        segments.push(Segment {
            handle: Handle(0),
            length: piece.len() as u32,
            offset: memory.len() as u64,
        });
        memory.extend_from_slice(piece);
        bytes = rest;
    }
    let memory = Memory::Source(Gather::from_elem(Bytes::from(memory), 1));
    let at = lone.peer.register(memory).expect("there is room");
    for segment in &mut segments {
        segment.handle = at.handle;
        segment.offset += at.offset;
    }
    segments
}

/// The peer has items of a call, by index, in Read chunks of segments of these lengths, with their
/// padding or without, and the rest in a Send or at Position zero.
fn check_pulled(versions: Versions, moved: &[usize], lengths: &[usize], padding: bool, long: bool) {
    let message = call(5, 40, &[5, 2000, 7, 9001]);
    let mut lone = Lone::server(versions);
    let mut reads = Vec::new();
    for &index in moved {
        let mut data = message.items()[index].data.concat();
        if padding {
            data.resize(xdr::padded(data.len()), 0);
        }
        let segments = source(&mut lone, &data, lengths);
        reads.push(read_chunk(message.position(index) as u32, segments));
    }
    let mut rest = Buffer::default();
    message.copy_reduced_into(&mut rest, |index| moved.contains(&index));
    if long {
        let segments = source(&mut lone, &rest, lengths);
        // Where in the list it stands does not matter.
        reads.push(read_chunk(0, segments));
    }
    let lists = Lists {
        reads,
        ..Lists::default()
    };
    match long {
        true => lone.send_lists(procedure::NOMSG, 5, &lists, &[]),
        false => lone.send_lists(procedure::MSG, 5, &lists, &rest),
    }
    let (id, received) = lone.called();
    let mut r = xdr::Reader::from(&received);
    assert_eq!((r.u32(), r.u32()), (Ok(5), Ok(0)));
    assert_eq!(r.opaque(100), Ok(&super::bytes(40)[..]));
    for len in [5, 2000, 7, 9001] {
        let item = r.item(10_000).expect("the item");
        assert_eq!(item.to_vec(), super::bytes(len), "{moved:?} {lengths:?}");
        assert_eq!(r.u32(), Ok(0xfeed));
    }
    r.finish().expect("nothing is left");
    let chunks = lone.end.connection.counters().read_chunks_pulled;
    assert_eq!(chunks as usize, moved.len() + usize::from(long));
    let reply = reply(5, 4, &[]);
    lone.end.connection.reply(id, Reply::Message(reply));
    let (header, _) = lone.receive().expect("the reply");
    assert_eq!(super::lone::lists(&header), Lists::default());
}

#[test]
fn items_are_pulled_from_every_position_in_every_cut() {
    in_each_version(|versions| {
        let with_the_largest: &[&[usize]] = &[&[3], &[1, 3], &[0, 3], &[0, 1, 2, 3]];
        for lengths in [&[][..], &[1], &[1, 2, 3, 1001], &[2000, 1]] {
            for padding in [true, false] {
                for moved in with_the_largest {
                    check_pulled(versions, moved, lengths, padding, false);
                }
                // With the rest at Position zero any of them may move.
                for moved in [&[][..], &[0], &[2], &[1, 3], &[0, 1, 2, 3]] {
                    check_pulled(versions, moved, lengths, padding, true);
                }
            }
        }
    });
}

/// The peer offers Write chunks of these lengths and gets these results; what comes back is how
/// many bytes went to each chunk.
fn check_filled(versions: Versions, offered: &[&[u32]], results: &[usize], back: &[&[u32]]) {
    let mut lone = Lone::server(versions);
    let memory = Memory::Sink(Buffer::with_capacity(10_000));
    let RemoteAddress { handle, offset } = lone.peer.register(memory).expect("there is room");
    let mut offset = offset;
    let mut chunk = |lengths: &&[u32]| WriteChunk {
        segments: lengths
            .iter()
            .map(|&length| {
                let segment = Segment {
                    handle,
                    length,
                    offset,
                };
                offset += u64::from(length);
                segment
            })
            .collect(),
    };
    let lists_offered = Lists {
        writes: offered.iter().map(&mut chunk).collect(),
        ..Lists::default()
    };
    let message = stream(&call(5, 4, &[]));
    lone.send_lists(procedure::MSG, 5, &lists_offered, &message);
    let (id, _) = lone.called();
    lone.end
        .connection
        .reply(id, Reply::Message(reply(5, 4, results)));
    let (header, inline) = lone.receive().expect("the reply");
    let returned = lists(&header);
    let lengths: Vec<Vec<u32>> = returned
        .writes
        .iter()
        .map(|chunk| chunk.segments.iter().map(|s| s.length).collect())
        .collect();
    assert_eq!(lengths, back, "{offered:?} {results:?}");
    // What went to chunks is not inline, nor is its padding.
    let moved = |index: usize| offered.get(index).is_some_and(|chunk| !chunk.is_empty());
    let mut expected = Buffer::default();
    reply(5, 4, results).copy_reduced_into(&mut expected, moved);
    assert_eq!(inline, *expected, "{offered:?} {results:?}");
    assert_eq!(lone.peer.closed(), None);
}

#[test]
fn results_fill_chunks_in_order_and_the_others_come_back_unused() {
    in_each_version(|versions| {
        let check_filled = |offered: &[&[u32]], results: &[usize], back: &[&[u32]]| {
            check_filled(versions, offered, results, back);
        };
        // Exact, short, in odd segments.
        check_filled(&[&[5], &[100]], &[5, 99], &[&[5], &[99]]);
        check_filled(&[&[1, 2, 3], &[7, 7]], &[5, 9], &[&[1, 2, 2], &[7, 2]]);
        // Fewer results than chunks, and more.
        check_filled(&[&[5], &[6], &[7]], &[5], &[&[5], &[0], &[0]]);
        check_filled(&[&[5]], &[5, 30], &[&[5]]);
        check_filled(&[&[5], &[6]], &[], &[&[0], &[0]]);
        // An empty chunk wants its result inline, one without bytes leaves its chunk unused.
        check_filled(&[&[], &[6]], &[30, 6], &[&[], &[6]]);
        check_filled(&[&[5], &[6]], &[0, 6], &[&[0], &[6]]);
        check_filled(&[&[0, 0, 9]], &[4], &[&[0, 0, 4]]);
    });
}

#[test]
fn peer_that_hands_over_chunk_by_chunk_makes_no_progress_until_its_call_is_whole() {
    let mut connection = server().end.connection;
    let chunks = [12, 20, 28].map(|position| read_chunk(position, smallvec![segment(9, 8)]));
    let lists = Lists {
        reads: chunks.to_vec(),
        ..Lists::default()
    };
    for xid in [5, 6] {
        let message = stream(&call(xid, 40, &[]));
        arrive(
            &mut connection,
            wire(procedure::MSG, xid, 8, &lists, &message),
        );
    }
    let posts: Vec<_> = std::iter::from_fn(|| connection.poll_post()).collect();
    let reads = posts.into_iter().filter_map(|work| match work {
        WorkRequest::Read { wr, sink, .. } => Some((wr, sink)),
        _ => None,
    });
    let mut progress = Vec::new();
    for (wr, mut sink) in reads {
        sink.set_len(8);
        progress.push(connection.waits_for_chunks());
        connection.handle_completion(Completion::Read { wr, sink });
    }
    let expected = [0, 0, 0, 1, 1, 1].map(|done| Some(Pulls { begun: 2, done }));
    assert_eq!(progress, expected);
    assert_eq!(connection.waits_for_chunks(), None);
}
