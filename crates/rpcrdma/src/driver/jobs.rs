//! Jobs: calls whose answers may have to wait for a disk, on threads that all connections share.
//!
//! A free thread takes the next job in turns: one address after the other, and of an address one
//! connection after the other. An address may have as many jobs running as there are threads left, so
//! that whoever comes next finds one: alone it gets half of them, two get a third each. Jobs that no
//! thread has taken yet end with their connection.

use super::owner::CallId;
use oncrpc::{Caller, ConnectionId, PeerGroup, Reply};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Jobs that run at a time, on all connections together; more wait for their turn. Those of
/// connections that are over meanwhile are among them until they return.
pub(crate) const MAX_BLOCKING: usize = 128;

type Work = Box<dyn FnOnce() -> Reply + Send>;

/// What came of a job; no reply if it panicked.
pub(crate) type Done = (CallId, Option<Reply>);

/// The threads for jobs, and the jobs that wait for them.
#[derive(Clone)]
pub(crate) struct Jobs {
    shared: Arc<Shared>,
}

struct Shared {
    threads: usize,
    queue: Mutex<Queue<Job>>,
}

struct Job {
    id: CallId,
    work: Work,
    done: UnboundedSender<Done>,
}

/// The jobs of one connection.
pub(crate) struct JobsOfConnection {
    jobs: Jobs,
    group: PeerGroup,
    connection: ConnectionId,
    /// Made with the first job: most connections of most servers have none, and it takes kilobytes.
    results: Option<(UnboundedSender<Done>, UnboundedReceiver<Done>)>,
    counts: JobCounts,
}

/// How many jobs a connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    /// Jobs so far.
    pub(crate) begun: u64,
    /// Jobs that have not brought their replies yet.
    pub(crate) in_flight: usize,
}

/// Jobs in the order of their turns; the policy alone, without threads.
struct Queue<T> {
    running: usize,
    addresses: HashMap<PeerGroup, Address<T>>,
    /// The addresses that have jobs waiting, the next one first.
    turns: VecDeque<PeerGroup>,
}

struct Address<T> {
    running: usize,
    waiting: HashMap<ConnectionId, VecDeque<T>>,
    /// The connections that have jobs waiting, the next one first.
    turns: VecDeque<ConnectionId>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            running: 0,
            addresses: HashMap::new(),
            turns: VecDeque::new(),
        }
    }
}

impl<T> Default for Address<T> {
    fn default() -> Self {
        Self {
            running: 0,
            waiting: HashMap::new(),
            turns: VecDeque::new(),
        }
    }
}

impl<T> Queue<T> {
    fn push(&mut self, group: PeerGroup, connection: ConnectionId, job: T) {
        let address = self.addresses.entry(group).or_default();
        if address.waiting.is_empty() {
            self.turns.push_back(group);
        }
        let waiting = address.waiting.entry(connection).or_default();
        if waiting.is_empty() {
            address.turns.push_back(connection);
        }
        waiting.push_back(job);
    }

    /// Whether one more job of an address may run on one of `threads` threads.
    fn has_thread(&self, group: PeerGroup, threads: usize) -> bool {
        let left = threads.saturating_sub(self.running);
        let running = self.addresses.get(&group).map_or(0, |a| a.running);
        left > 0 && (running == 0 || running < left)
    }

    /// Counts a job of this address as running without queueing it, which costs no memory, if no other
    /// waits and it has a thread; whether it does.
    fn start_at_once(&mut self, group: PeerGroup, threads: usize) -> bool {
        let starts = self.turns.is_empty() && self.has_thread(group, threads);
        if starts {
            self.addresses.entry(group).or_default().running += 1;
            self.running += 1;
        }
        starts
    }

    /// The next job for one of `threads` threads, and its address, which counts it as running.
    fn next(&mut self, threads: usize) -> Option<(PeerGroup, T)> {
        if self.running >= threads {
            return None;
        }
        let mut turns = self.turns.iter();
        let at = turns.position(|&group| self.has_thread(group, threads))?;
        let group = self.turns.remove(at)?;
        let address = self.addresses.get_mut(&group)?;
        let connection = address.turns.pop_front()?;
        let waiting = address.waiting.get_mut(&connection)?;
        let job = waiting.pop_front()?;
        match waiting.is_empty() {
            true => drop(address.waiting.remove(&connection)),
            false => address.turns.push_back(connection),
        }
        if !address.waiting.is_empty() {
            self.turns.push_back(group);
        }
        address.running += 1;
        self.running += 1;
        Some((group, job))
    }

