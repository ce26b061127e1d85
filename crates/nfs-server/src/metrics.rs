//! Counts and latencies of calls, by procedure.
//!
//! Counters are sharded so that threads rarely share memory, and summed when read: a call costs one
//! or two additions, no lock and no allocation. The latency of a call that is answered at once is
//! measured in about one of [`SAMPLED`] calls, at random, and counts for those since the last
//! measured one; that of a job is always measured.

use nfs_proto::{Procedure, Status};
use oncrpc::{Answer, Reply, Respond};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Sampling rate of latencies: one of this many calls that are answered at once is measured, on
/// average. Reading the clock twice for each call would add a fiftieth to the time of a small one.
pub const SAMPLED: u32 = 16;

/// Buckets of a [`LatencyHistogram`].
pub const LATENCY_BUCKETS: usize = 25;

/// Number of shards of the counters, so that threads seldom share one.
pub(crate) const SHARDS: usize = 16;

/// Procedures of NFS version 3.
const PROCEDURES: usize = Procedure::Commit as usize + 1;

/// Statistics of a program, by procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStats {
    /// Name of the program: `nfs`, `nfs4`, `mount` or `nfsacl`.
    pub program: &'static str,
    /// Every procedure of the program, in the order of their numbers.
    pub procedures: Vec<ProcedureStats>,
}

/// Statistics of one procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureStats {
    /// Name of the procedure, for NFS and MOUNT as in RFC 1813 §3.3 and §5.2, or of the operation of NFS version 4.
    pub name: &'static str,
    /// Calls that were answered.
    pub calls: u64,
    /// Failed calls, by class of error.
    pub errors: [(ErrorClass, u64); ErrorClass::ALL.len()],
    /// Latencies of the calls.
    pub latency: LatencyHistogram,
}

impl ProcedureStats {
    /// Number of failed calls.
    pub fn failed(&self) -> u64 {
        self.errors.iter().map(|(_, count)| count).sum()
    }
}

/// Class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The file does not exist.
    NotFound,
    /// The handle is invalid, or its file is gone.
    Stale,
    /// Permission is denied to the caller, or to everybody.
    Denied,
    /// The target exists, is not empty, or is of another kind.
    Exists,
    /// No space is left, or the quota is exceeded.
    Space,
    /// The client should retry later (jukebox).
    Jukebox,
    /// Arguments are invalid or not supported.
    Invalid,
    /// The server had an internal error.
    Server,
    /// RPC failed: arguments could not be decoded, a credential was refused, or a reply had no
    /// room.
    Rpc,
    /// A lock or an open of others is in the way.
    Locked,
    /// The client, its session or its state is not known, or ends.
    State,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: [Self; 11] = [
        Self::NotFound,
        Self::Stale,
        Self::Denied,
        Self::Exists,
        Self::Space,
        Self::Jukebox,
        Self::Invalid,
        Self::Server,
        Self::Rpc,
        Self::Locked,
        Self::State,
    ];

    /// Returns the name in lower case with underscores.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Stale => "stale",
            Self::Denied => "denied",
            Self::Exists => "exists",
            Self::Space => "space",
            Self::Jukebox => "jukebox",
            Self::Invalid => "invalid",
            Self::Server => "server",
            Self::Rpc => "rpc",
            Self::Locked => "locked",
            Self::State => "state",
        }
    }

    pub(crate) fn of(status: Status) -> Self {
        match status {
            Status::NoEntry | Status::NoDeviceAddress | Status::NoDevice => Self::NotFound,
            Status::Stale | Status::BadHandle | Status::Remote => Self::Stale,
            Status::Perm | Status::Access | Status::ReadOnly | Status::CrossDevice => Self::Denied,
            Status::Exist | Status::NotEmpty | Status::NotDirectory | Status::IsDirectory => {
                Self::Exists
            }
            Status::NoSpace | Status::Quota | Status::TooBig | Status::TooManyLinks => Self::Space,
            Status::Jukebox => Self::Jukebox,
            Status::Invalid
            | Status::NameTooLong
            | Status::NotSync
            | Status::BadCookie
            | Status::NotSupported
            | Status::TooSmall
            | Status::BadType => Self::Invalid,
            Status::Io | Status::ServerFault => Self::Server,
        }
    }
}

/// Histogram of latencies, with buckets of doubling width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// Calls in each bucket; the last one has no bound.
    pub buckets: [u64; LATENCY_BUCKETS],
    /// Sum of all latencies.
    pub sum: Duration,
}

impl LatencyHistogram {
    /// Returns the upper bound of a bucket; `None` for the last one.
    pub fn bound(bucket: usize) -> Option<Duration> {
        (bucket + 1 < LATENCY_BUCKETS).then(|| Duration::from_micros(1 << bucket))
    }

