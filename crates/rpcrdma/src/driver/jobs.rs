//! Jobs: calls whose answers may have to wait for a disk, on threads that all connections share.
//!
//! A free thread takes the next job in turns: one address after the other, and of an address one
//! connection after the other. An address may have as many jobs running as there are threads left, so
//! that whoever comes next finds one: alone it gets half of them, two get a third each. Jobs that no
//! thread has taken yet end with their connection.
//!
//! A job may hang in the kernel for as long as a disk, another server or a local user likes, and
//! its thread cannot be interrupted. After a while the job counts as stuck, and one more thread
//! runs others. The number of stuck jobs is bounded in the same way as that of threads.
//!
//! Waking a thread takes longer than many a job. So no more threads are woken at a time than there
//! are CPUs: a thread that wakes up wakes the next one if jobs wait, before it begins its own job,
//! and takes another job after it.
//!
//! Deferred work returns its thread at once and replies later from elsewhere, so it holds up no
//! other job.

use super::clock;
use super::owner::CallId;
use oncrpc::{Caller, ConnectionId, PeerGroup, Reply, Respond};
use rpc_serving::fair_queue::{FairQueue, Turn};
use rpc_serving::shares::{Bound, Shares};
use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Largest number of running jobs, on all connections together; more wait for their turn. Jobs of
/// ended connections count until they return.
pub(crate) const MAX_BLOCKING: usize = 128;

/// Largest number of stuck jobs, on all connections together. An address may have as many as it
/// leaves free. Each further one occupies one of the [`MAX_BLOCKING`] threads for good.
pub(crate) const MAX_STUCK: usize = 256;

/// Largest number of calls of one connection in jobs or futures, without stuck ones; more wait.
/// Their replies are not accounted for until they are complete, and may be as large as a chunk even
/// if none was offered.
pub(super) const MAX_JOBS: usize = 64;

/// How long a job runs before it counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// How often a connection with jobs in flight looks for stuck ones, of others too.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Work of a job.
pub(crate) enum Work {
    /// See [`Answer::Blocking`](oncrpc::Answer::Blocking).
    Blocking(Box<dyn FnOnce() -> Reply + Send>),
    /// See [`Answer::Deferred`](oncrpc::Answer::Deferred).
    Deferred(Box<dyn FnOnce(Respond) + Send>),
}

/// Result of a job; no reply if it panicked.
pub(crate) type Done = (CallId, Option<Reply>);

/// The threads for jobs, and the queue of waiting jobs.
#[derive(Clone)]
pub(crate) struct Jobs {
    shared: Arc<Shared>,
}

struct Shared {
    /// Largest number of threads woken at a time.
    most_waking: usize,
    queue: Mutex<Queue<Job>>,
}

struct Job {
    id: CallId,
    work: Work,
    done: UnboundedSender<Done>,
    /// Number of the connection's jobs that occupy no thread.
    stuck: Arc<AtomicUsize>,
}

/// The jobs of one connection.
pub(crate) struct JobsOfConnection {
    jobs: Jobs,
    group: PeerGroup,
    connection: ConnectionId,
    /// Created with the first job, because it takes kilobytes and most connections have no jobs.
    results: Option<(UnboundedSender<Done>, UnboundedReceiver<Done>)>,
    counts: JobCounts,
    /// Number of jobs that occupy no thread: they are stuck, or have returned their threads.
    stuck: Arc<AtomicUsize>,
    /// Next check for stuck jobs, while any job is in flight.
    next_look: Option<Instant>,
}

/// Job counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    /// Jobs begun so far.
    pub(crate) begun: u64,
    /// Jobs without a reply yet.
    pub(crate) in_flight: usize,
}

/// Jobs that wait and that run: the policy alone, without threads.
struct Queue<T> {
    /// Threads, each held by a running job that is not stuck.
    threads: Shares,
    /// Places of stuck jobs.
    places: Shares,
    /// Running jobs by number, in the order of their start.
    begun: BTreeMap<u64, Running>,
    stuck: HashMap<u64, Running>,
    next_number: u64,
    /// Threads that are being woken.
    waking: usize,
    waiting: FairQueue<ConnectionId, T>,
}

/// A running job.
struct Running {
    group: PeerGroup,
    since: Instant,
    /// Number of the connection's stuck jobs.
    stuck: Arc<AtomicUsize>,
}

impl<T> Queue<T> {
    fn new(threads: usize, most_stuck: usize) -> Self {
        Self {
            threads: Shares::new(threads, Bound::WhatItLeaves),
            places: Shares::new(most_stuck, Bound::WhatItLeaves),
            begun: BTreeMap::new(),
            stuck: HashMap::new(),
            next_number: 0,
            waking: 0,
            waiting: FairQueue::default(),
        }
    }

    fn push(&mut self, group: PeerGroup, connection: ConnectionId, job: T) {
        self.waiting.push(group, connection, job);
    }

