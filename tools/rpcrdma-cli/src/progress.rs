//! Progress of a copy, shown on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar on standard error, if that is a terminal; else nothing.
#[derive(Clone, Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar at its beginning; what there is to do is added as it becomes known.
    pub(crate) fn new(wanted: bool) -> Self {
        let target = if wanted && std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = "{bar:30} {binary_bytes:>11}/{binary_total_bytes:11} \
                     {binary_bytes_per_sec:>12} {eta:>4} {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is sound"));
        Self(bar)
    }

    /// One more file, of this size; of its path the last name is shown.
    pub(crate) fn begin(&self, path: &[u8], bytes: u64) {
        let name = path.rsplit(|byte| *byte == b'/').next();
        self.0.inc_length(bytes);
        self.0
            .set_message(nfs_client::printable(name.unwrap_or(path)));
    }

    /// Bytes that were copied.
    pub(crate) fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Prints a line without tearing the bar.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
