//! Event loops that several servers share, so that connections over different transports run on the same threads.

use crate::turns::EventLoop;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::runtime::Handle;

/// An event loop that serves connections.
#[derive(Clone, Debug)]
pub struct Worker {
    runtime: Handle,
    turns: EventLoop,
    load: Arc<AtomicUsize>,
}

impl Worker {
    /// The event loop of this runtime, with no connections.
    pub fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            turns: EventLoop::default(),
            load: Arc::default(),
        }
    }

    /// The runtime.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The turns of its connections.
    pub fn turns(&self) -> &EventLoop {
        &self.turns
    }

    /// Number of its connections.
    pub fn load(&self) -> usize {
        self.load.load(Relaxed)
    }

    /// Counts a connection until what is returned is dropped.
    pub fn carry(&self) -> Load {
        self.load.fetch_add(1, Relaxed);
        Load(Arc::clone(&self.load))
    }
}

/// One connection in the load of an event loop.
#[derive(Debug)]
pub struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The event loops of a server, which run at least as long as a clone of this exists.
#[derive(Clone)]
pub struct Workers {
    /// At least one.
    all: Arc<[Worker]>,
    _running: Arc<dyn Any + Send + Sync>,
}

impl Workers {
    /// These event loops, which `running` keeps from ending.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn new(all: impl IntoIterator<Item = Worker>, running: Arc<dyn Any + Send + Sync>) -> Self {
        let all: Arc<[Worker]> = all.into_iter().collect();
        assert!(!all.is_empty(), "a server has an event loop");
        Self {
            all,
            _running: running,
        }
    }

    /// The first event loop, which accepts connections.
    pub fn first(&self) -> &Worker {
        &self.all[0]
    }

    /// The event loop with the fewest connections.
    pub fn least_loaded(&self) -> &Worker {
        let all = self.all.iter();
        all.min_by_key(|worker| worker.load())
            .unwrap_or(&self.all[0])
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workers").field(&self.all).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_go_to_the_event_loop_with_the_fewest_while_they_last() {
        let workers = [(); 2].map(|()| Worker::new(Handle::current()));
        let workers = Workers::new(workers, Arc::new(()));
        let first = workers.least_loaded().carry();
        let second = workers.least_loaded().carry();
        assert!(workers.all.iter().all(|worker| worker.load() == 1));
        drop(second);
        assert_eq!(
            (workers.first().load(), workers.least_loaded().load()),
            (1, 0)
        );
        drop(first);
    }
}
