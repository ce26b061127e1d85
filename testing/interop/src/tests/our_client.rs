//! The program as a client of a server in a guest.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::TestRun;
use programs::command::{Finished, tail, within};

const POLL: Duration = Duration::from_millis(10);

/// The program under test as a client of a server with `/export`.
pub(super) struct OurClient<'a> {
    pub(super) run: &'a TestRun<'a>,
    /// Ports of the host that lead to the server and to MOUNT.
    pub(super) port: u16,
    pub(super) mount_port: u16,
}

/// A command that is in flight. Dropping it kills it.
pub(super) struct Running {
    child: Child,
    line: String,
    log: PathBuf,
}

impl OurClient<'_> {
    pub(super) fn step(&self, what: &str) {
        self.run.report.say(self.run.name, what);
    }

    /// The address of something below the guest's `/export`.
    pub(super) fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1:{}/export/{path}", self.port)
    }

    /// The address of the server for `ping`.
    pub(super) fn peer(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn ping(&self, count: usize, limit: Duration) -> Result<Finished> {
        let mut command = Command::new(self.run.program);
        command.args(["ping", &self.peer(), "-c", &count.to_string()]);
        within(&mut command, limit, &self.run.work)
    }

    /// The same, speaking what `--rpcrdma-version` says; its result in JSON.
    pub(super) fn ping_speaking(&self, version: &str, limit: Duration) -> Result<Finished> {
        let mut command = Command::new(self.run.program);
        command.args(["ping", &self.peer(), "-c", "3", "-i", "0.1", "--json"]);
        command.args(["--rpcrdma-version", version]);
        within(&mut command, limit, &self.run.work)
    }

    /// A command on files, which needs MOUNT.
    pub(super) fn files(&self, arguments: &[&str], limit: Duration) -> Result<Finished> {
        within(&mut self.command(arguments), limit, &self.run.work)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.run.program);
        command
            .args(arguments)
            .arg("--mount-port")
            .arg(self.mount_port.to_string());
        command
    }

    /// Begins a command on files; what it says and what happens to it goes to a log of this name.
    pub(super) fn begin(&self, name: &str, arguments: &[&str]) -> Result<Running> {
        let mut command = self.command(arguments);
        Running::start(self.run, name, command.args(["--log", "debug"]))
    }

    /// Begins `ping` with these options.
    pub(super) fn begin_ping(&self, name: &str, arguments: &[&str]) -> Result<Running> {
        let mut command = Command::new(self.run.program);
        command
            .args(["ping", &self.peer(), "--log", "debug"])
            .args(arguments);
        Running::start(self.run, name, &mut command)
    }
}

impl Running {
    /// Begins a command; what it prints and what it logs goes to files of this name.
    pub(super) fn start(run: &TestRun<'_>, name: &str, command: &mut Command) -> Result<Self> {
        let log = run.logs.join(format!("{name}.log"));
        let line = programs::command::line(command);
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(log.with_extension("out"))?)
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot run {line}"))?;
        Ok(Self { child, line, log })
    }

    /// Waits until it has printed this line.
    ///
    /// # Errors
    ///
    /// It has not after `limit`, or ends first.
    pub(super) fn expect(&mut self, line: &str, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let printed = self.printed()?;
            if printed.lines().any(|printed| printed == line) {
                return Ok(());
            }
            self.still_runs()?;
            ensure!(
                start.elapsed() < limit,
                "{} did not print \"{line}\" within {} s:\n{}",
                self.line,
                limit.as_secs(),
                tail(&printed)
            );
            thread::sleep(POLL);
        }
    }

    fn printed(&self) -> Result<String> {
        Ok(fs::read_to_string(self.log.with_extension("out"))?)
    }

    /// # Errors
    ///
    /// It has ended, though there is more to come for it.
    pub(super) fn still_runs(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended early ({status}):\n{}",
                self.line,
                self.end_of_log()
            ),
        }
    }

    /// Waits for its good end, and returns what it printed and what it logged.
    ///
    /// # Errors
    ///
    /// It fails, or has not ended after `limit`.
    pub(super) fn finish(mut self, limit: Duration) -> Result<(String, String)> {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(
                start.elapsed() < limit,
                "{} still runs after {} s:\n{}",
                self.line,
                limit.as_secs(),
                self.end_of_log()
            );
            thread::sleep(POLL);
        };
        ensure!(
            status.success(),
            "{} failed ({status}):\n{}",
            self.line,
            self.end_of_log()
        );
        Ok((self.printed()?, fs::read_to_string(&self.log)?))
    }

    fn end_of_log(&self) -> String {
        tail(&String::from_utf8_lossy(
            &fs::read(&self.log).unwrap_or_default(),
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error here means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
