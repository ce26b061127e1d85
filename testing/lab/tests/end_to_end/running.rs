//! Running the program.

use std::fmt::Debug;
use std::process::{Command, Output, Stdio};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lab");

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null());
    command.output().unwrap()
}

/// Runs the program, which must succeed, and returns its output.
#[track_caller]
pub(crate) fn ok(args: &[&str]) -> Vec<u8> {
    let output = run(args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
    output.stdout
}

/// Runs the program, which must end with this code and say this.
#[track_caller]
pub(crate) fn fails(args: &[&str], code: i32, says: impl AsRef<str> + Debug) {
    let output = run(args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    let is_said = errors.contains(says.as_ref());
    assert!(is_said, "{args:?} does not say {says:?}: {errors}");
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
