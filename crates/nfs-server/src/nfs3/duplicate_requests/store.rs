//! Storage and eviction of the entries of the duplicate request cache.
//!
//! Each connection keeps the results of its last calls, twice as many as it was granted credits.
//! A client with that many calls in flight has received the replies to all earlier ones. A copy of
//! an earlier one may still come, on a connection that the client has given up: a connection with few
//! credits keeps more results for that. Results of a lost connection stay for [`MAX_AGE`](super::entry::MAX_AGE), however
//! busy the client's next connection is. All connections share a total number of entries: an
//! address may have as many as it leaves free; beyond that its own oldest results are evicted.
//!
//! No operation searches: results are evicted from the front of a queue per connection, and each
//! arriving call removes a few expired ones. Entries are distributed over locks by address.

use super::entry::Entry;
use super::fingerprint::Identity;
use oncrpc::{Caller, ConnectionId, PeerGroup};
use rpc_serving::by_address::{InTurns, Unused};
use rpc_serving::shares::Bound;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// Largest number of entries, calls in flight included. Each takes some hundred bytes.
pub(super) const MAX_REPLIES: usize = 65_536;

/// Results kept for each credit of a connection. A client may have twice as many calls as credits
/// in service: one that gives up a call may already send the next.
const REPLIES_PER_CREDIT: u32 = 2;

/// Number of results kept for a connection at least, however few its credits are.
const MIN_REPLIES_OF_CONNECTION: u32 = 64;

/// Largest number of results kept for a connection, regardless of its credits.
const MAX_REPLIES_OF_CONNECTION: u32 = 2048;

/// Number of locks, over which addresses are distributed.
const SHARDS: usize = 64;

/// Largest number of expired results that a call removes.
const SWEPT: usize = 8;

/// For keys that are hashes with a secret key already.
type AsItIs = BuildHasherDefault<Hashed>;

/// Hasher of one such key: what it begins with.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .first_chunk()
            .map_or(0, |first| u64::from_ne_bytes(*first));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The calls of all clients.
pub(super) struct Store {
    shards: Box<[Mutex<Shard>]>,
    /// Largest number of entries, in flight or with results.
    limit: usize,
    /// Number of entries.
    used: AtomicUsize,
    /// Index of the next shard to check for expired results.
    sweep: AtomicUsize,
}

/// Statistics of the duplicate request cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DuplicateRequestStats {
    /// New calls, which were executed.
    pub misses: u64,
    /// Repeated calls, which were not executed.
    pub hits: u64,
    /// Calls that were answered NFS3ERR_JUKEBOX, because the cache was full.
    pub refused: u64,
    /// Results evicted by newer ones.
    pub evicted: u64,
    /// Results that expired.
    pub expired: u64,
    /// Current entries, in flight or with results.
    pub entries: usize,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<u128, Arc<Entry>, AsItIs>,
    /// Addresses with turns of checks for expired results.
    addresses: InTurns<Address>,
    counts: DuplicateRequestStats,
}

/// The calls of one address.
#[derive(Default)]
struct Address {
    /// Number of entries, in flight or with results.
    used: usize,
    /// Number of the last call that changed a name, by a hash of that, for the calls that are known.
    last_changes: HashMap<u64, u64, AsItIs>,
    /// Results by connection.
    connections: HashMap<ConnectionId, Kept>,
    /// Connections in the order of eviction, each once.
    turns: VecDeque<ConnectionId>,
}

/// The results of one connection.
#[derive(Default)]
struct Kept {
    /// In the order of completion.
    results: VecDeque<Arc<Entry>>,
    /// Whether the client has closed the connection in order.
    is_closed: bool,
}

/// Result of entering a call.
pub(super) enum Entered {
    /// The call is new and must be executed.
    First(Arc<Entry>),
    /// The call is a repetition.
    Again(Arc<Entry>),
    /// The call is new, and the cache is full.
    Full,
}

impl Store {
    pub(super) fn new() -> Self {
        Self::with_limit(MAX_REPLIES)
    }

