//! Admission control: limits the connections of a server, and evicts the least useful one.
//!
//! Every connection counts from the moment it is accepted. Once the server is full, a new connection
//! takes the place of the least useful one:
//!
//! 1. one that is still being set up, of the address with the most of those, once that address has
//!    more than [`FREE_SETUPS`], or half of what it may have if that is less; or whatever it has, if
//!    as many are being set up as may be;
//! 2. else one of the address with the most connections, if that has at least two more than the
//!    address of the new one: a connection that is being set up before an idle one, and the one that
//!    has been idle for longest before the others;
//! 3. else, for an address with fewer than [`FEW`] connections, the one that has been idle for longest
//!    of all others, whichever address has it. Where [idle connections give
//!    way](ConnectionLimits::idle_gives_way), for any address, and also its own.
//!
//! A connection in use is never evicted, and one that the server [may need](Use::Kept) only where none
//! is idle. Rule 2 moves connections from addresses with many to those with few and never back. Without
//! rule 3, as many addresses as there are places would keep all others out by connections that are
//! hardly used. It is a cache's rule: clients that use their connections keep them, unless there are
//! more such clients than places. An address here means a [`PeerGroup`].

use oncrpc::PeerGroup;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections in setup that one address may have before they are the first to be evicted: as many
/// as a client with `nconnect=16` makes at a time.
pub const FREE_SETUPS: usize = 16;

/// Connections that an address may have at the cost of idle ones of addresses with as few: as many as
/// a client with `nconnect=16` has.
pub const FEW: usize = 16;

/// Divisor of the largest number of connections that gives the largest number in setup.
const SETUP_PART: usize = 4;

/// Smallest limit of connections in setup, unless that is more than half of all connections.
const LEAST_SETUPS: usize = 2 * FREE_SETUPS;

/// Divisor of the largest number of connections that gives the number of evicted ones that may not
/// have ended yet.
const LEAVING_PART: usize = 8;

/// Largest number of attempts of eviction, if chosen connections come into use meanwhile.
const MAX_CHOICES: usize = 4;

/// Limits on the connections of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections in total.
    pub connections: usize,
    /// Connections from one address.
    pub per_address: usize,
    /// Connections in setup, whose peers have not made a request yet.
    pub in_setup: usize,
    /// Whether an idle connection gives way to any new one, including one from an address with more
    /// than [a few](FEW): right where clients make one call and leave.
    pub idle_gives_way: bool,
    /// Advice to an administrator when a connection is refused, as which setting allows more.
    pub hint: Option<&'static str>,
}

impl ConnectionLimits {
    /// Creates limits for all connections and for those of one address, with a quarter of all
    /// allowed in setup, or half if these are few.
    pub fn new(connections: usize, per_address: usize) -> Self {
        Self {
            connections,
            per_address,
            in_setup: (connections / SETUP_PART).max(LEAST_SETUPS.min(connections.div_ceil(2))),
            idle_gives_way: false,
            hint: None,
        }
    }

    /// Sets what an administrator is told about connections that are [refused](Admission::explain).
    #[must_use]
    pub fn with_hint(self, hint: Option<&'static str>) -> Self {
        Self { hint, ..self }
    }

    /// Connections in setup that one address may have before they are the first to be evicted.
    fn free_setups(&self) -> usize {
        FREE_SETUPS.min(self.per_address / 2)
    }

    /// Lets idle connections [give way](Self::idle_gives_way) to new ones.
    #[must_use]
    pub fn with_idle_giving_way(self) -> Self {
        Self {
            idle_gives_way: true,
            ..self
        }
    }
}

/// The connections of a server, by address.
#[derive(Clone, Debug)]
pub struct Admission {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Orders the times at which connections became idle.
    stamps: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limits: ConnectionLimits,
    groups: HashMap<PeerGroup, Group>,
    connections: usize,
    in_setup: usize,
    /// Evicted connections that have not ended yet.
    leaving: usize,
    next_id: u64,
    /// Connections that were not admitted so far.
    refused: u64,
}

/// The connections of one address group, in the order of their arrival.
#[derive(Debug, Default)]
struct Group {
    in_setup: BTreeMap<u64, Entry>,
    established: BTreeMap<u64, Entry>,
}

