//! A server as its administrator sees it: signals, the log, what it leaves on the disk.

use crate::running::{PROGRAM, Say, Served, fails, ok, run, text};
use crate::terminal::Terminal;
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

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
fn client_that_connects_and_closes_leaves_no_warning() {
    let mut served = Served::new(&[]);
    let connect = || TcpStream::connect(&served.listening).unwrap();
    for _ in 0..3 {
        drop(connect());
    }
    // A call over plain TCP begins with its length.
    let mut other = connect();
    other.write_all(&[0x80, 0, 0, 40].repeat(5)).unwrap();
    let said = served.hear("connection setup failed");
    assert!(said.contains("plain TCP"), "{said}");
}

/// A limit with which each call would be told to be made again later.
#[test]
fn check_and_start_with_too_few_descriptors_say_so() {
    let around = tempfile::tempdir().unwrap();
    let dir = around.path().join("stuff");
    std::fs::create_dir(&dir).unwrap();
    let command = |limit: &str, around: &TempDir| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        command
            .args(["-c", &script, PROGRAM, "serve", "--json"])
            .args(["--listen", "127.0.0.1:0", "--mount-port", "0"])
            .arg("--state-dir")
            .arg(around.path().join("state"))
            .arg(&dir);
        command
    };
    let limited = |limit: &str, around: TempDir| {
        let command = command(limit, &around);
        Served::started(around, dir.clone(), command, Say::Json)
    };
    let checked = command("28", &around).arg("--check").output().unwrap();
    let says = "the limit of open files is 28, and less than ";
    let checked = text(&checked.stderr);
    assert!(checked.contains(says), "{checked}");
    let mut served = limited("28", around);
    let said = served.hear(says);
    assert!(
        said.contains("(JUKEBOX)") && said.contains("LimitNOFILE="),
        "{said}"
    );
    let around = std::mem::replace(&mut served.around, tempfile::tempdir().unwrap());
    drop(served);
    let served = limited("1024", around);
    let said = text(&served.stop(Signal::TERM).stderr);
    assert!(!said.contains("are too few"), "{said}");
}

#[test]
fn statistics_in_a_log_for_programs_are_numbers_in_one_object() {
    let mut served = Served::new(&["--log-format", "json"]);
    let file = served.local("file", b"content");
    ok(&["put", &file, &served.url("")]);
    served.signal(Signal::USR1);
    let said: Value = serde_json::from_str(&served.hear("statistics")).unwrap();
    for (key, value) in [
        ("level", "INFO"),
        ("message", "statistics"),
        ("target", "serve"),
        ("listening", &served.listening),
    ] {
        assert_eq!(said[key], value, "{said}");
    }
    assert!(said["timestamp"].as_str().unwrap().ends_with('Z'), "{said}");
    assert_eq!(said["connections"]["accepted"], 1);
    assert_eq!(said["exports_served"], 1);
    assert_eq!(said["exports_absent"], 0);
    assert!(said["rdma"]["calls_received"].as_u64().unwrap() > 3);
    assert_eq!(said["rdma"]["bad_replies"], 0, "zeros are numbers too");
    let procedures = said["procedures"].as_array().unwrap();
    let of = |name: &str| procedures.iter().find(|of| of["name"] == name);
    assert_eq!(of("CREATE").unwrap()["calls"], 1);
    assert!(of("MKNOD").is_none(), "it was not called");

    let quiet = Served::new(&["--log-format", "json", "--log", "serve=warn"]);
    quiet.signal(Signal::USR1);
    let said = text(&quiet.stop(Signal::TERM).stderr);
    assert!(!said.contains("statistics"), "{said}");
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

#[test]
fn log_is_one_json_object_per_line_when_asked_for() {
    let mut served = Served::new(&["--log-format", "json"]);
    served.signal(Signal::USR1);
    let said = served.hear("statistics");
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["level"], &said["target"]),
        (&"INFO".into(), &"serve".into())
    );
    assert_eq!(
        (&said["exports_served"], &said["connections"]["active"]),
        (&1.into(), &0.into())
    );
    served.signal(Signal::TERM);
    let said = served.hear("letting calls finish");
    assert!(
        serde_json::from_str::<serde_json::Value>(&said).is_ok(),
        "{said}"
    );
}

