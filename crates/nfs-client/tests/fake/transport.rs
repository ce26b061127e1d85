//! A transport without a network.

use oncrpc::xdr::{Parts, Payload};
use oncrpc::{Answer, Caller, Reply, ReplyBound, Respond, Service, Transport, TransportError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// How by-reference items travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carry {
    /// Beside the stream, as chunks do.
    Apart,
    /// In it, as over TCP.
    Inline,
}

/// Calls a service directly. Calls that are in flight together are executed in another order than
/// they were made.
pub(crate) struct Direct {
    service: Arc<dyn Service>,
    carry: Carry,
    xid: AtomicU32,
    running: AtomicUsize,
    /// Most calls that were in flight at once.
    pub(crate) most: AtomicUsize,
    /// Calls made.
    pub(crate) calls: AtomicUsize,
    /// Whether it counts each call as one whose connection was lost.
    pub(crate) breaks: AtomicBool,
    ended: AtomicU64,
    /// Number of calls in flight that it recommends.
    pub(crate) depth: AtomicUsize,
}

impl Direct {
    pub(crate) fn new(service: Arc<dyn Service>, carry: Carry) -> Self {
        Self {
            service,
            carry,
            xid: AtomicU32::new(1),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            breaks: AtomicBool::new(false),
            ended: AtomicU64::new(0),
            depth: AtomicUsize::new(8),
        }
    }
}

fn flat(payload: &Payload) -> Payload {
    let mut stream = buffer::Buffer::default();
    payload.copy_stream_into(&mut stream);
    Payload::new(stream, 0)
}

/// A call leaves the count of running calls when it ends, however it ends.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Transport for Direct {
    fn next_xid(&self) -> u32 {
        self.xid.fetch_add(1, Relaxed)
    }

    fn depth(&self) -> usize {
        self.depth.load(Relaxed)
    }

    fn connections_ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    async fn call(&self, call: Payload, bound: ReplyBound) -> Result<Payload, TransportError> {
        let number = self.calls.fetch_add(1, Relaxed);
        let breaks = self.breaks.load(Relaxed);
        self.ended.fetch_add(breaks.into(), Relaxed);
        self.most
            .fetch_max(self.running.fetch_add(1, Relaxed) + 1, Relaxed);
        let _running = Running(&self.running);
        for _ in 0..(number * 7) % 5 {
            tokio::task::yield_now().await;
        }
        let call = match self.carry {
            Carry::Apart => call,
            Carry::Inline => flat(&call),
        };
        let caller = Caller::new(([127, 0, 0, 1], 999).into());
        let reply = match self.service.call(call, &caller) {
            Answer::Now(reply) => reply,
            Answer::Blocking(work) => work(),
            Answer::Deferred(work) => {
                let (done, reply) = tokio::sync::oneshot::channel();
                work(Respond::new(move |reply| drop(done.send(reply))));
                let reply = reply.await.expect("whoever responds says so");
                reply.expect("the work does not panic")
            }
            Answer::Later(work) => work.await,
        };
        let Reply::Message(reply) = reply else {
            return Err(TransportError::Refused("no reply"));
        };
        assert!(
            reply.head().len() <= bound.fixed,
            "a reply keeps to its bound"
        );
        assert!(
            reply.items().len() <= bound.results.len(),
            "and has no other items"
        );
        for (item, limit) in reply.items().iter().zip(&bound.results) {
            assert!(item.len() <= *limit, "and no longer ones");
        }
        Ok(match self.carry {
            Carry::Apart => {
                let Parts {
                    head, start, items, ..
                } = reply.into_parts();
                Payload::with_results(head, start, items.into_iter().map(|item| item.data))
            }
            Carry::Inline => flat(&reply),
        })
    }
}
