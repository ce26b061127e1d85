//! Network namespaces for servers that need ports of their own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// A script of `testing/interop/host` in namespaces of its own: network, mounts, host name and processes. Dropping it
/// ends all processes in them.
pub(super) struct Namespaces {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    limit: Duration,
}

impl Namespaces {
    /// Starts a script, and waits until it says `ready`. Each of its answers may take up to `limit`.
    ///
    /// # Errors
    ///
    /// The user is not root, or the script fails.
    pub(super) fn start(
        script: &str,
        environment: &[(&str, String)],
        errors: std::fs::File,
        limit: Duration,
    ) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "this test runs a server in namespaces of its own, which takes root"
        );
        let script = programs::root().join("testing/interop/host").join(script);
        let mut child = Command::new("unshare")
            .args([
                "--net",
                "--mount",
                "--pid",
                "--uts",
                "--fork",
                "--kill-child",
                "sh",
            ])
            .arg(script)
            .envs(environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("cannot run unshare, of the package util-linux")?;
        let input = child.stdin.take().context("the script's input")?;
        let output = child.stdout.take().context("the script's output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The send fails only if nobody waits for the script any more.
                let _ = sender.send(line);
            }
        });
        // From here on an early return ends the script.
        let namespaces = Self {
            child,
            input,
            lines,
            limit,
        };
        namespaces.expect("ready")?;
        Ok(namespaces)
    }

    /// Has the script do something, and waits until it has.
    ///
    /// # Errors
    ///
    /// It fails, or takes too long.
    pub(super) fn ask(&mut self, what: &str) -> Result<()> {
        writeln!(self.input, "{what}")?;
        self.input.flush()?;
        self.expect("done")
            .with_context(|| format!("the server was told to {what}"))
    }

    /// A command that runs in the network of these namespaces, and everywhere else on this machine. Arguments
    /// may follow.
    pub(super) fn enter(&self, command: &Command) -> Command {
        let mut entered = Command::new("nsenter");
        entered
            .arg(format!("--net={}", self.network()))
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => entered.env(name, value),
                None => entered.env_remove(name),
            };
        }
        entered
    }

    /// The same, of a program.
    pub(super) fn program(&self, program: &Path) -> Command {
        self.enter(&Command::new(program))
    }

    /// The network namespace.
    fn network(&self) -> String {
        format!("/proc/{}/ns/net", self.child.id())
    }

    fn expect(&self, word: &str) -> Result<()> {
        match self.lines.recv_timeout(self.limit) {
            Ok(line) if line == word => Ok(()),
            Ok(line) => bail!("the script said \"{line}\", and not \"{word}\""),
            Err(_) => bail!("the script did not say \"{word}\""),
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // With it end all processes of the namespaces. An error here means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
