//! Records of systemd's journal, in its native protocol.
//!
//! A record is one datagram of fields, each `NAME=value` and a newline
//! (systemd.io/JOURNAL_NATIVE_PROTOCOL). Newlines in values are escaped, so that the form with lengths is
//! not needed. The crate `tracing-journald` writes such records, but on the thread that logs: it would wait
//! for a journal that has stopped reading.

use super::MAX_LINE;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Socket of the journal.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Bytes of a value; of a longer one the rest is left out.
const MAX_VALUE: usize = 2048;

/// Characters of the name of a field, behind what all of them begin with; the journal takes 64 in all.
const MAX_KEY: usize = 48;

/// The journal, to which each piece that is written goes as one record.
pub(super) struct Journal(UnixDatagram);

impl Journal {
    /// Connects to the journal of this machine.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn connect() -> io::Result<Self> {
        Self::at(Path::new(SOCKET))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self(socket))
    }

    /// Whether standard error is a stream of the journal (systemd.exec(5), `JOURNAL_STREAM`).
    pub(super) fn reads_standard_error() -> bool {
        let stream = std::env::var("JOURNAL_STREAM").ok();
        let own = std::fs::metadata("/proc/self/fd/2").ok();
        stream
            .zip(own)
            .is_some_and(|(stream, own)| stream == format!("{}:{}", own.dev(), own.ino()))
    }
}

impl Write for Journal {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        // More than that the socket would not take in one piece.
        self.0.send(record)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record of one line of text.
pub(super) fn record(text: &str) -> String {
    let mut record = Record::new(Level::INFO, super::Target::get().name());
    record.put("MESSAGE", text.trim_end());
    record.0
}

/// Formats events as records.
pub(super) struct Records;

impl<S, N> FormatEvent<S, N> for Records
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut message = fields.message;
        for (name, value) in &fields.others {
            message += &format!(" {name}={value}");
        }
        let mut record = Record::new(*about.level(), about.target());
        record.put("MESSAGE", message.trim_start());
        for (name, value) in &fields.others {
            record.put(&format!("RPCRDMA_{}", key(name)), value);
        }
        writer.write_str(&record.0)
    }
}

/// The fields of a record.
struct Record(String);

impl Record {
    fn new(level: Level, target: &str) -> Self {
        // syslog(3).
        let priority = match level {
            Level::ERROR => "3",
            Level::WARN => "4",
            Level::INFO => "6",
            _ => "7",
        };
        let mut record = Self(String::new());
        record.put("PRIORITY", priority);
        record.put("SYSLOG_IDENTIFIER", "rpcrdma");
        record.put("TARGET", target);
        record
    }

    /// Adds a field, as far as there is room: its value is cut, or it is left out.
    fn put(&mut self, name: &str, value: &str) {
        let start = self.0.len();
        self.0 += name;
        self.0.push('=');
        let most = (self.0.len() + MAX_VALUE).min(MAX_LINE - 1);
        for c in value.chars() {
            let len = self.0.len();
            match c {
                c if c.is_control() => self.0.extend(c.escape_default()),
                c => self.0.push(c),
            }
            if self.0.len() > most {
                self.0.truncate(len);
                break;
            }
        }
        match self.0.len() < MAX_LINE {
            true => self.0.push('\n'),
            false => self.0.truncate(start),
        }
    }
}

/// The name of a field of an event as one of a record: capital letters, digits and underscores.
fn key(name: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    name.chars().take(MAX_KEY).map(plain).collect()
}

/// Fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.others.push((name, format!("{value:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Log, write_all};
    use std::sync::Arc;
    use tracing_subscriber::layer::SubscriberExt;

    fn fields(record: &str) -> Vec<(&str, &str)> {
        record
            .lines()
            .map(|line| line.split_once('=').unwrap())
            .collect()
    }

    /// Text that the journal gets when something is logged.
    fn received(log: impl FnOnce()) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        let (writer, entries) = Log::new(crate::log::LogFormat::Journald);
        let layer = tracing_subscriber::fmt::layer()
            .event_format(Records)
            .with_writer(writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let lost = Arc::clone(&writer.lost);
        drop(writer);
        let mut journal = Journal::at(&path).unwrap();
        // The subscriber has gone with its writer.
        write_all(
            &entries,
            crate::log::LogFormat::Journald,
            &lost,
            &mut journal,
        );
        let mut record = [0; MAX_LINE];
        let len = socket.recv(&mut record).unwrap();
        String::from_utf8(record[..len].to_vec()).unwrap()
    }

    #[test]
    fn event_is_a_record_with_its_fields() {
        let record = received(|| {
            tracing::warn!(peer = "a\nb", some_count = 7, "too many");
        });
        let fields = fields(&record);
        assert_eq!(fields[0], ("PRIORITY", "4"));
        assert_eq!(fields[1], ("SYSLOG_IDENTIFIER", "rpcrdma"));
        assert_eq!(fields[2].0, "TARGET");
        assert_eq!(fields[3], ("MESSAGE", r"too many peer=a\nb some_count=7"));
        assert_eq!(fields[4], ("RPCRDMA_PEER", r"a\nb"));
        assert_eq!(fields[5], ("RPCRDMA_SOME_COUNT", "7"));
    }

    #[test]
    fn record_is_bounded_and_whole() {
        let long = "\u{e4}".repeat(5000);
        let record = received(|| tracing::info!(long, short = 1, "{long}"));
        assert!(record.len() <= MAX_LINE && record.ends_with('\n'));
        let fields = fields(&record);
        assert!(fields[3].1.len() <= MAX_VALUE && fields[3].1.len() > MAX_VALUE - 2);
        assert!(fields[3].1.chars().all(|c| c == '\u{e4}'));
    }
}
