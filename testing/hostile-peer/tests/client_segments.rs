//! Hostile servers that break the rules of DDP and RDMAP, or use handles of completed calls.

use hostile_peer::rpc::accepted;
use hostile_peer::{Cause, Heard, Offered, Scene, Segment, Version, assert_goes_on, opcode, words};

const NO_BUFFER: Cause = Cause(1, 2, 2);
const INVALID_SEQUENCE: Cause = Cause(1, 2, 3);
const INVALID_OFFSET: Cause = Cause(1, 2, 4);
const TAGGED_INVALID_STAG: Cause = Cause(1, 1, 0);
const INVALID_STAG: Cause = Cause(0, 1, 0);
const UNEXPECTED_OPCODE: Cause = Cause(0, 2, 6);
const CANNOT_INVALIDATE: Cause = Cause(0, 1, 9);

#[test]
fn handles_of_one_connection_are_invalid_on_another() {
    for version in Version::BOTH {
        let first = Scene::of(version);
        let mut second = Scene::of(version);
        let (source, sink) = (first.source(), first.sink());
        assert!(second.source() != source && second.sink() != sink);
        second.server.write(sink, 0, b"x");
        second.assert_terminated(TAGGED_INVALID_STAG);
        let mut second = Scene::of(version);
        second.server.read_request(source, 0, 1);
        second.assert_terminated(INVALID_STAG);
        let mut second = Scene::of(version);
        let reply = words(&second.reply(0));
        second.server.send_and_invalidate(&reply, sink);
        second.assert_terminated(CANNOT_INVALIDATE);
        // The first has not noticed.
        let Scene {
            client,
            mut server,
            calling,
            data,
            offered,
            ..
        } = first;
        server.read_request(source, 0, 4);
        assert_eq!(server.hear(), Heard::Read(data[..4].to_vec()));
        server.send(&words(&version.reply(&[offered.xid, 1, 4, 4, 2])));
        assert!(client.outcome(calling).is_err());
        assert_goes_on(&client, &mut server);
    }
}

#[test]
fn handle_of_another_call_cannot_be_invalidated() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        // The first reply of a connection gives the credit for more than one call.
        let reply = words(&scene.reply(0));
        scene.server.send(&reply);
        let (client, mut server) = scene.answered();
        let calls = [(); 2].map(|()| {
            let calling = client.echo(&vec![1; Scene::LENGTH as usize]);
            (calling, Offered::parse(&server.answer()))
        });
        let [(first, one), (second, other)] = calls;
        let [handle, _, high, low] = one.writes[0][0];
        let header = [one.xid, 1, 4, 0, 0, 1, 1, handle, 0, high, low, 0, 0];
        let reply = [&header[..], &accepted(one.xid, 0, &[0])].concat();
        let reply = words(&version.reply(&reply));
        server.send_and_invalidate(&reply, other.writes[0][0][0]);
        // It may not even have been for this call: the connection is over, whatever the reply says.
        server.drain();
        for calling in [first, second] {
            assert!(client.outcome(calling).is_err());
        }
    }
}

#[test]
fn arguments_cannot_be_read_when_their_call_has_its_reply() {
    for version in Version::BOTH {
        for by_server in [true, false] {
            let mut scene = Scene::of(version);
            let (source, reply) = (scene.source(), words(&scene.reply(0)));
            if by_server {
                scene.server.send_and_invalidate(&reply, source);
            } else {
                scene.server.send(&reply);
            }
            // Whoever is dropped hangs up.
            let (_client, mut server) = scene.answered();
            server.read_request(source, 0, 1);
            server.assert_terminated(INVALID_STAG);
        }
    }
}

#[test]
fn unsolicited_read_response_is_terminated() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        let sink = scene.sink();
        let response = Segment::tagged(opcode::READ_RESPONSE, sink, 0, b"x");
        scene.server.segment(&response);
        scene.assert_terminated(UNEXPECTED_OPCODE);
    }
}

