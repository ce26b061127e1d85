//! Progress of a copy: a line on the terminal while it runs, and a summary at its end.
//!
//! The line is drawn by `indicatif`, and what stands in it is chosen here for the width of the terminal at
//! that moment: a terminal that is resized has a line that fits with the next drawing.

use console::Term;
use indicatif::{
    HumanBytes, ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressState, ProgressStyle,
};
use printing::units;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the line is drawn while nothing moves, so that time left and rate stay true.
const REDRAWN_EVERY: Duration = Duration::from_millis(500);

/// Columns of a terminal that does not say how many it has.
const USUAL_WIDTH: usize = 80;

/// Columns that the bar itself has at least; where there is less room it is left out.
const LEAST_BAR: usize = 10;

/// Columns that the bar has at most.
const MOST_BAR: usize = 40;

/// The bar on the terminal, if there is one: what else is printed goes above it.
static ON_TERMINAL: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn on_terminal() -> MutexGuard<'static, Option<ProgressBar>> {
    ON_TERMINAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints lines to the terminal without tearing the bar, if one is shown. It must not be nested.
pub(crate) fn suspend<T>(print: impl FnOnce() -> T) -> T {
    let bar = on_terminal().clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Standard error, where lines go above the progress of a copy.
pub(crate) struct AboveProgress;

impl Write for AboveProgress {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        suspend(|| io::stderr().write(line))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Progress of a copy. Clones show the same one.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    counts: Arc<Counts>,
    begun: Instant,
    /// Whether a summary is printed at the end.
    sums_up: bool,
}

/// Files and bytes of a copy. Bytes that were copied are the position of the bar.
#[derive(Debug, Default)]
struct Counts {
    /// Number of files that a count made before the copy has found.
    expected_files: AtomicU64,
    expected_bytes: AtomicU64,
    /// Number of files begun: more than expected if files were added or grew meanwhile.
    begun_files: AtomicU64,
    begun_bytes: AtomicU64,
    done: AtomicU64,
    /// Bytes that were there.
    already: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
}

impl Counts {
    fn total_files(&self) -> u64 {
        self.expected_files
            .load(Relaxed)
            .max(self.begun_files.load(Relaxed))
    }

    fn total_bytes(&self) -> u64 {
        self.expected_bytes
            .load(Relaxed)
            .max(self.begun_bytes.load(Relaxed))
    }
}

impl Progress {
    /// Progress of a copy that begins. It is shown on standard error if it is `wanted` and that is a
    /// terminal; with `verbose` the summary is printed in any case.
    pub(crate) fn new(wanted: bool, verbose: bool) -> Self {
        let terminal = wanted && io::stderr().is_terminal();
        let target = if terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let counts = Arc::new(Counts::default());
        let shown = Arc::clone(&counts);
        let key = move |state: &ProgressState, out: &mut dyn fmt::Write| {
            // A line that cannot be written is not there: there is nobody to tell.
            let _ = out.write_str(&Figures::new(&shown, state).line(width()));
        };
        let style = ProgressStyle::with_template("{figures}").expect("the template is sound");
        let bar = ProgressBar::with_draw_target(Some(0), target)
            .with_style(style.with_key("figures", key))
            .with_finish(ProgressFinish::AndClear);
        if terminal && !bar.is_hidden() {
            bar.enable_steady_tick(REDRAWN_EVERY);
            *on_terminal() = Some(bar.clone());
        }
        Self {
            bar,
            counts,
            begun: Instant::now(),
            sums_up: terminal || verbose,
        }
    }

    /// Adds what a count made before the copy has found: files, symbolic links included, and the bytes of
    /// the files. Files that are [begun](Self::begin) are not added again.
    pub(crate) fn expect(&self, files: u64, bytes: u64) {
        self.counts.expected_files.fetch_add(files, Relaxed);
        self.counts.expected_bytes.fetch_add(bytes, Relaxed);
        self.bar.set_length(self.counts.total_bytes());
    }

    /// One more file of this size is in flight.
    pub(crate) fn begin(&self, bytes: u64) {
        self.counts.begun_files.fetch_add(1, Relaxed);
        self.counts.begun_bytes.fetch_add(bytes, Relaxed);
        self.bar.set_length(self.counts.total_bytes());
    }

    /// Bytes that were copied, holes included.
    pub(crate) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Bytes of files in flight that need not be copied, as they are there already.
    pub(crate) fn already(&self, bytes: u64) {
        self.counts.already.fetch_add(bytes, Relaxed);
        self.bar.inc(bytes);
        // They were not copied, and tell nothing of how fast the others are.
        self.bar.reset_eta();
    }

    /// A file is complete.
    pub(crate) fn done(&self) {
        self.counts.done.fetch_add(1, Relaxed);
    }

    /// A file was left out, as the user asked.
    pub(crate) fn skipped(&self) {
        self.counts.skipped.fetch_add(1, Relaxed);
    }

    /// Something could not be copied.
    pub(crate) fn failed(&self) {
        self.counts.failed.fetch_add(1, Relaxed);
    }

    /// Takes the bar away, and prints the summary if the user is to see one.
    pub(crate) fn finish(&self) {
        let summary = self.end();
        if self.sums_up {
            // Of a terminal that has gone nobody reads it.
            let _ = writeln!(io::stderr(), "{summary}");
        }
    }
}

impl Progress {
    /// Takes the bar away; returns the summary.
    fn end(&self) -> String {
        // The bar is full when it is finished, whatever was copied.
        let position = self.bar.position();
        self.bar.finish_and_clear();
        *on_terminal() = None;
        // A server can give files any size: the sums may be too large for their type.
        let copied = position.saturating_sub(self.counts.already.load(Relaxed));
        summary(&self.counts, copied, self.begun.elapsed())
    }
}

/// Columns of the terminal now.
fn width() -> usize {
    let size = Term::stderr().size_checked();
    let columns = size.map_or(USUAL_WIDTH, |(_, columns)| columns.into());
    match columns {
        0 => USUAL_WIDTH,
        columns => columns,
    }
}

/// Figures of the line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    files: (u64, u64),
    bytes: (u64, u64),
    /// Bytes per second.
    rate: f64,
    /// Time left, if there is a rate to tell it from.
    left: Option<Duration>,
}

