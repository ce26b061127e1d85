//! Open or contradictory passages of the text: peers of another reading, and peers that keep to the
//! letter.

use super::*;

/// A peer with one Receive beyond that for credits: whatever it sends accepts one message more than it
/// has had.
struct OneCredit {
    lone: Lone,
    had: u32,
}

impl OneCredit {
    /// It is the peer of a connection in this role, and its properties are these.
    fn new(role: Role, set: &PropertySet) -> Self {
        let config = Config {
            backward_credits: 4,
            ..dialect(role, Versions::Two)
        };
        let lone = Lone::new(&config);
        let mut this = Self { lone, had: 0 };
        if role == Role::Client {
            assert!(matches!(this.next(), Some((Body::Properties { .. }, _))));
        }
        this.send(
            |out, credits| emit_properties(out, 99, credits, true, set),
            &[],
        );
        if role == Role::Server {
            assert!(matches!(this.next(), Some((Body::Properties { .. }, _))));
            this.grant();
        }
        this
    }

    fn send(&mut self, emit: impl FnOnce(&mut Buffer, u32), stream: &[u8]) {
        let credits = self.had + 1;
        send(&mut self.lone, |out| emit(out, credits), stream);
    }

    fn grant(&mut self) {
        self.send(emit_grant, &[]);
    }

    /// The next arrival: at most one message, and one grant beyond.
    fn next(&mut self) -> Option<(Body, Vec<u8>)> {
        let (header, stream) = next(&mut self.lone)?;
        self.had += 1;
        Some((header.body, stream))
    }

    /// Takes the parts of a message, and grants a credit after each.
    fn whole(&mut self) -> (usize, Vec<u8>) {
        let (mut parts, mut whole) = (0, Vec::new());
        loop {
            let (body, part) = self.next().expect("the next part has a credit");
            let is_last = match body {
                Body::Part { .. } => false,
                Body::Call { .. } | Body::Reply { .. } => true,
                // Nothing comes between: the peer has sent next to nothing.
                other => panic!("{other:?}"),
            };
            whole.extend_from_slice(&part);
            parts += 1;
            assert!(is_last || self.next().is_none(), "there is one credit");
            self.grant();
            if is_last {
                return (parts, whole);
            }
        }
    }
}

#[test]
fn messages_in_parts_go_on_where_each_needs_a_grant() {
    let mut peer = OneCredit::new(Role::Client, &PropertySet::default());
    let request = request(5, call(5, 20_000, &[]), bound(100, &[]));
    peer.lone.end.call(request).expect("it can be carried");
    assert_eq!(peer.whole(), (5, stream(&call(5, 20_000, &[]))));
    let lists = Lists::default();
    let bytes = stream(&reply(5, 8, &[]));
    peer.send(
        |out, credits| emit_reply(out, 5, credits, false, &lists),
        &bytes,
    );
    check_reply(&peer.lone.ended().expect("answered"), 5, 8, &[]);
    // The same of a reply.
    let mut peer = OneCredit::new(Role::Server, &PropertySet::default());
    let bytes = stream(&call(7, 40, &[]));
    peer.send(
        |out, credits| emit_call(out, 7, credits, false, None, &lists),
        &bytes,
    );
    let (id, _) = peer.lone.called();
    let long = Reply::Message(reply(7, 20_000, &[]));
    peer.lone.end.connection.reply(id, long);
    assert_eq!(peer.whole(), (5, stream(&reply(7, 20_000, &[]))));
}

#[test]
fn call_and_reply_take_turns_where_there_is_one_credit() {
    let set = PropertySet {
        reverse: Some(ReverseSupport::General),
        ..PropertySet::default()
    };
    let mut peer = OneCredit::new(Role::Server, &set);
    peer.lone.end.connection.handle_client_ready();
    for xid in [5, 6] {
        let request = request(xid, call(xid, 40, &[]), bound(100, &[]));
        peer.lone.end.call(request).expect("it can be carried");
    }
    assert!(matches!(peer.next(), Some((Body::Call { .. }, _))));
    // The peer calls before it answers, and waits for its reply.
    let lists = Lists::default();
    let bytes = stream(&call(5, 40, &[]));
    peer.send(
        |out, credits| emit_call(out, 5, credits, false, None, &lists),
        &bytes,
    );
    let (id, _) = peer.lone.called();
    let short = Reply::Message(reply(5, 8, &[]));
    peer.lone.end.connection.reply(id, short);
    assert!(matches!(peer.next(), Some((Body::Reply { .. }, _))));
    let bytes = stream(&reply(5, 8, &[]));
    peer.send(
        |out, credits| emit_reply(out, 5, credits, false, &lists),
        &bytes,
    );
    check_reply(&peer.lone.ended().expect("answered"), 5, 8, &[]);
    assert!(matches!(peer.next(), Some((Body::Call { .. }, _))));
}

