//! `gateway --check`: whether a gateway could start, or a running one be told to read its file again.

use super::announce::Described;
use super::args::Settings;
use super::circles::{ResolvedPair, circle};
use super::pairs::Pairs;
use super::plan::{self, PairPlan};
use super::replace::leads_back;
use super::side::ListenUrl;
use super::sockets::Sockets;
use crate::control::{self, GatewayStatus};
use crate::failure::Ended;
use crate::serve::listen;
use anyhow::{anyhow, bail};
use std::io::{self, Write};
use std::net::SocketAddr;

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
    let running = control::gateways(settings.args.reports.control_socket.as_deref()).await;
    let served: Vec<(SocketAddr, u32)> = running.iter().flat_map(taken).collect();
    let mut found = Vec::new();
    let prepared = pairs.prepare_all(&settings.pairs).await;
    for (plan, prepared) in settings.pairs.iter().zip(prepared) {
        let cannot = |error: anyhow::Error| anyhow!("{}: {error:#}", plan.listen);
        let server = prepared.map_err(cannot)?;
        let by = |addr| served.iter().find(|(other, _)| plan::meet(addr, *other));
        pairs
            .try_out(plan, |addr| by(addr).is_some())
            .map_err(cannot)?;
        if let Some((addr, (_, pid))) = plan.listeners().find_map(|addr| Some((addr, by(addr)?))) {
            warnings.push(format!(
                "port {} of {} is that of the gateway with process {pid}: only this one can have it",
                addr.port(),
                addr.ip()
            ));
        }
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
    warnings.extend(check_metrics(settings, &running)?);
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

/// Finds out whether metrics could be served. It is a warning if their port is that of a gateway which runs already: it
/// may be the one that reads the file again.
fn check_metrics(settings: &Settings, running: &[GatewayStatus]) -> anyhow::Result<Option<String>> {
    let Some(addr) = settings.args.reports.metrics else {
        return Ok(None);
    };
    let mut pairs = settings.pairs.iter().flat_map(PairPlan::listeners);
    if pairs.any(|other| plan::meet(addr, other)) {
        bail!("--metrics {addr} is the port of a pair: choose another");
    }
    let Err(error) = listen::try_out(addr) else {
        return Ok(None);
    };
    let serves = |gateway: &&GatewayStatus| {
        let at = gateway.metrics.as_ref().and_then(|at| at.parse().ok());
        at.is_some_and(|at| plan::meet(addr, at))
    };
    match (error.kind(), running.iter().find(serves)) {
        (io::ErrorKind::AddrInUse, Some(gateway)) => Ok(Some(format!(
            "port {} of {} is that of the metrics of the gateway with process {}: only this one can have it",
            addr.port(),
            addr.ip(),
            gateway.pid
        ))),
        _ => Err(listen::explain(error, addr, "--metrics")),
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
