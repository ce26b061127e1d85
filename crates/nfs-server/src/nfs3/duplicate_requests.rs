//! Duplicate request cache: the results of calls that must not be executed twice.
//!
//! A client that lost its connection repeats unanswered calls. A repeated REMOVE that was executed
//! would fail, because the file is gone. So the results of such calls are kept for a while, and the
//! same call gets the same results. A call is identified by its XID, its sender's address and
//! machine name, and all of its content, but not by its port or connection, which differ by then.
//!
//! Calls are identified independently of their transfer: inline thresholds may differ on the next
//! connection, so that data which was in a chunk may be inline then. Arguments are compared as
//! bytes, and results are kept without headers of RPC or the transport.
//!
//! A call that is repeated during its execution is not executed again. On the connection of the
//! first call the repetition is dropped, as the results will go there. On other connections the
//! last repetition waits for the results, as the connection of the first is gone by then, and
//! earlier repetitions are dropped.

mod entry;
mod fingerprint;
mod store;

use super::{MAX_IN_FLIGHT, jukebox};
use entry::{Entry, Progress};
use fingerprint::Fingerprints;
use nfs_proto::Status;
use oncrpc::{Answer, Call, ConnectionId, Reply, Respond};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use store::{Entered, MAX_REPLIES, Store};

pub use store::DuplicateRequestStats;

const _: () = assert!(
    2 * MAX_IN_FLIGHT <= MAX_REPLIES,
    "the calls in flight of some clients must not fill the cache for the others"
);

/// The duplicate request cache of a program.
#[derive(Clone)]
pub(super) struct DuplicateRequestCache {
    shared: Arc<Shared>,
}

struct Shared {
    fingerprints: Fingerprints,
    store: Store,
    /// Number of repeated calls per connection.
    hits: Mutex<BTreeMap<ConnectionId, u64>>,
}

/// Largest number of connections whose hits are counted; the oldest are dropped.
const MAX_CONNECTIONS_WITH_HITS: usize = 4096;

impl DuplicateRequestCache {
    pub(super) fn new() -> Self {
        Self::with_store(Store::new())
    }

    fn with_store(store: Store) -> Self {
        Self {
            shared: Arc::new(Shared {
                fingerprints: Fingerprints::new(),
                store,
                hits: Mutex::default(),
            }),
        }
    }

    pub(super) fn stats(&self) -> DuplicateRequestStats {
        self.shared.store.stats()
    }

    /// Returns the number of repeated calls on a connection.
    pub(super) fn hits_on(&self, connection: ConnectionId) -> u64 {
        self.shared.hits().get(&connection).copied().unwrap_or(0)
    }

    /// Executes a call, unless it was executed or is being executed.
    pub(super) fn once(&self, call: Call, execute: impl FnOnce(Call) -> Answer) -> Answer {
        let entry = match self.enter(&call, Instant::now()) {
            Entered::First(entry) => {
                let ticket = Ticket {
                    shared: Arc::clone(&self.shared),
                    entry,
                };
                return finish_with(ticket, execute(call));
            }
            Entered::Again(entry) if entry.answers_on(call.caller.connection) => {
                return Answer::Now(Reply::Nothing);
            }
            Entered::Again(entry) => entry,
            Entered::Full => return Answer::Now(jukebox::reply(call)),
        };
        let mut waiting = Waiting {
            time: entry.repeat(),
            entry,
            call: Some(call),
        };
        match Pin::new(&mut waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => Answer::Now(reply),
            Poll::Pending => Answer::Later(Box::pin(waiting)),
        }
    }

    fn enter(&self, call: &Call, now: Instant) -> Entered {
        let client = call.caller.group;
        let fingerprint = self.shared.fingerprints.of(client, call);
        let store = &self.shared.store;
        let entered = store.enter(client, &call.caller, fingerprint, now);
        if let Entered::Again(_) = &entered {
            self.shared.count_hit(call.caller.connection);
        }
        entered
    }
}

impl Shared {
    fn hits(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, u64>> {
        self.hits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_hit(&self, connection: ConnectionId) {
        let mut hits = self.hits();
        *hits.entry(connection).or_default() += 1;
        if hits.len() > MAX_CONNECTIONS_WITH_HITS {
            hits.pop_first();
        }
    }
}

/// Keeps the reply as soon as it is available.
fn finish_with(ticket: Ticket, answer: Answer) -> Answer {
    match answer {
        Answer::Now(reply) => {
            ticket.finish(&reply, Instant::now());
            Answer::Now(reply)
        }
        Answer::Blocking(job) => Answer::Blocking(Box::new(move || {
            let reply = job();
            ticket.finish(&reply, Instant::now());
            reply
        })),
        Answer::Deferred(job) => Answer::Deferred(Box::new(move |respond| {
            job(Respond::new(move |reply| {
                if let Some(reply) = reply {
                    ticket.finish(&reply, Instant::now());
                    respond.with(reply);
                }
            }));
        })),
        Answer::Later(future) => Answer::Later(Box::pin(async move {
            let reply = future.await;
            ticket.finish(&reply, Instant::now());
            reply
        })),
    }
}

/// Permission to execute a call, which must be completed with its results. Dropping it without
/// results allows a repetition to be executed.
struct Ticket {
    shared: Arc<Shared>,
    entry: Arc<Entry>,
}

impl Ticket {
    fn finish(self, reply: &Reply, now: Instant) {
        if let Some(results) = results_of(reply) {
            self.entry.end(Progress::Done(now, results.into()));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let store = &self.shared.store;
        if matches!(*self.entry.lock(), Progress::Done(..)) {
            store.keep(&self.entry);
            return;
        }
        store.forget(&self.entry);
        self.entry.end(Progress::Lost);
    }
}

/// Returns the results of a SUCCESS reply. Procedures in the cache return nothing by reference.
fn results_of(reply: &Reply) -> Option<&[u8]> {
    let Reply::Message(payload) = reply else {
        return None;
    };
    let (header, results) = payload.head().split_at_checked(oncrpc::REPLY_HEADER)?;
    // The last word of a header with an empty verifier is the status (RFC 5531 §9).
    let success = header.ends_with(&[0; 4]) && payload.items().is_empty();
    // NFS3ERR_JUKEBOX means that the call was not executed (RFC 1813 §2.6).
    let later = results.starts_with(&(Status::Jukebox as u32).to_be_bytes());
    (success && !later).then_some(results)
}

/// A repetition of a call that is being executed.
struct Waiting {
    entry: Arc<Entry>,
    call: Option<Call>,
    /// Sequence number of the repetition.
    time: u64,
}

impl Future for Waiting {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let this = &mut *self;
        let mut progress = this.entry.lock();
        if let Progress::Running(repeated) = &mut *progress {
            if repeated.times != this.time {
                return Poll::Ready(Reply::Nothing);
            }
            repeated.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let Some(call) = this.call.take() else {
            return Poll::Ready(Reply::Nothing);
        };
        Poll::Ready(match &*progress {
            Progress::Done(_, results) => {
                let mut w = call.into_success();
                w.fixed(results);
                Reply::Message(w.finish())
            }
            Progress::Running(_) | Progress::Lost => jukebox::reply(call),
        })
    }
}

#[cfg(test)]
mod tests;
