//! Progress of a copy on a terminal, and elsewhere.

use crate::running::{PROGRAM, Running, Served, run, text};
use crate::terminal::Terminal;
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

/// Longer than any test looks at it. It is all hole.
const LARGE: u64 = 1 << 40;

/// A terminal, and what was written to it.
struct Screen {
    terminal: Terminal,
    said: String,
}

impl Screen {
    fn new(columns: u16) -> Self {
        Self {
            terminal: Terminal::new(columns),
            said: String::new(),
        }
    }

    /// Begins a command of which standard error is the terminal.
    fn run(&self, args: &[&str]) -> Running {
        let mut command = Command::new(PROGRAM);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.terminal.far())
            .env("TERM", "xterm")
            .env_remove("RUST_LOG");
        Running::spawn(&mut command)
    }

    /// Reads on until this is true of a line that was drawn.
    #[track_caller]
    fn see(&mut self, is_seen: impl Fn(&str) -> bool) {
        while !lines(&self.said).iter().any(|line| is_seen(line)) {
            assert!(self.read(), "not seen in {:?}", self.said);
        }
    }

    /// Reads to the end of a command.
    fn see_all(&mut self, mut command: Running) {
        command.wait().unwrap();
        while self.read() {}
    }

    /// Reads some; whether there was any. After the last other end is closed, there is an error.
    fn read(&mut self) -> bool {
        let mut some = [0; 4096];
        match self.terminal.near.read(&mut some) {
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
    let mut screen = Screen::new(80);
    let copy = screen.run(&["get", &url, dest.path().to_str().unwrap()]);
    let is_whole = |line: &str| {
        line.starts_with("0/1 file  ")
            && line.contains("iB/1 TiB  [")
            && line.contains("%  ")
            && line.contains("iB/s  ")
            && line.ends_with(" left")
    };
    screen.see(is_whole);
    for line in lines(&screen.said) {
        assert!(line.chars().count() < 80, "{line:?}");
    }
    screen.terminal.resize(50);
    screen.said.clear();
    // One may have been drawn before.
    screen.see(|line| line.len() < 50);
    screen.said.clear();
    let is_short = |line: &str| line.starts_with("0/1  ") && line.contains("iB/1 TiB  ");
    screen.see(is_short);
    for line in lines(&screen.said) {
        assert!(line.chars().count() < 50, "{line:?}");
    }
    drop(copy);
}

#[test]
fn lines_of_the_log_do_not_tear_the_bar() {
    let served = Served::new(&[]);
    let url = large(&served);
    let dest = tempfile::tempdir().unwrap();
    let mut screen = Screen::new(80);
    let to = dest.path().to_str().unwrap();
    let copy = screen.run(&["get", "--log", "trace", &url, to]);
    screen.see(|line| line.contains(" left"));
    let drawn = screen.said.len();
    while !screen.said[drawn..].contains("TRACE") {
        assert!(screen.read(), "no log in {:?}", screen.said);
    }
    let rows = screen.said.split('\n');
    for row in rows.filter(|row| row.contains("TRACE")) {
        let seen = row.rsplit("\x1b[2K").next().unwrap();
        assert!(!seen.contains(" left"), "{row:?}");
    }
    drop(copy);
}

#[test]
fn summary_is_shown_on_a_terminal_at_the_end() {
    let served = Served::new(&[]);
    served.local("tree/one", &[b'1'; 2000]);
    served.local("tree/deep/two", &[b'2'; 48]);
    let mut screen = Screen::new(80);
    let put = ["put", "-r", &served.beside("tree"), &served.url("")];
    let copy = screen.run(&put);
    screen.see_all(copy);
    let shown = lines(&screen.said);
    let last = shown.last().unwrap();
    assert!(last.starts_with("2 files copied: 2 KiB in "), "{shown:?}");
    assert!(last.contains("iB/s)"), "{shown:?}");

    let mut screen = Screen::new(80);
    let dest = tempfile::tempdir().unwrap();
    let to = dest.path().to_str().unwrap();
    let copy = screen.run(&["get", &served.url("tree/one"), &served.url("absent"), to]);
    screen.see_all(copy);
    let shown = lines(&screen.said);
    let last = shown.last().unwrap();
    assert!(last.starts_with("1 file copied: 1.95 KiB in "), "{shown:?}");
    assert!(last.ends_with(", 1 failed"), "{shown:?}");
}

#[test]
fn quiet_copy_shows_nothing_on_a_terminal() {
    let served = Served::new(&[]);
    let file = served.local("file", &[b'1'; 2000]);
    let mut screen = Screen::new(80);
    let copy = screen.run(&["put", "-q", &file, &served.url("")]);
    screen.see_all(copy);
    assert_eq!(screen.said, "");
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
    let mut screen = Screen::new(80);
    let copy = screen.run(&["get", &url, &served.url("absent"), to]);
    let is_error =
        |line: &str| line.starts_with("rpcrdma: nfs://") && line.contains("/absent: no such file");
    screen.see(is_error);
    screen.said.clear();
    screen.see(|line| line.starts_with("0/1 file"));
    drop(copy);
}
