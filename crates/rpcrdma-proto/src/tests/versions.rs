//! Which version two ends speak, and what is said to messages of the other (cel-01 §5).

use super::pair::{End, Pair, Setup};
use super::*;
use crate::v2::Foreign;
use crate::{Config, InlineThreshold, Thresholds, Version, Violation};
use oncrpc::{Reply, TransportError};
use verbs::{Completion, QueuePair, WorkRequest, WrId};
use verbs_sim::{EndOptions, Fabric, PairOptions, SimQp};

fn speaking(client: Versions, server: Versions) -> Pair {
    let mut setup = Setup::default();
    setup.client.versions = client;
    setup.server.versions = server;
    Pair::with(setup)
}

/// One call there and one reply back.
fn check_call(pair: &mut Pair, xid: u32) {
    pair.call(request(xid, call(xid, 100, &[5000]), bound(100, &[9000])));
    let (id, message) = pair.arrived();
    assert_eq!(stream(&message), stream(&call(xid, 100, &[5000])));
    pair.answer(id, Reply::Message(reply(xid, 60, &[9000])));
    check_reply(&pair.ended().expect("a reply"), xid, 60, &[9000]);
    pair.check_idle();
}

#[test]
fn ends_speak_the_highest_version_that_both_do() {
    use Version::{One, Two};
    let check = |client, server, version| {
        let mut pair = speaking(client, server);
        pair.drive();
        assert_eq!(pair.client.connection.version(), Some(version));
        check_call(&mut pair, 1);
        assert_eq!(pair.server.connection.version(), Some(version));
        check_call(&mut pair, 2);
    };
    check(Versions::One, Versions::One, One);
    check(Versions::One, Versions::Auto, One);
    check(Versions::Auto, Versions::One, One);
    check(Versions::Auto, Versions::Two, Two);
    check(Versions::Two, Versions::Auto, Two);
    check(Versions::Auto, Versions::Auto, Two);
}

#[test]
fn ends_without_a_common_version_have_no_connection() {
    let mut pair = speaking(Versions::Two, Versions::One);
    pair.drive();
    let none = Violation::NoCommonVersion { low: 1, high: 1 };
    assert_eq!(pair.client.connection.violation(), Some(none));
    let mut pair = speaking(Versions::One, Versions::Two);
    pair.call(request(1, call(1, 100, &[]), bound(100, &[])));
    assert!(matches!(pair.ended(), Err(TransportError::Refused(_))));
    assert_eq!(pair.server.connection.counters().version_errors_sent, 1);
}

#[test]
fn nothing_is_called_before_the_version_is_settled() {
    let mut pair = speaking(Versions::Auto, Versions::Auto);
    assert_eq!(pair.client.connection.version(), None);
    assert_eq!(pair.client.connection.room(), 0);
    pair.call(request(1, call(1, 100, &[]), bound(100, &[])));
    assert_eq!(pair.client.connection.calls_waiting(), 1);
    let (id, _) = pair.arrived();
    pair.answer(id, Reply::Message(reply(1, 60, &[])));
    assert!(pair.ended().is_ok());
}

#[test]
fn sizes_of_private_data_are_those_of_version_one_alone() {
    let sizes = |versions| {
        let mut setup = Setup::default();
        for config in [&mut setup.client, &mut setup.server] {
            config.versions = versions;
            config.own.send = InlineThreshold::at_most(2048);
            config.own.receive = InlineThreshold::at_most(2048);
        }
        let mut pair = Pair::with(setup);
        pair.drive();
        check_call(&mut pair, 1);
        let Thresholds { send, receive } = pair.client.connection.thresholds();
        (send.bytes(), receive.bytes())
    };
    assert_eq!(sizes(Versions::One), (2048, 2048));
    assert_eq!(sizes(Versions::Auto), (4096, 4096));
}

/// One connection, and a peer whose bytes the test makes up.
struct Lone {
    fabric: Fabric,
    end: End<SimQp>,
    peer: SimQp,
}

