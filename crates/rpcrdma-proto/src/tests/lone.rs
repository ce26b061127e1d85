//! One connection against a peer that is driven by hand, and may do anything.

use super::pair::End;
use super::*;
use crate::header::{Body, Header, Lists, RdmaError, ReadChunk, Segments, WriteChunk, procedure};
use crate::{CallId, Called, Event, Violation, header};
use oncrpc::{Reply, TransportError};
use smallvec::smallvec;
use std::time::Instant;
use verbs::{Completion, Handle, Limits, Memory, QueuePair, Segment, WorkRequest, WrId};
use verbs_sim::{EndOptions, Fabric, PairOptions, SimQp};

/// The connection under test, and its peer.
struct Lone {
    end: End,
    peer: SimQp,
    events: Vec<Event>,
}

impl Lone {
    fn new(config: &Config) -> Self {
        Self::with(config, |_| {})
    }

    fn with(config: &Config, limits: impl Fn(&mut Limits)) -> Self {
        let mut options = PairOptions::both(EndOptions::default());
        limits(&mut options.left.limits);
        let (left, mut peer) = Fabric::new(3).pair(&options);
        for i in 0..100 {
            let receive = WorkRequest::Receive {
                wr: WrId(i),
                buffer: Buffer::with_capacity(4096),
            };
            peer.post(receive).expect("there is room for receives");
        }
        Self {
            end: End::new(left, config, Some(config.own)),
            peer,
            events: Vec::new(),
        }
    }

    fn drive(&mut self) {
        while self.end.turn() | self.peer.progress() {
            while let Some(event) = self.end.connection.poll_event() {
                self.events.push(event);
            }
        }
    }

    /// What the peer receives next: header and stream.
    fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        self.drive();
        while let Some(completion) = self.peer.poll_cq() {
            if let Completion::Receive { buffer, .. } = completion {
                let (header, at) = Header::parse(&buffer).expect("we send valid headers");
                return Some((header, buffer[at..].to_vec()));
            }
        }
        None
    }

    /// The peer sends octets, and may invalidate a handle with them.
    fn send(&mut self, octets: &[u8], invalidate: Option<Handle>) {
        let send = WorkRequest::Send {
            wr: WrId(1000),
            buffer: Buffer::from(octets.to_vec()),
            rest: Gather::new(),
            invalidate,
        };
        self.peer.post(send).expect("there is room");
        self.drive();
    }

    /// The peer writes into memory it was offered.
    fn write(&mut self, octets: &[u8], to: Segment) {
        let write = WorkRequest::Write {
            wr: WrId(1001),
            source: Gather::from_elem(Bytes::copy_from_slice(octets), 1),
            to: to.address(),
        };
        self.peer.post(write).expect("there is room");
    }

    fn call(&mut self, request: CallRequest) {
        let end = &mut self.end;
        let called = end.connection.call(Instant::now(), request, &mut end.qp);
        assert!(matches!(called, Called::Sent), "{called:?}");
    }

    /// The end of the one call of ours.
    fn ended(&mut self) -> Result<Payload, TransportError> {
        match self.events.pop() {
            Some(Event::Reply { reply, .. }) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// The one call of the peer.
    fn called(&mut self) -> (CallId, Payload) {
        match self.events.pop() {
            Some(Event::Call { id, message }) => (id, message),
            other => panic!("{other:?}"),
        }
    }
}

fn client() -> Lone {
    Lone::new(&config(Role::Client))
}

fn server() -> Lone {
    Lone::new(&config(Role::Server))
}

/// A message on the wire.
fn wire(proc: u32, xid: u32, credits: u32, lists: &Lists, stream: &[u8]) -> Vec<u8> {
    let mut out = Buffer::default();
    header::emit(&mut out, proc, xid, credits, lists);
    out.extend_from_slice(stream);
    out.to_vec()
}

fn error(xid: u32, error: RdmaError) -> Vec<u8> {
    let mut out = Buffer::default();
    header::emit_error(&mut out, xid, 1, 8, error);
    out.to_vec()
}

fn lists(header: &Header) -> Lists {
    match &header.body {
        Body::Msg(lists) | Body::NoMsg(lists) => lists.clone(),
        Body::Done | Body::Error(_) => panic!("a message"),
    }
}

fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle: Handle(handle),
        length,
        offset: 0,
    }
}

