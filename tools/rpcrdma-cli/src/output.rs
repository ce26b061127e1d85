//! Standard output of commands. Its errors say that it is the output that cannot be written.

use crate::failure::{Ended, plain};
use std::fmt;
use std::fs::File;
use std::io::{self, Stdout, Write};
use std::os::fd::{AsFd, AsRawFd};
use syscalls::{StandardStream, was_closed};

/// Standard output could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the output: {0}")]
pub(crate) struct CannotWrite(String);

impl CannotWrite {
    /// An error of standard output, of the same kind.
    pub(crate) fn error(error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(plain(error)))
    }
}

/// Checks that there is a standard output: where it was closed when the program began, what is written is lost.
///
/// # Errors
///
/// [`CannotWrite`] if there is none.
pub(crate) fn check() -> io::Result<()> {
    match was_closed(StandardStream::Output) {
        true => Err(CannotWrite::error(&nix::errno::Errno::EBADF.into())),
        false => Ok(()),
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output(Stdout);

/// Standard output as a file, without the buffer for lines.
///
/// # Errors
///
/// [`CannotWrite`] if there is none.
pub(crate) fn file() -> io::Result<File> {
    check()?;
    let output = io::stdout().as_fd().try_clone_to_owned();
    Ok(output.map_err(|error| CannotWrite::error(&error))?.into())
}

/// Standard output of this process.
pub(crate) fn stdout() -> Output {
    Output(io::stdout())
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check()?;
        self.0
            .write(bytes)
            .map_err(|error| CannotWrite::error(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| CannotWrite::error(&error))
    }
}

/// Prints the result of a command, as one line of JSON or as text.
///
/// # Errors
///
/// [`CannotWrite`], or those of `json`.
pub(crate) fn print(
    is_json: bool,
    json: impl FnOnce() -> serde_json::Result<String>,
    text: &impl fmt::Display,
) -> anyhow::Result<()> {
    let mut out = stdout();
    match is_json {
        true => writeln!(out, "{}", json()?)?,
        false => write!(out, "{text}")?,
    }
    Ok(out.flush()?)
}

/// Closes standard output at the end of a command: some file systems tell then what was not written (close(2)).
///
/// # Errors
///
/// Those of the command. If it has none, that the output is not complete.
pub(crate) fn close(ended: anyhow::Result<Ended>) -> anyhow::Result<Ended> {
    let ended = ended?;
    stdout().flush()?;
    match nix::unistd::close(io::stdout().as_raw_fd()) {
        // It was closed before.
        Ok(()) | Err(nix::errno::Errno::EBADF) => Ok(ended),
        Err(errno) => Err(CannotWrite::error(&errno.into()).into()),
    }
}
