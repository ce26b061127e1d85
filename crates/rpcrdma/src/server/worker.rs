//! Worker threads of a server, each with its own runtime.

use crate::driver::spin::Activity;
use buffer::Pool;
use rpc_serving::ends::Stop;
use rpc_serving::jobs::{MAX_BLOCKING, MAX_STUCK};
use rpc_serving::workers::Worker as SharedWorker;
use std::io;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Bytes of returned buffers that a worker keeps for reuse.
const KEEP: usize = 16 << 20;

/// A worker serves connections, on a thread of its own or on the current runtime.
#[derive(Debug)]
pub(super) struct Worker {
    /// Its event loop, which servers over other transports may use too.
    pub(super) shared: SharedWorker,
    pub(super) activity: Activity,
    pub(super) pool: Pool,
    /// Dropped to end the thread, or else what was spawned.
    running: Running,
}

#[derive(Debug)]
enum Running {
    Thread { _until: oneshot::Sender<()> },
    Here(Stop),
}

impl Worker {
    /// Starts a worker.
    pub(super) fn start(number: usize, pool: Option<Pool>) -> io::Result<Self> {
        // Threads for jobs of this server, and of one over another transport on the same event loops.
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2 * (MAX_BLOCKING + MAX_STUCK))
            .thread_name(format!("rpcrdma-{number}-slow"))
            .build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name(format!("rpcrdma-{number}"))
            .spawn(move || {
                // It ends when the sender is dropped, whatever that says.
                let _ = runtime.block_on(ended);
                runtime.shutdown_background();
            })?;
        Ok(Self {
            shared: SharedWorker::new(handle),
            activity: Activity::default(),
            pool: pool.unwrap_or_else(|| Pool::new(KEEP)),
            running: Running::Thread { _until: running },
        })
    }

    /// A worker on the current runtime, without a thread of its own.
    pub(super) fn here(pool: Option<Pool>) -> Self {
        Self {
            shared: SharedWorker::new(Handle::current()),
            activity: Activity::default(),
            pool: pool.unwrap_or_else(|| Pool::new(KEEP)),
            running: Running::Here(Stop::default()),
        }
    }

    /// Runs a task for as long as the worker exists.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match &self.running {
            Running::Thread { .. } => drop(self.shared.runtime().spawn(task)),
            Running::Here(gone) => {
                let mut gone = gone.join();
                self.shared.runtime().spawn(async move {
                    tokio::select! {
                        biased;
                        _ = gone.asked() => {}
                        () = task => {}
                    }
                });
            }
        }
    }

    /// Waits until the worker has run a task that is queued now.
    pub(super) async fn respond(&self) {
        let (responds, response) = oneshot::channel();
        self.spawn(async {
            // Nobody may wait for it any more.
            let _ = responds.send(());
        });
        if response.await.is_err() {
            // It has ended, and will never run anything.
            std::future::pending::<()>().await;
        }
    }

    /// The worker with the fewest connections.
    pub(super) fn least_loaded(workers: &[Self]) -> &Self {
        workers
            .iter()
            .min_by_key(|worker| worker.shared.load())
            .expect("a server has a worker")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Running::Here(gone) = &self.running {
            gone.set();
        }
    }
}
