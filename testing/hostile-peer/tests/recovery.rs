//! After each attack the victim is as before: no connection, buffer or region of the attacker's is
//! left, and others are served.

use hostile_peer::rpc::accepted;
use hostile_peer::{
    Offered, PROGRAM, Peer, Request, Segment, Target, Version, Victim, opcode, procedure, rpc,
    words,
};

const XID: u32 = 0x00c0_7e57;

/// Handles of ours.
const SOURCE: u32 = 0x51;
const SINK: u32 = 0x52;

const LENGTH: u32 = 60_000;

/// Attack on a server, with a name.
type Attack = (&'static str, fn(&Target, Version));

/// A connection with a call in service: its chunk of 60,000 bytes was asked for.
fn pulled(target: &Target, version: Version) -> Peer {
    let mut peer = Peer::connect(target.addr());
    peer.answers_reads = false;
    peer.memory.insert(SINK, vec![0; LENGTH as usize]);
    let lists = [
        1, 44, SOURCE, LENGTH, 0, 0, 0, 1, 1, SINK, LENGTH, 0, 0, 0, 0,
    ];
    let call = rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], &[LENGTH]);
    let call = [&[XID, 1, 8, 0], &lists[..], &call].concat();
    peer.send(&words(&version.call(&call)));
    let _ = peer.hear_read_request();
    peer
}

const ON_SERVER: &[Attack] = &[
    ("half a handshake", |target, _| {
        Peer::silent(target.addr()).bytes(&Request::default().emit()[..17]);
    }),
    ("half a frame", |target, _| {
        Peer::connect(target.addr()).bytes(&[0, 60, 0x41]);
    }),
    ("half a message", |target, _| {
        let mut peer = Peer::connect(target.addr());
        let half = Segment::untagged(opcode::SEND, 0, [0, 1, 0], &[0; 2000]);
        peer.segment(&half.not_last());
    }),
    ("half a chunk", |target, version| {
        let mut peer = pulled(target, version);
        let sink = peer.asked_for[0];
        let half = Segment::tagged(opcode::READ_RESPONSE, sink, 0, &[1; 30_000]);
        peer.segment(&half.not_last());
    }),
    ("a chunk that is too long", |target, version| {
        let mut peer = pulled(target, version);
        let sink = peer.asked_for[0];
        peer.segment(&Segment::tagged(
            opcode::READ_RESPONSE,
            sink,
            0,
            &[1; 60_001],
        ));
        peer.drain();
    }),
    ("a chunk that is too short", |target, version| {
        let mut peer = pulled(target, version);
        let sink = peer.asked_for[0];
        peer.segment(&Segment::tagged(
            opcode::READ_RESPONSE,
            sink,
            0,
            &[1; 59_999],
        ));
        peer.drain();
    }),
    ("a chunk to the wrong place", |target, version| {
        let mut peer = pulled(target, version);
        let sink = peer.asked_for[0];
        let place = u64::MAX - 1;
        peer.segment(&Segment::tagged(
            opcode::READ_RESPONSE,
            sink,
            place,
            &[1; 60_000],
        ));
        peer.drain();
    }),
    ("a Write to the place of a chunk", |target, version| {
        let mut peer = pulled(target, version);
        let sink = peer.asked_for[0];
        peer.write(sink, 0, &[1; 60_000]);
        peer.drain();
    }),
    ("the place of a chunk invalidated", |target, version| {
        let mut peer = pulled(target, version);
        let sink = peer.asked_for[0];
        peer.send_and_invalidate(b"", sink);
        peer.drain();
    }),
    ("a Terminate instead of a chunk", |target, version| {
        let mut peer = pulled(target, version);
        let terminate = Segment::untagged(opcode::TERMINATE, 0, [2, 1, 0], &[0x01, 0, 0, 0]);
        peer.segment(&terminate);
        peer.drain();
    }),
    ("hanging up instead of a chunk", |target, version| {
        drop(pulled(target, version))
    }),
    ("a wrong CRC while a chunk is pulled", |target, version| {
        let mut peer = pulled(target, version);
        let mut fpdu = peer.framed(&Segment::tagged(opcode::WRITE, 1, 0, &[]).emit());
        fpdu[3] ^= 1;
        peer.bytes(&fpdu);
        peer.drain();
    }),
    ("nonsense in every header", |target, version| {
        let mut peer = Peer::connect(target.addr());
        for word in [0, 1, 2, 1 << 28, u32::MAX] {
            peer.send(&words(&[XID, word, word, word, word, word, word, word]));
            let version = version.number();
            peer.send(&words(&[XID, version, 8, 0, word, word, word, word]));
            peer.send(&words(&[XID, version, 8, 5, word, word, word, word]));
        }
    }),
];

