//! Calls of the peer, from arrival to reply.

use super::close_reason::CloseReason;
use super::job_replies::{JobCall, JobCounts, JobReplies};
use super::owner::{CallId, Connection};
use oncrpc::xdr::Payload;
use oncrpc::{Caller, Lease, Reply, ReplyRoom, Service};
use rpc_serving::dispatch::{self, Replies, service_failed};
use rpc_serving::ends::End;
use rpc_serving::jobs::{Jobs, MAX_BLOCKING};
use rpcrdma_proto::limits::MAX_WRITE_CHUNKS;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

const _: () = assert!(
    MAX_WRITE_CHUNKS <= ReplyRoom::MAX_RESULTS,
    "a service is told of every Write chunk"
);

/// Largest number of calls of one connection in jobs or futures, without stuck ones; more wait.
/// Their replies are not accounted for until they are complete, and may be as large as a chunk even
/// if none was offered.
pub(super) const MAX_JOBS: usize = 64;

/// Dispatcher of the calls of one connection. It ends with the connection: work that was not begun
/// is dropped, and the results of running work are discarded.
pub(crate) struct Dispatch {
    /// The client, with the room for the reply to the last call.
    caller: Caller,
    calls: dispatch::Dispatch<CallId, JobCall>,
    job_replies: JobReplies,
}

/// The replies of one connection.
struct ConnectionReplies<'a> {
    connection: &'a mut Connection,
    jobs: &'a mut JobReplies,
}

impl Replies for ConnectionReplies<'_> {
    type Call = CallId;
    type JobCall = JobCall;

    fn reply(&mut self, id: CallId, reply: Reply) -> usize {
        send(self.connection, id, reply)
    }

    fn hand_over(&mut self, id: CallId) -> JobCall {
        self.jobs.begin(id)
    }
}

impl From<End> for CloseReason {
    fn from(end: End) -> Self {
        match end {
            End::Closed => Self::Asked,
            End::ByService | End::Aborted => Self::ByService,
            End::Evicted => Self::Evicted,
            End::ServiceFailed => Self::ServiceFailed,
        }
    }
}

impl Dispatch {
    /// Creates a dispatcher with its own threads.
    pub(crate) fn new(service: Arc<dyn Service>, caller: Caller) -> Self {
        Self::sharing(service, caller, &Jobs::new(MAX_BLOCKING))
    }

    /// Creates a dispatcher that shares threads with other connections.
    pub(crate) fn sharing(service: Arc<dyn Service>, caller: Caller, jobs: &Jobs<JobCall>) -> Self {
        Self {
            calls: dispatch::Dispatch::new(service, &caller, jobs),
            job_replies: JobReplies::default(),
            caller,
        }
    }

    /// Returns the number of calls answered by jobs or futures.
    pub(crate) fn in_flight(&self) -> usize {
        self.job_replies.counts().in_flight + self.calls.futures()
    }

    /// Like [`in_flight`](Self::in_flight), without calls whose jobs are stuck or have returned their threads.
    pub(crate) fn not_stuck(&self) -> usize {
        self.with_threads() + self.calls.futures()
    }

    /// Number of jobs that have a thread or wait for one.
    fn with_threads(&self) -> usize {
        let JobCounts { in_flight, .. } = self.job_replies.counts();
        in_flight.saturating_sub(self.calls.without_thread())
    }

    /// Checks for stuck jobs, so that waiting ones get threads. Returns when to check again.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Instant> {
        let JobCounts { in_flight, .. } = self.job_replies.counts();
        let calls_wait = self.with_threads() >= MAX_JOBS;
        self.calls.look(now, in_flight, calls_wait)
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
    ) -> Result<usize, CloseReason> {
        if id.lease_mut().is_some_and(|lease| !lease.is_empty())
            && self.calls.service().keeps_calls()
            && let Some(lease) = id.take_lease()
        {
            message = message.with_lease(Box::new(lease));
        }
        self.caller.reply_room = connection.reply_room(&id);
        let replies = &mut ConnectionReplies {
            connection,
            jobs: &mut self.job_replies,
        };
        Ok(self.calls.call(message, &self.caller, id, replies)?)
    }

    /// Sends the replies of finished jobs and futures. Returns whether there was one.
    pub(crate) fn finish(
        &mut self,
        cx: &Context<'_>,
        connection: &mut Connection,
    ) -> Result<bool, CloseReason> {
        let mut finished = false;
        while let Some((id, reply)) = self.job_replies.take() {
            finished = true;
            self.done(connection, id, reply)?;
        }
        Ok(finished | self.poll_futures(cx, connection)?)
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
        match self.poll_futures(cx, connection) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(over) => Poll::Ready(Err(over)),
        }
    }

    fn poll_futures(
        &mut self,
        cx: &Context<'_>,
        connection: &mut Connection,
    ) -> Result<bool, CloseReason> {
        let replies = &mut ConnectionReplies {
            connection,
            jobs: &mut self.job_replies,
        };
        Ok(self.calls.poll(cx, replies)?)
    }

    /// Ends with the connection; see [`dispatch::Dispatch::end`].
    pub(crate) fn end(&mut self) {
        self.calls.end();
    }

    /// RFC 8166 §4.5.4: a reply that cannot be made ends the connection, so that the caller knows.
    fn done(
        &self,
        connection: &mut Connection,
        id: CallId,
        reply: Option<Reply>,
    ) -> Result<(), CloseReason> {
        let failed = || service_failed(self.caller.addr, &"a job panicked");
        send(connection, id, reply.ok_or_else(failed)?);
        Ok(())
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
