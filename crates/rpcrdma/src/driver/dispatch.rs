//! Calls of the peer, from arrival to reply.

use super::close_reason::CloseReason;
use super::job_replies::{JobCall, JobCounts, JobReplies};
use super::owner::{CallId, Connection};
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, Lease, Reply, ReplyRoom, Service};
use rpc_serving::jobs::{Jobs, JobsOfConnection, MAX_BLOCKING, Work};
use rpcrdma_proto::limits::MAX_WRITE_CHUNKS;
use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::task::JoinSet;
use tracing::error;

const _: () = assert!(
    MAX_WRITE_CHUNKS <= ReplyRoom::MAX_RESULTS,
    "a service is told of every Write chunk"
);

/// Largest number of calls of one connection in jobs or futures, without stuck ones; more wait.
/// Their replies are not accounted for until they are complete, and may be as large as a chunk even
/// if none was offered.
pub(super) const MAX_JOBS: usize = 64;

/// Reply that comes later.
type ReplyFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Dispatcher of the calls of one connection. It ends with the connection: work that was not begun
/// is dropped, and the results of running work are discarded.
pub(crate) struct Dispatch {
    service: Arc<dyn Service>,
    caller: Caller,
    /// Calls answered by blocking work.
    jobs: JobsOfConnection<JobCall>,
    job_replies: JobReplies,
    /// Calls answered by a future.
    later: JoinSet<(CallId, Reply)>,
}

impl Dispatch {
    /// Creates a dispatcher with its own threads.
    pub(crate) fn new(service: Arc<dyn Service>, caller: Caller) -> Self {
        Self::sharing(service, caller, &Jobs::new(MAX_BLOCKING))
    }

    /// Creates a dispatcher that shares threads with other connections.
    pub(crate) fn sharing(service: Arc<dyn Service>, caller: Caller, jobs: &Jobs<JobCall>) -> Self {
        Self {
            jobs: jobs.of_connection(&caller),
            job_replies: JobReplies::default(),
            later: JoinSet::new(),
            service,
            caller,
        }
    }

    /// Returns the number of calls answered by jobs or futures.
    pub(crate) fn in_flight(&self) -> usize {
        self.job_replies.counts().in_flight + self.later.len()
    }

    /// Like [`in_flight`](Self::in_flight), without calls whose jobs are stuck or have returned their threads.
    pub(crate) fn not_stuck(&self) -> usize {
        self.with_threads() + self.later.len()
    }

    /// Number of jobs that have a thread or wait for one.
    fn with_threads(&self) -> usize {
        let JobCounts { in_flight, .. } = self.job_replies.counts();
        in_flight.saturating_sub(self.jobs.without_thread())
    }

    /// Checks for stuck jobs, so that waiting ones get threads. Returns when to check again.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Instant> {
        let JobCounts { in_flight, .. } = self.job_replies.counts();
        let calls_wait = self.with_threads() >= MAX_JOBS;
        self.jobs.look(now, in_flight, calls_wait)
    }

    /// Returns the job counters.
    pub(crate) fn jobs(&self) -> JobCounts {
        self.job_replies.counts()
    }

    /// Passes a call to the service. Returns the bytes of its reply, if available at once.
    pub(crate) fn call(
        &mut self,
        connection: &mut Connection,
        mut id: CallId,
        mut message: Payload,
    ) -> usize {
        if id.lease_mut().is_some_and(|lease| !lease.is_empty())
            && self.service.keeps_calls()
            && let Some(lease) = id.take_lease()
        {
            message = message.with_lease(Box::new(lease));
        }
        let caller = Caller {
            reply_room: connection.reply_room(&id),
            ..self.caller
        };
        match self.service.call(message, &caller) {
            Answer::Now(reply) => send(connection, id, reply),
            Answer::Blocking(work) => {
                let call = self.job_replies.begin(id);
                self.jobs.add(Work::Blocking(work), call);
                0
            }
            Answer::Deferred(work) => {
                let call = self.job_replies.begin(id);
                self.jobs.add(Work::Deferred(work), call);
                0
            }
            Answer::Later(reply) => self.begin(connection, id, reply),
        }
    }

    /// Begins to wait for a reply. The future is polled before it has a task: what it sends elsewhere
    /// goes out now, and not after the other work of the connection. Returns the bytes of its reply, if
    /// available at once.
    fn begin(&mut self, connection: &mut Connection, id: CallId, mut reply: ReplyFuture) -> usize {
        // Its task polls it again, so that this waker is never needed.
        let mut cx = Context::from_waker(Waker::noop());
        match catch_unwind(AssertUnwindSafe(|| reply.as_mut().poll(&mut cx))) {
            Ok(Poll::Ready(reply)) => return send(connection, id, reply),
            Ok(Poll::Pending) => self.later.spawn(async move { (id, reply.await) }),
            // Its task fails, as it would have with a later poll.
            Err(panic) => self.later.spawn(async move { resume_unwind(panic) }),
        };
        0
    }

    /// Sends the replies of finished jobs and futures. Returns whether there was one.
    pub(crate) fn finish(&mut self, connection: &mut Connection) -> Result<bool, CloseReason> {
        let mut finished = false;
        while let Some((id, reply)) = self.job_replies.take() {
            finished = true;
            self.done(connection, id, reply)?;
        }
        while let Some(done) = self.later.try_join_next() {
            finished = true;
            let (id, reply) = done.map_err(|failed| self.failed(&failed))?;
            send(connection, id, reply);
        }
        Ok(finished)
    }

    /// Waits for the next reply of a job or future, and sends it.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Poll<Result<(), CloseReason>> {
        if let Poll::Ready((id, reply)) = self.job_replies.poll(cx) {
            return Poll::Ready(self.done(connection, id, reply));
        }
        match self.later.poll_join_next(cx) {
            Poll::Ready(Some(Ok((id, reply)))) => {
                send(connection, id, reply);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Some(Err(failed))) => Poll::Ready(Err(self.failed(&failed))),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Drops work that was not begun, because the connection ends.
    pub(crate) fn give_up(&mut self) {
        self.jobs.give_up();
        self.later.abort_all();
    }

    /// RFC 8166 §4.5.4: a reply that cannot be made ends the connection, so that the caller knows.
    fn done(
        &self,
        connection: &mut Connection,
        id: CallId,
        reply: Option<Reply>,
    ) -> Result<(), CloseReason> {
        let reply = reply.ok_or_else(|| self.failed(&"a job panicked"))?;
        send(connection, id, reply);
        Ok(())
    }

    fn failed(&self, failed: &dyn Display) -> CloseReason {
        error!(peer = %self.caller.addr, %failed, "the service failed on a call");
        CloseReason::ServiceFailed
    }
}

/// Sends a reply and returns its bytes. Returns excess leased memory to the budget: the chunks were
/// consumed, and a reply is mostly smaller than what was offered for it.
fn send(connection: &mut Connection, mut id: CallId, reply: Reply) -> usize {
    let bytes = match &reply {
        Reply::Message(reply) => reply.stream_len(),
        Reply::Nothing | Reply::Ineligible | Reply::TooLarge(_) => 0,
    };
    if let Some(lease) = id.lease_mut() {
        lease.shrink(bytes);
    }
    connection.reply(id, reply);
    bytes
}
