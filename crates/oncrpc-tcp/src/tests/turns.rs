//! Turns on the CPU, between addresses.

use crate::input::RECORDS;
use crate::{IncomingStream, Limits, Server};
use oncrpc::Connections;
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, Reply, Service};
use rpc_serving::turns::TURNS;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// Connections of the busy address, and turns that each needs for its calls.
const BUSY: usize = 32;
const BUSY_TURNS: usize = 16;

/// Calls of each connection.
const CALLS: usize = BUSY_TURNS * RECORDS;

/// Notes who calls.
#[derive(Default)]
struct Callers {
    seen: Mutex<Vec<IpAddr>>,
    all: Notify,
}

impl Service for Callers {
    fn call(&self, _: Payload, caller: &Caller) -> Answer {
        let mut seen = self.seen.lock().unwrap();
        seen.push(caller.addr.ip());
        if seen.len() == (BUSY + 1) * CALLS {
            self.all.notify_one();
        }
        Answer::Now(Reply::Nothing)
    }
}

/// Limits that no test reaches.
fn many() -> Limits {
    Limits {
        connections: 1024,
        connections_of_address: 512,
        ..Limits::default()
    }
}

#[tokio::test]
async fn address_with_many_busy_connections_leaves_another_its_turns() {
    let callers = Arc::new(Callers::default());
    let (to, streams) = mpsc::channel(BUSY + 1);
    let other = IpAddr::from([127, 0, 0, 2]);
    let mut clients = Vec::new();
    for number in 0..=BUSY {
        let from = match number == BUSY {
            true => other,
            false => [127, 0, 0, 1].into(),
        };
        let (mut client, stream) = tokio::io::duplex(16 * CALLS);
        client.write_all(&call().repeat(CALLS)).await.unwrap();
        let stream = IncomingStream::new(stream, SocketAddr::new(from, 700));
        assert!(to.send(stream).await.is_ok());
        clients.push(client);
    }
    let server = Server::over(streams, Arc::clone(&callers) as _, many());
    server.run(callers.all.notified()).await;
    let seen = callers.seen.lock().unwrap();
    let before = seen.iter().take_while(|from| **from != other).count();
    // It is accepted last, a few of them in each round. BUSY * CALLS without turns.
    let rounds = BUSY / TURNS + 2;
    assert!(before <= rounds * TURNS * CALLS / BUSY_TURNS, "{before}");
    drop(clients);
}

/// A record mark, an XID, and the type of a call.
fn call() -> Vec<u8> {
    [0x8000_0008, 7, 0].map(u32::to_be_bytes).concat()
}

/// A client that calls without end.
struct Flood;

impl AsyncRead for Flood {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let call = call();
        while space.remaining() >= call.len() {
            space.put_slice(&call);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Flood {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Counts calls.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Service for Counter {
    fn call(&self, _: Payload, _: &Caller) -> Answer {
        self.0.fetch_add(1, Relaxed);
        Answer::Now(Reply::Nothing)
    }
}

#[tokio::test]
async fn runtime_looks_for_io_between_the_turns_of_a_connection_that_always_has_work() {
    let counter = Arc::new(Counter::default());
    let (to, streams) = mpsc::channel(1);
    let stream = IncomingStream::new(Flood, ([127, 0, 0, 1], 700).into());
    assert!(to.send(stream).await.is_ok());
    let server = Server::over(streams, Arc::clone(&counter) as _, Limits::default());
    let server = tokio::spawn(server.run(std::future::pending()));
    // The connection of another is there before that is looked for.
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await;
    let listener = listener.expect("it listens");
    let addr = listener.local_addr().expect("it is bound");
    let _other = std::net::TcpStream::connect(addr).expect("it listens");
    let accepted: io::Result<(TcpStream, _)> = listener.accept().await;
    accepted.expect("a connection");
    let calls = counter.0.load(Relaxed);
    // One turn at first, and the few of a round or two.
    assert!(calls <= 3 * CALLS / BUSY_TURNS * TURNS, "{calls}");
    server.abort();
}

#[tokio::test]
async fn connections_that_come_at_once_leave_others_their_turns() {
    const COMING: usize = 64;
    let (to, streams) = mpsc::channel(COMING);
    let mut clients = Vec::new();
    for _ in 0..COMING {
        let (client, stream) = tokio::io::duplex(64);
        let stream = IncomingStream::new(stream, ([127, 0, 0, 1], 700).into());
        assert!(to.send(stream).await.is_ok());
        clients.push(client);
    }
    let connections = Connections::default();
    let server = Server::over(streams, Arc::new(Counter::default()), many());
    let server = server.connections(connections.clone());
    let server = tokio::spawn(server.run(std::future::pending()));
    let mut before = 0;
    while before < COMING {
        tokio::task::yield_now().await;
        let now = connections.len();
        assert!(
            now > before && now <= before + TURNS,
            "{now} behind {before}"
        );
        before = now;
    }
    server.abort();
    drop(clients);
}
