//! One address: what its calls hold, and its calls that wait.

use super::Waiter;
use oncrpc::ConnectionId;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What the calls of one address hold, and its calls that wait: one of each connection in turn.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Bytes of all leases.
    pub(super) held: usize,
    /// Waiting calls of each connection by number, in the order of their arrival.
    queues: HashMap<ConnectionId, BTreeMap<u64, Waiter>>,
    /// Round-robin queue of connections with waiting calls.
    turns: VecDeque<ConnectionId>,
}

impl Group {
    /// Adds a call behind those of its connection.
    pub(super) fn push(&mut self, number: u64, waiter: Waiter) {
        let connection = waiter.connection;
        let queue = self.queues.entry(connection).or_default();
        if queue.is_empty() {
            self.turns.push_back(connection);
        }
        queue.insert(number, waiter);
    }

    /// The call that is served next.
    pub(super) fn next(&self) -> Option<&Waiter> {
        let queue = self.queues.get(self.turns.front()?)?;
        queue.values().next()
    }

    /// Takes the call that is served next. Its connection goes to the end of the turns.
    pub(super) fn take_next(&mut self) -> Option<Waiter> {
        let connection = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&connection)?;
        let (_, waiter) = queue.pop_first()?;
        match queue.is_empty() {
            true => drop(self.queues.remove(&connection)),
            false => self.turns.push_back(connection),
        }
        Some(waiter)
    }

    /// Removes a call that gives up. Returns false if it does not wait any more.
    pub(super) fn remove(&mut self, connection: ConnectionId, number: u64) -> bool {
        let Some(queue) = self.queues.get_mut(&connection) else {
            return false;
        };
        let waited = queue.remove(&number).is_some();
        if queue.is_empty() {
            self.queues.remove(&connection);
            self.turns.retain(|&other| other != connection);
        }
        waited
    }

    /// The call of each connection that is served next.
    pub(super) fn first_of_each(&self) -> impl Iterator<Item = &Waiter> {
        let queues = self.turns.iter().filter_map(|of| self.queues.get(of));
        queues.filter_map(|queue| queue.values().next())
    }

    /// Whether calls wait.
    pub(super) fn waits(&self) -> bool {
        !self.turns.is_empty()
    }
}