#[test]
fn messages_out_of_order_are_terminated() {
    for version in Version::BOTH {
        for (skipped, offset, cause) in [
            (1, 0, INVALID_SEQUENCE),
            (-1, 0, INVALID_SEQUENCE),
            (-2, 0, INVALID_SEQUENCE),
            (0, 1, INVALID_OFFSET),
            (0, u32::MAX, INVALID_OFFSET),
        ] {
            let mut scene = Scene::of(version);
            let number = scene.server.next(0).wrapping_add_signed(skipped);
            let segment = Segment::untagged(opcode::SEND, 0, [0, number, offset], b"x");
            scene.server.segment(&segment);
            scene.assert_terminated(cause);
        }
    }
}

#[test]
fn more_messages_than_receives_are_terminated() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        let mut flood = Vec::new();
        for _ in 0..500 {
            let sequence = scene.server.next(0);
            let segment = Segment::untagged(opcode::SEND, 0, [0, sequence, 0], b"nothing");
            flood.extend(scene.server.framed(&segment.emit()));
        }
        scene.server.bytes(&flood);
        scene.assert_terminated(NO_BUFFER);
    }
}

#[test]
fn flood_of_read_requests_is_terminated() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        let source = scene.source();
        let mut flood = Vec::new();
        for _ in 0..500 {
            let sequence = scene.server.next(1);
            let request = words(&[1, 0, 0, Scene::LENGTH, source, 0, 0]);
            let segment = Segment::untagged(opcode::READ_REQUEST, 0, [1, sequence, 0], &request);
            flood.extend(scene.server.framed(&segment.emit()));
        }
        scene.server.bytes(&flood);
        // What was asked for within the depth may come first.
        scene.server.drain_to_terminate(NO_BUFFER);
        scene.assert_lost();
    }
}

#[test]
fn terminate_in_the_middle_of_a_message_ends_the_call() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        let sequence = scene.server.next(0);
        let half = Segment::untagged(opcode::SEND, 0, [0, sequence, 0], &[0; 100]);
        scene.server.segment(&half.not_last());
        let terminate = Segment::untagged(opcode::TERMINATE, 0, [2, 1, 0], &[0x12, 2, 0, 0]);
        scene.server.segment(&terminate);
        scene.server.hang_up();
        scene.server.assert_closed();
        scene.assert_lost();
    }
}

#[test]
fn cancelled_call_keeps_its_memory_until_its_reply() {
    for version in Version::BOTH {
        let scene = Scene::of(version);
        let (source, sink, reply) = (scene.source(), scene.sink(), words(&scene.reply(0)));
        let Scene {
            client,
            mut server,
            data,
            calling,
            ..
        } = scene;
        client.cancel(calling);
        // Who answers does not know of it.
        server.read_request(source, 0, 4);
        assert_eq!(server.hear(), Heard::Read(data[..4].to_vec()));
        server.write(sink, 0, &[9; 1000]);
        server.send(&reply);
        assert_goes_on(&client, &mut server);
        server.write(sink, 0, b"too late");
        server.assert_terminated(TAGGED_INVALID_STAG);
    }
}

#[test]
fn reply_that_comes_twice_ends_one_call_only() {
    for version in Version::BOTH {
        let mut scene = Scene::of(version);
        let reply = words(&scene.reply(0));
        for _ in 0..2 {
            scene.server.send(&reply);
        }
        let (client, mut server) = scene.answered();
        assert_goes_on(&client, &mut server);

        let mut scene = Scene::of(version);
        let (sink, reply) = (scene.sink(), words(&scene.reply(0)));
        for _ in 0..2 {
            scene.server.send_and_invalidate(&reply, sink);
        }
        scene.server.assert_terminated(CANNOT_INVALIDATE);
        // Whether the first reply was taken up before the end is a matter of who was quicker.
        let _ = scene.client.outcome(scene.calling);
    }
}
