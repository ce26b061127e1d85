//! Rules of the compliance table that nothing else in these tests would notice to be broken.

use super::*;
use verbs::Memory;

/// The next message that the peer receives, as it is on the wire, and the handle that went with it.
fn raw(lone: &mut Lone) -> Option<(Vec<u8>, Option<Handle>)> {
    lone.drive();
    while let Some(completion) = lone.peer.poll_cq() {
        if let Completion::Receive {
            buffer,
            invalidated,
            ..
        } = completion
        {
            return Some((buffer.to_vec(), invalidated.map(|taken| taken.handle)));
        }
    }
    None
}

/// Memory of the peer with room for `len` bytes.
fn sink(lone: &mut Lone, len: u32) -> WriteChunk {
    let memory = Memory::Sink(Buffer::with_capacity(len as usize));
    let at = lone.peer.register(memory).expect("there is room");
    let segment = Segment {
        handle: at.handle,
        length: len,
        offset: at.offset,
    };
    WriteChunk {
        segments: Segments::from_elem(segment, 1),
    }
}

/// The peer sends a call with these chunks, and names a handle to invalidate.
fn send_lists(lone: &mut Lone, xid: u32, named: Option<Handle>, lists: &Lists) {
    let bytes = stream(&call(xid, 40, &[]));
    send(
        lone,
        |out| emit_call(out, xid, PLENTY, false, named, lists),
        &bytes,
    );
}

#[test]
fn client_sends_one_message_until_it_has_heard_of_its_server() {
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
    for xid in 1..4 {
        let request = request(xid, call(xid, 40, &[]), bound(100, &[]));
        lone.end.call(request).expect("it waits for the version");
    }
    let (header, _) = next(&mut lone).expect("the properties of the client");
    assert!(matches!(header.body, Body::Properties { .. }));
    assert!(next(&mut lone).is_none(), "§4.3: one at a time");
    send_properties(&mut lone, true, &PropertySet::default());
    let calls = std::iter::from_fn(|| next(&mut lone)).count();
    assert_eq!(calls, 3);
}

#[test]
fn properties_fit_what_every_peer_receives() {
    for role in [Role::Client, Role::Server] {
        let mut config = dialect(role, Versions::Two);
        config.characteristics.raise_to = InlineThreshold::at_most(64 << 10);
        config.characteristics.largest_sent = InlineThreshold::at_most(256 << 10);
        config.characteristics.backward = BackwardSupport::General;
        let mut lone = Lone::new(&config);
        if role == Role::Server {
            send_properties(&mut lone, true, &PropertySet::default());
        }
        let (first, _) = raw(&mut lone).expect("the properties");
        // §4.3: a server of version one has no larger Receives.
        assert!(first.len() <= 1024, "{} octets", first.len());
        assert!(Header::parse(&first).is_ok());
    }
}

#[test]
fn properties_are_said_once_by_each_end() {
    let pair = pair();
    for end in [&pair.client, &pair.server] {
        assert_eq!(end.connection.counters().control_sent, 1);
        assert_eq!(end.connection.counters().control_received, 1);
    }
}

#[test]
fn properties_count_when_all_are_said() {
    let mut config = dialect(Role::Server, Versions::Two);
    config.characteristics.largest_sent = InlineThreshold::at_most(16 << 10);
    let mut lone = Lone::new(&config);
    let large = PropertySet {
        receive_buffer: Some(8192),
        ..PropertySet::default()
    };
    send_properties(&mut lone, false, &large);
    let sent = |lone: &Lone| lone.end.connection.thresholds().send.bytes();
    assert_eq!(sent(&lone), 4096, "§4.2.2: there is more to come");
    send_properties(&mut lone, true, &PropertySet::default());
    assert_eq!(sent(&lone), 8192);
}

#[test]
fn nothing_longer_is_sent_than_was_said() {
    // The server receives more than the client ever sends, and the other way round.
    for of_server in [false, true] {
        let mut setup = setup([Versions::Two, Versions::Two]);
        let large = InlineThreshold::at_most(16 << 10);
        match of_server {
            true => setup.server.characteristics.raise_to = large,
            false => setup.client.characteristics.raise_to = large,
        }
        let mut pair = Pair::with(setup);
        pair.drive();
        let (small, large) = match of_server {
            true => (&pair.client, &pair.server),
            false => (&pair.server, &pair.client),
        };
        assert_eq!(small.connection.thresholds().send.bytes(), 4096);
        assert_eq!(large.connection.thresholds().receive.bytes(), 4096);
        let said = large.connection.peer_properties().expect("all is said");
        assert_eq!(said.max_send, 4096);
    }
}

