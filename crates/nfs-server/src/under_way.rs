//! How many calls of a program may be answered beside others.
//!
//! A transport has limits of its own for each connection. But what waits for a disk goes on waiting
//! when its connection ends, so that a client which connects again and again could pile up more.

use oncrpc::Answer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts the calls of a program that are under way.
#[derive(Clone)]
pub(crate) struct UnderWay {
    most: usize,
    now: Arc<AtomicUsize>,
}

impl UnderWay {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            now: Arc::default(),
        }
    }

    /// Whether there are so many that a further call has to be put off.
    pub(crate) fn is_full(&self) -> bool {
        self.now.load(Relaxed) >= self.most
    }

    /// The same answer, counted until it is there or given up, if it takes longer.
    pub(crate) fn count(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Now(reply) => Answer::Now(reply),
            Answer::Blocking(job) => {
                let counted = Counted::new(self);
                Answer::Blocking(Box::new(move || {
                    let _counted = counted;
                    job()
                }))
            }
            Answer::Later(future) => {
                let counted = Counted::new(self);
                Answer::Later(Box::pin(async move {
                    let _counted = counted;
                    future.await
                }))
            }
        }
    }
}

/// One of those under way.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(all: &UnderWay) -> Self {
        all.now.fetch_add(1, Relaxed);
        Self(Arc::clone(&all.now))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
