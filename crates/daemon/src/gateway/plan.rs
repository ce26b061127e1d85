//! Pairs of a listening address and a server, as they are configured.

use super::mount_place::MountPlace;
use super::urls::{ListenUrl, Scheme, UpstreamUrl};
use crate::addresses::{at_port, has_host_of, meet};
use crate::clients::{Addresses, Clients, HostName};
use crate::listen::mount_addresses;
use crate::names::Names;
use crate::providers::ProviderSetting;
use gateway::{MountPort, MountServer};
use nfs_server::{AccessList, Network};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A listening address and its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairPlan {
    /// The side of the clients.
    pub listen: ListenUrl,
    /// The side of the server.
    pub upstream: UpstreamUrl,
    /// Clients that may connect.
    pub allow: Vec<Clients>,
    /// TCP port of MOUNT for clients, if it is passed on.
    pub mount_port: Option<u16>,
    /// Place of MOUNT of the server.
    pub upstream_mount: MountPlace,
    /// Whether rpcbind of this machine is told.
    pub rpcbind: bool,
    /// Whether connections to the server come from ports below 1024.
    pub reserved_port: bool,
    /// Whether clients are told that the server does not support pNFS.
    pub hide_pnfs: bool,
    /// Settings of the provider of its RDMA sides.
    pub provider: ProviderSetting,
}

impl PairPlan {
    /// Contradictions, each with the name of the option.
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
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
    pub fn key(&self, key: &str, in_file: bool) -> String {
        match in_file {
            true => format!("{key} of the pair {}", self.listen),
            false => format!("--{}", key.replace('_', "-")),
        }
    }

    /// Addresses of its listeners.
    pub fn listeners(&self) -> impl Iterator<Item = SocketAddr> {
        [self.listen.addr].into_iter().chain(self.mount_addr())
    }

    /// Address of its listener for MOUNT, if that is passed on.
    pub fn mount_addr(&self) -> Option<SocketAddr> {
        let port = self.mount_port?;
        Some(at_port(self.listen.addr, port))
    }

    /// Place of MOUNT of the server, for programs, if it is passed on from a port of its own, or named.
    pub fn mount_name(&self) -> Option<String> {
        let is_named = self.upstream_mount != MountPlace::ByRpcbind;
        (self.mount_port.is_some() || is_named).then(|| self.upstream_mount.name(&self.upstream))
    }

    /// MOUNT of the server; `setting` names what sets its place, in words.
    pub fn mount_server(&self, setting: String) -> MountServer {
        let (host, port) = self.mount_of_server();
        MountServer::new(host, port)
            .with_nfs_name(self.upstream.to_string())
            .with_setting(setting)
    }

    /// Host and port of MOUNT of the server.
    fn mount_of_server(&self) -> (&str, MountPort) {
        let UpstreamUrl { scheme, server } = &self.upstream;
        let host = &server.host;
        match &self.upstream_mount {
            MountPlace::At(endpoint) => (&endpoint.host, MountPort::Fixed(endpoint.port)),
            MountPlace::Port(port) => (host, MountPort::Fixed(*port)),
            // A server at the usual port is the one of its host. Where MOUNT has a port here, its users were told where it
            // is looked for.
            MountPlace::ByRpcbind
                if self.mount_port.is_some() || self.upstream.has_usual_port() =>
            {
                (host, MountPort::OfHost)
            }
            MountPlace::ByRpcbind => {
                let port = MountPort::OfServer {
                    transport: scheme.transport(),
                    nfs_port: server.port,
                };
                (host, port)
            }
        }
    }

    /// Whether clients connect over RDMA devices alone.
    pub fn listens_over_devices_alone(&self) -> bool {
        self.listen.scheme == Scheme::Rdma && self.provider.wants_devices()
    }

    /// Whether it differs from the other in nothing but its clients.
    pub fn is_same_but_for_clients(&self, other: &Self) -> bool {
        let other = Self {
            allow: self.allow.clone(),
            ..other.clone()
        };
        *self == other
    }

    /// Its clients as networks, with these addresses of hosts.
    pub fn access(&self, addresses: &Addresses) -> AccessList {
        let networks = self.allow.iter().flat_map(|clients| match clients {
            Clients::Network(network) => vec![*network],
            Clients::Host(name) => {
                let found = addresses.get(name).into_iter().flatten();
                found.copied().map(Network::from).collect()
            }
        });
        AccessList::new(networks)
    }

    /// Clients that may connect, in words.
    pub fn describe_clients(&self) -> String {
        let names: Vec<String> = self.allow.iter().map(ToString::to_string).collect();
        crate::clients::summed_up(&names)
    }
}

