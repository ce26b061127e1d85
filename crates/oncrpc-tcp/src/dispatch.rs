//! Received messages: calls go to the service, replies to the calls of this end.

use crate::connection_end::ConnectionEnd;
use crate::input::{Record, Take};
use crate::memory::Lease;
use crate::record::RecordError;
use crate::shared::{ConnectionReplies, Job, Shared};
use oncrpc::Service;
use oncrpc::xdr::{Payload, Reader};
use rpc_serving::admission::{Admitted, Use};
use rpc_serving::dispatch;
use rpc_serving::ends::End;
use rpc_serving::jobs::Jobs;
use rpc_serving::warning_log::WarningLog;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;
use tokio::time::Instant;

/// Message types (RFC 5531 §9).
const CALL: u32 = 0;
pub(crate) const REPLY: u32 = 1;

/// Dispatcher of one connection.
pub(crate) struct Dispatch {
    shared: Arc<Shared>,
    calls: dispatch::Dispatch<Option<Lease>, Job>,
    /// Largest number of calls in service.
    limit: usize,
    /// Largest call in bytes.
    max_call: usize,
    /// Calls that were taken off the stream because a reply behind them may be needed for others to
    /// end.
    waiting: VecDeque<Record>,
    /// Calls in service were not polled, as the output was full.
    held: bool,
    /// The place of the connection on a server.
    admitted: Option<Admitted>,
    /// The peer has made a call.
    called: bool,
    /// No further call is begun.
    draining: bool,
    log: Arc<WarningLog>,
    warned: bool,
}

impl Dispatch {
    pub(crate) fn new(
        shared: Arc<Shared>,
        service: Arc<dyn Service>,
        jobs: &Jobs<Job>,
        limit: usize,
        admitted: Option<Admitted>,
        log: Arc<WarningLog>,
    ) -> Self {
        Self {
            calls: dispatch::Dispatch::new(service, &shared.caller, jobs),
            shared,
            limit,
            max_call: usize::MAX,
            waiting: VecDeque::new(),
            held: false,
            admitted,
            called: false,
            draining: false,
            log,
            warned: false,
        }
    }

    /// Sets the largest call in bytes, if it is below the largest record.
    pub(crate) fn with_max_call(self, max_call: usize) -> Self {
        Self { max_call, ..self }
    }

    /// Number of calls in service, without those whose jobs are stuck.
    fn in_service(&self) -> usize {
        let jobs = self.shared.jobs().saturating_sub(self.calls.stuck());
        self.calls.futures() + jobs
    }

