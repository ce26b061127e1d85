//! The usual mistakes: each is one line that begins with the URL, the path or the host, once, and says
//! what was wrong in words.

use crate::running::{PROGRAM, Say, Served, fails, free_port, ok, run, text};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the program, which must fail, with one line that names this once, and says that.
#[track_caller]
fn mistake(args: &[&str], names: &str, says: &str) {
    let output = run(args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    assert!(
        errors.starts_with(&format!("rpcrdma: {names}: ")),
        "{args:?} does not begin with {names}: {errors}"
    );
    assert_eq!(errors.matches(names).count(), 1, "{args:?}: {errors}");
    assert!(
        errors.contains(says),
        "{args:?} does not say {says}: {errors}"
    );
    assert!(!errors.contains("os error"), "{args:?}: {errors}");
}

#[test]
fn server_that_cannot_be_reached_is_named_once() {
    let closed = format!("127.0.0.1:{}", free_port());
    let url = format!("nfs://{closed}/file");
    let nobody = "no server there (start one with `rpcrdma serve DIR`";
    for command in ["ls", "cat", "rm", "mkdir", "stat", "df"] {
        mistake(&[command, &url], &url, nobody);
    }
    mistake(&["mv", &url, &format!("{url}-2")], &url, nobody);
    mistake(&["ping", "-c1", &closed], &closed, nobody);
    mistake(&["exports", &closed], &closed, nobody);
    let url = "nfs://no-such-host.invalid/file";
    mistake(&["ls", url], url, "cannot find this host: ");
    let host = "no-such-host.invalid:20049";
    mistake(&["ping", "-c1", host], host, "cannot find this host: ");
    mistake(&["probe", host], host, "cannot find this host: ");
    mistake(&["exports", "--tcp", host], host, "cannot find this host: ");
    // A port of TCP only.
    let served = Served::new(&[]);
    let tcp = format!("127.0.0.1:{}", served.mount_port);
    mistake(&["ping", "-c1", &tcp], &tcp, "it does not speak MPA");
    let url = format!("nfs://{tcp}/");
    mistake(&["ls", &url], &url, "is this the plain NFS/TCP port?");
}

#[test]
fn local_path_that_cannot_be_used_is_named_once() {
    let dir = tempfile::tempdir().unwrap();
    let (missing, file) = (dir.path().join("missing"), dir.path().join("file"));
    fs::write(&file, "").unwrap();
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    let (missing, file) = (shown(&missing), shown(&file));
    mistake(
        &["serve", &missing],
        &missing,
        "cannot be served: No such file or directory",
    );
    mistake(
        &["serve", &file],
        &file,
        "cannot be served: it is not a directory",
    );
    let no_server = "there is no control socket";
    mistake(&["stats", "--socket", &missing], &missing, no_server);
    mistake(&["clients", "--socket", &missing], &missing, no_server);
    mistake(
        &["stats", "--socket", &file],
        &file,
        "it is not a control socket",
    );
    mistake(&["man-pages", &file], &file, "");
    let served = Served::new(&[]);
    let no_file = ": no such file or directory";
    mistake(&["put", &missing, &served.url("")], &missing, no_file);
    fs::write(served.dir.join("file"), "").unwrap();
    let below = format!("{file}/below");
    mistake(
        &["get", &served.url("file"), &below],
        &below,
        "ot a directory",
    );
}

#[test]
fn server_without_a_usable_home_serves_and_warns() {
    let around = tempfile::tempdir().unwrap();
    let dir = around.path().join("stuff");
    fs::create_dir(&dir).unwrap();
    let mut command = Command::new(PROGRAM);
    command
        .args([
            "serve",
            "--json",
            "--listen",
            "localhost:0",
            "--mount-port=0",
        ])
        .arg(&dir)
        .env_remove("XDG_STATE_HOME")
        .env_remove("STATE_DIRECTORY")
        // Nobody can make anything there, not even root.
        .env("HOME", "/proc/no-home");
    let served = Served::started(around, dir, command, Say::Json);
    run(&["ls", &served.url("")]);
    let output = served.stop(Signal::TERM);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let warning = "file handles will not survive a restart: /proc/no-home/.local/state/rpcrdma/handle.key: \
                   No such file or directory (--state-dir names a directory for the key)";
    assert!(errors.contains(warning), "{errors}");
}

#[test]
fn file_that_cannot_be_copied_is_named_by_its_url() {
    let served = Served::new(&["--read-only"]);
    let file = served.local("file", b"content");
    let (new, absent) = (served.url("new"), served.url("absent"));
    mistake(&["put", &file, &new], &new, "read-only file system");
    mistake(&["get", &absent, &file], &absent, "no such file");
    let within = served.url("absent/new");
    mistake(
        &["put", &file, &within],
        &format!("cannot copy to {within}"),
        "there is no directory",
    );
}

#[test]
fn url_of_a_server_names_it_and_local_paths_are_pointed_to_get_and_put() {
    let served = Served::new(&[]);
    ok(&["ping", "-c1", &served.url("")]);
    fails(
        &["ping", "-c1", &served.url("file")],
        2,
        "is neither a host name nor an address",
    );
    fails(
        &["cp", "/etc/hosts", &served.url("")],
        2,
        "`rpcrdma put` copy local files",
    );
}
