//! The load: tasks that make one call after another, and what came of the calls.

use super::progress::Progress;
use super::server_stats::ServerStats;
use super::subject::Subject;
use super::workload::{Operation, Sequence, Workload};
use crate::interrupt::{Interrupt, Interrupted};
use anyhow::{Context, Error, Result, ensure};
use bytes::Bytes;
use nfs_client::{Export, Fault, Nfs3};
use nfs_proto::{FileHandle, Stable};
use oncrpc::RpcError;
use oncrpc::xdr::{Gather, gather_len};
use printing::latency::Latencies;
use printing::work::Work;
use rpcrdma::{Client, IoCounters};
use rustix::time::{ClockId, clock_gettime};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// How often the progress is shown.
const SHOWN_EACH: Duration = Duration::from_millis(500);

/// A measurement that can begin.
pub(super) struct Load {
    callee: Arc<Callee>,
    client: Client,
    workload: Workload,
    size: u64,
}

/// Program that is called.
enum Callee {
    Null(Arc<Nfs3<Client>>),
    File {
        export: Arc<Export<Client>>,
        handle: FileHandle,
        /// Path in the export, for errors.
        path: Vec<u8>,
        bs: u32,
        /// A block to write.
        data: Bytes,
        stable: Stable,
    },
}

/// Results of calls of one kind.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) bytes: u64,
    /// Calls that moved less than a block.
    pub(super) short: u64,
    pub(super) latencies: Latencies,
}

/// Result of a measurement.
#[derive(Debug)]
pub(super) struct Outcome {
    /// From the end of the ramp time to the end of the last call.
    pub(super) elapsed: Duration,
    pub(super) null: Recorded,
    pub(super) read: Recorded,
    pub(super) write: Recorded,
    /// CPU time of this process by wall time.
    pub(super) cpu: f64,
    /// How long the COMMIT took that followed.
    pub(super) commit: Option<Duration>,
    /// Work of the client since the end of the ramp time.
    pub(super) work: Option<Work>,
    /// Work of the server since then, or why it is not known.
    pub(super) server_work: Option<Result<Work>>,
    /// Why it ended before its time.
    pub(super) error: Option<Error>,
}

/// A call that has ended.
struct Done {
    operation: Operation,
    took: Duration,
    bytes: usize,
}

/// State shared by the tasks.
struct Shared {
    state: Mutex<State>,
    client: Client,
    /// When the ramp time ends.
    from: Instant,
    until: Instant,
    bs: usize,
}

struct State {
    sequence: Sequence,
    null: Recorded,
    read: Recorded,
    write: Recorded,
    /// When the last recorded call ended.
    last: Option<Instant>,
    /// Of all calls, also those that are not recorded.
    calls: u64,
    bytes: u64,
    /// Counters of the client at the end of the ramp time, and `calls` then.
    ramped: Option<(IoCounters, u64)>,
}

impl Outcome {
    /// One that ended before the first call.
    pub(super) fn failed(error: Error) -> Self {
        Self {
            elapsed: Duration::ZERO,
            null: Recorded::default(),
            read: Recorded::default(),
            write: Recorded::default(),
            cpu: 0.0,
            commit: None,
            work: None,
            server_work: None,
            error: Some(error),
        }
    }
}

impl Load {
    /// NULL calls.
    pub(super) fn null(client: Client, nfs: Arc<Nfs3<Client>>, workload: Workload) -> Self {
        Self {
            callee: Arc::new(Callee::Null(nfs)),
            client,
            workload,
            size: 0,
        }
    }

    /// READs and WRITEs, of this data.
    pub(super) fn file(subject: &Subject, workload: Workload, data: &Bytes) -> Self {
        let callee = Callee::File {
            export: Arc::clone(&subject.export),
            handle: subject.handle,
            path: subject.path.clone(),
            bs: workload.bs,
            data: data.slice(..workload.bs as usize),
            stable: workload.sync.stable(),
        };
        Self {
            callee: Arc::new(callee),
            client: subject.client().clone(),
            workload,
            size: subject.size,
        }
    }

    /// Makes calls until the time is over, one fails, or the user interrupts. Asks for the work of the server too, if its
    /// control socket is given.
    pub(super) async fn run(
        self,
        server: Option<&ServerStats>,
        interrupt: &Interrupt,
        progress: &Progress,
    ) -> Outcome {
        let has_ramp = !self.workload.ramp_time.is_zero();
        let mut server_before = match server {
            // Calls of the preparation are not to be among those that are counted.
            Some(server) if !has_ramp => Some(server.settled(&self.client).await),
            Some(_) | None => None,
        };
        let begin = Instant::now();
        let from = begin + self.workload.ramp_time;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                sequence: Sequence::new(&self.workload, self.size),
                null: Recorded::default(),
                read: Recorded::default(),
                write: Recorded::default(),
                last: None,
                calls: 0,
                bytes: 0,
                ramped: None,
            }),
            client: self.client,
            from,
            until: from + self.workload.time,
            bs: self.workload.bs as usize,
        });
        let cpu_before = cpu_time();
        let mut tasks = JoinSet::new();
        for _ in 0..self.workload.calls() {
            tasks.spawn(calls(Arc::clone(&self.callee), Arc::clone(&shared)));
        }
        let error = {
            let mut watching = pin!(watch(&mut tasks, &shared, begin, interrupt, progress));
            match server {
                Some(server) if has_ramp => {
                    let ramped = async {
                        tokio::time::sleep_until(from.into()).await;
                        server.totals().await
                    };
                    tokio::select! {
                        error = &mut watching => error,
                        totals = ramped => {
                            server_before = Some(totals);
                            watching.await
                        }
                    }
                }
                Some(_) | None => watching.await,
            }
        };
        // Calls that wait for replies, after an error or an interrupt.
        tasks.shutdown().await;
        progress.finish();
        let cpu = (cpu_time() - cpu_before).as_secs_f64() / begin.elapsed().as_secs_f64();
        let mut outcome = shared.outcome(cpu, error);
        let calls = outcome.work.as_ref().map_or(0, Work::calls);
        if let Some(server) = server {
            let counted = async {
                let before = server_before.context("it ended before the ramp time")??;
                before.until(server.settled(&shared.client).await?, calls)
            };
            outcome.server_work = Some(counted.await);
        }
        outcome
    }
}

