//! A program under test that runs until it is told to end: `rpcrdma serve` and `rpcrdma gateway`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::TestRun;

/// How long it may take to say that it listens.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How long it may take to end once it was told to.
const STOP_LIMIT: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(20);

/// A running program. Dropping it kills it.
pub(super) struct Daemon {
    child: Child,
    name: String,
}

impl Daemon {
    /// Starts a program, and returns the first line of its output, which says where it listens. `name` names
    /// it in logs, which are continued if it was started before.
    ///
    /// # Errors
    ///
    /// It does not start, or does not say in time where it listens.
    pub(super) fn start(
        run: &TestRun<'_>,
        name: &str,
        command: &mut Command,
    ) -> Result<(Self, String)> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log(run, name)?)
            .spawn()
            .with_context(|| format!("cannot run {}", programs::command::line(command)))?;
        let stdout = child.stdout.take().context("the program's output")?;
        let mut log = log(run, &format!("{name}-stdout"))?;
        // From here on an early return kills it.
        let daemon = Self {
            child,
            name: name.into(),
        };
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Both only matter to somebody who still looks.
                let _ = writeln!(log, "{line}");
                let _ = sender.send(line);
            }
        });
        let line = lines
            .recv_timeout(START_LIMIT)
            .with_context(|| format!("{name} does not say it listens"))?;
        Ok((daemon, line))
    }

    /// Ends it the way an administrator does.
    ///
    /// # Errors
    ///
    /// It is gone already, takes too long, or ends with another status than 0.
    pub(super) fn stop(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended by itself ({status})", self.name);
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let start = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("{} ended with {status}", self.name),
                None if start.elapsed() > STOP_LIMIT => {
                    bail!(
                        "{} still runs {} s after SIGTERM",
                        self.name,
                        STOP_LIMIT.as_secs()
                    )
                }
                None => thread::sleep(POLL),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // An error here means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log(run: &TestRun<'_>, name: &str) -> Result<File> {
    let path = run.logs.join(format!("{name}.log"));
    File::options()
        .create(true)
        .append(true)
        .open(&path)
        .context("cannot write a log")
}