struct Entry {
    /// State of the connection, one of the values below; shared with its owner.
    usage: Arc<AtomicU64>,
    evict: Box<dyn FnOnce() + Send>,
}

/// The connection is being used.
const IN_USE: u64 = 0;
/// The connection was evicted.
const EVICTED: u64 = 1;
/// The connection is being set up.
const IN_SETUP: u64 = 2;
/// Smallest value of an idle connection: the stamp at which it became idle.
const FIRST_STAMP: u64 = 3;
/// Added to the stamp of a connection that the server may need.
const KEPT: u64 = 1 << 63;

/// Use of a connection, as admission control sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Calls are in flight, in either direction.
    InUse,
    /// No call is in flight, but the server may call the client.
    Kept,
    /// No call is in flight.
    Idle,
}

impl Use {
    /// The use of a connection that is idle if no call is in flight, in either direction, and whose client is ready for calls
    /// or not: one that is keeps the connection for them (RFC 8167 §5.4).
    pub fn of(is_idle: bool, client_is_ready: bool) -> Self {
        match (is_idle, client_is_ready) {
            (false, _) => Self::InUse,
            (true, true) => Self::Kept,
            (true, false) => Self::Idle,
        }
    }
}

/// Why a connection is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The server is full, and no connection is less useful.
    #[error("too many connections")]
    Full,
    /// The address has as many connections as it may have.
    #[error("too many connections from this address")]
    AddressFull,
}

/// The place of one connection. Dropping it makes room for another.
#[derive(Debug)]
pub struct Admitted {
    admission: Admission,
    group: PeerGroup,
    id: u64,
    usage: Arc<AtomicU64>,
    /// Last state that the owner has set; `usage` differs if the connection was evicted.
    last: u64,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entry").field(&self.usage).finish()
    }
}

