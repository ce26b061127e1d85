//! Calls from a server to its clients, over the connections on which they call (RFC 8167).

use super::backward_memory::{BackwardMemory, Kept};
use crate::config::ServerConfig;
use crate::driver::calls::{Calls, FIRST_USER, PendingCall};
use crate::driver::close_reason::CloseReason;
use crate::driver::endpoint::Endpoint;
use crate::driver::outgoing::{Outgoing, SWEEP};
use crate::driver::owner::Connection;
use oncrpc::xdr::Payload;
use oncrpc::{Caller, ConnectionId, ReplyBound, Transport, TransportError};
use rpcrdma_proto::{InlineSizes, Xids};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// Registry of the connections on which clients can be called, of one server or several.
///
/// A service that calls its clients holds a clone of the registry that its server is
/// [configured](crate::ServerConfig::backchannels) with:
///
/// ```
/// use oncrpc::{Answer, Caller, Reply, ReplyBound, Service, Transport};
/// use rpcrdma::{Backchannels, ServerConfig};
/// use oncrpc::xdr::{Payload, Writer};
///
/// struct Callbacks {
///     backchannels: Backchannels,
/// }
///
/// impl Service for Callbacks {
///     fn call(&self, call: Payload, caller: &Caller) -> Answer {
///         // What the client says here is that it takes calls on this connection, as it does
///         // with NFS version 4.1's CREATE_SESSION: not before this may it be called.
///         let Some(backchannel) = self.backchannels.get(caller.connection) else {
///             return Answer::Now(Reply::Nothing);
///         };
///         let client = backchannel.client_is_ready();
///         Answer::Later(Box::pin(async move {
///             let xid = client.next_xid();
///             let mut w = Writer::default();
///             w.u32(xid);
///             w.u32(0);
///             // ... the rest of the message
///             let bound = ReplyBound { fixed: 100, ..ReplyBound::default() };
///             match client.call(w.finish(), bound).await {
///                 Ok(_reply) => Reply::Message(call),
///                 Err(_why) => Reply::Nothing,
///             }
///         }))
///     }
/// }
///
/// let backchannels = Backchannels::default();
/// let config = ServerConfig::default().with_backchannels(backchannels.clone());
/// let service = Callbacks { backchannels };
/// # drop((config, service));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Backchannels {
    open: Arc<Mutex<HashMap<ConnectionId, Arc<Back>>>>,
}

/// A connection on which the client can be called once it is known to be ready.
///
/// A call to a client that is not ready may end its connection, each time it comes back. So a
/// server must not call before the client has said that it is ready (RFC 8167 §6).
#[derive(Clone, Debug)]
pub struct Backchannel {
    back: Arc<Back>,
}

/// Transport for calls to one client, over one connection.
///
/// In version one, each call and each reply must fit one Send; a larger one fails (RFC 8167 §5.3).
/// In version two the client announces what it accepts (xcharext §3.3). Calls wait for a credit of
/// the client, and fail when their [time](crate::ServerConfig::backward_timeout) is up or the
/// connection ends. To have a call survive that, repeat it with the same XID when the client is
/// back and ready (RFC 8167 §5.4).
#[derive(Clone, Debug)]
pub struct BackwardClient {
    back: Arc<Back>,
}

/// State that callers and the owner of the connection share.
#[derive(Debug)]
struct Back {
    caller: Caller,
    calls: Arc<Calls>,
    xids: Xids,
    /// The upper layer knows that the client is ready.
    ready: AtomicBool,
    /// Calls that may be in flight, as the client said last.
    credits: AtomicU32,
    /// Largest messages without chunks.
    inline: Mutex<InlineSizes>,
    timeout: Duration,
    memory: BackwardMemory,
    kept: Kept,
}

/// The memory for the results of one call. It is kept if the call ends without a reply.
struct Results<'a> {
    back: &'a Back,
    memory: Option<OwnedSemaphorePermit>,
}

impl Drop for Results<'_> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take()
            && self.back.kept.keep(memory)
        {
            // The owner of the connection knows whether it is still registered.
            self.back.calls.wake_owner(ONLY);
        }
    }
}

impl Backchannels {
    /// Returns the connection over which a call came, or `None` if it has ended or its clients
    /// cannot be called.
    pub fn get(&self, connection: ConnectionId) -> Option<Backchannel> {
        let back = Arc::clone(self.lock().get(&connection)?);
        Some(Backchannel { back })
    }

    /// Number of connections in the registry.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether the registry is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionId, Arc<Back>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Back {
    fn inline(&self) -> MutexGuard<'_, InlineSizes> {
        self.inline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backchannel {
    /// Identifier of the connection.
    pub fn connection(&self) -> ConnectionId {
        self.back.caller.connection
    }

    /// The client's address.
    pub fn addr(&self) -> SocketAddr {
        self.back.caller.addr
    }

    /// Largest call to the client, and reply, that are certain to be carried: those that fit one
    /// Send, as all of version one must (RFC 8167 §5.3).
    pub fn inline_sizes(&self) -> InlineSizes {
        *self.back.inline()
    }

    /// Declares that the client is ready for calls on this connection, as it has said by means of
    /// the upper layer (RFC 8167 §6). From then on the connection is not closed for being idle.
    pub fn client_is_ready(&self) -> BackwardClient {
        self.back.ready.store(true, Release);
        self.back.calls.wake_owner(ONLY);
        BackwardClient {
            back: Arc::clone(&self.back),
        }
    }
}

impl BackwardClient {
    /// Identifier of the connection.
    pub fn connection(&self) -> ConnectionId {
        self.back.caller.connection
    }

