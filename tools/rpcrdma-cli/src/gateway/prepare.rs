//! What can be known of a pair before it starts.

use super::circles::reaches;
use super::mount_proxy::MountPlace;
use super::over::over_tcp;
use super::pairs::{Pairs, cannot_listen};
use super::plan::PairPlan;
use super::side::Scheme;
use crate::control::ListenerStatus;
use crate::endpoint::NO_ADDRESS;
use crate::serve::beside::{Beside, is_in_use};
use crate::serve::listen;
use crate::serve::listening::Listening;
use anyhow::{Context, anyhow, bail};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};

/// A reserved port. Only whether it may be had matters, and not whether it is free.
const RESERVED_PORT: u16 = 1023;

impl Pairs {
    /// Finds out what speaks against a pair. Returns the addresses of its server.
    ///
    /// # Errors
    ///
    /// Why the pair cannot be started.
    pub(super) async fn prepare(&self, plan: &PairPlan) -> anyhow::Result<Vec<SocketAddr>> {
        if plan.reserved_port {
            check_reserved_ports()?;
        }
        let upstream = resolve(plan).await?;
        let same_ports =
            plan.listen.scheme == plan.upstream.scheme || !plan.provider.wants_devices();
        if same_ports && upstream.iter().any(|&addr| reaches(addr, plan.listen.addr)) {
            bail!(
                "upstream {} is where the pair itself listens: name the server",
                plan.upstream.server
            );
        }
        if let Some(addr) = own_mount(plan, &upstream).await {
            bail!(
                "upstream_mount {addr} is where the pair itself passes MOUNT on from: name the server's"
            );
        }
        if [plan.listen.scheme, plan.upstream.scheme].contains(&Scheme::Rdma) {
            plan.provider.providers(self.args.transport.iwarp())?;
        }
        Ok(upstream)
    }

    /// Finds out whether a pair could listen, but for ports that something `has` which ends before.
    ///
    /// # Errors
    ///
    /// Why it could not.
    pub(super) fn try_out(
        &self,
        plan: &PairPlan,
        has: impl Fn(SocketAddr) -> bool,
    ) -> anyhow::Result<()> {
        let options = ["--listen", "--mount-port"];
        for (addr, option) in plan.listeners().zip(options) {
            // Ports of RDMA devices are others than those of TCP.
            let is_device = option == "--listen" && plan.listens_over_devices_alone();
            if !is_device && !has(addr) && !self.sockets.has(addr) {
                listen::try_out(addr).map_err(|error| listen::explain(error, addr, option))?;
            }
        }
        Ok(())
    }

    /// Finds out where a pair would listen, over what, but for ports that something `has` which ends before. Says why it
    /// would not listen over RDMA devices beside software iWARP.
    ///
    /// # Errors
    ///
    /// Why it could not listen over RDMA devices, if they alone are asked for.
    pub(super) async fn try_out_devices(
        &self,
        plan: &PairPlan,
        has: impl Fn(SocketAddr) -> bool,
    ) -> anyhow::Result<(Vec<ListenerStatus>, Vec<String>)> {
        let addr = plan.listen.addr;
        if plan.listen.scheme == Scheme::Tcp {
            return Ok((vec![over_tcp(addr)], Vec::new()));
        }
        let software = self.args.transport.iwarp();
        let providers = plan.provider.server_providers(software, addr, None)?;
        if providers.first_is_devices {
            match providers.first.listen(addr).await {
                Err(error) if !(is_in_use(&error) && has(addr)) => {
                    return Err(cannot_listen(error, addr));
                }
                Ok(_) | Err(_) => {}
            }
        }
        let beside = match &providers.beside {
            Some(devices) => Beside::try_out(addr, devices, has).await,
            None => Beside::default(),
        };
        let listening = Listening::new(addr, providers.first_is_devices, beside.listening);
        Ok((listening.listeners(), beside.warnings))
    }
}

/// The place of MOUNT of the server, if that is where the pair itself listens.
async fn own_mount(plan: &PairPlan, upstream: &[SocketAddr]) -> Option<SocketAddr> {
    let own = SocketAddr::new(plan.listen.addr.ip(), plan.mount_port?);
    let places: Vec<SocketAddr> = match &plan.upstream_mount {
        MountPlace::ByRpcbind => return None,
        MountPlace::Port(port) => upstream
            .iter()
            .map(|addr| SocketAddr::new(addr.ip(), *port))
            .collect(),
        // One that is not found now may be later.
        MountPlace::At(endpoint) => endpoint.addresses().await.unwrap_or_default(),
    };
    places.into_iter().find(|addr| reaches(*addr, own))
}

/// Checks that this process may have ports below 1024.
fn check_reserved_ports() -> anyhow::Result<()> {
    match listen::try_out((Ipv4Addr::UNSPECIFIED, RESERVED_PORT).into()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("--reserved-port needs CAP_NET_BIND_SERVICE (or root)")
        }
        // One that is in use may be had.
        _ => Ok(()),
    }
}

/// The addresses of the server, in order.
async fn resolve(plan: &PairPlan) -> anyhow::Result<Vec<SocketAddr>> {
    let server = &plan.upstream.server;
    let addrs = server.addresses().await;
    let mut addrs = addrs.with_context(|| format!("upstream {server}"))?;
    addrs.dedup();
    match addrs.is_empty() {
        true => Err(anyhow!("upstream {server}: {NO_ADDRESS}")),
        false => Ok(addrs),
    }
}