#[test]
fn parts_may_have_any_length() {
    let mut lone = server();
    let whole = stream(&call(5, 200, &[]));
    let mut at = 0;
    for len in [1, 2, 3, 5, 4, 7, 1, 100] {
        let remaining = whole.len() - at - len;
        let part = &whole[at..at + len];
        send_part(&mut lone, (Direction::Call, 5), remaining, part);
        at += len;
    }
    send_part(
        &mut lone,
        (Direction::Call, 5),
        1,
        &whole[at..whole.len() - 1],
    );
    send_call(&mut lone, 5, &whole[whole.len() - 1..]);
    let (_, message) = lone.called();
    assert_eq!(stream(&message), whole);
}

#[test]
fn errors_invalidate_nothing() {
    let mut lone = server();
    let chunk = sink(&mut lone, 100);
    let named = Some(chunk.segments[0].handle);
    let lists = Lists {
        writes: vec![chunk],
        ..Lists::default()
    };
    send_lists(&mut lone, 5, named, &lists);
    let (id, _) = lone.called();
    let long = Reply::Message(reply(5, 8, &[101]));
    lone.end.connection.reply(id, long);
    let (answer, invalidated) = raw(&mut lone).expect("an answer");
    let (header, _) = Header::parse(&answer).expect("valid");
    assert!(matches!(header.body, Body::Error(_)));
    assert_eq!(invalidated, None);
    // A reply to the same call takes it along.
    send_lists(&mut lone, 6, named, &lists);
    let (id, _) = lone.called();
    let short = Reply::Message(reply(6, 8, &[100]));
    lone.end.connection.reply(id, short);
    assert_eq!(raw(&mut lone).expect("a reply").1, named);
}

#[test]
fn handle_that_the_call_does_not_offer_stays() {
    let mut lone = server();
    let (offered, other) = (sink(&mut lone, 100), sink(&mut lone, 100));
    let named = Some(other.segments[0].handle);
    let lists = Lists {
        writes: vec![offered],
        ..Lists::default()
    };
    send_lists(&mut lone, 5, named, &lists);
    let (id, _) = lone.called();
    let short = Reply::Message(reply(5, 8, &[100]));
    lone.end.connection.reply(id, short);
    assert_eq!(raw(&mut lone).expect("a reply").1, None);
}

#[test]
fn reply_chunk_comes_before_parts_and_parts_where_it_is_too_small() {
    for (room, in_chunk) in [(9000, true), (5000, false)] {
        let mut lone = server();
        let lists = Lists {
            reply: Some(sink(&mut lone, room)),
            ..Lists::default()
        };
        send_lists(&mut lone, 5, None, &lists);
        let (id, _) = lone.called();
        let long = Reply::Message(reply(5, 6000, &[]));
        lone.end.connection.reply(id, long);
        let (header, _) = next(&mut lone).expect("a reply");
        let is_external = matches!(header.body, Body::Reply { external: true, .. });
        let is_part = matches!(header.body, Body::Part { .. });
        assert_eq!((is_external, is_part), (in_chunk, !in_chunk), "{room}");
    }
}

#[test]
fn error_says_what_a_reply_chunk_would_need() {
    let mut lone = server();
    let lists = Lists {
        reply: Some(sink(&mut lone, 5000)),
        writes: vec![sink(&mut lone, 1000), sink(&mut lone, 1998)],
        ..Lists::default()
    };
    let of = |items: &[usize]| Reply::Message(reply(5, MAX_CONTINUED, items));
    send_lists(&mut lone, 5, None, &lists);
    let (id, _) = lone.called();
    lone.end.connection.reply(id, of(&[1000, 1998]));
    // The XID, the direction, the fixed part, and what is behind each item; results are in their chunks.
    let needed = 4 + 4 + 4 + MAX_CONTINUED as u32 + 2 * (4 + 4);
    assert_eq!(error(&mut lone), (5, RdmaError::ReplyResource { needed }));
    // Of two results, the second is too long.
    send_lists(&mut lone, 5, None, &lists);
    let (id, _) = lone.called();
    lone.end.connection.reply(id, of(&[1000, 1999]));
    let needed = RdmaError::WriteResource {
        chunk: std::num::NonZeroU32::new(2),
        needed: 1999,
    };
    assert_eq!(error(&mut lone), (5, needed));
}

