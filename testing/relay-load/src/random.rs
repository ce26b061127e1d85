//! READs at random places of the file, on several connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use programs::cpu;
use serde_json::json;
use tokio::task::JoinSet;

use crate::load::{File, word};
use crate::{Place, open, runtime};

/// Bytes of a READ.
const LEN: u32 = 4096;

/// READs in flight on each connection.
const DEPTH: usize = 32;

/// The warm-up takes this fraction of the measured time. A server over RDMA grants more credits meanwhile.
const WARM_UP: u32 = 4;

/// How often it is looked whether all connections are there.
const LOOK: Duration = Duration::from_millis(5);

/// Amount and kind of the load.
#[derive(Args)]
pub(crate) struct Load {
    /// Connections, which are shared by as many threads as there are CPUs
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,

    /// Seed of the offsets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// A process of the server on this machine, or a thread of the kernel (may be given again)
    #[arg(long, value_name = "PID", required = true)]
    server: Vec<u32>,
}

/// State shared by all threads.
#[derive(Default)]
struct Progress {
    /// Connections that were made.
    open: AtomicUsize,
    /// READs that were answered.
    done: AtomicU64,
    /// The READs are to end.
    is_over: AtomicBool,
}

/// Ends all threads when one of them ends.
struct Ends(Arc<Progress>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

/// Counters at one time.
struct Sample {
    at: Instant,
    done: u64,
    server: f64,
    client: f64,
    machine: f64,
}

/// Reads for so long after a warm-up, and says how many READs there were and what they cost.
///
/// # Errors
///
/// A connection cannot be made, or a READ fails or returns something else than "check" has written there.
pub(crate) fn run(place: &Place, load: &Load, time: Duration) -> Result<()> {
    let connections = usize::from(load.connections);
    let threads = thread::available_parallelism()?.get().min(connections);
    let progress = Arc::new(Progress::default());
    thread::scope(|scope| {
        let reading: Vec<_> = (0..threads)
            .map(|first| {
                let ends = Ends(Arc::clone(&progress));
                let own = (first..connections).step_by(threads);
                scope.spawn(move || runtime()?.block_on(read(place, load.seed, own, &ends.0)))
            })
            .collect();
        let measured = {
            let _ends = Ends(Arc::clone(&progress));
            measure(&progress, load, time)
        };
        // What a thread says is why it could not be measured.
        for thread in reading {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        println!("{}", measured?);
        Ok(())
    })
}

fn measure(progress: &Progress, load: &Load, time: Duration) -> Result<serde_json::Value> {
    while progress.open.load(Relaxed) < usize::from(load.connections) {
        ensure!(!progress.is_over.load(Relaxed), "a thread ended");
        thread::sleep(LOOK);
    }
    thread::sleep(time / WARM_UP);
    let before = Sample::take(progress, &load.server)?;
    thread::sleep(time);
    let after = Sample::take(progress, &load.server)?;
    ensure!(after.done > before.done, "no READ was answered");
    Ok(json!({
        "connections": load.connections,
        "operations": after.done - before.done,
        "seconds": (after.at - before.at).as_secs_f64(),
        "server_seconds": after.server - before.server,
        "client_seconds": after.client - before.client,
        "machine_seconds": after.machine - before.machine,
    }))
}

impl Sample {
    fn take(progress: &Progress, server: &[u32]) -> Result<Self> {
        let server: Result<Vec<f64>> = server.iter().map(cpu::of_process).collect();
        Ok(Self {
            at: Instant::now(),
            done: progress.done.load(Relaxed),
            server: server?.iter().sum(),
            client: cpu::of_process("self")?,
            machine: cpu::of_machine()?.used,
        })
    }
}

/// Makes these connections, and reads on all of them until it is over.
async fn read(
    place: &Place,
    seed: u64,
    connections: impl Iterator<Item = usize>,
    progress: &Arc<Progress>,
) -> Result<()> {
    let mut reads = JoinSet::new();
    for number in connections {
        let file = Arc::new(open(place).await?);
        let mut offsets = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
        for _ in 0..DEPTH {
            let (file, progress) = (Arc::clone(&file), Arc::clone(progress));
            reads.spawn(one_after_the_other(file, offsets.fork(), progress));
        }
        progress.open.fetch_add(1, Relaxed);
    }
    while let Some(ended) = reads.join_next().await {
        ended??;
    }
    Ok(())
}

async fn one_after_the_other(
    file: Arc<File>,
    mut offsets: fastrand::Rng,
    progress: Arc<Progress>,
) -> Result<()> {
    let parts = file.size() / u64::from(LEN);
    while !progress.is_over.load(Relaxed) {
        let offset = offsets.u64(..parts) * u64::from(LEN);
        let read = file.read_part(offset, LEN).await?;
        ensure!(
            read == word(offset),
            "other data at offset {offset} than was written"
        );
        progress.done.fetch_add(1, Relaxed);
    }
    Ok(())
}
