//! Peers that break rules, and what others see of it.

use crate::heard::Heard;
use crate::made_up::*;
use crate::stage::*;
use gateway::{Gateway, GatewayConfig, Listen, MAX_RECORD, Upstream, tcp_limits};
use hostile_peer::rpc::{accept, accepted, msg, opaque};
use hostile_peer::{Peer, words};
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{
    AuthStat, AuthSys, Credential, LocalUserError, LocalUsers, Origin, Procedure, Programs,
    RpcError, Service, TransportError, read_reply, write_call,
};
use rpcrdma::Versions;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const RDMA: Over = Over::Rdma(Versions::One);

fn nobody() -> Arc<dyn Service> {
    Arc::new(Programs::new())
}

async fn connect(to: SocketAddr) -> TcpStream {
    TcpStream::connect(to).await.expect("it connects")
}

/// Checks that a client is served as ever.
async fn check_served(client: &Lower, xid: u32) {
    let reply = within_limit(client.call(call_of(xid, ECHO, b"on"), 100)).await;
    assert_eq!(results(&reply.expect("it is served"), xid), b"on");
}

#[tokio::test]
async fn peer_that_sends_no_rpc_is_closed_with_a_warning_and_others_are_served() {
    let heard = Heard::listen();
    let upper = Upper::new(RDMA).await;
    let gateway = heard_from_tcp(upper.upstream()).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    check_served(&client, 1).await;
    let too_long = u32::try_from(MAX_RECORD + 4).expect("a word") | 1 << 31;
    let garbage: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &too_long.to_be_bytes(),
        &[0; 8 * 1024],
        // A record that is neither call nor reply.
        b"\x80\0\0\x08\0\0\0\x01\0\0\0\x07",
    ];
    for bytes in garbage {
        let mut stream = connect(gateway.local_addr()).await;
        let peer = stream.local_addr().expect("it is connected");
        stream.write_all(bytes).await.expect("it is sent");
        let mut answer = Vec::new();
        // Closed or reset, and nothing else.
        let _ = within_limit(stream.read_to_end(&mut answer)).await;
        assert!(answer.is_empty());
        assert_eq!(heard.count(&format!("addr={peer}")), 1);
    }
    assert_eq!(heard.count("the connection is closed"), garbage.len());
    check_served(&client, 2).await;
    assert_eq!(gateway.stats().relays, 1, "none of them had an upstream");
}

#[tokio::test]
async fn reply_of_a_client_to_no_call_does_not_reach_the_upstream() {
    for up in [Over::Tcp, RDMA] {
        let upper = Upper::new(up).await;
        let gateway = upper.behind(Over::Tcp).await;
        let mut stream = connect(gateway.local_addr()).await;
        let sent = [
            record_of(&success(5, b"to no call")),
            record_of(&call_of(6, ECHO, b"")),
        ];
        stream.write_all(&sent.concat()).await.expect("it is sent");
        let mut mark = [0; 8];
        within_limit(stream.read_exact(&mut mark))
            .await
            .expect("a reply");
        assert_eq!(mark[4..], 6_u32.to_be_bytes());
        assert_eq!(upper.service.calls().len(), 1);
    }
}

#[tokio::test]
async fn malformed_header_is_answered_and_not_passed_on() {
    for (down, up) in WAYS {
        let upper = Upper::new(up).await;
        let gateway = upper.behind(down).await;
        let client = Lower::new(down, gateway.local_addr(), nobody()).await;
        let words = |words: &[u32]| {
            let mut w = Writer::default();
            words.iter().for_each(|&word| w.u32(word));
            w.finish()
        };
        let reply = client
            .call(words(&[1, 0, 3, PROGRAM, 1, 1, 0, 0, 0, 0]), 100)
            .await;
        let version = RpcError::RpcMismatch { low: 2, high: 2 };
        let reply = reply.expect("it is answered");
        assert_eq!(read_reply(&reply, 1).err(), Some(version));
        let reply = client.call(words(&[2, 0, 2, PROGRAM, 1]), 100).await;
        let reply = reply.expect("it is answered");
        assert_eq!(read_reply(&reply, 2).err(), Some(RpcError::GarbageArgs));
        assert!(upper.service.calls().is_empty());
        check_served(&client, 3).await;
        assert_eq!(gateway.stats().malformed, 2);
    }
}