fn read_chunk(position: u32, segments: Segments) -> ReadChunk {
    ReadChunk { position, segments }
}

/// Sends a call whose reply needs a Write chunk and a Reply chunk, and lets the peer answer with
/// what `make` makes of the lists that were offered.
fn answered(make: impl Fn(Lists) -> Vec<u8>) -> (Lone, Vec<u8>) {
    let mut lone = client();
    lone.call(request(5, call(5, 40, &[]), bound(5000, &[10_000])));
    let (header, _) = lone.receive().expect("the call");
    let offered = lists(&header);
    assert!(!offered.writes.is_empty() && offered.reply.is_some());
    let octets = make(offered);
    lone.send(&octets, None);
    (lone, octets)
}

fn unused(offered: &Lists) -> Lists {
    Lists {
        reads: vec![],
        writes: offered.writes.iter().map(|c| c.returned(0)).collect(),
        reply: offered.reply.as_ref().map(|c| c.returned(0)),
    }
}

fn inline(lists: &Lists) -> Vec<u8> {
    wire(procedure::MSG, 5, 8, lists, &stream(&reply(5, 40, &[])))
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
    check("more octets", &|offered| {
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
    check("octets in its reply chunk", &|offered| {
        let mut lists = unused(&offered);
        lists.reply = offered.reply.as_ref().map(|c| c.returned(8));
        inline(&lists)
    });
    check("without octets", &|offered| {
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
    let check = |octets: &[u8]| {
        let (mut lone, _) = answered(|_| octets.to_vec());
        assert!(lone.events.is_empty(), "{octets:x?}");
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
    lone.write(&octets(3), lists.writes[0].segments[0]);
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
fn handle_of_the_call_may_be_invalidated_whatever_the_peer_said_of_itself() {
    for peer_sets_r in [true, false] {
        let mut lone = client();
        if !peer_sets_r {
            let peer = PrivateData::ABSENT;
            let limits = lone.end.qp.limits().clone();
            lone.end.connection =
                crate::Connection::new(&config(Role::Client), Some(peer), &limits);
        }
        lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
        let (header, _) = lone.receive().expect("the call");
        let lists = unused(&lists(&header));
        lone.send(&inline(&lists), Some(lists.writes[0].segments[0].handle));
        check_reply(&lone.ended().expect("answered"), 5, 40, &[]);
        let counters = lone.end.connection.counters();
        assert_eq!(counters.remote_invalidations, 1);
        assert_eq!(counters.local_invalidations, 0);
        assert_eq!(
            counters.remote_invalidations_without_r,
            u64::from(!peer_sets_r)
        );
    }
}

#[test]
fn handle_of_another_call_must_not_be_invalidated() {
    let mut lone = client();
    lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
    lone.receive().expect("the call");
    lone.send(&inline(&Lists::default()), None);
    lone.ended().expect("answered");
    lone.call(request(6, call(6, 40, &[]), bound(100, &[10_000])));
    lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
    let (header, _) = lone.receive().expect("the first call");
    let foreign = lists(&header).writes[0].segments[0].handle;
    let (header, _) = lone.receive().expect("the second call");
    lone.send(&inline(&unused(&lists(&header))), Some(foreign));
    let violation = lone.end.connection.violation();
    assert_eq!(violation, Some(Violation::ForeignHandle(foreign)));
    assert!(lone.events.is_empty());
}

#[test]
fn handle_must_not_be_invalidated_if_we_did_not_set_r() {
    let mut config = config(Role::Client);
    config.own.remote_invalidation = false;
    let mut lone = Lone::new(&config);
    lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
    let (header, _) = lone.receive().expect("the call");
    let lists = unused(&lists(&header));
    let handle = lists.writes[0].segments[0].handle;
    lone.send(&inline(&lists), Some(handle));
    let violation = lone.end.connection.violation();
    assert_eq!(violation, Some(Violation::UnwantedInvalidation(handle)));
}

#[test]
fn credits_are_never_zero_and_never_more_than_asked_for() {
    let check = |granted, expected| {
        let mut lone = client();
        lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
        lone.receive().expect("the call");
        let answer = stream(&reply(5, 40, &[]));
        lone.send(
            &wire(procedure::MSG, 5, granted, &Lists::default(), &answer),
            None,
        );
        lone.ended().expect("answered");
        assert_eq!(lone.end.connection.credits(), expected);
    };
    check(0, 1);
    check(1, 1);
    check(7, 7);
    check(8, 8);
    check(9, 8);
    check(u32::MAX, 8);
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
    let end = &mut lone.end;
    let twin = request(6, call(6, 40, &[]), bound(100, &[]));
    let called = end.connection.call(Instant::now(), twin, &mut end.qp);
    assert!(
        matches!(called, Called::Failed(_, TransportError::Refused(_))),
        "{called:?}"
    );
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
    lone.send(
        &wire(procedure::MSG, 0, 200, &Lists::default(), &answer),
        None,
    );
    lone.ended().expect("answered");
    for xid in 1..=200 {
        let end = &mut lone.end;
        let request = request(xid, call(xid, 40, &[]), bound(100, &[]));
        end.connection.call(Instant::now(), request, &mut end.qp);
        end.connection.cancel(xid, CallToken(u64::from(xid)));
    }
    assert_eq!(lone.end.connection.violation(), None);
    assert_eq!(lone.end.connection.calls_out(), 200);
    assert!(!lone.end.connection.can_call());
}

/// Calls that are refused with ERR_CHUNK and their XID, and do no harm.
#[test]
fn malformed_call_is_err_chunk_and_the_connection_goes_on() {
    let stream_5 = stream(&call(5, 40, &[]));
    let len = stream_5.len() as u32;
    let check = |proc, lists: &Lists, stream: &[u8]| {
        let mut lone = server();
        lone.send(&wire(proc, 5, 8, lists, stream), None);
        let (header, _) = lone.receive().expect("an answer");
        assert_eq!((header.xid, header.credits), (5, 8));
        assert_eq!(header.body, Body::Error(RdmaError::Chunk), "{lists:?}");
        assert!(lone.events.is_empty());
        assert_eq!(lone.end.connection.calls_in(), 0);
        lone.send(
            &wire(procedure::MSG, 6, 8, &Lists::default(), &stream_6()),
            None,
        );
        lone.called();
    };
    let reads = |chunks: &[(u32, u32)]| Lists {
        reads: chunks
            .iter()
            .map(|&(position, len)| read_chunk(position, smallvec![segment(9, len)]))
            .collect(),
        ..Lists::default()
    };
    let none = Lists::default();
    check(procedure::MSGP, &none, &stream_5);
    check(procedure::NOMSG, &none, &[]);
    check(procedure::MSG, &none, &stream(&call(6, 40, &[])));
    check(procedure::MSG, &none, &[0, 0, 0, 5]);
    check(procedure::MSG, &none, &[]);
    check(procedure::MSG, &reads(&[(0, 100)]), &stream_5);
    check(procedure::MSG, &reads(&[(len + 4, 100)]), &stream_5);
    check(procedure::MSG, &reads(&[(12, 5), (16, 5)]), &stream_5);
    check(procedure::MSG, &reads(&[(12, (1 << 20) + 1)]), &stream_5);
    check(procedure::MSG, &reads(&[(12, u32::MAX)]), &stream_5);
    check(procedure::NOMSG, &reads(&[(4, 100)]), &[]);
    check(procedure::NOMSG, &reads(&[(0, 0)]), &[]);
    check(procedure::NOMSG, &reads(&[(0, 100), (104, 4)]), &[]);
}

fn stream_6() -> Vec<u8> {
    stream(&call(6, 40, &[]))
}

#[test]
fn read_chunks_are_refused_where_no_read_is_possible() {
    let mut lone = Lone::with(&config(Role::Server), |limits| limits.outstanding_reads = 0);
    let lists = Lists {
        reads: vec![read_chunk(52, smallvec![segment(9, 8)])],
        ..Lists::default()
    };
    lone.send(
        &wire(procedure::MSG, 5, 8, &lists, &stream(&call(5, 40, &[]))),
        None,
    );
    let (header, _) = lone.receive().expect("an answer");
    assert_eq!(header.body, Body::Error(RdmaError::Chunk));
}

#[test]
fn long_call_for_another_transaction_is_refused_after_it_was_pulled() {
    let mut lone = server();
    let message = Bytes::from(stream_6());
    let len = message.len() as u32;
    let handle = lone
        .peer
        .register(Memory::Source(Gather::from_elem(message, 1)))
        .expect("there is room");
    let lists = Lists {
        reads: vec![read_chunk(0, smallvec![segment(handle.0, len)])],
        ..Lists::default()
    };
    lone.send(&wire(procedure::NOMSG, 5, 8, &lists, &[]), None);
    let (header, _) = lone.receive().expect("an answer");
    assert_eq!(
        (header.xid, header.body),
        (5, Body::Error(RdmaError::Chunk))
    );
    assert_eq!(lone.end.connection.counters().read_chunks_pulled, 1);
}

#[test]
fn no_error_goes_out_for_an_xid_that_is_being_pulled() {
    let none = Lists::default();
    let mut other_version = wire(procedure::MSG, 5, 8, &none, &stream(&call(5, 40, &[])));
    other_version[7] = 2;
    for octets in [
        other_version,
        wire(procedure::MSGP, 5, 8, &none, &[]),
        // Only the chunks of this one are at fault.
        wire(procedure::MSG, 5, 8, &none, &stream_6()),
    ] {
        let mut connection = server().end.connection;
        let mut receive = |octets: Vec<u8>| {
            connection.handle_completion(Completion::Receive {
                wr: crate::work::Purpose::Receive.wr(),
                buffer: Buffer::from(octets),
                invalidated: None,
            });
        };
        let chunks = Lists {
            reads: vec![read_chunk(52, smallvec![segment(9, 8)])],
            ..Lists::default()
        };
        let message = stream(&call(5, 40, &[]));
        receive(wire(procedure::MSG, 5, 8, &chunks, &message));
        receive(octets);
        let posts = std::iter::from_fn(|| connection.poll_post());
        let sends = posts.filter(|work| matches!(work, WorkRequest::Send { .. }));
        assert_eq!(sends.count(), 0);
        assert_eq!(connection.calls_in(), 1);
        assert_eq!(connection.counters().discarded, 1);
    }
}

#[test]
fn version_that_is_not_one_draws_err_vers_with_that_version() {
    let mut lone = server();
    let mut octets = wire(
        procedure::MSG,
        5,
        8,
        &Lists::default(),
        &stream(&call(5, 40, &[])),
    );
    octets[7] = 2;
    lone.send(&octets, None);
    lone.drive();
    let answer = loop {
        match lone.peer.poll_cq() {
            Some(Completion::Receive { buffer, .. }) => break buffer,
            Some(_) => {}
            None => panic!("an answer"),
        }
    };
    let words = [5, 2, 8, 4, 1, 1, 1_u32];
    let expected: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    assert_eq!(*answer, expected);
}

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

#[test]
fn handle_of_an_empty_segment_is_not_invalidated() {
    let mut lone = server();
    let sink = Memory::Sink(Buffer::with_capacity(100));
    let handle = lone.peer.register(sink).expect("there is room");
    let check = |lone: &mut Lone, segments, invalidated| {
        let offered = Lists {
            writes: vec![WriteChunk { segments }],
            ..Lists::default()
        };
        let message = stream(&call(5, 4, &[]));
        lone.send(&wire(procedure::MSG, 5, 8, &offered, &message), None);
        let (id, _) = lone.called();
        lone.end
            .connection
            .reply(id, Reply::Message(reply(5, 4, &[])));
        lone.drive();
        assert_eq!(lone.peer.closed(), None);
        let counters = lone.end.connection.counters();
        assert_eq!(counters.invalidations_sent, invalidated);
    };
    check(&mut lone, smallvec![segment(0, 0)], 0);
    check(&mut lone, smallvec![segment(0, 0), segment(handle.0, 9)], 1);
}

#[test]
fn peer_that_ignores_its_credits_is_cut_off() {
    let mut config = config(Role::Server);
    config.credits = 2;
    let mut lone = Lone::new(&config);
    for xid in 1..=4 {
        let message = stream(&call(xid, 40, &[]));
        lone.send(
            &wire(procedure::MSG, xid, 8, &Lists::default(), &message),
            None,
        );
    }
    assert_eq!(lone.end.connection.violation(), None);
    lone.send(
        &wire(
            procedure::MSG,
            5,
            8,
            &Lists::default(),
            &stream(&call(5, 4, &[])),
        ),
        None,
    );
    assert_eq!(
        lone.end.connection.violation(),
        Some(Violation::BeyondCredits(4))
    );
}

#[test]
fn peer_that_reads_no_errors_is_cut_off() {
    let mut config = config(Role::Server);
    config.credits = 2;
    let none = Lists::default();
    let mut other_version = wire(procedure::MSG, 5, 8, &none, &stream_6());
    other_version[7] = 2;
    for octets in [other_version, wire(procedure::MSGP, 5, 8, &none, &[])] {
        let mut connection = Lone::new(&config).end.connection;
        for _ in 0..10 {
            // Nothing of ours ever completes.
            connection.handle_completion(Completion::Receive {
                wr: crate::work::Purpose::Receive.wr(),
                buffer: Buffer::from(octets.clone()),
                invalidated: None,
            });
        }
        let violation = connection.violation();
        assert_eq!(violation, Some(Violation::BeyondCredits(4)));
        let posts = std::iter::from_fn(|| connection.poll_post());
        let sends = posts.filter(|work| matches!(work, WorkRequest::Send { .. }));
        assert_eq!(sends.count(), 4);
    }
}

#[test]
fn replies_and_errors_to_a_server_are_discarded() {
    let mut lone = server();
    let none = Lists::default();
    lone.send(
        &wire(procedure::MSG, 5, 8, &none, &stream(&reply(5, 40, &[]))),
        None,
    );
    lone.send(&error(5, RdmaError::Chunk), None);
    lone.send(&wire(procedure::DONE, 5, 8, &none, &[]), None);
    lone.send(&[0; 20], None);
    assert!(lone.events.is_empty());
    assert!(lone.receive().is_none());
    let counters = lone.end.connection.counters();
    assert_eq!((counters.discarded, counters.unknown_replies), (2, 2));
    assert_eq!(lone.end.connection.violation(), None);
}

#[test]
fn failed_work_ends_the_connection() {
    let mut config = config(Role::Server);
    config.credits = 2;
    let mut lone = Lone::new(&config);
    // A handle that the peer never had.
    let lists = Lists {
        reads: vec![read_chunk(12, smallvec![segment(0xdead, 8)])],
        ..Lists::default()
    };
    lone.send(
        &wire(procedure::MSG, 5, 8, &lists, &stream(&call(5, 40, &[]))),
        None,
    );
    assert!(lone.end.qp.closed().is_some() || lone.end.connection.violation().is_some());
    assert!(lone.events.is_empty());
}