    /// Creates a store for `limit` entries.
    pub(super) fn with_limit(limit: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            limit,
            used: AtomicUsize::new(0),
            sweep: AtomicUsize::new(0),
        }
    }

    fn shard(&self, client: PeerGroup) -> MutexGuard<'_, Shard> {
        let mut hasher = DefaultHasher::new();
        client.hash(&mut hasher);
        let index = hasher.finish() % SHARDS as u64;
        let shard = &self.shards[usize::try_from(index).expect("there are few shards")];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a call, unless it is known.
    pub(super) fn enter(&self, caller: &Caller, identity: Identity, now: Instant) -> Entered {
        self.sweep(now);
        let mut shard = self.shard(caller.group);
        self.enter_in(&mut shard, caller, identity, now)
    }

    fn enter_in(
        &self,
        shard: &mut Shard,
        caller: &Caller,
        identity: Identity,
        now: Instant,
    ) -> Entered {
        let (client, fingerprint) = (caller.group, identity.fingerprint);
        if let Some(entry) = shard.entries.get(&fingerprint) {
            if !entry.is_old(now) {
                let entry = Arc::clone(entry);
                shard.counts.hits += 1;
                return Entered::Again(entry);
            }
            // The expired entry stays in the queue of its connection until its turn.
            shard.entries.remove(&fingerprint);
        }
        if !self.make_room(shard, client) {
            shard.counts.refused += 1;
            return Entered::Full;
        }
        shard.counts.misses += 1;
        let number = shard.counts.misses;
        let entry = Arc::new(Entry::new(caller, identity, number));
        shard.entries.insert(fingerprint, Arc::clone(&entry));
        shard.addresses.get_or_new(client).add(&entry);
        self.used.fetch_add(1, Relaxed);
        Entered::First(entry)
    }

    /// Enters a call that is no repetition of that of `entry`, unless it is a repetition of another
    /// one by now.
    pub(super) fn renew(
        &self,
        entry: &Arc<Entry>,
        caller: &Caller,
        identity: Identity,
        now: Instant,
    ) -> Entered {
        let mut shard = self.shard(caller.group);
        // It was taken for a repetition when it came.
        shard.counts.hits -= 1;
        // The entry stays in the queue of its connection until its turn.
        shard.remove(entry);
        self.enter_in(&mut shard, caller, identity, now)
    }

    /// Handles the orderly close of a connection, whose client has received all replies.
    pub(super) fn close(&self, caller: &Caller) {
        let mut shard = self.shard(caller.group);
        let address = shard.addresses.get_mut(caller.group);
        let kept = address.and_then(|address| address.connections.get_mut(&caller.connection));
        if let Some(kept) = kept {
            kept.is_closed = true;
        }
    }

    /// Whether the client has received the reply to a call that was executed, as far as is known from
    /// the end of its connection and from later calls.
    ///
    /// The client has closed the connection in order, and has since changed again what the call
    /// changed.
    pub(super) fn has_reply(&self, entry: &Entry) -> bool {
        let shard = self.shard(entry.client);
        let address = shard.addresses.get(entry.client);
        address.is_some_and(|address| {
            let of_connection = address.connections.get(&entry.connection);
            of_connection.is_some_and(|kept| kept.is_closed) && address.has_changed_since(entry)
        })
    }

    /// Makes room for a call of this address; false if all its entries are in flight.
    fn make_room(&self, shard: &mut Shard, client: PeerGroup) -> bool {
        let own = shard.addresses.get_or_new(client).used;
        let left = self.limit.saturating_sub(self.used.load(Relaxed));
        let needs = Bound::WhatItLeaves.needs(self.limit, own, 1);
        if needs.is_some_and(|needs| needs <= left) {
            return true;
        }
        let evicted = shard.evict(client);
        if evicted {
            self.used.fetch_sub(1, Relaxed);
        }
        evicted
    }

    /// Keeps the results of an executed call.
    pub(super) fn keep(&self, entry: &Arc<Entry>) {
        let most = entry.credits.saturating_mul(REPLIES_PER_CREDIT);
        let most = most.clamp(MIN_REPLIES_OF_CONNECTION, MAX_REPLIES_OF_CONNECTION) as usize;
        let mut shard = self.shard(entry.client);
        let evicted = shard.keep(entry, most);
        drop(shard);
        self.used.fetch_sub(evicted, Relaxed);
    }

    /// Removes a call that was not executed.
    pub(super) fn forget(&self, entry: &Arc<Entry>) {
        let mut shard = self.shard(entry.client);
        shard.remove(entry);
        shard.addresses.get_or_new(entry.client).release(entry);
        drop(shard);
        self.used.fetch_sub(1, Relaxed);
    }

    /// Removes expired results, from one shard per call in turn. Does not wait for locks.
    fn sweep(&self, now: Instant) {
        let next = self.sweep.fetch_add(1, Relaxed) % SHARDS;
        let mut shard = match self.shards[next].try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let expired = shard.sweep(now);
        drop(shard);
        self.used.fetch_sub(expired, Relaxed);
    }

    /// Returns the statistics.
    pub(super) fn stats(&self) -> DuplicateRequestStats {
        let mut all = DuplicateRequestStats::default();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.misses += shard.counts.misses;
            all.hits += shard.counts.hits;
            all.refused += shard.counts.refused;
            all.evicted += shard.counts.evicted;
            all.expired += shard.counts.expired;
        }
        all.entries = self.used.load(Relaxed);
        all
    }
}

