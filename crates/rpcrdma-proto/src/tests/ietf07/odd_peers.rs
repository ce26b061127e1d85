//! Peers that send anything, few credits or nothing, and what they leave to others.

use super::*;
use crate::wire::header::ReadChunk;
use proptest::prelude::*;

/// A message of a peer that may do anything.
#[derive(Clone, Debug)]
enum Said {
    Properties(bool, [Option<u32>; 5]),
    Grant,
    Error(RdmaError),
    /// Direction, bytes that remain, and bytes that it has.
    Part(bool, u32, usize),
    /// A call with chunks of these lengths for reading, at these positions, and for writing.
    Call(Vec<(u32, u32)>, Vec<u32>, usize),
    Reply(usize),
    Bytes(Vec<u8>),
}

fn said() -> impl Strategy<Value = Said> {
    let word = || prop_oneof![0..5000_u32, any::<u32>()];
    let value = || prop::option::of(word());
    let error = prop_oneof![
        Just(RdmaError::InvalCont),
        Just(RdmaError::BadPropval),
        Just(RdmaError::System),
        (word(), word()).prop_map(|(low, high)| RdmaError::Version { low, high }),
        word().prop_map(|needed| RdmaError::ReplyResource { needed }),
    ];
    let chunk = (0..100_u32, prop_oneof![0..9000_u32, any::<u32>()]);
    prop_oneof![
        1 => (any::<bool>(), [value(), value(), value(), value(), value()])
            .prop_map(|(last, set)| Said::Properties(last, set)),
        1 => Just(Said::Grant),
        1 => error.prop_map(Said::Error),
        4 => (any::<bool>(), word(), 0..3000_usize)
            .prop_map(|(call, remaining, len)| Said::Part(call, remaining, len)),
        4 => (
            prop::collection::vec(chunk, 0..3),
            prop::collection::vec(word(), 0..3),
            0..3000_usize,
        )
            .prop_map(|(reads, writes, len)| Said::Call(reads, writes, len)),
        2 => (0..3000_usize).prop_map(Said::Reply),
        1 => prop::collection::vec(any::<u8>(), 0..80).prop_map(Said::Bytes),
    ]
}

