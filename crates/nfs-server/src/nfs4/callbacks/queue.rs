//! Calls that clients are to get.

use crate::nfs4::state::FileKey;
use foldhash::HashMap;
use nfs_proto::v4::{ClientId, SessionId};
use oncrpc::PeerGroup;
use rpc_serving::by_address::ByAddress;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// Calls that wait, for all clients.
pub(super) const MAX_QUEUED: usize = 16_384;

/// Calls that wait, for one client.
pub(super) const MAX_QUEUED_FOR_CLIENT: usize = 128;

/// A call to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nfs4) enum Callback {
    /// A lock that an owner waits for may be free.
    NotifyLock { owner: Arc<[u8]>, file: FileKey },
    /// Others lack slots, of which a session has too many.
    RecallSlots { session: SessionId },
    /// Nothing, by the way of a session.
    Null { session: SessionId },
}

/// Calls of all clients. Each client has a turn after the others, and one call at a time.
#[derive(Default)]
pub(in crate::nfs4) struct Queue {
    clients: HashMap<ClientId, OfClient>,
    /// Clients with calls, none of which is being made.
    turns: VecDeque<ClientId>,
    /// Such clients that have no turn, as their address has its share of calls.
    parked: ByAddress<VecDeque<ClientId>>,
    /// There are as many calls as there may be.
    is_full: bool,
    len: usize,
    /// The task that makes calls, while it sleeps.
    waker: Option<Waker>,
}

#[derive(Default)]
struct OfClient {
    calls: VecDeque<Callback>,
    is_called: bool,
}

impl Queue {
    /// Enters a call. If there is no place, it is dropped: clients do not rely on calls about locks, and ask again (RFC 8881 §20.11.4); what
    /// is said of slots stands in the results of SEQUENCE, too.
    pub(in crate::nfs4) fn push(&mut self, client: ClientId, call: Callback) {
        if self.len >= MAX_QUEUED {
            return;
        }
        let its = self.clients.entry(client).or_default();
        // A client that does not answer has few: it is no loss to look at them all.
        if its.calls.len() >= MAX_QUEUED_FOR_CLIENT || its.calls.contains(&call) {
            return;
        }
        // One that is parked has calls.
        if its.calls.is_empty() && !its.is_called {
            self.turns.push_back(client);
        }
        its.calls.push_back(call);
        self.len += 1;
    }

    /// Takes a call of the client whose turn it is. No other of that client is taken before [`done`](Self::done).
    pub(in crate::nfs4) fn take(&mut self) -> Option<(ClientId, Callback)> {
        let client = self.turns.pop_front()?;
        let its = self.clients.get_mut(&client)?;
        its.is_called = true;
        self.len -= 1;
        Some((client, its.calls.pop_front()?))
    }

    /// Returns a call that cannot be made now, as there are too many to this address. It is the client's next. The client has a turn once
    /// another call has ended.
    pub(super) fn park(&mut self, client: ClientId, call: Callback, address: PeerGroup) {
        let its = self.clients.entry(client).or_default();
        its.is_called = false;
        its.calls.push_front(call);
        self.len += 1;
        self.parked
            .change(address, |clients| clients.push_back(client));
    }

    /// Notes that no other call can be made until one has ended.
    pub(super) fn is_full(&mut self) {
        self.is_full = true;
    }

    /// Notes that the call of a client has ended.
    pub(in crate::nfs4) fn done(&mut self, client: ClientId) {
        self.is_full = false;
        // An address may have more calls if others have fewer.
        let parked: Vec<PeerGroup> = self.parked.iter().map(|(address, _)| address).collect();
        for address in parked {
            let next = self.parked.change(address, VecDeque::pop_front);
            self.turns.extend(next);
        }
        let Some(its) = self.clients.get_mut(&client) else {
            return;
        };
        its.is_called = false;
        match its.calls.is_empty() {
            true => drop(self.clients.remove(&client)),
            false => self.turns.push_back(client),
        }
    }

    /// Registers the task that makes calls.
    pub(in crate::nfs4) fn register(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
    }

    /// Takes the task that makes calls, if there is a call for it.
    pub(in crate::nfs4) fn waker_if_needed(&mut self) -> Option<Waker> {
        match self.turns.is_empty() || self.is_full {
            true => None,
            false => self.take_waker(),
        }
    }

    /// Takes the task that makes calls.
    pub(in crate::nfs4) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::FileId;

    fn notify(n: u64) -> Callback {
        Callback::NotifyLock {
            owner: n.to_be_bytes().as_slice().into(),
            file: FileKey {
                export: 1,
                file: FileId::of_words([1, 2, 3]),
            },
        }
    }

    #[test]
    fn clients_have_turns_and_one_call_at_a_time() {
        let mut queue = Queue::default();
        let [a, b] = [1, 2].map(ClientId);
        for (client, n) in [(a, 1), (a, 2), (a, 3), (b, 4)] {
            queue.push(client, notify(n));
        }
        assert_eq!(queue.take(), Some((a, notify(1))));
        assert_eq!(queue.take(), Some((b, notify(4))));
        assert_eq!(queue.take(), None, "both are being called");
        queue.push(a, notify(5));
        queue.done(a);
        assert_eq!(queue.take(), Some((a, notify(2))));
        queue.park(a, notify(2), PeerGroup::THIS_MACHINE);
        assert_eq!(queue.take(), None, "its address has its share");
        queue.done(b);
        assert_eq!(queue.take(), Some((a, notify(2))));
        queue.done(a);
        assert_eq!(queue.take(), Some((a, notify(3))));
        queue.done(a);
        assert_eq!(queue.take(), Some((a, notify(5))));
        queue.done(a);
        assert_eq!((queue.take(), queue.len, queue.clients.len()), (None, 0, 0));
        assert!(queue.parked.is_empty());
    }

    #[test]
    fn calls_beyond_the_limits_and_calls_that_wait_already_are_dropped() {
        let mut queue = Queue::default();
        for n in 0..2 * MAX_QUEUED_FOR_CLIENT as u64 {
            queue.push(ClientId(1), notify(n));
            queue.push(ClientId(1), notify(n));
        }
        assert_eq!(queue.len, MAX_QUEUED_FOR_CLIENT);
        for client in 2..2 * MAX_QUEUED as u64 {
            queue.push(ClientId(client), notify(0));
        }
        assert_eq!(queue.len, MAX_QUEUED);
        assert!(queue.clients.len() <= MAX_QUEUED);
    }
}
