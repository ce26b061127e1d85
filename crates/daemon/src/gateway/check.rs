//! Check of a gateway before it starts or reads its file again: whether it could, and warnings for its administrator.

use super::advice;
use super::circles::{ResolvedPair, circle};
use super::pairs::{GatewayOptions, Pairs, entries};
use super::plan::PairPlan;
use super::replace::leads_back;
use super::running::{NO_HOME, no_control_socket};
use super::sockets::Sockets;
use super::urls::ListenUrl;
use crate::addresses::meet;
use crate::checks::{PortsInUse, may_write, shares_network};
use crate::control::{GatewayStatus, ListenerStatus, asking};
use crate::errors::check_none;
use crate::listen;
use crate::registration::Registered;
use crate::reports::{ReportPlaces, no_control_socket_at};
use crate::systemd;
use anyhow::{Context, anyhow, bail};
use nfs_server::default_state_dir;
use oncrpc::plain;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// A gateway that could start.
#[derive(Debug)]
pub struct CheckedGateway {
    /// The listeners that each pair would have, and the addresses of its server.
    pub found: Vec<(Vec<ListenerStatus>, Vec<SocketAddr>)>,
    /// Warnings, which were logged.
    pub warnings: Vec<String>,
}

/// Checks whether a gateway could start with these pairs, and logs warnings. Faults that a gateway starts with, such as a client
/// whose name has no address, are warnings, and so is a port of a gateway that runs already: that is the one that reads the
/// file again. `of_file` are errors of the file, and `metrics_setting` names the setting with the address of metrics.
///
/// # Errors
///
/// Those of the file, and those of a start, in its words.
pub async fn check(
    options: GatewayOptions,
    plans: &[PairPlan],
    (places, metrics_setting): (&ReportPlaces, &str),
    of_file: Vec<anyhow::Error>,
) -> anyhow::Result<CheckedGateway> {
    let file_is_right = of_file.is_empty();
    let mut errors = of_file;
    let pairs = Pairs::new(options, Sockets::default());
    let mut warnings = pairs.hosts_without_address(plans).await;
    let mut running = asking::gateways(places.control_socket.as_deref()).await;
    running.retain(|gateway| shares_network(gateway.pid));
    let served: Vec<(SocketAddr, u32)> = running.iter().flat_map(taken).collect();
    let mut in_use = PortsInUse::of("gateway");
    let mut registered = in_use.clone();
    let mut found = Vec::new();
    let prepared = pairs.prepare_all(plans).await;
    for (plan, prepared) in plans.iter().zip(prepared) {
        let cannot = |error: anyhow::Error| anyhow!("{}: {error:#}", plan.listen);
        let by = |addr| served.iter().find(|(other, _)| meet(addr, *other));
        let is_served = |addr| by(addr).is_some();
        let prepared = prepared.map_err(|error| errors.push(cannot(error)));
        errors.extend(pairs.try_out(plan, is_served).into_iter().map(cannot));
        for addr in plan.listeners() {
            if let Some((_, pid)) = by(addr) {
                in_use.add(*pid, addr);
            }
        }
        if let Some(mount) = plan.mount_addr().filter(|_| plan.rpcbind) {
            let entries = entries(plan.listen.scheme, plan.listen.addr, mount);
            match Registered::try_out(&entries, is_served).await {
                Ok(tried) => {
                    for addr in tried {
                        if let Some((_, pid)) = by(addr) {
                            registered.add(*pid, addr);
                        }
                    }
                }
                Err(error) => errors.push(cannot(error)),
            }
        }
        warnings.extend(advice::of(plan));
        warnings.extend(advice::of_mount_host(plan).await);
        // What speaks against its devices is said already otherwise.
        let Ok(server) = prepared else {
            found.push((Vec::new(), Vec::new()));
            continue;
        };
        match pairs.try_out_devices(plan, is_served).await {
            Ok((listeners, without)) => {
                warnings.extend(without);
                found.push((listeners, server));
            }
            Err(error) => {
                errors.push(cannot(error));
                found.push((Vec::new(), server));
            }
        }
    }
    errors.extend(circles(plans, &found));
    match check_metrics(plans, (places, metrics_setting), &running) {
        Ok(taken) => taken
            .into_iter()
            .for_each(|(pid, addr)| in_use.add(pid, addr)),
        Err(error) => errors.push(error),
    }
    warnings.extend(in_use.describe_taken());
    warnings.extend(registered.describe_registered());
    warnings.extend(pairs.describe_share_of(plans));
    match check_control_socket(places) {
        Ok(warning) => warnings.extend(warning),
        Err(error) => errors.push(error),
    }
    // Of a file that is not understood some would not be true.
    if file_is_right {
        for warning in &warnings {
            tracing::warn!(target: "gateway", "{warning}");
        }
    }
    check_none(errors)?;
    Ok(CheckedGateway { found, warnings })
}

