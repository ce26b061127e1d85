//! Copies that are interrupted.

use crate::running::{PROGRAM, Running, Served, fails, text, tree};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Larger than what can be copied before anybody notices that the copy has begun. It is all hole, which `put` must be
/// told to read.
const LARGE: u64 = 1 << 40;

/// Begins a copy to which signals mean what they usually do, however the tests were started, and waits until
/// something is in `dest`.
fn begun(args: &[&str], dest: &Path) -> Running {
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,TERM,HUP", PROGRAM])
        .args(args);
    let mut copy = Running::spawn(command.stderr(Stdio::piped()));
    while dest.read_dir().unwrap().count() == 0 {
        assert!(copy.try_wait().unwrap().is_none(), "the copy has ended");
        std::thread::yield_now();
    }
    copy
}

/// Sends a signal to a copy, which must end by it.
#[track_caller]
fn end_by(signal: Signal, copy: Running) -> String {
    kill_process(Pid::from_child(&copy), signal).unwrap();
    let output = copy.output();
    assert_eq!(output.status.signal(), Some(signal.as_raw()));
    text(&output.stderr)
}

/// Runs a copy, and interrupts it when something is in `dest`.
#[track_caller]
fn interrupted(args: &[&str], dest: &Path) {
    let said = end_by(Signal::INT, begun(args, dest));
    assert_eq!(said, "rpcrdma: interrupted\n");
}

#[test]
fn signals_end_a_copy_by_their_default_action_once_it_has_cleaned_up() {
    let served = Served::new(&[]);
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let dest = tempfile::tempdir().unwrap();
        let args = ["get", &served.url("large"), dest.path().to_str().unwrap()];
        let said = end_by(signal, begun(&args, dest.path()));
        assert_eq!(said, "rpcrdma: interrupted\n");
        assert!(tree(dest.path()).is_empty(), "after {signal:?}");
    }
}

