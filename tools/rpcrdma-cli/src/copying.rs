//! Copies as commands: their options, the lines that they print, and how they end.

mod args;

pub(crate) use args::{CopyArgs, When};

use crate::failure::{self, Ended, Usage, is_closed_pipe};
use crate::interrupt::{Interrupt, Interrupted};
use crate::output::{self, CannotWrite};
use crate::progress::{self, Progress};
use crate::session::Unreached;
use anyhow::anyhow;
use nfs_client::printable;
use nfs_copy::{Control, Error, Event, Events, Stop};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name of standard input or output among the arguments.
pub(crate) const STREAM: &str = "-";

/// Settings of what a copy prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prints {
    /// Whether a terminal has a bar, and a summary at the end.
    pub(crate) progress: bool,
    /// Whether there is a summary in any case.
    pub(crate) summary: bool,
    /// Whether each file has a line.
    pub(crate) lines: bool,
    /// Whether lines go to standard error, as standard output has the data.
    pub(crate) to_stderr: bool,
    pub(crate) words: Words,
}

/// Words of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Of `get` and `put`.
    Copy,
    /// Of these with `--dry-run`.
    DryRun,
    /// Of `cp`.
    Cp,
}

impl Words {
    /// The line of an event, if it has one.
    fn line(self, event: &Event<'_>) -> Option<String> {
        match (event, self) {
            (Event::Copied { from, to }, Self::Cp) => Some(format!("{from} copied to {to}")),
            (_, Self::Cp) => None,
            (Event::Copied { from, to } | Event::DirectoryMade { from, to }, _) => {
                Some(format!("{from} -> {to}"))
            }
            (Event::Skipped { from, why }, _) => Some(format!("{from} skipped: {why}")),
            (Event::Removed { what }, Self::DryRun) => Some(format!("would remove {what}")),
            (Event::Removed { what }, Self::Copy) => Some(format!("removed {what}")),
            (Event::NotRemoved { what }, _) => Some(format!(
                "not removed: {what}, as something in it is excluded"
            )),
            (_, _) => None,
        }
    }
}

/// A copy that the user can watch and interrupt.
pub(crate) struct Copying {
    interrupt: Interrupt,
    stop: Stop,
    shown: Arc<Shown>,
}

/// Receiver of the events of a copy, which prints them.
struct Shown {
    prints: Prints,
    progress: Progress,
    ended: Mutex<Ended>,
}

impl Copying {
    /// Begins to listen to signals: an interrupt does not end the process by itself from now on.
    ///
    /// # Errors
    ///
    /// If the system does not let us.
    pub(crate) fn begin(prints: Prints) -> anyhow::Result<Self> {
        let interrupt = Interrupt::of_copy()?;
        let stop = Stop::new();
        let (asked, stops) = (interrupt.clone(), stop.clone());
        tokio::spawn(async move {
            asked.wait().await;
            stops.request();
        });
        let progress = Progress::new(prints.progress, prints.summary);
        let shown = Arc::new(Shown {
            prints,
            progress,
            ended: Mutex::new(Ended::Well),
        });
        Ok(Self {
            interrupt,
            stop,
            shown,
        })
    }

    /// Means of the copy to tell and to be told.
    pub(crate) fn control(&self) -> Control {
        let shown = Arc::clone(&self.shown);
        Control {
            events: shown,
            stop: self.stop.clone(),
        }
    }

    /// Prints how a copy ended.
    ///
    /// # Errors
    ///
    /// Those that concern the whole command.
    pub(crate) async fn end(self, copied: nfs_copy::Ended) -> anyhow::Result<Ended> {
        self.shown.progress.finish();
        let mut ended = *self.shown.ended();
        if copied.left > 0 {
            ended.failed(&anyhow!(
                "incomplete files are left on the server, which does not let them be removed: {}, each \
                 with a name like .NAME.rpcrdma-NUMBER",
                copied.left
            ));
        }
        if copied.kept > 0 {
            failure::note(&format!(
                "incomplete files are kept: {}; the same command goes on with them",
                copied.kept
            ));
        }
        let error = match copied.result {
            Ok(()) => return Ok(ended),
            Err(Error::Stopped) => Interrupted(self.interrupt.signal().await).into(),
            Err(error) => self.shown.error(error),
        };
        match is_closed_pipe(&error) {
            true => ended.check(Err(error)).map(|()| ended),
            false => Err(error),
        }
    }
}

impl Shown {
    fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error of the copy in the words of the command.
    fn error(&self, error: Error) -> anyhow::Error {
        match (error, self.prints.words) {
            (Error::IsDirectory { path }, Words::Cp) => {
                anyhow!("{path}: it is a directory: copy it with -r")
            }
            (error, _) => in_words(error),
        }
    }
}

impl Events for Shown {
    fn planned(&self, files: u64, bytes: u64) {
        self.progress.expect(files, bytes);
    }

    fn begun(&self, bytes: u64) {
        self.progress.begin(bytes);
    }

    fn transferred(&self, bytes: u64) {
        self.progress.add(bytes);
    }

    fn already_there(&self, bytes: u64) {
        self.progress.already(bytes);
    }

    fn event(&self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::Copied { .. } => self.progress.done(),
            Event::Skipped { .. } => self.progress.skipped(),
            _ => {}
        }
        let Prints {
            lines,
            to_stderr,
            words,
            ..
        } = self.prints;
        let Some(line) = lines.then(|| words.line(event)).flatten() else {
            return Ok(());
        };
        let line = printable(line.as_bytes());
        progress::suspend(|| match to_stderr {
            true => writeln!(io::stderr(), "{line}"),
            false => writeln!(output::stdout(), "{line}"),
        })
    }

    fn failed(&self, error: Error) {
        self.ended().failed(&self.error(error));
        self.progress.failed();
    }
}

/// An error of a copy in the words of this program, with the same causes.
pub(crate) fn in_words(error: Error) -> anyhow::Error {
    match error {
        Error::In { doing, cause } => in_words(*cause).context(doing),
        Error::Local(error) | Error::Event(error) => error.into(),
        Error::Input(error) => anyhow::Error::new(error).context("cannot read standard input"),
        Error::Output(error) => CannotWrite::error(&error).into(),
        Error::Nfs(error) => error.into(),
        Error::File(error) => anyhow::Error::new(*error),
        Error::Place(error) | Error::Places(error) => match error.downcast::<Unreached>() {
            Ok(error) => error.0,
            Err(error) => anyhow!(error),
        },
        Error::IsDirectory { path } => anyhow!("{path} is a directory: copy it with -r"),
        Error::DirectoryToStream { path } => {
            anyhow!("{path} is a directory: only a file can be copied to standard output")
        }
        Error::NoDirectory => {
            let text = "--delete is for directories, of which none is copied";
            Usage(text.to_owned()).into()
        }
        error => error.into(),
    }
}