impl Lone {
    fn new(role: Role, versions: Versions) -> Self {
        let config = Config {
            versions,
            ..config(role)
        };
        let fabric = Fabric::new(5);
        let (qp, mut peer) = fabric.pair(&PairOptions::both(EndOptions::default()));
        for _ in 0..8 {
            let buffer = Buffer::with_capacity(8192);
            let wr = WrId(0);
            peer.post(WorkRequest::Receive { wr, buffer })
                .expect("room");
        }
        let end = End::new(qp, &config, TestOwner::default(), None);
        Self { fabric, end, peer }
    }

    fn connection(&mut self) -> &mut Connection {
        &mut self.end.connection
    }

    /// Messages that the connection has sent, word by word.
    fn heard(&mut self) -> Vec<Vec<u32>> {
        let mut heard = Vec::new();
        loop {
            let moved = self.end.turn() | self.peer.progress();
            while let Some(completion) = self.peer.poll_cq() {
                if let Completion::Receive { buffer, .. } = completion {
                    let words = buffer.chunks_exact(4);
                    heard.push(
                        words
                            .map(|w| u32::from_be_bytes(w.try_into().unwrap()))
                            .collect(),
                    );
                }
            }
            if moved {
                continue;
            }
            match self.fabric.next_event() {
                Some(time) => self.fabric.advance_to(time),
                None => return heard,
            }
        }
    }

    fn say(&mut self, words: &[u32]) -> Vec<Vec<u32>> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        let send = WorkRequest::Send {
            wr: WrId(1),
            buffer: Buffer::from(bytes),
            rest: Gather::new(),
            invalidate: None,
        };
        self.peer.post(send).expect("room");
        self.heard()
    }
}

/// A client that has made its offer; also the XID of that.
fn offered(versions: Versions) -> (Lone, u32) {
    let mut lone = Lone::new(Role::Client, versions);
    let heard = lone.heard();
    assert_eq!(heard.len(), 1, "the offer and nothing else");
    let xid = heard[0][0];
    // An RDMA2_OPTIONAL, a call, ROPT_INITXCH.
    assert_eq!(
        heard[0][1..7],
        [2, 8, 5, 0, 1, (heard[0].len() as u32 - 7) * 4]
    );
    (lone, xid)
}

#[test]
fn each_answer_to_the_offer_has_its_consequence() {
    let check = |answer: &[u32], version, violation| {
        let (mut lone, xid) = offered(Versions::Auto);
        let mut words = vec![xid];
        words.extend(answer);
        assert!(lone.say(&words).is_empty());
        assert_eq!(lone.connection().version(), version, "{answer:?}");
        assert_eq!(lone.connection().violation(), violation, "{answer:?}");
    };
    // What Linux says: version two echoed, version one supported.
    check(&[2, 64, 4, 1, 1, 1], Some(Version::One), None);
    check(&[1, 64, 4, 1, 1, 1], Some(Version::One), None);
    check(&[2, 64, 4, 1, 0, 7], Some(Version::One), None);
    check(&[2, 64, 4, 3], Some(Version::Two), None);
    let none = |low, high| Some(Violation::NoCommonVersion { low, high });
    check(&[2, 64, 4, 1, 3, 4], None, none(3, 4));
    check(&[2, 64, 4, 1, 2, 1], None, none(2, 1));
    check(&[2, 64, 4, 2], Some(Version::Two), None);
    check(&[1, 64, 4, 2], None, Some(Violation::OfferNotUnderstood));
    // What cannot be read is an answer all the same, and says nothing but its version.
    check(&[2, 64, 5, 1, 1, 4, 7], Some(Version::Two), None);
    // No answers.
    check(&[2, 64, 4, 1, 1], None, None);
    check(&[3, 64, 4, 1, 1, 1], None, None);
    check(&[1, 64, 0, 0, 0, 0, 5, 1], None, None);
}

