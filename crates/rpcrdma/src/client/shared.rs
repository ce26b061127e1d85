//! State shared by the handles of a client and the tasks that own its connections.

use super::first_reply_timeout::FirstReplyTimeout;
use crate::driver::calls::Calls;
use crate::driver::owner::Connection;
use crate::driver::spin::Activity;
use buffer::Pool;
use rpcrdma_proto::v2::characteristics::XcharSpec;
use rpcrdma_proto::{Counters, Design, PrivateData, Thresholds, Version, Xids};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;
use verbs::IoCounters;

/// Parameters of a client's current connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The server's address.
    pub peer: SocketAddr,
    /// The provider's description of the connection, for people.
    pub description: String,
    /// Name of the RDMA device at this end; `None` over software.
    pub device: Option<String>,
    /// Version of RPC-over-RDMA in use.
    pub version: Version,
    /// Inline thresholds: the largest message of each direction in bytes. In version two they may
    /// change.
    pub thresholds: Thresholds,
    /// Largest chunk in bytes that this client offers: [the configured
    /// one](crate::ClientConfig::max_chunk), or what the provider can do if that is less.
    pub max_chunk: usize,
    /// Remote invalidation design for this client's handles (reminv §4), if there is one.
    pub remote_invalidation: Option<Design>,
    /// The server's private data, if it has the format of RFC 8797.
    pub peer_private_data: Option<PrivateData>,
    /// The server's private data, verbatim.
    pub raw_private_data: Vec<u8>,
    /// Credits of the last grant: how many calls may be in flight (RFC 8166 §3.3.1).
    pub credits: u32,
    /// Characteristics that the server stated last, of those that are known here; empty where version one
    /// is spoken. [`XcharSpec::get`] reads one of them.
    pub peer_characteristics: XcharSpec,
}

/// State shared by handles and connection owners.
pub(super) struct Shared {
    pub(super) xids: Xids,
    pub(super) calls: Arc<Calls>,
    pub(super) first_reply_timeout: FirstReplyTimeout,
    pub(super) pool: Pool,
    /// Published state of each connection.
    pub(super) seen: Vec<Mutex<Seen>>,
    /// Number of connection owners that have ended.
    pub(super) ended: watch::Sender<usize>,
}

/// Published state of one connection of a client, and of its predecessors.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) info: Option<ConnectionInfo>,
    /// Number of connections so far, the present one included.
    pub(super) made: u64,
    /// Number of those that have ended; counted before their calls go over others.
    pub(super) ended: u64,
    /// Counters of ended connections.
    pub(super) past: Counters,
    pub(super) present: Counters,
    pub(super) past_io: IoCounters,
    pub(super) present_io: IoCounters,
}

impl Shared {
    pub(super) fn seen(&self, conn: usize) -> MutexGuard<'_, Seen> {
        self.seen[conn]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Seen>> {
        (0..self.seen.len()).map(|conn| self.seen(conn))
    }

    pub(super) fn next_xid(&self) -> u32 {
        self.xids.next()
    }

    pub(super) fn connected(&self, conn: usize, info: ConnectionInfo) {
        let mut seen = self.seen(conn);
        seen.info = Some(info);
        seen.made += 1;
    }

    pub(super) fn publish(&self, conn: usize, connection: &Connection, io: IoCounters) {
        let mut seen = self.seen(conn);
        seen.present = *connection.counters();
        seen.present_io = io;
        if let Some(info) = &mut seen.info {
            info.credits = connection.credits();
            info.thresholds = connection.thresholds();
            if let Some(session) = connection.session()
                && *session.peer_values() != info.peer_characteristics
            {
                info.peer_characteristics = session.peer_values().clone();
            }
        }
    }

    pub(super) fn lost(&self, conn: usize, counters: &Counters, io: IoCounters) {
        let mut seen = self.seen(conn);
        seen.info = None;
        seen.ended += 1;
        seen.past += *counters;
        seen.present = Counters::default();
        seen.past_io += io;
        seen.present_io = IoCounters::default();
    }
}

/// Returns the activity shared by all clients of this process, which have their own runtimes but
/// share the CPUs.
pub(super) fn activity() -> Activity {
    static ACTIVITY: OnceLock<Activity> = OnceLock::new();
    ACTIVITY.get_or_init(Activity::default).clone()
}