#[test]
fn reply_in_parts_waits_for_the_parts_of_a_call_before_it() {
    let set = PropertySet {
        reverse: Some(ReverseSupport::General),
        ..PropertySet::default()
    };
    let mut peer = OneCredit::new(Role::Server, &set);
    peer.lone.end.connection.handle_client_ready();
    let long = request(5, call(5, 9000, &[]), bound(100, &[]));
    peer.lone.end.call(long).expect("it can be carried");
    let (first, begun) = peer.next().expect("the first part of the call");
    assert!(matches!(first, Body::Part { .. }));
    // Its further parts wait for credits, and a reply in parts is made.
    let lists = Lists::default();
    let bytes = stream(&call(7, 40, &[]));
    let emit = |out: &mut Buffer, _| emit_call(out, 7, 2, false, None, &lists);
    peer.send(emit, &bytes);
    let (id, _) = peer.lone.called();
    let long = Reply::Message(reply(7, 9000, &[]));
    peer.lone.end.connection.reply(id, long);
    assert!(peer.next().is_none(), "there is no credit");
    peer.grant();
    let (parts, rest) = peer.whole();
    assert_eq!(parts, 2);
    assert_eq!([begun, rest].concat(), stream(&call(5, 9000, &[])));
    assert_eq!(peer.whole(), (3, stream(&reply(7, 9000, &[]))));
}

#[test]
fn grant_to_a_peer_that_gives_one_credit_leaves_room_for_the_next_message() {
    // A reply in parts uses up what its client has said; the client grants more in between, by the one
    // credit that it has.
    let mut peer = OneCredit::new(Role::Client, &PropertySet::default());
    let request = request(5, call(5, 40, &[]), bound(60_000, &[]));
    peer.lone.end.call(request).expect("it can be carried");
    assert!(matches!(peer.next(), Some((Body::Call { .. }, _))));
    let whole = stream(&reply(5, 60_000, &[]));
    let (mut left, mut grants) = (&whole[..], 0);
    while left.len() > 2000 {
        let (part, rest) = left.split_at(2000);
        left = rest;
        let remaining = u32::try_from(rest.len()).expect("short");
        let emit = |out: &mut Buffer, credits| {
            emit_part(out, 5, credits, Direction::Reply, remaining);
        };
        peer.send(emit, part);
        while let Some((body, _)) = peer.next() {
            assert_eq!(body, Body::Grant);
            grants += 1;
        }
    }
    let lists = Lists::default();
    peer.send(
        |out, credits| emit_reply(out, 5, credits, false, &lists),
        left,
    );
    check_reply(&peer.lone.ended().expect("answered"), 5, 60_000, &[]);
    assert!((2..10).contains(&grants), "{grants} grants");
    let request = super::request(6, call(6, 40, &[]), bound(100, &[]));
    peer.lone.end.call(request).expect("it can be carried");
    assert!(matches!(peer.next(), Some((Body::Call { .. }, _))));
}

#[test]
fn grant_does_not_interrupt_a_message_while_the_peer_can_send() {
    let mut lone = server();
    // The peer takes two parts of a reply, and no third.
    let lists = Lists::default();
    let bytes = stream(&call(5, 40, &[]));
    send(
        &mut lone,
        |out| emit_call(out, 5, 3, false, None, &lists),
        &bytes,
    );
    let (id, _) = lone.called();
    let long = Reply::Message(reply(5, 20_000, &[]));
    lone.end.connection.reply(id, long);
    next(&mut lone).expect("the first part");
    let (header, _) = next(&mut lone).expect("the second part");
    assert!(matches!(header.body, Body::Part { .. }));
    // The peer has more to say, and keeps to its credits. By the letter of §6.3.9 a grant would end the
    // reply.
    for sent in 2..header.credits {
        assert!(next(&mut lone).is_none(), "{sent} of {}", header.credits);
        send(&mut lone, |out| emit_grant(out, 3), &[]);
    }
    // Now it can send nothing more.
    let (header, _) = next(&mut lone).expect("credits");
    assert_eq!(header.body, Body::Grant);
}

#[test]
fn credits_of_a_message_that_cannot_be_read_count() {
    // §4.2.1: those of the most recent message, whatever else is in it.
    let unreadable: [(&str, &[u32]); 4] = [
        ("a reply", &[5, 2, 3, header_type::REPLY_INLINE, 7]),
        (
            "a reply to nobody",
            &[77, 2, 3, header_type::REPLY_INLINE, 7],
        ),
        ("an error", &[77, 2, 3, header_type::ERROR, 12]),
        ("a header type", &[77, 2, 3, 14]),
    ];
    for (what, words) in unreadable {
        let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
        next(&mut lone).expect("the client says its properties");
        let set = PropertySet::default();
        send(
            &mut lone,
            |out| emit_properties(out, 99, 1, true, &set),
            &[],
        );
        let call = lone.end.call(request(6, call(6, 40, &[]), bound(100, &[])));
        call.expect("it can be carried");
        assert!(next(&mut lone).is_none(), "there is no credit");
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        lone.send(&bytes, None);
        let mut sent = std::iter::from_fn(|| next(&mut lone));
        assert!(sent.any(|(header, _)| header.xid == 6), "{what}");
    }
    // In another version the word has another meaning (§4.3), and a shorter message has none.
    for words in [&[5, 1, 3, header_type::ERROR, 11][..], &[5, 2, 3]] {
        let mut lone = Lone::new(&dialect(Role::Client, Versions::Two));
        next(&mut lone).expect("the client says its properties");
        let set = PropertySet::default();
        send(
            &mut lone,
            |out| emit_properties(out, 99, 1, true, &set),
            &[],
        );
        let call = lone.end.call(request(6, call(6, 40, &[]), bound(100, &[])));
        call.expect("it can be carried");
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        lone.send(&bytes, None);
        assert!(next(&mut lone).is_none());
    }
}

