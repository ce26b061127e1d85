//! What must always hold, checked where all of it can be seen: between the stack and its provider.
//!
//! A [`Watch`] gives each user of a provider a [`Party`]. Its [provider](Party::provider) is the
//! one it is given, watched: it reads each RPC-over-RDMA header that is sent or received, follows
//! each region from its registration to its end, and notes every rule that is broken. Its
//! [transport](Party::transport) sees when a reply is delivered, and its
//! [service](Party::service) when a call is executed. Without all that, a test of a protocol as a
//! value makes a [`WatchedQp`] and tells it of both.
//!
//! Both ends are to keep to the rules: what a hostile peer makes of them says nothing of its victim.
//!
//! Checked are, for either direction of calls:
//!
//! - no region of a call is exposed any more when its reply is delivered (RFC 8166 §4.4.1), none is
//!   invalidated before the reply, none twice, and none is offered that is not registered;
//! - no call is sent without a credit (§3.3.1), nor without a Receive for its reply, and no credit
//!   is granted without one;
//! - a responder reads and writes only what the call offered, while it is not answered; it executes
//!   each call at most as often as it came, answers it at most once on a connection and not while it
//!   still reads its chunks, and invalidates only a handle of that call, if both ends agreed to it
//!   (RFC 8797 §4.1), and the one that their design says, where they have one (reminv §4): the first,
//!   one that the call names, or one that was read to its end for another call;
//! - a server answers with a design that its client offered; a call names handles of its own; memory
//!   that stays registered is offered by one call at a time, is not written to meanwhile, and not
//!   exposed where somebody else says what goes (reminv §2.3);
//! - no server calls a client that has not called on that connection, so that it cannot have said
//!   that it is ready (RFC 8167 §6), and none offers chunks (§5.3);
//! - each piece of work has one end.
//!
//! [`Watch::finish`] says what was found, and whether a queue pair is left.

#![allow(
    clippy::missing_panics_doc,
    reason = "a broken test of tests is to stop at once"
)]

mod call;
mod offer;
mod provider;
mod qp;
mod rules;
mod service;
#[cfg(test)]
mod tests;
mod transport;

use oncrpc::Service;
use rpcrdma_proto::Design;
use rules::{Role, Rules};
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use verbs::{Provider, QueuePair};

pub use qp::WatchedQp;
pub use transport::Watched;

/// Most findings that are kept: the first ones tell the story.
const MAX_FINDINGS: usize = 20;

/// Where lines about what happens go.
pub type Notes = Arc<dyn Fn(String) + Send + Sync>;

/// Looks at a whole world, and keeps what it found.
#[derive(Clone, Default)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    findings: Mutex<Vec<String>>,
    /// Connections by the design for remote invalidation that was agreed on (reminv §4).
    designs: Mutex<BTreeMap<Design, u64>>,
    notes: Option<Notes>,
}

/// One user of a provider: a client with all its connections, or a server.
#[derive(Clone)]
pub struct Party {
    shared: Arc<Shared>,
    name: Arc<str>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    connections: u64,
    /// Of each queue pair that exists.
    live: BTreeMap<u64, Arc<Mutex<Rules>>>,
    /// How often a call was sent, by its XID.
    sent: BTreeMap<u32, u32>,
    /// Calls that came and were not executed, by their XID: the same may come over several
    /// connections.
    to_execute: BTreeMap<u32, u32>,
    /// Replies that came over queue pairs that are gone, and were not delivered, by their XID.
    to_deliver: BTreeMap<u32, u32>,
    /// Of those who wait until no queue pair exists.
    wakers: Vec<Waker>,
}

/// What a party has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections that were made.
    pub connections: u64,
    /// Those that still are.
    pub live: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// A watch that tells `notes` what each message is.
    pub fn with_notes(notes: Notes) -> Self {
        Self {
            shared: Arc::new(Shared {
                notes: Some(notes),
                ..Shared::default()
            }),
        }
    }

    /// Looks at one more user of a provider.
    pub fn party(&self, name: impl fmt::Display) -> Party {
        Party {
            shared: Arc::clone(&self.shared),
            name: name.to_string().into(),
            state: Arc::default(),
        }
    }

    /// Something else that must not be.
    pub fn finding(&self, what: impl fmt::Display) {
        self.shared.finding(what);
    }

    /// What was found so far.
    pub fn findings(&self) -> Vec<String> {
        lock(&self.shared.findings).clone()
    }

    /// Connections on which each design was agreed on (reminv §4), by a message.
    pub fn designs(&self) -> BTreeMap<Design, u64> {
        lock(&self.shared.designs).clone()
    }

    /// At the end of a test: nothing was found, and nothing is left of these parties.
    ///
    /// # Panics
    ///
    /// If there is something.
    pub fn finish(&self, parties: &[&Party]) {
        for party in parties {
            party.check_gone();
        }
        let findings = self.findings();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}

