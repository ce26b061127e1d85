//! Operations on many files: so many at a time that they do not wait for each other's round trips.

use crate::failure::Ended;
use tokio::task::{JoinError, JoinSet};

/// Operations on files that are in flight at a time.
pub(crate) const OPERATIONS_IN_FLIGHT: usize = 64;

/// Operations in flight, and how those before them ended.
pub(crate) struct InFlight {
    tasks: JoinSet<anyhow::Result<()>>,
    ended: Ended,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            ended: Ended::Well,
        }
    }

    /// Begins with an operation once fewer than [`OPERATIONS_IN_FLIGHT`] are in flight.
    ///
    /// # Errors
    ///
    /// Those of earlier ones that concern the whole command. Others are printed.
    pub(crate) async fn begin(
        &mut self,
        operation: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> anyhow::Result<()> {
        while self.tasks.len() >= OPERATIONS_IN_FLIGHT
            && let Some(ended) = self.tasks.join_next().await
        {
            self.ended.check(returned(ended))?;
        }
        self.tasks.spawn(operation);
        Ok(())
    }

    /// Prints why something was not done, if it was not.
    ///
    /// # Errors
    ///
    /// Those that concern the whole command.
    pub(crate) fn check(&mut self, part: anyhow::Result<()>) -> anyhow::Result<()> {
        self.ended.check(part)
    }

    /// Waits until nothing is in flight.
    ///
    /// # Errors
    ///
    /// The first of those that concern the whole command.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        let mut settled = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            let checked = self.ended.check(returned(ended));
            settled = settled.and(checked);
        }
        settled
    }

    /// How all of them ended; nothing is in flight any more.
    pub(crate) fn ended(&self) -> Ended {
        self.ended
    }
}

fn returned(ended: Result<anyhow::Result<()>, JoinError>) -> anyhow::Result<()> {
    ended.expect("an operation does not panic, and nobody aborts it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[tokio::test]
    async fn number_of_operations_in_flight_is_bounded_and_one_that_fails_stops_no_other() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let done = Arc::new(AtomicUsize::new(0));
        let mut all = InFlight::new();
        for number in 0..5 * OPERATIONS_IN_FLIGHT {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            let done = Arc::clone(&done);
            let operation = async move {
                most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Relaxed);
                if number == 7 {
                    anyhow::bail!("expected by a test");
                }
                done.fetch_add(1, Relaxed);
                Ok(())
            };
            all.begin(operation).await.unwrap();
        }
        all.settle().await.unwrap();
        assert_eq!(all.ended(), Ended::Partly);
        assert_eq!(done.load(Relaxed), 5 * OPERATIONS_IN_FLIGHT - 1);
        assert_eq!(most.load(Relaxed), OPERATIONS_IN_FLIGHT);
    }
}
