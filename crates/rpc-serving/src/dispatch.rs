//! Calls of one connection in service: from the call of a [`Service`] to its reply.
//!
//! A reply is there at once, or comes from a [job](crate::jobs), or from a future. Futures are polled by the task of the
//! connection, the first time where their calls arrive: what they send elsewhere goes out then, and not after the
//! other work of the connection. They need no tasks of their own.

use crate::ends::End;
use crate::jobs::{Jobs, JobsOfConnection, ReplyTo, Work};
use crate::running::{Panic, Running};
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, ConnectionId, Reply, Service};
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Instant;
use tracing::error;

/// The transport of a connection, for the replies to its calls.
pub trait Replies {
    /// A call until it is answered.
    type Call;
    /// A call that a job answers.
    type JobCall: ReplyTo;

    /// Whether a reply can be queued now. Otherwise futures are not polled, and keep what they hold.
    fn has_room(&self) -> bool {
        true
    }

    /// Queues a reply, and returns its bytes.
    fn reply(&mut self, call: Self::Call, reply: Reply) -> usize;

    /// Hands a call over to a job.
    fn hand_over(&mut self, call: Self::Call) -> Self::JobCall;
}

/// Logs that the service has failed on a call of this peer, which ends the connection.
pub fn service_failed(peer: SocketAddr, failed: &dyn Display) -> End {
    error!(%peer, %failed, "the service failed on a call");
    End::ServiceFailed
}

fn failed_in_future(peer: SocketAddr, panic: &Panic) -> End {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no text");
    service_failed(peer, &format_args!("a future panicked: {text}"))
}

/// Dispatcher of the calls of one connection. It [ends](Self::end) with the connection, at the latest when it is dropped:
/// work that was not begun is dropped, and the replies of running work go nowhere.
pub struct Dispatch<C, J: ReplyTo> {
    service: Arc<dyn Service>,
    peer: SocketAddr,
    connection: ConnectionId,
    has_ended: bool,
    /// Calls answered by blocking work.
    jobs: JobsOfConnection<J>,
    /// Calls answered by a future.
    later: Running<C>,
}

impl<C, J: ReplyTo> Dispatch<C, J> {
    /// Creates the dispatcher of a new connection, which shares threads with others.
    pub fn new(service: Arc<dyn Service>, caller: &Caller, jobs: &Jobs<J>) -> Self {
        Self {
            service,
            peer: caller.addr,
            connection: caller.connection,
            has_ended: false,
            jobs: jobs.of_connection(caller),
            later: Running::new(),
        }
    }

    /// The service.
    pub fn service(&self) -> &dyn Service {
        &*self.service
    }

    /// Number of calls that futures answer.
    pub fn futures(&self) -> usize {
        self.later.len()
    }

    /// Number of calls whose jobs are [stuck](crate::jobs).
    pub fn stuck(&self) -> usize {
        self.jobs.stuck()
    }

    /// Number of calls whose jobs occupy no thread: they are stuck, or deferred and have returned their threads.
    pub fn without_thread(&self) -> usize {
        self.jobs.without_thread()
    }

    /// Passes a call to the service. Returns the bytes of its reply if that is there at once, and zero otherwise.
    ///
    /// # Errors
    ///
    /// [`End::ServiceFailed`] if a future of the service panicked.
    ///
    /// # Panics
    ///
    /// If the service does; and outside of a tokio runtime, if it returns blocking work.
    pub fn call<R>(
        &mut self,
        message: Payload,
        caller: &Caller,
        call: C,
        replies: &mut R,
    ) -> Result<usize, End>
    where
        R: Replies<Call = C, JobCall = J>,
    {
        let work = match self.service.call(message, caller) {
            Answer::Now(reply) => return Ok(replies.reply(call, reply)),
            Answer::Later(future) => {
                let begun = self.later.begin(future, call);
                let ready = begun.map_err(|panic| failed_in_future(self.peer, &panic))?;
                return Ok(ready.map_or(0, |(call, reply)| replies.reply(call, reply)));
            }
            Answer::Blocking(work) => Work::Blocking(work),
            Answer::Deferred(work) => Work::Deferred(work),
        };
        self.jobs.add(work, replies.hand_over(call));
        Ok(0)
    }

    /// Queues the replies of futures that are ready, as far as there is room, and has the task woken for the others. Returns
    /// whether there was one.
    ///
    /// # Errors
    ///
    /// [`End::ServiceFailed`] if a future of the service panicked.
    pub fn poll<R>(&mut self, cx: &Context<'_>, replies: &mut R) -> Result<bool, End>
    where
        R: Replies<Call = C, JobCall = J>,
    {
        let polled = self
            .later
            .poll(cx, replies, R::has_room, |replies, call, reply| {
                replies.reply(call, reply);
            });
        polled.map_err(|panic| failed_in_future(self.peer, &panic))
    }

    /// Checks for stuck jobs; see [`JobsOfConnection::look`].
    pub fn look(&mut self, now: Instant, in_flight: usize, calls_wait: bool) -> Option<Instant> {
        self.jobs.look(now, in_flight, calls_wait)
    }

    /// Ends with the connection: drops futures, and work that was not begun, and [tells the
    /// service](Service::connection_ended), once.
    pub fn end(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.jobs.give_up();
            self.later = Running::new();
            self.service.connection_ended(self.connection);
        }
    }
}

impl<C, J: ReplyTo> Drop for Dispatch<C, J> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[derive(Default)]
    struct CountsEnds(AtomicUsize);

    impl Service for CountsEnds {
        fn call(&self, _: Payload, _: &Caller) -> Answer {
            Answer::Now(Reply::Nothing)
        }

        fn connection_ended(&self, _: ConnectionId) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    struct ToNobody;

    impl ReplyTo for ToNobody {
        fn reply(self, _: Option<Reply>) {}
    }

    #[test]
    fn service_hears_once_of_the_end_also_if_the_dispatcher_is_only_dropped() {
        let service = Arc::new(CountsEnds::default());
        let caller = Caller::new(([192, 0, 2, 1], 700).into());
        let [mut ended, dropped] = [(); 2].map(|()| {
            let service = Arc::clone(&service) as Arc<dyn Service>;
            Dispatch::<(), ToNobody>::new(service, &caller, &Jobs::new(1))
        });
        ended.end();
        assert_eq!(service.0.load(Relaxed), 1);
        drop((ended, dropped));
        assert_eq!(service.0.load(Relaxed), 2);
    }
}
