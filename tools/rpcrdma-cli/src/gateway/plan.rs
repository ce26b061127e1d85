//! What a gateway is to do: pairs of a listening address and a server, as the command line or the file says.

use super::mount_place::MountPlace;
use super::side::{ListenUrl, Scheme, UpstreamUrl};
use crate::endpoint::{at_port, meet};
use crate::provider::ProviderArgs;
use crate::serve::names::Names;
use crate::serve::plan::{Addresses, Clients, HostName};
use nfs_server::{AccessList, Network};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A listening address and its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PairPlan {
    pub(crate) listen: ListenUrl,
    pub(crate) upstream: UpstreamUrl,
    /// Who may connect.
    pub(crate) allow: Vec<Clients>,
    /// TCP port of MOUNT for clients, if it is passed on.
    pub(crate) mount_port: Option<u16>,
    /// Where MOUNT of the server is.
    pub(crate) upstream_mount: MountPlace,
    /// Whether rpcbind of this machine is told.
    pub(crate) rpcbind: bool,
    /// Whether connections to the server come from ports below 1024.
    pub(crate) reserved_port: bool,
    /// Whether clients are told that the server does not support pNFS.
    pub(crate) hide_pnfs: bool,
    /// What its RDMA sides use.
    pub(crate) provider: ProviderArgs,
}

impl PairPlan {
    /// What cannot be, each with the name of the option.
    pub(crate) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let tcp = |scheme| scheme == Scheme::Tcp;
        if tcp(self.listen.scheme) && tcp(self.upstream.scheme) {
            let what = "both sides are TCP: a gateway has RDMA on one side at least (two gateways make a tunnel \
                        between TCP clients and a TCP server)";
            found.push(("upstream", what.to_owned()));
        }
        if self.reserved_port && !tcp(self.upstream.scheme) {
            let what = "RPC-over-RDMA has no reserved ports: it is for an upstream of tcp://";
            found.push(("reserved_port", what.to_owned()));
        }
        if self.provider.contradicts_itself() {
            let what = "it names an RDMA device, which provider iwarp does not use: leave one of the two out";
            found.push(("device", what.to_owned()));
        }
        if self.mount_port.is_none() && self.rpcbind {
            let what = "it registers MOUNT too: say where, with mount_port";
            found.push(("rpcbind", what.to_owned()));
        }
        if self.allow.is_empty() {
            let what = format!(
                "listening at {} serves other machines: say which ones, as in 192.168.1.0/24",
                self.listen.addr.ip()
            );
            found.push(("allow", what));
        }
        found
    }

    /// One of its keys, in words: in a file, or as the option of the command line.
    pub(crate) fn key(&self, key: &str, in_file: bool) -> String {
        match in_file {
            true => format!("{key} of the pair {}", self.listen),
            false => format!("--{}", key.replace('_', "-")),
        }
    }

    /// Where it is to listen.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = SocketAddr> {
        [self.listen.addr].into_iter().chain(self.mount_addr())
    }

    /// Where it is to listen for MOUNT, if that is passed on.
    pub(crate) fn mount_addr(&self) -> Option<SocketAddr> {
        let port = self.mount_port?;
        Some(at_port(self.listen.addr, port))
    }

    /// Where MOUNT of the server is, for programs, if it is passed on from a port of its own, or named.
    pub(crate) fn mount_name(&self) -> Option<String> {
        let is_named = self.upstream_mount != MountPlace::ByRpcbind;
        (self.mount_port.is_some() || is_named).then(|| self.upstream_mount.name(&self.upstream))
    }

    /// Whether clients connect over RDMA devices alone.
    pub(crate) fn listens_over_devices_alone(&self) -> bool {
        self.listen.scheme == Scheme::Rdma && self.provider.wants_devices()
    }

    /// Whether it differs from the other in nothing but its clients.
    pub(crate) fn is_same_but_for_clients(&self, other: &Self) -> bool {
        let other = Self {
            allow: self.allow.clone(),
            ..other.clone()
        };
        *self == other
    }

    /// Its clients as networks, with these addresses of hosts.
    pub(crate) fn access(&self, addresses: &Addresses) -> AccessList {
        let networks = self.allow.iter().flat_map(|clients| match clients {
            Clients::Network(network) => vec![*network],
            Clients::Host(name) => {
                let found = addresses.get(name).into_iter().flatten();
                found.copied().map(Network::from).collect()
            }
        });
        AccessList::new(networks)
    }

    /// Who may connect, in words.
    pub(crate) fn describe_clients(&self) -> String {
        let names: Vec<String> = self.allow.iter().map(ToString::to_string).collect();
        crate::serve::plan::summed_up(&names)
    }
}

/// Who may connect to an address if nobody is named: this machine, if only it can.
pub(crate) fn clients_or_local(given: &[Clients], listen: &ListenUrl) -> Vec<Clients> {
    let loopback = listen.addr.ip().to_canonical().is_loopback();
    match given.is_empty() && loopback {
        true => Network::LOOPBACK.map(Clients::Network).into(),
        false => given.to_vec(),
    }
}

/// Who may connect to a pair that names nobody itself: those of all pairs, and this machine where only it
/// can.
pub(crate) fn clients_of_all(all: &[Clients], listen: &ListenUrl) -> Vec<Clients> {
    let mut clients = all.to_vec();
    let here = clients_or_local(&[], listen);
    clients.extend(here.into_iter().filter(|client| !all.contains(client)));
    clients
}

/// Listeners that would have the port of one before them, in words, each with the number of its pair among these.
pub(crate) fn ports_given_twice<'a>(
    plans: impl IntoIterator<Item = &'a PairPlan>,
) -> Vec<(usize, String)> {
    let mut seen: Vec<(String, SocketAddr)> = Vec::new();
    let mut twice = Vec::new();
    for (index, plan) in plans.into_iter().enumerate() {
        let mut mine = vec![(plan.listen.to_string(), plan.listen.addr)];
        if let Some(addr) = plan.mount_addr() {
            let what = format!("mount_port {} of {}", addr.port(), plan.listen);
            mine.push((what, addr));
        }
        for (what, addr) in mine {
            if let Some((other, _)) = seen.iter().find(|(_, other)| meet(addr, *other)) {
                twice.push((index, format!("{other} and {what} have the same port")));
            }
            seen.push((what, addr));
        }
    }
    twice
}

/// The hosts that may connect.
pub(crate) fn hosts(plans: &[PairPlan]) -> BTreeSet<HostName> {
    plans
        .iter()
        .flat_map(|plan| &plan.allow)
        .filter_map(|clients| match clients {
            Clients::Host(name) => Some(name.clone()),
            Clients::Network(_) => None,
        })
        .collect()
}

/// Looks up the names of hosts that may connect.
pub(crate) async fn addresses(
    plans: &[PairPlan],
    names: &mut Names,
    known: &Addresses,
) -> Addresses {
    let hosts = hosts(plans);
    match hosts.is_empty() {
        true => Addresses::new(),
        false => names.look_up(hosts, known).await,
    }
}
