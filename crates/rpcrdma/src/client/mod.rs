//! The client: connections to one server, and the calls that share them.

mod connector;
mod first_reply_timeout;
mod pump;
mod responsiveness;
mod shared;

use crate::ClientConfig;
use crate::driver::calls::{Calls, FIRST_USER, PendingCall};
use crate::driver::close_reason::CloseReason;
use buffer::PoolStats;
use connector::Connector;
use first_reply_timeout::FirstReplyTimeout;
use oncrpc::xdr::Payload;
use oncrpc::{ReplyBound, Transport, TransportError};
use pump::Pump;
use rpcrdma_proto::Counters;
use shared::Shared;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use verbs::{IoCounters, Provider};

pub use connector::ConnectError;
pub use shared::ConnectionInfo;

/// Client of one server. A handle that is cheap to clone and may be used by any number of tasks.
///
/// It has one connection, or [several](ClientConfig::connections); each call goes over the
/// connection with the fewest calls. If a connection is lost, its calls go over another one,
/// without their callers noticing. All connections close when the last handle is dropped, or by
/// [`close`](Self::close).
///
/// # Users
///
/// Calls without a credit wait in an unbounded queue: each is a future that its caller holds, and
/// ends by its time limit. All clones of a handle share one queue, in order. For a queue of its
/// own, a program that shares a client uses [`new_user`](Self::new_user): queues are served
/// round-robin, one call at a time.
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
    user: usize,
    /// Keeps the user as long as a handle may make calls for it.
    _user: Option<Arc<User>>,
}

/// A [`Client`] with its own time limit for calls, made by [`Client::within`].
#[derive(Clone)]
pub struct TimedClient {
    client: Client,
    limit: Duration,
}

struct Handle {
    shared: Arc<Shared>,
    ended: watch::Receiver<usize>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.calls.close();
    }
}

/// A further user of a client.
struct User {
    calls: Arc<Calls>,
    user: usize,
}

impl Drop for User {
    fn drop(&mut self) {
        self.calls.remove_user(self.user);
    }
}

impl Client {
    /// Connects to a server.
    ///
    /// A task on the current tokio runtime owns each connection; the runtime needs its I/O and time
    /// drivers. If the runtime ends before the client does, calls fail. With several connections,
    /// this makes the first one; the first call makes the others.
    ///
    /// # Errors
    ///
    /// If the first connection cannot be made. The client retries later ones, see [`ClientConfig`].
    pub async fn connect(
        provider: Arc<dyn Provider>,
        to: SocketAddr,
        config: ClientConfig,
    ) -> Result<Self, ConnectError> {
        let connector = Arc::new(Connector::new(provider, to, config));
        let connected = connector.connect().await;
        let (endpoint, info) = connected.map_err(|source| ConnectError { to, source })?;
        let conns = connector.conns();
        let (ended, watch_ended) = watch::channel(0);
        let shared = Arc::new(Shared {
            xids: connector.xids.clone(),
            calls: Arc::new(Calls::new(connector.config.call_timeout, conns)),
            first_reply_timeout: FirstReplyTimeout::new(connector.config.first_reply_timeout),
            pool: connector.pool.clone(),
            seen: (0..conns).map(|_| Mutex::default()).collect(),
            ended,
        });
        shared.connected(0, info);
        // The others are to find that the first one is there.
        shared.calls.connected(0);
        let mut endpoint = Some(endpoint);
        for conn in 0..conns {
            let pump = Pump::new(Arc::clone(&shared), Arc::clone(&connector), conn);
            tokio::spawn(pump.run(endpoint.take()));
        }
        Ok(Self {
            handle: Arc::new(Handle {
                shared,
                ended: watch_ended,
            }),
            user: FIRST_USER,
            _user: None,
        })
    }

    /// Returns a handle of the same client whose calls wait in a queue of their own. The queues of
    /// all users are served round-robin, one call at a time.
    ///
    /// ```
    /// # async fn calls(client: rpcrdma::Client) {
    /// let other = client.new_user();
    /// // However many calls wait that were made with `client`, one made with `other` is the next
    /// // but one to be sent.
    /// # }
    /// ```
    #[must_use]
    pub fn new_user(&self) -> Self {
        let calls = Arc::clone(&self.handle.shared.calls);
        let user = calls.add_user();
        Self {
            handle: Arc::clone(&self.handle),
            user,
            _user: Some(Arc::new(User { calls, user })),
        }
    }

