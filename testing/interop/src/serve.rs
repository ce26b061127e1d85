//! The server under test: `rpcrdma serve` on ports of its own choice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::TestRun;
use super::daemon::Daemon;
use super::namespaces::Namespaces;

/// The path that the server exports a directory as.
pub(super) const EXPORT: &str = "/export";

/// The ports of a server: of RPC-over-RDMA, and of MOUNT. 0 is any free one.
pub(super) type Ports = (u16, u16);

/// A running server. Dropping it kills it.
pub(super) struct Serve {
    daemon: Daemon,
    /// Port of RPC-over-RDMA.
    pub(super) port: u16,
    /// Port of MOUNT.
    pub(super) mount_port: u16,
    /// Path of the socket that commands ask.
    pub(super) control: PathBuf,
}

impl Serve {
    /// Serves `folder` as [`EXPORT`].
    ///
    /// # Errors
    ///
    /// It does not start, or does not say in time where it listens.
    pub(super) fn start(run: &TestRun<'_>, folder: &Path) -> Result<Self> {
        Self::start_with(run, folder, &[])
    }

    /// The same with further options of `rpcrdma serve`.
    ///
    /// # Errors
    ///
    /// As with [`Self::start`].
    pub(super) fn start_with(run: &TestRun<'_>, folder: &Path, options: &[&str]) -> Result<Self> {
        Self::start_on(run, folder, (0, 0), options)
    }

    /// The same on certain ports: those of a server that has ended.
    ///
    /// # Errors
    ///
    /// As with [`Self::start`].
    pub(super) fn start_on(
        run: &TestRun<'_>,
        folder: &Path,
        on: Ports,
        options: &[&str],
    ) -> Result<Self> {
        Self::run(run, Command::new(run.program), folder, on, options)
    }

    /// The same on free ports within namespaces.
    ///
    /// # Errors
    ///
    /// As with [`Self::start`].
    pub(super) fn start_within(
        run: &TestRun<'_>,
        folder: &Path,
        namespaces: &Namespaces,
    ) -> Result<Self> {
        Self::run(run, namespaces.program(run.program), folder, (0, 0), &[])
    }

    fn run(
        run: &TestRun<'_>,
        mut command: Command,
        folder: &Path,
        on: Ports,
        options: &[&str],
    ) -> Result<Self> {
        let state = run.work.join("state");
        fs::create_dir_all(&state)?;
        command
            .arg("serve")
            .arg(format!("{EXPORT}={}", folder.display()))
            .args(["--listen", &format!("127.0.0.1:{}", on.0)])
            .args(["--mount-port", &on.1.to_string()])
            .args(["--squash", "none", "--json"])
            // The guest's calls come from QEMU, which the user of this machine runs.
            .arg("--trust-local")
            .arg("--state-dir")
            .arg(&state)
            .args(["--log", "debug"])
            .args(options);
        let (daemon, line) = Daemon::start(run, "serve", &mut command)?;
        let (port, mount_port, control) =
            places(&line).with_context(|| format!("the server's first line: {line}"))?;
        Ok(Self {
            daemon,
            port,
            mount_port,
            control,
        })
    }

    /// Ports of its listeners.
    pub(super) fn ports(&self) -> Ports {
        (self.port, self.mount_port)
    }

    /// Kills it, which leaves it no time for anything.
    pub(super) fn kill(self) {
        drop(self);
    }

    /// Ends it the way an administrator does.
    ///
    /// # Errors
    ///
    /// It is gone already, takes too long, or ends with another status than 0.
    pub(super) fn stop(self) -> Result<()> {
        self.daemon.stop()
    }
}

/// The ports and the control socket in the line that `serve --json` prints when it is ready.
fn places(line: &str) -> Result<(u16, u16, PathBuf)> {
    let said: serde_json::Value = serde_json::from_str(line)?;
    let listening = said["listening"].as_str().context("no \"listening\"")?;
    let (_, port) = listening
        .rsplit_once(':')
        .context("no port in \"listening\"")?;
    let mount_port = said["mount_port"].as_u64().context("no \"mount_port\"")?;
    let control = said["control"].as_str().context("no \"control\"")?;
    Ok((port.parse()?, mount_port.try_into()?, control.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_the_control_socket_are_read_from_the_first_line() {
        let line =
            r#"{"listening":"127.0.0.1:4711","mount_port":815,"control":"/run/c","exports":[]}"#;
        assert_eq!(places(line).unwrap(), (4711, 815, "/run/c".into()));
        assert!(places("serving").is_err());
        assert!(places(r#"{"listening":"127.0.0.1:1"}"#).is_err());
    }
}
