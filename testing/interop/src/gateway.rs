//! The gateway under test: `rpcrdma gateway` on ports of its own choice.

use std::process::Command;

use anyhow::{Context, Result};

use super::TestRun;
use super::daemon::Daemon;
use super::namespaces::Namespaces;
use super::serve::Ports;

/// Place of a gateway: its parameters at each start.
pub(super) struct Place<'a> {
    /// Names it in logs.
    pub(super) name: &'a str,
    /// The transport that its clients use: `rdma` or `tcp`.
    pub(super) listen: &'a str,
    /// The server, as `--upstream` has it.
    pub(super) upstream: String,
    /// Further options of `rpcrdma gateway`.
    pub(super) options: Vec<String>,
    /// The namespaces whose network it is in.
    pub(super) within: Option<&'a Namespaces>,
}

/// A running gateway. Dropping it kills it.
pub(super) struct Gateway {
    daemon: Daemon,
    /// Port to which clients connect.
    pub(super) port: u16,
    /// Port at which it passes MOUNT on, over TCP.
    pub(super) mount_port: u16,
}

impl Place<'_> {
    /// Starts a gateway there, on free ports.
    ///
    /// # Errors
    ///
    /// It does not start, or does not say in time where it listens.
    pub(super) fn start(&self, run: &TestRun<'_>) -> Result<Gateway> {
        self.start_on(run, (0, 0))
    }

    /// The same on certain ports: those of a gateway that has ended.
    ///
    /// # Errors
    ///
    /// As with [`Self::start`].
    pub(super) fn start_on(&self, run: &TestRun<'_>, on: Ports) -> Result<Gateway> {
        let mut command = match self.within {
            Some(namespaces) => namespaces.program(run.program),
            None => Command::new(run.program),
        };
        command
            .arg("gateway")
            .args(["--listen", &format!("{}://127.0.0.1:{}", self.listen, on.0)])
            .args(["--upstream", &self.upstream])
            .args(["--mount-port", &on.1.to_string()])
            // The guest's calls come from QEMU, which the user of this machine runs.
            .arg("--trust-local")
            .args(["--json", "--log", "debug"])
            .args(&self.options);
        let (daemon, line) = Daemon::start(run, self.name, &mut command)?;
        let (port, mount_port) =
            ports(&line).with_context(|| format!("the gateway's first line: {line}"))?;
        Ok(Gateway {
            daemon,
            port,
            mount_port,
        })
    }
}

impl Gateway {
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

/// The ports in the line that `gateway --json` prints when it is ready.
fn ports(line: &str) -> Result<Ports> {
    let said: serde_json::Value = serde_json::from_str(line)?;
    let pair = &said["pairs"][0];
    let listen = pair["listen"].as_str().context("no \"listen\"")?;
    let (_, port) = listen.rsplit_once(':').context("no port in \"listen\"")?;
    let mount_port = pair["mount_port"].as_u64().context("no \"mount_port\"")?;
    Ok((port.parse()?, mount_port.try_into()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_from_the_first_line() {
        let line = r#"{"pairs":[{"listen":"rdma://127.0.0.1:4711","mount_port":815}]}"#;
        assert_eq!(ports(line).unwrap(), (4711, 815));
        assert!(ports("listening").is_err());
        assert!(ports(r#"{"pairs":[{"listen":"rdma://127.0.0.1:1"}]}"#).is_err());
    }
}
