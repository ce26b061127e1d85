//! Limits on all that clients can make grow.
//!
//! Memory at these limits, without the replies in caches: about 1000 bytes for a client id with its session, 100 for a slot, 600 for
//! an open of a file of its own, 700 for an owner of locks in one with its first lock, 40 for a further lock, 64 for a waiter, and the
//! name of each owner once. The replies in the caches take [`Limits::slots`], and [`MIN_SLOTS`] of each session, times the largest cached
//! reply that the caller grants, at most.

use std::time::Duration;

/// Sessions of one client id. Linux makes one.
pub const MAX_SESSIONS_PER_CLIENT: usize = 64;

/// Slots of one session.
pub const MAX_SLOTS: u32 = 1024;

/// Slots that every session has, whatever others have.
pub const MIN_SLOTS: u32 = 4;

/// Connections that are bound to one session. Linux makes 16 at most.
pub const MAX_CONNECTIONS_PER_SESSION: usize = 64;

/// Locks of byte ranges on one file.
pub const MAX_LOCKS_PER_FILE: usize = 16_384;

/// Owners of locks in one open: so many end with a CLOSE. Linux frees those that have locked nothing.
pub const MAX_LOCK_OWNERS_PER_OPEN: usize = 4096;

/// States of a client that end in one step. A client with more ends in several, between which others are served. Whoever wants what is
/// left of it meanwhile is told `Delay`.
pub const MAX_ENDED_AT_ONCE: usize = 256;

/// Client ids at which [`Server::handle_timeout`](crate::Server::handle_timeout) looks at a time.
pub const MAX_LOOKS: usize = 64;

/// Owners that wait for locks of one file. Others poll.
pub const MAX_WAITERS_PER_FILE: usize = 1024;

/// Time for which a free lock is kept for the first that waits for it, from the call that tells it so (RFC 8881 §9.6 allows a
/// lease; clients that listen come at once).
pub const RESERVATION: Duration = Duration::from_secs(5);

/// Time after which an owner that has not asked again waits no more. Linux asks every 30 s.
pub const WAITER_LIFE: Duration = Duration::from_secs(120);

/// Time between two reclaims of a client for which the grace period goes on beyond its length (RFC 8881 §8.4.2.1 leaves its end to the
/// server).
pub const BETWEEN_RECLAIMS: Duration = Duration::from_secs(1);

/// Largest number of slots of all sessions of a client, for the order of seqids that wrap around (RFC 8881 §8.2.2).
pub(crate) const SEQID_WINDOW: u32 = 1 << 16;

const _: () = assert!(SEQID_WINDOW as usize >= MAX_SLOTS as usize * MAX_SESSIONS_PER_CLIENT);

/// Limits for all clients together. Of each, an address or a client has at most as much as it leaves free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Client ids, with those that are not confirmed.
    pub clients: usize,
    /// Sessions.
    pub sessions: usize,
    /// Slots of all sessions. A session has [`MIN_SLOTS`] beyond that.
    pub slots: u32,
    /// Opens, and owners of locks in opens.
    pub states: usize,
    /// Locks of byte ranges.
    pub locks: usize,
    /// Owners that wait for locks.
    pub waiters: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 10_000,
            sessions: 20_000,
            slots: 200_000,
            states: 1_000_000,
            locks: 1_000_000,
            waiters: 100_000,
        }
    }
}