#[test]
fn errors_at_the_start_have_the_form_of_the_log() {
    let output = run(&["serve", "--log-format", "json", "/no/such/directory"]);
    assert_eq!(output.status.code(), Some(1));
    let said: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(said["level"], "ERROR");
    let message = said["message"].as_str().unwrap();
    let says = "/no/such/directory: cannot be served: No such file";
    assert!(message.starts_with(says), "{message}");
}

/// A server in a session of its own that has a terminal, and that terminal.
fn in_a_terminal(before: &[&str]) -> (Served, Terminal) {
    let terminal = Terminal::new(80);
    let around = tempfile::tempdir().unwrap();
    let dir = around.path().join("stuff");
    std::fs::create_dir(&dir).unwrap();
    let mut command = Command::new("setsid");
    command
        .arg("--ctty")
        .args(before)
        .args([PROGRAM, "serve", "--json", "--squash", "none"])
        .args(["--listen", "127.0.0.1:0", "--mount-port", "0"])
        .arg("--state-dir")
        .arg(around.path().join("state"))
        .arg(&dir)
        .stdin(terminal.far());
    (Served::started(around, dir, command, Say::Json), terminal)
}

#[test]
fn server_ends_well_with_its_terminal() {
    // These tests may run under nohup themselves.
    let (served, terminal) = in_a_terminal(&["env", "--default-signal=HUP"]);
    drop(terminal);
    let output = served.wait();
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn server_goes_on_without_its_terminal_under_nohup() {
    let (mut served, terminal) = in_a_terminal(&["nohup"]);
    drop(terminal);
    served.hear("there is nothing to read again");
    ok(&["ls", &served.url("")]);
}

#[test]
fn server_goes_on_when_its_output_is_closed() {
    let mut served = Served::new(&["--log=trace"]);
    served.close_log();
    ok(&[
        "ping",
        &served.listening,
        "--count",
        "100",
        "--interval",
        "0",
    ]);
    served.signal(Signal::USR1);
    served.signal(Signal::HUP);
    ok(&["ls", &served.url("")]);
}

#[test]
fn root_that_is_refused_something_is_told_what_to_add() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: it needs root");
        return;
    }
    let served = Served::new(&["--squash", "root"]);
    std::os::unix::fs::chown(&served.dir, Some(1000), Some(1000)).unwrap();
    let file = served.local("file", b"content");
    let put = ["put", &file, &served.url("")];
    fails(
        &put,
        1,
        "machines, unless it runs with --squash none, and with any root where an export says squash",
    );
}

#[test]
fn root_of_this_machine_is_root_unless_every_user_here_is_believed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: it needs root");
        return;
    }
    let put = |args: &[&str]| {
        let served = Served::new(args);
        std::os::unix::fs::chown(&served.dir, Some(1000), Some(1000)).unwrap();
        let file = served.local("file", b"content");
        let output = run(&["put", &file, &served.url("")]);
        let owner = served.dir.join("file").metadata().map(|about| about.uid());
        (output.status.code(), owner.ok())
    };
    assert_eq!(put(&[]), (Some(0), Some(0)));
    assert_eq!(put(&["--trust-local"]), (Some(1), None));
}

#[test]
fn root_of_a_user_namespace_without_other_users_serves_as_itself() {
    let mut possible = Command::new("unshare");
    possible.args(["--user", "--map-root-user", "true"]);
    if !possible.status().is_ok_and(|status| status.success()) {
        eprintln!("not run: this system lets nobody make a user namespace");
        return;
    }
    let served = Served::alone_in_a_user_namespace(&[]);
    let file = served.local("file", b"content");
    ok(&["put", &file, &served.url("")]);
    let made = served.dir.join("file").metadata().unwrap();
    assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
}
