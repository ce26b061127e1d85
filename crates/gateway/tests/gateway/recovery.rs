//! An upstream that is away for a while, in virtual time.

use crate::made_up::*;
use crate::stage::*;
use gateway::{Connect, Gateway, GatewayConfig, Listen, Upstream, tcp_limits};
use oncrpc::{ReplyBound, Transport};
use oncrpc_tcp::{Client, IncomingStream, Server, Stream};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Bytes in a stream.
const PIPE: usize = 64 << 10;

/// A server that refuses connections until it is back.
struct Away {
    back: Instant,
    server: mpsc::Sender<IncomingStream>,
}

impl Connect for Away {
    fn connect(
        &self,
        _: SocketAddr,
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + '_>> {
        Box::pin(async move {
            if Instant::now() < self.back {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Ok(Box::new(connected(&self.server).await) as _)
        })
    }
}

/// Makes a stream to whoever accepts these.
async fn connected(to: &mpsc::Sender<IncomingStream>) -> DuplexStream {
    let (stream, other) = duplex(PIPE);
    let sent = to.send(IncomingStream::new(other, anywhere())).await;
    sent.expect("it accepts");
    stream
}

/// How long a client waits for its reply after the server is back, if the client connects again each
/// time that its connection is closed.
async fn waits_after(outage: Duration) -> Duration {
    let (server, streams) = mpsc::channel(1);
    let served = Server::over(streams, Arc::<MadeUp>::default(), tcp_limits());
    let _served = tokio::spawn(served.run(std::future::pending()));
    let back = Instant::now() + outage;
    let upstream = Upstream::Streams {
        connect: Arc::new(Away { back, server }),
        addrs: vec![anywhere()],
    };
    let (clients, streams) = mpsc::channel(1);
    let listen = Listen::Streams {
        streams,
        addr: anywhere(),
        limits: tcp_limits(),
    };
    let config = GatewayConfig::default().with_workers(0_usize);
    let gateway = Gateway::bind(listen, upstream, config).await;
    let gateway = gateway.expect("it listens");
    loop {
        let client = Client::over(connected(&clients).await, 2 * outage + LIMIT);
        let reply = client.call(call_of(1, ECHO, b"again"), ReplyBound::default());
        if let Ok(reply) = reply.await {
            assert_eq!(results(&reply, 1), b"again");
            gateway.shutdown().await;
            return back.elapsed();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn client_is_served_within_a_second_of_the_return_of_its_upstream_however_long_that_was_away()
{
    let most = GatewayConfig::default().retry_most;
    assert_eq!(most, Duration::from_secs(1));
    let lengths = (1..100).map(|tenths| 700 * tenths).chain([600_000]);
    for outage in lengths.map(Duration::from_millis) {
        let waited = waits_after(outage).await;
        assert!(waited <= most, "{waited:?} after {outage:?}");
    }
}
