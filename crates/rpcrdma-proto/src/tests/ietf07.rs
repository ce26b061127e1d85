//! Connections of ietf-07: properties, credits that count messages, messages in parts, and peers that
//! break their rules.

mod odd_peers;
mod readings;
mod rows;

use super::lone::{Lone, arrive};
use super::pair::{Pair, Setup};
use super::*;
use crate::event::Violation;
use crate::limits::MAX_CONTINUED;
use crate::v2::Foreign;
use crate::v2::characteristics::BackwardSupport;
use crate::v2::ietf07::{
    Body, Header, PropertySet, RdmaError, ReverseSupport, emit_call, emit_error, emit_grant,
    emit_part, emit_properties, emit_reply, header_type,
};
use crate::wire::header::{Lists, Segments, WriteChunk};
use crate::{Direction, Version};
use oncrpc::{Reply, ReplyBound, ReplyRoom, TransportError};
use std::time::Duration;
use verbs::{Completion, Handle, QueuePair, Segment};

/// Act of a peer.
type Deed<'a> = &'a dyn Fn(&mut Lone);

/// Credits of a peer that has Receives for everything.
const PLENTY: u32 = 1 << 20;

fn dialect(role: Role, versions: Versions) -> Config {
    Config {
        versions,
        dialect: Dialect::Ietf07,
        ..config(role)
    }
}

fn setup(versions: [Versions; 2]) -> Setup {
    Setup {
        client: dialect(Role::Client, versions[0]),
        server: dialect(Role::Server, versions[1]),
        ..Setup::default()
    }
}

fn pair() -> Pair {
    let mut pair = Pair::with(setup([Versions::Two, Versions::Two]));
    pair.drive();
    pair
}

/// The next message at the peer: its header and the stream behind that.
fn next(lone: &mut Lone) -> Option<(Header, Vec<u8>)> {
    lone.drive();
    while let Some(completion) = lone.peer.poll_cq() {
        if let Completion::Receive { buffer, .. } = completion {
            let (header, at) = Header::parse(&buffer).expect("we send valid headers");
            return Some((header, buffer[at..].to_vec()));
        }
    }
    None
}

fn send(lone: &mut Lone, emit: impl FnOnce(&mut Buffer), stream: &[u8]) {
    let mut out = Buffer::default();
    emit(&mut out);
    out.extend_from_slice(stream);
    lone.send(&out, None);
}

/// The peer sends a call without chunks, or its last part.
fn send_call(lone: &mut Lone, xid: u32, stream: &[u8]) {
    let lists = Lists::default();
    send(
        lone,
        |out| emit_call(out, xid, PLENTY, false, None, &lists),
        stream,
    );
}

fn send_part(lone: &mut Lone, (direction, xid): (Direction, u32), remaining: usize, part: &[u8]) {
    let remaining = remaining as u32;
    send(
        lone,
        |out| emit_part(out, xid, PLENTY, direction, remaining),
        part,
    );
}

fn send_properties(lone: &mut Lone, last: bool, set: &PropertySet) {
    send(lone, |out| emit_properties(out, 99, PLENTY, last, set), &[]);
}

/// A server whose client has said these properties.
fn server_of(set: &PropertySet) -> Lone {
    let mut lone = Lone::new(&dialect(Role::Server, Versions::Auto));
    send_properties(&mut lone, true, set);
    let (header, _) = next(&mut lone).expect("the server says its properties");
    assert!(matches!(header.body, Body::Properties { last: true, .. }));
    lone
}

fn server() -> Lone {
    server_of(&PropertySet::default())
}

/// A client whose server has said its properties.
fn client() -> Lone {
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    let (header, _) = next(&mut lone).expect("the client says its properties");
    assert!(matches!(header.body, Body::Properties { last: true, .. }));
    assert!(next(&mut lone).is_none(), "it waits for credits");
    send_properties(&mut lone, true, &PropertySet::default());
    lone
}

/// The error that the peer is told next.
fn error(lone: &mut Lone) -> (u32, RdmaError) {
    match next(lone).expect("an answer").0 {
        Header {
            xid,
            body: Body::Error(error),
            ..
        } => (xid, error),
        other => panic!("{other:?}"),
    }
}

