//! Repetitions of calls on other connections than those of the first.

use super::entry::{Entry, Progress};
use super::later::Later;
use super::store::Entered;
use super::{Shared, Ticket, finish_with};
use crate::nfs3::jukebox;
use oncrpc::{Answer, Call, Caller, Reply, Respond};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

/// Largest number of threads for calls that turn out to be new after a wait. Further ones are answered
/// NFS3ERR_JUKEBOX.
const MAX_NEW_CALLS: usize = 16;

/// Number of those threads.
static NEW_CALLS: AtomicUsize = AtomicUsize::new(0);

/// Executes a call.
pub(super) type Execute = Box<dyn FnOnce(Call) -> Answer + Send>;

/// A call with the fingerprint of one that came on another connection: a repetition, or a new call of
/// another client or with a used XID.
pub(super) struct Waiting {
    shared: Arc<Shared>,
    entry: Arc<Entry>,
    /// Taken when it is answered or executed.
    pending: Option<(Call, Execute)>,
    state: State,
}

enum State {
    /// The first call is being executed. The number is that of the repetition.
    First(u64),
    /// It is asked whether the client has received the reply to the first call.
    Delivery(Later<bool>),
    /// It is asked whether the connection of this call ends right behind it.
    Own(Later<bool>),
    /// The call is new, and is executed on a thread.
    Job(Later<Option<Reply>>),
    /// The call is new, and is executed by a future.
    Future(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// Next step of a call.
enum Next {
    Answer,
    Execute,
    Ask(State),
}

impl Waiting {
    pub(super) fn new(
        shared: Arc<Shared>,
        entry: Arc<Entry>,
        call: Call,
        execute: Execute,
    ) -> Self {
        Self {
            state: State::First(entry.repeat()),
            shared,
            entry,
            pending: Some((call, execute)),
        }
    }

    /// Decides about a call whose first execution has ended.
    fn decide(&self, own: &Caller) -> Next {
        match self.shared.has_reply(&self.entry) {
            Some(true) => Next::Execute,
            Some(false) => Next::Answer,
            None if self.entry.connection == own.connection => Next::Answer,
            None => Next::Ask(State::Delivery(self.shared.ask(self.entry.connection))),
        }
    }

    /// Decides about a call after the query about the reply to the first.
    fn decide_by_delivery(&self, own: &Caller, delivered: bool) -> Next {
        if !delivered {
            // The connection may have ended meanwhile.
            return match self.shared.has_reply(&self.entry) {
                Some(true) => Next::Execute,
                Some(false) | None => Next::Answer,
            };
        }
        match own.connection < self.entry.connection {
            // A copy that stood still on a connection which the client has given up is followed by
            // the end of that connection.
            true => Next::Ask(State::Own(self.shared.ask(own.connection))),
            false => Next::Execute,
        }
    }

    /// The reply with the results of the first call.
    fn answer(&mut self) -> Reply {
        let Some((call, _)) = self.pending.take() else {
            return Reply::Nothing;
        };
        match &*self.entry.lock() {
            Progress::Done(_, results) => {
                let mut w = call.into_success();
                w.fixed(results);
                Reply::Message(w.finish())
            }
            Progress::Running(_) | Progress::Lost => jukebox::reply(call),
        }
    }

    /// Executes the call, unless another one with its fingerprint is being executed by now. Returns
    /// the reply if it is there.
    fn execute(&mut self) -> Option<Reply> {
        let (call, execute) = self.pending.take()?;
        let entry = match self.shared.renew(&self.entry, &call, Instant::now()) {
            Entered::First(entry) => entry,
            Entered::Again(entry) => {
                self.state = State::First(entry.repeat());
                self.entry = entry;
                self.pending = Some((call, execute));
                return None;
            }
            Entered::Full => return Some(jukebox::reply(call)),
        };
        let ticket = Ticket {
            shared: Arc::clone(&self.shared),
            entry,
        };
        let Some(thread) = Thread::take() else {
            return Some(jukebox::reply(call));
        };
        let later = Later::new();
        let reply = later.clone();
        match finish_with(ticket, execute(call)) {
            Answer::Now(reply) => return Some(reply),
            Answer::Blocking(job) => {
                let respond = Respond::new(move |given| reply.bring(given));
                thread.run(move || respond.with(job()));
            }
            Answer::Deferred(job) => {
                let respond = Respond::new(move |given| reply.bring(given));
                thread.run(move || job(respond));
            }
            Answer::Later(future) => {
                self.state = State::Future(future);
                return None;
            }
        }
        self.state = State::Job(later);
        None
    }

    fn take(&mut self, next: Next) -> Option<Reply> {
        match next {
            Next::Answer => Some(self.answer()),
            Next::Execute => self.execute(),
            Next::Ask(state) => {
                self.state = state;
                None
            }
        }
    }

    /// The next step once what the call waits for is there; `Err` with the reply if that is all.
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, Reply>> {
        let caller = self.pending.as_ref().map(|(call, _)| call.caller);
        Poll::Ready(Ok(match &mut self.state {
            State::First(time) => {
                let mut progress = self.entry.lock();
                if let Progress::Running(repeated) = &mut *progress {
                    if repeated.times != *time {
                        return Poll::Ready(Err(Reply::Nothing));
                    }
                    repeated.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                let is_lost = matches!(*progress, Progress::Lost);
                drop(progress);
                match caller {
                    Some(caller) if !is_lost => self.decide(&caller),
                    Some(_) | None => Next::Answer,
                }
            }
            State::Delivery(later) => {
                let Poll::Ready(delivered) = later.poll(cx) else {
                    return Poll::Pending;
                };
                match caller {
                    Some(caller) => self.decide_by_delivery(&caller, delivered),
                    None => Next::Answer,
                }
            }
            State::Own(later) => {
                if later.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                match caller {
                    Some(caller) if self.shared.is_open(caller.connection) => Next::Execute,
                    Some(_) | None => return Poll::Ready(Err(Reply::Nothing)),
                }
            }
            State::Job(later) => {
                let Poll::Ready(reply) = later.poll(cx) else {
                    return Poll::Pending;
                };
                return Poll::Ready(Err(reply.unwrap_or(Reply::Nothing)));
            }
            State::Future(future) => return future.as_mut().poll(cx).map(Err),
        }))
    }
}

impl Future for Waiting {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let this = &mut *self;
        loop {
            let next = match this.step(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(reply)) => return Poll::Ready(reply),
                Poll::Ready(Ok(next)) => next,
            };
            if let Some(reply) = this.take(next) {
                return Poll::Ready(reply);
            }
        }
    }
}

/// Permission to start a thread. Dropping it returns it.
struct Thread;

impl Thread {
    fn take() -> Option<Self> {
        let taken = NEW_CALLS.fetch_update(Relaxed, Relaxed, |threads| {
            (threads < MAX_NEW_CALLS).then_some(threads + 1)
        });
        taken.is_ok().then_some(Self)
    }

    /// Runs a job. If no thread can be started, it is dropped.
    fn run(self, job: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().name("nfs-new-call".into());
        let started = thread.spawn(move || {
            let _taken = self;
            job();
        });
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for a call");
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        NEW_CALLS.fetch_sub(1, Relaxed);
    }
}