    /// A job of this address has returned.
    fn returned(&mut self, group: PeerGroup) {
        self.running -= 1;
        if let Some(address) = self.addresses.get_mut(&group) {
            address.running -= 1;
            self.forget(group);
        }
    }

    /// Forgets the jobs of a connection that wait.
    fn cancel(&mut self, group: PeerGroup, connection: ConnectionId) -> Option<VecDeque<T>> {
        let address = self.addresses.get_mut(&group)?;
        let cancelled = address.waiting.remove(&connection)?;
        address.turns.retain(|&other| other != connection);
        if address.waiting.is_empty() {
            self.turns.retain(|&other| other != group);
        }
        self.forget(group);
        Some(cancelled)
    }

    /// Forgets an address that has no jobs any more.
    fn forget(&mut self, group: PeerGroup) {
        if let Some(address) = self.addresses.get(&group)
            && address.running == 0
            && address.waiting.is_empty()
        {
            self.addresses.remove(&group);
        }
    }
}

impl Jobs {
    /// So many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                threads,
                queue: Mutex::default(),
            }),
        }
    }

    /// The jobs of a new connection.
    pub(crate) fn of_connection(&self, caller: &Caller) -> JobsOfConnection {
        JobsOfConnection {
            jobs: self.clone(),
            group: caller.group,
            connection: caller.connection,
            results: None,
            counts: JobCounts::default(),
        }
    }

    /// Hands a job to a thread of the present runtime, which goes on with those that wait.
    fn run(&self, group: PeerGroup, job: Job) {
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || shared.run(group, job));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue<Job>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs this job, and those that are next after it.
    fn run(&self, mut group: PeerGroup, mut job: Job) {
        loop {
            let Job { id, work, done } = job;
            // What a panic leaves behind is dropped with the job, and its connection ends.
            let reply = catch_unwind(AssertUnwindSafe(work)).ok();
            // Its connection may be over, and dropping what nobody takes must not cost this thread's turn.
            let _ = catch_unwind(AssertUnwindSafe(move || drop(done.send((id, reply)))));
            let mut queue = self.lock();
            queue.returned(group);
            let Some(next) = queue.next(self.threads) else {
                return;
            };
            (group, job) = next;
        }
    }
}

impl JobsOfConnection {
    /// Jobs that have not brought their replies yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.counts.in_flight
    }

    pub(crate) fn counts(&self) -> JobCounts {
        self.counts
    }

    /// Has a call answered by this work.
    pub(crate) fn add(&mut self, id: CallId, work: Work) {
        let (done, _) = self.results.get_or_insert_with(mpsc::unbounded_channel);
        let done = done.clone();
        self.counts.begun += 1;
        self.counts.in_flight += 1;
        let job = Job { id, work, done };
        let Jobs { shared } = &self.jobs;
        let mut queue = shared.lock();
        let next = match queue.start_at_once(self.group, shared.threads) {
            true => Some((self.group, job)),
            false => {
                queue.push(self.group, self.connection, job);
                queue.next(shared.threads)
            }
        };
        drop(queue);
        if let Some((group, job)) = next {
            self.jobs.run(group, job);
        }
    }

    /// What has come of a job, if anything has.
    pub(crate) fn take_done(&mut self) -> Option<Done> {
        let (_, results) = self.results.as_mut()?;
        let done = results.try_recv().ok()?;
        self.counts.in_flight -= 1;
        Some(done)
    }

    /// Waits until something has come of one.
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

    /// The connection ends: jobs that no thread has taken yet are not worth beginning.
    pub(crate) fn give_up(&mut self) {
        let mut queue = self.jobs.shared.lock();
        let cancelled = queue.cancel(self.group, self.connection);
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
