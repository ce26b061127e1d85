//! Clients that do not take their replies while others wait for memory.
//!
//! One task watches for all calls that wait. It measures what each client takes from the time at which
//! others began to wait: what its connection accepted, also of a reply that is not written completely,
//! and the memory that it returned.

use super::holder::{Holder, STALLED_AFTER};
use super::{ReplyMemory, State};
use crate::config::GIVES_WAY_AFTER;
use oncrpc::{ConnectionId, PeerGroup};
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How often somebody looks for a connection to close as long as calls wait.
pub(super) const RECLAIM_INTERVAL: Duration = Duration::from_millis(250);

/// Why a client loses its connection while others wait for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It does not take its replies.
    Unread,
    /// The upstream does not answer its calls, which have the memory of their replies.
    Unanswered,
}

impl Why {
    /// How long others wait before.
    fn after(self) -> Duration {
        match self {
            Self::Unread => STALLED_AFTER,
            Self::Unanswered => GIVES_WAY_AFTER,
        }
    }

    /// For how long it holds for a connection, if it does.
    fn holds(self, holder: &Holder, now: Instant) -> Option<Duration> {
        match self {
            Self::Unread => holder.stands_still(now),
            Self::Unanswered => holder.is_unanswered(now),
        }
    }
}

/// A client that loses its connection while others wait for memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stalled {
    pub(crate) why: Why,
    pub(crate) connection: ConnectionId,
    pub(crate) addr: SocketAddr,
    pub(crate) group: PeerGroup,
}

/// The one that watches, as long as calls wait.
pub(crate) struct Watch {
    memory: ReplyMemory,
    /// No call waits any more. The next one that does needs another.
    is_over: bool,
}

impl ReplyMemory {
    /// Begins to watch; `None` if somebody does already.
    pub(crate) fn watch(&self) -> Option<Watch> {
        let mut state = self.lock();
        let was_watched = std::mem::replace(&mut state.is_watched, true);
        (!was_watched).then(|| Watch {
            memory: self.clone(),
            is_over: false,
        })
    }

    /// Connections with leases.
    fn holders(&self) -> Vec<ConnectionId> {
        self.lock().holders.keys().copied().collect()
    }

    /// Looks for clients whose connections must be closed so that others go on. `accepted` tells how much
    /// of a connection's output its client has accepted.
    pub(super) fn look(
        &self,
        now: Instant,
        accepted: impl Fn(ConnectionId) -> u64,
    ) -> Vec<Stalled> {
        // Not under the lock, as connections return memory under their own.
        let holders = self.holders().into_iter();
        let accepted: Vec<_> = holders.map(|holder| (holder, accepted(holder))).collect();
        let mut state = self.lock();
        let looked = state.looked.replace(now);
        let is_first = looked.is_none_or(|at| now - at > 2 * RECLAIM_INTERVAL);
        for (connection, accepted) in accepted {
            if let Some(holder) = state.holders.get_mut(&connection) {
                holder.watch(now, accepted, is_first);
            }
        }
        let mut stalled = state.reclaim(now, Why::Unread);
        stalled.extend(state.reclaim(now, Why::Unanswered));
        stalled
    }
}

impl Watch {
    /// Waits until it is time to look, and does so; `None` once no call waits.
    pub(crate) async fn next(
        &mut self,
        accepted: impl Fn(ConnectionId) -> u64,
    ) -> Option<Vec<Stalled>> {
        let looked = {
            let mut state = self.memory.lock();
            if state.waiting.is_empty() {
                state.is_watched = false;
                self.is_over = true;
                return None;
            }
            state.looked
        };
        if let Some(at) = looked {
            tokio::time::sleep_until(at + RECLAIM_INTERVAL).await;
        }
        Some(self.memory.look(Instant::now(), accepted))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_over {
            self.memory.lock().is_watched = false;
        }
    }
}

impl State {
    /// Chooses the clients whose memory others need: for each call that has waited for too long, the
    /// connection for which the reason has held for longest of the address that holds most. Only an address that
    /// holds less may have it, or a connection of the same address that holds less.
    fn reclaim(&mut self, now: Instant, why: Why) -> Vec<Stalled> {
        let held_by = |of| self.bytes.held_by(of);
        let mut still: Vec<_> = self
            .holders
            .iter()
            .filter(|(_, holder)| !holder.is_closing)
            .filter_map(|(&connection, holder)| {
                let time = why.holds(holder, now)?;
                Some((held_by(holder.group), time, connection))
            })
            .collect();
        if still.is_empty() {
            return Vec::new();
        }
        still.sort_unstable_by_key(|&candidate| Reverse(candidate));
        let is_long = |since| now.saturating_duration_since(since) >= why.after();
        let waiting: Vec<_> = self
            .waiting
            .groups()
            .flat_map(|of| self.waiting.next_of_each(of).map(move |next| (of, next)))
            .filter(|(_, (_, waiter))| is_long(waiter.since))
            .map(|(of, (connection, _))| (of, connection))
            .collect();
        let mut stalled = Vec::new();
        let (mut returning, awaited) = (self.returning(), self.awaited());
        for (of, connection) in waiting {
            if returning >= awaited {
                break;
            }
            let held = held_by(of);
            let own = self.holders.get(&connection);
            let held_here = own.map_or(0, |holder| holder.held);
            let holders = &self.holders;
            let has_more = |&(of_group, _, candidate): &(usize, Duration, ConnectionId)| {
                let holder = &holders[&candidate];
                match holder.group == of {
                    true => holder.held > held_here,
                    false => of_group > held,
                }
            };
            // Behind these, no address has more.
            let most = still.partition_point(|&(of_group, ..)| of_group >= held);
            let Some(at) = still[..most].iter().position(has_more) else {
                continue;
            };
            let (.., candidate) = still.remove(at);
            let Some(holder) = self.holders.get_mut(&candidate) else {
                continue;
            };
            holder.is_closing = true;
            returning += holder.held;
            stalled.push(Stalled {
                why,
                connection: candidate,
                addr: holder.addr,
                group: holder.group,
            });
        }
        stalled
    }

    /// Bytes that connections return which are being closed.
    fn returning(&self) -> usize {
        let closing = self.holders.values().filter(|holder| holder.is_closing);
        closing.map(|holder| holder.held).sum()
    }

    /// Bytes that the next calls of all addresses wait for.
    fn awaited(&self) -> usize {
        let groups = self.waiting.groups();
        let next = groups.filter_map(|of| self.waiting.next_of(of));
        next.map(|waiter| waiter.bytes).sum()
    }
}