/// Errors of pairs that lead back to themselves, as far as the addresses of their servers were found.
fn circles(
    plans: &[PairPlan],
    found: &[(Vec<ListenerStatus>, Vec<SocketAddr>)],
) -> Vec<anyhow::Error> {
    let known: Vec<_> = plans
        .iter()
        .zip(found)
        .map(|(plan, (_, server))| ResolvedPair {
            plan,
            listening: plan.listen.addr,
            upstream: server,
        })
        .collect();
    let ways = plans.iter().enumerate().filter_map(|(of, plan)| {
        let way = circle(&known, of)?;
        Some(anyhow!("{}: {:#}", plan.listen, leads_back(&way)))
    });
    ways.collect()
}

/// Finds out whether there could be a control socket. Returns a warning if a gateway would start without one.
///
/// # Errors
///
/// If it could not be made where it is to be.
fn check_control_socket(places: &ReportPlaces) -> anyhow::Result<Option<String>> {
    if let Some(path) = &places.control_socket {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        accessat(CWD, dir, rights, AtFlags::EACCESS)
            .map_err(io::Error::from)
            .with_context(|| no_control_socket_at(path))?;
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
    plans: &[PairPlan],
    (places, setting): (&ReportPlaces, &str),
    running: &[GatewayStatus],
) -> anyhow::Result<Option<(u32, SocketAddr)>> {
    let Some(addr) = places.metrics else {
        return Ok(None);
    };
    check_port_of_metrics(plans, (places, setting))?;
    let Err(error) = listen::try_out(addr) else {
        return Ok(None);
    };
    let serves = |gateway: &&GatewayStatus| {
        let at = gateway.metrics.as_ref().and_then(|at| at.parse().ok());
        at.is_some_and(|at| meet(addr, at))
    };
    match (error.kind(), running.iter().find(serves)) {
        (io::ErrorKind::AddrInUse, Some(gateway)) => Ok(Some((gateway.pid, addr))),
        _ => Err(listen::explain(error, addr, setting)),
    }
}

/// Addresses at which a running gateway listens, also for a pair that it has no more, with its process.
fn taken(gateway: &GatewayStatus) -> impl Iterator<Item = (SocketAddr, u32)> {
    let of_pairs = gateway.pairs.iter().flat_map(|pair| {
        let listen = pair.listen.parse::<ListenUrl>().ok().map(|url| url.addr);
        let mount = pair.mount.as_ref().and_then(|addr| addr.parse().ok());
        [listen, mount].into_iter().flatten()
    });
    let held = gateway.sockets.iter().filter_map(|addr| addr.parse().ok());
    of_pairs.chain(held).map(|addr| (addr, gateway.pid))
}

/// Checks that metrics have a port of their own.
///
/// # Errors
///
/// If it is that of a pair.
pub(super) fn check_port_of_metrics(
    plans: &[PairPlan],
    (places, setting): (&ReportPlaces, &str),
) -> anyhow::Result<()> {
    let Some(addr) = places.metrics else {
        return Ok(());
    };
    let mut pairs = plans.iter().flat_map(PairPlan::listeners);
    if pairs.any(|other| meet(addr, other)) {
        bail!("{setting}: {addr} is the port of a pair: choose another");
    }
    Ok(())
}
