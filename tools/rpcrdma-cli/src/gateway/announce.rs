//! What `gateway` says when it is ready, and with `--check`.

use super::over::{self, Sides};
use super::pairs::Pair;
use super::plan::PairPlan;
use super::side::Scheme;
use crate::control::{ListenerStatus, ReachedOver};
use crate::json;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

/// All there is to say about a running gateway.
pub(super) struct Announcement<'a> {
    pub(super) pairs: &'a [Pair],
    /// The integrity checks of software iWARP, in words.
    pub(super) crc: &'static str,
    /// Where metrics are.
    pub(super) metrics: Option<SocketAddr>,
    /// Where `rpcrdma stats` asks.
    pub(super) control: Option<&'a Path>,
}

/// The line that `--json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line<'a> {
    /// The pairs, in order.
    pairs: Vec<PairLine>,
    /// Where metrics are served over HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
    /// The control socket, which `rpcrdma stats` asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<Cow<'a, str>>,
}

/// The document that `--check --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CheckLine<'a> {
    /// The pairs, in order.
    pairs: Vec<PairLine>,
    /// What would not work now, or what an administrator may not have meant.
    warnings: &'a [String],
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PairLine {
    /// Where clients connect, as a URL.
    listen: String,
    /// Over what it listens: at the address above, and at those of RDMA devices beside it.
    listeners: Vec<ListenerStatus>,
    /// The server, as a URL.
    upstream: String,
    /// Over what the server is reached, in the order in which it is tried.
    upstream_over: Vec<ReachedOver>,
    /// Port of MOUNT over TCP, at the same address, if MOUNT is passed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    mount_port: Option<u16>,
    /// Who may connect.
    allow: Vec<String>,
    /// A command that mounts from Linux.
    mount: String,
}

impl PairLine {
    fn new(plan: &PairPlan, listening: SocketAddr, sides: Sides, mount_port: Option<u16>) -> Self {
        Self {
            listen: format!("{}://{listening}", plan.listen.scheme.name()),
            listeners: sides.listeners,
            upstream: plan.upstream.to_string(),
            upstream_over: sides.upstream,
            mount_port,
            allow: plan.allow.iter().map(ToString::to_string).collect(),
            mount: mount(plan.listen.scheme, listening, mount_port),
        }
    }
}

impl PairLine {
    /// What both sides move over, in words.
    fn over(&self) -> String {
        format!(
            "clients over {}; server over {}",
            over::describe_listeners(&self.listeners),
            over::describe_upstream(&self.upstream_over)
        )
    }
}

/// The command for a Linux client.
fn mount(scheme: Scheme, listening: SocketAddr, mount_port: Option<u16>) -> String {
    // Clients of either family reach a socket at all addresses.
    let is_six = listening.is_ipv6() && !listening.ip().is_unspecified();
    let six = if is_six { "6" } else { "" };
    let host = match listening.ip() {
        ip if ip.is_unspecified() => "THIS-HOST".to_owned(),
        ip if ip.is_ipv6() => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let (proto, port) = (scheme.name(), listening.port());
    let version = match mount_port {
        Some(mount) => format!("vers=3,nolock,mountproto=tcp{six},mountport={mount}"),
        None => "vers=4.2".to_owned(),
    };
    format!("mount -t nfs -o {version},proto={proto}{six},port={port} {host}:/EXPORT /mnt")
}

impl Announcement<'_> {
    fn lines(&self) -> Vec<PairLine> {
        let pairs = self.pairs.iter();
        let mount = |pair: &Pair| pair.mount_addr().map(|addr| addr.port());
        pairs
            .map(|pair| PairLine::new(&pair.plan, pair.listening, pair.sides(), mount(pair)))
            .collect()
    }

    /// One line of JSON.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        json::line(&Line {
            pairs: self.lines(),
            metrics: self.metrics,
            control: self.control.map(Path::to_string_lossy),
        })
    }
}

impl fmt::Display for Announcement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "passing NFS on between RDMA and TCP (software iWARP: {})\n",
            self.crc
        )?;
        for line in self.lines() {
            writeln!(
                f,
                "  {} to {}, for {}",
                line.listen,
                line.upstream,
                line.allow.join(", ")
            )?;
            writeln!(f, "    {}", line.over())?;
            if let Some(port) = line.mount_port {
                writeln!(f, "    MOUNT over TCP at port {port}")?;
            }
            writeln!(f, "    {}", line.mount)?;
        }
        if let Some(metrics) = self.metrics {
            writeln!(f, "\nmetrics    http://{metrics}/metrics")?;
        }
        Ok(())
    }
}

/// What `--check` says.
pub(super) struct Described<'a> {
    pub(super) pairs: &'a [PairPlan],
    /// Over what each of them would listen, and the addresses of its server.
    pub(super) found: &'a [(Vec<ListenerStatus>, Vec<SocketAddr>)],
    pub(super) warnings: &'a [String],
}

impl Described<'_> {
    fn lines(&self) -> Vec<PairLine> {
        let pairs = self.pairs.iter().zip(self.found);
        pairs
            .map(|(plan, (listeners, server))| {
                let sides = Sides::new(plan, listeners.clone(), server);
                PairLine::new(plan, plan.listen.addr, sides, plan.mount_port)
            })
            .collect()
    }

    /// One line of JSON.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        json::line(&CheckLine {
            pairs: self.lines(),
            warnings: self.warnings,
        })
    }
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, plan) in self.lines().iter().zip(self.pairs) {
            write!(
                f,
                "{} to {}, for {}",
                line.listen,
                line.upstream,
                plan.describe_clients()
            )?;
            match line.mount_port {
                Some(port) => writeln!(f, "; MOUNT at port {port}, from {}", plan.upstream_mount)?,
                None => writeln!(f)?,
            }
            writeln!(f, "  {}", line.over())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_command_names_transport_port_and_version() {
        let check = |scheme, listening: &str, mount_port, expected: &str| {
            assert_eq!(
                mount(scheme, listening.parse().unwrap(), mount_port),
                expected
            );
        };
        check(
            Scheme::Rdma,
            "0.0.0.0:20049",
            None,
            "mount -t nfs -o vers=4.2,proto=rdma,port=20049 THIS-HOST:/EXPORT /mnt",
        );
        check(
            Scheme::Rdma,
            "[::]:20049",
            None,
            "mount -t nfs -o vers=4.2,proto=rdma,port=20049 THIS-HOST:/EXPORT /mnt",
        );
        check(
            Scheme::Tcp,
            "[::1]:2049",
            Some(20048),
            "mount -t nfs -o vers=3,nolock,mountproto=tcp6,mountport=20048,proto=tcp6,port=2049 \
             [::1]:/EXPORT /mnt",
        );
    }
}