    /// Whether no call of the peer waits or is in service.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.futures() == 0 && self.shared.jobs() == 0 && self.waiting.is_empty()
    }

    /// Checks for stuck jobs, so that waiting ones get threads. Returns when to check again.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Instant> {
        let calls_wait = self.in_service() >= self.limit;
        let next = self
            .calls
            .look(now.into_std(), self.shared.jobs(), calls_wait);
        next.map(Instant::from_std)
    }

    /// Begins no further call. Those that wait are dropped.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
        self.waiting.clear();
    }

    /// Tells admission control of the use of the connection. Returns false if it was evicted. A
    /// connection that waits for the peer to take what is sent may be evicted.
    pub(crate) fn still_admitted(&mut self, blocked: bool) -> bool {
        let on_task = self.calls.futures() + self.waiting.len();
        self.shared.traffic.set_on_task(on_task);
        let is_idle = self.is_idle() && self.shared.calls.in_flight() == 0;
        let now = match blocked {
            true => Use::Idle,
            false => Use::of(is_idle, self.shared.is_ready()),
        };
        let admitted = self.admitted.as_mut();
        admitted.is_none_or(|admitted| admitted.set_use(now))
    }

    /// Whether replies may be there that can be queued now, or a call that waits can be begun: they could not be before.
    pub(crate) fn may_go_on(&self) -> bool {
        self.held && !self.shared.output.is_full() || !self.waiting.is_empty() && self.may_begin()
    }

    /// Queues the replies that are there and for which the output has room, and begins calls that
    /// wait. Returns whether there were any.
    ///
    /// The others stay with their calls, and hold what these hold.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Result<bool, ConnectionEnd> {
        let replies = &mut ConnectionReplies(&self.shared);
        let mut progress = self.calls.poll(cx, replies)?;
        self.held = self.shared.output.is_full() && self.calls.futures() > 0;
        while self.may_begin()
            && let Some(call) = self.waiting.pop_front()
        {
            self.begin(call)?;
            progress = true;
        }
        Ok(progress)
    }

    /// Logs the end of the connection, as a warning if the peer broke a rule.
    pub(crate) fn report(&self, why: &ConnectionEnd) {
        let caller = &self.shared.caller;
        let rule = match why {
            ConnectionEnd::Record(_) => "RFC 5531 §11",
            ConnectionEnd::NotRpc => "RFC 5531 §9",
            ConnectionEnd::GaveWay => "memory for calls",
            _ => {
                tracing::debug!(addr = %caller.addr, %why, "connection ended");
                return;
            }
        };
        self.log.warn_of(caller.group, |listen| {
            tracing::warn!(listen, addr = %caller.addr, "{rule}: {why}; the connection is closed");
        });
    }

    /// Drops what is in service, and tells the service that the connection has ended.
    pub(crate) fn end(&mut self) {
        self.waiting.clear();
        self.calls.end();
    }

    fn may_begin(&self) -> bool {
        !self.draining && self.in_service() < self.limit && !self.shared.output.is_full()
    }

    fn call(&mut self, call: Record) -> Result<(), ConnectionEnd> {
        let (len, limit) = (call.message.stream_len(), self.max_call);
        if len > limit {
            return Err(ConnectionEnd::Record(RecordError::TooLarge { len, limit }));
        }
        self.shared.traffic.call(len);
        if let Some(admitted) = &mut self.admitted {
            if !self.called {
                admitted.set_up();
            }
            if !admitted.set_use(Use::InUse) {
                return Err(End::Evicted.into());
            }
        }
        self.called = true;
        match self.waiting.is_empty() && self.may_begin() {
            true => self.begin(call)?,
            false => self.waiting.push_back(call),
        }
        Ok(())
    }

    fn begin(&mut self, Record { message, lease }: Record) -> Result<(), ConnectionEnd> {
        let replies = &mut ConnectionReplies(&self.shared);
        self.calls
            .call(message, &self.shared.caller, lease, replies)?;
        Ok(())
    }

    fn reply(&mut self, xid: u32, reply: Payload) {
        if !self.shared.calls.deliver(xid, reply) && !self.warned {
            self.warned = true;
            let caller = &self.shared.caller;
            self.log.warn_of(caller.group, |listen| {
                tracing::warn!(listen, addr = %caller.addr, xid, "RFC 5531 §9: a reply to no call; dropped");
            });
        }
    }
}

impl Take for Dispatch {
    /// A call is left in the stream unless it can be begun. But while calls of this end are in
    /// flight, as many are taken and wait: the reply that lets one end may be behind them.
    ///
    /// When the connection drains, calls are taken and dropped: behind them is the end of a client that
    /// has gone.
    fn may_take(&self) -> bool {
        let replies = self.shared.calls.in_flight() > 0;
        self.draining
            || (self.waiting.is_empty() && self.may_begin())
            || (replies && self.waiting.len() <= self.limit)
    }

    fn wants_large(&mut self, xid: u32, kind: u32, len: usize) -> Result<bool, ConnectionEnd> {
        let limit = self.max_call;
        match kind {
            CALL if len > limit => Err(ConnectionEnd::Record(RecordError::TooLarge { len, limit })),
            CALL => Ok(!self.draining),
            REPLY => Ok(self.shared.calls.wants_large(xid, len)),
            _ => Err(ConnectionEnd::NotRpc),
        }
    }

    fn take(&mut self, record: Record) -> Result<(), ConnectionEnd> {
        let mut r = Reader::from(&record.message);
        match (r.u32(), r.u32()) {
            (Ok(_), Ok(CALL)) if self.draining => Ok(()),
            (Ok(_), Ok(CALL)) => self.call(record),
            (Ok(xid), Ok(REPLY)) => {
                self.shared.traffic.received(record.message.stream_len());
                self.reply(xid, record.message);
                Ok(())
            }
            _ => Err(ConnectionEnd::NotRpc),
        }
    }
}