/// A pair at each of these addresses, which are those of one pair of an administrator, with those who may connect there. They
/// differ in nothing else, but that MOUNT is once at each host, and rpcbind, which has one address for each family, is told of
/// one: that of all addresses if there is one, or else the first.
pub fn at_each(
    pair: &PairPlan,
    listen: &[ListenUrl],
    allow: impl Fn(&ListenUrl) -> Vec<Clients>,
) -> Vec<PairPlan> {
    let addrs: Vec<SocketAddr> = listen.iter().map(|url| url.addr).collect();
    let mut hosts = mount_addresses(&addrs, 0);
    let pairs = listen.iter().map(|url| {
        let host = at_port(url.addr, 0);
        let at = hosts.iter().position(|other| *other == host);
        let has_mount = at.map(|at| hosts.swap_remove(at)).is_some();
        PairPlan {
            listen: *url,
            allow: allow(url),
            mount_port: pair.mount_port.filter(|_| has_mount),
            ..pair.clone()
        }
    });
    let mut pairs: Vec<PairPlan> = pairs.collect();
    // Without a port of MOUNT it contradicts itself in each of them.
    if pair.rpcbind && pair.mount_port.is_some() {
        let is_other = |one: &PairPlan| !one.listen.addr.ip().is_unspecified();
        let mut order: Vec<&mut PairPlan> = pairs.iter_mut().collect();
        order.sort_by_key(|one| is_other(one));
        let mut registered: Vec<SocketAddr> = Vec::new();
        for one in order {
            let addr = one.listen.addr;
            let is_same_family =
                |other: &SocketAddr| other.is_ipv4() == addr.is_ipv4() || has_host_of(*other, addr);
            one.rpcbind = one.mount_port.is_some() && !registered.iter().any(is_same_family);
            if one.rpcbind {
                registered.push(addr);
            }
        }
    }
    pairs
}

/// Clients of an address if none are named: this machine, if no other reaches it.
pub fn clients_or_local(given: &[Clients], listen: &ListenUrl) -> Vec<Clients> {
    let loopback = listen.addr.ip().to_canonical().is_loopback();
    match given.is_empty() && loopback {
        true => Network::LOOPBACK.map(Clients::Network).into(),
        false => given.to_vec(),
    }
}

/// Clients of a pair that names none itself: those of all pairs, and this machine where only it
/// can.
pub fn clients_of_all(all: &[Clients], listen: &ListenUrl) -> Vec<Clients> {
    let mut clients = all.to_vec();
    let here = clients_or_local(&[], listen);
    clients.extend(here.into_iter().filter(|client| !all.contains(client)));
    clients
}

/// Contradictions in the pairs of one table, each with the name of the option, and once.
pub fn contradictions(pairs: &[PairPlan]) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for one in pairs.iter().flat_map(PairPlan::contradictions) {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// Listeners that would have the port of one before them, in words, each with the number of its pair among these.
pub fn ports_given_twice<'a>(
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
pub(super) fn hosts(plans: &[PairPlan]) -> BTreeSet<HostName> {
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
pub(super) async fn addresses(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::circles::tests::plan;
    use gateway::TransportKind;

    #[test]
    fn mount_of_a_host_is_that_of_the_server_only_for_the_usual_port_or_where_that_is_announced() {
        let check = |upstream: &str, mount_port, expected: MountPort| {
            let (mut plan, _) = plan("rdma://127.0.0.1", upstream);
            plan.mount_port = mount_port;
            assert_eq!(plan.mount_of_server(), ("192.0.2.1", expected));
        };
        let of_server = |nfs_port| MountPort::OfServer {
            transport: TransportKind::Tcp,
            nfs_port,
        };
        check("tcp://192.0.2.1:2049", None, MountPort::OfHost);
        check("rdma://192.0.2.1:20049", None, MountPort::OfHost);
        check("tcp://192.0.2.1:20049", None, of_server(20049));
        check("tcp://192.0.2.1:2050", None, of_server(2050));
        check("tcp://192.0.2.1:2050", Some(20048), MountPort::OfHost);
    }

    #[test]
    fn place_of_mount_that_is_named_is_the_only_one() {
        let check = |place: &str, expected: (&str, u16)| {
            let (mut plan, _) = plan("rdma://127.0.0.1", "tcp://192.0.2.1:2050");
            plan.upstream_mount = place.parse().unwrap();
            let (host, port) = expected;
            assert_eq!(plan.mount_of_server(), (host, MountPort::Fixed(port)));
        };
        check("635", ("192.0.2.1", 635));
        check("filer:635", ("filer", 635));
    }

    #[test]
    fn addresses_of_a_pair_differ_in_mount_and_rpcbind_alone() {
        let check = |listen: &[&str], expected: &[(Option<u16>, bool)]| {
            let (mut pair, _) = plan("rdma://0.0.0.0:7", "tcp://192.0.2.7:2049");
            (pair.mount_port, pair.rpcbind) = (Some(20048), true);
            let urls: Vec<ListenUrl> = listen.iter().map(|url| url.parse().unwrap()).collect();
            let pairs = at_each(&pair, &urls, |listen| clients_or_local(&[], listen));
            let found: Vec<_> = pairs
                .iter()
                .map(|one| (one.mount_port, one.rpcbind))
                .collect();
            assert_eq!(found, expected, "{listen:?}");
            for (one, url) in pairs.iter().zip(&urls) {
                assert_eq!(one.listen, *url);
                let same = PairPlan {
                    listen: pair.listen,
                    mount_port: pair.mount_port,
                    rpcbind: true,
                    ..one.clone()
                };
                assert!(same.is_same_but_for_clients(&pair));
            }
            assert_eq!(ports_given_twice(&pairs), []);
        };
        let mount = Some(20048);
        check(&["rdma://192.0.2.1"], &[(mount, true)]);
        check(
            &[
                "rdma://192.0.2.1",
                "rdma://192.0.2.1:7",
                "rdma://[2001:db8::1]",
            ],
            &[(mount, true), (None, false), (mount, true)],
        );
        check(
            &[
                "rdma://192.0.2.1",
                "rdma://0.0.0.0:7",
                "rdma://198.51.100.1",
            ],
            &[(None, false), (mount, true), (None, false)],
        );
        check(
            &["rdma://192.0.2.1", "rdma://198.51.100.1"],
            &[(mount, true), (mount, false)],
        );
    }
}
