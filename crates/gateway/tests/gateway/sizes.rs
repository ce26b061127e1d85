//! Replies that do not fit, and calls that are repeated for them.

use crate::made_up::*;
use crate::stage::*;
use gateway::{Gateway, GatewayConfig, Listen, Upstream};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{
    Answer, CallHeader, Caller, Credential, Procedure, Programs, ReplyBound, RpcError, Service,
    TransportError, read_reply, write_call,
};
use rpcrdma::Versions;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use verbs::{
    BoxFuture, Connected, Limits, Provider, QpOptions, QueuePair, SetupError, WorkRequest,
    WrapProvider, WrapQueuePair,
};

fn nobody() -> Arc<dyn Service> {
    Arc::new(Programs::new())
}

#[tokio::test]
async fn reply_that_does_not_fit_the_chunks_of_its_call_is_err_chunk() {
    for way in WAYS {
        let (Over::Rdma(_), up) = way else { continue };
        let upper = Upper::new(up).await;
        let gateway = upper.behind(way.0).await;
        let client = Lower::new(way.0, gateway.local_addr(), nobody()).await;
        let grow = |xid, len: u32| call_of_words(xid, GROW, &[len]);
        let reply = client.call(grow(1, 50_000), 100).await;
        assert!(
            matches!(reply, Err(TransportError::Refused(_))),
            "{reply:?}"
        );
        let reply = client.call(grow(2, 50_000), 50_000).await;
        assert_eq!(results(&reply.expect("it fits"), 2).len(), 50_000);
        let stats = gateway.stats();
        assert_eq!((stats.replies_too_large, stats.replies), (1, 1));
    }
}

#[tokio::test]
async fn reply_without_a_known_bound_has_room_up_to_the_largest_one() {
    for up in [Over::Rdma(Versions::One), Over::Rdma(Versions::Two)] {
        let upper = Upper::new(up).await;
        let gateway = upper.behind(Over::Tcp).await;
        let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
        let fits = u32::try_from(gateway::MAX_REPLY - 28).expect("a word");
        for (xid, len) in [(1, 10), (2, 1 << 20), (3, fits)] {
            let reply = client.call(call_of_words(xid, GROW, &[len]), 0).await;
            let results = results(&reply.expect("it fits"), xid);
            assert_eq!(results.len(), len as usize);
        }
        // A program that nobody knows must not be called twice.
        let reply = client.call(call_of_words(4, GROW, &[fits + 4]), 0).await;
        let reply = reply.expect("it is answered");
        assert_eq!(read_reply(&reply, 4).err(), Some(RpcError::SystemErr));
        assert_eq!(upper.service.calls().len(), 4);
        let stats = gateway.stats();
        assert_eq!((stats.larger_retries, stats.system_errors), (0, 1));
    }
}

#[tokio::test]
async fn reply_without_a_known_bound_has_room_up_to_a_chunk_of_the_client() {
    let upper = Upper::new(Over::Rdma(Versions::One)).await;
    let config = client_config().with_max_chunk(600_000_usize);
    let gateway = from_tcp(Upstream::rdma(iwarp(), upper.addr, config)).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    for (xid, len) in [(1, 10), (2, 590_000)] {
        let reply = client.call(call_of_words(xid, GROW, &[len]), 0).await;
        let results = results(&reply.expect("it fits"), xid);
        assert_eq!(results.len(), len as usize);
    }
    assert_eq!(gateway.stats().system_errors, 0);
}

/// Software iWARP that registers and moves so little at once.
struct Small(Arc<dyn Provider>);

struct SmallQueuePair(Box<dyn QueuePair>, Limits);

const SMALL: usize = 600_000;

fn small(limits: &Limits) -> Limits {
    Limits {
        max_region: SMALL,
        ..limits.clone()
    }
}

impl WrapProvider for Small {
    type Inner = dyn Provider;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    fn wrap_limits(&self) -> Limits {
        small(&self.0.limits())
    }

    fn wrap_connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(async move {
            let connected = self.0.connect(to, options, private_data, receives).await?;
            let limits = small(connected.qp.limits());
            let qp = Box::new(SmallQueuePair(connected.qp, limits));
            Ok(Connected { qp, ..connected })
        })
    }
}

