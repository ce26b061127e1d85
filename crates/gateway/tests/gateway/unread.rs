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

/// Reads a reply to such a call, or an error of so many bytes.
async fn read_words(client: &mut DuplexStream, bytes: usize) -> Vec<u32> {
    let mut reply = vec![0; 4 + bytes];
    client.read_exact(&mut reply).await.expect("a reply");
    let words = reply.chunks_exact(4).skip(1);
    words
        .map(|word| u32::from_be_bytes(word.try_into().expect("a word")))
        .collect()
}

/// Memory for two replies without a known bound: each is lent half.
const FOR_TWO: usize = 2 << 20;

#[tokio::test(start_paused = true)]
async fn upstream_has_its_time_for_a_call_that_has_waited_for_memory() {
    let limit = Duration::from_secs(10);
    let config = GatewayConfig::default()
        .with_reply_memory(FOR_TWO)
        .with_call_timeout(limit);
    let relayed = Relayed::start_with(config).await;
    let mut clients = Vec::new();
    for host in 2..8 {
        clients.push(held(&relayed, host).await);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let host = u8::try_from(number + 2).expect("few");
        if number % 2 == 0 {
            assert_eq!(relayed.server.calls().len(), number + 2);
            // The last two have waited for longer than the server may take.
            tokio::time::sleep(limit * 9 / 10).await;
        }
        relayed.server.release(host.into());
        let reply = read_words(client, 24 + 12).await;
        assert_eq!(reply[..6], [host.into(), 1, 0, 0, 0, 0]);
    }
    let stats = relayed.gateway.stats();
    assert_eq!((stats.timeouts, stats.replies), (0, 6));
}

#[tokio::test(start_paused = true)]
async fn call_without_memory_is_answered_with_an_error_and_its_client_stays() {
    let config = GatewayConfig::default()
        .with_reply_memory(FOR_TWO)
        .with_call_timeout(Duration::from_secs(3600));
    let relayed = Relayed::start_with(config).await;
    let _slow = [held(&relayed, 2).await, held(&relayed, 3).await];
    let mut client = held(&relayed, 4).await;
    // SYSTEM_ERR, RFC 5531 §9.
    assert_eq!(read_words(&mut client, 24).await, [4, 1, 0, 0, 0, 5]);
    let stats = relayed.gateway.stats();
    assert_eq!((stats.timeouts, stats.system_errors), (0, 1));
    assert_eq!(relayed.server.calls().len(), 2, "it was not passed on");
    relayed.server.release(2);
    client.write_all(&calls(1)).await.expect("it is connected");
    client.read_exact(&mut reply()).await.expect("a reply");
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
    assert_eq!(
        server.calls().len(),
        7,
        "all hold memory, one of them queued"
    );
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
