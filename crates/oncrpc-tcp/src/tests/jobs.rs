//! Threads for calls that wait, between addresses and for a connection whose calls hang.

use super::*;
use oncrpc::xdr::Reader;
use oncrpc::{Caller, Service};
use rpc_serving::jobs::{MAX_BLOCKING, MAX_STUCK};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// The address whose calls hang.
const SLOW: [u8; 4] = [192, 0, 2, 1];

/// Another address.
const OTHER: [u8; 4] = [192, 0, 2, 2];

/// Said of a call that hangs.
const HANGS: u32 = 1;

/// The gate that threads of calls that hang wait for.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    /// Calls that hang and have come.
    came: AtomicUsize,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Answers each call from a thread, and those that hang once the gate is open.
struct Gated(Arc<Gate>);

impl Service for Gated {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let gate = Arc::clone(&self.0);
        let mut r = Reader::from(&call);
        let (xid, _, word) = (r.u32().unwrap(), r.u32().unwrap(), r.u32().unwrap());
        let hangs = word == HANGS;
        gate.came.fetch_add(usize::from(hangs), SeqCst);
        Answer::Blocking(Box::new(move || {
            if hangs {
                let open = gate.open.lock().unwrap();
                drop(gate.opened.wait_while(open, |open| !*open).unwrap());
            }
            let mut w = Writer::default();
            w.words([xid, 1, word]);
            Reply::Message(w.finish())
        }))
    }
}

/// A server whose gate opens at the end of the test, also when an assertion fails: its threads end only then.
struct Serving {
    gate: Arc<Gate>,
    streams: mpsc::Sender<IncomingStream>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.gate.open();
    }
}

impl Serving {
    fn new(calls: usize) -> Self {
        let gate = Arc::<Gate>::default();
        let (streams, incoming) = mpsc::channel(1);
        let limits = Limits {
            calls,
            ..Limits::default()
        };
        let service = Arc::new(Gated(Arc::clone(&gate)));
        tokio::spawn(Server::over(incoming, service, limits).run(std::future::pending()));
        Self { gate, streams }
    }

    async fn connect(&self, from: [u8; 4]) -> DuplexStream {
        let (client, theirs) = tokio::io::duplex(64 << 10);
        let stream = IncomingStream::new(theirs, (from, 700).into());
        assert!(self.streams.send(stream).await.is_ok());
        client
    }
}

async fn call(client: &mut DuplexStream, xid: u32, word: u32) {
    let mut w = Writer::default();
    w.words([xid, 0, word]);
    let mut sent = Buffer::default();
    record::encode(&w.finish(), &mut sent);
    client.write_all(&sent).await.unwrap();
}

/// The XID of the next reply.
async fn reply(client: &mut DuplexStream) -> u32 {
    let mut record = [0; 16];
    client.read_exact(&mut record).await.unwrap();
    u32::from_be_bytes(record[4..8].try_into().unwrap())
}

#[test]
fn address_with_many_slow_calls_leaves_threads_to_others() {
    let threads = MAX_BLOCKING + MAX_STUCK;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(threads)
        .build()
        .unwrap();
    let serving = runtime.block_on(async {
        let serving = Serving::new(2 * threads);
        let mut slow = serving.connect(SLOW).await;
        for xid in 0..2 * u32::try_from(threads).unwrap() {
            call(&mut slow, xid, HANGS).await;
        }
        while serving.gate.came.load(SeqCst) < 2 * threads {
            tokio::task::yield_now().await;
        }
        let mut other = serving.connect(OTHER).await;
        for xid in 0..100 {
            call(&mut other, xid, 0).await;
            let reply = tokio::time::timeout(DEADLINE, reply(&mut other)).await;
            assert_eq!(reply, Ok(xid));
        }
        serving
    });
    drop(serving);
}

#[tokio::test(start_paused = true)]
async fn call_that_hangs_keeps_no_other_of_its_connection_from_service_for_long() {
    let serving = Serving::new(1);
    let mut client = serving.connect(SLOW).await;
    call(&mut client, 1, HANGS).await;
    call(&mut client, 2, 0).await;
    while serving.gate.came.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let begun = tokio::time::Instant::now();
    let passes = async {
        // Virtual time does not pass on its own while a thread works.
        while begun.elapsed() < Duration::from_secs(6) {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        let begun = std::time::Instant::now();
        while begun.elapsed() < DEADLINE {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        xid = reply(&mut client) => assert_eq!(xid, 2),
        () = passes => panic!("it waits for the first"),
    }
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(5), "{waited:?}");
    serving.gate.open();
    assert_eq!(reply(&mut client).await, 1);
}