    /// Returns the number of calls in all buckets.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the latency that this fraction of the calls does not exceed, as the bound of a
    /// bucket; `None` without calls. Calls in the last bucket count as the largest bound.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let count = self.count();
        let mut below = 0;
        let bucket = self.buckets.iter().position(|calls| {
            below += calls;
            below > 0 && below as f64 >= part * count as f64
        })?;
        Self::bound(bucket.min(LATENCY_BUCKETS - 2))
    }

    /// Returns the difference to an earlier snapshot.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (now, before) in since.buckets.iter_mut().zip(before.buckets) {
            *now = now.saturating_sub(before);
        }
        since.sum = since.sum.saturating_sub(before.sum);
        since
    }

    fn bucket_of(time: Duration) -> usize {
        // A bound is in its bucket.
        let micros = time.as_nanos().div_ceil(1000).max(1);
        let bucket = u128::BITS - (micros - 1).leading_zeros();
        (bucket as usize).min(LATENCY_BUCKETS - 1)
    }
}

/// A program whose calls are counted.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    /// Name of the program.
    pub(crate) program: &'static str,
    /// Returns the name of the procedure with this number, if there is one.
    pub(crate) procedure: fn(u32) -> Option<&'static str>,
    /// Returns the class of error for the first word of the results, if it is a failure. The word
    /// is not 0.
    pub(crate) failure: fn(u32, u32) -> Option<ErrorClass>,
}

/// Counters of a program with `N` procedures.
#[derive(Clone)]
pub(crate) struct Metrics<const N: usize> {
    of: Counted,
    shards: Arc<[Shard<N>]>,
}

/// Counters of NFS.
pub(crate) type NfsMetrics = Metrics<PROCEDURES>;

/// A shard, aligned to its own cache lines.
#[repr(align(128))]
struct Shard<const N: usize> {
    procedures: [Counters; N],
}

#[derive(Default)]
struct Counters {
    calls: AtomicU64,
    errors: [AtomicU64; ErrorClass::ALL.len()],
    latency: [AtomicU64; LATENCY_BUCKETS],
    nanos: AtomicU64,
}

/// Counting state of a thread.
struct Thread {
    /// Index of the thread's shard; beyond the last one until it is chosen.
    shard: Cell<usize>,
    /// Number of calls until the next sample.
    until_sample: Cell<u32>,
    /// Number of calls from the last sample to the next.
    gap: Cell<u32>,
    /// State of the generator of random gaps, since calls often come in patterns.
    random: Cell<u32>,
}

/// A call whose latency is measured.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    came: Instant,
    /// Number of calls that the sample represents.
    calls: u32,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            shard: Cell::new(usize::MAX),
            until_sample: Cell::new(0),
            gap: Cell::new(1),
            random: Cell::new(0x9e37_79b9),
        }
    };
}

/// Returns the index of this thread's shard of counters, below [`SHARDS`].
pub(crate) fn shard() -> usize {
    THREAD.with(Thread::shard)
}

impl Thread {
    fn shard(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let shard = self.shard.get();
        if shard < SHARDS {
            return shard;
        }
        let shard = NEXT.fetch_add(1, Relaxed) % SHARDS;
        self.shard.set(shard);
        shard
    }

    /// Counts a call; returns the number of calls that it represents if it is a sample.
    fn sample(&self) -> Option<u32> {
        if let Some(left) = self.until_sample.get().checked_sub(1) {
            self.until_sample.set(left);
            return None;
        }
        let mut random = self.random.get();
        // Xorshift.
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.set(random);
        let next = 1 + random % (2 * SAMPLED - 1);
        self.until_sample.set(next - 1);
        Some(self.gap.replace(next))
    }
}

impl Sample {
    /// Begins a call; returns a sample if its latency is to be measured.
    pub(crate) fn take() -> Option<Self> {
        let calls = THREAD.with(Thread::sample)?;
        let came = Instant::now();
        Some(Self { came, calls })
    }
}

impl NfsMetrics {
    pub(crate) fn of_nfs() -> Self {
        Self::new(Counted {
            program: "nfs",
            procedure: |number| Procedure::try_from(number).ok().map(name),
            failure: |_, status| Some(nfs_failure(status)),
        })
    }
}

impl<const N: usize> Metrics<N> {
    pub(crate) fn new(of: Counted) -> Self {
        let shard = |_| Shard {
            procedures: std::array::from_fn(|_| Counters::default()),
        };
        Self {
            of,
            shards: (0..SHARDS).map(shard).collect(),
        }
    }