#[test]
fn server_state_is_restored_after_each_attack() {
    let target = Target::start();
    target.assert_baseline();
    for (name, attack) in ON_SERVER {
        for version in Version::BOTH.repeat(2) {
            attack(&target, version);
        }
        eprintln!("{name}");
        target.assert_serves();
        target.assert_baseline();
    }
}

/// An attack of a server on a client whose call in flight offers this memory.
type ServerAttack = (&'static str, fn(&mut Peer, &Offered, Version));

const ON_CLIENT: &[ServerAttack] = &[
    ("hanging up", |server, _, _| server.hang_up()),
    ("half a frame", |server, _, _| {
        server.bytes(&[0, 60, 0x41]);
        server.hang_up();
    }),
    ("half a Write", |server, offered, _| {
        let sink = offered.writes[0][0][0];
        let write = Segment::tagged(opcode::WRITE, sink, 0, &[1; 30_000]);
        let fpdu = server.framed(&write.emit());
        server.bytes(&fpdu[..20_000]);
        server.hang_up();
    }),
    ("a Write that is too long", |server, offered, _| {
        server.write(offered.writes[0][0][0], 65_000, &[1; 2000]);
        server.drain();
    }),
    ("a Read that is not taken in", |server, offered, _| {
        server.read_request(offered.reads[0][0], 0, LENGTH);
        server.read_request(offered.reads[0][0], 0, LENGTH);
        server.hang_up();
    }),
    (
        "a foreign handle taken along",
        |server, offered, version| {
            let xid = offered.xid;
            let reply = rpc::msg(xid, 4, &accepted(xid, 0, &[0]));
            let reply = words(&version.reply(&reply));
            server.send_and_invalidate(&reply, offered.reads[0][0] ^ 0x100);
            server.drain();
        },
    ),
    (
        "an answer that takes a handle along, and a Write to it",
        |server, offered, version| {
            let sink = offered.writes[0][0][0];
            let error = words(&version.reply(&[offered.xid, 1, 4, 4, 2]));
            server.send_and_invalidate(&error, sink);
            server.write(sink, 0, b"too late");
            server.drain();
        },
    ),
    ("a Terminate", |server, _, _| {
        let terminate = Segment::untagged(opcode::TERMINATE, 0, [2, 1, 0], &[0xff; 4]);
        server.segment(&terminate);
        server.drain();
    }),
];

#[test]
fn client_state_is_restored_after_each_attack() {
    for (version, (name, attack)) in Version::BOTH
        .into_iter()
        .flat_map(|version| ON_CLIENT.iter().map(move |attack| (version, attack)))
    {
        let (other, mut good) = Victim::connected();
        let (client, mut server) = Victim::speaking(version);
        let calling = client.echo(&vec![3; LENGTH as usize]);
        let offered = Offered::parse(&server.answer());
        attack(&mut server, &offered, version);
        assert!(client.outcome(calling).is_err(), "{name}");
        drop(server);
        client.assert_nothing_is_left();
        // Another client of the same process has not noticed.
        let calling = other.echo(b"");
        let xid = good.answer()[0];
        good.send(&words(&rpc::msg(xid, 4, &accepted(xid, 0, &[0]))));
        other.outcome(calling).expect("a reply");
    }
}
