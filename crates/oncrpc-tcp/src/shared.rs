//! State that the task of a connection shares with callers and with threads that answer calls.

use crate::calls::{Calls, Waiting};
use crate::connection_end::ConnectionEnd;
use crate::memory::{Lease, OutputLease};
use crate::monitor::Traffic;
use crate::output::{Outgoing, Output};
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Caller, Reply, ReplyBound, TransportError, USUAL_DEPTH};
use rpc_serving::backchannels::{BackwardCall, BackwardConnection};
use rpc_serving::dispatch::{Replies, service_failed};
use rpc_serving::ends::{EndRequests, Ends};
use rpc_serving::jobs::ReplyTo;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::sync::{Semaphore, oneshot};

/// Calls of this end that wait to be written before further ones wait to be accepted.
const QUEUE: usize = 32;

/// The shared part of a connection.
pub(crate) struct Shared {
    /// The other end.
    pub(crate) caller: Caller,
    /// Calls of this end.
    pub(crate) calls: Calls,
    pub(crate) output: Output,
    /// Counters of what passes.
    pub(crate) traffic: Traffic,
    /// Requests to end the connection.
    pub(crate) ends: EndRequests,
    /// Places in the queue for calls of this end.
    places: Arc<Semaphore>,
    /// Time limit of a call of this end.
    deadline: Duration,
    /// Number of calls of the peer that other threads answer.
    jobs: AtomicUsize,
    /// The peer is ready for calls, as the upper layer knows.
    ready: AtomicBool,
    /// The task reads nothing unless this end makes a call.
    paused: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        stream: Box<dyn AsyncWrite + Send + Unpin>,
        caller: Caller,
        deadline: Duration,
        lease: Option<OutputLease>,
        ends: &Ends,
    ) -> Self {
        Self {
            caller,
            calls: Calls::new(),
            output: Output::new(stream, lease),
            traffic: Traffic::default(),
            ends: ends.requests().clone(),
            places: Arc::new(Semaphore::new(QUEUE)),
            deadline,
            jobs: AtomicUsize::new(0),
            ready: AtomicBool::new(false),
            paused: AtomicBool::new(false),
        }
    }

    /// Makes a call, which begins with its XID, and waits for its reply of at most so many bytes.
    pub(crate) async fn exchange_in_time(
        &self,
        call: Payload,
        max_reply: usize,
    ) -> Result<Payload, TransportError> {
        tokio::time::timeout(self.deadline, self.exchange(call, max_reply))
            .await
            .unwrap_or(Err(TransportError::TimedOut(self.deadline)))
    }

    async fn exchange(&self, call: Payload, max_reply: usize) -> Result<Payload, TransportError> {
        let xid = Reader::from(&call)
            .u32()
            .expect("a call message begins with its XID");
        let (reply, answer) = oneshot::channel();
        let registered = self.calls.register(xid, Waiting { reply, max_reply })?;
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| self.calls.why())?;
        let call = Outgoing::new(call, Some(place))?;
        // A call alone is sent without a change of tasks. Behind others it is written with those
        // that come meanwhile.
        match registered.alone {
            true => self.output.write(call),
            false => self.output.queue_and_wake(call),
        }
        if self.paused.load(SeqCst) {
            self.output.wake();
        }
        answer.await.map_err(|_| self.calls.why())?
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Acquire)
    }

    /// Notes whether the task reads nothing unless this end makes a call.
    pub(crate) fn set_paused(&self, paused: bool) {
        if self.paused.load(Relaxed) != paused {
            self.paused.store(paused, SeqCst);
        }
    }

    /// Number of calls of the peer that other threads answer.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.load(Acquire)
    }

    /// Ends the connection: calls fail with this reason, and the stream is closed.
    pub(crate) fn close(&self, why: ConnectionEnd) {
        self.calls.close(why);
        self.places.close();
        self.output.close();
    }
}

impl BackwardConnection for Shared {
    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn set_ready(&self) {
        if !self.ready.swap(true, AcqRel) {
            self.output.wake();
        }
    }

    fn next_xid(&self) -> u32 {
        self.calls.next_xid()
    }

    fn call(&self, call: Payload, _: ReplyBound) -> BackwardCall<'_> {
        Box::pin(self.exchange_in_time(call, usize::MAX))
    }

    fn depth(&self) -> usize {
        USUAL_DEPTH
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.caller.addr)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

/// Makes the record of a reply, if there is one to send.
pub(crate) fn record_of(reply: Reply) -> Option<Outgoing> {
    match reply {
        Reply::Message(message) => {
            let record = Outgoing::new(message, None);
            Some(record.expect("a reply is below 2 GiB, beyond any limit of this project"))
        }
        // Calls over TCP have no by-reference items, so that no item can be ineligible, and room for
        // every reply.
        Reply::Nothing | Reply::Ineligible | Reply::TooLarge(_) => None,
    }
}

/// The replies of one connection, on its task.
pub(crate) struct ConnectionReplies<'a>(pub(crate) &'a Arc<Shared>);

impl Replies for ConnectionReplies<'_> {
    /// Memory of the call.
    type Call = Option<Lease>;
    type JobCall = Job;

    fn has_room(&self) -> bool {
        !self.0.output.is_full()
    }

    fn reply(&mut self, lease: Option<Lease>, reply: Reply) -> usize {
        drop(lease);
        let Some(record) = record_of(reply) else {
            return 0;
        };
        let bytes = record.len;
        self.0.traffic.reply();
        self.0.output.queue(record);
        bytes
    }

    fn hand_over(&mut self, lease: Option<Lease>) -> Job {
        Job::new(self.0, lease)
    }
}

/// A call of the peer that another thread answers.
pub(crate) struct Job {
    shared: Arc<Shared>,
    /// Memory of the call.
    lease: Option<Lease>,
}

impl Job {
    pub(crate) fn new(shared: &Arc<Shared>, lease: Option<Lease>) -> Self {
        shared.jobs.fetch_add(1, AcqRel);
        shared.traffic.job();
        Self {
            shared: Arc::clone(shared),
            lease,
        }
    }
}

impl ReplyTo for Job {
    /// Sends the reply from this thread, which wakes no other unless the stream is blocked.
    fn reply(self, reply: Option<Reply>) {
        let Some(reply) = reply else {
            let failed = service_failed(self.shared.caller.addr, &"a job panicked");
            return self.shared.ends.ask(failed);
        };
        if let Some(record) = record_of(reply) {
            self.shared.traffic.reply();
            self.shared.output.write(record);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The next call may wait for it.
        drop(self.lease.take());
        self.shared.jobs.fetch_sub(1, AcqRel);
        self.shared.output.wake();
    }
}
