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
//! Deferred work may return its thread at once and reply later from elsewhere; then it holds up no other job. A COMPOUND of NFS
//! version 4 keeps its thread for as long as its operations work.

use crate::clock;
use crate::fair_queue::{FairQueue, Turn};
use crate::shares::{Bound, Shares};
use oncrpc::{Caller, ConnectionId, PeerGroup, Reply, Respond};
use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Largest number of running jobs, on all connections together; more wait for their turn. Jobs of
/// ended connections count until they return.
pub const MAX_BLOCKING: usize = 128;

/// Largest number of stuck jobs, on all connections together. An address may have as many as it
/// leaves free. Each further one occupies one of the [`MAX_BLOCKING`] threads for good.
pub const MAX_STUCK: usize = 256;

/// How long a job runs before it counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// How often a connection with jobs in flight looks for stuck ones, of others too.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Work of a job, as a [service](oncrpc::Service) returns it.
pub enum Work {
    /// See [`Answer::Blocking`](oncrpc::Answer::Blocking).
    Blocking(Box<dyn FnOnce() -> Reply + Send>),
    /// See [`Answer::Deferred`](oncrpc::Answer::Deferred).
    Deferred(Box<dyn FnOnce(Respond) + Send>),
}

/// The way of a reply from a job to the caller. A transport implements it by what it keeps of a call.
pub trait ReplyTo: Send + 'static {
    /// Passes on the reply, on the thread that made it; `None` if there is none, because the work panicked or has
    /// dropped its [`Respond`]. The connection may have ended.
    fn reply(self, reply: Option<Reply>);
}

/// The threads for jobs, and the queue of waiting jobs. All connections of a server share one.
pub struct Jobs<R> {
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    /// Largest number of threads woken at a time.
    most_waking: usize,
    queue: Mutex<Queue<Job<R>>>,
}

struct Job<R> {
    work: Work,
    to: R,
    without_thread: Arc<WithoutThread>,
}

/// The jobs of one connection. Those that no thread has taken yet are dropped with it.
pub struct JobsOfConnection<R> {
    jobs: Jobs<R>,
    group: PeerGroup,
    connection: ConnectionId,
    without_thread: Arc<WithoutThread>,
    /// Next check for stuck jobs, while any job is in flight.
    next_look: Option<Instant>,
}

/// Numbers of jobs of a connection that occupy no thread.
#[derive(Default)]
struct WithoutThread {
    stuck: AtomicUsize,
    /// Deferred jobs that have returned their threads, and not replied yet.
    deferred: AtomicUsize,
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
    without_thread: Arc<WithoutThread>,
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
            job.without_thread.stuck.fetch_sub(1, Relaxed);
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
                job.without_thread.stuck.fetch_add(1, Relaxed);
                self.stuck.insert(number, job);
            }
        }
        self.stuck.len() - before
    }
}

impl<R> Clone for Jobs<R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// Number of CPUs of this process, at least one. To find out reads files of the kernel.
fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

