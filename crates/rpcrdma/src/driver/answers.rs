//! Calls of the peer, from their arrival to their answers.

use crate::driver::owner::{CallId, Connection};
use crate::driver::wire::Over;
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, Reply, Service};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::{JoinError, JoinSet};
use tracing::error;

/// What answers the calls of one connection. It goes with the connection: work that was not begun
/// by then never is, and nobody waits for what was.
pub(crate) struct Answers {
    service: Arc<dyn Service>,
    caller: Caller,
    /// Calls that are answered beside others.
    jobs: JoinSet<(CallId, Reply)>,
}

impl Answers {
    pub(crate) fn new(service: Arc<dyn Service>, caller: Caller) -> Self {
        Self {
            service,
            caller,
            jobs: JoinSet::new(),
        }
    }

    /// Calls that are being answered beside others.
    pub(crate) fn in_flight(&self) -> usize {
        self.jobs.len()
    }

    /// Hands a call to the service; bytes of its reply, if that is here already.
    pub(crate) fn call(
        &mut self,
        connection: &mut Connection,
        id: CallId,
        message: Payload,
    ) -> usize {
        match self.service.call(message, &self.caller) {
            Answer::Now(reply) => send(connection, id, reply),
            Answer::Blocking(work) => {
                self.jobs.spawn_blocking(move || (id, work()));
                0
            }
            Answer::Later(reply) => {
                self.jobs.spawn(async move { (id, reply.await) });
                0
            }
        }
    }

    /// Sends the answers of calls that took longer; whether there was one.
    pub(crate) fn finish(&mut self, connection: &mut Connection) -> Result<bool, Over> {
        let mut finished = false;
        while let Some(done) = self.jobs.try_join_next() {
            finished = true;
            self.done(connection, done)?;
        }
        Ok(finished)
    }

    /// Waits for the next of them, and sends it.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Poll<Result<(), Over>> {
        match self.jobs.poll_join_next(cx) {
            Poll::Ready(Some(done)) => Poll::Ready(self.done(connection, done)),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// The connection ends: what was not begun is not worth beginning.
    pub(crate) fn give_up(&mut self) {
        self.jobs.abort_all();
    }

    /// RFC 8166 §4.5.4: a reply that cannot be made ends the connection, so that the caller knows.
    fn done(
        &self,
        connection: &mut Connection,
        done: Result<(CallId, Reply), JoinError>,
    ) -> Result<(), Over> {
        match done {
            Ok((id, reply)) => {
                send(connection, id, reply);
                Ok(())
            }
            Err(failed) => {
                error!(peer = %self.caller.addr, %failed, "the service failed on a call");
                Err(Over::ServiceFailed)
            }
        }
    }
}

/// Sends a reply; its bytes. What was leased for the call and is more than that goes to others: what was
/// pulled is used up, and a reply is mostly smaller than what was offered for it.
fn send(connection: &mut Connection, mut id: CallId, reply: Reply) -> usize {
    let bytes = match &reply {
        Reply::Message(reply) => reply.stream_len(),
        Reply::Nothing | Reply::Ineligible => 0,
    };
    if let Some(lease) = id.lease_mut() {
        lease.shrink(bytes);
    }
    connection.reply(id, reply);
    bytes
}
