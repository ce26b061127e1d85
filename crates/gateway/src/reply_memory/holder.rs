//! One connection: its leases, and how fast its client takes replies.

use crate::config::GIVES_WAY_AFTER;
use oncrpc::PeerGroup;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How long a call waits for memory, and a client takes too little of the replies that are there,
/// before the client loses its connection, so that others go on.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Divisor for what a client takes of the memory that it holds within [`STALLED_AFTER`], so that it
/// does not count as standing still: a client that takes only small replies keeps no large ones.
pub(super) const RETURNED_PART: usize = 32;

/// A connection with leases.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) group: PeerGroup,
    pub(super) addr: SocketAddr,
    /// Leases by number.
    leases: HashMap<u64, Held>,
    /// Bytes of these.
    pub(super) held: usize,
    /// Bytes of all leases that were returned.
    returned: u64,
    /// Since when the client has not taken its part of what it holds, as far as it was watched, and what
    /// it had taken by then.
    mark: Option<(Instant, u64)>,
    /// It is being closed.
    pub(super) is_closing: bool,
}

/// One lease of a connection.
#[derive(Debug)]
struct Held {
    bytes: usize,
    since: Instant,
    /// Since when its call could go on, and waits for room at the client.
    woken: Option<Instant>,
}

impl Holder {
    pub(super) fn new(group: PeerGroup, addr: SocketAddr) -> Self {
        Self {
            group,
            addr,
            leases: HashMap::new(),
            held: 0,
            returned: 0,
            mark: None,
            is_closing: false,
        }
    }

    /// Adds a lease, whose call was woken then.
    pub(super) fn lend(&mut self, number: u64, bytes: usize, woken: Option<Instant>) {
        self.held += bytes;
        let since = Instant::now();
        let lease = Held {
            bytes,
            since,
            woken,
        };
        self.leases.insert(number, lease);
    }

    /// Returns a lease.
    pub(super) fn give_back(&mut self, number: u64) {
        if let Some(lease) = self.leases.remove(&number) {
            self.held -= lease.bytes;
            self.returned += lease.bytes as u64;
        }
    }

    /// Takes a part of a lease back. The client has taken nothing by that.
    pub(super) fn shrink(&mut self, number: u64, bytes: usize) {
        if let Some(lease) = self.leases.get_mut(&number) {
            lease.bytes -= bytes;
            self.held -= bytes;
        }
    }

    /// Whether it has no lease.
    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    pub(super) fn set_woken(&mut self, number: u64, is_woken: bool) {
        let Some(held) = self.leases.get_mut(&number) else {
            return;
        };
        held.woken = match (is_woken, held.woken) {
            (false, _) => None,
            (true, Some(before)) => Some(before),
            (true, None) => Some(Instant::now()),
        };
    }

    /// Notes how much of its connection's output the client has accepted so far. Nobody has watched it
    /// before if `is_first`.
    pub(super) fn watch(&mut self, now: Instant, accepted: u64, is_first: bool) {
        let taken = self.returned + accepted;
        let part = (self.held / RETURNED_PART).max(1) as u64;
        let has_taken_part = self
            .mark
            .is_none_or(|(_, before)| taken.saturating_sub(before) >= part);
        if is_first || has_taken_part {
            self.mark = Some((now, taken));
        }
    }

    /// For how long its calls have no reply, if that is too long for half of what it holds.
    pub(super) fn is_unanswered(&self, now: Instant) -> Option<Duration> {
        let time = |held: &Held| now.saturating_duration_since(held.since);
        let old = self.leases.values().filter(|held| held.woken.is_none());
        let old = old.filter(|held| time(held) >= GIVES_WAY_AFTER);
        let (bytes, longest) = old.fold((0, Duration::ZERO), |(bytes, longest), held| {
            (bytes + held.bytes, longest.max(time(held)))
        });
        (bytes > 0 && 2 * bytes >= self.held).then_some(longest)
    }

    /// For how long the client has taken too little although replies wait for it, if that is too long.
    pub(super) fn stands_still(&self, now: Instant) -> Option<Duration> {
        let (since, _) = self.mark?;
        let is_long = |since| now.saturating_duration_since(since) >= STALLED_AFTER;
        let mut woken = self.leases.values().filter_map(|held| held.woken);
        (is_long(since) && woken.any(is_long)).then(|| now.saturating_duration_since(since))
    }
}
