//! Private data of every length that fits, and one more.

use hostile_peer::{Heard, PROGRAM, Peer, Request, Target, Victim, procedure, rpc, steady, words};

const XID: u32 = 0x0000_5e7a;

/// Bytes of private data at most, those of IRD and ORD included (RFC 5044 §7.1.1).
const MOST: usize = 512;

#[test]
fn server_takes_every_length_up_to_the_limit() {
    let target = Target::start();
    let call = words(&rpc::msg(XID, 8, &rpc::call(XID, PROGRAM, 2, 0)));
    for length in 0..=MOST {
        let data = vec![0xf6; length];
        let mut requests = vec![Request {
            flags: 0x40,
            revision: 1,
            data: data.clone(),
            ..Request::default()
        }];
        if length <= MOST - 4 {
            requests.push(Request::with_private_data(&data));
        }
        for request in requests {
            let mut peer = Peer::connect_with(target.addr(), &request);
            peer.send(&call);
            assert_eq!(
                peer.answer(),
                rpc::msg(XID, 8, &rpc::accepted(XID, 0, &[])),
                "{length} bytes"
            );
        }
    }
    target.assert_serves();
}

#[test]
fn client_takes_every_length_up_to_the_limit() {
    for length in 0..=MOST - 4 {
        let (client, mut server) = Victim::greeted_with(&vec![0xf6; length]);
        let calling = client.echo(b"");
        let xid = server.answer()[0];
        server.send(&words(&rpc::msg(xid, 4, &rpc::accepted(xid, 0, &[0]))));
        client.outcome(calling).expect("a reply");
    }
}

#[test]
fn message_longer_than_announced_is_counted_and_ends_the_connection_of_a_strict_server() {
    let mut call = rpc::call(XID, PROGRAM, 2, procedure::NULL);
    call.resize((4096 - 28) / 4, 0);
    for strict in [false, true] {
        let target = Target::configured(steady().with_strict(strict));
        let mut peer = Peer::connect(target.addr());
        // It announces 4096 bytes.
        assert_eq!(peer.private_data[7], 3);
        peer.send(&words(&rpc::msg(XID, 4, &call)));
        assert_eq!(peer.answer()[0], XID);
        let mut longer = call.clone();
        longer.push(0);
        peer.send(&words(&rpc::msg(XID, 4, &longer)));
        match strict {
            false => assert_eq!(peer.answer()[0], XID),
            true => while !matches!(peer.hear(), Heard::Terminate(_) | Heard::Closed) {},
        }
        drop(peer);
        target.assert_serves();
        assert_eq!(target.stop().counters.oversized, 1);
    }
}
