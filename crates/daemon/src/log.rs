//! The log on standard error or in systemd's journal, written by a thread of its own.
//!
//! Who logs never waits: a line for which there is no room is lost, and how many were lost is said as
//! soon as there is room again. So a server goes on serving when nobody reads its standard error.

mod journal;
mod parts;

use crate::config::words::{Named, Word, named};
use crate::errors::Usage;
use anyhow::Context;
use journal::Journal;
use oncrpc::plain;
use printing::json;
use serde::Serialize;
use std::borrow::Cow;
use std::env::{self, VarError};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
    /// Records of systemd's journal, with fields.
    Journald,
}

impl Word for LogFormat {
    const WORDS: &'static [Named<Self>] = &[
        named("text", Self::Text, "Lines of text"),
        named("json", Self::Json, "One JSON object per line"),
        named(
            "journald",
            Self::Journald,
            "Records of the systemd journal, with fields",
        ),
    ];
}

/// Directives that say what is logged, known to be valid: those of `tracing_subscriber::EnvFilter`.
#[derive(Clone, Debug)]
pub struct LogFilter(String);

/// Filter unless the user gives one: warnings, and messages of a server to its administrator.
const DEFAULT_FILTER: &str = "warn,serve=info,gateway=info";

/// The variable of the environment that says what is logged.
const FILTER_VARIABLE: &str = "RUST_LOG";

/// Lines that wait to be written; more are lost.
const MAX_LINES: usize = 1024;

/// Bytes of a line; the rest of a longer one is left out.
const MAX_LINE: usize = 4096;

/// How long the end of the program waits for what was logged to be written.
const FLUSH: Duration = Duration::from_millis(500);

/// How long to wait between two looks at whether it is.
const FLUSH_STEP: Duration = Duration::from_millis(1);

/// The log of this process, for lines that no event is behind.
static LOG: OnceLock<Log> = OnceLock::new();

/// Target of the lines of this program itself.
static TARGET: OnceLock<Target> = OnceLock::new();

/// Target of lines of the program itself, by which a filter tells them from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// A server, and any other command.
    #[default]
    Serve,
    /// A gateway.
    Gateway,
}

impl Target {
    /// That of this process.
    fn get() -> Self {
        TARGET.get().copied().unwrap_or_default()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Gateway => "gateway",
        }
    }
}

