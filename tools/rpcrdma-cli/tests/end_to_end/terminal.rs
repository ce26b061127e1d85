//! Running the program on a terminal.

use crate::running::{PROGRAM, text};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

/// A pseudo-terminal, seen from where its text goes.
pub(crate) struct Terminal {
    pub(crate) near: File,
    path: String,
}

impl Terminal {
    /// One of this width.
    pub(crate) fn new(columns: u16) -> Self {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let path = ptsname(&near, Vec::new()).unwrap();
        let terminal = Self {
            near: near.into(),
            path: path.into_string().unwrap(),
        };
        terminal.resize(columns);
        terminal
    }

    pub(crate) fn resize(&self, columns: u16) {
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.near, size).unwrap();
    }

    /// The end of a program, whose controlling terminal it does not become.
    pub(crate) fn far(&self) -> File {
        let mut far = OpenOptions::new();
        let flags = OFlags::NOCTTY.bits().try_into().unwrap();
        far.read(true).write(true).custom_flags(flags);
        far.open(&self.path).unwrap()
    }
}

/// Lines that the program shows on a terminal of this width, on which it must succeed: those that were there at
/// some time, those of its progress among them, without what only moves the cursor or colours the text.
#[track_caller]
pub(crate) fn shown(width: u16, args: &[&str]) -> Vec<String> {
    let mut terminal = Terminal::new(width);
    let far = terminal.far();
    let mut child = Command::new(PROGRAM)
        .args(args)
        .env("TERM", "xterm")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .stdout(far.try_clone().unwrap())
        .stderr(far)
        .spawn()
        .unwrap();
    let mut bytes = Vec::new();
    // When the last end is closed the terminal is gone, which is an error.
    let _ = terminal.near.read_to_end(&mut bytes);
    let status = child.wait().unwrap();
    let all = plain(&text(&bytes));
    assert!(status.success(), "{args:?}: {status}: {all}");
    all.split(['\r', '\n']).map(str::to_owned).collect()
}

/// Text without the control sequences of a terminal (ECMA-48 §5.4).
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => {
                assert_eq!(rest.next(), Some('['), "another sequence in {text:?}");
                // Parameters and intermediate characters go before the final one.
                rest.find(|c| ('@'..='~').contains(c));
                // A line that another replaces is one by itself.
                plain.push('\r');
            }
            c => plain.push(c),
        }
    }
    plain
}

/// Asserts that no line is wider than this.
#[track_caller]
pub(crate) fn assert_fits(width: usize, lines: &[String]) {
    for line in lines {
        assert!(line.chars().count() <= width, "{line:?} in {lines:#?}");
    }
}