impl WrapQueuePair for SmallQueuePair {
    type Inner = dyn QueuePair;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut *self.0
    }

    fn wrap_limits(&self) -> &Limits {
        &self.1
    }
}

#[tokio::test]
async fn reply_without_a_known_bound_has_room_up_to_what_the_provider_registers() {
    let upper = Upper::new(Over::Rdma(Versions::One)).await;
    let provider = Arc::new(Small(iwarp()));
    let gateway = from_tcp(Upstream::rdma(provider, upper.addr, client_config())).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    for (xid, len) in [(1, 10), (2, 590_000)] {
        let reply = client.call(call_of_words(xid, GROW, &[len]), 0).await;
        let results = results(&reply.expect("it fits"), xid);
        assert_eq!(results.len(), len as usize);
    }
    assert_eq!(gateway.stats().system_errors, 0);
}

#[tokio::test]
async fn call_that_asks_for_more_than_the_connection_carries_is_sent_and_its_reply_may_be_shorter()
{
    let upper = Upper::new(Over::Rdma(Versions::One)).await;
    let config = client_config().with_max_chunk(600_000_usize);
    let gateway = from_tcp(Upstream::rdma(iwarp(), upper.addr, config)).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    // READ with a stateid, an offset and a count; of version 4, and at an offset of version 3.
    let read = |count| [25, 0, 0, 0, 0, 0, 0, count];
    let several = [&[0, 0, 3][..], &read(1), &read(400_000), &read(400_000)].concat();
    let one = [&[0, 0, 1][..], &read(4 << 20)].concat();
    let of_version_3 = vec![4, 0xab, 0, 0, 4 << 20];
    let directory = [&[0, 0, 1, 26][..], &[0; 5], &[1 << 20, 0]].concat();
    for (xid, (vers, proc, words)) in (1..).zip([
        (4, 1, several),
        (4, 1, one),
        (3, 6, of_version_3),
        (4, 1, directory),
    ]) {
        let prog = 100_003;
        let mut w = Writer::default();
        let target = Procedure { prog, vers, proc };
        write_call(&mut w, xid, target, &Credential::None);
        words.iter().for_each(|&word| w.u32(word));
        let reply = client.call(w.finish(), 0).await;
        assert_eq!(results(&reply.expect("it is answered"), xid), b"");
    }
    assert_eq!(upper.service.calls().len(), 4);
    assert_eq!(gateway.stats().system_errors, 0);
}

/// A server that notes each call, and how many of its items came beside its stream.
#[derive(Default)]
struct Items(Mutex<Vec<(usize, Vec<u8>)>>);

impl Service for Items {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let header = CallHeader::parse(&mut Reader::from(&call)).expect("a call");
        let seen = (call.items().len(), stream(&call));
        self.0.lock().expect("no panic holds it").push(seen);
        Answer::message(success(header.xid, &[]))
    }
}

fn stream(message: &Payload) -> Vec<u8> {
    let mut whole = buffer::Buffer::default();
    message.copy_stream_into(&mut whole);
    whole.to_vec()
}

#[tokio::test]
async fn call_with_several_read_chunks_has_one_at_most_towards_an_rdma_upstream() {
    let service = Arc::<Items>::default();
    let server = serve_rdma(Arc::clone(&service) as Arc<dyn Service>, Versions::One).await;
    let over = Over::Rdma(Versions::One);
    let upstream = rdma_upstream(server.local_addr(), Versions::One);
    let gateway = from_rdma(upstream).await;
    let direct = Lower::new(over, server.local_addr(), nobody()).await;
    let through = Lower::new(over, gateway.local_addr(), nobody()).await;
    let (prog, vers, proc) = (100_003, 4, 1);
    let target = Procedure { prog, vers, proc };
    for client in [direct, through] {
        let mut w = Writer::default();
        write_call(&mut w, 1, target, &Credential::None);
        w.words([0, 0, 2]);
        for bytes in [5001, 6001] {
            w.words([38, 0, 0, 0, 0, 0, 0, 2]);
            w.item(vec![vec![5; bytes].into()].into());
        }
        let reply = client.call(w.finish(), 100).await;
        assert_eq!(results(&reply.expect("it is answered"), 1), b"");
    }
    let seen = service.0.lock().expect("no panic holds it");
    let [(direct, sent), (through, passed)] = &seen[..] else {
        panic!("two calls")
    };
    assert!(passed == sent, "it is the same call");
    assert!(*direct == 2 && *through < 2, "{direct} {through}");
}

