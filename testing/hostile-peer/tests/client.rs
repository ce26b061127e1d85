//! Hostile servers of version one, and how a client reacts.

use hostile_peer::rpc::accepted;
use hostile_peer::{
    Cause, Heard, Peer, Scene, Version, Victim, assert_goes_on, connect_to, connect_to_nobody,
    connect_within, words,
};
use oncrpc::xdr::Reader;
use oncrpc::{Chain, TransportError};
use std::time::Duration;
use verbs::SetupError;

const LENGTH: u32 = Scene::LENGTH;

/// The server writes the data and replies as it should; the client gets what it asked for.
fn finish(mut scene: Scene) {
    let sink = scene.sink();
    for (number, piece) in scene.data.chunks(50_000).enumerate() {
        scene.server.write(sink, number as u64 * 50_000, piece);
    }
    let reply = words(&scene.reply(LENGTH));
    scene.server.send(&reply);
    let reply = scene.client.outcome(scene.calling).expect("a reply");
    let mut r = Reader::from(&reply);
    r.skip(24).unwrap();
    assert!(r.item(LENGTH).unwrap().to_vec() == scene.data);
}

#[test]
fn honest_server_is_served() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        let source = scene.source();
        scene.server.read_request(source, 0, LENGTH);
        assert_eq!(scene.server.hear(), Heard::Read(scene.data.clone()));
        finish(scene);
    }
}

#[test]
fn memory_beyond_what_was_offered_cannot_be_written() {
    for version in Version::BOTH {
        // It is the region that is checked, which may be a little larger than what was offered of it:
        // up to the next power of two. The last is beyond the end of all offsets.
        for (offset, length, cause) in [
            (1 << 17, 1, Cause(1, 1, 1)),
            ((1 << 17) - 1, 2, Cause(1, 1, 1)),
            (u64::from(LENGTH), 40_000, Cause(1, 1, 1)),
            (1 << 40, 8, Cause(1, 1, 1)),
            (u64::MAX, 1, Cause(1, 1, 3)),
            (u64::MAX - 7, 9, Cause(1, 1, 3)),
        ] {
            let mut scene = Scene::of(version);
            let sink = scene.sink();
            scene.server.write(sink, offset, &vec![0xbb; length]);
            scene.assert_terminated(cause);
        }
    }
}

#[test]
fn memory_beyond_what_was_offered_cannot_be_read() {
    for version in Version::BOTH {
        for (offset, length, cause) in [
            (0, LENGTH + 1, Cause(0, 1, 1)),
            (u64::from(LENGTH), 1, Cause(0, 1, 1)),
            (u64::MAX, 1, Cause(0, 1, 4)),
            (1, u32::MAX, Cause(0, 1, 1)),
        ] {
            let mut scene = Scene::of(version);
            let source = scene.source();
            scene.server.read_request(source, offset, length);
            scene.assert_terminated(cause);
        }
    }
}

#[test]
fn memory_is_reached_only_in_the_way_that_was_offered() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        let source = scene.source();
        scene.server.write(source, 0, b"changed");
        scene.assert_terminated(Cause(0, 1, 2));
        let mut scene = Scene::of(version);
        let sink = scene.sink();
        scene.server.read_request(sink, 0, 8);
        scene.assert_terminated(Cause(0, 1, 2));
    }
}

#[test]
fn handles_that_were_not_offered_reach_nothing() {
    for version in Version::BOTH {
        for other in [1, 0x80, 0x100, 0x8000_0000] {
            let mut scene = Scene::of(version);
            let sink = scene.sink();
            scene.server.write(sink ^ other, 0, b"x");
            scene.assert_terminated(Cause(1, 1, 0));
            let mut scene = Scene::of(version);
            let source = scene.source();
            scene.server.read_request(source ^ other, 0, 1);
            scene.assert_terminated(Cause(0, 1, 0));
            let mut scene = Scene::of(version);
            let (sink, reply) = (scene.sink(), words(&scene.reply(LENGTH)));
            scene.server.send_and_invalidate(&reply, sink ^ other);
            scene.assert_terminated(Cause(0, 1, 9));
        }
    }
}

#[test]
fn memory_is_out_of_reach_when_its_call_has_its_reply() {
    for version in Version::BOTH {
        for by_server in [true, false] {
            let mut scene = Scene::of(version);
            let (sink, reply) = (scene.sink(), words(&scene.reply(LENGTH)));
            if by_server {
                scene.server.send_and_invalidate(&reply, sink);
            } else {
                scene.server.send(&reply);
            }
            // Whoever is dropped hangs up.
            let (_client, mut server) = scene.answered();
            server.write(sink, 0, b"too late");
            server.assert_terminated(Cause(1, 1, 0));
        }
    }
}