impl Shared {
    fn finding(&self, what: impl fmt::Display) {
        let what = what.to_string();
        self.note(|| format!("FOUND: {what}"));
        let mut findings = lock(&self.findings);
        if findings.len() < MAX_FINDINGS {
            findings.push(what);
        }
    }

    fn agreed(&self, design: Design) {
        *lock(&self.designs).entry(design).or_default() += 1;
    }

    fn note(&self, line: impl FnOnce() -> String) {
        if let Some(notes) = &self.notes {
            notes(line());
        }
    }
}

impl Party {
    /// The same provider, watched.
    pub fn provider(&self, provider: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(provider::WatchedProvider::new(self.clone(), provider))
    }

    /// The same transport, watched. It is one over this party's provider.
    pub fn transport<T>(&self, transport: T) -> Watched<T> {
        Watched::new(self.clone(), transport)
    }

    /// The same service, watched. It answers what comes over this party's provider.
    pub fn service(&self, service: Arc<dyn Service>) -> Arc<dyn Service> {
        Arc::new(service::WatchedService::new(self.clone(), service))
    }

    /// The end of a connection that this party has made, watched; `agreed` says whether both ends may
    /// invalidate each other's handles. Receives are still to be posted.
    pub fn connected<Q: QueuePair>(&self, qp: Q, agreed: bool) -> WatchedQp<Q> {
        WatchedQp::new(self, Box::new(qp), Role::Client, 0, agreed)
    }

    /// The same of one that it has accepted.
    pub fn accepted<Q: QueuePair>(&self, qp: Q, agreed: bool) -> WatchedQp<Q> {
        WatchedQp::new(self, Box::new(qp), Role::Server, 0, agreed)
    }

    /// How often the call with this XID was sent, on all connections together.
    pub fn sent(&self, xid: u32) -> u32 {
        lock(&self.state).sent.get(&xid).copied().unwrap_or(0)
    }

    /// What it has done.
    pub fn tally(&self) -> Tally {
        let state = lock(&self.state);
        Tally {
            connections: state.connections,
            live: state.live.len(),
        }
    }

    /// Waits until no queue pair of it exists.
    pub async fn gone(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            if state.live.is_empty() {
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Notes it as a finding if a queue pair of it still exists.
    pub fn check_gone(&self) {
        for rules in self.live() {
            let rules = lock(&rules).to_string();
            self.shared.finding(format_args!("{rules} is left"));
        }
    }

    /// The client of its connections is ready for calls, and has said so by other means than a call.
    pub fn client_is_ready(&self) {
        for rules in self.live() {
            lock(&rules).client_is_ready();
        }
    }

    /// The reply to a call is in its caller's hands. A watched [transport](Self::transport) says so
    /// itself.
    pub fn delivered(&self, xid: u32) {
        let mut live = self.live();
        // A call that is made again over another connection may have no reply there.
        if live.iter().any(|rules| lock(rules).has_reply(xid)) {
            live.retain(|rules| lock(rules).has_reply(xid));
            // Where it has, that one may be about to be lost while its memory is waited for.
            if let Some(ready) = live
                .iter()
                .position(|rules| !lock(rules).awaits_memory(xid))
            {
                live = vec![live.swap_remove(ready)];
            }
        } else if let Some(left) = lock(&self.state).to_deliver.get_mut(&xid)
            && *left > 0
        {
            *left -= 1;
            return;
        }
        for rules in live {
            lock(&rules).delivered(xid);
        }
    }

    /// A call that came is in the hands of the upper layer, whichever connection it came over. A
    /// watched [service](Self::service) says so itself.
    pub fn executed(&self, xid: u32) {
        let came = {
            let mut state = lock(&self.state);
            let left = state.to_execute.entry(xid).or_default();
            let came = *left > 0;
            *left = left.saturating_sub(1);
            came
        };
        if !came {
            let name = &self.name;
            self.shared.finding(format_args!(
                "{name} executes call {xid:#010x}, which did not come, or was executed before"
            ));
        }
    }

    /// A call came.
    fn called(&self, xid: u32) {
        *lock(&self.state).to_execute.entry(xid).or_default() += 1;
    }

    fn live(&self) -> Vec<Arc<Mutex<Rules>>> {
        lock(&self.state).live.values().cloned().collect()
    }

    fn note(&self, line: impl FnOnce() -> String) {
        self.shared.note(|| format!("{} {}", self.name, line()));
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings().fmt(f)
    }
}