impl Said {
    fn message(&self, xid: u32, credits: u32) -> Buffer {
        let mut out = Buffer::default();
        let segment = |length: u32| Segment {
            handle: Handle(length ^ 77),
            length,
            offset: 0,
        };
        match self {
            Self::Properties(last, [send, receive, size, count, reverse]) => {
                let set = PropertySet {
                    max_send: *send,
                    receive_buffer: *receive,
                    max_segment_size: *size,
                    max_segments: *count,
                    reverse: reverse.map(ReverseSupport::from_word),
                    host_auth: None,
                };
                emit_properties(&mut out, xid, credits, *last, &set);
            }
            Self::Grant => emit_grant(&mut out, credits),
            Self::Error(error) => emit_error(&mut out, xid, 2, credits, *error),
            Self::Part(is_call, remaining, len) => {
                let direction = if *is_call {
                    Direction::Call
                } else {
                    Direction::Reply
                };
                emit_part(&mut out, xid, credits, direction, *remaining);
                out.extend_from_slice(&stream(&call(xid, *len, &[])));
            }
            Self::Call(reads, writes, len) => {
                let mut reads: Vec<ReadChunk> = reads
                    .iter()
                    .map(|&(at, length)| ReadChunk {
                        position: 4 * at,
                        segments: Segments::from_elem(segment(length), 1),
                    })
                    .collect();
                reads.sort_by_key(|chunk| chunk.position);
                let external = reads.first().is_some_and(|chunk| chunk.position == 0);
                let writes = writes.iter().map(|&length| WriteChunk {
                    segments: Segments::from_elem(segment(length), 1),
                });
                let lists = Lists {
                    reads,
                    writes: writes.collect(),
                    reply: None,
                };
                emit_call(&mut out, xid, credits, external, None, &lists);
                out.extend_from_slice(&stream(&call(xid, *len, &[])));
            }
            Self::Reply(len) => {
                emit_reply(&mut out, xid, credits, false, &Lists::default());
                out.extend_from_slice(&stream(&reply(xid, *len, &[])));
            }
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
        }
        out
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Nothing that a peer sends makes an end panic, or hold more than a message in parts and the calls
    /// that it tolerates.
    #[test]
    fn whatever_a_peer_sends_is_survived_within_bounds(
        is_client in any::<bool>(),
        settles in any::<bool>(),
        all in prop::collection::vec((said(), 4..7_u32, prop_oneof![0..40_u32, any::<u32>()]), 1..60),
        answers in 0..9000_usize,
    ) {
        let role = if is_client { Role::Client } else { Role::Server };
        let mut lone = Lone::new(&dialect(role, Versions::Auto));
        if settles {
            send_properties(&mut lone, true, &PropertySet::default());
        }
        for xid in 4..6 {
            let request = request(xid, call(xid, 9000, &[]), bound(answers, &[5000]));
            // It may not be possible on this connection.
            let _ = lone.end.call(request);
        }
        for (said, xid, credits) in all {
            let message = said.message(xid, credits);
            let send = verbs::WorkRequest::Send {
                wr: verbs::WrId(1),
                buffer: message,
                rest: Gather::new(),
                invalidate: None,
            };
            if lone.peer.post(send).is_err() {
                break;
            }
            lone.drive();
            while let Some(event) = lone.events.pop() {
                if let crate::Event::Call { id, .. } = event {
                    lone.end.connection.reply(id, Reply::Message(reply(xid, answers, &[])));
                }
            }
            prop_assert!(lone.end.connection.calls_in() <= 64);
            if lone.end.connection.violation().is_some() {
                break;
            }
        }
    }
}

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
    server.handle_credits(9);
    let mut first = message();
    assert!(server.stamp(&mut first, 8));
    client.handle_message();
    client.handle_credits(word(&first));
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
    let someone =
        client.grant_is_due(8, false) || server.grant_is_due(0, false) || server.room() > 0;
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
        let Some(crate::Event::Call { id, .. }) = lone.events.pop() else {
            continue;
        };
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

#[test]
fn calls_in_parts_hold_no_more_memory_than_the_receives_for_whole_ones() {
    let mut config = dialect(Role::Server, Versions::Auto);
    config.credits = 128;
    let mut lone = Lone::new(&config);
    send_properties(&mut lone, true, &PropertySet::default());
    let (header, _) = next(&mut lone).expect("the server says its properties");
    let mut told = header.credits;
    let messages = config.credits + crate::limits::PART_RECEIVES;
    let bound = messages as usize * config.receive_size() + MAX_CONTINUED;
    // The peer keeps to its credits, and nothing is answered.
    let part = vec![7; config.receive_size() - 64];
    let (mut sent, mut held, mut xid) = (1, 0, 0);
    while sent < told && sent < 5000 {
        let long = stream(&call(xid, 40, &[60_000]));
        let mut left = &long[..];
        while left.len() > part.len() && sent < told {
            let (first, rest) = left.split_at(part.len());
            send_part(&mut lone, (Direction::Call, xid), rest.len(), first);
            (left, sent, held) = (rest, sent + 1, held + first.len());
            while let Some((header, _)) = next(&mut lone) {
                told = header.credits;
            }
        }
        if sent < told {
            send_call(&mut lone, xid, left);
            (sent, held, xid) = (sent + 1, held + left.len(), xid + 1);
        }
        while let Some((header, _)) = next(&mut lone) {
            told = header.credits;
        }
    }
    assert_eq!(lone.end.connection.violation(), None);
    assert!(xid > 2, "calls in parts are served");
    assert!(held <= bound, "{held} bytes, of {bound}");
}
