//! The programs of coreutils, which decide what ours must print.

use crate::running::{PROGRAM, text};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Environment of both: the same language, time zone and look.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("LC_ALL", "C.UTF-8"),
    ("TZ", "Europe/Berlin"),
    ("LS_COLORS", "di=01;34:ln=01;36:ex=01;32:*.tar=01;31"),
];

fn run(mut command: Command) -> Output {
    for variable in [
        "RUST_LOG",
        "COLUMNS",
        "TIME_STYLE",
        "BLOCK_SIZE",
        "POSIXLY_CORRECT",
    ] {
        command.env_remove(variable);
    }
    command.envs(ENVIRONMENT).stdin(Stdio::null());
    command.output().unwrap()
}

/// Runs a program of coreutils in a directory; it must succeed.
#[track_caller]
pub(crate) fn theirs(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new(args[0]);
    command.args(&args[1..]).current_dir(dir);
    let output = run(command);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Runs our program, which must succeed.
#[track_caller]
pub(crate) fn ours(args: &[&str]) -> String {
    let output = ours_with(args, &[]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
    text(&output.stdout)
}

/// Runs our program in an environment that has these too.
pub(crate) fn ours_with(args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(args).envs(environment.iter().copied());
    run(command)
}