    /// Counts a call of a procedure when it is answered.
    pub(crate) fn count(&self, number: u32, answer: Answer, sample: Option<Sample>) -> Answer
    where
        Self: 'static,
    {
        match answer {
            Answer::Now(reply) => {
                self.answered(number, &reply, sample);
                Answer::Now(reply)
            }
            Answer::Blocking(job) => {
                let (metrics, made) = (self.clone(), Instant::now());
                Answer::Blocking(Box::new(move || {
                    let reply = job();
                    metrics.answered_by_job(number, &reply, made);
                    reply
                }))
            }
            Answer::Deferred(job) => {
                let (metrics, made) = (self.clone(), Instant::now());
                Answer::Deferred(Box::new(move |respond| {
                    job(Respond::new(move |reply| {
                        if let Some(reply) = reply {
                            metrics.answered_by_job(number, &reply, made);
                            respond.with(reply);
                        }
                    }));
                }))
            }
            later @ Answer::Later(_) => later,
        }
    }

    /// Counts a call that was answered on the task of its connection.
    pub(crate) fn answered(&self, number: u32, reply: &Reply, sample: Option<Sample>) {
        let Some(counters) = self.counters(number) else {
            return;
        };
        counters.count(self.failure_of(number, reply));
        if let Some(Sample { came, calls }) = sample {
            counters.took(came.elapsed(), calls.into());
        }
    }

    /// Counts a call that was answered by a job created at this time.
    pub(crate) fn answered_by_job(&self, number: u32, reply: &Reply, made: Instant) {
        let Some(counters) = self.counters(number) else {
            return;
        };
        counters.count(self.failure_of(number, reply));
        counters.took(made.elapsed(), 1);
    }

    /// Counts an operation of a call when its result is there.
    #[inline]
    pub(crate) fn operation(
        &self,
        number: u32,
        failure: Option<ErrorClass>,
        sample: Option<Sample>,
    ) {
        let Some(counters) = self.counters(number) else {
            return;
        };
        counters.count(failure);
        if let Some(Sample { came, calls }) = sample {
            counters.took(came.elapsed(), calls.into());
        }
    }

    /// Returns this thread's counters of a procedure, if the procedure exists.
    fn counters(&self, number: u32) -> Option<&Counters> {
        self.shards[shard()].procedures.get(number as usize)
    }

    /// Returns the statistics so far.
    pub(crate) fn stats(&self) -> ProgramStats {
        let procedures = (0..N).filter_map(|number| {
            let mut stats = ProcedureStats {
                name: (self.of.procedure)(u32::try_from(number).ok()?)?,
                calls: 0,
                errors: ErrorClass::ALL.map(|class| (class, 0)),
                latency: LatencyHistogram::default(),
            };
            for shard in self.shards.iter() {
                shard.procedures[number].add_to(&mut stats);
            }
            Some(stats)
        });
        ProgramStats {
            program: self.of.program,
            procedures: procedures.collect(),
        }
    }

    /// Returns the class of error of a reply, if the call failed.
    fn failure_of(&self, number: u32, reply: &Reply) -> Option<ErrorClass> {
        let payload = match reply {
            Reply::Message(payload) => payload,
            // The call is already being answered.
            Reply::Nothing => return None,
            Reply::Ineligible | Reply::TooLarge(_) => return Some(ErrorClass::Rpc),
        };
        // The last word of a header with an empty verifier is the status (RFC 5531 §9).
        let parts = payload.head().split_at_checked(oncrpc::REPLY_HEADER);
        let Some((_, results)) = parts.filter(|(header, _)| header.ends_with(&[0; 4])) else {
            return Some(ErrorClass::Rpc);
        };
        // NULL has no results.
        if number == 0 {
            return None;
        }
        let status = results.first_chunk();
        match status.map(|status| u32::from_be_bytes(*status)) {
            Some(0) | None => None,
            Some(status) => (self.of.failure)(number, status),
        }
    }
}

/// Returns the class of an NFS status, which is not 0.
pub(crate) fn nfs_failure(status: u32) -> ErrorClass {
    Status::try_from(status).map_or(ErrorClass::Server, ErrorClass::of)
}

impl Counters {
    fn count(&self, failure: Option<ErrorClass>) {
        self.calls.fetch_add(1, Relaxed);
        if let Some(class) = failure {
            self.errors[class as usize].fetch_add(1, Relaxed);
        }
    }

    /// Counts a latency for `calls` calls.
    #[cold]
    fn took(&self, time: Duration, calls: u64) {
        self.latency[LatencyHistogram::bucket_of(time)].fetch_add(calls, Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos.saturating_mul(calls), Relaxed);
    }