/// Which of the figures have room.
#[derive(Clone, Copy)]
struct Fields {
    words: bool,
    percent: bool,
    total: bool,
    rate: bool,
    bytes: bool,
}

/// From all figures to the fewest.
const FIELDS: [Fields; 6] = {
    let all = Fields {
        words: true,
        percent: true,
        total: true,
        rate: true,
        bytes: true,
    };
    let short = Fields {
        words: false,
        ..all
    };
    let parts = Fields {
        percent: false,
        ..short
    };
    let done = Fields {
        total: false,
        percent: true,
        ..short
    };
    let slow = Fields {
        rate: false,
        ..done
    };
    let least = Fields {
        bytes: false,
        ..slow
    };
    [all, short, parts, done, slow, least]
};

impl Figures {
    fn new(counts: &Counts, state: &ProgressState) -> Self {
        let rate = state.per_sec();
        Self {
            files: (counts.done.load(Relaxed), counts.total_files()),
            bytes: (state.pos(), counts.total_bytes()),
            rate,
            left: (rate >= 1.0).then(|| state.eta()),
        }
    }

    /// The line for a terminal with so many columns; the last one stays free, as some terminals begin a new
    /// line when it is written.
    fn line(&self, columns: usize) -> String {
        let room = columns.saturating_sub(1);
        let mut line = String::new();
        for fields in FIELDS {
            line = self.text(fields, "");
            if line.len() <= room {
                break;
            }
        }
        let bar = room.saturating_sub(line.len() + "  []".len());
        if bar >= LEAST_BAR && line.len() <= room {
            line = self.text(FIELDS[0], &self.bar(bar.min(MOST_BAR)));
        }
        // It is ASCII: each byte is a column.
        line.truncate(room);
        line
    }

    fn text(&self, fields: Fields, bar: &str) -> String {
        let (done, files) = self.files;
        let (copied, bytes) = self.bytes;
        let mut parts = vec![match (fields.words, files) {
            (true, 1) => format!("{done}/{files} file"),
            (true, _) => format!("{done}/{files} files"),
            (false, _) => format!("{done}/{files}"),
        }];
        if fields.bytes {
            let copied = HumanBytes(copied);
            parts.push(match fields.total {
                true => format!("{copied}/{}", units::size(bytes)),
                false => copied.to_string(),
            });
        }
        if !bar.is_empty() {
            parts.push(format!("[{bar}]"));
        }
        if fields.percent {
            parts.push(format!("{:>3}%", self.percent()));
        }
        if fields.rate {
            parts.push(format!("{}/s", HumanBytes(whole(self.rate))));
        }
        let left = self.left.map_or_else(|| "-:--".to_owned(), clock);
        parts.push(match fields.words {
            true => format!("{left} left"),
            false => left,
        });
        parts.join("  ")
    }

    /// How much is done, of 100: bytes, or files where there are no bytes.
    fn percent(&self) -> u64 {
        let (done, all) = match self.bytes {
            (_, 0) => self.files,
            bytes => bytes,
        };
        let percent = u128::from(done) * 100 / u128::from(all.max(1));
        u64::try_from(percent).map_or(100, |percent| percent.min(100))
    }

    fn bar(&self, columns: usize) -> String {
        let full = usize::try_from(self.percent()).unwrap_or(100) * columns / 100;
        let mut bar = "=".repeat(full);
        if full < columns {
            bar.push('>');
        }
        format!("{bar:<columns$}")
    }
}

