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
    let (ours, theirs) = tokio::io::duplex(4096);
    let stream = IncomingStream::new(theirs, ([127, 0, 0, 1], 700).into());
    to.send(stream).await.expect("it listens");
    ours
}

#[tokio::test(start_paused = true)]
async fn calls_whose_replies_are_not_read_keep_their_memory() {
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
    // An address has a quarter: enough for three replies.
    let config = GatewayConfig::default()
        .with_workers(0_usize)
        .with_reply_memory(16_usize << 20);
    let gateway = Gateway::bind(listen, upstream, config).await;
    let _gateway = gateway.expect("it is bound");

    let mut client = connect(&to_gateway).await;
    let mut calls = buffer::Buffer::default();
    for xid in 0..CALLS {
        record::encode(&call_of_words(xid, GROW, &[RESULT]), &mut calls);
    }
    client.write_all(&calls).await.expect("it is sent");
    // In virtual time it passes once nobody has anything to do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.calls().len(), 4, "one is queued, three hold memory");
    let mut reply = vec![0; 4 + 24 + 4 + RESULT as usize];
    for _ in 0..CALLS {
        client.read_exact(&mut reply).await.expect("a reply");
    }
    assert_eq!(server.calls().len(), CALLS as usize);
}