/// Waits for the end of all tasks, and shows the progress; why it ended before, if it did.
async fn watch(
    tasks: &mut JoinSet<Result<()>>,
    shared: &Shared,
    begin: Instant,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Option<Error> {
    let mut tick = tokio::time::interval(SHOWN_EACH);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut calls_before, mut bytes_before) = (begin, 0, 0);
    loop {
        tokio::select! {
            biased;
            signal = interrupt.signal() => return Some(Interrupted(signal).into()),
            ended = tasks.join_next() => match ended? {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Some(error),
                Err(error) => return Some(error.into()),
            },
            _ = tick.tick() => {
                let (now, (calls, bytes)) = (Instant::now(), shared.so_far());
                let seconds = (now - before).as_secs_f64().max(1e-9);
                let rate = |now: u64, before: u64| (now - before) as f64 / seconds;
                progress.measured(
                    now - begin,
                    shared.until - begin,
                    rate(calls, calls_before),
                    rate(bytes, bytes_before),
                );
                (before, calls_before, bytes_before) = (now, calls, bytes);
            }
        }
    }
}

/// Makes one call after another until the time is over.
async fn calls(callee: Arc<Callee>, shared: Arc<Shared>) -> Result<()> {
    let mut done = None;
    let mut now = Instant::now();
    // The end of one call is the beginning of the next.
    while let Some(operation) = shared.turn(now, done.take()) {
        let bytes = callee.call(operation).await?;
        let end = Instant::now();
        done = Some(Done {
            operation,
            took: end - now,
            bytes,
        });
        now = end;
    }
    Ok(())
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls and bytes so far.
    fn so_far(&self) -> (u64, u64) {
        let state = self.state();
        (state.calls, state.bytes)
    }

    /// Result of the calls.
    fn outcome(&self, cpu: f64, error: Option<Error>) -> Outcome {
        let mut state = self.state();
        let work = state.ramped.take().and_then(|(before, calls)| {
            let mut done = self.client.io_counters();
            done -= before;
            Work::new(&printing::work::counts(&done), state.calls - calls)
        });
        Outcome {
            elapsed: state.last.map_or(Duration::ZERO, |last| last - self.from),
            null: std::mem::take(&mut state.null),
            read: std::mem::take(&mut state.read),
            write: std::mem::take(&mut state.write),
            cpu,
            commit: None,
            work,
            server_work: None,
            error,
        }
    }

    /// Records a call that has ended now, and says what the next one is to do.
    fn turn(&self, now: Instant, done: Option<Done>) -> Option<Operation> {
        let mut state = self.state();
        if let Some(done) = done {
            state.calls += 1;
            state.bytes += done.bytes as u64;
            if now >= self.from {
                state.last = Some(now);
                let (recorded, block) = match done.operation {
                    Operation::Null => (&mut state.null, 0),
                    Operation::Read(_) => (&mut state.read, self.bs),
                    Operation::Write(_) => (&mut state.write, self.bs),
                };
                recorded.latencies.record(done.took);
                recorded.bytes += done.bytes as u64;
                recorded.short += u64::from(done.bytes < block);
            }
        }
        if now >= self.from && state.ramped.is_none() {
            state.ramped = Some((self.client.io_counters(), state.calls));
        }
        (now < self.until).then(|| state.sequence.next())
    }
}

impl Callee {
    /// Makes one call: how many bytes of data it moved.
    async fn call(&self, operation: Operation) -> Result<usize> {
        let Self::File {
            export,
            handle,
            path,
            bs,
            data,
            stable,
        } = self
        else {
            return self.call_null().await;
        };
        match operation {
            Operation::Null => self.call_null().await,
            Operation::Read(offset) => {
                let read = export.nfs().read(*handle, offset, *bs).await;
                let read = read.map_err(|fault| fault.at("read", path))?;
                let bytes = gather_len(&read.data);
                ensure!(
                    bytes > 0,
                    "no data at offset {offset}: was the file truncated?"
                );
                Ok(bytes)
            }
            Operation::Write(offset) => {
                let data = Gather::from_elem(data.clone(), 1);
                let written = export.nfs().write(*handle, offset, data, *stable).await;
                Ok(written.map_err(|fault| fault.at("write", path))?.count)
            }
        }
    }

    async fn call_null(&self) -> Result<usize> {
        let called = match self {
            Self::Null(nfs) => nfs.null().await,
            Self::File { export, .. } => export.nfs().null().await,
        };
        match called {
            // That there is no NFS version 3 was a round trip too.
            Ok(()) | Err(Fault::Rpc(RpcError::ProgUnavail | RpcError::ProgMismatch { .. })) => {
                Ok(0)
            }
            Err(fault) => Err(fault).context("a NULL call failed"),
        }
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
