//! Check of a server before it starts: whether it could, and warnings for its administrator.

use super::advice;
use super::live_exports::{self, AbsentExports};
use super::plan::Plan;
use super::running::ServerOptions;
use super::state::{self, NO_HOME, unusable, without_state};
use crate::addresses::meet;
use crate::checks::{PortsInUse, may_write, shares_network};
use crate::clients::Addresses;
use crate::control::{ServerStatus, asking};
use crate::errors::{Several, check_none};
use crate::listen;
use crate::listening::Listening;
use crate::names::Names;
use crate::providers::warning;
use crate::registration::{Registered, entries, ports_not_registered};
use crate::systemd;
use anyhow::Context;
use nfs_server::HandleKey;
use oncrpc::plain;
use rpcrdma::any::{DeviceListeners, Over, Providers, is_in_use};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// A server that could start.
#[derive(Debug)]
pub struct CheckedServer {
    /// Exports that would not be served now, with the reasons.
    pub absent: AbsentExports,
    /// Warnings, which were logged.
    pub warnings: Vec<String>,
    /// The listeners that it would have.
    pub listening: Listening,
}

/// Checks whether a server could start, and logs warnings. Faults that a server starts with, such as a host without an address,
/// are warnings, and so is a port of a server that runs already: that is the one that reads the file again. `of_file` are
/// errors of the file, and `open` opens the providers without the sockets of the service manager.
///
/// # Errors
///
/// Those of the file, and those of a start, in its words.
pub async fn check(
    options: &ServerOptions,
    open: impl FnOnce() -> anyhow::Result<Providers>,
    of_file: Vec<anyhow::Error>,
) -> anyhow::Result<CheckedServer> {
    let file_is_right = of_file.is_empty();
    let mut errors = of_file;
    let plans = &options.exports;
    let state_dir = state::dir(options.state_dir.as_deref());
    let absent = live_exports::check(plans, state_dir.as_deref(), &mut errors)?;
    let mut warnings = Vec::new();
    if let Err(error) = check_state(options, &mut warnings) {
        errors.push(error);
    }
    for (name, why) in &absent {
        warnings.push(format!("{name} is not there now: {why}"));
    }
    let addresses = check_names(plans, &mut warnings).await;
    let mut running = running(state_dir.as_deref()).await;
    running.retain(|server| shares_network(server.pid));
    let listeners = Listeners {
        options,
        running: &running,
    };
    let listening = listeners.check(open, &mut warnings, &mut errors).await;
    let hosts = options.hosts();
    warnings.extend(advice::warnings(plans, &addresses, &hosts));
    // Of a file that is not understood some would not be true.
    if file_is_right {
        for warning in &warnings {
            tracing::warn!(target: "serve", "{warning}");
        }
    }
    match listening {
        Ok(listening) => {
            check_none(errors)?;
            Ok(CheckedServer {
                absent,
                warnings,
                listening,
            })
        }
        Err(error) => {
            errors.push(error);
            Err(Several::of(errors))
        }
    }
}