/// A server that answers with so many bytes, and notes XIDs and calls.
struct Long {
    bytes: usize,
    calls: Mutex<Vec<Vec<u8>>>,
}

impl Service for Long {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let header = CallHeader::parse(&mut Reader::from(&call)).expect("a call");
        self.calls
            .lock()
            .expect("no panic holds it")
            .push(call.head().to_vec());
        Answer::message(success(header.xid, &vec![5; self.bytes]))
    }
}

/// GETACL of both lists, with this credential.
fn get_acl(xid: u32, credential: &Credential) -> Payload {
    let (prog, vers, proc) = (100_227, 3, 1);
    let mut w = Writer::default();
    write_call(&mut w, xid, Procedure { prog, vers, proc }, credential);
    w.opaque(b"handle");
    w.u32(0xf);
    w.finish()
}

/// A credential of RPCSEC_GSS version 1 without protection of the arguments.
fn gss() -> Credential {
    let mut w = Writer::default();
    w.words([1, 0, 7, 1]);
    w.opaque(b"context");
    Credential::Other {
        flavour: 6,
        body: w.finish().head().into(),
    }
}

async fn long(bytes: usize) -> (Arc<Long>, rpcrdma::Server, Upstream) {
    let service = Arc::new(Long {
        bytes,
        calls: Mutex::default(),
    });
    let server = serve_rdma(Arc::clone(&service) as Arc<dyn Service>, Versions::One).await;
    let upstream = rdma_upstream(server.local_addr(), Versions::One);
    (service, server, upstream)
}

#[tokio::test]
async fn call_whose_reply_cannot_be_estimated_is_repeated_once_with_another_xid() {
    let (service, _server, upstream) = long(2 << 20).await;
    let gateway = from_tcp(upstream).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    let reply = client.call(get_acl(77, &Credential::None), 0).await;
    assert_eq!(results(&reply.expect("it is answered"), 77).len(), 2 << 20);
    let calls = service.calls.lock().expect("no panic holds it").clone();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], get_acl(77, &Credential::None).head());
    assert_ne!(calls[1][..4], calls[0][..4], "another XID");
    assert_eq!(calls[1][4..], calls[0][4..]);
    assert_eq!(gateway.stats().larger_retries, 1);
}

/// The same server, which answers the second call when it is told to.
struct SecondHeld {
    long: Long,
    told: Arc<Notify>,
}

impl Service for SecondHeld {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let answer = self.long.call(call, caller);
        let calls = self.long.calls.lock().expect("no panic holds it").len();
        match (calls, answer) {
            (2, Answer::Now(reply)) => {
                let told = Arc::clone(&self.told);
                Answer::Later(Box::pin(async move {
                    told.notified().await;
                    reply
                }))
            }
            (_, answer) => answer,
        }
    }
}

#[tokio::test]
async fn repeated_call_counts_once_and_one_that_waits_for_its_xid_counts_too() {
    let told = Arc::<Notify>::default();
    let service = Arc::new(SecondHeld {
        long: Long {
            bytes: 2 << 20,
            calls: Mutex::default(),
        },
        told: Arc::clone(&told),
    });
    let server = serve_rdma(Arc::clone(&service) as Arc<dyn Service>, Versions::One).await;
    let gateway = from_tcp(rdma_upstream(server.local_addr(), Versions::One)).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    let calls = || {
        service
            .long
            .calls
            .lock()
            .expect("no panic holds it")
            .clone()
    };
    let in_flight = || gateway.monitor().tcp_clients()[0].in_flight;
    let waits = async {
        until(|| calls().len() == 2).await;
        assert_eq!(in_flight(), 1, "a call and its repetition");
        let own = calls()[1][..4].try_into().expect("an XID");
        let own = u32::from_be_bytes(own);
        let waits = client.call(get_acl(own, &Credential::None), 0);
        let counted = async {
            until(|| gateway.stats().calls == 2).await;
            assert_eq!(in_flight(), 2);
            told.notify_one();
        };
        let (reply, ()) = tokio::join!(waits, counted);
        reply.expect("it is answered");
    };
    let first = client.call(get_acl(77, &Credential::None), 0);
    let (reply, ()) = tokio::join!(first, waits);
    reply.expect("it is answered");
    until(|| in_flight() == 0).await;
}

