//! Checks of a pair before it starts.

use super::circles::reaches;
use super::mount_place::MountPlace;
use super::pairs::Pairs;
use super::plan::PairPlan;
use super::urls::Scheme;
use crate::addresses::at_port;
use crate::control::ListenerStatus;
use crate::listen;
use crate::listening::{Listening, over_tcp};
use crate::lookup::addresses_of;
use crate::providers::warning;
use anyhow::{Context, bail};
use rpcrdma::Iwarp;
use rpcrdma::any::{DeviceListeners, Over, is_in_use};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};

/// A reserved port. Only whether it may be had matters, and not whether it is free.
const RESERVED_PORT: u16 = 1023;

impl Pairs {
    /// Finds out what speaks against each of these pairs: the addresses of its server, or why it cannot be started. Names
    /// are looked up at the same time, and none for longer than `LOOKUP`.
    pub(super) async fn prepare_all(
        &self,
        plans: &[PairPlan],
    ) -> Vec<anyhow::Result<Vec<SocketAddr>>> {
        let looking_up: Vec<_> = plans
            .iter()
            .map(|plan| tokio::spawn(LookedUp::of(plan.clone())))
            .collect();
        let mut prepared = Vec::new();
        for (plan, found) in plans.iter().zip(looking_up) {
            let found = found.await.map_err(anyhow::Error::new);
            prepared.push(found.and_then(|found| self.prepare(plan, found)));
        }
        prepared
    }

    fn prepare(&self, plan: &PairPlan, found: LookedUp) -> anyhow::Result<Vec<SocketAddr>> {
        let LookedUp { upstream, mount } = found;
        if plan.reserved_port {
            check_reserved_ports(&self.key(plan, "reserved_port"))?;
        }
        let upstream = upstream?;
        let same_ports =
            plan.listen.scheme == plan.upstream.scheme || !plan.provider.wants_devices();
        let listening = self.sockets.listening_at(plan.listen.addr);
        if same_ports && upstream.iter().any(|&addr| reaches(addr, listening)) {
            bail!(
                "upstream {} is where the pair itself listens: name the server",
                plan.upstream.server
            );
        }
        let own = plan.mount_addr().map(|on| self.sockets.listening_at(on));
        if let Some(addr) = own_mount(plan, own, &upstream, mount) {
            bail!(
                "upstream_mount {addr} is where the pair itself passes MOUNT on from: name the server's"
            );
        }
        if [plan.listen.scheme, plan.upstream.scheme].contains(&Scheme::Rdma) {
            let software = Iwarp::new(self.options.iwarp.clone());
            plan.provider.open(software).map(drop)?;
        }
        Ok(upstream)
    }

    /// Finds out what keeps a pair from listening, but for ports that something `has` which ends before.
    pub(super) fn try_out(
        &self,
        plan: &PairPlan,
        has: impl Fn(SocketAddr) -> bool,
    ) -> Vec<anyhow::Error> {
        let mut errors = Vec::new();
        for (addr, key) in plan.listeners().zip(["listen", "mount_port"]) {
            // Ports of RDMA devices are others than those of TCP.
            let is_device = key == "listen" && plan.listens_over_devices_alone();
            if is_device || has(addr) || self.sockets.has(addr) {
                continue;
            }
            if let Err(error) = listen::try_out(addr) {
                let is_of_port = error.kind() == ErrorKind::AddrInUse;
                errors.push(listen::explain(error, addr, &self.key(plan, key)));
                // The other port is at the same address.
                if !is_of_port {
                    break;
                }
            }
        }
        errors
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
            return Ok((vec![over_tcp(addr, None)], Vec::new()));
        }
        let software = Iwarp::new(self.options.iwarp.clone());
        let setting = &plan.provider;
        let providers = setting.open_to_listen(software, &[addr], Vec::new())?;
        let over_devices = providers.over() == Over::Devices;
        if over_devices {
            match providers.main().listen(addr).await {
                Err(error) if !(is_in_use(&error) && has(addr)) => {
                    return Err(self.cannot_listen(error, plan));
                }
                Ok(_) | Err(_) => {}
            }
        }
        let beside = match providers.devices_beside() {
            Some(devices) => DeviceListeners::try_out(&[addr], devices, has).await,
            None => DeviceListeners::default(),
        };
        let listening = Listening::new(vec![addr], over_devices, beside.listening);
        let warnings = beside.missing.iter().map(warning).collect();
        Ok((listening.listeners(), warnings))
    }
}

/// The place of MOUNT of the server, if that is where the pair itself listens for MOUNT, its `own`.
fn own_mount(
    plan: &PairPlan,
    own: Option<SocketAddr>,
    upstream: &[SocketAddr],
    mount: Vec<SocketAddr>,
) -> Option<SocketAddr> {
    let own = own?;
    let places: Vec<SocketAddr> = match &plan.upstream_mount {
        MountPlace::ByRpcbind => return None,
        MountPlace::Port(port) => upstream.iter().map(|addr| at_port(*addr, *port)).collect(),
        MountPlace::At(_) => mount,
    };
    places.into_iter().find(|addr| reaches(*addr, own))
}

/// Checks that this process may have ports below 1024.
fn check_reserved_ports(key: &str) -> anyhow::Result<()> {
    match listen::try_out((Ipv4Addr::UNSPECIFIED, RESERVED_PORT).into()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("{key} needs CAP_NET_BIND_SERVICE (or root)")
        }
        // One that is in use may be had.
        _ => Ok(()),
    }
}

/// The addresses of the names of a pair.
struct LookedUp {
    /// The addresses of the server, in order.
    upstream: anyhow::Result<Vec<SocketAddr>>,
    /// Those of the host that MOUNT is at. One that is not found now may be later.
    mount: Vec<SocketAddr>,
}

impl LookedUp {
    async fn of(plan: PairPlan) -> Self {
        let server = &plan.upstream.server;
        let mount = async {
            match &plan.upstream_mount {
                MountPlace::At(endpoint) => addresses_of(endpoint).await,
                MountPlace::ByRpcbind | MountPlace::Port(_) => Ok(Vec::new()),
            }
        };
        let (upstream, mount) = tokio::join!(addresses_of(server), mount);
        Self {
            upstream: upstream.with_context(|| format!("upstream {server}")),
            mount: mount.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::circles::tests::plan;

    #[test]
    fn pair_does_not_ask_the_socket_for_mount_that_it_was_handed() {
        let (mut pair, upstream) = plan("rdma://0.0.0.0:1", "tcp://[::1]:2049");
        pair.mount_port = Some(20048);
        pair.upstream_mount = "20048".parse().unwrap();
        let own = |at: &str| own_mount(&pair, Some(at.parse().unwrap()), &upstream, Vec::new());
        assert_eq!(own("0.0.0.0:20048"), None, "it has no IPv6");
        assert_eq!(own("[::]:20048"), Some("[::1]:20048".parse().unwrap()));
    }
}