#[test]
fn invalid_replies_are_discarded_and_the_call_continues() {
    let good = Scene::of(Version::One);
    let xid = good.offered.xid;
    finish(good);
    assert_ne!(xid, 0);
    let nonsense: &[fn(u32) -> Vec<u32>] = &[
        |_| Vec::new(),
        |xid| vec![xid],
        |xid| vec![xid, 1, 4, 0, 0],
        |xid| vec![xid, 1, 4, 0, 0, 0],
        |xid| vec![xid, 1, 4, 77, 0, 0, 0],
        |xid| vec![xid, 1, 4, 0, 2, 0, 0],
        |xid| vec![xid, 1, 4, 0, 0, 1, 1 << 28],
        |xid| vec![xid, 1, 4, 3, 0, 0, 0],
        |xid| vec![xid, 1, 4, 4],
        |xid| vec![xid, 1, 4, 4, 99],
        |xid| vec![xid, 1, 4, 4, 1, 1],
        |xid| vec![xid ^ 1, 1, 4, 4, 2],
        |xid| {
            let header = [xid ^ 1, 1, 4, 0, 0, 0, 0];
            [&header[..], &accepted(xid ^ 1, 0, &[0])].concat()
        },
    ];
    for (version, make) in Version::BOTH
        .into_iter()
        .flat_map(|version| nonsense.iter().map(move |make| (version, make)))
    {
        let mut scene = Scene::of(version);
        let message = make(scene.offered.xid);
        scene.say(&message);
        // The same in the other version is no reply either.
        let other = match version {
            Version::One => Version::Two,
            Version::Two => Version::One,
        };
        scene.server.send(&words(&other.reply(&message)));
        scene.server.send(b"short");
        finish(scene);
    }
}

#[test]
fn call_of_a_server_for_which_nobody_is_ready_is_not_executed() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        let xid = scene.offered.xid;
        // The client never said that it is ready for any (RFC 8167 §6), in version two that it is not
        // (BKREQSUP_NONE, xcharext §3.3).
        let call = [xid, 1, 4, 0, 0, 0, 0, xid, 0, 2, 1, 1, 1, 0, 0, 0, 0];
        scene.server.send(&words(&version.call(&call)));
        let unavailable = [&[xid, 1, 1, 0, 0, 0, 0][..], &accepted(xid, 1, &[])].concat();
        assert_eq!(scene.server.answer(), version.reply(&unavailable));
        finish(scene);
    }
}

#[test]
fn errors_end_the_call_and_nothing_else() {
    for version in Version::BOTH {
        // The last is of version two alone, and means nothing in version one.
        let errors = [&[2][..], &[1, 1, 1], &[1, 2, 2], &[1, 7, 3], &[3]];
        for error in &errors[..3 + version.number() as usize] {
            let mut scene = Scene::of(version);
            let xid = scene.offered.xid;
            scene.say(&[&[xid, 1, 4, 4], *error].concat());
            let Scene {
                client,
                mut server,
                calling,
                ..
            } = scene;
            match client.outcome(calling) {
                Err(TransportError::Refused(_)) => {}
                other => panic!("expected a refusal, got {:?}", other.map(drop)),
            }
            assert_goes_on(&client, &mut server);
        }
    }
}

#[test]
fn replies_with_chunks_that_were_not_offered_end_the_call_and_nothing_else() {
    let changes: &[fn(&mut Vec<u32>)] = &[
        // More than there was room for. Handle and offset only repeat the offer, and are not looked
        // at.
        |reply| reply[8] = LENGTH + 1,
        |reply| reply[8] = u32::MAX,
        // No chunk, though the result was to be in one; a second one; a reply chunk.
        |reply| {
            reply.splice(5..11, []);
        },
        |reply| {
            let chunk: Vec<u32> = reply[5..11].to_vec();
            reply.splice(5..5, chunk);
        },
        |reply| {
            reply.splice(12..13, [1, 1, 9, 9, 0, 0]);
        },
        // A Read chunk in a reply (RFC 8166 §4.3.1).
        |reply| {
            reply.splice(4..4, [1, 0, 9, 9, 0, 0]);
        },
        // The message is in a chunk that was not offered.
        |reply| reply[3] = 1,
        // Another XID in the message.
        |reply| reply[13] ^= 1,
    ];
    let changes = changes.iter().enumerate();
    for (version, (number, change)) in Version::BOTH
        .into_iter()
        .flat_map(|version| changes.clone().map(move |change| (version, change)))
    {
        let scene = Scene::of(version);
        let mut reply = scene.reply(LENGTH);
        // They are of headers without a direction word.
        let direction = (version == Version::Two).then(|| reply.remove(4));
        change(&mut reply);
        if let Some(direction) = direction {
            reply.insert(4, direction);
        }
        let Scene {
            client,
            mut server,
            calling,
            ..
        } = scene;
        server.send(&words(&reply));
        let outcome = client.outcome(calling);
        let unusable = match &outcome {
            // It shows when the result is looked for: it is not there.
            Ok(reply) => {
                let mut r = Reader::from(reply);
                r.skip(24).unwrap();
                r.item(LENGTH).is_err()
            }
            Err(TransportError::BadReply(_)) => true,
            Err(_) => false,
        };
        assert!(unusable, "change {number}: {:?}", outcome.map(drop));
        assert_goes_on(&client, &mut server);
    }
}

