//! Output of `gateway` when it is ready, and with `--check`.

use printing::json;
use rpcrdma_daemon::addresses::{at_port, has_host_of};
use rpcrdma_daemon::control::{ListenerStatus, ReachedOver};
use rpcrdma_daemon::gateway::pairs::Pair;
use rpcrdma_daemon::gateway::plan::PairPlan;
use rpcrdma_daemon::gateway::transports::{self, Sides};
use rpcrdma_daemon::gateway::urls::Scheme;
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
    /// Address of the metrics.
    pub(super) metrics: Option<SocketAddr>,
    /// Socket that `rpcrdma stats` asks.
    pub(super) control: Option<&'a Path>,
}

/// The line that `--json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line<'a> {
    /// The pairs, in order.
    pairs: Vec<PairLine>,
    /// Address of the metrics over HTTP.
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
    /// Warnings about parts that would not work now, or that an administrator may not have meant.
    warnings: &'a [String],
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PairLine {
    /// Address to which clients connect, as a URL.
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
    /// Place of the server's MOUNT, if it is passed on over TCP or the place is configured: `rpcbind` for the port that
    /// rpcbind of the server's host says, else 20048; or `HOST:PORT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_mount: Option<String>,
    /// Whether clients are told that the server does not support pNFS.
    hide_pnfs: bool,
    /// Addresses that may connect.
    allow: Vec<String>,
    /// Commands that mount from Linux: NFS version 4.2 and, if MOUNT is passed on, version 3. `--check` leaves out
    /// those whose port the start chooses.
    mount: Vec<String>,
}

impl PairLine {
    fn new(plan: &PairPlan, listening: SocketAddr, sides: Sides, mount_port: Option<u16>) -> Self {
        Self {
            listen: format!("{}://{listening}", plan.listen.scheme.name()),
            listeners: sides.listeners,
            upstream: plan.upstream.to_string(),
            upstream_over: sides.upstream,
            mount_port,
            hide_pnfs: plan.hide_pnfs,
            allow: plan.allow.iter().map(ToString::to_string).collect(),
            upstream_mount: plan.mount_name(),
            mount: mount(plan.listen.scheme, listening, mount_port),
        }
    }
}

impl PairLine {
    /// Transports of both sides, in words.
    fn over(&self) -> String {
        format!(
            "clients over {}; server over {}",
            transports::describe_listeners(&self.listeners),
            transports::describe_upstream(&self.upstream_over)
        )
    }

    /// Which MOUNT clients of version 3 reach, in words.
    fn describe_mount(&self, plan: &PairPlan) -> String {
        let Some(port) = self.mount_port else {
            // The usual server over RDMA that is no kernel's.
            let also = match plan.upstream.scheme {
                Scheme::Rdma => ", the only one of rpcrdma serve",
                Scheme::Tcp => "",
            };
            let place = match self.upstream_mount {
                Some(_) => {
                    let place = plan.upstream_mount.describe(&plan.upstream);
                    format!("; MOUNT over connections of NFS is passed on to {place}")
                }
                None => String::new(),
            };
            return format!(
                "no MOUNT over TCP: Linux mounts version 4 only (--mount-port, or mount_port of the pair, adds version \
                 3{also}){place}"
            );
        };
        let place = plan.upstream_mount.describe(&plan.upstream);
        let port = match port {
            0 => "a port that is chosen at the start".to_owned(),
            port => format!("port {port}"),
        };
        let rpcbind = if plan.rpcbind {
            ", registered with rpcbind"
        } else {
            ""
        };
        format!("MOUNT over TCP at {port}{rpcbind}, passed on to {place}")
    }

    /// Writes the description of a pair, each line behind `indent`.
    fn write(&self, f: &mut fmt::Formatter<'_>, plan: &PairPlan, indent: &str) -> fmt::Result {
        writeln!(f, "{indent}{}", self.over())?;
        writeln!(f, "{indent}{}", self.describe_mount(plan))?;
        if self.hide_pnfs {
            writeln!(f, "{indent}pNFS of the server is hidden from clients")?;
        }
        // Version 3 first, which every server has: that of `rpcrdma serve` has no other.
        for mount in self.mount.iter().rev() {
            let remark = match mount.contains("vers=4.2,") {
                true => "    # if the server has NFS version 4",
                false => "",
            };
            writeln!(f, "{indent}{mount}{remark}")?;
        }
        match self.mount.is_empty() {
            true => writeln!(
                f,
                "{indent}the start chooses the port, and says how to mount"
            ),
            false => Ok(()),
        }
    }
}