#[tokio::test]
async fn call_that_asks_for_tls_is_denied_and_does_not_reach_the_upstream() {
    for (down, up) in WAYS {
        let upper = Upper::new(up).await;
        let gateway = upper.behind(down).await;
        let client = Lower::new(down, gateway.local_addr(), nobody()).await;
        let (prog, vers, proc) = (100_003, 4, 0);
        let tls = Credential::Other {
            flavour: 7,
            body: Box::default(),
        };
        let mut w = Writer::default();
        write_call(&mut w, 1, Procedure { prog, vers, proc }, &tls);
        let reply = client.call(w.finish(), 100).await;
        let reply = reply.expect("it is answered");
        let denied = RpcError::Auth(AuthStat::BadCred);
        assert_eq!(read_reply(&reply, 1).err(), Some(denied), "{down:?} {up:?}");
        assert!(upper.service.calls().is_empty());
        check_served(&client, 2).await;
    }
}

#[tokio::test]
async fn malformed_call_with_an_xid_in_flight_draws_no_answer_under_that_xid() {
    for up in [RDMA, Over::Rdma(Versions::Two)] {
        let upper = Upper::new(up).await;
        let gateway = upper.behind(Over::Tcp).await;
        let mut stream = connect(gateway.local_addr()).await;
        let mut replies = async |calls: &[Payload], expected: u32, results: &[u8]| {
            let sent: Vec<u8> = calls.iter().flat_map(record_of).collect();
            stream.write_all(&sent).await.expect("it is sent");
            let expected = record_of(&success(expected, results));
            let mut reply = vec![0; expected.len()];
            let read = within_limit(stream.read_exact(&mut reply)).await;
            read.expect("it is answered");
            assert_eq!(reply, expected, "{up:?}");
        };
        // The first reply grants credits for more than one call.
        replies(&[call_of(6, ECHO, b"")], 6, b"").await;
        let mut w = Writer::default();
        // Of RPC version 3.
        w.words([7, 0, 3, PROGRAM, 1, 1, 0, 0, 0, 0]);
        // The server has memory of the first call until that is answered.
        let calls = [call_of(7, HELD, b""), w.finish(), call_of(8, ECHO, b"on")];
        replies(&calls, 8, b"on").await;
        upper.service.until_called(3).await;
        upper.service.release(7);
        replies(&[], 7, b"released").await;
        let stats = gateway.stats();
        assert_eq!((stats.malformed, stats.repetitions), (0, 1));
    }
}

/// COMPOUND of version 4.1 with these words behind its header.
fn compound(xid: u32, words: &[u32]) -> Payload {
    let (prog, vers, proc) = (100_003, 4, 1);
    let mut w = Writer::default();
    let target = Procedure { prog, vers, proc };
    write_call(&mut w, xid, target, &Credential::None);
    words.iter().for_each(|&word| w.u32(word));
    w.finish()
}

#[tokio::test]
async fn compound_that_lies_about_its_lengths_is_passed_on_as_it_is() {
    for (down, up) in WAYS {
        let upper = Upper::new(up).await;
        let gateway = upper.behind(down).await;
        let client = Lower::new(down, gateway.local_addr(), nobody()).await;
        let lies: [&[u32]; 5] = [
            // A tag, a number of operations, and data that are longer than the call.
            &[u32::MAX],
            &[0, 1, u32::MAX, 53],
            &[0, 1, 1, 38, 0, 0, 0, 0, 0, 0, 2, 0x0100_0000, 7],
            // Data of an odd length with padding that is not zero.
            &[0, 1, 1, 38, 0, 0, 0, 0, 0, 0, 2, 1, 0x0102_0304],
            &[0, 1, 2, 25, 0, 0, 0, 0, 0, 0, u32::MAX, 99_999],
        ];
        for (xid, lie) in (1..).zip(lies) {
            let call = compound(xid, lie);
            let sent = call.head().to_vec();
            let reply = within_limit(client.call(call, 1000)).await;
            reply.unwrap_or_else(|error| panic!("{down:?} {up:?} {xid}: {error}"));
            assert_eq!(upper.service.calls().last(), Some(&sent));
        }
        check_served(&client, 99).await;
    }
}

#[tokio::test]
async fn client_whose_call_ends_before_its_arguments_is_named_in_the_log() {
    let heard = Heard::listen();
    let upper = Upper::new(RDMA).await;
    let gateway = heard_from_tcp(upper.upstream()).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    // PUTROOTFH, with a right count of operations and a wrong one.
    for (xid, count, warnings) in [(1, 1, 0), (2, 2, 1)] {
        let reply = client.call(compound(xid, &[0, 1, count, 24]), 100).await;
        reply.expect("the upstream answers");
        assert_eq!(heard.count("a call ends before its arguments"), warnings);
    }
    let Lower::Tcp(client) = client else {
        panic!("it is one over TCP")
    };
    let peer = client.local_addr().expect("it is connected");
    assert_eq!(heard.count(&format!("peer={peer}")), 1);
}

/// A gateway in front of a TCP server that answers each call with these bytes.
async fn answering(
    down: Over,
    answer: impl Fn(u32) -> Vec<u8> + Clone + Send + 'static,
) -> Gateway {
    let upstream = Upstream::tcp(answering_at(answer).await);
    match down {
        Over::Tcp => from_tcp(upstream).await,
        Over::Rdma(_) => from_rdma(upstream).await,
    }
}

