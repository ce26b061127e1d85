//! Exit codes and error messages of commands.

use crate::exit_codes;
use crate::interrupt::{self, Interrupted};
use crate::output::{self, CannotWrite};
use crate::progress;
use crate::shell_patterns;
use nfs_client::printable;
pub(crate) use oncrpc::plain;
use printing::json;
use rpcrdma_daemon::errors::Several;
pub(crate) use rpcrdma_daemon::errors::{Misconfigured, Usage, check_none};
use rpcrdma_daemon::log;
use rustix::process::Signal;
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Nothing could be tested: exit code 77, as automake has it for a test that was skipped.
#[derive(Debug, thiserror::Error)]
#[error("nothing could be tested: {0}")]
pub(crate) struct Untested(pub(crate) String);

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
        report(error, 1);
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

/// Exit code of the process: 0 if all was done, 1 if something was not, 2 if it was not understood, 77 if nothing could be
/// tested, 78 if a file of exports is wrong, 128 and the number of a signal if that ended it.
pub(crate) fn exit_code(ended: anyhow::Result<Ended>) -> ExitCode {
    match ended {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Partly) => ExitCode::from(1),
        // Whoever read our output had enough of it, as `head` has: no reason to complain.
        Err(error) if is_closed_pipe(&error) => {
            ExitCode::from(u8::from(error.downcast_ref::<AfterFailure>().is_some()))
        }
        Err(error) => {
            let interrupted = error.downcast_ref::<Interrupted>();
            let signal = interrupted.map(|interrupted| interrupt::exit_code(interrupted.0));
            let code = match signal.map(u8::try_from) {
                Some(Ok(code)) => code,
                _ if Several::parts(&error).iter().any(is_usage) => exit_codes::USAGE,
                _ if Several::parts(&error).iter().any(is_misconfigured) => exit_codes::CONFIG,
                _ if error.is::<Untested>() => exit_codes::UNTESTED,
                _ => 1,
            };
            for part in Several::parts(&error) {
                report(part, code);
            }
            ExitCode::from(code)
        }
    }
}

/// Whether errors are printed as JSON.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Line that a command with `--json` writes to standard error for each failure.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// Failure, and its cause.
    error: String,
    /// The exit code that the command ends with, if nothing worse follows.
    exit_code: u8,
}

/// Prints errors as JSON from now on, or as text.
pub(crate) fn print_as_json(json: bool) {
    AS_JSON.store(json, Relaxed);
}

/// Ends the process when help or version was printed.
pub(crate) fn exit_after(printed: io::Result<()>) -> ! {
    let ended = match printed {
        Ok(()) => match output::check() {
            Ok(()) => output::close(Ok(Ended::Well)),
            Err(error) => Err(error.into()),
        },
        Err(error) => Err(CannotWrite::error(&error).into()),
    };
    let code = match ended {
        Err(error) if !is_closed_pipe(&error) => {
            report(&error, 1);
            1
        }
        Ok(_) | Err(_) => 0,
    };
    std::process::exit(code)
}

/// Prints why a command line was not understood as JSON, and ends the process.
pub(crate) fn exit_with_usage(error: &clap::Error) -> ! {
    let text = error.to_string();
    // What is behind the first paragraph is how to call the command.
    let what = text.split("\n\n").next().unwrap_or(&text);
    let what = what.trim_start_matches("error: ").replace('\n', " ");
    print_json(&what, exit_codes::USAGE);
    std::process::exit(exit_codes::USAGE.into())
}

fn print_json(text: &str, exit_code: u8) {
    let error = printable(text.as_bytes());
    let report = json::line(&Report { error, exit_code });
    // A text has a line, and of a terminal that has gone nobody reads it.
    let _ = report.map(|line| progress::suspend(|| writeln!(io::stderr(), "{line}")));
}

/// Tells the user something that is no failure.
pub(crate) fn note(text: &str) {
    // Of a terminal that has gone nobody reads it.
    let _ = progress::suspend(|| writeln!(io::stderr(), "rpcrdma: {}", printable(text.as_bytes())));
}

/// Whether the user has been told that the output cannot be written: each further line of it fails in the same way.
static OUTPUT_TOLD: AtomicBool = AtomicBool::new(false);

