//! A server as its administrator sees it: signals, the log, what it leaves on the disk.

use crate::running::{Served, ok};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn signals_without_a_file_are_answered_in_the_log() {
    let mut served = Served::new(&[]);
    served.signal(Signal::HUP);
    served.hear("there is nothing to read again without --config");
    ok(&["ls", &served.url("")]);
    served.signal(Signal::USR1);
    let said = served.hear("statistics");
    assert!(said.contains(" exports=1 connections=0 "), "{said}");
    assert!(said.contains(" accepted=1 "), "{said}");
}

#[test]
fn state_of_the_server_is_nobody_elses_to_read() {
    let served = Served::new(&[]);
    let file = served.local("file", b"content");
    ok(&["put", &file, &served.url("")]);
    check_private(&served.around.path().join("state"));
}

fn check_private(path: &Path) {
    let about = path.symlink_metadata().unwrap();
    let mode = about.permissions().mode();
    // What is in a directory that nobody else enters is out of their reach, but has no more rights than
    // those who made it would want.
    assert_eq!(mode & 0o022, 0, "{} has mode {mode:o}", path.display());
    if about.is_dir() {
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
        for entry in path.read_dir().unwrap() {
            check_private(&entry.unwrap().path());
        }
    }
}

#[test]
fn dangerous_exports_are_warned_about() {
    let mut served = Served::new(&["--allow", "0.0.0.0/0"]);
    served.hear("0.0.0.0/0 is everybody who reaches this machine");
}
