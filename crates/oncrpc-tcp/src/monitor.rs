//! Statistics of a server and of its connections.

use crate::record::MARK;
use crate::shared::Shared;
use oncrpc::ConnectionId;
use rpc_serving::ends::End;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Read access to the statistics of a [`Server`](crate::Server), which may outlive it. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ServerMonitor(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    open: BTreeMap<ConnectionId, (Arc<Shared>, Option<SocketAddr>)>,
    /// Totals, without what open connections have counted so far.
    ended: ServerStats,
}

/// Totals of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Connections that were taken in.
    pub accepted: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Connections that gave way to new ones.
    pub evicted: u64,
    /// Calls of clients.
    pub calls: u64,
    /// Replies to them.
    pub replies: u64,
    /// Calls that were answered by other threads.
    pub jobs: u64,
    /// Bytes of received records.
    pub bytes_in: u64,
    /// Bytes that the system has taken to send.
    pub bytes_out: u64,
}

/// Statistics of an open connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// The connection.
    pub id: ConnectionId,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Address of the listener that it came to; `None` for a stream that something else accepted.
    pub listener: Option<SocketAddr>,
    /// Time at which it was taken in.
    pub since: Instant,
    /// Whether it ends behind the replies to its calls.
    pub is_closing: bool,
    /// Calls so far.
    pub calls: u64,
    /// Calls in service.
    pub in_flight: usize,
    /// Calls so far that other threads were given.
    pub jobs: u64,
    /// Calls in service that other threads answer.
    pub jobs_in_flight: usize,
    /// Bytes of received records.
    pub bytes_in: u64,
    /// Bytes that the system has taken to send.
    pub bytes_out: u64,
}

impl ServerMonitor {
    /// Totals so far.
    pub fn stats(&self) -> ServerStats {
        let seen = self.lock();
        let open = seen.open.values();
        open.fold(seen.ended, |all, (shared, _)| all.and(shared))
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Statistics of each open connection, in the order in which they were taken in.
    pub fn connections(&self) -> Vec<ConnectionStats> {
        let seen = self.lock();
        let open = seen.open.values();
        open.map(|(shared, listener)| shared.stats(*listener))
            .collect()
    }

    /// Counts a connection that was refused.
    pub(crate) fn refused(&self) {
        self.lock().ended.refused += 1;
    }

    /// Adds a connection that came to this listener, until what is returned is dropped.
    pub(crate) fn taken_in(&self, shared: &Arc<Shared>, listener: Option<SocketAddr>) -> Watched {
        let mut seen = self.lock();
        seen.ended.accepted += 1;
        let id = shared.caller.connection;
        seen.open.insert(id, (Arc::clone(shared), listener));
        drop(seen);
        Watched {
            monitor: self.clone(),
            id,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection among those of a server.
pub(crate) struct Watched {
    monitor: ServerMonitor,
    id: ConnectionId,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut seen = self.monitor.lock();
        let ended = seen.open.remove(&self.id);
        if let Some((shared, _)) = &ended {
            seen.ended = seen.ended.and(shared);
            seen.ended.evicted += u64::from(shared.ends.has(End::Evicted));
        }
        // What is left of the connection is dropped without the lock.
        drop(seen);
        drop(ended);
    }
}

impl ServerStats {
    /// With what a connection has counted.
    fn and(self, shared: &Shared) -> Self {
        let of = &shared.traffic;
        Self {
            calls: self.calls + of.calls.load(Relaxed),
            replies: self.replies + of.replies.load(Relaxed),
            jobs: self.jobs + of.jobs.load(Relaxed),
            bytes_in: self.bytes_in + of.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out + shared.output.sent(),
            ..self
        }
    }
}

impl Shared {
    /// Statistics of the connection, which came to this listener.
    fn stats(&self, listener: Option<SocketAddr>) -> ConnectionStats {
        let of = &self.traffic;
        ConnectionStats {
            id: self.caller.connection,
            peer: self.caller.addr,
            listener,
            since: of.since,
            is_closing: self.ends.prevailing().is_some(),
            calls: of.calls.load(Relaxed),
            in_flight: of.on_task.load(Relaxed) + self.jobs(),
            jobs: of.jobs.load(Relaxed),
            jobs_in_flight: self.jobs(),
            bytes_in: of.bytes_in.load(Relaxed),
            bytes_out: self.output.sent(),
        }
    }
}

/// Counters of one connection.
#[derive(Debug)]
pub(crate) struct Traffic {
    since: Instant,
    calls: AtomicU64,
    replies: AtomicU64,
    jobs: AtomicU64,
    bytes_in: AtomicU64,
    /// Calls in service that its own task answers.
    on_task: AtomicUsize,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            calls: AtomicU64::new(0),
            replies: AtomicU64::new(0),
            jobs: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            on_task: AtomicUsize::new(0),
        }
    }
}

impl Traffic {
    /// Counts a call of so many bytes.
    pub(crate) fn call(&self, len: usize) {
        self.calls.fetch_add(1, Relaxed);
        self.received(len);
    }

    /// Counts a received message of so many bytes, with one record mark.
    pub(crate) fn received(&self, len: usize) {
        self.bytes_in.fetch_add((len + MARK) as u64, Relaxed);
    }

    /// Counts a reply.
    pub(crate) fn reply(&self) {
        self.replies.fetch_add(1, Relaxed);
    }

    /// Counts a call that another thread is given.
    pub(crate) fn job(&self) {
        self.jobs.fetch_add(1, Relaxed);
    }

    /// Notes how many calls the task of the connection has in service.
    pub(crate) fn set_on_task(&self, calls: usize) {
        self.on_task.store(calls, Relaxed);
    }
}