/// Checks that a call is served as ever.
fn check_served(lone: &mut Lone, xid: u32) {
    send_call(lone, xid, &stream(&call(xid, 40, &[])));
    let (id, message) = lone.called();
    assert_eq!(stream(&message), stream(&call(xid, 40, &[])));
    lone.end
        .connection
        .reply(id, Reply::Message(reply(xid, 8, &[])));
    let (header, _) = next(lone).expect("a reply");
    assert_eq!(header.xid, xid);
    assert!(matches!(header.body, Body::Reply { .. }));
    assert_eq!(lone.end.connection.violation(), None);
}

#[test]
fn each_end_says_its_properties_once_and_first() {
    let mut setup = setup([Versions::Two, Versions::Two]);
    setup.client.characteristics.raise_to = InlineThreshold::at_most(16 << 10);
    setup.client.characteristics.largest_sent = InlineThreshold::at_most(64 << 10);
    setup.server.characteristics.largest_sent = InlineThreshold::at_most(64 << 10);
    let mut pair = Pair::with(setup);
    pair.drive();
    let of_client = pair
        .server
        .connection
        .peer_properties()
        .expect("all is said");
    assert_eq!(of_client.receive_buffer, 16 << 10);
    assert_eq!(of_client.reverse, ReverseSupport::Continued);
    let of_server = pair
        .client
        .connection
        .peer_properties()
        .expect("all is said");
    assert_eq!(of_server.receive_buffer, 4096);
    assert_eq!(of_server.reverse, ReverseSupport::None);
    let thresholds = pair.client.connection.thresholds();
    assert_eq!(thresholds.send.bytes(), 4096);
    assert_eq!(thresholds.receive.bytes(), 16 << 10);
    assert_eq!(pair.client.connection.version(), Some(Version::Two));
}

#[test]
fn client_goes_on_in_version_one_where_the_server_has_no_other() {
    let mut setup = setup([Versions::Auto, Versions::One]);
    setup.server.dialect = Dialect::Cel01;
    let mut pair = Pair::with(setup);
    for xid in 1..20 {
        pair.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
    }
    for _ in 1..20 {
        pair.drive();
        let (id, message) = pair.calls.remove(0);
        let xid = xdr::Reader::from(&message).u32().expect("an XID");
        pair.answer(id, Reply::Message(reply(xid, 8, &[])));
    }
    assert_eq!(pair.client.connection.version(), Some(Version::One));
    assert_eq!(pair.replies.len(), 19);
    pair.check_idle();
}

#[test]
fn server_takes_the_version_of_its_client() {
    for (client, version) in [(Versions::One, Version::One), (Versions::Two, Version::Two)] {
        let mut pair = Pair::with(setup([client, Versions::Auto]));
        pair.call(request(1, call(1, 40, &[]), bound(100, &[])));
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Message(reply(1, 8, &[])));
        check_reply(&pair.ended().expect("answered"), 1, 8, &[]);
        assert_eq!(pair.server.connection.version(), Some(version));
        pair.check_idle();
    }
}

#[test]
fn other_drafts_are_told_apart_at_the_first_message() {
    let mut setup = setup([Versions::Two, Versions::Two]);
    setup.server.dialect = Dialect::Cel01;
    let mut pair = Pair::with(setup);
    pair.drive();
    assert_eq!(pair.server.connection.version(), Some(Version::Two));
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    next(&mut lone).expect("the offer");
    // RDMA2_OPTIONAL of cel-01 has the number of RDMA2_GRANT.
    let optional: Vec<u8> = [9_u32, 2, 8, 5, 0, 1, 0].map(u32::to_be_bytes).concat();
    lone.send(&optional, None);
    let other = Violation::OtherDialect(Dialect::Ietf07, Foreign::HeaderType(5));
    assert_eq!(lone.end.connection.violation(), Some(other));
    // A server that has version one says so, and nothing that means something else in the other draft.
    let mut lone = Lone::new(&dialect(Role::Server, Versions::Auto));
    lone.send(&optional, None);
    let versions = RdmaError::Version { low: 1, high: 1 };
    assert_eq!(error(&mut lone), (9, versions));
}

