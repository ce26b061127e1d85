//! Exit codes and error messages of commands.

use crate::interrupt::{self, Interrupted};
use crate::log;
use crate::progress;
use nfs_client::printable;
use rustix::process::Signal;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// What was asked for cannot be understood, or makes no sense: exit code 2, as for options that
/// do not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// A file of exports is wrong: exit code 78, `EX_CONFIG` of sysexits(3), so that nobody starts a server again
/// that cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misconfigured(pub(crate) String);

/// Nobody reads the output any more, and before that a part of the work was not done.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not all was done")]
struct AfterFailure;

/// How a command ended that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All of it was done.
    Well,
    /// Some of it was not; why has been printed.
    Partly,
}

impl Ended {
    /// Prints why one part of the work was not done; the others go on.
    pub(crate) fn failed(&mut self, error: &anyhow::Error) {
        report(error);
        *self = Self::Partly;
    }

    /// Prints why one part of the work was not done, if it was not.
    ///
    /// # Errors
    ///
    /// Those that concern the whole command: it was not understood, the user interrupted it, or
    /// nobody reads its output any more.
    pub(crate) fn check(&mut self, part: anyhow::Result<()>) -> anyhow::Result<()> {
        match part {
            Err(error) if is_usage(&error) || is_interrupt(&error) => Err(error),
            Err(error) if is_closed_pipe(&error) => Err(match self {
                Self::Well => error,
                Self::Partly => error.context(AfterFailure),
            }),
            Err(error) => {
                self.failed(&error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// The signal that ended a command before all was done, if one did.
pub(crate) fn ended_by(ended: &anyhow::Result<Ended>) -> Option<Signal> {
    let error = ended.as_ref().err()?;
    Some(error.downcast_ref::<Interrupted>()?.0)
}

/// What the shell is told: 0 if all was done, 1 if something was not, 2 if it was not understood, 78 if a file
/// of exports is wrong, 128 and the number of a signal if that ended it.
pub(crate) fn exit_code(ended: anyhow::Result<Ended>) -> ExitCode {
    match ended {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Partly) => ExitCode::from(1),
        // Whoever read our output had enough of it, as `head` has: no reason to complain.
        Err(error) if is_closed_pipe(&error) => {
            ExitCode::from(u8::from(error.downcast_ref::<AfterFailure>().is_some()))
        }
        Err(error) => {
            report(&error);
            let interrupted = error.downcast_ref::<Interrupted>();
            let signal = interrupted.map(|interrupted| interrupt::exit_code(interrupted.0));
            if let Some(Ok(code)) = signal.map(u8::try_from) {
                return ExitCode::from(code);
            }
            ExitCode::from(match () {
                () if is_usage(&error) => 2,
                () if error.downcast_ref::<Misconfigured>().is_some() => EX_CONFIG,
                () => 1,
            })
        }
    }
}

/// The exit code for what is wrong in a file of exports (sysexits(3)).
const EX_CONFIG: u8 = 78;

/// Tells the user something that is no failure.
pub(crate) fn note(text: &str) {
    // Of a terminal that has gone nobody reads it.
    let _ = progress::suspend(|| writeln!(io::stderr(), "rpcrdma: {}", printable(text.as_bytes())));
}

/// Prints an error with its causes, in one line, or logs it where the log is for programs.
fn report(error: &anyhow::Error) {
    let text = line(error);
    if !log::ends_with(&text) {
        // Of a terminal that has gone nobody reads it.
        let _ = progress::suspend(|| writeln!(io::stderr(), "rpcrdma: {text}"));
    }
}

/// The causes may have words of a server in them, which must not steer the terminal.
fn line(error: &anyhow::Error) -> String {
    printable(without_numbers(&format!("{error:#}")).as_bytes())
}

/// An error in the words that people use for it.
pub(crate) fn plain(error: &dyn Display) -> String {
    without_numbers(&error.to_string())
}

/// A text without the `(os error 2)` that the standard library has behind the words of the system.
fn without_numbers(text: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut parts = text.split(BEFORE);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let behind = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
        match behind.strip_prefix(')') {
            Some(behind) if behind.len() + 1 < part.len() => kept += behind,
            _ => kept = kept + BEFORE + part,
        }
    }
    kept
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Usage>().is_some()
}

fn is_interrupt(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Interrupted>().is_some()
}

/// Whether the reader of our output has gone away.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_pipe_does_not_hide_what_failed_before() {
        let closed = || Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into());
        let check = |mut ended: Ended, expected| {
            let code = exit_code(ended.check(closed()).map(|()| ended));
            assert_eq!(format!("{code:?}"), format!("{expected:?}"));
        };
        check(Ended::Well, ExitCode::SUCCESS);
        check(Ended::Partly, ExitCode::from(1));
    }

    #[test]
    fn control_characters_in_errors_are_escaped() {
        let error = anyhow::anyhow!("\u{1b}[2J").context("said\n");
        assert_eq!(line(&error), "said\\x0a: \\x1b[2J");
    }

    #[test]
    fn numbers_of_errors_are_left_out() {
        let check = |text: &str, expected: &str| assert_eq!(without_numbers(text), expected);
        check("a: No such file (os error 2)", "a: No such file");
        check(
            "No such file (os error 2): b (os error 13)!",
            "No such file: b!",
        );
        check("Unknown (os error -1)", "Unknown");
        for other in ["a (os error x)", "a (os error )", "a (os error 2", ""] {
            check(other, other);
        }
        let missing = std::fs::File::open("/no/such").unwrap_err();
        assert_eq!(plain(&missing), "No such file or directory");
    }

    #[test]
    fn closed_pipe_is_found_below_its_context() {
        let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let error = anyhow::Error::new(closed).context("cannot write");
        assert!(is_closed_pipe(&error));
        assert!(!is_closed_pipe(&anyhow::anyhow!("Broken pipe")));
    }
}