/// Takes lines, and loses those for which there is no room.
#[derive(Clone)]
struct Log {
    format: LogFormat,
    lines: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

enum Entry {
    Line(Box<[u8]>),
    /// Tells that everything before it is written.
    Flush(SyncSender<()>),
}

/// Writes what is still to be written when it is dropped, but waits no longer than it should.
pub struct FlushOnDrop(Log);

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A single word is a level or, to `EnvFilter`, a part of the program of which all is logged, and
        // nothing else: a level that is misspelt would turn off the log.
        let words = text.split(',').map(str::trim);
        let mut words = words.filter(|word| !word.contains(['=', '[', ':']));
        if let Some(word) =
            words.find(|word| word.is_empty() || word.parse::<LevelFilter>().is_err())
        {
            return Err(format!(
                "'{word}' is no level: there are error, warn, info, debug, trace and off, and \
                 PART=LEVEL, as in warn,rpcrdma=debug"
            ));
        }
        match EnvFilter::builder().parse(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl LogFilter {
    /// Filter of the environment, if there is one.
    fn from_env() -> Result<Option<Self>, Usage> {
        let wrong = |what: String| Usage(format!("{FILTER_VARIABLE}: {what}"));
        match env::var(FILTER_VARIABLE) {
            Ok(text) if text.trim().is_empty() => Ok(None),
            Ok(text) => text.parse().map(Some).map_err(wrong),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(wrong("it is not UTF-8".to_owned())),
        }
    }
}

/// Logs from now on what the filter lets through, or else what `RUST_LOG` says. Without a format it
/// is the journal's where standard error is the journal, and text elsewhere, written to `standard_error`. What the program
/// says itself has this target. Parts of the filter that nothing logs as are told.
///
/// # Errors
///
/// If `RUST_LOG` is not understood, the system gives no thread, or there is no journal to log to.
pub fn start(
    filter: Option<LogFilter>,
    format: Option<LogFormat>,
    target: Target,
    mut standard_error: impl Write + Send + 'static,
) -> anyhow::Result<FlushOnDrop> {
    let (filter, named_by) = match filter {
        Some(filter) => (Some(filter), "--log"),
        None => (LogFilter::from_env()?, FILTER_VARIABLE),
    };
    let filter = filter.map_or(DEFAULT_FILTER.to_owned(), |LogFilter(text)| text);
    let (format, journal) = match format {
        Some(LogFormat::Journald) => {
            let journal = Journal::connect().context(
                "--log-format journald: systemd's journal does not take records at \
                 /run/systemd/journal/socket (use text or json where there is none)",
            )?;
            (LogFormat::Journald, Some(journal))
        }
        Some(other) => (other, None),
        None => match Journal::reads_standard_error().then(Journal::connect) {
            Some(Ok(journal)) => (LogFormat::Journald, Some(journal)),
            Some(Err(_)) | None => (LogFormat::Text, None),
        },
    };
    TARGET.get_or_init(|| target);
    let (log, entries) = Log::new(format);
    let lost = Arc::clone(&log.lost);
    std::thread::Builder::new()
        .name("rpcrdma-log".to_owned())
        .spawn(move || match journal {
            Some(mut journal) => write_all(&entries, format, &lost, &mut journal),
            None => write_all(&entries, format, &lost, &mut standard_error),
        })
        .context("cannot start the thread that writes the log")?;
    for warning in parts::warnings(&filter) {
        log.put(line(format, &format!("{named_by}: {warning}")).as_bytes());
    }
    let filter = EnvFilter::builder().parse_lossy(filter);
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log.clone());
    match format {
        LogFormat::Text => {
            let is_colored = is_colored(io::stderr().is_terminal(), |name| env::var_os(name));
            subscriber.with_ansi(is_colored).init();
        }
        LogFormat::Json => subscriber.json().flatten_event(true).init(),
        LogFormat::Journald => subscriber.event_format(journal::Records).init(),
    }
    Ok(FlushOnDrop(LOG.get_or_init(|| log).clone()))
}

/// Whether lines of text have colours: those for a terminal, unless the user wants none (no-color.org) or the terminal has none.
fn is_colored(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let wants_none = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_none = variable("TERM").is_some_and(|value| value == "dumb");
    is_terminal && !wants_none && !has_none
}

/// Tells the user something, on the same way as the log: it never waits either.
pub fn tell(text: &str) {
    match LOG.get() {
        Some(log) if log.format == LogFormat::Text => {
            log.put(format!("rpcrdma: {text}\n").as_bytes());
        }
        Some(_) => match Target::get() {
            Target::Serve => tracing::info!(target: "serve", "{text}"),
            Target::Gateway => tracing::info!(target: "gateway", "{text}"),
        },
        None => {}
    }
}

/// An event with statistics, as the log for programs has it.
#[derive(Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct StatisticsEvent<T> {
    /// When it was logged, in UTC (RFC 3339).
    timestamp: String,
    /// `INFO`.
    level: &'static str,
    /// `statistics`.
    message: &'static str,
    /// `serve` or `gateway`.
    target: &'static str,
    /// The statistics.
    #[serde(flatten)]
    of: T,
}

/// Whether the log is one of JSON objects.
pub fn is_json() -> bool {
    LOG.get().is_some_and(|log| log.format == LogFormat::Json)
}

/// Logs statistics as one JSON object, for a log of those. An event of `tracing` has no numbers in objects.
pub fn statistics(of: &impl Serialize) {
    let target = Target::get();
    let is_wanted = match target {
        Target::Serve => tracing::enabled!(target: "serve", Level::INFO),
        Target::Gateway => tracing::enabled!(target: "gateway", Level::INFO),
    };
    if let (true, Some(log)) = (is_wanted, LOG.get()) {
        log.put_statistics(target, of);
    }
}

