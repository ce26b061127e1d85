//! Handling of SIGINT and SIGTERM.

use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

/// SIGINT or SIGTERM: the first one asks, a second one ends the process at once.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(watch::Receiver<bool>);

/// The user asked for an end before all was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

impl Interrupt {
    /// Listens from now on. Signals do not end the process by themselves any more.
    ///
    /// # Errors
    ///
    /// If the system does not let us.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let (asked, receiver) = watch::channel(false);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::spawn(async move {
            loop {
                let number = tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
                    _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
                };
                if asked.send_replace(true) {
                    // The exit code of a process that a signal ended, as a shell sees it.
                    std::process::exit(128 + number);
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Waits until the user asks for the end.
    pub(crate) async fn wait(&self) {
        // The sender lives as long as the event loop, and so longer than anybody who waits.
        let _ = self.0.clone().wait_for(|asked| *asked).await;
    }

    /// Does something unless the user asks for the end before it is done.
    ///
    /// # Errors
    ///
    /// [`Interrupted`], or the error of what is done.
    pub(crate) async fn unless<T>(
        &self,
        done: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        tokio::select! {
            biased;
            () = self.wait() => Err(Interrupted.into()),
            done = done => done,
        }
    }

    /// Does something that is not to be left half done, but waits for it no longer than this after the user
    /// has asked for the end.
    ///
    /// # Errors
    ///
    /// [`Interrupted`], or the error of what is done.
    pub(crate) async fn unless_late<T, E: Into<anyhow::Error>>(
        &self,
        patience: Duration,
        done: impl Future<Output = Result<T, E>>,
    ) -> anyhow::Result<T> {
        let late = async {
            self.wait().await;
            sleep(patience).await;
        };
        tokio::select! {
            biased;
            done = done => done.map_err(Into::into),
            () = late => Err(Interrupted.into()),
        }
    }
}