    fn add_to(&self, stats: &mut ProcedureStats) {
        stats.calls += self.calls.load(Relaxed);
        for ((_, count), counter) in stats.errors.iter_mut().zip(&self.errors) {
            *count += counter.load(Relaxed);
        }
        for (count, counter) in stats.latency.buckets.iter_mut().zip(&self.latency) {
            *count += counter.load(Relaxed);
        }
        stats.latency.sum += Duration::from_nanos(self.nanos.load(Relaxed));
    }
}

/// Returns the name of a procedure, as in RFC 1813 §3.3.
fn name(procedure: Procedure) -> &'static str {
    match procedure {
        Procedure::Null => "NULL",
        Procedure::GetAttr => "GETATTR",
        Procedure::SetAttr => "SETATTR",
        Procedure::Lookup => "LOOKUP",
        Procedure::Access => "ACCESS",
        Procedure::ReadLink => "READLINK",
        Procedure::Read => "READ",
        Procedure::Write => "WRITE",
        Procedure::Create => "CREATE",
        Procedure::MkDir => "MKDIR",
        Procedure::Symlink => "SYMLINK",
        Procedure::MkNod => "MKNOD",
        Procedure::Remove => "REMOVE",
        Procedure::RmDir => "RMDIR",
        Procedure::Rename => "RENAME",
        Procedure::Link => "LINK",
        Procedure::ReadDir => "READDIR",
        Procedure::ReadDirPlus => "READDIRPLUS",
        Procedure::FsStat => "FSSTAT",
        Procedure::FsInfo => "FSINFO",
        Procedure::PathConf => "PATHCONF",
        Procedure::Commit => "COMMIT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(bucket: usize) -> u128 {
        LatencyHistogram::bound(bucket).map_or(u128::MAX, |bound| bound.as_micros())
    }

    #[test]
    fn each_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for nanos in [0, 1, 999, 1000, 1001, 2000, 2001, 1_000_000, 8_388_608_000] {
            let bucket = LatencyHistogram::bucket_of(Duration::from_nanos(nanos));
            assert!(
                u128::from(nanos) <= micros(bucket).saturating_mul(1000),
                "{nanos}"
            );
            assert!(
                bucket == 0 || u128::from(nanos) > micros(bucket - 1) * 1000,
                "{nanos}"
            );
        }
        let last = LatencyHistogram::bucket_of(Duration::from_secs(1 << 40));
        assert_eq!(
            (last, LatencyHistogram::bound(last)),
            (LATENCY_BUCKETS - 1, None)
        );
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let mut latency = LatencyHistogram::default();
        assert_eq!(latency.quantile(0.5), None);
        latency.buckets[3] = 98;
        latency.buckets[10] = 1;
        latency.buckets[LATENCY_BUCKETS - 1] = 1;
        let quantile = |part| latency.quantile(part).expect("there are calls");
        assert_eq!(quantile(0.5), Duration::from_micros(8));
        assert_eq!(quantile(0.99), Duration::from_micros(1024));
        assert_eq!(quantile(1.0), Duration::from_micros(1 << 23));
    }

    #[test]
    fn samples_count_for_the_calls_that_they_stand_for() {
        let metrics = NfsMetrics::of_nfs();
        let calls = 10_000;
        let mut samples = 0;
        // Whatever the pattern is, each procedure of it has its part.
        for call in 0..calls {
            let sample = Sample::take();
            samples += u32::from(sample.is_some());
            let number = [Procedure::Null, Procedure::Read][call as usize % 2];
            metrics.answered(number as u32, &Reply::Nothing, sample);
        }
        let stats = metrics.stats();
        let [null, read] = [Procedure::Null, Procedure::Read].map(|p| {
            let stats = &stats.procedures[p as usize];
            assert_eq!(stats.calls, u64::from(calls / 2), "{}", stats.name);
            stats.latency.count()
        });
        let all = null + read;
        assert!(
            all <= calls.into() && all + u64::from(2 * SAMPLED) > calls.into(),
            "{all}"
        );
        assert!(null.min(read) > u64::from(calls / 3), "{null} {read}");
        assert!(samples < calls / (SAMPLED - 2), "{samples}");
    }

    #[test]
    fn counts_of_threads_add_up() {
        let metrics = NfsMetrics::of_nfs();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let (failed, now) = (Reply::Ineligible, Instant::now());
                    metrics.answered_by_job(Procedure::Commit as u32, &failed, now);
                });
            }
        });
        let stats = metrics.stats();
        let commit = stats.procedures.last().expect("there are some");
        assert_eq!(
            (commit.name, commit.calls, commit.failed()),
            ("COMMIT", 4, 4)
        );
        assert_eq!(commit.latency.count(), 4);
    }
}
