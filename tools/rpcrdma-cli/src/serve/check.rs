//! `serve --check`: whether a server could start, and whether it would do what its administrator means.

use super::announce::Described;
use super::settings::Settings;
use crate::checks::{PortsInUse, shares_network};
use crate::failure::{Ended, check_none, plain};
use crate::output;
use anyhow::Context;
use nfs_server::HandleKey;
use rpcrdma_daemon::addresses::meet;
use rpcrdma_daemon::clients::Addresses;
use rpcrdma_daemon::control::{ServerStatus, asking};
use rpcrdma_daemon::device_listeners::{self, DeviceListeners};
use rpcrdma_daemon::listen;
use rpcrdma_daemon::listening::Listening;
use rpcrdma_daemon::names::Names;
use rpcrdma_daemon::registration::{Registered, entries, ports_not_registered};
use rpcrdma_daemon::server::plan::Plan;
use rpcrdma_daemon::server::state::{self, NO_HOME, unusable, without_state};
use rpcrdma_daemon::server::{advice, live_exports};
use rpcrdma_daemon::systemd;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

/// Says what would be served, or all that speaks against a start, also what is wrong with the file. What a server starts with
/// all the same, such as a host without an address, is a warning, and so is a port that a server has which runs already: it is
/// the one that reads the file again.
///
/// # Errors
///
/// If the file is wrong, or a server could not start, in the words of one that does not.
pub(super) async fn check(
    settings: &Settings,
    of_file: Vec<anyhow::Error>,
    json: bool,
) -> anyhow::Result<Ended> {
    let file_is_right = of_file.is_empty();
    let mut errors = of_file;
    let plans = &settings.plans;
    let state_dir = settings.state_dir();
    let absent = live_exports::check(plans, state_dir.as_deref(), &mut errors)?;
    let mut warnings = Vec::new();
    if let Err(error) = check_state(settings, &mut warnings) {
        errors.push(error);
    }
    for (name, why) in &absent {
        warnings.push(format!("{name} is not there now: {why}"));
    }
    let addresses = check_names(plans, &mut warnings).await;
    let mut running = running(state_dir.as_deref()).await;
    running.retain(|server| shares_network(server.pid));
    let listeners = Listeners {
        settings,
        running: &running,
    };
    let listening = listeners.check(&mut warnings, &mut errors).await;
    let listening = listening.map_err(|error| errors.push(error)).ok();
    warnings.extend(advice::warnings(plans, &addresses, &settings.args.hosts()));
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
            mount: &settings.args.mount_addresses(),
        };
        let mut out = output::stdout();
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
    let given = state::named_dir(settings.args.state_dir.as_deref());
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

/// What a server would listen at.
struct Listeners<'a> {
    settings: &'a Settings,
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
        warnings: &mut Vec<String>,
        errors: &mut Vec<anyhow::Error>,
    ) -> anyhow::Result<Listening> {
        let args = &self.settings.args;
        // Whether a socket is there is not looked at: nothing is served with it.
        let providers = args.transport.server_providers(&args.listen, Vec::new())?;
        let mut in_use = PortsInUse::of("server");
        self.try_out(providers.first_is_devices, &mut in_use, errors);
        let is_served = |addr| has(self.running, addr).is_some();
        let mut beside = Vec::new();
        let mut cannot = Vec::new();
        if let Some(devices) = &providers.beside {
            let found = DeviceListeners::try_out(&args.listen, devices, is_served).await;
            warnings.extend(found.warnings);
            beside = found.listening;
        } else if providers.first_is_devices {
            for &addr in &args.listen {
                let Err(error) = providers.first.listen(addr).await else {
                    continue;
                };
                // Where a server listens over devices, another cannot now.
                match has(self.running, addr) {
                    Some(pid) if device_listeners::is_in_use(&error) => in_use.add(pid, addr),
                    _ => cannot.push(listen::cannot(error, addr)),
                }
            }
        }
        warnings.extend(in_use.describe_taken());
        self.check_rpcbind(warnings, errors).await;
        check_none(cannot)?;
        let asked = args.listen.clone();
        Ok(Listening::new(
            asked,
            providers.first_is_devices,
            beside,
            providers.device_names,
        ))
    }

    /// Tries the ports of TCP.
    fn try_out(
        &self,
        listens_over_devices: bool,
        in_use: &mut PortsInUse,
        errors: &mut Vec<anyhow::Error>,
    ) {
        let args = &self.settings.args;
        let metrics_option = self.settings.metrics_option();
        let software = args.activated.is_empty() && !listens_over_devices;
        let software = args.listen.iter().filter(|_| software);
        let software = software.map(|addr| (*addr, listen::LISTEN_OPTION));
        let mount = args.mount_addresses().into_iter();
        let mount = mount.filter(|_| args.activated_mount.is_empty());
        let mount = mount.map(|addr| (addr, "--mount-port"));
        let metrics = args.reports.metrics.map(|addr| (addr, &*metrics_option));
        let mut refused = BTreeSet::new();
        for (addr, option) in software.chain(mount).chain(metrics) {
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
        let args = &self.settings.args;
        if !args.rpcbind {
            return;
        }
        let is_served = |addr| has(self.running, addr).is_some();
        warnings.extend(ports_not_registered(&args.listen));
        let entries = entries(&args.listen, &args.mount_addresses());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::ServeArgs;
    use clap::{Args, Command, FromArgMatches};
    use std::net::TcpListener;

    /// What `--check` with these options fails with.
    async fn refused(options: &[&str]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let command = ServeArgs::augment_args(Command::new("rpcrdma"));
        let words = ["rpcrdma", dir.path().to_str().unwrap()];
        let matches = command.get_matches_from(words.iter().chain(options));
        let args = ServeArgs::from_arg_matches(&matches).unwrap();
        let (settings, errors) = args.read().unwrap();
        let checked = check(&settings, errors, false).await;
        checked.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn port_that_another_program_has_is_refused_in_the_words_of_a_start() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = taken.local_addr().unwrap();
        let (addr, port) = (addr.to_string(), addr.port().to_string());
        let free = [
            "--provider",
            "iwarp",
            "--listen",
            "127.0.0.1:0",
            "--mount-port",
            "0",
        ];
        for (options, option) in [
            (["--listen", &addr], "--listen ADDR:PORT"),
            (["--mount-port", &port], "--mount-port"),
            (["--metrics", &port], "--metrics"),
        ] {
            let others = free.chunks(2).filter(|pair| pair[0] != options[0]);
            let all: Vec<&str> = others.flatten().copied().chain(options).collect();
            let said = refused(&all).await;
            let says = format!("port {port} of 127.0.0.1 is in use: stop the server that has it");
            assert!(said.starts_with(&says) && said.ends_with(option), "{said}");
        }
    }
}
