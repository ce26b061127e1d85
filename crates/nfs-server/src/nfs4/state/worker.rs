//! The thread of the state: it makes records of clients, ends leases, and closes files for which a CLOSE might wait.

use super::events::EventLog;
use super::files::Release;
use super::{Answer, Shared, Sleep};
use crate::nfs4::records::{Change, Records};
use nfs_proto::v4::Status;
use nfs4_state::Ticket;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a disk that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Time between two lines of the log about it.
const REPEAT: Duration = Duration::from_secs(60);

/// Pause between two steps of much work: whoever waits for the lock of the state would rarely get it from one that takes it again at
/// once.
const PAUSE: Duration = Duration::from_micros(50);

/// Files that are closed between two looks at what else there is to do: records are waited for.
const FILES_AT_ONCE: usize = 64;

/// A withheld answer to RECLAIM_COMPLETE, if it is still wanted, with its result.
type Reported = (Option<Arc<Answer>>, Result<(), Status>);

/// Work of the thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    records: Records,
    failing: Option<Failing>,
    log: EventLog,
    /// Files that are still to be closed.
    released: VecDeque<Release>,
    /// Removals of records that are still to be reported, one in a step: a client may end with much that it had.
    removed: VecDeque<Ticket>,
}

/// A disk that fails.
struct Failing {
    retry: Instant,
    /// When the log says so again.
    repeat: Instant,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, records: Records) -> Self {
        Self {
            shared,
            records,
            failing: None,
            log: EventLog::default(),
            released: VecDeque::new(),
            removed: VecDeque::new(),
        }
    }

    /// Works until the state has no owner.
    pub(super) fn run(&mut self) {
        loop {
            let is_ending = self.shared.lock().is_ending;
            while self.step() {
                std::thread::sleep(PAUSE);
            }
            self.log.summarise((self.shared.clock)(), is_ending);
            if is_ending {
                return;
            }
            self.sleep();
        }
    }

    /// Sleeps until there is work.
    fn sleep(&self) {
        let mut inner = self.shared.lock();
        let retry = self.failing.as_ref().map(|failing| failing.retry);
        let retry = retry.filter(|_| inner.out.is_failing);
        let until = inner.due().into_iter().chain(retry).min();
        let sleep = Sleep { until };
        // What came since the last step has woken nobody.
        while !inner.has_work(sleep) {
            inner.sleep = Some(sleep);
            let now = (self.shared.clock)();
            let rest = until.map(|until| until.saturating_duration_since(now));
            inner = match rest {
                Some(Duration::ZERO) => break,
                Some(rest) => {
                    let woken = self.shared.work.wait_timeout(inner, rest);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.shared.work.wait(inner);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
        inner.sleep = None;
    }

    /// Does what there is to do now: some of it. Returns whether there is more.
    pub(super) fn step(&mut self) -> bool {
        let now = (self.shared.clock)();
        let waits = self
            .failing
            .as_ref()
            .is_some_and(|failing| now < failing.retry);
        let (changes, released, events) = self.shared.with(|locked| {
            if let Some(ticket) = self.removed.pop_front() {
                locked.server.handle_removed(locked.now, ticket);
            }
            locked.server.handle_timeout(locked.now);
            locked.carry_out();
            locked.look_for_local_locks();
            let out = &mut *locked.out;
            let is_in_grace = locked.server.is_in_grace();
            if !is_in_grace && self.records.lease() != self.shared.lease {
                // All who had another lease have heard of this one, or are gone.
                let change = (None, Change::Lease(self.shared.lease));
                if !out.changes.contains(&change) {
                    out.changes.push_back(change);
                }
            }
            out.is_failing = waits;
            let changes = match waits {
                true => Default::default(),
                false => std::mem::take(&mut out.changes),
            };
            let released = std::mem::take(&mut out.released);
            let events = std::mem::take(&mut out.events);
            (Vec::from(changes), released, events)
        });
        self.released.extend(released);
        for event in events {
            self.log.tell(now, event);
        }
        if !changes.is_empty() {
            self.make(now, changes);
        }
        let files = self.released.len().min(FILES_AT_ONCE);
        for file in self.released.drain(..files) {
            guarded(|| drop(file));
        }
        let inner = self.shared.lock();
        !self.released.is_empty()
            || !self.removed.is_empty()
            || inner.out.has_work()
            || inner.server.poll_timeout().is_some_and(|due| due <= now)
    }

    /// Answers those that wait for records, which are not made any more.
    pub(super) fn abandon(&self) {
        let answers = self.shared.with(|locked| std::mem::take(locked.answers));
        for answer in answers.into_values() {
            answer.give(Err(Status::Delay));
        }
    }

    /// Makes changes of records, and reports them.
    fn make(&mut self, now: Instant, changes: Vec<(Option<Ticket>, Change)>) {
        let (tickets, batch): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        let made = self.records.change(&batch);
        let is_durable = made.is_ok();
        self.note(now, made);
        let (mut again, mut ended) = (Vec::new(), Vec::new());
        for (ticket, change) in tickets.into_iter().zip(batch) {
            let Some(ticket) = ticket else {
                // It comes again by itself.
                continue;
            };
            match change {
                // A removal is tried until it succeeds, in its place among the others.
                Change::Remove(_) if !is_durable => again.push((Some(ticket), change)),
                change => ended.push((ticket, change)),
            }
        }
        self.shared.with(|locked| {
            locked.out.is_failing = !is_durable;
            for change in again.into_iter().rev() {
                locked.out.changes.push_front(change);
            }
        });
        let mut answers: Vec<Reported> = Vec::new();
        for (ticket, change) in ended {
            match change {
                Change::Record(_) => self.shared.with(|locked| {
                    if let Some(answer) = locked.server.handle_recorded(ticket, is_durable) {
                        answers.push((locked.answers.remove(&ticket), answer));
                    }
                }),
                Change::Remove(_) | Change::Lease(_) => self.removed.push_back(ticket),
            }
        }
        for (answer, result) in answers {
            if let Some(answer) = answer {
                guarded(|| answer.give(result));
            }
        }
    }

    /// Notes whether the disk works, and logs it when that changes, or has not for long.
    fn note(&mut self, now: Instant, made: io::Result<()>) {
        let before = self.failing.take();
        match (made, before) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => tracing::info!("the records of NFSv4 clients are saved again"),
            (Err(error), before) => {
                let repeat = before
                    .map(|before| before.repeat)
                    .filter(|&repeat| now < repeat);
                if repeat.is_none() {
                    tracing::error!(
                        %error,
                        "the records of NFSv4 clients cannot be saved to the state directory: new clients have to \
                         wait until they can, as do those who want what clients hold that are gone; no client is forgotten"
                    );
                }
                self.failing = Some(Failing {
                    retry: now + RETRY,
                    repeat: repeat.unwrap_or(now + REPEAT),
                });
            }
        }
    }
}

/// Runs the code of others. A panic of theirs, which is logged, is not the end of this thread.
fn guarded(work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("work for the state of NFSv4 clients failed");
    }
}