#[test]
fn shell_sees_130_when_a_copy_is_interrupted() {
    let served = Served::new(&[]);
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    let dest = tempfile::tempdir().unwrap();
    let script = "env --default-signal=INT \"$@\" & pid=$!; echo $pid; wait $pid; echo $?";
    let mut shell = Running::spawn(
        Command::new("sh")
            .args(["-c", script, "sh", PROGRAM, "get", &served.url("large")])
            .arg(dest.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    let mut said = BufReader::new(shell.stdout.take().unwrap());
    let mut pid = String::new();
    said.read_line(&mut pid).unwrap();
    while dest.path().read_dir().unwrap().count() == 0 {
        assert!(shell.try_wait().unwrap().is_none(), "the copy has ended");
        std::thread::yield_now();
    }
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let mut code = String::new();
    said.read_line(&mut code).unwrap();
    assert_eq!(code, "130\n");
    shell.wait().unwrap();
}

#[test]
fn interrupted_copy_on_a_server_leaves_nothing_behind() {
    let served = Served::new(&[]);
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    let into = served.dir.join("into");
    std::fs::create_dir(&into).unwrap();
    interrupted(&["cp", &served.url("large"), &served.url("into")], &into);
    assert!(tree(&into).is_empty());
}

#[test]
fn copy_under_nohup_goes_on_after_a_hangup() {
    let served = Served::new(&[]);
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    let dest = tempfile::tempdir().unwrap();
    let copy = Running::spawn(
        Command::new("env")
            .args(["--default-signal=TERM", "--ignore-signal=HUP", PROGRAM])
            .args(["get", &served.url("large")])
            .arg(dest.path())
            .stderr(Stdio::piped()),
    );
    while dest.path().read_dir().unwrap().count() == 0 {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&copy), Signal::HUP).unwrap();
    assert_eq!(end_by(Signal::TERM, copy), "rpcrdma: interrupted\n");
}

#[test]
fn interrupted_put_leaves_nothing_behind() {
    let served = Served::new(&[]);
    let source = served.local("large", b"");
    File::options()
        .write(true)
        .open(&source)
        .unwrap()
        .set_len(LARGE)
        .unwrap();
    let put = ["put", "--sparse", "never", &source, &served.url("")];
    interrupted(&put, &served.dir);
    assert!(tree(&served.dir).is_empty());
}

#[test]
fn interrupted_put_ends_though_its_input_does_not() {
    let served = Served::new(&[]);
    let mut put = Running::spawn(
        Command::new("env")
            .args(["--default-signal=INT", PROGRAM])
            .args(["put", "-", &served.url("file")])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut input = put.stdin.take().unwrap();
    input.write_all(&vec![b'd'; 4 << 20]).unwrap();
    while served.dir.read_dir().unwrap().count() == 0 {
        assert!(put.try_wait().unwrap().is_none(), "the copy has ended");
        std::thread::yield_now();
    }
    assert_eq!(end_by(Signal::INT, put), "rpcrdma: interrupted\n");
    drop(input);
    assert!(tree(&served.dir).is_empty());
}

#[test]
fn interrupted_put_ends_though_the_server_does_not_answer() {
    let served = Served::new(&[]);
    let source = served.local("large", b"");
    let large = File::options().write(true).open(&source).unwrap();
    large.set_len(LARGE).unwrap();
    let put = ["put", "--sparse", "never", &source, &served.url("")];
    let put = begun(&put, &served.dir);
    served.signal(Signal::STOP);
    let since = Instant::now();
    let said = end_by(Signal::INT, put);
    // A client gives a silent server up after 60 s.
    assert!(since.elapsed().as_secs() < 40, "{:?}", since.elapsed());
    served.signal(Signal::CONT);
    assert!(
        said.contains("incomplete files are left on the server"),
        "{said}"
    );
}

#[test]
fn interrupted_get_leaves_nothing_behind() {
    let served = Served::new(&[]);
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    let dest = served.around.path().join("dest");
    std::fs::create_dir(&dest).unwrap();
    let args = ["get", &served.url("large"), dest.to_str().unwrap()];
    interrupted(&args, &dest);
    assert!(tree(&dest).is_empty());
}

/// Many small files, and one among them whose copy does not end.
fn many(dir: &Path) {
    std::fs::create_dir(dir).unwrap();
    for number in 0..200 {
        std::fs::write(dir.join(format!("{number:03}")), CONTENT).unwrap();
    }
    let large = File::create(dir.join("100-large")).unwrap();
    large.set_len(LARGE).unwrap();
}

const CONTENT: &[u8] = &[b'c'; 5000];

/// Only whole files are there, and no temporary ones.
fn check_whole(dir: &Path) {
    for (path, content) in tree(dir) {
        let name = path.to_str().unwrap();
        assert!(name.len() == 3, "{name} is left");
        assert!(content == CONTENT, "{name} is not whole");
    }
}

#[test]
fn interrupted_copy_of_many_files_leaves_whole_ones() {
    let served = Served::new(&[]);
    let from = served.around.path().join("from");
    many(&from);
    let to = served.dir.join("to");
    std::fs::create_dir(&to).unwrap();
    let from_dir = from.to_str().unwrap();
    let put = ["put", "-r", "--sparse=never", from_dir, &served.url("to")];
    interrupted(&put, &to);
    check_whole(&to.join("from"));

    std::fs::rename(&from, served.dir.join("from")).unwrap();
    let back = served.around.path().join("back");
    std::fs::create_dir(&back).unwrap();
    let get = ["get", "-r", &served.url("from"), back.to_str().unwrap()];
    interrupted(&get, &back);
    check_whole(&back.join("from"));
}

#[test]
fn server_that_ends_during_a_copy_fails_it() {
    let served = Served::new(&[]);
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    let dest = tempfile::tempdir().unwrap();
    let copy = Running::spawn(
        Command::new(PROGRAM)
            .args(["get", "--timeout", "1", &served.url("large")])
            .arg(dest.path())
            .stderr(Stdio::piped()),
    );
    while dest.path().read_dir().unwrap().count() == 0 {
        std::thread::yield_now();
    }
    let url = served.url("");
    let stopped = served.stop(Signal::TERM);
    assert_eq!(stopped.status.code(), Some(0), "{}", text(&stopped.stderr));
    let output = copy.output();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("/large: cannot read: "), "{errors}");
    assert!(tree(dest.path()).is_empty());
    fails(&["ls", &url], 1, "no server there");
}