#[test]
fn refused_properties_take_those_before_along() {
    let mut lone = Lone::new(&dialect(Role::Server, Versions::Two));
    let large = PropertySet {
        receive_buffer: Some(8192),
        ..PropertySet::default()
    };
    send_properties(&mut lone, false, &large);
    next(&mut lone).expect("the properties of the server");
    let short = [99, 2, PLENTY, header_type::CONNPROP_FINAL, 1, 2, 2, 0];
    lone.send(&short.map(u32::to_be_bytes).concat(), None);
    assert_eq!(error(&mut lone), (99, RdmaError::BadPropval));
    send_properties(&mut lone, true, &PropertySet::default());
    let peer = lone.end.connection.peer_properties().expect("all is said");
    assert_eq!(peer.receive_buffer, 4096);
}

#[test]
fn chunks_of_calls_backward_draw_their_error_and_are_not_read() {
    for (support, refused) in [
        (BackwardSupport::Inline, true),
        (BackwardSupport::General, false),
    ] {
        let mut config = dialect(Role::Client, Versions::Two);
        (config.backward_credits, config.characteristics.backward) = (4, support);
        let mut lone = Lone::new(&config);
        next(&mut lone).expect("the client says its properties");
        send_properties(&mut lone, true, &PropertySet::default());
        let lists = Lists {
            writes: vec![sink(&mut lone, 100)],
            ..Lists::default()
        };
        send_lists(&mut lone, 5, None, &lists);
        if refused {
            assert_eq!(error(&mut lone), (5, RdmaError::ReadChunks { max: 0 }));
            assert!(lone.events.is_empty());
        } else {
            lone.called();
        }
    }
}

#[test]
fn each_level_of_reverse_support_permits_what_it_says() {
    // Whether a call goes, a long one goes in parts, and one with a large argument in a chunk.
    for (level, permitted) in [
        (0, [false, false, false]),
        (1, [true, false, false]),
        (2, [true, true, false]),
        (3, [true, true, true]),
        (4, [false, false, false]),
    ] {
        let calls = [
            call(5, 40, &[]),
            call(5, 9000, &[]),
            call(5, 40, &[2 * MAX_CONTINUED]),
        ];
        for (call, permitted) in calls.into_iter().zip(permitted) {
            let mut lone = Lone::new(&dialect(Role::Server, Versions::Auto));
            let words = [99, 2, PLENTY, header_type::CONNPROP_FINAL, 1, 5, 4, level];
            lone.send(&words.map(u32::to_be_bytes).concat(), None);
            next(&mut lone).expect("the properties of the server");
            lone.end.connection.handle_client_ready();
            let called = lone.end.call(request(5, call, bound(100, &[])));
            assert_eq!(called.is_ok(), permitted, "{level}: {called:?}");
            assert_eq!(next(&mut lone).is_some(), permitted);
        }
    }
}

#[test]
fn each_error_ends_its_call_and_no_other() {
    let errors = [
        RdmaError::Version { low: 1, high: 1 },
        RdmaError::BadXdr,
        RdmaError::InvalHtype,
        RdmaError::InvalCont,
        RdmaError::ReadChunks { max: 1 },
        RdmaError::WriteChunks { max: 1 },
        RdmaError::Segments { max: 1 },
        RdmaError::WriteResource {
            chunk: None,
            needed: 0,
        },
        RdmaError::ReplyResource { needed: 0 },
        RdmaError::VersionMismatch,
        RdmaError::System,
    ];
    for told in errors {
        let mut lone = client();
        for xid in [5, 6] {
            lone.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
            next(&mut lone).expect("the call");
        }
        send(&mut lone, |out| emit_error(out, 5, 2, PLENTY, told), &[]);
        assert!(lone.ended().is_err(), "{told:?}");
        assert!(lone.events.is_empty(), "{told:?}");
        let lists = Lists::default();
        send(
            &mut lone,
            |out| emit_reply(out, 6, PLENTY, false, &lists),
            &stream(&reply(6, 8, &[])),
        );
        check_reply(&lone.ended().expect("a valid reply"), 6, 8, &[]);
    }
}
