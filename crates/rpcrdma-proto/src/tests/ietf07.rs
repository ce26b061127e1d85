//! Connections of ietf-07: properties, credits that count messages, messages in parts, and peers that
//! break their rules.

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
use crate::wire::header::{Lists, ReadChunk, Segments, WriteChunk};
use crate::{Direction, Version};
use oncrpc::{Reply, TransportError};
use verbs::{Completion, Handle, QueuePair, Segment};

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
    let mut setup = Setup::default();
    setup.client = dialect(Role::Client, versions[0]);
    setup.server = dialect(Role::Server, versions[1]);
    setup
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
    lone.end
        .connection
        .reply(id, Reply::Message(reply(5, 8, &[101])));
    let needed = RdmaError::WriteResource {
        chunk: std::num::NonZeroU32::new(1),
        needed: 101,
    };
    assert_eq!(error(&mut lone), (5, needed));
}

#[test]
fn parts_that_do_not_follow_each_other_are_refused_and_others_served() {
    let whole = stream(&call(5, 3000, &[]));
    let len = whole.len();
    let first = |lone: &mut Lone| {
        send_part(lone, (Direction::Call, 5), len - 1000, &whole[..1000]);
    };
    let cases: [(&str, &dyn Fn(&mut Lone)); 7] = [
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
        let (_, told) = error(&mut lone);
        assert_eq!(told, RdmaError::InvalCont, "{what}");
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
    let (header, _) = next(&mut lone).expect("an answer");
    let first = header.body;
    let second = next(&mut lone).map(|(header, _)| header.body);
    let bodies = [Some(first), second];
    assert!(
        bodies.contains(&Some(Body::Error(RdmaError::BadPropval))),
        "{bodies:?}"
    );
    assert_eq!(peer(&lone), None);
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
        max_segments: Some(4),
        ..PropertySet::default()
    };
    send_properties(&mut lone, true, &set);
    lone.call(request(5, call(5, 40, &[]), bound(100, &[35_000])));
    let Body::Call { lists, .. } = next(&mut lone).expect("the call").0.body else {
        panic!("it is a call");
    };
    let lengths: Vec<u32> = lists.writes[0].segments.iter().map(|s| s.length).collect();
    assert_eq!(lengths, [10_000, 10_000, 10_000, 5_000]);
    let error = lone
        .end
        .call(request(6, call(6, 40, &[]), bound(100, &[45_000])));
    let error = error.expect_err("there would be five").error;
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

// What follows was found in review. Each test fails.

fn segment(handle: u32, length: u32) -> Segments {
    let segment = Segment {
        handle: Handle(handle),
        length,
        offset: 0,
    };
    Segments::from_elem(segment, 1)
}

#[test]
fn call_with_the_xid_of_the_own_properties_does_not_wait_for_ever() {
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    let (header, _) = next(&mut lone).expect("the client says its properties");
    send_properties(&mut lone, true, &PropertySet::default());
    // Nobody answers properties. Sequential XIDs come round to theirs after 2^32 calls.
    let xid = header.xid;
    lone.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
    assert_eq!(next(&mut lone).expect("the call").0.xid, xid);
}

#[test]
fn call_with_the_xid_of_the_offer_does_not_wait_for_ever_in_version_one() {
    for draft in Dialect::ALL {
        let mut setup = setup([Versions::Auto, Versions::One]);
        setup.client.dialect = draft;
        setup.server.dialect = Dialect::Cel01;
        let offer = setup.client.xids.next() + 1;
        let mut pair = Pair::with(setup);
        pair.drive();
        assert_eq!(pair.client.connection.version(), Some(Version::One));
        for xid in offer..offer + 4 {
            pair.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
            pair.drive();
            assert_eq!(pair.calls.len(), 1, "{draft}: {xid:#x} of {offer:#x}");
            let (id, _) = pair.calls.remove(0);
            pair.answer(id, Reply::Message(reply(xid, 8, &[])));
        }
    }
}

#[test]
fn every_part_has_a_first_word() {
    // §6.3.6, §6.3.7: rdma_rpc_first_word has four octets.
    for fixed in [4048, 4052, 4056, 4060, 8124, 8128, 8132, 8136] {
        let mut lone = client();
        lone.call(request(5, call(5, fixed, &[]), bound(100, &[])));
        while let Some((_, part)) = next(&mut lone) {
            assert!(part.len() >= 4, "{fixed}: a part of {}", part.len());
        }
    }
}

#[test]
fn completed_call_does_not_wait_for_credits_of_others() {
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    next(&mut lone).expect("the client says its properties");
    // The client has sent one message, and may send one more.
    let set = PropertySet::default();
    send(
        &mut lone,
        |out| emit_properties(out, 99, 2, true, &set),
        &[],
    );
    for xid in 1..4 {
        let request = request(xid, call(xid, 40, &[]), bound(100, &[30_000]));
        lone.end.call(request).expect("it can be carried");
    }
    let (header, _) = next(&mut lone).expect("the first call");
    assert_eq!(header.xid, 1);
    assert!(next(&mut lone).is_none(), "there is one credit");
    // It is answered, with a credit for the next, which takes long. Nothing is invalidated.
    let lists = Lists::default();
    let bytes = stream(&reply(1, 40, &[]));
    send(
        &mut lone,
        |out| emit_reply(out, 1, 3, false, &lists),
        &bytes,
    );
    assert_eq!(next(&mut lone).expect("the next call").0.xid, 2);
    assert_eq!(lone.events.len(), 1, "to invalidate takes no credit");
}

#[test]
fn no_more_calls_go_than_there_are_credits() {
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    next(&mut lone).expect("the client says its properties");
    let set = PropertySet::default();
    send(
        &mut lone,
        |out| emit_properties(out, 99, 2, true, &set),
        &[],
    );
    for xid in 1..4 {
        let request = request(xid, call(xid, 40, &[]), bound(100, &[]));
        lone.end.call(request).expect("it can be carried");
    }
    assert_eq!(lone.end.connection.calls_waiting(), 2);
    assert_eq!(lone.end.connection.room(), 0);
}

#[test]
fn chunks_are_pulled_while_a_reply_waits_for_credits() {
    let mut lone = server();
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
    // Memory of the peer that holds the argument.
    let data = bytes_of(4000);
    let at = lone
        .peer
        .register(verbs::Memory::Source(Gather::from_elem(data, 1)))
        .expect("there is room");
    let mut segments = segment(at.handle.0, 4000);
    segments[0].offset = at.offset;
    let reads = vec![ReadChunk {
        position: 56,
        segments,
    }];
    let lists = Lists {
        reads,
        ..Lists::default()
    };
    let whole = stream(&call(6, 40, &[]));
    let bytes = [&whole[..], &[0, 0, 0x0f, 0xa0]].concat();
    send(
        &mut lone,
        |out| emit_call(out, 6, 1, false, None, &lists),
        &bytes,
    );
    assert!(next(&mut lone).is_none());
    assert_eq!(lone.events.len(), 1, "to read takes no credit");
}

fn bytes_of(len: usize) -> Bytes {
    bytes(len)
}

#[test]
fn last_part_with_a_bad_header_ends_its_message_and_no_other() {
    let whole = stream(&call(5, 3000, &[]));
    let mut lone = server();
    send_part(
        &mut lone,
        (Direction::Call, 5),
        whole.len() - 1000,
        &whole[..1000],
    );
    // An honest client does not know how many Write chunks we take.
    let chunk = WriteChunk {
        segments: segment(7, 100),
    };
    let lists = Lists {
        writes: vec![chunk; 17],
        ..Lists::default()
    };
    send(
        &mut lone,
        |out| emit_call(out, 5, PLENTY, false, None, &lists),
        &whole[1000..],
    );
    assert_eq!(error(&mut lone), (5, RdmaError::WriteChunks { max: 16 }));
    check_served(&mut lone, 6);
}

#[test]
fn unreadable_last_part_of_a_reply_ends_its_call_and_no_other() {
    let mut lone = client();
    for xid in [5, 6] {
        lone.call(request(xid, call(xid, 40, &[]), bound(20_000, &[])));
        next(&mut lone).expect("the call");
    }
    let whole = stream(&reply(5, 9000, &[]));
    send_part(
        &mut lone,
        (Direction::Reply, 5),
        whole.len() - 1000,
        &whole[..1000],
    );
    let bad = [5, 2, PLENTY, header_type::REPLY_INLINE, 7];
    lone.send(&bad.map(u32::to_be_bytes).concat(), None);
    assert!(lone.ended().is_err());
    let lists = Lists::default();
    send(
        &mut lone,
        |out| emit_reply(out, 6, PLENTY, false, &lists),
        &stream(&reply(6, 8, &[])),
    );
    check_reply(&lone.ended().expect("a valid reply"), 6, 8, &[]);
}

#[test]
fn calls_are_served_after_last_properties_that_cannot_be_read() {
    let mut lone = Lone::new(&dialect(Role::Server, Versions::Two));
    send_properties(&mut lone, false, &PropertySet::default());
    next(&mut lone).expect("the properties of the server");
    let bad = [
        99,
        2,
        PLENTY,
        header_type::CONNPROP_FINAL,
        1,
        2,
        2,
        0x2000_0000,
    ];
    lone.send(&bad.map(u32::to_be_bytes).concat(), None);
    assert_eq!(error(&mut lone), (99, RdmaError::BadPropval));
    check_served(&mut lone, 6);
}

#[test]
fn client_answers_bad_properties_that_are_the_first_message_of_its_server() {
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    next(&mut lone).expect("the client says its properties");
    let bad = [
        99,
        2,
        PLENTY,
        header_type::CONNPROP_FINAL,
        1,
        2,
        2,
        0x2000_0000,
    ];
    lone.send(&bad.map(u32::to_be_bytes).concat(), None);
    assert_eq!(error(&mut lone), (99, RdmaError::BadPropval));
    assert_eq!(lone.end.connection.version(), Some(Version::Two));
}

#[test]
fn server_does_not_speak_before_its_client() {
    // §4.3: the client may have Receives for version one, or none yet; and may not have version two.
    let mut lone = Lone::new(&dialect(Role::Server, Versions::Two));
    assert!(next(&mut lone).is_none());
}

#[test]
fn grants_do_not_answer_grants_without_end() {
    let mut config = dialect(Role::Server, Versions::Two);
    config.credits = 1;
    config.backward_credits = 0;
    let mut lone = Lone::new(&config);
    send_properties(&mut lone, true, &PropertySet::default());
    while next(&mut lone).is_some() {}
    // A peer with one credit, too, answers each message with one.
    let mut turns = 0;
    send(&mut lone, |out| emit_grant(out, PLENTY), &[]);
    while next(&mut lone).is_some() {
        turns += 1;
        assert!(turns < 20, "credits for credits, for ever");
        send(&mut lone, |out| emit_grant(out, PLENTY), &[]);
    }
}

#[test]
fn refused_grant_is_made_again() {
    let mut lone = Lone::new(&dialect(Role::Server, Versions::Auto));
    let set = PropertySet::default();
    // The peer accepts one message: the properties.
    send(
        &mut lone,
        |out| emit_properties(out, 99, 1, true, &set),
        &[],
    );
    next(&mut lone).expect("the server says its properties");
    let connection = &mut lone.end.connection;
    let mut grant = None;
    for part in 0..20 {
        let mut out = Buffer::default();
        emit_part(&mut out, 77, 1, Direction::Call, 4 * (50 - part));
        out.extend_from_slice(&[0; 4]);
        arrive(connection, out.to_vec());
        while let Some(work) = connection.poll_post() {
            if let verbs::WorkRequest::Send { .. } = work {
                grant = Some(work);
            }
        }
        if grant.is_some() {
            break;
        }
    }
    // The provider has no room, and the peer waits for it.
    connection.handle_refused(grant.expect("credits are due"));
    let again = connection.poll_post();
    assert!(matches!(again, Some(verbs::WorkRequest::Send { .. })));
}

#[test]
fn result_goes_in_parts_where_the_peer_takes_no_segments() {
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    next(&mut lone).expect("the client says its properties");
    let set = PropertySet {
        max_segments: Some(0),
        ..PropertySet::default()
    };
    send_properties(&mut lone, true, &set);
    let called = lone
        .end
        .call(request(5, call(5, 40, &[]), bound(100, &[30_000])));
    assert!(called.is_ok(), "§6.6.2: it needs no chunk");
}

#[test]
fn call_in_parts_that_was_not_posted_is_taken_back() {
    let mut lone = client();
    let request = request(5, call(5, 9000, &[]), bound(100, &[]));
    lone.end.call(request).expect("it can be carried");
    // The connection is about to close.
    lone.end.connection.withhold_calls();
    assert!(next(&mut lone).is_none(), "the peer never sees it");
}

#[test]
fn lowered_credits_do_not_stop_both_ends() {
    use crate::messages::MessageCredits;
    let message = || {
        let mut message = Buffer::default();
        message.extend_from_slice(&[0; 16]);
        message
    };
    let word = |message: &Buffer| u32::from_be_bytes(message[8..12].try_into().expect("a word"));
    let (mut client, mut server) = (MessageCredits::new(), MessageCredits::new());
    client.handle_credits(8);
    server.handle_credits(8);
    // Eight calls are sent, of which four have arrived.
    for _ in 0..8 {
        assert!(client.stamp(&mut message(), 8));
    }
    (0..4).for_each(|_| server.handle_message());
    // Memory is short, so that the server grants no more: the first replies, in eight parts.
    for _ in 0..8 {
        let mut part = message();
        assert!(server.stamp(&mut part, 0));
        client.handle_message();
        client.handle_credits(word(&part));
    }
    (0..4).for_each(|_| server.handle_message());
    let someone = client.grant_is_due(8) || server.grant_is_due(0) || server.room() > 0;
    assert!(someone, "each waits for the other");
}

#[test]
fn replies_go_though_a_provider_has_no_room_for_receives() {
    // As the server of the driver shares the Receives of a provider: credits, and RECEIVE_SLACK.
    let mut config = dialect(Role::Server, Versions::Auto);
    (config.credits, config.first_grant, config.backward_credits) = (20, 4, 0);
    let slack = crate::limits::RECEIVE_SLACK;
    let mut lone = Lone::with(&config, |limits| limits.receives = 20 + slack);
    send_properties(&mut lone, true, &PropertySet::default());
    next(&mut lone).expect("the server says its properties");
    lone.end.connection.set_grant(20);
    check_served(&mut lone, 5);
}

#[test]
fn replies_that_wait_for_credits_are_few() {
    let mut config = dialect(Role::Server, Versions::Auto);
    config.credits = 128;
    let mut lone = Lone::new(&config);
    send_properties(&mut lone, true, &PropertySet::default());
    next(&mut lone).expect("the server says its properties");
    // The peer calls, and has no Receive for any reply.
    let lists = Lists::default();
    let mut held = 0;
    for xid in 0..200 {
        let bytes = stream(&call(xid, 40, &[]));
        send(
            &mut lone,
            |out| emit_call(out, xid, 1, false, None, &lists),
            &bytes,
        );
        let (id, _) = lone.called();
        let long = reply(xid, 60_000, &[]);
        held += long.stream_len();
        lone.end.connection.reply(id, Reply::Message(long));
        if lone.end.connection.violation().is_some() {
            return;
        }
    }
    assert!(held < 4 << 20, "{held} bytes that no budget knows of");
}

#[test]
fn client_that_keeps_to_its_credits_is_not_beyond_them() {
    let mut lone = server();
    // The server has said this much with its properties, which are read by now.
    let (grant, spare) = (lone.end.connection.grant(), crate::limits::PART_RECEIVES);
    let (mut told, mut sent) = (1 + grant + spare, 1);
    // Nothing is answered.
    while sent < told && sent < 1000 {
        sent += 1;
        send_call(&mut lone, sent, &stream(&call(sent, 40, &[])));
        while let Some((header, _)) = next(&mut lone) {
            assert_eq!(header.body, Body::Grant);
            told = header.credits;
        }
        assert_eq!(
            lone.end.connection.violation(),
            None,
            "{sent} messages were sent, and {told} are permitted"
        );
    }
}