#[test]
fn long_messages_go_in_parts_and_are_whole_again() {
    let mut pair = pair();
    for (xid, fixed) in [(1, 5000), (2, 4060), (3, 20_000), (4, 60_000), (5, 4064)] {
        pair.call(request(xid, call(xid, fixed, &[]), bound(60_000, &[])));
        let (id, message) = pair.arrived();
        assert_eq!(stream(&message), stream(&call(xid, fixed, &[])));
        pair.answer(id, Reply::Message(reply(xid, fixed, &[])));
        check_reply(&pair.ended().expect("answered"), xid, fixed, &[]);
    }
    let [client, server] = [&pair.client, &pair.server].map(|end| *end.connection.counters());
    assert!(client.parts_sent > 20 && client.parts_sent == server.parts_received);
    assert_eq!(server.parts_sent, client.parts_received);
    assert_eq!((client.registrations, client.reply_chunks_offered), (0, 0));
    pair.check_idle();
}

#[test]
fn chunks_of_a_message_in_parts_are_in_its_last() {
    let mut pair = pair();
    // The result is worth a chunk; what is left of the reply is more than one Send.
    let bound = bound(9000, &[30_000]);
    pair.call(request(1, call(1, 9000, &[]), bound));
    let (id, message) = pair.arrived();
    assert_eq!(stream(&message), stream(&call(1, 9000, &[])));
    pair.answer(id, Reply::Message(reply(1, 8000, &[30_000])));
    check_reply(&pair.ended().expect("answered"), 1, 8000, &[30_000]);
    let client = pair.client.connection.counters();
    assert_eq!(
        (client.write_chunks_offered, client.reply_chunks_offered),
        (1, 0)
    );
    // §6.5: the handle that the call names, with the last part of the reply.
    assert_eq!(client.remote_invalidations, 1);
    pair.check_idle();
}

#[test]
fn end_that_is_configured_without_remote_invalidation_takes_no_part_in_it() {
    for (client, server) in [(true, true), (true, false), (false, true)] {
        let mut setup = setup([Versions::Two, Versions::Two]);
        setup.client.own.remote_invalidation = client;
        setup.server.own.remote_invalidation = server;
        let mut pair = Pair::with(setup);
        pair.call(request(1, call(1, 40, &[]), bound(100, &[30_000])));
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Message(reply(1, 8, &[30_000])));
        check_reply(&pair.ended().expect("answered"), 1, 8, &[30_000]);
        let taken = pair.client.connection.counters().remote_invalidations;
        assert_eq!(taken, u64::from(client && server));
        let design = pair.client.connection.design();
        assert_eq!(design, client.then_some(crate::Design::PerCall));
        pair.check_idle();
    }
}

#[test]
fn what_is_too_long_for_parts_goes_in_a_chunk() {
    let mut pair = pair();
    let fixed = MAX_CONTINUED;
    pair.call(request(1, call(1, fixed, &[]), bound(fixed + 100, &[])));
    let (id, message) = pair.arrived();
    assert_eq!(stream(&message), stream(&call(1, fixed, &[])));
    pair.answer(id, Reply::Message(reply(1, fixed, &[])));
    check_reply(&pair.ended().expect("answered"), 1, fixed, &[]);
    let client = pair.client.connection.counters();
    assert_eq!(
        (client.read_chunks_offered, client.reply_chunks_offered),
        (1, 1)
    );
    assert_eq!(client.parts_sent, 0);
    pair.check_idle();
}

#[test]
fn reply_that_fits_nowhere_says_what_it_would_take() {
    let mut pair = pair();
    pair.call(request(1, call(1, 40, &[]), bound(100, &[])));
    let (id, _) = pair.arrived();
    pair.answer(id, Reply::Message(reply(1, 2 * MAX_CONTINUED, &[])));
    let ended = pair.ended().expect_err("there is no room");
    assert!(
        ended.to_string().contains("RDMA2_ERR_REPLY_RESOURCE"),
        "{ended}"
    );
    let made = |_| Reply::Message(reply(5, 8, &[101]));
    let needed = RdmaError::WriteResource {
        chunk: std::num::NonZeroU32::new(1),
        needed: 101,
    };
    assert_eq!(refused_with_a_chunk_of_100(made), needed);
}

/// The error for a call with a Write chunk of 100 octets, which is answered like this.
fn refused_with_a_chunk_of_100(answer: impl FnOnce(ReplyRoom) -> Reply) -> RdmaError {
    let mut lone = server();
    let segment = Segment {
        handle: Handle(7),
        length: 100,
        offset: 0,
    };
    let lists = Lists {
        writes: vec![WriteChunk {
            segments: Segments::from_elem(segment, 1),
        }],
        ..Lists::default()
    };
    let bytes = stream(&call(5, 40, &[]));
    send(
        &mut lone,
        |out| emit_call(out, 5, PLENTY, false, None, &lists),
        &bytes,
    );
    let (id, _) = lone.called();
    let room = lone.end.connection.reply_room(&id);
    lone.end.connection.reply(id, answer(room));
    let (xid, error) = error(&mut lone);
    assert_eq!(xid, 5);
    error
}