    /// Starts a job of this address without queueing it, which needs no memory, if no other waits
    /// and a thread is free. Returns whether it did.
    fn start_at_once(&mut self, group: PeerGroup) -> bool {
        self.waiting.is_empty() && self.threads.take(group, 1)
    }

    /// Takes the next job for a thread, with its address, and counts it as running.
    fn next(&mut self) -> Option<(PeerGroup, T)> {
        if self.threads.left() == 0 {
            return None;
        }
        let threads = &self.threads;
        let next = self
            .waiting
            .pop(|group, _| match threads.may_take(group, 1) {
                true => Turn::Takes,
                false => Turn::IsPassed,
            });
        let (group, _, job) = next?;
        self.threads.take(group, 1);
        Some((group, job))
    }

    /// Records a running job and returns its number.
    fn began(&mut self, job: Running) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.begun.insert(number, job);
        number
    }

    /// Records the return of a job.
    fn returned(&mut self, number: u64) {
        if let Some(job) = self.begun.remove(&number) {
            self.threads.give_back(job.group, 1);
        } else if let Some(job) = self.stuck.remove(&number) {
            job.stuck.fetch_sub(1, Relaxed);
            self.places.give_back(job.group, 1);
        }
    }

    /// Marks jobs as stuck that have run for too long by `now`, as far as there are places, so that others get
    /// their threads. Returns how many are new.
    fn write_off(&mut self, now: Instant) -> usize {
        let long = |job: &Running| now.saturating_duration_since(job.since) >= STUCK_AFTER;
        let old = self.begun.iter().take_while(|(_, job)| long(job));
        let old: Vec<u64> = old.map(|(number, _)| *number).collect();
        let before = self.stuck.len();
        for number in old {
            if let Some(job) = self.begun.get(&number)
                && self.places.take(job.group, 1)
                && let Some(job) = self.begun.remove(&number)
            {
                self.threads.give_back(job.group, 1);
                job.stuck.fetch_add(1, Relaxed);
                self.stuck.insert(number, job);
            }
        }
        self.stuck.len() - before
    }
}

impl Jobs {
    /// Creates the queue for `threads` threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                most_waking: std::thread::available_parallelism().map_or(1, NonZero::get),
                queue: Mutex::new(Queue::new(threads, MAX_STUCK)),
            }),
        }
    }

    /// Opens the jobs of a new connection.
    pub(crate) fn of_connection(&self, caller: &Caller) -> JobsOfConnection {
        JobsOfConnection {
            jobs: self.clone(),
            group: caller.group,
            connection: caller.connection,
            results: None,
            counts: JobCounts::default(),
            stuck: Arc::default(),
            next_look: None,
        }
    }

    /// Wakes a thread of the current runtime for a job. The thread then goes on with waiting jobs.
    fn run(&self, number: u64, job: Job) {
        let waking = Waking(self.clone());
        tokio::task::spawn_blocking(move || {
            let jobs = waking.0.clone();
            drop(waking);
            jobs.wake_next();
            jobs.run_here(number, job);
        });
    }

    /// Runs this job and the next ones on this thread.
    fn run_here(&self, mut number: u64, mut job: Job) {
        loop {
            job.run();
            let mut queue = self.shared.lock();
            queue.returned(number);
            let Some(next) = queue.begin_next(clock::now()) else {
                return;
            };
            // It may have made room for two: for one of another address, which leaves as many as it has,
            // and for one of its own, which has fewer now.
            let some_wait = !queue.waiting.is_empty();
            drop(queue);
            if some_wait {
                self.wake_next();
            }
            (number, job) = next;
        }
    }

    /// Wakes a thread if jobs wait.
    fn wake_next(&self) {
        let mut queue = self.shared.lock();
        if queue.waking >= self.shared.most_waking {
            return;
        }
        let next = queue.begin_next(clock::now());
        queue.waking += usize::from(next.is_some());
        drop(queue);
        if let Some((number, job)) = next {
            self.run(number, job);
        }
    }

    /// Gives the threads of stuck jobs to waiting jobs, if there are any.
    fn replace_stuck(&self, now: Instant, some_wait: bool) {
        let mut queue = self.shared.lock();
        if !some_wait && queue.waiting.is_empty() {
            return;
        }
        let new = queue.write_off(now);
        if new == 0 {
            return;
        }
        let stuck = queue.stuck.len();
        let mut next = Vec::new();
        while let Some(job) = queue.begin_next(now) {
            next.push(job);
        }
        queue.waking += next.len();
        drop(queue);
        if stuck == new {
            tracing::warn!(
                calls = new,
                "calls have waited for their file systems for more than {} s; others go on beside them",
                STUCK_AFTER.as_secs()
            );
        }
        for (number, job) in next {
            self.run(number, job);
        }
    }
}

/// Counts a thread that is being woken, until it runs or its runtime has ended.
struct Waking(Jobs);

