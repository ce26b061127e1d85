//! Replies that a client does not take, or takes slowly, in virtual time.

use super::*;
use oncrpc::xdr::Reader;
use oncrpc::{Caller, Service};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// Bytes of each reply.
const REPLY: usize = 256 << 10;
/// Bytes of each reply with its record mark.
const RECORD: usize = 4 + REPLY;
/// Number of calls.
const CALLS: u32 = 64;

/// Answers each call with many bytes, at once, and counts the replies taken from it.
#[derive(Default)]
struct Large(Arc<AtomicUsize>);

impl Service for Large {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let xid = Reader::from(&call).u32().unwrap();
        let taken = Arc::clone(&self.0);
        Answer::Later(Box::pin(async move {
            taken.fetch_add(1, SeqCst);
            let mut reply = vec![0; REPLY];
            reply[..4].copy_from_slice(&xid.to_be_bytes());
            reply[7] = 1;
            Reply::Message(Payload::new(Buffer::from(reply), 0))
        }))
    }
}

/// Serves a client that has made all its calls. Returns its end, and what stops the server.
async fn called(service: Large, limits: Limits) -> (DuplexStream, oneshot::Sender<()>) {
    let (mut client, theirs) = tokio::io::duplex(4096);
    let (streams, incoming) = mpsc::channel(1);
    let stream = IncomingStream::new(theirs, ([127, 0, 0, 1], 700).into());
    streams.send(stream).await.unwrap();
    let server = Server::over(incoming, Arc::new(service), limits);
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(async move {
        let _streams = streams;
        server.run(async { drop(stopped.await) }).await;
    });
    let mut calls = Buffer::default();
    for xid in 0..CALLS {
        record::encode(&message(xid, 0, 0), &mut calls);
    }
    client.write_all(&calls).await.unwrap();
    (client, stop)
}

/// Answers each call at once with its XID, and counts the calls.
#[derive(Default)]
struct Small(Arc<AtomicUsize>);

impl Service for Small {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        self.0.fetch_add(1, SeqCst);
        let xid = Reader::from(&call).u32().unwrap();
        let mut w = Writer::default();
        w.words([xid, 1, 0, 0, 0, 0]);
        Answer::message(w.finish())
    }
}

#[tokio::test(start_paused = true)]
async fn small_replies_that_nobody_reads_are_within_the_memory_of_the_server() {
    const MEMORY: usize = 4 << 20;
    /// Connections, and addresses that these are of.
    const CONNECTIONS: usize = 64;
    const ADDRESSES: usize = 8;
    /// Bytes that a small reply occupies at least while it waits.
    const REPLY: usize = 256;
    let service = Small::default();
    let calls = Arc::clone(&service.0);
    let (streams, incoming) = mpsc::channel(1);
    let limits = Limits {
        memory: MEMORY,
        ..Limits::default()
    };
    let server = Server::over(incoming, Arc::new(service), limits);
    tokio::spawn(server.run(std::future::pending()));
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let (mut client, theirs) = tokio::io::duplex(4096);
        let host = u8::try_from(number % ADDRESSES).unwrap();
        let stream = IncomingStream::new(theirs, ([192, 0, 2, host], 700).into());
        streams.send(stream).await.unwrap();
        clients.push(tokio::spawn(async move {
            let mut sent = Buffer::default();
            record::encode(&message(7, 0, 0), &mut sent);
            // As long as the server takes some.
            while client.write_all(&sent).await.is_ok() {}
            client
        }));
    }
    // In virtual time it passes once nobody has anything to do.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let held = calls.load(SeqCst) * REPLY;
    let most = CONNECTIONS * (64 << 10) + MEMORY / 2;
    assert!(held <= most, "{held} bytes, {most} are documented");
    // A client that reads is served on.
    let (mut reader, theirs) = tokio::io::duplex(4096);
    let stream = IncomingStream::new(theirs, ([192, 0, 2, 99], 700).into());
    streams.send(stream).await.unwrap();
    for xid in 0..CALLS {
        let mut call = Buffer::default();
        record::encode(&message(xid, 0, 0), &mut call);
        reader.write_all(&call).await.unwrap();
        let mut reply = [0; 28];
        reader.read_exact(&mut reply).await.unwrap();
    }
    clients.iter().for_each(JoinHandle::abort);
}

fn limits() -> Limits {
    Limits {
        calls: CALLS as usize,
        ..Limits::default()
    }
}

#[tokio::test(start_paused = true)]
async fn replies_that_are_not_read_stay_in_their_calls_until_they_are() {
    let service = Large::default();
    let taken = Arc::clone(&service.0);
    let (mut client, _stop) = called(service, limits()).await;
    // In virtual time it passes once nobody has anything to do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting = taken.load(SeqCst);
    assert_eq!(waiting, (1 << 20) / REPLY + 1, "OUTPUT_LIMIT and one more");
    let mut reply = vec![0; RECORD];
    let mut seen = Vec::new();
    for _ in 0..CALLS {
        client.read_exact(&mut reply).await.unwrap();
        seen.push(u32::from(reply[7]));
    }
    seen.sort_unstable();
    assert_eq!(seen, Vec::from_iter(0..CALLS));
}

#[tokio::test(start_paused = true)]
async fn client_that_takes_one_reply_now_and_then_is_closed() {
    let (mut client, _stop) = called(Large::default(), limits()).await;
    let mut reply = vec![0; RECORD];
    let mut read = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(18)).await;
        match client.read_exact(&mut reply).await {
            Ok(_) => read += 1,
            Err(_) => break,
        }
    }
    assert!(read < 8, "{read} of {CALLS}");
}

#[tokio::test(start_paused = true)]
async fn client_that_takes_replies_slowly_but_steadily_gets_them() {
    let (mut client, _stop) = called(Large::default(), limits()).await;
    let mut reply = vec![0; RECORD];
    for _ in 0..CALLS {
        tokio::time::sleep(Duration::from_secs(5)).await;
        client.read_exact(&mut reply).await.unwrap();
    }
}