/// Prints an error with its causes, in one line, or logs it where the log is for programs.
fn report(error: &anyhow::Error, exit_code: u8) {
    if of_output(error).is_some() && OUTPUT_TOLD.swap(true, Relaxed) {
        return;
    }
    let text = line(error);
    if AS_JSON.load(Relaxed) {
        return print_json(&text, exit_code);
    }
    if !log::ends_with(&text) {
        // Of a terminal that has gone nobody reads it.
        let _ = progress::suspend(|| writeln!(io::stderr(), "rpcrdma: {text}"));
    }
}

/// An error with its causes in one line, and with advice for an NFS error. The causes may have words of a
/// server in them, which must not steer the terminal.
fn line(error: &anyhow::Error) -> String {
    let mut text = plain(&format_args!("{error:#}"));
    let hint = error.chain().find_map(|cause| {
        let error: &nfs_client::Error = cause.downcast_ref()?;
        error.fault.hint()
    });
    let hint = hint.or_else(|| {
        error
            .chain()
            .find_map(|cause| shell_patterns::hint_of(cause.downcast_ref()?))
    });
    if let Some(hint) = hint {
        text += &format!(" ({hint})");
    }
    printable(text.as_bytes())
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Usage>().is_some()
}

fn is_misconfigured(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Misconfigured>().is_some()
}

fn is_interrupt(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Interrupted>().is_some()
}

/// The error of standard output that is the cause, if one is.
fn of_output(error: &anyhow::Error) -> Option<&io::Error> {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.find(|error: &&io::Error| {
        let inner = error.get_ref();
        inner.is_some_and(|inner| inner.is::<CannotWrite>())
    })
}

/// Whether the reader of our output has gone away. A connection may break with the same error, which is a failure.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    of_output(error).is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_client::Fault;
    use nfs_proto::Status;

    /// The error of standard output whose reader has gone away.
    fn closed_output() -> io::Error {
        CannotWrite::error(&io::ErrorKind::BrokenPipe.into())
    }

    #[test]
    fn closed_pipe_does_not_hide_what_failed_before() {
        let closed = || Err(closed_output().into());
        let check = |mut ended: Ended, expected| {
            let code = exit_code(ended.check(closed()).map(|()| ended));
            assert_eq!(format!("{code:?}"), format!("{expected:?}"));
        };
        check(Ended::Well, ExitCode::SUCCESS);
        check(Ended::Partly, ExitCode::from(1));
    }

    #[test]
    fn several_errors_end_with_the_code_of_the_worst() {
        let check = |errors: Vec<anyhow::Error>, expected: u8| {
            let code = exit_code(check_none(errors).map(|()| Ended::Well));
            assert_eq!(
                format!("{code:?}"),
                format!("{:?}", ExitCode::from(expected))
            );
        };
        let file = || Misconfigured("file".to_owned()).into();
        let usage = || Usage("usage".to_owned()).into();
        check(vec![], 0);
        check(vec![anyhow::anyhow!("machine")], 1);
        check(vec![anyhow::anyhow!("machine"), anyhow::anyhow!("too")], 1);
        check(vec![anyhow::anyhow!("machine"), file()], 78);
        check(vec![file(), usage()], 2);
        let said = check_none(vec![file(), anyhow::anyhow!("x"), usage()]).unwrap_err();
        assert_eq!(said.to_string(), "file (and 2 more: --check shows all)");
    }

    #[test]
    fn control_characters_in_errors_are_escaped() {
        let error = anyhow::anyhow!("\u{1b}[2J").context("said\n");
        assert_eq!(line(&error), "said\\x0a: \\x1b[2J");
    }

    #[test]
    fn error_of_nfs_is_said_once_with_advice() {
        let error = Fault::from(Status::NotEmpty).at("remove", b"/a");
        let expected = "cannot remove /a: directory not empty (remove what is in it first, or remove it \
                        recursively)";
        assert_eq!(line(&error.clone().into()), expected);
        let within = anyhow::Error::new(error).context("b");
        assert_eq!(line(&within), format!("b: {expected}"));
    }

    #[test]
    fn closed_pipe_is_found_below_its_context() {
        let error = anyhow::Error::new(closed_output()).context("cannot write");
        assert!(is_closed_pipe(&error));
        assert!(!is_closed_pipe(&anyhow::anyhow!("Broken pipe")));
    }

    #[test]
    fn connection_that_breaks_is_a_failure_and_no_closed_output() {
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        let error = anyhow::Error::new(broken).context("cannot connect");
        assert!(!is_closed_pipe(&error));
        let code = exit_code(Err(error));
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(1)));
    }
}
