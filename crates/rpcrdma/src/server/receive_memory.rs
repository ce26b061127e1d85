//! Memory budget for the Receives of all connections of a server, where each connection posts its own.
//!
//! One half is for the Receives that each connection begins with. The other half is what connections grow into, shared
//! between addresses: each may have as much of it as if there were one address more, so that a newcomer finds some.
//! Posted Receives cannot be withdrawn. When one address finds no room in its share, those that have more than theirs
//! give back what messages use.

use oncrpc::PeerGroup;
use rpc_serving::by_address::{ByAddress, Unused};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections grow into one `GROWTH`th of the memory.
const GROWTH: usize = 2;

/// The budget.
#[derive(Clone, Debug)]
pub(super) struct ReceiveMemory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Bytes that connections may grow into.
    growth: usize,
    /// Somebody found no room in a share that is not used up.
    short: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Bytes left of all memory.
    left: usize,
    /// Bytes that connections have grown by.
    grown: usize,
    addresses: ByAddress<Held>,
}

/// Connections of one address, and their growth.
#[derive(Debug, Default)]
struct Held {
    connections: usize,
    /// Bytes that they have grown by.
    grown: usize,
}

impl Unused for Held {
    fn is_unused(&self) -> bool {
        self.connections == 0
    }
}

/// The share of one connection, returned to the budget on drop.
#[derive(Debug)]
pub(super) struct ReceiveLease {
    shared: Arc<Shared>,
    group: PeerGroup,
    /// Bytes of a Receive.
    size: usize,
    /// Number of Receives that the connection began with.
    first: usize,
    /// Number of Receives by which it has grown.
    grown: usize,
}