/// A rate in whole bytes per second.
fn whole(bytes: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the conversion saturates, and a rate is not negative"
    )]
    {
        bytes as u64
    }
}

/// A time as a clock shows it: `0:04`, `12:34`, `1:02:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// Summary of the work, in one line.
fn summary(counts: &Counts, bytes: u64, took: Duration) -> String {
    let files = counts.done.load(Relaxed);
    let noun = if files == 1 { "file" } else { "files" };
    let mut summary = format!(
        "{files} {noun} copied: {} in {}",
        units::size(bytes),
        units::duration(took)
    );
    if bytes > 0 && took > Duration::ZERO {
        let rate = whole(bytes as f64 / took.as_secs_f64());
        summary += &format!(" ({}/s)", units::size(rate));
    }
    match counts.skipped.load(Relaxed) {
        0 => {}
        skipped => summary += &format!(", {skipped} skipped"),
    }
    match counts.failed.load(Relaxed) {
        0 => {}
        failed => summary += &format!(", {failed} failed"),
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Figures = Figures {
        files: (3, 12),
        bytes: (1_288_490_188, 4 << 30),
        rate: 851_443_712.0,
        left: Some(Duration::from_secs(4)),
    };

    const MANY: Figures = Figures {
        files: (123_456, 1_234_567),
        bytes: (1000 << 30, 1023 << 40),
        rate: 1023.0 * 1024.0 * 1024.0,
        left: Some(Duration::from_secs(360_000)),
    };

    #[test]
    fn line_has_a_bar_at_80_columns_and_all_figures_at_50() {
        assert_eq!(
            SOME.line(80),
            "3/12 files  1.20 GiB/4 GiB  [=====>            ]   29%  812.00 MiB/s  0:04 left"
        );
        assert_eq!(
            SOME.line(50),
            "3/12  1.20 GiB/4 GiB   29%  812.00 MiB/s  0:04"
        );
    }

    #[test]
    fn line_is_shorter_than_the_terminal_at_any_width() {
        for figures in [SOME, MANY] {
            for columns in 1..200 {
                let line = figures.line(columns);
                assert!(line.is_ascii() && line.len() < columns, "{columns}: {line}");
            }
        }
        assert!(MANY.line(50).starts_with("123456/1234567  "));
    }

    #[test]
    fn time_left_is_open_without_a_rate() {
        let waits = Figures { left: None, ..SOME };
        assert!(waits.line(80).ends_with("-:-- left"));
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(clock(Duration::from_secs(754)), "12:34");
    }

    #[test]
    fn empty_files_are_counted_by_their_number() {
        let empty = Figures {
            files: (1, 4),
            bytes: (0, 0),
            ..SOME
        };
        assert_eq!(empty.percent(), 25);
        let grown = Figures {
            bytes: (9, 4),
            ..SOME
        };
        assert_eq!(grown.percent(), 100);
    }

    #[test]
    fn totals_are_what_was_counted_unless_more_was_begun() {
        let progress = Progress::new(false, false);
        progress.expect(2, 100);
        progress.expect(1, 50);
        progress.begin(100);
        assert_eq!(progress.counts.total_files(), 3);
        assert_eq!(progress.counts.total_bytes(), 150);
        for _ in 0..3 {
            progress.begin(100);
        }
        assert_eq!(progress.counts.total_files(), 4);
        assert_eq!(progress.counts.total_bytes(), 400);
    }

    #[test]
    fn sizes_that_no_file_has_do_no_harm() {
        let progress = Progress::new(false, true);
        for _ in 0..2 {
            progress.expect(1, u64::MAX);
            progress.begin(u64::MAX);
            progress.add(1);
            progress.already(u64::MAX);
        }
        progress.add(1);
        progress.already(u64::MAX - 1);
        progress.finish();
    }

    #[test]
    fn summary_of_a_copy_that_was_cut_off_has_what_was_transferred() {
        let progress = Progress::new(false, false);
        progress.expect(1, 3 << 30);
        progress.begin(3 << 30);
        progress.already(1 << 20);
        progress.add(1 << 30);
        let summary = progress.end();
        assert!(
            summary.starts_with("0 files copied: 1 GiB in "),
            "{summary}"
        );
    }

    #[test]
    fn summary_tells_what_was_left_out() {
        let progress = Progress::new(false, false);
        progress.done();
        let counts = &progress.counts;
        let second = Duration::from_secs(1);
        assert_eq!(
            summary(counts, 3 << 20, second),
            "1 file copied: 3 MiB in 1 s (3 MiB/s)"
        );
        progress.done();
        progress.failed();
        progress.skipped();
        assert_eq!(
            summary(counts, 0, second),
            "2 files copied: 0 B in 1 s, 1 skipped, 1 failed"
        );
    }
}
