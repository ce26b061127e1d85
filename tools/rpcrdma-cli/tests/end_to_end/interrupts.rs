//! Copies that are interrupted.

use crate::running::{Served, fails, text, tree};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Larger than what can be copied before anybody notices that the copy has begun. It is all hole.
const LARGE: u64 = 1 << 40;

/// Runs a copy, and interrupts it when something is in `dest` beside the names given.
fn interrupted(args: &[&str], dest: &Path, before: usize) {
    let copy = Command::new(env!("CARGO_BIN_EXE_rpcrdma"))
        .args(args)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while dest.read_dir().unwrap().count() == before {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&copy), Signal::INT).unwrap();
    let output = copy.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "rpcrdma: interrupted\n");
    assert_eq!(output.status.code(), Some(1));
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
    interrupted(&["put", &source, &served.url("")], &served.dir, 0);
    assert!(tree(&served.dir).is_empty());
}

#[test]
fn interrupted_put_ends_though_the_server_does_not_answer() {
    let served = Served::new(&[]);
    let source = served.local("large", b"");
    let large = File::options().write(true).open(&source).unwrap();
    large.set_len(LARGE).unwrap();
    let put = Command::new(env!("CARGO_BIN_EXE_rpcrdma"))
        .args(["put", &source, &served.url("")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while served.dir.read_dir().unwrap().count() == 0 {
        std::thread::yield_now();
    }
    served.signal(Signal::STOP);
    let since = Instant::now();
    kill_process(Pid::from_child(&put), Signal::INT).unwrap();
    let output = put.wait_with_output().unwrap();
    // A client gives a silent server up after 60 s.
    assert!(since.elapsed().as_secs() < 40, "{:?}", since.elapsed());
    served.signal(Signal::CONT);
    let said = text(&output.stderr);
    assert!(
        said.contains("incomplete files are left on the server"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn interrupted_get_leaves_nothing_behind() {
    let served = Served::new(&[]);
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    let dest = served.around.path().join("dest");
    std::fs::create_dir(&dest).unwrap();
    let args = ["get", &served.url("large"), dest.to_str().unwrap()];
    interrupted(&args, &dest, 0);
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
    let put = ["put", "-r", from.to_str().unwrap(), &served.url("to")];
    interrupted(&put, &to, 0);
    check_whole(&to.join("from"));

    std::fs::rename(&from, served.dir.join("from")).unwrap();
    let back = served.around.path().join("back");
    std::fs::create_dir(&back).unwrap();
    let get = ["get", "-r", &served.url("from"), back.to_str().unwrap()];
    interrupted(&get, &back, 0);
    check_whole(&back.join("from"));
}

#[test]
fn server_that_ends_during_a_copy_fails_it() {
    let served = Served::new(&[]);
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    let dest = tempfile::tempdir().unwrap();
    let copy = Command::new(env!("CARGO_BIN_EXE_rpcrdma"))
        .args(["get", "--timeout", "1", &served.url("large")])
        .arg(dest.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while dest.path().read_dir().unwrap().count() == 0 {
        std::thread::yield_now();
    }
    let url = served.url("");
    let stopped = served.stop(Signal::TERM);
    assert_eq!(stopped.status.code(), Some(0), "{}", text(&stopped.stderr));
    let output = copy.wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("cannot read /large: "), "{errors}");
    assert!(tree(dest.path()).is_empty());
    fails(&["ls", &url], 1, "no server at");
}
