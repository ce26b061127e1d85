//! A Requester and replies that may say anything.

use super::lone::*;
use super::*;
use oncrpc::xdr;

use crate::wire::header::{Lists, RdmaError, WriteChunk, procedure};
use oncrpc::TransportError;
use smallvec::smallvec;
use verbs::{Completion, QueuePair, WorkRequest, WrId};

/// Sends a call whose reply needs a Write chunk and a Reply chunk, and lets the peer answer with
/// what `make` makes of the lists that were offered.
fn answered(make: impl Fn(Lists) -> Vec<u8>) -> (Lone, Vec<u8>) {
    let mut lone = client();
    let asks = request(5, call(5, 40, &[]), bound(5000, &[10_000]));
    lone.call(asks.with_write_chunks_beside_reply_chunk());
    let (header, _) = lone.receive().expect("the call");
    let offered = lists(&header);
    assert!(!offered.writes.is_empty() && offered.reply.is_some());
    let bytes = make(offered);
    lone.send(&bytes, None);
    (lone, bytes)
}

#[test]
fn reply_that_breaks_a_rule_ends_its_call_and_nothing_else() {
    let check = |why: &str, make: &dyn Fn(Lists) -> Vec<u8>| {
        let (mut lone, _) = answered(make);
        match lone.ended() {
            Err(TransportError::BadReply(said)) => assert!(said.contains(why), "{said}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(lone.end.connection.exposed(), 0, "{why}");
        assert_eq!(lone.end.connection.violation(), None);
        assert_eq!(lone.end.connection.counters().bad_replies, 1);
    };
    check("another call", &|offered| {
        let other = stream(&reply(6, 40, &[]));
        wire(procedure::MSG, 5, 8, &unused(&offered), &other)
    });
    check("read list", &|offered| {
        let mut lists = unused(&offered);
        lists.reads.push(read_chunk(4, smallvec![segment(1, 1)]));
        inline(&lists)
    });
    check("more or fewer write chunks", &|offered| {
        let mut lists = unused(&offered);
        lists.writes.push(WriteChunk::default());
        inline(&lists)
    });
    check("more or fewer segments", &|offered| {
        let mut lists = unused(&offered);
        lists.writes[0].segments.push(segment(1, 0));
        inline(&lists)
    });
    check("more bytes", &|offered| {
        let mut lists = unused(&offered);
        lists.writes[0].segments[0].length = 10_001;
        inline(&lists)
    });
    check("memory that was not offered", &|offered| {
        let mut lists = unused(&offered);
        lists.writes[0].segments[0].length = 1;
        lists.writes[0].segments[0].handle.0 ^= 1;
        inline(&lists)
    });
    check("memory that was not offered", &|offered| {
        let mut lists = unused(&offered);
        lists.writes[0].segments[0].length = 1;
        lists.writes[0].segments[0].offset += 1;
        inline(&lists)
    });
    check("bytes in its reply chunk", &|offered| {
        let mut lists = unused(&offered);
        lists.reply = offered.reply.as_ref().map(|c| c.returned(8));
        inline(&lists)
    });
    check("without bytes", &|offered| {
        wire(procedure::NOMSG, 5, 8, &unused(&offered), &[])
    });
    // What is in our Reply chunk, nothing, is no reply to this call.
    check("in the reply chunk is for another call", &|offered| {
        let mut lists = unused(&offered);
        lists.reply = offered.reply.as_ref().map(|c| c.returned(40));
        wire(procedure::NOMSG, 5, 8, &lists, &[])
    });
}

#[test]
fn reply_that_is_not_valid_grants_nothing() {
    let granted = |valid: bool| {
        let (mut lone, _) = answered(|offered| {
            let mut lists = unused(&offered);
            if !valid {
                lists.reads.push(read_chunk(4, smallvec![segment(1, 1)]));
            }
            inline(&lists)
        });
        assert_eq!(lone.ended().is_ok(), valid);
        lone.end.connection.room()
    };
    assert_eq!(granted(true), 8);
    // RFC 8166 §3.3.3.
    assert_eq!(granted(false), 1);
}

/// Memory of the pool is larger than each of these chunks.
#[test]
fn server_that_writes_beyond_an_offered_chunk_is_refused() {
    let check = |of_reply: bool, beyond: usize| {
        let mut lone = client();
        let asks = request(5, call(5, 40, &[]), bound(5000, &[10_000]));
        lone.call(asks.with_write_chunks_beside_reply_chunk());
        let (header, _) = lone.receive().expect("the call");
        let mut offered = lists(&header);
        let chunk = match of_reply {
            true => offered.reply.take().expect("it is offered"),
            false => offered.writes.remove(0),
        };
        let last = *chunk.segments.last().expect("it has room");
        lone.write(&bytes(last.length as usize + beyond), last);
        lone.drive();
        lone.end.connection.violation().is_some() || lone.peer.closed().is_some()
    };
    for of_reply in [false, true] {
        assert!(!check(of_reply, 0), "all of it may be written");
        assert!(check(of_reply, 1));
    }
}

#[test]
fn chunk_that_was_not_offered_or_has_a_gap_is_a_bad_reply() {
    let mut config = config(Role::Client);
    config.max_segment = 4000;
    let check = |why: &str, change: &dyn Fn(&mut Lists)| {
        let mut lone = Lone::new(&config);
        lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
        let (header, _) = lone.receive().expect("the call");
        let mut lists = unused(&lists(&header));
        change(&mut lists);
        lone.send(&inline(&lists), None);
        match lone.ended() {
            Err(TransportError::BadReply(said)) => assert!(said.contains(why), "{said}"),
            other => panic!("{other:?}"),
        }
    };
    check("gap", &|lists| lists.writes[0].segments[1].length = 1);
    check("not offered", &|lists| {
        lists.reply = Some(WriteChunk::default());
    });
}

#[test]
fn errors_end_their_call() {
    let check = |kind, why: &str| {
        let (mut lone, _) = answered(|_| error(5, kind));
        match lone.ended() {
            Err(TransportError::Refused(said)) => assert!(said.contains(why), "{said}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(lone.end.connection.exposed(), 0);
        assert_eq!(lone.end.connection.counters().errors_received, 1);
    };
    check(RdmaError::Chunk, "ERR_CHUNK");
    check(RdmaError::Version { low: 2, high: 2 }, "ERR_VERS");
}

#[test]
fn what_is_no_valid_reply_is_discarded_and_the_call_goes_on() {
    let check = |bytes: &[u8]| {
        let (mut lone, _) = answered(|_| bytes.to_vec());
        assert!(lone.events.is_empty(), "{bytes:x?}");
        assert_eq!(lone.end.connection.exposed(), 2);
        assert!(
            !lone.end.connection.can_call(),
            "the credit is still in use"
        );
        assert!(lone.receive().is_none(), "a requester sends no errors");
        assert_eq!(lone.end.connection.violation(), None);
    };
    let none = Lists::default();
    check(&[1, 2, 3]);
    check(&wire(procedure::DONE, 5, 8, &none, &[]));
    check(&wire(procedure::MSGP, 5, 8, &none, &[]));
    check(&wire(procedure::NOMSG, 5, 8, &none, &[]));
    check(&wire(
        procedure::MSG,
        6,
        8,
        &none,
        &stream(&reply(6, 40, &[])),
    ));
}

#[test]
fn reply_is_delivered_only_when_nothing_is_exposed() {
    let mut lone = client();
    lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
    let (header, _) = lone.receive().expect("the call");
    let mut lists = unused(&lists(&header));
    lists.writes[0].segments[0].length = 3;
    lone.write(&bytes(3), lists.writes[0].segments[0]);
    let answer = reply(5, 40, &[3]);
    let mut reduced = Buffer::default();
    answer.copy_reduced_into(&mut reduced, |_| true);
    let send = WorkRequest::Send {
        wr: WrId(7),
        buffer: Buffer::from(wire(procedure::MSG, 5, 8, &lists, &reduced)),
        rest: Gather::new(),
        invalidate: None,
    };
    lone.peer.post(send).expect("there is room");
    lone.peer.progress();
    lone.end.qp.progress();
    while let Some(completion) = lone.end.qp.poll_cq() {
        lone.end.connection.handle_completion(completion);
    }
    // The reply is here, and its credit, but not its memory.
    assert!(lone.end.connection.poll_event().is_none());
    assert_eq!(lone.end.connection.exposed(), 1);
    assert!(lone.end.connection.can_call());
    lone.drive();
    check_reply(&lone.ended().expect("answered"), 5, 40, &[3]);
    assert_eq!(lone.end.connection.counters().local_invalidations, 1);
}

/// The reply is here and the connection ends before the handle of its Write chunk is dead.
#[test]
fn reply_that_needs_no_memory_is_not_lost_with_its_connection() {
    for result in [0, 3] {
        let mut lone = client();
        lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
        let (header, _) = lone.receive().expect("the call");
        let mut lists = unused(&lists(&header));
        lists.writes[0].segments[0].length = result;
        let mut connection = lone.end.connection;
        connection.handle_completion(Completion::Receive {
            wr: crate::work::Purpose::Receive.wr(),
            buffer: Buffer::from(inline(&lists)),
            invalidated: None,
        });
        assert!(connection.poll_event().is_none());
        match (connection.into_unfinished().pop(), result) {
            (Some(Unfinished::Ended(CallToken(5), Ok(answer))), 0) => {
                check_reply(&answer, 5, 40, &[]);
            }
            // What is in its memory is gone.
            (Some(Unfinished::Again(again)), 3) => assert_eq!(again.xid(), 5),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn call_with_the_xid_of_another_fails_and_is_in_nobodys_way() {
    let mut config = config(Role::Client);
    config.credits = 8;
    let mut lone = Lone::new(&config);
    lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
    lone.receive().expect("the call");
    lone.send(&inline(&Lists::default()), None);
    lone.ended().expect("answered");
    lone.call(request(6, call(6, 40, &[]), bound(100, &[])));
    let twin = request(6, call(6, 40, &[]), bound(100, &[]));
    let failed = lone.end.call(twin).expect_err("an XID in flight");
    assert_eq!(failed.error, TransportError::XidInUse(6));
    lone.call(request(7, call(7, 40, &[]), bound(100, &[])));
}

#[test]
fn as_many_calls_may_be_cancelled_as_there_are_credits() {
    let mut config = config(Role::Client);
    config.credits = 200;
    let mut lone = Lone::new(&config);
    lone.call(request(0, call(0, 40, &[]), bound(100, &[])));
    lone.receive().expect("the call");
    let answer = stream(&reply(0, 40, &[]));
    lone.send_stream(0, 200, &answer);
    lone.ended().expect("answered");
    for xid in 1..=200 {
        lone.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
        // It goes out.
        while lone.end.connection.poll_post().is_some() {}
        lone.end.cancel(CallToken(u64::from(xid)));
    }
    assert_eq!(lone.end.connection.violation(), None);
    assert_eq!(lone.end.connection.calls_out(), 200);
    assert!(!lone.end.connection.can_call());
}

/// RFC 8166 §6.1: the upper layer gets an error for it, and nothing else breaks.
#[test]
fn result_in_the_stream_though_its_chunk_is_unused_is_refused() {
    let read = |answer: &Payload| {
        let mut r = xdr::Reader::from(answer);
        r.u32().expect("an XID");
        r.u32().expect("a direction");
        r.opaque(100).expect("the fixed part");
        r.item(100).map(|item| item.to_vec())
    };
    let (mut lone, _) = answered(|offered| {
        let lists = unused(&offered);
        wire(procedure::MSG, 5, 8, &lists, &stream(&reply(5, 40, &[30])))
    });
    let answer = lone.ended().expect("the message is valid");
    assert_eq!(read(&answer), Err(xdr::Error::NotReduced));
    // The same in the Reply chunk.
    let mut lone = client();
    let asks = request(5, call(5, 40, &[]), bound(5000, &[10_000]));
    lone.call(asks.with_write_chunks_beside_reply_chunk());
    let (header, _) = lone.receive().expect("the call");
    let offered = lists(&header);
    let whole = stream(&reply(5, 40, &[30]));
    let room = offered.reply.as_ref().expect("offered");
    lone.write(&whole, room.segments[0]);
    let mut back = unused(&offered);
    back.reply = Some(room.returned(whole.len()));
    lone.send(&wire(procedure::NOMSG, 5, 8, &back, &[]), None);
    let answer = lone.ended().expect("the message is valid");
    assert_eq!(read(&answer), Err(xdr::Error::NotReduced));
    // Without an offer it belongs there.
    let mut lone = client();
    lone.call(request(5, call(5, 40, &[]), bound(100, &[30])));
    lone.receive().expect("the call");
    lone.send_stream(5, 8, &stream(&reply(5, 40, &[30])));
    let answer = lone.ended().expect("answered");
    assert_eq!(read(&answer), Ok(bytes(30).to_vec()));
}

/// Results that the reader gets from these Write chunks, of which so many bytes were written.
fn placed(filled: [usize; 3], results: &[usize]) -> Vec<Result<usize, xdr::Error>> {
    let mut config = config(Role::Client);
    config.max_segment = 1001;
    let mut lone = Lone::new(&config);
    lone.call(request(
        5,
        call(5, 40, &[]),
        bound(100, &[5000, 5000, 5000]),
    ));
    let (header, _) = lone.receive().expect("the call");
    let offered = lists(&header);
    assert_eq!(offered.writes.len(), 3);
    let mut back = unused(&offered);
    for (index, &len) in filled.iter().enumerate() {
        back.writes[index] = offered.writes[index].returned(len);
        let data = bytes(len);
        let mut at = 0;
        for segment in &back.writes[index].segments {
            let end = at + segment.length as usize;
            lone.write(&data[at..end], *segment);
            at = end;
        }
    }
    let mut stream = Buffer::default();
    reply(5, 4, results).copy_reduced_into(&mut stream, |_| true);
    lone.send(&wire(procedure::MSG, 5, 8, &back, &stream), None);
    let answer = lone.ended().expect("answered");
    let mut r = xdr::Reader::from(&answer);
    assert_eq!((r.u32(), r.u32()), (Ok(5), Ok(1)));
    r.opaque(100).expect("the fixed part");
    let read = |_| {
        let item = r.item(10_000)?;
        assert_eq!(item.to_vec(), bytes(item.len()));
        r.u32().map(|_| item.len())
    };
    results.iter().map(read).collect()
}

#[test]
fn results_are_found_in_whichever_chunks_they_went_to() {
    let all = [5000, 4999, 1];
    assert_eq!(placed(all, &all), all.map(Ok));
    assert_eq!(placed([5000, 0, 0], &[5000]), [Ok(5000)]);
    // A result without bytes has its chunk, or leaves it to the next.
    assert_eq!(placed([0, 77, 0], &[0, 77]), [Ok(0), Ok(77)]);
    assert_eq!(placed([77, 0, 0], &[0, 77]), [Ok(0), Ok(77)]);
    // One that says it is longer than what was written is not read.
    let shorter = xdr::Error::ItemLength { item: 76, len: 77 };
    assert_eq!(placed([76, 0, 0], &[77]), [Err(shorter)]);
}
