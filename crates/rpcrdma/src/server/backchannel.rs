//! Calls from a server to its clients, over the connections on which they call (RFC 8167).

use super::backward_memory::{BackwardMemory, Kept};
use crate::config::ServerConfig;
use crate::driver::calls::{Calls, FIRST_USER, PendingCall};
use crate::driver::close_reason::CloseReason;
use crate::driver::endpoint::Endpoint;
use crate::driver::outgoing::{Outgoing, SWEEP};
use crate::driver::owner::Connection;
use oncrpc::xdr::Payload;
use oncrpc::{Caller, ReplyBound, TransportError};
use rpc_serving::backchannels::{BackwardCall, BackwardConnection, MessageSizes, OpenBackchannel};
use rpcrdma_proto::{InlineSizes, Xids};
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

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

impl Back {
    fn inline(&self) -> MutexGuard<'_, InlineSizes> {
        self.inline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackwardConnection for Back {
    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn set_ready(&self) {
        self.ready.store(true, Release);
        self.calls.wake_owner(ONLY);
    }

    fn next_xid(&self) -> u32 {
        self.xids.next()
    }

    fn call(&self, call: Payload, bound: ReplyBound) -> BackwardCall<'_> {
        Box::pin(async move {
            let mut results = Results {
                memory: self.memory.take(&bound, self.timeout).await?,
                back: self,
            };
            let reply = PendingCall::new(Arc::clone(&self.calls), FIRST_USER, call, bound).await;
            if !matches!(reply, Err(TransportError::TimedOut(_))) {
                drop(results.memory.take());
            }
            reply
        })
    }

    fn depth(&self) -> usize {
        self.credits.load(Relaxed) as usize
    }

    /// The largest messages that fit one Send.
    fn message_sizes(&self) -> Option<MessageSizes> {
        let InlineSizes { call, reply } = *self.inline();
        Some(MessageSizes { call, reply })
    }
}

/// Index of the only connection of these calls: a client that reconnects gets another one.
const ONLY: usize = 0;

/// The server's side of a backchannel; it ends with its connection.
pub(super) struct BackEnd {
    back: Arc<Back>,
    /// Entry in the registry; `None` at the end.
    open: Option<OpenBackchannel>,
    outgoing: Outgoing,
    /// Whether the client was declared ready. Before that, nobody can call it, and of what is shared each wait
    /// looks at the flag alone: a server with a thousand busy connections finds the rest in no cache.
    ready: bool,
    /// Credits and sizes that callers see.
    published: (u32, InlineSizes),
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
        let published = (1, endpoint.connection.inline_sizes());
        let back = Arc::new(Back {
            caller,
            xids: endpoint.connection.xids(),
            ready: AtomicBool::new(false),
            credits: AtomicU32::new(published.0),
            inline: Mutex::new(published.1),
            calls: Arc::clone(&calls),
            timeout,
            memory: memory.clone(),
            kept: Kept::default(),
        });
        let open = registry.open(Arc::clone(&back) as _);
        Some(Self {
            back,
            open: Some(open),
            outgoing: Outgoing::new(calls, ONLY, timeout),
            ready: false,
            published,
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
        !self.ready || self.back.calls.is_idle(ONLY)
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

    /// The calls of this backchannel; none before the client is ready.
    pub(super) fn outgoing(&mut self) -> Option<&mut Outgoing> {
        self.ready.then_some(&mut self.outgoing)
    }

    /// Publishes how many calls the client accepts.
    pub(super) fn publish(&mut self, connection: &Connection) {
        let now = (connection.credits().max(1), connection.inline_sizes());
        if self.published == now {
            return;
        }
        self.published = now;
        self.back.credits.store(now.0, Relaxed);
        *self.back.inline() = now.1;
    }

    /// Checks for calls that the client leaves unanswered.
    pub(super) fn look_around(
        &self,
        now: Instant,
        connection: &Connection,
    ) -> Result<(), CloseReason> {
        if self.ready && connection.exposed() == 0 {
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

    /// Has this task woken once the client is ready, and by calls.
    pub(super) fn set_owner(&self, owner: &Waker) {
        self.back.calls.set_owner(ONLY, owner);
    }

    /// Whether there is something to do, be it now or by a wake-up of the owner from now on.
    pub(super) fn poll(&self, cx: &Context<'_>, endpoint: &Endpoint) -> bool {
        match self.ready {
            true => self.outgoing.poll_work(cx, endpoint),
            false => self.back.ready.load(Acquire),
        }
    }

    /// Ends with the connection, and tells waiting callers why.
    pub(super) fn end(mut self, over: &CloseReason, connection: &Connection) {
        self.why = TransportError::Disconnected(over.clone().into());
        connection.calls().for_each(|call| call.fail(&self.why));
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        drop(self.open.take());
        self.back.calls.end(&self.why);
        self.back.kept.end();
    }
}
