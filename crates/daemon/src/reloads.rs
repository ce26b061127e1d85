//! Counts of the reloads of a service, which `server::operation` and `gateway::operation` make.

use crate::control::ReloadStatus;
use std::time::Instant;

/// Numbers of reloads, and the outcome of the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reloads {
    /// Reloads after which the service was that of the file.
    pub(crate) succeeded: u64,
    /// Reloads after which it was not.
    pub(crate) failed: u64,
    /// Time of the last one.
    pub(crate) last: Option<Instant>,
    /// Error of the last one, if it failed.
    pub(crate) last_error: Option<String>,
}

impl Reloads {
    /// Counts a reload that ends now.
    pub(crate) fn record(&mut self, result: Result<(), String>) {
        match &result {
            Ok(()) => self.succeeded += 1,
            Err(_) => self.failed += 1,
        }
        self.last = Some(Instant::now());
        self.last_error = result.err();
    }

    /// The same for the control socket.
    pub(crate) fn status(&self) -> ReloadStatus {
        ReloadStatus {
            succeeded: self.succeeded,
            failed: self.failed,
            last_seconds: self.last.map(|last| last.elapsed().as_secs_f64()),
            last_error: self.last_error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_reload_is_kept_until_one_succeeds() {
        let mut reloads = Reloads::default();
        reloads.record(Err("a".to_owned()));
        assert_eq!(reloads.status().last_error.as_deref(), Some("a"));
        reloads.record(Ok(()));
        let status = reloads.status();
        assert_eq!((status.succeeded, status.failed), (1, 1));
        assert!(status.last_error.is_none() && status.last_seconds.is_some());
    }
}
