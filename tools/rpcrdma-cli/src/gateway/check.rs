//! `gateway --check`: whether a gateway could start, or a running one be told to read its file again.

use super::announce::Described;
use super::args::Settings;
use super::circles::{ResolvedPair, circle};
use super::pairs::{Pairs, entries};
use super::plan;
use super::replace::leads_back;
use super::side::ListenUrl;
use super::sockets::Sockets;
use super::{NO_HOME, no_control_socket, warnings};
use crate::control::{GatewayStatus, asking};
use crate::failure::{Ended, plain};
use crate::serve::check::may_write;
use crate::serve::listen;
use crate::serve::plan::summed_up;
use crate::serve::registration::Registered;
use crate::serve::reports::NO_CONTROL_SOCKET;
use crate::serve::systemd;
use anyhow::{Context, anyhow, bail};
use nfs_server::default_state_dir;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

/// Says what would be done. What a gateway starts with all the same, such as a client whose name has no
/// address, is a warning, and so is a port that a gateway has which runs already: it is the one that
/// reads the file again.
///
/// # Errors
///
/// If a gateway could not start, in the words of one that does not.
pub(super) async fn check(settings: &Settings, json: bool) -> anyhow::Result<Ended> {
    let pairs = Pairs::new(&settings.args, Sockets::default());
    let mut warnings = pairs.hosts_without_address(&settings.pairs).await;
    let mut running = asking::gateways(settings.args.reports.control_socket.as_deref()).await;
    running.retain(|gateway| shares_network(gateway.pid));
    let served: Vec<(SocketAddr, u32)> = running.iter().flat_map(taken).collect();
    let (mut in_use, mut registered) = (PortsInUse::default(), PortsInUse::default());
    let mut found = Vec::new();
    let prepared = pairs.prepare_all(&settings.pairs).await;
    for (plan, prepared) in settings.pairs.iter().zip(prepared) {
        let cannot = |error: anyhow::Error| anyhow!("{}: {error:#}", plan.listen);
        let server = prepared.map_err(cannot)?;
        let by = |addr| served.iter().find(|(other, _)| plan::meet(addr, *other));
        pairs
            .try_out(plan, |addr| by(addr).is_some())
            .map_err(cannot)?;
        for addr in plan.listeners() {
            if let Some((_, pid)) = by(addr) {
                in_use.add(*pid, addr);
            }
        }
        if let Some(mount) = plan.mount_addr().filter(|_| plan.rpcbind) {
            let entries = entries(plan.listen.scheme, plan.listen.addr, mount);
            let tried = Registered::try_out(&entries, |addr| by(addr).is_some()).await;
            for addr in tried.map_err(cannot)? {
                if let Some((_, pid)) = by(addr) {
                    registered.add(*pid, addr);
                }
            }
        }
        warnings.extend(warnings::of(plan));
        warnings.extend(warnings::of_mount_host(plan).await);
        let tried = pairs.try_out_devices(plan, |addr| by(addr).is_some()).await;
        let (listeners, without) = tried.map_err(cannot)?;
        found.push((listeners, server));
        warnings.extend(without);
    }
    let known: Vec<_> = settings
        .pairs
        .iter()
        .zip(&found)
        .map(|(plan, (_, server))| ResolvedPair {
            plan,
            listening: plan.listen.addr,
            upstream: server,
        })
        .collect();
    for (of, plan) in settings.pairs.iter().enumerate() {
        if let Some(way) = circle(&known, of) {
            bail!("{}: {:#}", plan.listen, leads_back(&way));
        }
    }
    if let Some((pid, addr)) = check_metrics(settings, &running)? {
        in_use.add(pid, addr);
    }
    warnings.extend(in_use.describe(
        "has these ports already: {ports}. It keeps them at a reload; only this one can have them",
    ));
    warnings.extend(registered.describe(
        "is registered with rpcbind, for {ports}. It replaces that at a reload; no other gateway can while it runs",
    ));
    warnings.extend(pairs.describe_share_of(&settings.pairs));
    warnings.extend(check_control_socket(settings)?);
    for warning in &warnings {
        tracing::warn!(target: "gateway", "{warning}");
    }
    let described = Described {
        pairs: &settings.pairs,
        found: &found,
        warnings: &warnings,
    };
    let mut out = io::stdout();
    match json {
        true => writeln!(out, "{}", described.json()?)?,
        false => write!(out, "{described}")?,
    }
    out.flush()?;
    Ok(Ended::Well)
}

