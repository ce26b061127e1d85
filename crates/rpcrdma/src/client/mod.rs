//! The calling end.

mod calls;
mod pump;

use crate::ClientConfig;
use crate::spin::Activity;
use buffer::{Pool, PoolStats};
use calls::{Calls, Waiting};
use oncrpc::{ReplyBound, Transport, TransportError};
use pump::{Connector, Pump};
use rpcrdma_proto::{Counters, PrivateData, Thresholds};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;
use verbs::{IoCounters, Provider, SetupError};
use xdr::Payload;

/// A client of one server: a handle that is cheap to clone, for use by any number of tasks.
///
/// Its connection is closed when the last handle is dropped, or by [`close`](Self::close).
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

/// What was agreed on a client's present connection.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The server's address.
    pub peer: SocketAddr,
    /// The provider's words for what it agreed.
    pub description: String,
    /// The largest message in each direction.
    pub thresholds: Thresholds,
    /// What the server said about itself, if it said anything we understand (RFC 8797).
    pub peer_private_data: Option<PrivateData>,
    /// The server's private data as it came.
    pub raw_private_data: Vec<u8>,
    /// Calls that may be on their way at a time, as the server said last (RFC 8166 §3.3.1).
    pub credits: u32,
}

struct Handle {
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.calls.close();
    }
}

/// What handles and the owner of the connection share.
struct Shared {
    next_xid: AtomicU32,
    calls: Arc<Calls>,
    pool: Pool,
    seen: Mutex<Seen>,
    ended: watch::Sender<bool>,
}

/// What can be asked about a client.
#[derive(Default)]
struct Seen {
    info: Option<ConnectionInfo>,
    /// Of the connections that are over.
    past: Counters,
    present: Counters,
    past_io: IoCounters,
    present_io: IoCounters,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connected(&self, info: ConnectionInfo) {
        self.seen().info = Some(info);
    }

    fn publish(&self, counters: &Counters, io: IoCounters, credits: u32) {
        let mut seen = self.seen();
        seen.present = *counters;
        seen.present_io = io;
        if let Some(info) = &mut seen.info {
            info.credits = credits;
        }
    }

    fn lost(&self, counters: &Counters, io: IoCounters) {
        let mut seen = self.seen();
        seen.info = None;
        seen.past += *counters;
        seen.present = Counters::default();
        seen.past_io += io;
        seen.present_io = IoCounters::default();
    }
}

/// Of all clients of this process: they have runtimes of their own, but share the CPUs.
fn activity() -> Activity {
    static ACTIVITY: OnceLock<Activity> = OnceLock::new();
    ACTIVITY.get_or_init(Activity::default).clone()
}

impl Client {
    /// Connects to a server.
    ///
    /// The connection is owned by a task on the present tokio runtime, which has its I/O and time
    /// drivers enabled. If that runtime ends before the client does, calls fail.
    ///
    /// # Errors
    ///
    /// If the first connection cannot be made. Later ones are tried again, see [`ClientConfig`].
    pub async fn connect(
        provider: Arc<dyn Provider>,
        to: SocketAddr,
        config: ClientConfig,
    ) -> Result<Self, SetupError> {
        let calls = Arc::new(Calls::new(config.call_timeout));
        let connector = Connector::new(provider, to, config);
        let (wire, info) = connector.connect().await?;
        let (ended, watch_ended) = watch::channel(false);
        let shared = Arc::new(Shared {
            next_xid: AtomicU32::new(first_xid()),
            calls,
            pool: connector.pool.clone(),
            seen: Mutex::default(),
            ended,
        });
        shared.connected(info);
        let pump = Pump::new(Arc::clone(&shared), connector);
        tokio::spawn(pump.run(wire));
        Ok(Self {
            handle: Arc::new(Handle {
                shared,
                ended: watch_ended,
            }),
        })
    }

    /// What was agreed on the present connection; `None` while there is none.
    pub fn connection(&self) -> Option<ConnectionInfo> {
        self.handle.shared.seen().info.clone()
    }

    /// What was done so far, on all connections of this client together.
    pub fn counters(&self) -> Counters {
        let seen = self.handle.shared.seen();
        let mut all = seen.past;
        all += seen.present;
        all
    }

    /// What its connections have asked of the system and of memory so far, all together.
    pub fn io_counters(&self) -> IoCounters {
        let seen = self.handle.shared.seen();
        let mut all = seen.past_io;
        all += seen.present_io;
        all
    }

    /// Buffers of its connections: those that are out, replies that somebody still holds among
    /// them, and those kept for use again.
    pub fn memory(&self) -> PoolStats {
        self.handle.shared.pool.stats()
    }

    /// Ends the connection in good order, and waits for it. Calls that are on their way fail.
    pub async fn close(&self) {
        self.handle.shared.calls.close();
        let mut ended = self.handle.ended.clone();
        // The sender goes with the owner of the connection, and then it has ended too.
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

impl Transport for Client {
    fn next_xid(&self) -> u32 {
        self.handle.shared.next_xid.fetch_add(1, Relaxed)
    }

    fn call(
        &self,
        call: Payload,
        bound: ReplyBound,
    ) -> impl Future<Output = Result<Payload, TransportError>> + Send {
        Waiting::new(Arc::clone(&self.handle.shared.calls), call, bound)
    }

    /// As many calls as the server takes (RFC 8166 §3.3.1); one while there is no connection.
    fn depth(&self) -> usize {
        let seen = self.handle.shared.seen();
        seen.info.as_ref().map_or(1, |info| info.credits as usize)
    }
}

/// Where XIDs begin: elsewhere in each run, so that a server's reply cache does not take the calls
/// of this run for those of the last.
fn first_xid() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let random = RandomState::new().build_hasher().finish();
    u32::try_from(random >> 32).expect("32 bits")
}
