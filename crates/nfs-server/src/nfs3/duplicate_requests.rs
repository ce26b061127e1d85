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
//!
//! Not each call with the XID and content of an earlier one is a repetition: clients of one address
//! may choose equal XIDs, and some begin each connection with the same one. RFC 1813 §4.5 is about
//! a call whose reply the client has not received. So a reply that the client has received answers
//! no call on another connection; such a call is executed. The reply was received
//!
//! - if its connection is open, and the server of the connection says so when it is asked
//!   ([`Connections::ask_delivery`]): no call is in service, each Send has completed, and TCP has
//!   acknowledged its bytes;
//! - if the client closed its connection in order, the same was true then, and the client has since
//!   changed the same name or file by another call. The close alone does not tell: a relay, such as
//!   a gateway, closes in order when its own client is gone, and with it the replies that the relay
//!   has received.
//!
//! Any other end is a break, after which a client repeats what it has no reply to. A relay whose
//! connection is open answers for its client: where that is gone and the relay does not know, a
//! repeated call is executed again.
//!
//! A copy of a call may come late, on a connection that the client has given up: the end of that
//! connection is right behind it, and it is not executed.

mod entry;
mod fingerprint;
mod later;
mod repetition;
mod store;

use super::{MAX_IN_FLIGHT, jukebox};
use entry::{Entry, Progress};
use fingerprint::Fingerprints;
use later::Later;
use nfs_proto::Status;
use oncrpc::{Answer, Call, Caller, ConnectionId, Connections, Reply, Respond};
use repetition::{Execute, Waiting};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
    /// Registry of the open connections, if there is one.
    connections: OnceLock<Connections>,
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
                connections: OnceLock::new(),
                hits: Mutex::default(),
            }),
        }
    }

    /// Sets the registry of the open connections, once.
    pub(super) fn know_connections(&self, connections: Connections) {
        // The first one stays.
        let _ = self.shared.connections.set(connections);
    }

    /// Handles the orderly close of a connection.
    pub(super) fn close(&self, caller: &Caller) {
        self.shared.store.close(caller);
    }

    pub(super) fn stats(&self) -> DuplicateRequestStats {
        self.shared.store.stats()
    }

    /// Returns the number of repeated calls on a connection.
    pub(super) fn hits_on(&self, connection: ConnectionId) -> u64 {
        self.shared.hits().get(&connection).copied().unwrap_or(0)
    }

    /// Executes a call, unless it was executed or is being executed. `later` makes what executes it
    /// if it turns out to be new after a wait.
    pub(super) fn once(
        &self,
        call: Call,
        execute: impl FnOnce(Call) -> Answer,
        later: impl FnOnce() -> Execute,
    ) -> Answer {
        let now = Instant::now();
        let mut entered = self.enter(&call, now);
        if let Entered::Again(entry) = &entered
            && entry.connection != call.caller.connection
            && self.shared.has_reply(entry) == Some(true)
        {
            entered = self.shared.renew(entry, &call, now);
        }
        let entry = match entered {
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
        let mut waiting = Waiting::new(Arc::clone(&self.shared), entry, call, later());
        match Pin::new(&mut waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => Answer::Now(reply),
            Poll::Pending => Answer::Later(Box::pin(waiting)),
        }
    }

    fn enter(&self, call: &Call, now: Instant) -> Entered {
        let identity = self.shared.fingerprints.identity(call.caller.group, call);
        let entered = self.shared.store.enter(&call.caller, identity, now);
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

    /// Enters a call that is no repetition of that of `entry`.
    fn renew(&self, entry: &Arc<Entry>, call: &Call, now: Instant) -> Entered {
        if let Some(hits) = self.hits().get_mut(&call.caller.connection) {
            *hits = hits.saturating_sub(1);
        }
        let identity = self.fingerprints.identity(call.caller.group, call);
        self.store.renew(entry, &call.caller, identity, now)
    }

    /// Whether the client has received the reply to a call; `None` if the call is being executed, or
    /// its connection is open.
    fn has_reply(&self, entry: &Entry) -> Option<bool> {
        let is_done = matches!(*entry.lock(), Progress::Done(..));
        (is_done && !self.is_open(entry.connection)).then(|| self.store.has_reply(entry))
    }

    fn is_open(&self, connection: ConnectionId) -> bool {
        let connections = self.connections.get();
        connections.is_some_and(|connections| connections.is_open(connection))
    }

    /// Asks whether the client of an open connection has received all replies.
    fn ask(&self, connection: ConnectionId) -> Later<bool> {
        let later = Later::new();
        let answer = later.clone();
        match self.connections.get() {
            Some(connections) => {
                connections.ask_delivery(connection, move |is| answer.bring(is));
            }
            None => answer.bring(false),
        }
        later
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

#[cfg(test)]
mod tests;