#[test]
fn first_message_of_a_later_header_type_draws_its_error_and_settles_nothing() {
    let later = |xid: u32| [xid, 2, 4, 14, 0].map(u32::to_be_bytes).concat();
    for versions in [Versions::Auto, Versions::Two] {
        let mut lone = Lone::new(&dialect(Role::Server, versions));
        for xid in [7, 8] {
            lone.send(&later(xid), None);
            assert_eq!(error(&mut lone), (xid, RdmaError::InvalHtype));
        }
        assert_eq!(lone.end.connection.version(), None);
        send_properties(&mut lone, true, &PropertySet::default());
        next(&mut lone).expect("the properties of the server");
        check_served(&mut lone, 9);
    }
    // §4.3.1: a client knows by it that its server has version two.
    let mut lone = Lone::new(&dialect(Role::Client, Versions::Auto));
    next(&mut lone).expect("the client says its properties");
    lone.send(&later(7), None);
    assert_eq!(error(&mut lone), (7, RdmaError::InvalHtype));
    assert_eq!(lone.end.connection.version(), Some(Version::Two));
    assert_eq!(lone.end.connection.violation(), None);
}

#[test]
fn call_and_reply_in_parts_of_one_end_do_not_mix() {
    // §4.1: payload streams of several messages are not interleaved, whatever their direction. XIDs of the
    // two have nothing to do with each other (§3.1.5.4).
    for xid in [5, 7] {
        let mut config = dialect(Role::Client, Versions::Two);
        (config.backward_credits, config.characteristics.backward) = (4, BackwardSupport::Inline);
        let mut lone = Lone::new(&config);
        next(&mut lone).expect("the client says its properties");
        send_properties(&mut lone, true, &PropertySet::default());
        lone.call(request(5, call(5, 40, &[]), bound(20_000, &[])));
        next(&mut lone).expect("the call");
        let (of_reply, of_call) = ((Direction::Reply, 5), (Direction::Call, xid));
        let answer = stream(&reply(5, 9000, &[]));
        // By its numbers, its first part could be the second of the reply.
        let whole = stream(&call(xid, 6000, &[]));
        send_part(&mut lone, of_reply, answer.len() - 3000, &answer[..3000]);
        send_part(&mut lone, of_call, whole.len() - 3000, &whole[..3000]);
        // The call is refused, once, and the reply that it interrupted is lost.
        assert!(lone.ended().is_err());
        assert_eq!(error(&mut lone), (xid, RdmaError::InvalCont));
        send_part(
            &mut lone,
            of_reply,
            answer.len() - 6000,
            &answer[3000..6000],
        );
        send_part(&mut lone, of_call, whole.len() - 5000, &whole[3000..5000]);
        let lists = Lists::default();
        send(
            &mut lone,
            |out| emit_reply(out, 5, PLENTY, false, &lists),
            &answer[6000..],
        );
        send_call(&mut lone, xid, &whole[5000..]);
        assert!(next(&mut lone).is_none() && lone.events.is_empty());
        check_served(&mut lone, xid);
    }
}

#[test]
fn what_remains_is_counted_behind_the_message_that_says_it() {
    let whole = stream(&call(5, 3000, &[]));
    let len = whole.len();
    let of_call = (Direction::Call, 5);
    let whole = &whole;
    // As rdma_remaining of two parts, and whether it is refused with the second or the last.
    let readings: [(&str, [usize; 2]); 4] = [
        ("with the octets of the message itself", [len, len - 1000]),
        (
            "with octets in chunks",
            [len - 1000 + 4096, len - 2000 + 4096],
        ),
        ("a number that grows", [len - 1000, len]),
        ("of parts, and not of octets", [2, 1]),
    ];
    for (what, remaining) in readings {
        let mut lone = server();
        for (part, remaining) in remaining.into_iter().enumerate() {
            let at = 1000 * part;
            send_part(&mut lone, of_call, remaining, &whole[at..at + 1000]);
        }
        send_call(&mut lone, 5, &whole[2000..]);
        assert_eq!(error(&mut lone), (5, RdmaError::InvalCont), "{what}");
        assert!(
            next(&mut lone).is_none() && lone.events.is_empty(),
            "{what}"
        );
        check_served(&mut lone, 5);
    }
    // Nothing remains behind the only part: RDMA2_CALL_INLINE has a word of the stream (§6.3.7).
    let mut lone = server();
    send_part(&mut lone, of_call, 0, whole);
    assert_eq!(error(&mut lone), (5, RdmaError::InvalCont));
    send_call(&mut lone, 5, &[]);
    assert!(next(&mut lone).is_none() && lone.events.is_empty());
    check_served(&mut lone, 5);
}