#[test]
fn answer_to_something_else_is_no_answer() {
    let (mut lone, xid) = offered(Versions::Auto);
    assert!(lone.say(&[xid + 1, 2, 64, 4, 1, 1, 1]).is_empty());
    assert_eq!(lone.connection().version(), None);
    assert_eq!(lone.connection().counters().discarded, 1);
}

/// An INITXCH with a Receive Buffer Size of 8192 octets.
fn introduction(xid: u32, direction: u32) -> Vec<u32> {
    vec![xid, 2, 64, 5, direction, 1, 20, 1, 1, 4, 8192, 0]
}

#[test]
fn server_that_introduces_itself_unasked_has_version_two() {
    for direction in [0, 1] {
        let (mut lone, xid) = offered(Versions::Auto);
        let answers = lone.say(&introduction(xid + 5, direction));
        assert_eq!(lone.connection().version(), Some(Version::Two));
        // A call is answered in kind, a reply is not.
        let heads: Vec<_> = answers.iter().map(|m| (m[0], m[3], m[4], m[5])).collect();
        let expected = [(xid + 5, 5, 1, 1)];
        assert_eq!(heads, expected[..usize::from(direction == 0)]);
        // One small call at a time, as its answer is still to come (cel-01 §5).
        let sizes = lone.connection().thresholds();
        assert_eq!((sizes.send.bytes(), lone.connection().room()), (1024, 1));
        // The answer grants credits.
        assert!(lone.say(&introduction(xid, 1)).is_empty());
        let sizes = lone.connection().thresholds();
        assert_eq!((sizes.send.bytes(), lone.connection().room()), (4096, 8));
        assert_eq!(lone.connection().violation(), None);
    }
}

#[test]
fn first_reply_takes_the_place_of_an_answer_to_the_offer() {
    let (mut lone, xid) = offered(Versions::Auto);
    lone.say(&introduction(xid + 5, 0));
    let small = request(9, call(9, 8, &[]), bound(60, &[]));
    lone.end.call(small).expect("it can be carried");
    lone.heard();
    lone.say(&[9, 2, 6, 0, 1, 0, 0, 0, 9, 1, 0]);
    let sizes = lone.connection().thresholds();
    assert_eq!((sizes.send.bytes(), lone.connection().room()), (4096, 6));
}

#[test]
fn server_of_another_draft_is_found_out_at_once() {
    let check = |other_xid: u32, rest: &[u32], foreign| {
        let (mut lone, xid) = offered(Versions::Auto);
        let words = [&[xid.wrapping_add(other_xid)], rest].concat();
        assert!(lone.say(&words).is_empty());
        let violation = lone.connection().violation();
        assert_eq!(violation, foreign, "{rest:?}");
        assert_eq!(lone.connection().version(), None);
    };
    let other = |foreign| Some(Violation::OtherDialect(Dialect::Cel01, foreign));
    // RDMA2_CONNPROP_FINAL of ietf-07, which a server sends unasked; an error of cel-04.
    let properties = Foreign::HeaderType(7);
    check(9, &[2, 64, 7, 0], other(properties));
    check(0, &[2, 64, 4, 9], other(Foreign::ErrorCode(9)));
    // An error for something else may be of anything.
    check(9, &[2, 64, 4, 9], None);
}

#[test]
fn client_of_another_draft_is_told_to_use_version_one() {
    // RDMA2_CONNPROP_FINAL and RDMA2_CALL_INLINE of ietf-07, which are no more than 16 octets long.
    for header_type in [2, 7, 10] {
        let mut lone = Lone::new(Role::Server, Versions::Auto);
        let heard = lone.say(&[7, 2, 4, header_type]);
        assert_eq!(heard, [[7, 2, 4, 4, 1, 1, 1]], "{header_type}");
        // On this very connection (ietf-07 §4.3.2).
        lone.say(&[8, 1, 4, 0, 0, 0, 0, 8, 0]);
        assert_eq!(lone.connection().version(), Some(Version::One));
        // Where there is no version to fall back to, the message is malformed.
        let mut lone = Lone::new(Role::Server, Versions::Two);
        let heard = lone.say(&[7, 2, 4, header_type, 0, 0, 0]);
        assert_eq!(heard, [[7, 2, 4, 4, 2]], "{header_type}");
    }
    // So it is once the version is settled.
    let mut lone = Lone::new(Role::Server, Versions::Auto);
    lone.say(&[7, 2, 4, 0, 0, 0, 0, 0, 7, 0]);
    assert_eq!(lone.say(&[8, 2, 4, 7, 0, 0, 0]), [[8, 2, 4, 4, 2]]);
}

