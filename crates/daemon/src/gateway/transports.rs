//! The transports of the two sides of a pair, for programs and for people.

use super::plan::PairPlan;
use super::urls::Scheme;
use crate::control::{ListenerStatus, ReachedOver, UpstreamStatus};
use crate::listening::{TCP, provider_name};
use gateway::UpstreamConnection;
use nfs_client::printable;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The transports of both sides of a pair.
pub struct Sides {
    /// The listeners.
    pub listeners: Vec<ListenerStatus>,
    /// The providers to the server, in the order in which they are tried.
    pub upstream: Vec<ReachedOver>,
}

impl Sides {
    /// Those of a pair with these listeners and a server with these addresses.
    pub fn new(plan: &PairPlan, listeners: Vec<ListenerStatus>, server: &[SocketAddr]) -> Self {
        Self {
            listeners,
            upstream: upstream(plan, server),
        }
    }
}

/// The providers to a server with these addresses, in the order in which they are tried.
fn upstream(plan: &PairPlan, server: &[SocketAddr]) -> Vec<ReachedOver> {
    let over = |provider: &str, devices| ReachedOver {
        provider: provider.to_owned(),
        devices,
    };
    if plan.upstream.scheme == Scheme::Tcp {
        return vec![over(TCP, Vec::new())];
    }
    let is_loopback = |addr: &SocketAddr| addr.ip().to_canonical().is_loopback();
    // Loopback is left to software iWARP, if that is tried.
    let names = match !plan.provider.wants_devices() && server.iter().all(is_loopback) {
        true => Vec::new(),
        false => plan.provider.device_names(),
    };
    match (plan.provider.wants_devices(), names.is_empty()) {
        (true, _) => vec![over(provider_name(true), names)],
        (false, true) => vec![over(provider_name(false), Vec::new())],
        (false, false) => vec![
            over(provider_name(true), names),
            over(provider_name(false), Vec::new()),
        ],
    }
}

/// The provider of a connection to the server of a pair.
pub fn provider_of(plan: &PairPlan, connection: &UpstreamConnection) -> &'static str {
    match plan.upstream.scheme {
        Scheme::Tcp => TCP,
        Scheme::Rdma => provider_name(connection.device.is_some()),
    }
}

/// Connections to the server of a pair, summed up.
pub fn summed_up(plan: &PairPlan, connections: Vec<UpstreamConnection>) -> Vec<UpstreamStatus> {
    let mut all = BTreeMap::new();
    for connection in connections {
        let over = provider_of(plan, &connection);
        let (count, invalidations) = all.entry((over, connection.device)).or_insert((0, 0));
        *count += 1;
        *invalidations += connection.remote_invalidations;
    }
    let all = all.into_iter();
    all.map(
        |((provider, device), (connections, remote_invalidations))| UpstreamStatus {
            provider: provider.to_owned(),
            device,
            connections,
            remote_invalidations,
        },
    )
    .collect()
}

/// Listeners beside the first, and the provider of that one, in words.
pub fn describe_listeners(listeners: &[ListenerStatus]) -> String {
    let beside = listeners.iter().skip(1).map(|listener| {
        let over = listener.device.as_deref().unwrap_or("RDMA devices");
        format!("{} over {over}", listener.address)
    });
    let first = listeners.first().map(|first| {
        let over = words(&first.provider);
        match &first.socket {
            Some(socket) => format!("{over} (socket {})", printable(socket.as_bytes())),
            None => over.to_owned(),
        }
    });
    let first = first.unwrap_or_default();
    [first]
        .into_iter()
        .chain(beside)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The providers to a server, in words.
pub fn describe_upstream(over: &[ReachedOver]) -> String {
    let all = over.iter().map(|over| match over.devices.is_empty() {
        true => words(&over.provider).to_owned(),
        false => over.devices.join(", "),
    });
    all.collect::<Vec<_>>().join(", else ")
}

fn words(provider: &str) -> &str {
    match provider {
        "verbs" => "RDMA devices",
        "iwarp" => "software iWARP",
        TCP => "TCP",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::{ProviderKind, ProviderSetting};

    fn plan(upstream: &str) -> PairPlan {
        PairPlan {
            listen: "rdma://0.0.0.0".parse().unwrap(),
            upstream: upstream.parse().unwrap(),
            allow: Vec::new(),
            mount_port: None,
            upstream_mount: Default::default(),
            rpcbind: false,
            reserved_port: false,
            hide_pnfs: false,
            provider: ProviderSetting {
                kind: Some(ProviderKind::Iwarp),
                device: None,
            },
        }
    }

    #[test]
    fn both_sides_are_described_in_the_order_in_which_they_are_used() {
        let listener = |provider: &str, address: &str, device: Option<&str>| ListenerStatus {
            provider: provider.to_owned(),
            address: address.to_owned(),
            device: device.map(str::to_owned),
            socket: None,
        };
        let first = listener("iwarp", "0.0.0.0:7", None);
        let beside = [
            listener("verbs", "192.0.2.1:7", Some("rxe0")),
            listener("verbs", "192.0.2.2:7", None),
        ];
        assert_eq!(
            describe_listeners(&[&[first][..], &beside].concat()),
            "software iWARP, 192.0.2.1:7 over rxe0, 192.0.2.2:7 over RDMA devices"
        );
        let over = |provider: &str, devices: &[&str]| ReachedOver {
            provider: provider.to_owned(),
            devices: devices.iter().map(|&name| name.to_owned()).collect(),
        };
        let both = [over("verbs", &["rxe0", "mlx5_0"]), over("iwarp", &[])];
        assert_eq!(
            describe_upstream(&both),
            "rxe0, mlx5_0, else software iWARP"
        );
        assert_eq!(
            describe_upstream(&upstream(&plan("tcp://filer"), &[])),
            "TCP"
        );
        assert_eq!(
            describe_upstream(&upstream(&plan("rdma://filer"), &[])),
            "software iWARP"
        );
    }
}
