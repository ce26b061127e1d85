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
        let config = GatewayConfig::default()
            .with_workers(0_usize)
            .with_reply_memory(reply_memory);
        let gateway = Gateway::bind(listen, upstream, config).await;
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
    assert_eq!(server.calls().len(), 8, "one is queued, seven hold memory");
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
