//! One user of a provider, and the calls on all its connections.

use super::rules::Rules;
use super::shared::{Shared, lock};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// One user of a provider: a client with all its connections, or a server.
#[derive(Clone)]
pub struct Party {
    pub(super) shared: Arc<Shared>,
    pub(super) name: Arc<str>,
    pub(super) state: Arc<Mutex<State>>,
}

/// State of a party that its queue pairs share.
#[derive(Default)]
pub(super) struct State {
    pub(super) connections: u64,
    /// Of each queue pair that exists.
    pub(super) live: BTreeMap<u64, Arc<Mutex<Rules>>>,
    /// How often a call was sent, by its XID.
    pub(super) sent: BTreeMap<u32, u32>,
    /// Calls that came and were not executed, by their XID: the same may come over several
    /// connections.
    pub(super) to_execute: BTreeMap<u32, u32>,
    /// Replies that came over queue pairs that are gone, and were not delivered, by their XID.
    pub(super) to_deliver: BTreeMap<u32, u32>,
    /// Of those who wait until no queue pair exists.
    pub(super) wakers: Vec<Waker>,
}

/// Connections of a party.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections that it established.
    pub connections: u64,
    /// Queue pairs that still exist.
    pub live: usize,
}

impl Party {
    pub(super) fn new(shared: Arc<Shared>, name: String) -> Self {
        Self {
            shared,
            name: name.into(),
            state: Arc::default(),
        }
    }

    /// How often the call with this XID was sent, on all connections together.
    pub fn sent(&self, xid: u32) -> u32 {
        lock(&self.state).sent.get(&xid).copied().unwrap_or(0)
    }

    /// Number of its connections.
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

    /// The same for a call that reached this party, a gateway, `times` times, with the same XID.
    ///
    /// Only the connections of the gateway are watched, and a call that is sent again goes over
    /// another pair of them. There the gateway may answer it by itself, while the first one is in
    /// flight on a connection whose client is gone: whose reply it is cannot be told, and a handle of
    /// the first is not one of the call that was answered.
    pub fn delivered_by_gateway(&self, xid: u32, times: u32) {
        if times <= 1 {
            return self.delivered(xid);
        }
        let ready = |rules: &Arc<Mutex<Rules>>| {
            let rules = lock(rules);
            rules.has_reply(xid) && !rules.awaits_memory(xid)
        };
        if let Some(rules) = self.live().into_iter().find(ready) {
            lock(&rules).delivered(xid);
        } else if let Some(left) = lock(&self.state).to_deliver.get_mut(&xid) {
            *left = left.saturating_sub(1);
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
    pub(super) fn called(&self, xid: u32) {
        *lock(&self.state).to_execute.entry(xid).or_default() += 1;
    }

    fn live(&self) -> Vec<Arc<Mutex<Rules>>> {
        lock(&self.state).live.values().cloned().collect()
    }

    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        self.shared.note(|| format!("{} {}", self.name, line()));
    }
}
