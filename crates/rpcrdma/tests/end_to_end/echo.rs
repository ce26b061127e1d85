//! A service that gives back what it is told to, and a peer driven by hand.

use buffer::{Buffer, Gather};
use bytes::Bytes;
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{Answer, Caller, Reply, ReplyBound, Respond, Service, Transport, TransportError};
use std::pin::Pin;
use std::sync::{Condvar, Mutex};
use tokio::sync::{Notify, watch};
use verbs::{Completion, QueuePair, WorkRequest, WrId};

/// Values of the word with which a call asks the service to do something.
pub(crate) const NOW: u32 = 0;
/// To answer from a thread that blocks until [`Echo::open`].
pub(crate) const BLOCKING: u32 = 1;
/// To answer from a future that waits for [`Echo::open`].
pub(crate) const LATER: u32 = 2;
/// To panic.
pub(crate) const PANIC: u32 = 3;
/// To answer nothing.
pub(crate) const NOTHING: u32 = 4;

/// To give the thread back, and to answer at [`Echo::open`].
pub(crate) const DEFERRED: u32 = 5;
/// To give the thread back, and to forget the call.
pub(crate) const FORGOTTEN: u32 = 6;

/// Items of call and reply, for every shape of either.
pub(crate) const SHAPES: &[(&[usize], &[usize])] = &[
    (&[], &[]),
    (&[100], &[100]),
    (&[3000], &[3000]),
    (&[100_001], &[]),
    (&[], &[100_003]),
    (&[50_001, 50_002], &[50_003, 3]),
    (&[1 << 20], &[1 << 20]),
    // So many items that the rest of call and reply is long too.
    (&[5; 900], &[]),
    (&[], &[5; 900]),
];