/// Ports that running gateways have, by process. It is a warning, as one of them may be the one that reads the file again.
#[derive(Default)]
struct PortsInUse(BTreeMap<u32, Vec<SocketAddr>>);

impl PortsInUse {
    fn add(&mut self, pid: u32, addr: SocketAddr) {
        self.0.entry(pid).or_default().push(addr);
    }

    /// One sentence for each process: what is with its ports.
    fn describe(&self, what: &str) -> impl Iterator<Item = String> {
        self.0.iter().map(move |(pid, ports)| {
            let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
            let what = what.replace("{ports}", &summed_up(&ports));
            format!("the gateway with process {pid} {what}")
        })
    }
}

/// Whether a process has the ports of this one. One in a network of its own, as in a container, has others.
fn shares_network(pid: u32) -> bool {
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    match (network(&pid.to_string()), network("self")) {
        (Some(other), Some(own)) => other == own,
        // That of another user is not told.
        (None, _) | (_, None) => true,
    }
}

/// Finds out whether there could be a control socket. Returns what is to be said if a gateway would start without one.
///
/// # Errors
///
/// If it could not be made where it is to be.
fn check_control_socket(settings: &Settings) -> anyhow::Result<Option<String>> {
    if let Some(path) = &settings.args.reports.control_socket {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        accessat(CWD, dir, rights, AtFlags::EACCESS)
            .map_err(io::Error::from)
            .with_context(|| format!("{}: {NO_CONTROL_SOCKET}", path.display()))?;
        return Ok(None);
    }
    if systemd::runtime_dir().is_some() {
        return Ok(None);
    }
    let Some(dir) = default_state_dir() else {
        return Ok(Some(no_control_socket(NO_HOME)));
    };
    let cannot = may_write(&dir).err();
    Ok(cannot.map(|error| no_control_socket(&plain(&format_args!("{error:#}")))))
}

/// Finds out whether metrics could be served. Returns their port and the process that has it if that is a gateway which runs
/// already.
fn check_metrics(
    settings: &Settings,
    running: &[GatewayStatus],
) -> anyhow::Result<Option<(u32, SocketAddr)>> {
    let option = settings.args.option("metrics");
    let Some(addr) = settings.args.reports.metrics else {
        return Ok(None);
    };
    settings.check_port_of_metrics()?;
    let Err(error) = listen::try_out(addr) else {
        return Ok(None);
    };
    let serves = |gateway: &&GatewayStatus| {
        let at = gateway.metrics.as_ref().and_then(|at| at.parse().ok());
        at.is_some_and(|at| plan::meet(addr, at))
    };
    match (error.kind(), running.iter().find(serves)) {
        (io::ErrorKind::AddrInUse, Some(gateway)) => Ok(Some((gateway.pid, addr))),
        _ => Err(listen::explain(error, addr, &option)),
    }
}

/// Where a running gateway listens, also for a pair that it has no more, with its process.
fn taken(gateway: &GatewayStatus) -> impl Iterator<Item = (SocketAddr, u32)> {
    let of_pairs = gateway.pairs.iter().flat_map(|pair| {
        let listen = pair.listen.parse::<ListenUrl>().ok().map(|url| url.addr);
        let mount = pair.mount.as_ref().and_then(|addr| addr.parse().ok());
        [listen, mount].into_iter().flatten()
    });
    let held = gateway.sockets.iter().filter_map(|addr| addr.parse().ok());
    of_pairs.chain(held).map(|addr| (addr, gateway.pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_running_gateway_are_one_sentence() {
        let mut ports = PortsInUse::default();
        for port in 1..=9 {
            ports.add(7, ([127, 0, 0, 1], port).into());
        }
        ports.add(8, ([127, 0, 0, 1], 10).into());
        let said: Vec<String> = ports.describe("has {ports}").collect();
        assert_eq!(said.len(), 2);
        assert!(
            said[0].starts_with("the gateway with process 7 has"),
            "{said:?}"
        );
        assert!(said[1].contains("127.0.0.1:10"), "{said:?}");
    }
}
