//! Lines of JSON that another process writes.

use std::io::{BufRead, BufReader};
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// How long a line may take.
const LIMIT: Duration = Duration::from_secs(120);

/// The lines that a process writes on its standard output.
pub struct Lines(Receiver<String>);

impl Lines {
    /// Reads them, on a thread that ends with the process.
    pub fn of(stdout: ChildStdout) -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // It only matters to somebody who still looks.
                let _ = sender.send(line);
            }
        });
        Self(lines)
    }

    /// The next one.
    ///
    /// # Errors
    ///
    /// There is none within two minutes, or it is no JSON.
    pub fn next(&self) -> Result<serde_json::Value> {
        let line = self
            .0
            .recv_timeout(LIMIT)
            .context("it says nothing, or has ended")?;
        serde_json::from_str(&line).with_context(|| format!("it says {line}"))
    }
}