/// The commands for a Linux client: NFS version 4.2 and, with a port of MOUNT, version 3; none with a port that is not known
/// yet.
fn mount(scheme: Scheme, listening: SocketAddr, mount_port: Option<u16>) -> Vec<String> {
    // Clients of either family reach a socket at all addresses.
    let is_six = listening.is_ipv6() && !listening.ip().is_unspecified();
    let six = if is_six { "6" } else { "" };
    let host = match listening.ip() {
        ip if ip.is_unspecified() => "THIS-HOST".to_owned(),
        ip if ip.is_ipv6() => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let (proto, port) = (scheme.name(), listening.port());
    if port == 0 {
        return Vec::new();
    }
    let three = mount_port
        .filter(|&mount| mount != 0)
        .map(|mount| format!("vers=3,nolock,mountproto=tcp{six},mountport={mount}"));
    let versions = ["vers=4.2".to_owned()].into_iter().chain(three);
    let command = |version| {
        format!("mount -t nfs -o {version},proto={proto}{six},port={port} {host}:/EXPORT /mnt")
    };
    versions.map(command).collect()
}

/// The port of MOUNT at the address of a pair: its own, or that of another address of one list, which has it for the host.
fn mount_port<'a>(
    plan: &PairPlan,
    own: Option<SocketAddr>,
    mounts: impl Iterator<Item = (&'a PairPlan, SocketAddr)>,
) -> Option<u16> {
    let of_list = |(other, addr): &(&PairPlan, SocketAddr)| {
        other.upstream == plan.upstream && has_host_of(*addr, plan.listen.addr)
    };
    let shared = || mounts.into_iter().find(of_list).map(|(_, addr)| addr);
    own.or_else(shared).map(|addr| addr.port())
}

impl Announcement<'_> {
    fn lines(&self) -> Vec<PairLine> {
        let mount = |pair: &Pair| {
            let all = self.pairs.iter();
            let mounts = all.filter_map(|other| Some((&other.plan, other.mount_addr()?)));
            mount_port(&pair.plan, pair.mount_addr(), mounts)
        };
        let pairs = self.pairs.iter();
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
        for (line, pair) in self.lines().iter().zip(self.pairs) {
            writeln!(
                f,
                "  {} to {}, for {}",
                line.listen,
                line.upstream,
                line.allow.join(", ")
            )?;
            line.write(f, &pair.plan, "    ")?;
        }
        if let Some(metrics) = self.metrics {
            writeln!(f, "\nmetrics    http://{metrics}/metrics")?;
        }
        Ok(())
    }
}

/// Output of `--check`.
pub(super) struct Described<'a> {
    pub(super) pairs: &'a [PairPlan],
    /// Over what each of them would listen, and the addresses of its server.
    pub(super) found: &'a [(Vec<ListenerStatus>, Vec<SocketAddr>)],
    pub(super) warnings: &'a [String],
}

impl Described<'_> {
    fn lines(&self) -> Vec<PairLine> {
        let mount_addr = |plan: &PairPlan| Some(at_port(plan.listen.addr, plan.mount_port?));
        let pairs = self.pairs.iter().zip(self.found);
        pairs
            .map(|(plan, (listeners, server))| {
                let sides = Sides::new(plan, listeners.clone(), server);
                let all = self.pairs.iter();
                let mounts = all.filter_map(|other| Some((other, mount_addr(other)?)));
                let port = mount_port(plan, mount_addr(plan), mounts);
                PairLine::new(plan, plan.listen.addr, sides, port)
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
            writeln!(
                f,
                "{} to {}, for {}",
                line.listen,
                line.upstream,
                plan.describe_clients()
            )?;
            line.write(f, plan, "  ")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_command_names_transport_port_and_version() {
        let check = |scheme, listening: &str, mount_port, expected: &[&str]| {
            assert_eq!(
                mount(scheme, listening.parse().unwrap(), mount_port),
                expected
            );
        };
        check(
            Scheme::Rdma,
            "0.0.0.0:20049",
            None,
            &["mount -t nfs -o vers=4.2,proto=rdma,port=20049 THIS-HOST:/EXPORT /mnt"],
        );
        check(
            Scheme::Rdma,
            "[::]:20049",
            None,
            &["mount -t nfs -o vers=4.2,proto=rdma,port=20049 THIS-HOST:/EXPORT /mnt"],
        );
        check(Scheme::Rdma, "127.0.0.1:0", Some(20048), &[]);
        check(
            Scheme::Rdma,
            "127.0.0.1:20049",
            Some(0),
            &["mount -t nfs -o vers=4.2,proto=rdma,port=20049 127.0.0.1:/EXPORT /mnt"],
        );
        check(
            Scheme::Tcp,
            "[::1]:2049",
            Some(20048),
            &[
                "mount -t nfs -o vers=4.2,proto=tcp6,port=2049 [::1]:/EXPORT /mnt",
                "mount -t nfs -o vers=3,nolock,mountproto=tcp6,mountport=20048,proto=tcp6,port=2049 \
                 [::1]:/EXPORT /mnt",
            ],
        );
    }
}
