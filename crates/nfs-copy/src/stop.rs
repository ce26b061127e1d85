//! A request to stop a copy before all is done.

use crate::error::{Error, Result};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// A request to stop, which may come at any time. Clones share it.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// No request so far.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Asks copies with this to stop: incomplete files are removed, or kept to be [resumed](crate::Options::resumes), and
    /// the copies end with [`Error::Stopped`].
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// Waits for the request.
    async fn requested(&self) {
        let mut requested = self.0.subscribe();
        // The sender is here.
        let _ = requested.wait_for(|requested| *requested).await;
    }

    /// Does something unless the request comes before it is done.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`], or the error of what is done.
    pub(crate) async fn unless<T>(&self, done: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.requested() => Err(Error::Stopped),
            done = done => done,
        }
    }

    /// Does something that is not to be left half done, but waits for it no longer than `patience` after the request.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`], or the error of what is done.
    pub(crate) async fn unless_late<T, E: Into<Error>>(
        &self,
        patience: Duration,
        done: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        let late = async {
            self.requested().await;
            sleep(patience).await;
        };
        tokio::select! {
            biased;
            done = done => done.map_err(Into::into),
            () = late => Err(Error::Stopped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn request_ends_what_can_be_left_at_once_and_other_things_when_patience_ends() {
        let stop = Stop::new();
        assert_eq!(stop.unless(async { Ok(1) }).await.unwrap(), 1);
        stop.clone().request();
        let begin = Instant::now();
        assert!(matches!(
            stop.unless(async { Ok(1) }).await,
            Err(Error::Stopped)
        ));
        assert_eq!(begin.elapsed(), Duration::ZERO);
        let patience = Duration::from_secs(3);
        let done = stop
            .unless_late(patience, async { Ok::<_, Error>(1) })
            .await;
        assert_eq!(done.unwrap(), 1);
        let late = stop.unless_late(patience, pending::<Result<()>>()).await;
        assert!(matches!(late, Err(Error::Stopped)));
        assert_eq!(begin.elapsed(), patience);
    }
}
