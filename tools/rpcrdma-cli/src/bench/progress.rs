//! Progress of a measurement, in one line on a terminal.

use super::rates::{bandwidth, rate};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use printing::units;
use std::io::IsTerminal;
use std::time::Duration;

/// A line on standard error, if that is a terminal; else nothing.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(wanted: bool) -> Self {
        let target = if wanted && std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{bar:10} {wide_msg}");
        bar.set_style(style.expect("the template is sound"));
        Self(bar)
    }

    /// So many bytes of a file are written, of so many.
    pub(super) fn filled(&self, bytes: u64, of: u64) {
        self.0.set_length(of);
        self.0.set_position(bytes);
        let (bytes, of) = (units::size(bytes), units::size(of));
        self.0.set_message(format!("filling, {bytes} of {of}"));
    }

    /// So much time has passed, of so much, with this rate of late.
    pub(super) fn measured(&self, passed: Duration, of: Duration, calls: f64, bytes: f64) {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0.set_length(millis(of));
        self.0.set_position(millis(passed.min(of)));
        let (passed, of) = (passed.min(of).as_secs(), units::duration(of));
        let mut message = format!("{passed} s of {of}, {} IOPS", rate(calls));
        if bytes > 0.0 {
            message += &format!(", {}", bandwidth(bytes));
        }
        self.0.set_message(message);
    }

    /// Takes the line away.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