/// Whether state can be kept where it is to be, and a key that is there be used. Nothing is made.
///
/// # Errors
///
/// If not, and the administrator wants it there, or a key that is there is not to be used.
fn check_state(options: &ServerOptions, warnings: &mut Vec<String>) -> anyhow::Result<()> {
    let setting = options.state_dir.as_deref();
    let named = state::named_dir(setting);
    let Some(dir) = state::dir(setting) else {
        warnings.push(without_state(NO_HOME));
        return Ok(());
    };
    let loaded = HandleKey::load(&dir);
    if named.is_some() {
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

/// The addresses of hosts that rules name.
async fn check_names(plans: &[Plan], warnings: &mut Vec<String>) -> Addresses {
    let mut addresses = Addresses::new();
    for (host, answer) in Names::default().ask(live_exports::hosts(plans)).await {
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

/// The listeners that a server would have.
struct Listeners<'a> {
    options: &'a ServerOptions,
    /// The servers of this machine.
    running: &'a [ServerStatus],
}

impl Listeners<'_> {
    /// Whether it could be listened there, and over what. Adds what speaks against it to the errors, and ports of servers that
    /// run already to the warnings.
    ///
    /// # Errors
    ///
    /// If it could not be listened over any device.
    async fn check(
        &self,
        open: impl FnOnce() -> anyhow::Result<Providers>,
        warnings: &mut Vec<String>,
        errors: &mut Vec<anyhow::Error>,
    ) -> anyhow::Result<Listening> {
        let options = self.options;
        let providers = open()?;
        warnings.extend(options.capacity(&providers).warning());
        let mut in_use = PortsInUse::of("server");
        let over_devices = providers.over() == Over::Devices;
        self.try_out(over_devices, &mut in_use, errors);
        let is_served = |addr| has(self.running, addr).is_some();
        let mut beside = Vec::new();
        let mut cannot = Vec::new();
        if let Some(devices) = providers.devices_beside() {
            let found = DeviceListeners::try_out(&options.listen, devices, is_served).await;
            warnings.extend(found.missing.iter().map(warning));
            beside = found.listening;
        } else if over_devices {
            for &addr in &options.listen {
                let Err(error) = providers.main().listen(addr).await else {
                    continue;
                };
                // Where a server listens over devices, another cannot now.
                match has(self.running, addr) {
                    Some(pid) if is_in_use(&error) => in_use.add(pid, addr),
                    _ => cannot.push(listen::cannot(error, addr)),
                }
            }
        }
        warnings.extend(in_use.describe_taken());
        self.check_rpcbind(warnings, errors).await;
        check_none(cannot)?;
        let asked = options.listen.clone();
        Ok(Listening::new(asked, over_devices, beside).with_tcp(options.tcp.clone(), None))
    }

    /// Tries the ports of TCP.
    fn try_out(
        &self,
        listens_over_devices: bool,
        in_use: &mut PortsInUse,
        errors: &mut Vec<anyhow::Error>,
    ) {
        let options = self.options;
        let metrics_option = &options.metrics_setting;
        let software = options.rdma_socket.is_none() && !listens_over_devices;
        let software = options.listen.iter().filter(|_| software);
        let software = software.map(|addr| (*addr, listen::LISTEN_OPTION));
        let tcp = options.tcp.iter();
        let tcp = tcp.filter(|_| options.tcp_sockets.is_empty());
        let tcp = tcp.map(|addr| (*addr, listen::TCP_OPTION));
        let mount = options.mount.iter();
        let mount = mount.filter(|_| options.mount_sockets.is_empty());
        let mount = mount.map(|addr| (*addr, "--mount-port"));
        let metrics = options
            .reports
            .metrics
            .map(|addr| (addr, &**metrics_option));
        let mut refused = BTreeSet::new();
        for (addr, option) in software.chain(tcp).chain(mount).chain(metrics) {
            let Err(error) = listen::try_out(addr) else {
                continue;
            };
            let is_in_use = error.kind() == io::ErrorKind::AddrInUse;
            match has(self.running, addr) {
                Some(pid) if is_in_use => in_use.add(pid, addr),
                // At the same address the other port cannot be had either.
                _ if !is_in_use && !refused.insert(addr.ip()) => {}
                _ => errors.push(listen::explain(error, addr, option)),
            }
        }
    }

    /// Finds out whether the server could be registered, if it is to be.
    async fn check_rpcbind(&self, warnings: &mut Vec<String>, errors: &mut Vec<anyhow::Error>) {
        let options = self.options;
        if !options.rpcbind {
            return;
        }
        let is_served = |addr| has(self.running, addr).is_some();
        warnings.extend(ports_not_registered(&options.listen, &options.tcp));
        let entries = entries(&options.listen, &options.tcp, &options.mount);
        match Registered::try_out(&entries, is_served).await {
            Ok(replaced) => {
                let mut registered = PortsInUse::of("server");
                for addr in replaced {
                    if let Some(pid) = has(self.running, addr) {
                        registered.add(pid, addr);
                    }
                }
                warnings.extend(registered.describe_registered());
            }
            Err(error) => errors.push(error),
        }
    }
}

/// The servers that run on this machine, as far as this user may ask them.
async fn running(state_dir: Option<&Path>) -> Vec<ServerStatus> {
    let runtime = systemd::runtime_dir();
    asking::running(state_dir.into_iter().chain(runtime.as_deref())).await
}

/// The process of the running server that listens at this address, so that it is free once that one ends.
fn has(running: &[ServerStatus], addr: SocketAddr) -> Option<u32> {
    let has = |server: &&ServerStatus| {
        let addrs = [&server.listening, &server.mount].into_iter();
        let others = server.listeners.iter().map(|listener| &listener.address);
        addrs
            .chain(others)
            .chain(&server.mounts)
            .chain(&server.metrics)
            .filter_map(|text| text.parse::<SocketAddr>().ok())
            .any(|other| meet(addr, other))
    };
    running.iter().find(has).map(|server| server.pid)
}