impl ReceiveMemory {
    pub(super) fn new(bytes: usize) -> Self {
        let state = State {
            left: bytes,
            grown: 0,
            addresses: ByAddress::default(),
        };
        let shared = Shared {
            growth: bytes / GROWTH,
            short: AtomicBool::new(false),
            state: Mutex::new(state),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Takes memory for `wanted` Receives of `size` bytes for a new connection, or for as many as there is room for.
    pub(super) fn take(&self, group: PeerGroup, wanted: usize, size: usize) -> ReceiveLease {
        let mut state = self.shared.state();
        let first = wanted.min(state.left / size);
        state.left -= first * size;
        state.addresses.change(group, |held| held.connections += 1);
        drop(state);
        ReceiveLease {
            shared: Arc::clone(&self.shared),
            group,
            size,
            first,
            grown: 0,
        }
    }
}

/// Returns for how many connections there is memory, each with so many Receives of `size` bytes at first, so that
/// all can grow.
pub(super) fn connections(bytes: usize, receives: usize, size: usize) -> usize {
    (bytes - bytes / GROWTH) / (receives * size)
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Bytes that each address may grow by.
    fn share(&self, growth: usize) -> usize {
        growth / (self.addresses.len() + 1)
    }

    fn grown_of(&self, group: PeerGroup) -> usize {
        self.addresses.get(group).map_or(0, |held| held.grown)
    }
}

impl ReceiveLease {
    /// Number of Receives that the share is good for.
    pub(super) fn receives(&self) -> usize {
        self.first + self.grown
    }

    /// Takes memory for `more` Receives, or for as many as there is room for. Returns how many.
    pub(super) fn grow(&mut self, more: usize) -> usize {
        let growth = self.shared.growth;
        let mut state = self.shared.state();
        let of_share = state
            .share(growth)
            .saturating_sub(state.grown_of(self.group));
        let of_all = state.left.min(growth - state.grown.min(growth));
        let taken = more.min(of_share / self.size).min(of_all / self.size);
        let bytes = taken * self.size;
        state.left -= bytes;
        state.grown += bytes;
        state
            .addresses
            .change(self.group, |held| held.grown += bytes);
        drop(state);
        self.grown += taken;
        // An address that has its share is not short of anything.
        let short = taken < more.min(of_share / self.size);
        if short || taken > 0 {
            self.shared.short.store(short, Relaxed);
        }
        taken
    }

    /// Whether this address has more than its share while another has not as much as its own.
    pub(super) fn is_wanted(&self) -> bool {
        if self.grown == 0 || !self.shared.short.load(Relaxed) {
            return false;
        }
        let state = self.shared.state();
        state.grown_of(self.group) > state.share(self.shared.growth)
    }

    /// Gives back memory for all but `receives` Receives, as far as the connection has grown.
    pub(super) fn shrink_to(&mut self, receives: usize) {
        let back = self.receives().saturating_sub(receives).min(self.grown);
        if back == 0 {
            return;
        }
        self.grown -= back;
        let bytes = back * self.size;
        let mut state = self.shared.state();
        state.left += bytes;
        state.grown -= bytes;
        state
            .addresses
            .change(self.group, |held| held.grown -= bytes);
    }
}

impl Drop for ReceiveLease {
    fn drop(&mut self) {
        self.shrink_to(self.first);
        let mut state = self.shared.state();
        state.left += self.first * self.size;
        state
            .addresses
            .change(self.group, |held| held.connections -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    const SIZE: usize = 10;

    fn group(number: u32) -> PeerGroup {
        PeerGroup::of(IpAddr::from(number.to_be_bytes()))
    }

    /// Memory for so many Receives.
    fn memory(receives: usize) -> ReceiveMemory {
        ReceiveMemory::new(receives * SIZE)
    }

    #[test]
    fn connections_begin_with_what_they_want_until_nothing_is_left() {
        let memory = memory(100);
        let leases: Vec<_> = (0..10).map(|_| memory.take(group(1), 12, SIZE)).collect();
        let taken: Vec<_> = leases.iter().map(ReceiveLease::receives).collect();
        assert_eq!(taken, [12, 12, 12, 12, 12, 12, 12, 12, 4, 0]);
        drop(leases);
        assert_eq!(memory.take(group(1), 200, SIZE).receives(), 100);
    }

    #[test]
    fn growth_leaves_the_memory_that_others_begin_with() {
        let memory = memory(100);
        let mut one = memory.take(group(1), 10, SIZE);
        // Half of the half that is there to grow into.
        assert_eq!(one.grow(100), 25);
        assert_eq!(one.grow(1), 0);
        let mut other = memory.take(group(2), 10, SIZE);
        assert_eq!(other.grow(100), 16, "a third of that half");
        let many: Vec<_> = (3..7).map(|at| memory.take(group(at), 9, SIZE)).collect();
        assert!(many.iter().all(|lease| lease.receives() == 9));
    }

    #[test]
    fn address_with_more_than_its_share_is_asked_only_when_another_is_short() {
        let memory = memory(100);
        let mut early = memory.take(group(1), 10, SIZE);
        early.grow(25);
        let mut second = memory.take(group(2), 10, SIZE);
        assert_eq!(second.grow(16), 16);
        // Nobody is short yet, though the first has more than a third.
        assert!(!early.is_wanted());
        let mut late = memory.take(group(3), 10, SIZE);
        assert_eq!(late.grow(12), 9, "its share is 12");
        assert!(early.is_wanted());
        assert!(second.is_wanted(), "16 of 12");
        assert!(!late.is_wanted());
        // What messages have used of it.
        early.shrink_to(10 + 12);
        assert!(!early.is_wanted());
        assert_eq!(late.grow(3), 3);
        assert!(!second.is_wanted(), "nobody is short any more");
    }

    #[test]
    fn connection_keeps_what_it_began_with() {
        let memory = memory(100);
        let mut lease = memory.take(group(1), 10, SIZE);
        lease.grow(5);
        lease.shrink_to(0);
        assert_eq!(lease.receives(), 10);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Connect(u32),
        Grow(usize, usize),
        Shrink(usize, usize),
        End(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4_u32).prop_map(Step::Connect),
            (0..8_usize, 0..40_usize).prop_map(|(of, by)| Step::Grow(of, by)),
            (0..8_usize, 0..40_usize).prop_map(|(of, to)| Step::Shrink(of, to)),
            (0..8_usize).prop_map(Step::End),
        ]
    }

    proptest! {
        /// The leases are never good for more than there is, and all comes back.
        #[test]
        fn leases_never_exceed_the_memory(steps in prop::collection::vec(step(), 0..200)) {
            let memory = memory(100);
            let mut leases = Vec::<ReceiveLease>::new();
            for step in steps {
                match step {
                    Step::Connect(at) => leases.push(memory.take(group(at), 12, SIZE)),
                    Step::Grow(of, by) => if let Some(lease) = leases.get_mut(of) {
                        lease.grow(by);
                    },
                    Step::Shrink(of, to) => if let Some(lease) = leases.get_mut(of) {
                        lease.shrink_to(to);
                    },
                    Step::End(of) => if of < leases.len() {
                        leases.swap_remove(of);
                    },
                }
                let all: usize = leases.iter().map(ReceiveLease::receives).sum();
                let grown: usize = leases.iter().map(|lease| lease.grown).sum();
                prop_assert!(all <= 100 && grown <= 50);
                let left = memory.shared.state().left;
                prop_assert_eq!(left, (100 - all) * SIZE);
            }
            drop(leases);
            let state = memory.shared.state();
            prop_assert_eq!((state.left, state.grown), (100 * SIZE, 0));
            prop_assert!(state.addresses.is_empty());
        }
    }
}
