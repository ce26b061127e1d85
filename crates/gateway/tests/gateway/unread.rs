//! Replies that a client does not read, in virtual time.

use crate::made_up::*;
use crate::stage::*;
use gateway::{Connect, Gateway, GatewayConfig, Listen, Upstream, tcp_limits};
use oncrpc_tcp::{IncomingStream, Limits, Server, Stream, record};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use verbs::BoxFuture;

/// Number of calls, and the bytes of each result.
const CALLS: u32 = 32;
const RESULT: u32 = 1 << 20;

/// Makes streams within this process.
struct ToServer(mpsc::Sender<IncomingStream>);

impl Connect for ToServer {
    fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(async {
            let stream = connect(&self.0).await;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

async fn connect(to: &mpsc::Sender<IncomingStream>) -> DuplexStream {
    connect_from(to, 1).await
}

/// Connects as a client at 127.0.0.`host`.
async fn connect_from(to: &mpsc::Sender<IncomingStream>, host: u8) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(4096);
    let stream = IncomingStream::new(theirs, ([127, 0, 0, host], 700).into());
    to.send(stream).await.expect("it listens");
    ours
}

/// A server, and a gateway to it with this much memory for replies.
struct Relayed {
    server: Arc<MadeUp>,
    gateway: Gateway,
    to_gateway: mpsc::Sender<IncomingStream>,
}

impl Relayed {
    async fn start(reply_memory: usize) -> Self {
        let config = GatewayConfig::default();
        Self::start_with(config.with_reply_memory(reply_memory)).await
    }

    async fn start_with(config: GatewayConfig) -> Self {
        let limits = Limits {
            calls: CALLS as usize,
            ..tcp_limits()
        };
        let server = Arc::<MadeUp>::default();
        let (to_server, streams) = mpsc::channel(1);
        let serving = Server::over(streams, Arc::clone(&server) as _, limits);
        tokio::spawn(serving.run(std::future::pending()));
        let (to_gateway, streams) = mpsc::channel(1);
        let listen = Listen::Streams {
            streams,
            addr: anywhere(),
            limits,
        };
        let upstream = Upstream::Streams {
            connect: Arc::new(ToServer(to_server)),
            addrs: vec![anywhere()],
        };
        let gateway = Gateway::bind(listen, upstream, config.with_workers(0_usize)).await;
        Self {
            server,
            gateway: gateway.expect("it is bound"),
            to_gateway,
        }
    }
}

/// So many calls with large replies, as records.
fn calls(number: u32) -> buffer::Buffer {
    let mut calls = buffer::Buffer::default();
    for xid in 0..number {
        record::encode(&call_of_words(xid, GROW, &[RESULT]), &mut calls);
    }
    calls
}

/// A client at 127.0.0.`host` that makes one call, which the server holds.
async fn held(relayed: &Relayed, host: u8) -> DuplexStream {
    let mut client = connect_from(&relayed.to_gateway, host).await;
    let mut call = buffer::Buffer::default();
    record::encode(&call_of(u32::from(host), HELD, b""), &mut call);
    client.write_all(&call).await.expect("it is sent");
    // In virtual time it passes once nobody has anything to do.
    tokio::time::sleep(Duration::from_millis(1)).await;
    client
}

/// Reads a reply, or an error of so many bytes.
async fn read_words(client: &mut DuplexStream, bytes: usize) -> Vec<u32> {
    let mut reply = vec![0; 4 + bytes];
    client.read_exact(&mut reply).await.expect("a reply");
    let words = reply.chunks_exact(4).skip(1);
    words
        .map(|word| u32::from_be_bytes(word.try_into().expect("a word")))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn calls_that_a_tcp_server_leaves_unanswered_take_no_memory_for_replies() {
    /// Memory for one of the replies.
    const MEMORY: usize = 4 << 20;
    let relayed = Relayed::start(MEMORY).await;
    let mut clients = Vec::new();
    for host in 2..40 {
        clients.push(held(&relayed, host).await);
    }
    assert_eq!(relayed.server.calls().len(), clients.len());
    let mut client = connect(&relayed.to_gateway).await;
    client.write_all(&calls(1)).await.expect("it is sent");
    let mut reply = reply();
    let read = client.read_exact(&mut reply);
    let read = tokio::time::timeout(Duration::from_secs(1), read).await;
    read.expect("it is not late").expect("a reply");
}

/// Room for one of the replies.
fn reply() -> Vec<u8> {
    vec![0; 4 + 24 + 4 + RESULT as usize]
}

#[tokio::test(start_paused = true)]
async fn calls_whose_replies_are_not_read_keep_their_memory() {
    // An address has half: enough for seven replies with what is around them.
    let relayed = Relayed::start(16 << 20).await;
    let mut client = connect(&relayed.to_gateway).await;
    client.write_all(&calls(CALLS)).await.expect("it is sent");
    // In virtual time it passes once nobody has anything to do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let server = &relayed.server;
    // Seven have memory, one of them queued, and one waits for it. The others wait in the server.
    let answered = server.calls().len();
    assert!((8..16).contains(&answered), "{answered}");
    let mut reply = reply();
    for _ in 0..CALLS {
        client.read_exact(&mut reply).await.expect("a reply");
    }
    assert_eq!(server.calls().len(), CALLS as usize);
}

#[tokio::test(start_paused = true)]
async fn many_addresses_that_read_nothing_do_not_keep_another_from_its_replies() {
    /// Most of virtual time that a reply may take: well below the time limit for writing.
    const SOON: Duration = Duration::from_secs(5);
    let relayed = Relayed::start(16 << 20).await;
    let mut attackers = Vec::new();
    for host in 2..22 {
        let mut attacker = connect_from(&relayed.to_gateway, host).await;
        attacker.write_all(&calls(CALLS)).await.expect("it is sent");
        attackers.push(attacker);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut client = connect(&relayed.to_gateway).await;
    client.write_all(&calls(4)).await.expect("it is sent");
    let mut reply = reply();
    for number in 0..4 {
        let read = tokio::time::timeout(SOON, client.read_exact(&mut reply)).await;
        read.unwrap_or_else(|_| panic!("reply {number} is late"))
            .expect("a reply");
    }
    assert!(relayed.gateway.stats().clients_stalled > 0);
}

/// The beginning of a call of so many bytes, and of it so much.
fn half_sent(bytes: u32, sent: usize) -> Vec<u8> {
    let mut half = (bytes | 1 << 31).to_be_bytes().to_vec();
    half.resize(sent, 0);
    half
}

#[tokio::test(start_paused = true)]
async fn call_that_does_not_come_to_its_end_does_not_keep_others_from_memory() {
    /// Most of virtual time that a call may take: well below the time limit for receiving.
    const SOON: Duration = Duration::from_secs(5);
    let relayed = Relayed::start(64 << 20).await;
    let mut attackers = Vec::new();
    // Together they take all that there is for calls.
    for host in 2..66 {
        let mut attacker = connect_from(&relayed.to_gateway, host).await;
        let half = half_sent(1 << 20, 80 << 10);
        attacker.write_all(&half).await.expect("it is sent");
        attackers.push(attacker);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut client = connect(&relayed.to_gateway).await;
    let mut call = buffer::Buffer::default();
    record::encode(&call_of(7, ECHO, &vec![0; 1 << 20]), &mut call);
    let exchange = async {
        client.write_all(&call).await.expect("it is sent");
        read_words(&mut client, 24).await
    };
    let reply = tokio::time::timeout(SOON, exchange).await;
    assert_eq!(reply.expect("it is not late")[..2], [7, 1]);
}

#[tokio::test(start_paused = true)]
async fn large_calls_that_are_not_answered_give_way_to_those_that_wait_for_long() {
    let relayed = Relayed::start(64 << 20).await;
    let mut attackers = Vec::new();
    // Together they take all that there is for calls.
    for host in 2..66 {
        let mut attacker = connect_from(&relayed.to_gateway, host).await;
        let mut call = buffer::Buffer::default();
        record::encode(&call_of(1, HELD, &vec![0; 1 << 20]), &mut call);
        attackers.push(tokio::spawn(async move {
            attacker.write_all(&call).await.expect("it is sent");
            read_words(&mut attacker, 24).await
        }));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut client = connect(&relayed.to_gateway).await;
    let mut call = buffer::Buffer::default();
    record::encode(&call_of(7, ECHO, &vec![0; 1 << 20]), &mut call);
    let exchange = async {
        client.write_all(&call).await.expect("it is sent");
        read_words(&mut client, 24).await
    };
    let limit = Duration::from_secs(35);
    let reply = tokio::time::timeout(limit, exchange).await;
    assert_eq!(reply.expect("it is not late")[..2], [7, 1]);
    let closed = attackers.iter().filter(|call| call.is_finished()).count();
    assert!((1..8).contains(&closed), "{closed} have given way");
}