#[tokio::test]
async fn call_is_not_repeated_without_end() {
    let (service, _server, upstream) = long(5 << 20).await;
    let gateway = from_tcp(upstream).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    let reply = client.call(get_acl(77, &Credential::None), 0).await;
    let reply = reply.expect("it is answered");
    assert_eq!(read_reply(&reply, 77).err(), Some(RpcError::SystemErr));
    assert_eq!(service.calls.lock().expect("no panic holds it").len(), 2);
}

#[tokio::test]
async fn call_under_rpcsec_gss_is_not_repeated_and_its_tcp_client_closed() {
    let (service, _server, upstream) = long(2 << 20).await;
    let gateway = from_tcp(upstream).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    let reply = client.call(get_acl(77, &gss()), 0).await;
    assert!(matches!(reply, Err(TransportError::Disconnected(_))));
    assert_eq!(service.calls.lock().expect("no panic holds it").len(), 1);
}

#[tokio::test]
async fn call_under_rpcsec_gss_is_err_chunk_for_its_rdma_client() {
    let (service, _server, upstream) = long(2 << 20).await;
    let gateway = from_rdma(upstream).await;
    let client = rdma_client(gateway.local_addr()).await;
    let bound = ReplyBound::new(3 << 20);
    let reply = oncrpc::Transport::call(&client, get_acl(77, &gss()), bound).await;
    assert!(
        matches!(reply, Err(TransportError::Refused(_))),
        "{reply:?}"
    );
    assert_eq!(service.calls.lock().expect("no panic holds it").len(), 1);
}

/// A gateway with memory for the data of one such call.
async fn with_memory_for_one(data: usize, upstream: Upstream) -> Gateway {
    let config = server_config().with_chunk_memory(data + 4096);
    let listen = Listen::rdma(iwarp(), anywhere(), config);
    let gateway = Gateway::bind(listen, upstream, GatewayConfig::default()).await;
    gateway.expect("it listens")
}

#[tokio::test]
async fn calls_that_a_tcp_server_has_and_leaves_unanswered_need_no_chunk_memory() {
    const DATA: usize = 60_000;
    let upper = Upper::new(Over::Tcp).await;
    let gateway = with_memory_for_one(DATA, upper.upstream()).await;
    // A connection has one credit before its first reply.
    let mut clients = Vec::new();
    for xid in 1..=3 {
        let client = Lower::new(Over::Rdma(Versions::One), gateway.local_addr(), nobody()).await;
        // Its reply may have far more, of which it needs nothing yet.
        clients.push(tokio::spawn(async move {
            client.call(call_of(xid, HELD, &[5; DATA]), 1 << 20).await
        }));
    }
    within_limit(upper.service.until_called(3)).await;
    assert!(clients.iter().all(|call| !call.is_finished()));
}

#[tokio::test]
async fn call_has_chunk_memory_for_its_data_until_an_rdma_server_has_answered() {
    const DATA: usize = 60_000;
    let upper = Upper::new(Over::Rdma(Versions::One)).await;
    let gateway = with_memory_for_one(DATA, upper.upstream()).await;
    let client = Lower::new(Over::Rdma(Versions::One), gateway.local_addr(), nobody()).await;
    let monitor = gateway.monitor();
    let held = || -> usize {
        let connections = monitor.connections();
        connections.iter().map(|now| now.chunk_memory).sum()
    };
    let calling = client.call(call_of(1, HELD, &[5; DATA]), 1 << 20);
    let answering = async {
        upper.service.until_called(1).await;
        until(|| (DATA..DATA + 4096).contains(&held())).await;
        upper.service.release(1);
        until(|| held() == 0).await;
    };
    let (reply, ()) = tokio::join!(calling, within_limit(answering));
    reply.expect("it is answered");
}
