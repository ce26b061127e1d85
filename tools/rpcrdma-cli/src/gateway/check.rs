//! `gateway --check`: whether a gateway could start, or a running one be told to read its file again.

use super::announce::Described;
use super::args::Settings;
use crate::checks::{PortsInUse, shares_network};
use crate::failure::{Ended, check_none, plain};
use crate::output;
use crate::serve::check::may_write;
use anyhow::{Context, anyhow};
use nfs_server::default_state_dir;
use rpcrdma_daemon::addresses::meet;
use rpcrdma_daemon::control::{GatewayStatus, ListenerStatus, asking};
use rpcrdma_daemon::gateway::circles::{ResolvedPair, circle};
use rpcrdma_daemon::gateway::pairs::{Pairs, entries};
use rpcrdma_daemon::gateway::plan::PairPlan;
use rpcrdma_daemon::gateway::replace::leads_back;
use rpcrdma_daemon::gateway::sockets::Sockets;
use rpcrdma_daemon::gateway::urls::ListenUrl;
use rpcrdma_daemon::gateway::{NO_HOME, advice, no_control_socket};
use rpcrdma_daemon::listen;
use rpcrdma_daemon::registration::Registered;
use rpcrdma_daemon::reports::no_control_socket_at;
use rpcrdma_daemon::systemd;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

/// Says what would be done, or all that speaks against a start, also what is wrong with the file. What a gateway starts with
/// all the same, such as a client whose name has no address, is a warning, and so is a port that a gateway has which runs
/// already: it is the one that reads the file again.
///
/// # Errors
///
/// If the file is wrong, or a gateway could not start, in the words of one that does not.
pub(super) async fn check(
    settings: &Settings,
    of_file: Vec<anyhow::Error>,
    json: bool,
) -> anyhow::Result<Ended> {
    let file_is_right = of_file.is_empty();
    let mut errors = of_file;
    let options = settings.options();
    let pairs = Pairs::new(options.clone(), Sockets::default());
    let mut warnings = pairs.hosts_without_address(&settings.pairs).await;
    let mut running = asking::gateways(settings.args.reports.control_socket.as_deref()).await;
    running.retain(|gateway| shares_network(gateway.pid));
    let served: Vec<(SocketAddr, u32)> = running.iter().flat_map(taken).collect();
    let mut in_use = PortsInUse::of("gateway");
    let mut registered = in_use.clone();
    let mut found = Vec::new();
    let prepared = pairs.prepare_all(&settings.pairs).await;
    for (plan, prepared) in settings.pairs.iter().zip(prepared) {
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
    errors.extend(circles(&settings.pairs, &found));
    match check_metrics(settings, &running) {
        Ok(taken) => taken
            .into_iter()
            .for_each(|(pid, addr)| in_use.add(pid, addr)),
        Err(error) => errors.push(error),
    }
    warnings.extend(in_use.describe_taken());
    warnings.extend(registered.describe_registered());
    warnings.extend(pairs.describe_share_of(&settings.pairs));
    match check_control_socket(settings) {
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
    let described = Described {
        pairs: &settings.pairs,
        found: &found,
        warnings: &warnings,
        providers: &*options.providers,
    };
    let mut out = output::stdout();
    match json {
        true => writeln!(out, "{}", described.json()?)?,
        false => write!(out, "{described}")?,
    }
    out.flush()?;
    Ok(Ended::Well)
}

/// What is to be said of pairs that lead back to themselves, as far as the addresses of their servers were found.
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
        at.is_some_and(|at| meet(addr, at))
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