impl Admission {
    /// Admission control with these limits.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            shared: Arc::new(Shared {
                stamps: AtomicU64::new(FIRST_STAMP),
                state: Mutex::new(State {
                    limits,
                    groups: HashMap::new(),
                    connections: 0,
                    in_setup: 0,
                    leaving: 0,
                    next_id: 0,
                    refused: 0,
                }),
            }),
        }
    }

    /// Replaces the limits. Connections beyond smaller ones stay, and new ones take the places of
    /// those that may be evicted.
    pub fn set_limits(&self, limits: ConnectionLimits) {
        self.lock().limits = limits;
    }

    /// Connections that were not admitted so far.
    pub fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// Says why a connection was not admitted, with the limit and what to do about it.
    pub fn explain(&self, why: Refused) -> String {
        let limits = self.lock().limits;
        let (all, of_address) = (limits.connections, limits.per_address);
        let limit = match why {
            Refused::Full => format!("{all} are the limit"),
            Refused::AddressFull => format!("{of_address} of {all} are its limit"),
        };
        match limits.hint {
            Some(hint) => format!("{why}: {limit} ({hint})"),
            None => format!("{why}: {limit}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection of a peer in `group`, evicting a less useful one if need be. Calls
    /// `evict` when the admitted connection is evicted later: it must then end at once.
    ///
    /// # Errors
    ///
    /// Which limit is reached.
    pub fn admit(
        &self,
        group: PeerGroup,
        evict: impl FnOnce() + Send + 'static,
    ) -> Result<Admitted, Refused> {
        let mut state = self.lock();
        let evicted = match state.make_room(group) {
            Ok(evicted) => evicted,
            Err(why) => {
                state.refused += 1;
                return Err(why);
            }
        };
        let id = state.next_id;
        state.next_id += 1;
        state.connections += 1;
        state.in_setup += 1;
        let usage = Arc::new(AtomicU64::new(IN_SETUP));
        let entry = Entry {
            usage: Arc::clone(&usage),
            evict: Box::new(evict),
        };
        let connections = state.groups.entry(group).or_default();
        connections.in_setup.insert(id, entry);
        drop(state);
        if let Some(evicted) = evicted {
            (evicted.evict)();
        }
        Ok(Admitted {
            admission: self.clone(),
            group,
            id,
            usage,
            last: IN_SETUP,
        })
    }

    /// Whether too many evicted connections have not ended yet: they still hold their descriptors
    /// and memory, so no further connection should be accepted before some of them have ended.
    pub fn is_crowded(&self) -> bool {
        let state = self.lock();
        state.leaving > state.limits.connections / LEAVING_PART
    }
}

/// A connection that may be evicted. The greatest one is the least useful.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Connections of its group.
    len: usize,
    in_setup: bool,
    since: Reverse<u64>,
    group: PeerGroup,
    id: u64,
}

impl State {
    /// Makes room for a connection of this group; returns the evicted connection, if any.
    fn make_room(&mut self, newcomer: PeerGroup) -> Result<Option<Entry>, Refused> {
        let limits = self.limits;
        let own = self.groups.get(&newcomer);
        let (own, own_setups) = own.map_or((0, 0), |group| (group.len(), group.in_setup.len()));
        let free_setups = limits.free_setups();
        if own >= limits.per_address {
            let of_own = match own_setups > free_setups {
                true => self.oldest_setup(newcomer),
                false if limits.idle_gives_way => self.least_useful_of(newcomer),
                false => None,
            };
            let of_own = of_own.ok_or(Refused::AddressFull)?;
            let evicted = self.evict(newcomer, of_own).ok_or(Refused::AddressFull)?;
            return Ok(Some(evicted));
        }
        let full = self.connections >= limits.connections;
        let setups_full = self.in_setup >= limits.in_setup;
        if !full && !setups_full {
            return Ok(None);
        }
        for _ in 0..MAX_CHOICES {
            let choice = match setups_full {
                true => self.most_setups(0),
                false => self.least_useful(newcomer, own),
            };
            let (group, id) = choice.ok_or(Refused::Full)?;
            if let Some(evicted) = self.evict(group, id) {
                return Ok(Some(evicted));
            }
        }
        Err(Refused::Full)
    }

    /// Chooses the connection to evict for an address that has `own` connections.
    fn least_useful(&self, newcomer: PeerGroup, own: usize) -> Option<(PeerGroup, u64)> {
        let idle = || match self.limits.idle_gives_way {
            true => self.longest_idle(|_| true),
            false if own < FEW => self.longest_idle(|group| group != newcomer),
            false => None,
        };
        self.most_setups(self.limits.free_setups())
            .or_else(|| self.least_useful_of_most(own + 2))
            .or_else(idle)
    }

    /// Returns the least useful connection of the address with the most of those that are not in use,
    /// if it has `least` connections.
    fn least_useful_of_most(&self, least: usize) -> Option<(PeerGroup, u64)> {
        let mut best: Option<Candidate> = None;
        for (&group, connections) in &self.groups {
            let len = connections.len();
            // Smaller groups need not be checked.
            if len < least || best.as_ref().is_some_and(|best| len < best.len) {
                continue;
            }
            let candidate = connections
                .least_useful()
                .map(|(in_setup, since, id)| Candidate {
                    len,
                    in_setup,
                    since: Reverse(since),
                    group,
                    id,
                });
            best = best.max(candidate);
        }
        best.map(|best| (best.group, best.id))
    }

    /// Returns the connection that has been idle for longest, among those of these addresses.
    fn longest_idle(&self, of: impl Fn(PeerGroup) -> bool) -> Option<(PeerGroup, u64)> {
        let groups = self.groups.iter().filter(|(group, _)| of(**group));
        let each = groups.filter_map(|(group, connections)| {
            let (since, id) = connections.idle().min()?;
            Some((since, *group, id))
        });
        let (_, group, id) = each.min()?;
        Some((group, id))
    }

    fn least_useful_of(&self, group: PeerGroup) -> Option<u64> {
        let (.., id) = self.groups.get(&group)?.least_useful()?;
        Some(id)
    }

    /// Returns the oldest connection in setup of the group with the most of these, if it has more
    /// than `free`.
    fn most_setups(&self, free: usize) -> Option<(PeerGroup, u64)> {
        let crowded = self.groups.iter().filter_map(|(group, connections)| {
            let oldest = *connections.in_setup.keys().next()?;
            let len = connections.in_setup.len();
            (len > free).then_some(((len, Reverse(oldest)), *group, oldest))
        });
        let most = crowded.max_by_key(|(rank, ..)| *rank)?;
        Some((most.1, most.2))
    }

    fn oldest_setup(&self, group: PeerGroup) -> Option<u64> {
        self.groups.get(&group)?.in_setup.keys().next().copied()
    }

    /// Evicts this connection, unless it is in use.
    fn evict(&mut self, group: PeerGroup, id: u64) -> Option<Entry> {
        let connections = self.groups.get_mut(&group)?;
        let entry = connections.entry(id)?;
        let usage = entry.usage.load(Acquire);
        if usage == IN_USE {
            return None;
        }
        let taken = entry
            .usage
            .compare_exchange(usage, EVICTED, AcqRel, Acquire);
        taken.ok()?;
        let entry = self.remove(group, id)?;
        self.leaving += 1;
        Some(entry)
    }

    fn remove(&mut self, group: PeerGroup, id: u64) -> Option<Entry> {
        let connections = self.groups.get_mut(&group)?;
        let in_setup = connections.in_setup.remove(&id);
        if in_setup.is_some() {
            self.in_setup -= 1;
        }
        let entry = in_setup.or_else(|| connections.established.remove(&id))?;
        self.connections -= 1;
        if connections.len() == 0 {
            self.groups.remove(&group);
        }
        Some(entry)
    }
}

impl Group {
    fn len(&self) -> usize {
        self.in_setup.len() + self.established.len()
    }

    fn entry(&self, id: u64) -> Option<&Entry> {
        let in_setup = self.in_setup.get(&id);
        in_setup.or_else(|| self.established.get(&id))
    }

    /// Returns the least useful connection: whether it is in setup, when it became idle, and its
    /// identifier.
    fn least_useful(&self) -> Option<(bool, u64, u64)> {
        if let Some(id) = self.in_setup.keys().next() {
            return Some((true, *id, *id));
        }
        self.idle().min().map(|(since, id)| (false, since, id))
    }

    /// Established connections that are not in use, with the time at which they became idle.
    fn idle(&self) -> impl Iterator<Item = (u64, u64)> {
        self.established.iter().filter_map(|(id, entry)| {
            let since = entry.usage.load(Relaxed);
            (since != IN_USE).then_some((since, *id))
        })
    }
}

impl Admitted {
    /// The peer group of the connection.
    pub fn group(&self) -> PeerGroup {
        self.group
    }

    /// Marks the setup of the connection as finished; it is idle from then on.
    pub fn set_up(&mut self) {
        // Before it is among the idle ones, where it would else be the oldest for a moment.
        self.change(self.stamp());
        let mut state = self.admission.lock();
        let Some(connections) = state.groups.get_mut(&self.group) else {
            return;
        };
        // An evicted connection has no entry any more.
        if let Some(entry) = connections.in_setup.remove(&self.id) {
            connections.established.insert(self.id, entry);
            state.in_setup -= 1;
        }
    }

    /// Sets the use of the connection. Returns false if the connection was evicted before it came into
    /// use.
    ///
    /// Costs nothing if the state is unchanged.
    #[must_use]
    pub fn set_use(&mut self, wanted: Use) -> bool {
        let now = match self.last {
            IN_USE => Use::InUse,
            KEPT.. => Use::Kept,
            _ => Use::Idle,
        };
        match wanted {
            _ if now == wanted => now == Use::InUse || !self.is_evicted(),
            Use::InUse => self.change(IN_USE),
            Use::Kept => self.change(KEPT | self.stamp()),
            Use::Idle => self.change(self.stamp()),
        }
    }

    /// Whether the connection was evicted.
    pub fn is_evicted(&self) -> bool {
        self.usage.load(Relaxed) == EVICTED
    }

    fn stamp(&self) -> u64 {
        self.admission.shared.stamps.fetch_add(1, Relaxed)
    }

    fn change(&mut self, usage: u64) -> bool {
        let changed = self
            .usage
            .compare_exchange(self.last, usage, AcqRel, Acquire);
        if changed.is_ok() {
            self.last = usage;
        }
        changed.is_ok()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        if state.remove(self.group, self.id).is_none() {
            state.leaving -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