impl Shard {
    /// Removes a call, unless another one has replaced it.
    fn remove(&mut self, entry: &Arc<Entry>) {
        if let Some(known) = self.entries.get(&entry.fingerprint)
            && Arc::ptr_eq(known, entry)
        {
            self.entries.remove(&entry.fingerprint);
        }
    }

    /// Keeps results, and evicts the oldest of the connection beyond `most`; returns how many.
    fn keep(&mut self, entry: &Arc<Entry>, most: usize) -> usize {
        let address = self.addresses.get_or_new(entry.client);
        let kept = address
            .connections
            .entry(entry.connection)
            .or_insert_with(|| {
                address.turns.push_back(entry.connection);
                Kept::default()
            });
        let results = &mut kept.results;
        results.push_back(Arc::clone(entry));
        if results.len() <= most {
            return 0;
        }
        let Some(oldest) = results.pop_front() else {
            return 0;
        };
        address.release(&oldest);
        self.remove(&oldest);
        self.counts.evicted += 1;
        1
    }

    /// Evicts the oldest results of the next connection of an address; false if it has none.
    fn evict(&mut self, client: PeerGroup) -> bool {
        let address = self.addresses.get_or_new(client);
        while let Some(connection) = address.turns.pop_front() {
            let oldest = address.connections.get_mut(&connection);
            let Some(oldest) = oldest.and_then(|kept| kept.results.pop_front()) else {
                address.connections.remove(&connection);
                continue;
            };
            address.turns.push_back(connection);
            address.release(&oldest);
            self.remove(&oldest);
            self.counts.evicted += 1;
            return true;
        }
        false
    }

    /// Removes a few expired results of the next connection of the next address; returns how many.
    fn sweep(&mut self, now: Instant) -> usize {
        let old = self.addresses.next_turn(|address| address.take_old(now));
        let old = old.unwrap_or_default();
        for entry in &old {
            self.remove(entry);
        }
        self.counts.expired += old.len() as u64;
        old.len()
    }
}

impl Unused for Address {
    fn is_unused(&self) -> bool {
        self.used == 0 && self.connections.is_empty()
    }
}

impl Address {
    /// Takes a few expired results of the next connection.
    fn take_old(&mut self, now: Instant) -> Vec<Arc<Entry>> {
        let mut old = Vec::new();
        if let Some(connection) = self.turns.pop_front() {
            let kept = self.connections.entry(connection).or_default();
            while old.len() < SWEPT
                && let Some(oldest) = kept.results.pop_front_if(|oldest| oldest.is_old(now))
            {
                old.push(oldest);
            }
            match kept.results.is_empty() {
                true => drop(self.connections.remove(&connection)),
                false => self.turns.push_back(connection),
            }
        }
        old.iter().for_each(|entry| self.release(entry));
        old
    }

    fn add(&mut self, entry: &Entry) {
        self.used += 1;
        for name in entry.names.into_iter().filter(|name| *name != 0) {
            self.last_changes.insert(name, entry.number);
        }
    }

    fn release(&mut self, entry: &Entry) {
        self.used -= 1;
        for name in entry.names {
            if self.last_changes.get(&name) == Some(&entry.number) {
                self.last_changes.remove(&name);
            }
        }
    }

    /// Whether a later call changed a name that the call of `entry` changed.
    fn has_changed_since(&self, entry: &Entry) -> bool {
        let last_changes = entry
            .names
            .iter()
            .filter_map(|name| self.last_changes.get(name));
        last_changes
            .into_iter()
            .any(|number| *number > entry.number)
    }
}

#[cfg(test)]
impl Store {
    /// Checks that what is counted is what is there; how many calls are known, and how many are queued.
    pub(super) fn check(&self) -> (usize, usize) {
        let (mut known, mut queued, mut used) = (0, 0, 0);
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            known += shard.entries.len();
            for address in shard.addresses.values() {
                assert_eq!(address.turns.len(), address.connections.len());
                used += address.used;
                assert!(address.last_changes.len() <= 2 * address.used);
                queued += address
                    .connections
                    .values()
                    .map(|kept| kept.results.len())
                    .sum::<usize>();
            }
        }
        assert_eq!(used, self.used.load(Relaxed));
        (known, queued)
    }
}
