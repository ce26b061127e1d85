//! Chunks of a peer that a Responder pulls, fills and gives back.

use super::lone::*;
use super::*;
use crate::header::{Lists, WriteChunk, procedure};
use oncrpc::Reply;
use smallvec::smallvec;
use verbs::{Memory, QueuePair};

#[test]
fn padding_may_be_in_a_read_chunk_or_not() {
    for extra in [0, 3] {
        let mut lone = server();
        let mut data = octets(5).to_vec();
        data.resize(5 + extra, 0);
        let handle = lone
            .peer
            .register(Memory::Source(Gather::from_elem(Bytes::from(data), 1)))
            .expect("there is room");
        let message = call(5, 40, &[5]);
        let position = message.position(0) as u32;
        let mut reduced = Buffer::default();
        message.copy_reduced_into(&mut reduced, |_| true);
        // In segments of odd lengths.
        let mut rest = segment(handle.0, 2 + extra as u32);
        rest.offset = 3;
        let lists = Lists {
            reads: vec![read_chunk(position, smallvec![segment(handle.0, 3), rest])],
            ..Lists::default()
        };
        lone.send(&wire(procedure::MSG, 5, 8, &lists, &reduced), None);
        let (_, received) = lone.called();
        let mut r = xdr::Reader::from(&received);
        r.u32().expect("an XID");
        r.u32().expect("a direction");
        r.opaque(100).expect("the fixed part");
        assert_eq!(r.item(100).expect("the item").to_vec(), octets(5));
        assert_eq!(r.u32(), Ok(0xfeed));
        r.finish().expect("nothing is left");
    }
}

/// The peer offers memory for a reply; what comes back says how much of it was used.
#[test]
fn offered_chunks_come_back_with_what_was_written() {
    let check =
        |answer: Payload, write: &[u32], long: &[u32], writes_back: &[u32], reply_back: &[u32]| {
            let mut lone = server();
            let total: u32 = write.iter().chain(long).sum();
            let sink = Memory::Sink(Buffer::with_capacity(total.max(1) as usize));
            let handle = lone.peer.register(sink).expect("there is room");
            let mut offset = 0;
            let mut chunk = |lengths: &[u32]| WriteChunk {
                segments: lengths
                    .iter()
                    .map(|&length| {
                        let mut segment = segment(handle.0, length);
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
            lone.send(
                &wire(
                    procedure::MSG,
                    5,
                    8,
                    &lists_offered,
                    &stream(&call(5, 4, &[])),
                ),
                None,
            );
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
    // All of it inline: everything comes back unused, as for a READ of no octets.
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
}