    /// The client's address.
    pub fn addr(&self) -> SocketAddr {
        self.back.caller.addr
    }

    /// Largest call to the client, and reply, that fit one Send.
    pub fn inline_sizes(&self) -> InlineSizes {
        *self.back.inline()
    }
}

impl Transport for BackwardClient {
    fn next_xid(&self) -> u32 {
        self.back.xids.next()
    }

    async fn call(&self, call: Payload, bound: ReplyBound) -> Result<Payload, TransportError> {
        let back = &*self.back;
        let mut results = Results {
            memory: back.memory.take(&bound, back.timeout).await?,
            back,
        };
        let reply = PendingCall::new(Arc::clone(&back.calls), FIRST_USER, call, bound).await;
        if !matches!(reply, Err(TransportError::TimedOut(_))) {
            drop(results.memory.take());
        }
        reply
    }

    /// Returns the number of calls that the client accepts at a time.
    fn depth(&self) -> usize {
        self.back.credits.load(Relaxed) as usize
    }
}

/// Index of the only connection of these calls: a client that reconnects gets another one.
const ONLY: usize = 0;

/// The server's side of a backchannel; it ends with its connection.
pub(super) struct BackEnd {
    back: Arc<Back>,
    registry: Backchannels,
    outgoing: Outgoing,
    /// Whether the client was declared ready.
    ready: bool,
    /// The error for calls that still wait when the connection ends.
    why: TransportError,
}

impl BackEnd {
    /// Opens the backchannel of a connection; `None` if the server does not call clients.
    pub(super) fn open(
        config: &ServerConfig,
        endpoint: &Endpoint,
        memory: &BackwardMemory,
    ) -> Option<Self> {
        let registry = config.backchannels.clone()?;
        let (timeout, caller) = (config.backward_timeout, endpoint.caller);
        let calls = Arc::new(Calls::new(timeout, 1));
        calls.connected(ONLY);
        let back = Arc::new(Back {
            caller,
            xids: endpoint.connection.xids(),
            ready: AtomicBool::new(false),
            credits: AtomicU32::new(1),
            inline: Mutex::new(endpoint.connection.inline_sizes()),
            calls: Arc::clone(&calls),
            timeout,
            memory: memory.clone(),
            kept: Kept::default(),
        });
        registry.lock().insert(caller.connection, Arc::clone(&back));
        Some(Self {
            back,
            registry,
            outgoing: Outgoing::new(calls, ONLY, timeout),
            ready: false,
            why: TransportError::Disconnected(CloseReason::TaskEnded.into()),
        })
    }

    /// Whether the client is ready for calls, in which case the connection is useful without its
    /// own.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether no call waits to be sent.
    pub(super) fn is_idle(&self) -> bool {
        self.back.calls.is_idle(ONLY)
    }

    /// Whether there is something to send, and the client is ready for it.
    pub(super) fn may_call(&mut self, connection: &mut Connection) -> bool {
        if !self.ready {
            if !self.back.ready.load(Acquire) {
                return false;
            }
            self.ready = true;
            connection.handle_client_ready();
        }
        self.back.calls.has_work(ONLY)
    }

    /// The calls of this backchannel.
    pub(super) fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.outgoing
    }

    /// Publishes how many calls the client accepts.
    pub(super) fn publish(&self, connection: &Connection) {
        let credits = connection.credits().max(1);
        self.back.credits.store(credits, Relaxed);
        *self.back.inline() = connection.inline_sizes();
    }

    /// Checks for calls that the client leaves unanswered.
    pub(super) fn look_around(
        &self,
        now: Instant,
        connection: &Connection,
    ) -> Result<(), CloseReason> {
        if connection.exposed() == 0 {
            self.back.kept.release();
        }
        // A client that does not answer one call may yet answer others, and goes on with its own. But
        // credits of calls that are unanswered come back only with the end of the connection.
        let spent = connection.calls_out() > 0 && connection.room() == 0;
        // A sweep later, so that whoever waited for a call has heard that its time is up.
        match spent && now >= self.outgoing.last_sent + self.outgoing.longest() + SWEEP {
            true => Err(CloseReason::NoBackwardCredit),
            false => Ok(()),
        }
    }

    /// Whether there is something to do, be it now or by a wake-up from now on.
    pub(super) fn poll(&self, cx: &Context<'_>, endpoint: &Endpoint) -> bool {
        let work = self.outgoing.poll_work(cx, endpoint);
        // Who says that the client is ready wakes whoever was noted just now.
        work || !self.ready && self.back.ready.load(Acquire)
    }

    /// Ends with the connection, and tells waiting callers why.
    pub(super) fn end(mut self, over: &CloseReason, connection: &Connection) {
        self.why = TransportError::Disconnected(over.clone().into());
        connection.calls().for_each(|call| call.fail(&self.why));
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.back.caller.connection);
        self.back.calls.end(&self.why);
        self.back.kept.end();
    }
}