/// A TCP server that answers each call with these bytes, and ends the connection where there are none.
async fn answering_at(answer: impl Fn(u32) -> Vec<u8> + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(anywhere()).await.expect("it listens");
    let addr = listener.local_addr().expect("it listens");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut begin = [0; 4 + 4];
                while stream.read_exact(&mut begin).await.is_ok() {
                    let [_, len @ .., _, _, _, _] = begin;
                    let len = u32::from_be_bytes([0, len[0], len[1], len[2]]) as usize;
                    let mut rest = vec![0; len - 4];
                    let _ = stream.read_exact(&mut rest).await;
                    let [_, _, _, _, xid @ ..] = begin;
                    let answer = answer(u32::from_be_bytes(xid));
                    if answer.is_empty() || stream.write_all(&answer).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    addr
}

#[tokio::test]
async fn upstream_that_answers_with_an_unknown_xid_is_ignored() {
    for down in [Over::Tcp, RDMA] {
        let both = |xid: u32| {
            let other = record_of(&success(xid ^ 0x5555, b"another"));
            [other, record_of(&success(xid, b"on"))].concat()
        };
        let gateway = answering(down, both).await;
        let client = Lower::new(down, gateway.local_addr(), nobody()).await;
        check_served(&client, 1).await;
        check_served(&client, 2).await;
    }
}

/// A TCP side for clients, all on this thread, which is the one that is heard.
async fn heard_from_tcp(upstream: Upstream) -> Gateway {
    let listener = std::net::TcpListener::bind(anywhere()).expect("it listens");
    let config = GatewayConfig::default().with_workers(0_usize);
    let gateway = Gateway::bind(Listen::tcp(listener), upstream, config).await;
    gateway.expect("it listens")
}

#[tokio::test]
async fn upstream_that_answers_with_an_unknown_xid_is_named_in_the_log_once() {
    let warning = "a reply to no call; dropped";
    let heard = Heard::listen();
    let both = |xid: u32| {
        let other = record_of(&success(xid ^ 0x5555, b"another"));
        [other, record_of(&success(xid, b"on"))].concat()
    };
    let addr = answering_at(both).await;
    let gateway = heard_from_tcp(Upstream::tcp(addr)).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    check_served(&client, 1).await;
    check_served(&client, 2).await;
    assert_eq!(heard.count(warning), 1);
    assert_eq!(heard.count(&format!("addr={addr}")), 1);
    let listener = std::net::TcpListener::bind(anywhere()).expect("it listens");
    let addr = listener.local_addr().expect("it listens");
    let serving = std::thread::spawn(move || {
        let mut peer = Peer::accept(&listener);
        for _ in 0..2 {
            let xid = peer.answer()[0];
            for xid in [xid ^ 0x5555, xid] {
                let results = opaque(b"on");
                let reply = msg(xid, 8, &accepted(xid, accept::SUCCESS, &results));
                peer.send(&words(&reply));
            }
        }
        peer
    });
    let gateway = heard_from_tcp(rdma_upstream(addr, Versions::One)).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    check_served(&client, 1).await;
    check_served(&client, 2).await;
    assert_eq!(heard.count(warning), 2);
    assert_eq!(heard.count(&format!("peer={addr}")), 1);
    drop(client);
    drop(serving.join().expect("no panic"));
}

#[tokio::test]
async fn call_at_which_the_server_ends_the_connection_is_named_in_the_log() {
    let heard = Heard::listen();
    let over_tcp = answering_at(|xid| match xid {
        1 => record_of(&success(xid, b"on")),
        _ => Vec::new(),
    });
    let listener = std::net::TcpListener::bind(anywhere()).expect("it listens");
    let over_rdma = listener.local_addr().expect("it listens");
    let serving = std::thread::spawn(move || {
        for _ in 0..2 {
            let mut peer = Peer::accept(&listener);
            let xid = peer.answer()[0];
            let reply = accepted(xid, accept::SUCCESS, &opaque(b"on"));
            peer.send(&words(&msg(xid, 8, &reply)));
            peer.answer();
        }
    });
    let upstreams = [
        Upstream::tcp(over_tcp.await),
        rdma_upstream(over_rdma, Versions::One),
    ];
    for upstream in upstreams {
        let before = heard.count("left this call unanswered");
        let gateway = heard_from_tcp(upstream).await;
        for times in 1..=2 {
            let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
            check_served(&client, 1).await;
            let reply = within_limit(client.call(call_of(7, GROW, b""), 100)).await;
            assert!(matches!(reply, Err(TransportError::Disconnected(_))));
            let said = heard.count("left this call unanswered");
            assert_eq!(said, before + times);
            let call = format!("program={PROGRAM} version=1 procedure={GROW} in_flight=1");
            assert_eq!(heard.count(&call), said);
        }
    }
    serving.join().expect("no panic");
}

#[tokio::test]
async fn calls_that_the_server_leaves_unanswered_together_are_one_line_of_the_log() {
    let heard = Heard::listen();
    let upstream = answering_at(|xid| match xid {
        1 => record_of(&success(xid, b"on")),
        _ => Vec::new(),
    });
    let before = heard.count("left this call unanswered");
    let gateway = heard_from_tcp(Upstream::tcp(upstream.await)).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    check_served(&client, 1).await;
    let call = |xid| client.call(call_of(xid, GROW, b""), 100);
    let replies = async { tokio::join!(call(7), call(8), call(9), call(10)) };
    let (one, two, three, four) = within_limit(replies).await;
    for reply in [one, two, three, four] {
        assert!(matches!(reply, Err(TransportError::Disconnected(_))));
    }
    assert_eq!(heard.count("left this call unanswered"), before + 1);
}

#[tokio::test]
async fn upstream_that_sends_no_rpc_ends_its_client_and_no_other() {
    for down in [Over::Tcp, RDMA] {
        let gateway = answering(down, |xid| match xid {
            1 => record_of(&success(xid, b"on")),
            _ => b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        })
        .await;
        let bad = Lower::new(down, gateway.local_addr(), nobody()).await;
        let good = Lower::new(down, gateway.local_addr(), nobody()).await;
        check_served(&good, 1).await;
        let reply = within_limit(bad.call(call_of(7, ECHO, b""), 100)).await;
        assert!(matches!(reply, Err(TransportError::Disconnected(_))));
        bad.ended().await;
        check_served(&good, 1).await;
    }
}

#[tokio::test]
async fn upstream_that_lies_about_its_data_harms_only_its_client() {
    // READ of version 3 whose data is announced as longer than the reply.
    let lie = |xid: u32| {
        let mut w = Writer::default();
        w.words([xid, 1, 0, 0, 0, 0, 0, 0, 100, 1, 0x00ff_0000, 7]);
        record_of(&w.finish())
    };
    let gateway = answering(RDMA, lie).await;
    let client = rdma_client(gateway.local_addr()).await;
    let (prog, vers, proc) = (100_003, 3, 6);
    let mut w = Writer::default();
    write_call(&mut w, 9, Procedure { prog, vers, proc }, &Credential::None);
    w.opaque(b"handle");
    w.words([0, 0, 1 << 20]);
    let bound = oncrpc::ReplyBound::new(200).with_result(1 << 20);
    let reply = within_limit(oncrpc::Transport::call(&client, w.finish(), bound)).await;
    // What cannot be understood is passed on inline, for the client to judge.
    assert_eq!(reply.expect("it is passed on").head().len(), 48);
}

/// Says that everybody is this user of the machine.
#[derive(Debug)]
struct Everybody(u32);

impl LocalUsers for Everybody {
    fn find(&self, _: BorrowedFd<'_>, _: SocketAddr) -> Result<Origin, LocalUserError> {
        Ok(Origin::User(self.0))
    }
}

#[tokio::test]
async fn local_user_does_not_reach_the_upstream_as_another_one() {
    let upper = Upper::new(RDMA).await;
    let listen = Listen::Tcp {
        listener: std::net::TcpListener::bind(anywhere()).expect("it listens"),
        limits: tcp_limits(),
        admit: None,
        local_users: Some(Arc::new(Everybody(1000))),
    };
    let upstream = rdma_upstream(upper.addr, Versions::One);
    let gateway = Gateway::bind(listen, upstream, GatewayConfig::default()).await;
    let gateway = gateway.expect("it listens");
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    let call_as = |xid, uid| {
        let (prog, vers, proc) = (PROGRAM, 1, ECHO);
        let sys = AuthSys {
            uid,
            ..AuthSys::default()
        };
        let mut w = Writer::default();
        let target = Procedure { prog, vers, proc };
        write_call(&mut w, xid, target, &Credential::Sys(sys));
        w.opaque(b"who");
        w.finish()
    };
    for (xid, uid) in [(1, 0), (2, 1001)] {
        let reply = client.call(call_as(xid, uid), 100).await;
        let reply = reply.expect("it is answered");
        let denied = RpcError::Auth(AuthStat::BadCred);
        assert_eq!(read_reply(&reply, xid).err(), Some(denied));
    }
    let reply = client.call(call_as(3, 1000), 100).await;
    assert_eq!(results(&reply.expect("it is answered"), 3), b"who");
    assert_eq!(upper.service.calls().len(), 1);
    assert_eq!(gateway.stats().denied, 2);
}
