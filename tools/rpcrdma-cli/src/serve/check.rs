//! `serve --check`: whether a server could start, and whether it would do what its administrator means.

use super::announce::Described;
use super::beside::{self, Beside};
use super::hints;
use super::listen;
use super::listening::Listening;
use super::names::Names;
use super::plan::{Addresses, Plan};
use super::served;
use super::settings::{NO_HOME, Settings, unusable, without_state};
use super::systemd;
use crate::control::{ServerStatus, asking};
use crate::endpoint::at_port;
use crate::failure::{Ended, check_none, plain};
use anyhow::Context;
use nfs_server::HandleKey;
use oncrpc::Chain;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

/// Says what would be served, or all that speaks against a start, also what is wrong with the file. What a running server
/// would not mind either, such as a host without an address, or a port that is in use now, is a warning.
///
/// # Errors
///
/// If the file is wrong, or a server could not start.
pub(super) async fn check(
    settings: &Settings,
    of_file: Vec<anyhow::Error>,
    json: bool,
) -> anyhow::Result<Ended> {
    let file_is_right = of_file.is_empty();
    let mut errors = of_file;
    let plans = &settings.plans;
    let state_dir = settings.state_dir();
    let absent = served::check(plans, state_dir.as_deref(), &mut errors)?;
    let mut warnings = Vec::new();
    if let Err(error) = check_state(settings, &mut warnings) {
        errors.push(error);
    }
    for (name, why) in &absent {
        warnings.push(format!("{name} is not there now: {why}"));
    }
    let addresses = check_names(plans, &mut warnings).await;
    let listening = check_listeners(settings, state_dir.as_deref(), &mut warnings, &mut errors);
    let listening = listening.await.map_err(|error| errors.push(error)).ok();
    warnings.extend(hints::warnings(
        plans,
        &addresses,
        settings.args.listen.ip(),
    ));
    // Of a file that is not understood some would not be true.
    if file_is_right {
        for warning in &warnings {
            tracing::warn!(target: "serve", "{warning}");
        }
    }
    check_none(errors)?;
    if let Some(listening) = listening {
        let described = Described {
            plans,
            absent: &absent,
            warnings: &warnings,
            listening,
            mount_port: settings.args.mount_port,
        };
        let mut out = io::stdout();
        match json {
            true => writeln!(out, "{}", described.json()?)?,
            false => write!(out, "{described}")?,
        }
        out.flush()?;
    }
    Ok(Ended::Well)
}

/// Whether state can be kept where it is to be, and a key that is there be used. Nothing is made.
///
/// # Errors
///
/// If not, and the administrator wants it there, or a key that is there is not to be used.
fn check_state(settings: &Settings, warnings: &mut Vec<String>) -> anyhow::Result<()> {
    let given = settings.given_state_dir();
    let Some(dir) = settings.state_dir() else {
        warnings.push(without_state(NO_HOME));
        return Ok(());
    };
    let loaded = HandleKey::load(&dir);
    if given.is_some() {
        loaded?;
        return may_write(&dir).context("state cannot be kept (--state-dir names another place)");
    }
    let missing = match loaded {
        Ok(_) => may_write(&dir)
            .err()
            .map(|error| plain(&format_args!("{error:#}"))),
        Err(error) => Some(unusable(&error).ok_or(error)?),
    };
    warnings.extend(missing.map(|why| without_state(&why)));
    Ok(())
}

/// Whether this user may make a directory, or files in it.
pub(crate) fn may_write(dir: &Path) -> anyhow::Result<()> {
    let there = dir.ancestors().find(|dir| dir.exists());
    let there = there.unwrap_or(Path::new("/"));
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, there, rights, AtFlags::EACCESS).with_context(|| {
        let there = there.display();
        format!("{}: this user may not write to {there}", dir.display())
    })
}

/// The addresses of hosts that rules name.
async fn check_names(plans: &[Plan], warnings: &mut Vec<String>) -> Addresses {
    let mut addresses = Addresses::new();
    for (host, answer) in Names::default().ask(served::hosts(plans)).await {
        match answer {
            Ok(found) => {
                addresses.insert(host, found);
            }
            Err(error) => warnings.push(format!(
                "the host {} has no address now, and would not be served: {error}",
                host.as_str()
            )),
        }
    }
    addresses
}

/// Whether it could be listened where the server is to listen, and over what. Adds what speaks against it to the errors.
///
/// # Errors
///
/// If it could not be listened over any device.
async fn check_listeners(
    settings: &Settings,
    state_dir: Option<&Path>,
    warnings: &mut Vec<String>,
    errors: &mut Vec<anyhow::Error>,
) -> anyhow::Result<Listening> {
    let args = &settings.args;
    // Whether a socket is there is not looked at: nothing is served with it.
    let providers = args.transport.server_providers(args.listen, None)?;
    let mount = at_port(args.listen, args.mount_port);
    let software = args.activated.is_none() && !providers.first_is_devices;
    let software = software.then_some((args.listen, "--listen ADDR:PORT"));
    let metrics = args.reports.metrics.map(|addr| (addr, "--metrics"));
    let (mut servers, mut refused) = (None, None);
    let addrs = software.into_iter().chain([(mount, "--mount-port")]);
    for (addr, option) in addrs.chain(metrics) {
        match listen::try_out(addr) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if servers.is_none() {
                    servers = Some(running(state_dir).await);
                }
                if !servers.iter().flatten().any(|server| has(server, addr)) {
                    warnings.push(listen::explain(error, addr, option).to_string());
                }
            }
            // At the same address the other port cannot be had either.
            Err(_) if refused.replace(addr.ip()) == Some(addr.ip()) => {}
            Err(error) => errors.push(listen::explain(error, addr, option)),
        }
    }
    let listening = |beside| Listening::new(args.listen, providers.first_is_devices, beside);
    if !providers.use_devices() {
        return Ok(listening(Vec::new()));
    }
    // Where a server listens over devices, another cannot now.
    let servers = match servers {
        Some(servers) => servers,
        None => running(state_dir).await,
    };
    let is_served = |addr| servers.iter().any(|server| has(server, addr));
    if let Some(devices) = &providers.beside {
        let beside = Beside::try_out(args.listen, devices, is_served).await;
        warnings.extend(beside.warnings);
        return Ok(listening(beside.listening));
    }
    if let Err(error) = providers.first.listen(args.listen).await {
        match beside::is_in_use(&error) {
            true if is_served(args.listen) => {}
            true => warnings.push(Chain(&error).to_string()),
            false => return Err(error.into()),
        }
    }
    Ok(listening(Vec::new()))
}

/// The servers that run on this machine, as far as this user may ask them.
async fn running(state_dir: Option<&Path>) -> Vec<ServerStatus> {
    let runtime = systemd::runtime_dir();
    asking::running(state_dir.into_iter().chain(runtime.as_deref())).await
}

/// Whether a running server listens at this address, so that it is free once that one ends.
fn has(server: &ServerStatus, addr: SocketAddr) -> bool {
    let addrs = [&server.listening, &server.mount]
        .into_iter()
        .chain(&server.metrics);
    addrs
        .filter_map(|text| text.parse::<SocketAddr>().ok())
        .any(|other| {
            let everywhere = other.ip().is_unspecified() || addr.ip().is_unspecified();
            other.port() == addr.port() && (everywhere || other.ip() == addr.ip())
        })
}