impl<R: ReplyTo> Jobs<R> {
    /// Creates the queue for this many threads. They are those of the runtime for blocking work, which needs
    /// [`MAX_STUCK`] more.
    pub fn new(threads: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                most_waking: cpus(),
                queue: Mutex::new(Queue::new(threads, MAX_STUCK)),
            }),
        }
    }

    /// Opens the jobs of a new connection.
    pub fn of_connection(&self, caller: &Caller) -> JobsOfConnection<R> {
        JobsOfConnection {
            jobs: self.clone(),
            group: caller.group,
            connection: caller.connection,
            without_thread: Arc::default(),
            next_look: None,
        }
    }

    /// Wakes a thread of the current runtime for a job. The thread then goes on with waiting jobs.
    fn run(&self, number: u64, job: Job<R>) {
        let waking = Waking(self.clone());
        tokio::task::spawn_blocking(move || {
            let jobs = waking.0.clone();
            drop(waking);
            jobs.wake_next();
            jobs.run_here(number, job);
        });
    }

    /// Runs this job and the next ones on this thread.
    fn run_here(&self, mut number: u64, mut job: Job<R>) {
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
struct Waking<R>(Jobs<R>);

impl<R> Drop for Waking<R> {
    fn drop(&mut self) {
        self.0.shared.lock().waking -= 1;
    }
}

impl<R> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, Queue<Job<R>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: ReplyTo> Job<R> {
    fn run(self) {
        let Self {
            work,
            to,
            without_thread,
        } = self;
        match work {
            Work::Blocking(work) => {
                // What a panic leaves behind is dropped with the job.
                let made = catch_unwind(AssertUnwindSafe(work)).ok();
                reply(to, made);
            }
            Work::Deferred(work) => {
                let ended = Arc::new(AtomicBool::new(false));
                let (other, others) = (Arc::clone(&ended), Arc::clone(&without_thread));
                let respond = Respond::new(move |made| {
                    reply(to, made);
                    if other.swap(true, AcqRel) {
                        others.deferred.fetch_sub(1, Relaxed);
                    }
                });
                // After a panic nobody responds, which says so.
                let _ = catch_unwind(AssertUnwindSafe(move || work(respond)));
                without_thread.deferred.fetch_add(1, Relaxed);
                if ended.swap(true, AcqRel) {
                    without_thread.deferred.fetch_sub(1, Relaxed);
                }
            }
        }
    }
}

/// Passes on the reply of a job. Its connection may have ended, and dropping the reply must not cost
/// this thread its turn.
fn reply(to: impl ReplyTo, made: Option<Reply>) {
    let _ = catch_unwind(AssertUnwindSafe(move || to.reply(made)));
}

impl<R> Queue<Job<R>> {
    /// Takes and starts the next job, and returns it with its number.
    fn begin_next(&mut self, now: Instant) -> Option<(u64, Job<R>)> {
        let (group, job) = self.next()?;
        let without_thread = Arc::clone(&job.without_thread);
        let number = self.began(Running {
            group,
            since: now,
            without_thread,
        });
        Some((number, job))
    }
}

impl<R: ReplyTo> JobsOfConnection<R> {
    /// Number of stuck jobs.
    pub fn stuck(&self) -> usize {
        self.without_thread.stuck.load(Relaxed)
    }

    /// Number of jobs that occupy no thread: they are stuck, or deferred and have returned their threads.
    pub fn without_thread(&self) -> usize {
        self.stuck() + self.without_thread.deferred.load(Relaxed)
    }

    /// Checks for stuck jobs, so that waiting ones of all connections get threads. `in_flight` is the number of jobs
    /// that have not replied, and `calls_wait` tells whether calls wait for one of these to be stuck. Returns when to
    /// check again.
    pub fn look(&mut self, now: Instant, in_flight: usize, calls_wait: bool) -> Option<Instant> {
        if in_flight == 0 {
            self.next_look = None;
            return None;
        }
        if self.next_look.is_some_and(|next| now >= next) {
            self.jobs.replace_stuck(now, calls_wait);
            self.next_look = Some(now + LOOK_AGAIN);
        }
        self.next_look
    }

    /// Adds a job, whose reply goes to `to`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn add(&mut self, work: Work, to: R) {
        let job = Job {
            work,
            to,
            without_thread: Arc::clone(&self.without_thread),
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
                    without_thread: Arc::clone(&job.without_thread),
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
}

impl<R> JobsOfConnection<R> {
    /// Drops the waiting jobs, because the connection ends.
    pub fn give_up(&mut self) {
        let mut queue = self.jobs.shared.lock();
        let cancelled = queue.waiting.cancel(self.group, self.connection);
        drop(queue);
        // What they hold may take locks of its own.
        drop(cancelled);
    }
}

impl<R> Drop for JobsOfConnection<R> {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests;