    /// Returns the same client with `limit` as the time limit of each call, which may be more or
    /// less than [`call_timeout`](ClientConfig::call_timeout). It counts from the moment the call
    /// is made.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use oncrpc::{ReplyBound, Transport, TransportError};
    /// # async fn call(client: rpcrdma::Client, call: oncrpc::xdr::Payload, bound: ReplyBound) -> Result<oncrpc::xdr::Payload, TransportError> {
    /// client.within(Duration::from_secs(2)).call(call, bound).await
    /// # }
    /// ```
    #[must_use]
    pub fn within(&self, limit: Duration) -> TimedClient {
        TimedClient {
            client: self.clone(),
            limit,
        }
    }

    /// Parameters of the current connection, or of the first of several; `None` while there is
    /// none.
    pub fn connection(&self) -> Option<ConnectionInfo> {
        self.handle.shared.all().find_map(|seen| seen.info.clone())
    }

    /// Parameters of each current connection.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        let shared = &self.handle.shared;
        shared.all().filter_map(|seen| seen.info.clone()).collect()
    }

    /// Number of connections that were made so far in place of one that had ended, summed over all connections of
    /// this client.
    pub fn reconnects(&self) -> u64 {
        let made = self.handle.shared.all().map(|seen| seen.made);
        made.map(|made| made.saturating_sub(1)).sum()
    }

    /// Protocol counters, summed over all connections of this client.
    pub fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for seen in self.handle.shared.all() {
            all += seen.past;
            all += seen.present;
        }
        all
    }

    /// Counters of system calls and memory, summed over all connections.
    pub fn io_counters(&self) -> IoCounters {
        let mut all = IoCounters::default();
        for seen in self.handle.shared.all() {
            all += seen.past_io;
            all += seen.present_io;
        }
        all
    }

    /// Buffer pool statistics: buffers in use, including replies that callers still hold, and
    /// buffers kept for reuse.
    pub fn memory(&self) -> PoolStats {
        self.handle.shared.pool.stats()
    }

    /// Closes all connections gracefully and waits until they are closed. Calls in flight fail.
    pub async fn close(&self) {
        let shared = &self.handle.shared;
        shared.calls.close();
        let mut ended = self.handle.ended.clone();
        // The sender goes with the owners of the connections, and then they have ended too.
        let _ = ended.wait_for(|&ended| ended == shared.seen.len()).await;
    }

    /// Waits until the client has ended for good, and returns the error that each further call gets:
    /// after [`close`](Self::close), or the loss of all connections of a client that does not
    /// [reconnect](ClientConfig::reconnect). Calls in flight have ended by then.
    pub async fn ended(&self) -> TransportError {
        let shared = &self.handle.shared;
        let mut ended = self.handle.ended.clone();
        // The sender goes with the owners of the connections, and then they have ended too.
        let _ = ended.wait_for(|&ended| ended == shared.seen.len()).await;
        let why = shared.calls.over();
        why.unwrap_or_else(|| TransportError::Disconnected(CloseReason::TaskEnded.into()))
    }

    fn waiting(&self, call: Payload, bound: ReplyBound) -> PendingCall {
        PendingCall::new(
            Arc::clone(&self.handle.shared.calls),
            self.user,
            call,
            bound,
        )
    }
}

impl Transport for Client {
    fn next_xid(&self) -> u32 {
        self.handle.shared.next_xid()
    }

    fn call(
        &self,
        call: Payload,
        bound: ReplyBound,
    ) -> impl Future<Output = Result<Payload, TransportError>> + Send {
        self.waiting(call, bound)
    }

    /// Returns the number of calls that the server accepts at a time (RFC 8166 §3.3.1), on all
    /// connections; one while there is none.
    fn depth(&self) -> usize {
        let all = self.handle.shared.all();
        let credits = all.filter_map(|seen| Some(seen.info.as_ref()?.credits as usize));
        credits.sum::<usize>().max(1)
    }

    fn connections_ended(&self) -> u64 {
        self.handle.shared.all().map(|seen| seen.ended).sum()
    }
}

impl Transport for TimedClient {
    fn next_xid(&self) -> u32 {
        self.client.next_xid()
    }

    fn call(
        &self,
        call: Payload,
        bound: ReplyBound,
    ) -> impl Future<Output = Result<Payload, TransportError>> + Send {
        let limit = self.limit;
        let call = self.client.waiting(call, bound).within(limit);
        let calls = Arc::clone(&self.client.handle.shared.calls);
        async move {
            match tokio::time::timeout(limit, call).await {
                Ok(reply) => reply,
                Err(_) => Err(calls.reason(limit)),
            }
        }
    }

    fn depth(&self) -> usize {
        self.client.depth()
    }

    fn connections_ended(&self) -> u64 {
        self.client.connections_ended()
    }
}
