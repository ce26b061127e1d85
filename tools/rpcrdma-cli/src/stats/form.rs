//! Titles of `stats`, and what servers and gateways say in the same words.

use super::rows::{shown, wrapped};
use crate::control_args;
use printing::units;
use rpcrdma_daemon::control::ReloadStatus;
use std::path::Path;
use std::time::Duration;

/// Text about one server or gateway.
pub(super) struct Form<'a> {
    /// Program, address and process.
    pub(super) title: String,
    /// Its control socket, if there are several.
    pub(super) socket: Option<&'a Path>,
    /// Whether all counters are shown, in lines of any length.
    pub(super) long: bool,
}

impl Form<'_> {
    /// The title of statistics since the start.
    pub(super) fn since_start(&self, version: &str, uptime_seconds: f64) -> String {
        let title = format!(
            "{}, up {}, rpcrdma {}",
            self.title,
            ago(uptime_seconds),
            shown(version)
        );
        self.titled(&title)
    }

    /// The title of statistics at an interval: none, unless there are several.
    pub(super) fn at_interval(&self) -> String {
        match self.socket {
            Some(_) => self.titled(&self.title),
            None => String::new(),
        }
    }

    /// A title and, in a line of its own that is never wrapped, as it is to be copied, the option that selects this one.
    fn titled(&self, title: &str) -> String {
        let option = self.socket.map(control_args::option);
        self.line(title) + &option.unwrap_or_default()
    }

    /// A line, or several if it is too long.
    pub(super) fn line(&self, text: &str) -> String {
        match self.long {
            true => format!("{text}\n"),
            false => wrapped(text),
        }
    }
}

/// Seconds in words.
pub(super) fn ago(seconds: f64) -> String {
    units::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// How the last reload ended, if there was one.
pub(super) fn reload(reloads: &ReloadStatus) -> Option<String> {
    let ago = ago(reloads.last_seconds?);
    Some(match &reloads.last_error {
        Some(error) => format!(
            "failed {ago} ago, what is served is from before: {}",
            shown(error)
        ),
        None => format!("{ago} ago"),
    })
}