impl Drop for Waking {
    fn drop(&mut self) {
        self.0.shared.lock().waking -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue<Job>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn run(self) {
        let Self {
            id,
            work,
            done,
            stuck,
        } = self;
        match work {
            Work::Blocking(work) => {
                // What a panic leaves behind is dropped with the job, and its connection ends.
                let reply = catch_unwind(AssertUnwindSafe(work)).ok();
                send(&done, id, reply);
            }
            Work::Deferred(work) => {
                let ended = Arc::new(AtomicBool::new(false));
                let (other, others) = (Arc::clone(&ended), Arc::clone(&stuck));
                let respond = Respond::new(move |reply| {
                    send(&done, id, reply);
                    if other.swap(true, AcqRel) {
                        others.fetch_sub(1, Relaxed);
                    }
                });
                // After a panic nobody responds, which says so.
                let _ = catch_unwind(AssertUnwindSafe(move || work(respond)));
                stuck.fetch_add(1, Relaxed);
                if ended.swap(true, AcqRel) {
                    stuck.fetch_sub(1, Relaxed);
                }
            }
        }
    }
}

/// Sends the result of a job. Its connection may have ended, and dropping the result must not cost
/// this thread its turn.
fn send(done: &UnboundedSender<Done>, id: CallId, reply: Option<Reply>) {
    let _ = catch_unwind(AssertUnwindSafe(move || drop(done.send((id, reply)))));
}

impl Queue<Job> {
    /// Takes and starts the next job, and returns it with its number.
    fn begin_next(&mut self, now: Instant) -> Option<(u64, Job)> {
        let (group, job) = self.next()?;
        let stuck = Arc::clone(&job.stuck);
        let number = self.began(Running {
            group,
            since: now,
            stuck,
        });
        Some((number, job))
    }
}

impl JobsOfConnection {
    /// Jobs that have not brought their replies yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.counts.in_flight
    }

    /// Like [`in_flight`](Self::in_flight), without jobs that are stuck or have returned their
    /// threads.
    pub(crate) fn not_stuck(&self) -> usize {
        let stuck = self.stuck.load(Relaxed);
        self.counts.in_flight.saturating_sub(stuck)
    }

    /// Checks for stuck jobs, so that waiting ones of all connections get threads. Returns when to
    /// check again.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Instant> {
        if self.counts.in_flight == 0 {
            self.next_look = None;
            return None;
        }
        if self.next_look.is_some_and(|next| now >= next) {
            let calls_wait = self.not_stuck() >= MAX_JOBS;
            self.jobs.replace_stuck(now, calls_wait);
            self.next_look = Some(now + LOOK_AGAIN);
        }
        self.next_look
    }

    pub(crate) fn counts(&self) -> JobCounts {
        self.counts
    }

    /// Adds a job for a call.
    pub(crate) fn add(&mut self, id: CallId, work: Work) {
        let (done, _) = self.results.get_or_insert_with(mpsc::unbounded_channel);
        let done = done.clone();
        self.counts.begun += 1;
        self.counts.in_flight += 1;
        let stuck = Arc::clone(&self.stuck);
        let job = Job {
            id,
            work,
            done,
            stuck,
        };
        let Jobs { shared } = &self.jobs;
        let now = clock::now();
        self.next_look.get_or_insert(now + STUCK_AFTER);
        let mut queue = shared.lock();
        let may_wake = queue.waking < shared.most_waking;
        let next = match may_wake && queue.start_at_once(self.group) {
            true => {
                let running = Running {
                    group: self.group,
                    since: now,
                    stuck: Arc::clone(&job.stuck),
                };
                Some((queue.began(running), job))
            }
            false => {
                queue.push(self.group, self.connection, job);
                match may_wake {
                    true => queue.begin_next(now),
                    false => None,
                }
            }
        };
        queue.waking += usize::from(next.is_some());
        drop(queue);
        if let Some((number, job)) = next {
            self.jobs.run(number, job);
        }
    }

    /// Takes the result of a job, if there is one.
    pub(crate) fn take_done(&mut self) -> Option<Done> {
        let (_, results) = self.results.as_mut()?;
        let done = results.try_recv().ok()?;
        self.counts.in_flight -= 1;
        Some(done)
    }

    /// Waits for the result of a job.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Done> {
        let Some((_, results)) = self.results.as_mut() else {
            return Poll::Pending;
        };
        // It has a sender of its own, so that it does not end.
        let Poll::Ready(Some(done)) = results.poll_recv(cx) else {
            return Poll::Pending;
        };
        self.counts.in_flight -= 1;
        Poll::Ready(done)
    }

    /// Drops the waiting jobs, because the connection ends.
    pub(crate) fn give_up(&mut self) {
        let mut queue = self.jobs.shared.lock();
        let cancelled = queue.waiting.cancel(self.group, self.connection);
        drop(queue);
        // What they hold may take locks of its own.
        drop(cancelled);
    }
}

impl Drop for JobsOfConnection {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests;
