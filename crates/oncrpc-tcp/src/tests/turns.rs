//! Turns on the CPU, between addresses.

use crate::{IncomingStream, Limits, Server};
use oncrpc::turns::TURNS;
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, Reply, Service};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, mpsc};

const BUSY: usize = 32;
const CALLS: usize = 64;

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
        // A record mark, an XID, and the type of a call.
        let call = [0x8000_0008, 7, 0].map(u32::to_be_bytes).concat();
        client.write_all(&call.repeat(CALLS)).await.unwrap();
        let stream = IncomingStream::new(stream, SocketAddr::new(from, 700));
        assert!(to.send(stream).await.is_ok());
        clients.push(client);
    }
    let limits = Limits {
        connections: 1024,
        connections_of_address: 512,
        ..Limits::default()
    };
    let server = Server::over(streams, Arc::clone(&callers) as _, limits);
    server.run(callers.all.notified()).await;
    let seen = callers.seen.lock().unwrap();
    let before = seen.iter().take_while(|from| **from != other).count();
    // BUSY * CALLS without turns.
    assert!(before <= TURNS * CALLS, "{before}");
    drop(clients);
}
