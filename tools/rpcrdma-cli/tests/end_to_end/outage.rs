//! Servers that stop answering, and answer again.

use crate::running::{PROGRAM, Running, Served, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Longer than a copy takes until its server is stopped. It is all hole.
const LARGE: u64 = 1 << 40;

/// Reads what a command says until this is in a line. A command that never says it ends by itself, as its
/// calls may not take for ever.
#[track_caller]
fn hear(said: &mut impl BufRead, part: &str) -> String {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        let len = said.read_line(&mut line).unwrap();
        assert!(len > 0, "it ended without {part}: {all}");
        if line.contains(part) {
            return line;
        }
        all += &line;
    }
}

fn begun(args: &[&str]) -> Running {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdout(Stdio::piped());
    Running::spawn(command.stderr(Stdio::piped()))
}

#[test]
fn user_is_told_when_a_server_stops_answering_a_copy_and_when_it_answers_again() {
    let served = Served::new(&[]);
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    let dest = tempfile::tempdir().unwrap();
    let to = dest.path().to_str().unwrap();
    let mut get = begun(&["get", &served.url("large"), to]);
    while dest.path().read_dir().unwrap().count() == 0 {
        assert!(get.try_wait().unwrap().is_none(), "the copy has ended");
        std::thread::yield_now();
    }
    let mut said = BufReader::new(get.stderr.take().unwrap());
    for _ in 0..2 {
        served.signal(Signal::STOP);
        served.wait_until_stopped();
        let told = hear(&mut said, "server");
        let server = &served.listening;
        assert_eq!(
            told,
            format!("rpcrdma: server {server} not responding, still trying\n")
        );
        served.signal(Signal::CONT);
        let told = hear(&mut said, "server");
        assert_eq!(told, format!("rpcrdma: server {server} OK\n"));
    }
    kill_process(Pid::from_child(&get), Signal::KILL).unwrap();
    get.wait().unwrap();
}

#[test]
fn user_is_told_that_a_server_does_not_answer_a_connection() {
    let served = Served::new(&[]);
    File::create(served.dir.join("file")).unwrap();
    served.signal(Signal::STOP);
    served.wait_until_stopped();
    let mut ls = begun(&["ls", &served.url("")]);
    let mut said = BufReader::new(ls.stderr.take().unwrap());
    hear(&mut said, "not responding, still trying");
    served.signal(Signal::CONT);
    hear(&mut said, "OK");
    let output = ls.output();
    assert_eq!(text(&output.stdout), "file\n");
    assert_eq!(output.status.code(), Some(0));
}