/// Bytes that differ from place to place.
pub(crate) fn bytes(len: usize) -> Bytes {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn items(w: &mut Writer, sizes: &[usize]) {
    w.length(sizes.len());
    for &len in sizes {
        w.item(Gather::from_elem(bytes(len), 1));
    }
}

/// A call that asks for results of these sizes.
pub(crate) fn call(xid: u32, what: u32, args: &[usize], results: &[usize]) -> Payload {
    let mut w = Writer::new(Buffer::with_capacity(64));
    w.u32(xid);
    w.u32(0);
    w.u32(what);
    w.length(results.len());
    results.iter().for_each(|&len| w.length(len));
    items(&mut w, args);
    w.finish()
}

/// The bound of the reply to such a call.
pub(crate) fn bound(results: &[usize]) -> ReplyBound {
    ReplyBound {
        fixed: 12 + 4 * results.len(),
        results: results.into(),
    }
}

/// Checks a reply.
pub(crate) fn check(reply: &Payload, results: &[usize]) {
    let mut r = Reader::from(reply);
    r.u32().expect("an XID");
    assert_eq!(r.u32(), Ok(1));
    assert_eq!(r.u32(), Ok(results.len() as u32));
    for &len in results {
        assert_eq!(r.item(1 << 20).expect("a result").to_vec(), bytes(len));
    }
    r.finish().expect("nothing is left");
}

/// One call and its reply.
pub(crate) async fn exchange(transport: &impl Transport, args: &[usize], results: &[usize]) {
    let call = call(transport.next_xid(), NOW, args, results);
    let reply = transport.call(call, bound(results)).await;
    check(&reply.expect("answered"), results);
}

/// Makes a call without arguments or results that asks the service to do this.
pub(crate) async fn ask(transport: &impl Transport, what: u32) -> Result<Payload, TransportError> {
    let call = call(transport.next_xid(), what, &[], &[]);
    transport.call(call, bound(&[])).await
}

/// A call ended with its connection.
pub(crate) fn assert_disconnected(ended: &Result<Payload, TransportError>) {
    assert!(
        matches!(ended, Err(TransportError::Disconnected(_))),
        "{ended:?}"
    );
}

/// Begins a call that has no end yet, and waits until one after it is answered.
pub(crate) async fn on_its_way(
    mut call: Pin<&mut impl Future<Output = Result<Payload, TransportError>>>,
    transport: &impl Transport,
) {
    tokio::select! {
        biased;
        ended = &mut call => panic!("it is to wait: {ended:?}"),
        () = exchange(transport, &[], &[]) => {}
    }
}

/// The service.
pub(crate) struct Echo {
    blocked: watch::Sender<u32>,
    gate: Mutex<bool>,
    opened: Condvar,
    opened_later: Notify,
    deferred: Mutex<Vec<(Respond, Payload)>>,
}

impl Default for Echo {
    fn default() -> Self {
        Self {
            blocked: watch::Sender::new(0),
            gate: Mutex::default(),
            opened: Condvar::default(),
            opened_later: Notify::new(),
            deferred: Mutex::default(),
        }
    }
}

impl Echo {
    /// Lets calls go on that wait.
    pub(crate) fn open(&self) {
        *self.gate.lock().expect("no panic holds it") = true;
        self.opened.notify_all();
        self.opened_later.notify_one();
        let deferred = std::mem::take(&mut *self.deferred.lock().expect("no panic holds it"));
        for (respond, reply) in deferred {
            respond.with(Reply::Message(reply));
        }
    }

    /// Calls that threads have begun so far.
    pub(crate) fn blocked(&self) -> u32 {
        *self.blocked.borrow()
    }

    /// Waits until threads have begun so many calls.
    pub(crate) async fn wait_for_blocked(&self, many: u32) {
        let mut blocked = self.blocked.subscribe();
        let enough = blocked.wait_for(|blocked| *blocked >= many).await;
        enough.expect("the service is there");
    }

    fn reply(call: &Payload) -> (u32, Payload) {
        let mut r = Reader::from(call);
        let xid = r.u32().expect("an XID");
        assert_eq!(r.u32(), Ok(0));
        let what = r.u32().expect("what to do");
        let results = r.vec(1000, |r| r.u32()).expect("sizes");
        let args = r.vec(1000, |r| r.item(1 << 20).map(|arg| arg.to_vec()));
        for arg in args.expect("arguments") {
            assert_eq!(arg, bytes(arg.len()));
        }
        r.finish().expect("nothing is left");
        let mut w = Writer::new(Buffer::with_capacity(64));
        w.u32(xid);
        w.u32(1);
        let results: Vec<_> = results.into_iter().map(|len| len as usize).collect();
        items(&mut w, &results);
        (what, w.finish())
    }
}

/// The service as a server holds it.
pub(crate) struct Shared(pub(crate) std::sync::Arc<Echo>);

impl Service for Shared {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let echo = std::sync::Arc::clone(&self.0);
        let (what, reply) = Echo::reply(&call);
        match what {
            BLOCKING => Answer::Blocking(Box::new(move || {
                echo.blocked.send_modify(|blocked| *blocked += 1);
                let mut open = echo.gate.lock().expect("no panic holds it");
                while !*open {
                    open = echo.opened.wait(open).expect("no panic holds it");
                }
                Reply::Message(reply)
            })),
            LATER => Answer::Later(Box::pin(async move {
                echo.opened_later.notified().await;
                Reply::Message(reply)
            })),
            DEFERRED => Answer::Deferred(Box::new(move |respond| {
                let mut deferred = echo.deferred.lock().expect("no panic holds it");
                deferred.push((respond, reply));
                drop(deferred);
                echo.blocked.send_modify(|blocked| *blocked += 1);
            })),
            FORGOTTEN => Answer::Deferred(Box::new(drop)),
            PANIC => Answer::Blocking(Box::new(|| panic!("the service was told to"))),
            NOTHING => Answer::Now(Reply::Nothing),
            _ => Answer::message(reply),
        }
    }
}

/// Receives for a peer.
pub(crate) fn receives(count: usize) -> Vec<WorkRequest> {
    let receive = |i: usize| WorkRequest::Receive {
        wr: WrId(i as u64),
        buffer: Buffer::with_capacity(4096),
    };
    (0..count).map(receive).collect()
}

/// A peer that sends and receives words.
pub(crate) struct Peer(Box<dyn QueuePair>);

impl Peer {
    pub(crate) fn new(qp: Box<dyn QueuePair>) -> Self {
        Self(qp)
    }

    pub(crate) fn send(&mut self, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let work = WorkRequest::Send {
            wr: WrId(1000),
            buffer: Buffer::from(bytes),
            rest: Gather::new(),
            invalidate: None,
        };
        self.0.post(work).expect("there is room");
        self.0.progress();
    }

    /// Moves what can move.
    pub(crate) fn progress(&mut self) {
        self.0.progress();
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&mut self) {
        loop {
            self.0.progress();
            while self.0.poll_cq().is_some() {}
            if self.0.closed().is_some() {
                return;
            }
            std::future::poll_fn(|cx| self.0.poll_ready(cx)).await;
        }
    }

    pub(crate) async fn receive(&mut self) -> Vec<u32> {
        loop {
            self.0.progress();
            while let Some(completion) = self.0.poll_cq() {
                if let Completion::Receive { buffer, .. } = completion {
                    let word =
                        |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
                    return buffer.chunks(4).map(word).collect();
                }
            }
            std::future::poll_fn(|cx| self.0.poll_ready(cx)).await;
        }
    }
}