#[test]
fn version_two_without_characteristics_begins_with_one_small_call() {
    let (mut lone, xid) = offered(Versions::Auto);
    lone.say(&[xid, 2, 64, 4, 3]);
    let sizes = lone.connection().thresholds();
    assert_eq!((sizes.send.bytes(), sizes.receive.bytes()), (1024, 4096));
    assert_eq!(lone.connection().room(), 1);
    let small = request(9, call(9, 8, &[]), bound(60, &[]));
    lone.end.call(small).expect("it can be carried");
    // Version two, its direction, and three empty lists.
    assert_eq!(lone.heard()[0][..9], [9, 2, 8, 0, 0, 0, 0, 0, 9]);
    // An error proves nothing.
    lone.say(&[9, 2, 8, 4, 2]);
    assert_eq!(lone.connection().thresholds().send.bytes(), 1024);
    let small = request(10, call(10, 8, &[]), bound(60, &[]));
    lone.end.call(small).expect("it can be carried");
    lone.heard();
    lone.say(&[10, 2, 6, 0, 1, 0, 0, 0, 10, 1, 0]);
    assert_eq!(lone.connection().thresholds().send.bytes(), 4096);
    assert_eq!(lone.connection().room(), 6);
}

#[test]
fn server_answers_each_version_in_its_own_words() {
    let check = |versions, message: &[u32], expected: &[u32], version| {
        let mut lone = Lone::new(Role::Server, versions);
        let heard = lone.say(message);
        assert_eq!(
            heard.first().map_or(&[][..], |m| m),
            expected,
            "{message:?}"
        );
        assert_eq!(lone.connection().version(), version, "{message:?}");
    };
    let (one, two) = (Some(Version::One), Some(Version::Two));
    let auto = Versions::Auto;
    // An operation that is not known pins version two; anything malformed pins nothing.
    check(auto, &[7, 2, 4, 5, 0, 99, 0], &[7, 2, 4, 4, 3], two);
    check(
        auto,
        &[7, 2, 4, 9, 0, 0, 0, 0],
        &[7, 2, 4, 4, 1, 1, 1],
        None,
    );
    check(auto, &[7, 2, 4, 0, 2, 0, 0, 0], &[7, 2, 4, 4, 2], None);
    check(auto, &[7, 1, 4, 9, 0, 0, 0], &[7, 1, 4, 4, 2], None);
    check(auto, &[7, 1, 4, 0, 0, 0, 0, 7, 0], &[], one);
    check(auto, &[7, 2, 4, 0, 0, 0, 0, 0, 7, 0], &[], two);
    check(
        auto,
        &[7, 3, 4, 0, 0, 0, 0, 7, 0],
        &[7, 3, 4, 4, 1, 1, 2],
        None,
    );
    check(
        auto,
        &[7, 0, 4, 0, 0, 0, 0, 7, 0],
        &[7, 0, 4, 4, 1, 1, 2],
        None,
    );
    check(
        Versions::One,
        &[7, 2, 4, 5, 0, 99, 0],
        &[7, 2, 4, 4, 1, 1, 1],
        one,
    );
    check(
        Versions::Two,
        &[7, 1, 4, 0, 0, 0, 0, 7, 0],
        &[7, 1, 4, 4, 1, 2, 2],
        two,
    );
    // An error or a reply draws nothing and pins nothing.
    check(auto, &[7, 1, 4, 0, 0, 0, 0, 7, 1], &[], None);
    check(auto, &[7, 1, 4, 4, 2], &[], None);
    check(auto, &[7, 2, 4, 4, 2], &[], None);
    check(auto, &[7, 2, 4, 0, 1, 0, 0, 0, 7, 1], &[], None);
    check(auto, &[7, 2, 4, 5, 1, 99, 0], &[], None);
    // What says that it is a call is one (cel-01 §4.2.2).
    check(auto, &[7, 2, 4, 0, 0, 0, 0, 0, 7, 1], &[7, 2, 4, 4, 2], two);
}

