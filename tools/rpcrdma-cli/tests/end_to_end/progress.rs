//! What a copy shows on a terminal, and on what is none.

use crate::running::{PROGRAM, Served, run, text};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Longer than any test looks at it. It is all hole.
const LARGE: u64 = 1 << 40;

/// A pseudo-terminal, and what was written to it.
struct Terminal {
    master: File,
    path: String,
    said: String,
}

impl Terminal {
    fn new(columns: usize) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let terminal = Self {
            master: master.into(),
            path: path.into_string().unwrap(),
            said: String::new(),
        };
        terminal.resize(columns);
        terminal
    }

    fn resize(&self, columns: usize) {
        let mut stty = Command::new("stty");
        stty.args(["-F", &self.path, "rows", "24", "cols", &columns.to_string()]);
        assert!(stty.status().unwrap().success());
    }

    /// Begins a command of which standard error is the terminal.
    fn run(&self, args: &[&str]) -> Child {
        let end = OpenOptions::new().write(true).open(&self.path).unwrap();
        Command::new(PROGRAM)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(end)
            .env("TERM", "xterm")
            .env_remove("RUST_LOG")
            .spawn()
            .unwrap()
    }

    /// Reads on until this is true of a line that was drawn.
    #[track_caller]
    fn see(&mut self, is_seen: impl Fn(&str) -> bool) {
        while !lines(&self.said).iter().any(|line| is_seen(line)) {
            assert!(self.read(), "not seen in {:?}", self.said);
        }
    }

    /// Reads to the end of a command.
    fn see_all(&mut self, mut command: Child) {
        command.wait().unwrap();
        while self.read() {}
    }

    /// Reads some; whether there was any. After the last other end is closed, there is an error.
    fn read(&mut self) -> bool {
        let mut some = [0; 4096];
        match self.master.read(&mut some) {
            Ok(len) => {
                self.said += std::str::from_utf8(&some[..len]).unwrap();
                len > 0
            }
            Err(_) => false,
        }
    }
}

/// Lines as they were drawn, one over the other or one below the other, without control sequences and the space
/// that they are filled up with.
fn lines(said: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut chars = said.chars();
    while let Some(char) = chars.next() {
        if char == '\x1b' {
            chars.by_ref().find(char::is_ascii_alphabetic);
            plain.push('\n');
        } else {
            plain.push(char);
        }
    }
    let lines = plain.split(['\r', '\n']).filter(|line| !line.is_empty());
    lines.map(|line| line.trim_end().to_owned()).collect()
}

fn kill(mut copy: Child) {
    kill_process(Pid::from_child(&copy), Signal::KILL).unwrap();
    copy.wait().unwrap();
}

fn large(served: &Served) -> String {
    let large = File::create(served.dir.join("large")).unwrap();
    large.set_len(LARGE).unwrap();
    served.url("large")
}

#[test]
fn bar_fits_the_terminal_and_follows_its_size() {
    let served = Served::new(&[]);
    let url = large(&served);
    let dest = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::new(80);
    let copy = terminal.run(&["get", &url, dest.path().to_str().unwrap()]);
    let is_whole = |line: &str| {
        line.starts_with("0/1 file  ")
            && line.contains("iB/1 TiB  [")
            && line.contains("%  ")
            && line.contains("iB/s  ")
            && line.ends_with(" left")
    };
    terminal.see(is_whole);
    for line in lines(&terminal.said) {
        assert!(line.chars().count() < 80, "{line:?}");
    }
    terminal.resize(50);
    terminal.said.clear();
    // One may have been drawn before.
    terminal.see(|line| line.len() < 50);
    terminal.said.clear();
    let is_short = |line: &str| line.starts_with("0/1  ") && line.contains("iB/1 TiB  ");
    terminal.see(is_short);
    for line in lines(&terminal.said) {
        assert!(line.chars().count() < 50, "{line:?}");
    }
    kill(copy);
}

#[test]
fn summary_is_shown_on_a_terminal_at_the_end() {
    let served = Served::new(&[]);
    served.local("tree/one", &[b'1'; 2000]);
    served.local("tree/deep/two", &[b'2'; 48]);
    let mut terminal = Terminal::new(80);
    let put = ["put", "-r", &served.beside("tree"), &served.url("")];
    let copy = terminal.run(&put);
    terminal.see_all(copy);
    let shown = lines(&terminal.said);
    let last = shown.last().unwrap();
    assert!(last.starts_with("2 files copied: 2 KiB in "), "{shown:?}");
    assert!(last.contains("iB/s)"), "{shown:?}");

    let mut terminal = Terminal::new(80);
    let dest = tempfile::tempdir().unwrap();
    let to = dest.path().to_str().unwrap();
    let copy = terminal.run(&["get", &served.url("tree/one"), &served.url("absent"), to]);
    terminal.see_all(copy);
    let shown = lines(&terminal.said);
    let last = shown.last().unwrap();
    assert!(last.starts_with("1 file copied: 1.95 KiB in "), "{shown:?}");
    assert!(last.ends_with(", 1 failed"), "{shown:?}");
}

#[test]
fn quiet_copy_shows_nothing_on_a_terminal() {
    let served = Served::new(&[]);
    let file = served.local("file", &[b'1'; 2000]);
    let mut terminal = Terminal::new(80);
    let copy = terminal.run(&["put", "-q", &file, &served.url("")]);
    terminal.see_all(copy);
    assert_eq!(terminal.said, "");
}

#[test]
fn copy_shows_nothing_on_a_pipe() {
    let served = Served::new(&[]);
    let file = served.local("file", &[b'1'; 2000]);
    let output = run(&["put", &file, &served.url("")]);
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success() && output.stdout.is_empty());
}

#[test]
fn other_lines_stand_above_the_bar() {
    let served = Served::new(&[]);
    let url = large(&served);
    let dest = tempfile::tempdir().unwrap();
    let to = dest.path().to_str().unwrap();
    let mut terminal = Terminal::new(80);
    let copy = terminal.run(&["get", &url, &served.url("absent"), to]);
    let is_error = |line: &str| line.starts_with("rpcrdma: cannot find /absent: ");
    terminal.see(is_error);
    terminal.said.clear();
    terminal.see(|line| line.starts_with("0/1 file"));
    kill(copy);
}
