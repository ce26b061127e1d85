//! Handling of SIGINT, SIGTERM and SIGHUP.
//!
//! A command that has something to clean up listens to these signals, cleans up, and then ends by the default
//! action of the signal ([`end_by`]), as if it had never handled it: a shell sees 130 for SIGINT, 143 for
//! SIGTERM and 129 for SIGHUP, and a script that runs the command in a loop ends on Ctrl-C too. All other
//! commands leave these signals alone, with the same outcome. A signal that was ignored when the program began,
//! as by nohup(1), stays ignored.

use rustix::process::{Signal, getpid};
use signal_hook::low_level::emulate_default_handler;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

/// Signals that end a copy.
const OF_A_COPY: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Signals that end other commands in good order: SIGHUP has a meaning of its own for a server.
const OF_A_SERVER: [Signal; 2] = [Signal::INT, Signal::TERM];

/// How long a server may take to end: what peers do not let it close in order is dropped then.
const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(9);

/// Ends a server in order, or without what takes too long.
pub(crate) async fn end_server(ending: impl Future<Output = ()>) {
    if tokio::time::timeout(SERVER_ENDS_WITHIN, ending)
        .await
        .is_err()
    {
        warn_of_connections();
    }
}

fn warn_of_connections() {
    tracing::warn!("ends without some connections, whose clients do not let them be closed");
}

/// A signal that asks for the end: the first one asks, a second one ends the process at once.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(watch::Receiver<Option<Signal>>);

/// The user asked by this signal for an end before all was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted(pub(crate) Signal);

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error, EFBIG, where SIGXFSZ would end the
/// process. There is nothing to do when the signal comes.
fn heed_file_size_limit() -> anyhow::Result<()> {
    // Its handler stays when this is dropped.
    drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
    Ok(())
}

impl Interrupt {
    /// Listens to SIGINT and SIGTERM from now on, whether they were ignored or not. They do not end the
    /// process by themselves any more.
    ///
    /// # Errors
    ///
    /// If the system does not let us.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Self::listen_to(OF_A_SERVER.into_iter())
    }

    /// Listens to SIGINT, SIGTERM and SIGHUP from now on, but to none that is ignored so far.
    ///
    /// # Errors
    ///
    /// If the system does not let us.
    pub(crate) fn of_copy() -> anyhow::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let heeded = OF_A_COPY
            .into_iter()
            .filter(|signal| !is_ignored(&status, *signal));
        Self::listen_to(heeded)
    }

    fn listen_to(signals: impl Iterator<Item = Signal>) -> anyhow::Result<Self> {
        heed_file_size_limit()?;
        let (asked, receiver) = watch::channel(None);
        let (tell, mut told) = mpsc::unbounded_channel();
        for number in signals {
            let mut signals = signal(SignalKind::from_raw(number.as_raw()))?;
            let tell = tell.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    if tell.send(number).is_err() {
                        return;
                    }
                }
            });
        }
        tokio::spawn(async move {
            // Those who tell, live as long as the event loop.
            let _tell = tell;
            while let Some(signal) = told.recv().await {
                if asked.send_replace(Some(signal)).is_some() {
                    end_by(signal);
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Waits until the user asks for the end.
    pub(crate) async fn wait(&self) {
        self.signal().await;
    }

    /// Waits until the user asks for the end, and tells by which signal.
    pub(crate) async fn signal(&self) -> Signal {
        let mut asked = self.0.clone();
        // The sender lives as long as the event loop, and so longer than anybody who waits.
        match asked.wait_for(Option::is_some).await.map(|signal| *signal) {
            Ok(Some(signal)) => signal,
            Ok(None) | Err(_) => std::future::pending().await,
        }
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
            signal = self.signal() => Err(Interrupted(signal).into()),
            done = done => done,
        }
    }

    /// Runs a server to its end, which begins when the user asks for it. Then it may take as long as [`end_server`] lets it,
    /// with the work that it was at.
    pub(crate) async fn end_in_time(&self, running: impl Future<Output = ()>) {
        let running = async {
            running.await;
            Ok::<(), anyhow::Error>(())
        };
        if self.unless_late(SERVER_ENDS_WITHIN, running).await.is_err() {
            warn_of_connections();
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
            let signal = self.signal().await;
            sleep(patience).await;
            signal
        };
        tokio::select! {
            biased;
            done = done => done.map_err(Into::into),
            signal = late => Err(Interrupted(signal).into()),
        }
    }
}

/// The exit code that a shell has for a process that a signal ended.
pub(crate) fn exit_code(signal: Signal) -> i32 {
    128 + signal.as_raw()
}

/// Ends the process by the default action of a signal. Where that does not end it, as with the first process
/// of a container, it exits with the [code](exit_code) that a shell has for it.
pub(crate) fn end_by(signal: Signal) -> ! {
    if !getpid().is_init() {
        // It returns only where the signal is unknown.
        let _ = emulate_default_handler(signal.as_raw());
    }
    std::process::exit(exit_code(signal))
}

/// Whether a process with this status (proc_pid_status(5)) ignores a signal.
pub(crate) fn is_ignored(status: &str, signal: Signal) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal number 1 is bit 0.
    ignored.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn end_of_a_server_is_not_up_to_its_clients() {
        let begin = tokio::time::Instant::now();
        end_server(std::future::pending()).await;
        assert!(begin.elapsed() < Duration::from_secs(10));
        end_server(async {}).await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_a_server_is_at_takes_of_the_time_to_end() {
        let (_asked, receiver) = watch::channel(Some(Signal::TERM));
        let begin = tokio::time::Instant::now();
        let working = sleep(Duration::from_secs(5));
        let ended = async {
            working.await;
            end_server(std::future::pending()).await;
        };
        Interrupt(receiver).end_in_time(ended).await;
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn ignored_signal_is_seen_in_the_status_of_the_process() {
        let check = |status: &str, signal, ignored| {
            assert_eq!(is_ignored(status, signal), ignored, "{status}");
        };
        let hangup = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        check(hangup, Signal::HUP, true);
        check(hangup, Signal::INT, false);
        check(
            "SigIgn:\t0000000000001002\nSigCgt:\t1\n",
            Signal::HUP,
            false,
        );
        check("SigIgn:\t0000000000001002\nSigCgt:\t1\n", Signal::INT, true);
        check("", Signal::HUP, false);
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(OF_A_COPY.map(exit_code), [130, 143, 129]);
    }
}