/// The time of now, as events have it.
fn timestamp() -> String {
    let mut text = String::new();
    // A text takes all that is written.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Logs why the program ends, if the log has a form for programs. Returns whether it did.
pub fn ends_with(error: &str) -> bool {
    let structured = LOG.get().is_some_and(|log| log.format != LogFormat::Text);
    if structured {
        match Target::get() {
            Target::Serve => tracing::error!(target: "serve", "{error}"),
            Target::Gateway => tracing::error!(target: "gateway", "{error}"),
        }
    }
    structured
}

impl Log {
    fn new(format: LogFormat) -> (Self, Receiver<Entry>) {
        let (lines, entries) = sync_channel(MAX_LINES);
        let log = Self {
            format,
            lines,
            lost: Arc::default(),
        };
        (log, entries)
    }

    fn put(&self, line: &[u8]) {
        let line = &*without_numbers(line);
        let line = match line.get(..MAX_LINE) {
            Some(beginning) if line.len() > MAX_LINE => match self.format {
                // Half an object is none.
                LogFormat::Json => {
                    let cut = String::from_utf8_lossy(&beginning[..MAX_LINE / 4]);
                    format!("{}\n", serde_json::json!({ "cut": cut })).into()
                }
                LogFormat::Text | LogFormat::Journald => [beginning, b"...\n"].concat(),
            },
            _ => line.to_vec(),
        };
        self.put_whole(line);
    }

    /// Takes statistics of any length: all of it is the program's own, and of bounded size.
    fn put_statistics(&self, target: Target, of: &impl Serialize) {
        let line = json::line(&StatisticsEvent {
            timestamp: timestamp(),
            level: Level::INFO.as_str(),
            message: "statistics",
            target: target.name(),
            of,
        });
        match line {
            Ok(line) => self.put_whole((line + "\n").into_bytes()),
            Err(error) => tracing::error!(%error, "cannot write statistics"),
        }
    }

    fn put_whole(&self, line: Vec<u8>) {
        if self.lines.try_send(Entry::Line(line.into())).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// A line without the `(os error 2)` behind the words of the system.
fn without_numbers(line: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(line) {
        Ok(text) if text.contains("(os error ") => plain(&text).into_bytes().into(),
        Ok(_) | Err(_) => line.into(),
    }
}

/// Writes what is logged until nobody logs any more.
fn write_all(entries: &Receiver<Entry>, format: LogFormat, lost: &AtomicU64, to: &mut impl Write) {
    for entry in entries {
        // There is nobody to be told that it cannot be written.
        let _ = match entry {
            Entry::Line(line) => {
                let written = to.write_all(&line);
                written.and_then(|()| match lost.swap(0, Relaxed) {
                    0 => Ok(()),
                    lost => to.write_all(told(format, lost).as_bytes()),
                })
            }
            Entry::Flush(done) => {
                drop(done);
                to.flush()
            }
        };
    }
}

/// That lines were lost, in the form of the log.
fn told(format: LogFormat, lost: u64) -> String {
    let text = format!("{lost} lines of the log were lost");
    match format {
        LogFormat::Json => {
            let line = serde_json::json!({ "level": "WARN", "message": text, "lost": lost });
            format!("{line}\n")
        }
        LogFormat::Text | LogFormat::Journald => line(format, &text),
    }
}

/// A line about the log itself in its form, which no filter holds back.
fn line(format: LogFormat, text: &str) -> String {
    match format {
        LogFormat::Text => format!("rpcrdma: {text}\n"),
        LogFormat::Json => {
            let line = serde_json::json!({ "level": "WARN", "message": text });
            format!("{line}\n")
        }
        LogFormat::Journald => journal::record(text),
    }
}

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        let until = Instant::now() + FLUSH;
        let (done, written) = sync_channel(0);
        let mut flush = Entry::Flush(done);
        while let Err(TrySendError::Full(back)) = self.0.lines.try_send(flush) {
            if Instant::now() >= until {
                return;
            }
            flush = back;
            std::thread::sleep(FLUSH_STEP);
        }
        // The other end is dropped when everything is written.
        let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Log {
    /// Each event comes in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_colours_on_a_terminal_that_has_them_unless_the_user_wants_none() {
        let check = |is_terminal, variables: &[(&str, &str)], expected| {
            let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
            let colored = is_colored(is_terminal, |name| Some(find(name)?.1.into()));
            assert_eq!(colored, expected, "{variables:?}");
        };
        check(true, &[("TERM", "xterm-256color")], true);
        check(true, &[("TERM", "xterm"), ("NO_COLOR", "")], true);
        check(true, &[("TERM", "xterm"), ("NO_COLOR", "1")], false);
        check(true, &[("TERM", "dumb")], false);
        check(true, &[], true);
        check(false, &[("TERM", "xterm")], false);
    }

    #[test]
    fn filter_with_a_misspelt_level_is_refused() {
        for good in [
            "warn",
            "OFF",
            "warn,serve=info",
            "rpcrdma::client=debug",
            "[call]=trace",
        ] {
            assert!(good.parse::<LogFilter>().is_ok(), "{good}");
        }
        let check = |text: &str, says: &str| {
            let error = text.parse::<LogFilter>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        };
        check("", "'' is no level");
        check("dbug", "'dbug' is no level: there are error, warn");
        check("warn,serv", "'serv' is no level");
        check("serve=dbug", "expected one of");
    }

    /// Text that is written of these lines when the log ends.
    fn written(log: Log, entries: &Receiver<Entry>) -> String {
        let (lost, format) = (Arc::clone(&log.lost), log.format);
        drop(log);
        let mut written = Vec::new();
        write_all(entries, format, &lost, &mut written);
        String::from_utf8(written).expect("text")
    }

    #[test]
    fn lines_for_which_there_is_no_room_are_counted() {
        let (log, entries) = Log::new(LogFormat::Text);
        for number in 0..MAX_LINES + 7 {
            log.put(format!("{number}\n").as_bytes());
        }
        let written = written(log, &entries);
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines.len(), MAX_LINES + 1);
        assert_eq!(
            lines[..2],
            ["0", "rpcrdma: 7 lines of the log were lost"],
            "as soon as there is room"
        );
        assert_eq!(lines[MAX_LINES], (MAX_LINES - 1).to_string());
    }

    #[test]
    fn numbers_of_errors_are_not_logged() {
        let (log, entries) = Log::new(LogFormat::Text);
        log.put(b"gone error=No such file (os error 2)\n");
        assert_eq!(written(log, &entries), "gone error=No such file\n");
    }

    #[test]
    fn long_lines_are_cut() {
        let (log, entries) = Log::new(LogFormat::Text);
        log.put(&[b'x'; MAX_LINE + 1]);
        log.put(b"short\n");
        let written = written(log, &entries);
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), MAX_LINE + 3);
        assert_eq!(lines[1], "short");
    }

    #[test]
    fn statistics_are_whole_however_long_their_line_is() {
        let (log, entries) = Log::new(LogFormat::Json);
        let counters: Vec<u64> = (0..MAX_LINE as u64).collect();
        log.put_statistics(
            Target::Gateway,
            &serde_json::json!({ "counters": counters }),
        );
        let said: serde_json::Value = serde_json::from_str(&written(log, &entries)).unwrap();
        assert_eq!(said["counters"].as_array().map(Vec::len), Some(MAX_LINE));
        assert_eq!(
            (&said["target"], &said["level"]),
            (&"gateway".into(), &"INFO".into())
        );
    }

    #[test]
    fn shutdown_waits_for_pending_lines_but_not_forever() {
        let (log, entries) = Log::new(LogFormat::Text);
        log.put(b"last\n");
        let writer = std::thread::spawn(move || {
            let mut written = Vec::new();
            write_all(&entries, LogFormat::Text, &AtomicU64::new(0), &mut written);
            written
        });
        drop(FlushOnDrop(log));
        assert_eq!(writer.join().expect("no panic"), b"last\n");
        // Nobody writes.
        let (log, _entries) = Log::new(LogFormat::Text);
        drop(FlushOnDrop(log));
    }

    #[test]
    fn lines_of_json_are_whole_objects_when_they_are_cut_and_lost_too() {
        let (log, entries) = Log::new(LogFormat::Json);
        let long = serde_json::json!({ "message": "\u{e4}".repeat(MAX_LINE) });
        for _ in 0..=MAX_LINES {
            log.put(format!("{long}\n").as_bytes());
        }
        let written = written(log, &entries);
        let object = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let lines: Vec<_> = written.lines().map(object).collect();
        assert!(
            lines[0]["cut"]
                .as_str()
                .unwrap()
                .starts_with("{\"message\":")
        );
        assert_eq!(lines[1]["lost"], 1);
    }
}