#[test]
fn credit_grants_are_clamped_between_one_and_the_request() {
    for version in Version::BOTH {
        for credits in [0, u32::MAX] {
            let mut scene = Scene::of(version);
            let mut reply = scene.reply(LENGTH);
            reply[2] = credits;
            scene.server.send(&words(&reply));
            let (client, mut server) = scene.answered();
            assert_goes_on(&client, &mut server);
        }
    }
}

#[test]
fn call_to_a_silent_server_times_out() {
    let (client, _server) = Victim::with_timeout(Duration::from_millis(300));
    let calling = client.echo(b"is anybody there?");
    match client.outcome(calling) {
        Err(TransportError::TimedOut(_) | TransportError::Disconnected(_)) => {}
        other => panic!("expected a timeout, got {:?}", other.map(drop)),
    }
}

#[test]
fn server_that_hangs_up_ends_the_call() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        scene.server.hang_up();
        scene.assert_lost();
    }
}

#[track_caller]
fn not_ours(error: &SetupError, words: &str) {
    match error {
        SetupError::NotOurProtocol(_) => {
            let text = Chain(error).to_string();
            assert!(text.contains(words), "{text:?} does not say {words:?}");
        }
        other => panic!("expected another protocol, got {other:?}"),
    }
}

#[test]
fn server_of_plain_nfs_over_tcp_is_recognised() {
    // It takes our request for a record of absurd length and closes, twice.
    let error = connect_to(|listener| {
        for _ in 0..2 {
            drop(Peer::incoming(listener));
        }
    });
    not_ours(&error, "plain NFS/TCP");
    // Or it says something of its own.
    let error = connect_to(|listener| {
        let mut server = Peer::incoming(listener);
        server.answer_request(&words(&[0x8000_0018, 1, 1, 0, 0, 0, 0]));
        server.assert_closed();
    });
    not_ours(&error, "plain NFS/TCP");
}

#[test]
fn replies_that_are_no_mpa_are_told_apart() {
    let reply = |key: &[u8; 16], flags: u8, revision: u8, length: u16, data: &[u8]| {
        let mut bytes = key.to_vec();
        bytes.extend([flags, revision]);
        bytes.extend(length.to_be_bytes());
        bytes.extend_from_slice(data);
        bytes
    };
    let answered = |answer: &[u8]| {
        connect_to(|listener| {
            let mut server = Peer::incoming(listener);
            server.answer_request(answer);
            server.assert_closed();
        })
    };
    let good = b"MPA ID Rep Frame";
    not_ours(&answered(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "MPA");
    not_ours(
        &answered(&reply(b"MPA ID Req Frame", 0x50, 2, 4, &[0; 4])),
        "same role",
    );
    not_ours(&answered(&reply(good, 0x50, 9, 4, &[0; 4])), "revision 9");
    not_ours(&answered(&reply(good, 0x50, 1, 0, &[])), "revision");
    not_ours(&answered(&reply(good, 0x50, 2, 513, &[])), "513");
    not_ours(&answered(&reply(good, 0x40, 2, 0, &[])), "enhanced");
    match answered(&reply(good, 0x70, 2, 7, b"\0\0\0\0why")) {
        SetupError::Rejected(data) => assert_eq!(data, b"why"),
        other => panic!("expected a rejection, got {other:?}"),
    }
}

#[test]
fn connecting_to_a_silent_server_times_out() {
    let error = connect_within(Duration::from_millis(300), |listener| {
        let mut server = Peer::incoming(listener);
        server.answer_request(b"MPA ID Rep");
        server.assert_closed();
    });
    match error {
        SetupError::TimedOut(..) => {}
        other => panic!("expected a timeout, got {other:?}"),
    }
}

#[test]
fn refused_connection_is_reported_with_the_address() {
    let (to, error) = connect_to_nobody();
    let text = Chain(&error).to_string();
    assert!(text.contains(&to.to_string()), "{text}");
    assert!(text.contains("nothing listens"), "{text}");
}
