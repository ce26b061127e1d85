//! The calling end.

mod connector;
mod first_reply_timeout;
mod pump;
mod shared;

use crate::ClientConfig;
use crate::driver::calls::{Calls, FIRST_USER, PendingCall};
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
use verbs::{IoCounters, Provider, SetupError};

pub use shared::ConnectionInfo;

/// A client of one server: a handle that is cheap to clone, for use by any number of tasks.
///
/// It has one connection, or [several](ClientConfig::connections) over which its calls are spread:
/// each goes over the one with the fewest calls. If one is lost its calls go over another, and the
/// others do not notice. All are closed when the last handle is dropped, or by
/// [`close`](Self::close).
///
/// # Users
///
/// Calls for which there is no credit wait, without a bound of ours: each is a future that somebody
/// holds, and ends with the time that it may take. All clones of a handle wait in one queue, in
/// order. Who shares a client with others and is not to wait for theirs has a handle
/// [of a user of its own](Self::new_user): users have their turn, call by call.
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
    user: usize,
    /// Held as long as somebody may call in this user's name.
    _user: Option<Arc<User>>,
}

/// A [`Client`] whose calls may take as long as they were given.
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

/// A user of a client beside the first.
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
    /// Each connection is owned by a task on the present tokio runtime, which has its I/O and time
    /// drivers enabled. If that runtime ends before the client does, calls fail. Of several
    /// connections the first is made here, and the others with the first call.
    ///
    /// # Errors
    ///
    /// If the first connection cannot be made. Later ones are tried again, see [`ClientConfig`].
    pub async fn connect(
        provider: Arc<dyn Provider>,
        to: SocketAddr,
        config: ClientConfig,
    ) -> Result<Self, SetupError> {
        let connector = Arc::new(Connector::new(provider, to, config));
        let (endpoint, info) = connector.connect().await?;
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

    /// A handle of the same client for somebody else, whose calls wait in a queue of their own:
    /// each user with calls has its turn, one call at a time.
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

    /// The same client for calls that may take `limit`, be it more or less than
    /// [`call_timeout`](ClientConfig::call_timeout). It begins when the call is made.
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

    /// What was agreed on the present connection, or the first of several; `None` while there is
    /// none.
    pub fn connection(&self) -> Option<ConnectionInfo> {
        self.handle.shared.all().find_map(|seen| seen.info.clone())
    }

    /// What was agreed on each present connection.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        let shared = &self.handle.shared;
        shared.all().filter_map(|seen| seen.info.clone()).collect()
    }

    /// What was done so far, on all connections of this client together.
    pub fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for seen in self.handle.shared.all() {
            all += seen.past;
            all += seen.present;
        }
        all
    }

    /// What its connections have asked of the system and of memory so far, all together.
    pub fn io_counters(&self) -> IoCounters {
        let mut all = IoCounters::default();
        for seen in self.handle.shared.all() {
            all += seen.past_io;
            all += seen.present_io;
        }
        all
    }

    /// Buffers of its connections: those that are out, replies that somebody still holds among
    /// them, and those kept for use again.
    pub fn memory(&self) -> PoolStats {
        self.handle.shared.pool.stats()
    }

    /// Ends the connections in good order, and waits for it. Calls that are on their way fail.
    pub async fn close(&self) {
        let shared = &self.handle.shared;
        shared.calls.close();
        let mut ended = self.handle.ended.clone();
        // The sender goes with the owners of the connections, and then they have ended too.
        let _ = ended.wait_for(|&ended| ended == shared.seen.len()).await;
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

    /// As many calls as the server takes (RFC 8166 §3.3.1), on all connections; one while there is
    /// none.
    fn depth(&self) -> usize {
        let all = self.handle.shared.all();
        let credits = all.filter_map(|seen| Some(seen.info.as_ref()?.credits as usize));
        credits.sum::<usize>().max(1)
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
}