#[test]
fn messages_that_are_longer_than_announced_are_counted() {
    let words = |head: &[u32], len: usize| {
        let mut all = head.to_vec();
        all.resize(len / 4, 0);
        all
    };
    let server = |versions: Versions, announced: usize| {
        let mut config = config(Role::Server);
        config.versions = versions;
        config.own.receive = InlineThreshold::at_most(announced);
        config.characteristics.largest = InlineThreshold::at_most(16_384);
        let size = 16_384;
        config.receives = crate::Receives::Shared { size };
        let limits = EndOptions::default().limits;
        Connection::new(&config, TestOwner::default(), None, &limits)
    };
    let say = |server: &mut Connection, message: Vec<u32>| {
        let bytes = message.iter().flat_map(|word| word.to_be_bytes()).collect();
        super::lone::arrive(server, bytes);
        while server.poll_post().is_some() {}
        server.counters().oversized
    };
    let call = |xid: u32, len| words(&[xid, 1, 4, 0, 0, 0, 0, xid, 0], len);
    let mut one = server(Versions::Auto, 4096);
    assert_eq!(say(&mut one, call(7, 4096)), 0);
    assert_eq!(say(&mut one, call(8, 4100)), 1);
    assert_eq!(say(&mut one, call(9, 8192)), 2);
    let first = crate::Oversized {
        bytes: 4100,
        limit: 4096,
    };
    assert_eq!(one.oversized(), Some(first));
    // A first message of version two, one before the server has introduced itself, and later ones.
    let call = |xid: u32, len| words(&[xid, 2, 4, 0, 0, 0, 0, 0, xid, 0], len);
    let mut two = server(Versions::Auto, 8192);
    assert_eq!(say(&mut two, call(7, 1028)), 1);
    assert_eq!(say(&mut two, call(8, 4096)), 1);
    assert_eq!(say(&mut two, call(9, 4100)), 2);
    say(&mut two, introduction(10, 0));
    assert_eq!(say(&mut two, call(11, 8192)), 2);
    assert_eq!(say(&mut two, call(12, 8196)), 3);
    // It lowers its size to 4096 at the client's request, and says so.
    let request = [13, 2, 4, 5, 0, 2, 16, 1, 1, 4, 4096];
    say(&mut two, request.to_vec());
    let lowered = two.session().expect("version two").announced_receive_size();
    assert_eq!(lowered, 4096);
    assert_eq!(say(&mut two, call(14, 8192)), 4);
}

#[test]
fn message_of_another_version_is_refused_once_the_version_is_settled() {
    let mut lone = Lone::new(Role::Server, Versions::Auto);
    lone.say(&[7, 1, 4, 0, 0, 0, 0, 7, 0]);
    let heard = lone.say(&[8, 2, 4, 0, 0, 0, 0, 0, 8, 0]);
    assert_eq!(heard, [[8, 2, 4, 4, 1, 1, 1]]);
    let mut lone = Lone::new(Role::Server, Versions::Auto);
    lone.say(&[7, 2, 4, 0, 0, 0, 0, 0, 7, 0]);
    let heard = lone.say(&[8, 1, 4, 0, 0, 0, 0, 8, 0]);
    assert_eq!(heard, [[8, 1, 4, 4, 1, 2, 2]]);
    assert_eq!(lone.connection().violation(), None);
}