#[test]
fn service_that_makes_no_reply_for_want_of_room_says_what_it_would_take() {
    let too_large = |fixed: usize, result: usize| {
        refused_with_a_chunk_of_100(|room| {
            let size = ReplyBound {
                fixed,
                results: [result].into_iter().collect(),
            };
            assert!(!room.carries(&size));
            Reply::TooLarge(size.into())
        })
    };
    let needed = RdmaError::WriteResource {
        chunk: std::num::NonZeroU32::new(1),
        needed: 101,
    };
    assert_eq!(too_large(40, 101), needed);
    let needed = MAX_CONTINUED + 4;
    let resource = RdmaError::ReplyResource {
        needed: u32::try_from(needed).unwrap(),
    };
    assert_eq!(too_large(needed, 100), resource);
}

#[test]
fn parts_that_do_not_follow_each_other_are_refused_and_others_served() {
    let whole = stream(&call(5, 3000, &[]));
    let len = whole.len();
    let first = |lone: &mut Lone| {
        send_part(lone, (Direction::Call, 5), len - 1000, &whole[..1000]);
    };
    let cases: [(&str, Deed<'_>); 8] = [
        ("more remains than before", &|lone| {
            send_part(lone, (Direction::Call, 5), len - 1500, &whole[1000..2000]);
        }),
        ("nothing is in it", &|lone| {
            send_part(lone, (Direction::Call, 5), len - 1000, &[]);
        }),
        ("nothing remains", &|lone| {
            send_part(lone, (Direction::Call, 5), 0, &whole[1000..]);
        }),
        ("it is of another call", &|lone| {
            send_part(
                lone,
                (Direction::Call, 5 ^ 9),
                len - 2000,
                &whole[1000..2000],
            );
        }),
        ("it is a whole call, as long as what remains", &|lone| {
            let other = stream(&call(9, 2000, &[]));
            assert_eq!(other.len(), len - 1000);
            send_call(lone, 9, &other);
        }),
        ("the last is too short", &|lone| {
            send_call(lone, 5, &whole[1000..len - 4]);
        }),
        ("the last is too long", &|lone| {
            send_call(lone, 5, &[&whole[1000..], &[0; 4]].concat());
        }),
        ("properties are between", &|lone| {
            send_properties(lone, true, &PropertySet::default());
        }),
    ];
    for (what, then) in cases {
        let mut lone = server();
        first(&mut lone);
        assert!(next(&mut lone).is_none());
        then(&mut lone);
        let (xid, told) = error(&mut lone);
        assert_eq!(told, RdmaError::InvalCont, "{what}");
        // What is given up for another message is refused, too.
        if xid != 5 {
            assert_eq!(error(&mut lone), (5, RdmaError::InvalCont), "{what}");
        }
        assert!(lone.events.is_empty(), "{what}");
        check_served(&mut lone, 1);
    }
}

#[test]
fn parts_of_what_was_refused_are_discarded_up_to_the_last() {
    let mut lone = server();
    let whole = stream(&call(5, 3000, &[]));
    let of_call = (Direction::Call, 5);
    send_part(&mut lone, of_call, whole.len() - 1000, &whole[..1000]);
    send_part(&mut lone, of_call, 7, &whole[1000..2000]);
    assert_eq!(error(&mut lone), (5, RdmaError::InvalCont));
    send_part(&mut lone, of_call, 1000, &whole[2000..2500]);
    send_call(&mut lone, 5, &whole[2500..]);
    assert!(next(&mut lone).is_none() && lone.events.is_empty());
    // The XID is free again.
    check_served(&mut lone, 5);
}

#[test]
fn message_in_parts_has_a_limit() {
    let mut lone = server();
    for remaining in [MAX_CONTINUED, u32::MAX as usize] {
        send_part(&mut lone, (Direction::Call, 5), remaining, &[0; 8]);
        assert_eq!(error(&mut lone), (5, RdmaError::InvalCont));
        send_call(&mut lone, 5, &[0; 8]);
        assert!(next(&mut lone).is_none());
    }
    check_served(&mut lone, 6);
}

#[test]
fn credits_and_errors_may_come_between_parts() {
    let mut lone = server();
    let whole = stream(&call(5, 3000, &[]));
    let of_call = (Direction::Call, 5);
    send_part(&mut lone, of_call, whole.len() - 1000, &whole[..1000]);
    send(&mut lone, |out| emit_grant(out, PLENTY), &[]);
    send(
        &mut lone,
        |out| emit_error(out, 77, 2, PLENTY, RdmaError::System),
        &[],
    );
    send_call(&mut lone, 5, &whole[1000..]);
    let (_, message) = lone.called();
    assert_eq!(stream(&message), whole);
}

#[test]
fn reply_whose_parts_do_not_follow_each_other_ends_its_call() {
    let mut lone = client();
    lone.call(request(5, call(5, 40, &[]), bound(20_000, &[])));
    next(&mut lone).expect("the call");
    let of_reply = (Direction::Reply, 5);
    let whole = stream(&reply(5, 9000, &[]));
    send_part(&mut lone, of_reply, whole.len() - 1000, &whole[..1000]);
    send_part(&mut lone, of_reply, 1, &whole[1000..2000]);
    let ended = lone.ended().expect_err("it is not whole");
    assert!(ended.to_string().contains("parts of its reply"), "{ended}");
    // Nobody is answered: the XID is one of ours.
    assert!(next(&mut lone).is_none());
    assert_eq!(lone.end.connection.violation(), None);
}

#[test]
fn properties_are_all_or_nothing_and_said_once() {
    let mut lone = Lone::new(&dialect(Role::Server, Versions::Two));
    let size = |bytes| PropertySet {
        receive_buffer: Some(bytes),
        ..PropertySet::default()
    };
    let peer = |lone: &Lone| lone.end.connection.peer_properties().cloned();
    send_properties(&mut lone, false, &size(8192));
    next(&mut lone).expect("the properties of the server");
    assert_eq!(peer(&lone), None, "there is more to come");
    // §6.3.3: nothing else may follow.
    send_call(&mut lone, 5, &stream(&call(5, 40, &[])));
    assert_eq!(error(&mut lone), (5, RdmaError::InvalCont));
    send_properties(&mut lone, true, &PropertySet::default());
    assert_eq!(peer(&lone).map(|peer| peer.receive_buffer), Some(8192));
    send_properties(&mut lone, true, &size(16_384));
    assert_eq!(error(&mut lone), (99, RdmaError::InvalCont));
    assert_eq!(peer(&lone).map(|peer| peer.receive_buffer), Some(8192));
    // A value that cannot be read: none of the message counts.
    let mut lone = Lone::new(&dialect(Role::Server, Versions::Two));
    let bad: [u32; 9] = [
        99,
        2,
        8,
        header_type::CONNPROP_FINAL,
        1,
        2,
        2,
        0x2000_0000,
        0,
    ];
    lone.send(&bad.map(u32::to_be_bytes).concat()[..32], None);
    assert_eq!(error(&mut lone), (99, RdmaError::BadPropval));
    assert_eq!(peer(&lone), None);
    // The client goes on with a call, and the server says its properties before it answers.
    send_call(&mut lone, 5, &stream(&call(5, 40, &[])));
    let (header, _) = next(&mut lone).expect("the properties of the server");
    assert!(matches!(header.body, Body::Properties { last: true, .. }));
    lone.called();
    check_served(&mut lone, 6);
}

#[test]
fn unknown_header_types_and_bad_headers_are_answered_by_their_codes() {
    let mut lone = server();
    let mut check = |words: &[u32], told: RdmaError| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        lone.send(&bytes, None);
        assert_eq!(error(&mut lone), (5, told), "{words:?}");
    };
    check(&[5, 2, PLENTY, 14], RdmaError::InvalHtype);
    check(&[5, 2, PLENTY, 10, 0], RdmaError::BadXdr);
    // The RPC message has another XID, or says that it is a reply.
    let call_inline = [5, 2, PLENTY, 10, 0, 0, 0, 0];
    check(&[&call_inline[..], &[6, 0]].concat(), RdmaError::BadXdr);
    check(&[&call_inline[..], &[5, 1]].concat(), RdmaError::BadXdr);
    // §7.1.1, §7.1.2: a version that nobody here speaks, and one that is not that of the connection.
    let versions = RdmaError::Version { low: 2, high: 2 };
    let bytes: Vec<u8> = [5_u32, 3, 8, 10, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    lone.send(&bytes, None);
    let word = |bytes: &[u8], at: usize| {
        u32::from_be_bytes(bytes[4 * at..4 * at + 4].try_into().expect("a word"))
    };
    let raw = |lone: &mut Lone| {
        lone.drive();
        loop {
            if let Some(Completion::Receive { buffer, .. }) = lone.peer.poll_cq() {
                return buffer.to_vec();
            }
        }
    };
    let answer = raw(&mut lone);
    assert_eq!(
        [0, 1, 3, 4, 5, 6].map(|at| word(&answer, at)),
        [5, 3, 4, 1, 2, 2],
        "{versions:?}"
    );
    let bytes: Vec<u8> = [5_u32, 1, 8, 0, 0, 0, 0, 5, 0]
        .map(u32::to_be_bytes)
        .concat();
    lone.send(&bytes, None);
    let answer = raw(&mut lone);
    assert_eq!([0, 1, 3, 4].map(|at| word(&answer, at)), [5, 1, 4, 11]);
    check_served(&mut lone, 1);
}

#[test]
fn messages_wait_for_credits_of_the_peer_and_go_when_it_grants_some() {
    let mut lone = server();
    // One call, whose header leaves the server no further message: it has sent one.
    let lists = Lists::default();
    let bytes = stream(&call(5, 40, &[]));
    send(
        &mut lone,
        |out| emit_call(out, 5, 1, false, None, &lists),
        &bytes,
    );
    let (id, _) = lone.called();
    lone.end
        .connection
        .reply(id, Reply::Message(reply(5, 8, &[])));
    assert!(next(&mut lone).is_none(), "the peer has no Receive for it");
    send(&mut lone, |out| emit_grant(out, 2), &[]);
    let (header, _) = next(&mut lone).expect("the reply");
    assert_eq!(header.xid, 5);
    assert!(next(&mut lone).is_none());
}

#[test]
fn client_that_uses_up_its_credits_gets_more_without_a_reply() {
    let mut lone = Lone::new(&dialect(Role::Server, Versions::Auto));
    send_properties(&mut lone, true, &PropertySet::default());
    let (header, _) = next(&mut lone).expect("the server says its properties");
    let (grant, spare) = (lone.end.connection.grant(), crate::limits::PART_RECEIVES);
    assert_eq!(header.credits, 1 + grant + spare);
    for xid in 0..grant {
        send_call(&mut lone, xid, &stream(&call(xid, 40, &[])));
    }
    assert!(next(&mut lone).is_none(), "every credit is in service");
    // Of what is left for parts, more than half.
    let parts = spare / 2 + 1;
    for part in 0..parts {
        let remaining = 4 * (10 - part as usize);
        send_part(&mut lone, (Direction::Call, 77), remaining, &[0; 4]);
    }
    let (header, _) = next(&mut lone).expect("more credits");
    assert_eq!(header.body, Body::Grant);
    assert_eq!((header.xid, header.credits), (0, 1 + grant + parts + spare));
    assert!(next(&mut lone).is_none());
}

#[test]
fn call_that_waits_for_credits_which_never_come_is_overdue() {
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    next(&mut lone).expect("the properties of the client");
    // It accepts the message that the client has sent, and no other.
    let none = PropertySet::default();
    send(
        &mut lone,
        |out| emit_properties(out, 9, 1, true, &none),
        &[],
    );
    let begun = lone.end.now;
    lone.end
        .call(request(5, call(5, 40, &[]), bound(100, &[])))
        .expect("it waits");
    assert!(next(&mut lone).is_none());
    let connection = &lone.end.connection;
    let usual = Duration::from_secs(60);
    assert_eq!(connection.oldest_call(), Some(begun));
    assert_eq!(connection.overdue_call(begun + usual / 2, usual), None);
    assert_eq!(connection.overdue_call(begun + usual, usual), Some(usual));
    // With credits it goes, and the time counts from then on.
    lone.end.now = begun + usual / 2;
    send(&mut lone, |out| emit_grant(out, 2), &[]);
    assert_eq!(next(&mut lone).expect("the call").0.xid, 5);
    assert_eq!(lone.end.connection.oldest_call(), Some(begun + usual / 2));
}

#[test]
fn backward_calls_go_as_far_as_the_client_supports_them() {
    let of = |support| PropertySet {
        reverse: support,
        ..PropertySet::default()
    };
    let call_back = |lone: &mut Lone, fixed| {
        lone.end.connection.handle_client_ready();
        lone.end
            .call(request(5, call(5, fixed, &[]), bound(100, &[])))
    };
    let mut lone = server_of(&of(None));
    assert!(call_back(&mut lone, 40).is_err());
    let mut lone = server_of(&of(Some(ReverseSupport::Simple)));
    let error = call_back(&mut lone, 9000)
        .expect_err("it takes no parts")
        .error;
    assert!(matches!(error, TransportError::TooLarge { .. }), "{error}");
    assert!(call_back(&mut lone, 40).is_ok());
    let mut lone = server_of(&of(Some(ReverseSupport::Continued)));
    assert!(call_back(&mut lone, 9000).is_ok());
    assert!(matches!(
        next(&mut lone).expect("a part").0.body,
        Body::Part { .. }
    ));
}

#[test]
fn both_directions_have_parts_at_a_time() {
    let mut setup = setup([Versions::Two, Versions::Two]);
    setup.client.characteristics.backward = BackwardSupport::General;
    let mut pair = Pair::with(setup);
    pair.client_is_ready();
    pair.call(request(1, call(1, 30_000, &[]), bound(40_000, &[])));
    pair.call_back(request(1, call(1, 30_000, &[]), bound(40_000, &[])));
    pair.drive();
    let (id, message) = pair.calls.remove(0);
    assert_eq!(stream(&message), stream(&call(1, 30_000, &[])));
    let (back, message) = pair.back.calls.remove(0);
    assert_eq!(stream(&message), stream(&call(1, 30_000, &[])));
    pair.server
        .connection
        .reply(id, Reply::Message(reply(1, 35_000, &[])));
    pair.client
        .connection
        .reply(back, Reply::Message(reply(1, 35_000, &[])));
    check_reply(&pair.ended().expect("answered"), 1, 35_000, &[]);
    check_reply(&pair.ended_back().expect("answered"), 1, 35_000, &[]);
    pair.check_idle();
}

#[test]
fn segments_are_as_the_peer_takes_them() {
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    next(&mut lone).expect("the properties of the client");
    let set = PropertySet {
        max_segment_size: Some(10_000),
        max_segments: Some(8),
        ..PropertySet::default()
    };
    send_properties(&mut lone, true, &set);
    lone.call(request(5, call(5, 40, &[]), bound(100, &[75_000])));
    let Body::Call { lists, .. } = next(&mut lone).expect("the call").0.body else {
        panic!("it is a call");
    };
    let lengths: Vec<u32> = lists.writes[0].segments.iter().map(|s| s.length).collect();
    assert_eq!(lengths, [[10_000; 7].as_slice(), &[5_000]].concat());
    let error = lone
        .end
        .call(request(6, call(6, 40, &[]), bound(100, &[80_001])));
    let error = error.expect_err("there would be nine").error;
    assert!(error.to_string().contains("§5.2.4"), "{error}");
}

#[test]
fn replies_with_what_a_call_cannot_have_are_not_believed() {
    let mut lone = client();
    lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
    next(&mut lone).expect("the call");
    let lists = Lists::default();
    send(
        &mut lone,
        |out| emit_reply(out, 5, PLENTY, false, &lists),
        &stream(&call(5, 40, &[])),
    );
    assert!(lone.ended().is_err());
    // Garbage makes nobody panic.
    let mut lone = client();
    for len in 0..40 {
        arrive(&mut lone.end.connection, vec![0; len]);
    }
    assert_eq!(lone.end.connection.violation(), None);
}

#[test]
fn call_in_parts_that_is_answered_before_they_go_is_not_recalled() {
    let mut lone = client();
    lone.drive();
    // The region of its result has to be invalidated, and is not when the connection ends.
    let called = (lone.end).call(request(5, call(5, 9000, &[]), bound(100, &[5000])));
    assert!(called.is_ok());
    let mut error = Buffer::default();
    emit_error(&mut error, 5, 2, PLENTY, RdmaError::System);
    let connection = &mut lone.end.connection;
    arrive(connection, error.to_vec());
    assert_eq!(connection.calls_out(), 1, "its region is exposed");
    assert_eq!(lone.end.connection.into_unfinished().len(), 1);
}
