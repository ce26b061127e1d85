//! What the two sides of a pair move over, for programs and for people.

use super::plan::PairPlan;
use crate::control::{ListenerStatus, ReachedOver, UpstreamStatus};
use crate::provider;
use gateway::UpstreamConnection;
use nfs_client::printable;
use rpcrdma_daemon::gateway::urls::Scheme;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What output calls TCP without RDMA, beside providers.
pub(super) const TCP: &str = "tcp";

/// The listener of a pair for clients without RDMA.
pub(super) fn over_tcp(addr: SocketAddr) -> ListenerStatus {
    ListenerStatus {
        provider: TCP.to_owned(),
        address: addr.to_string(),
        device: None,
        socket: None,
    }
}

/// What both sides of a pair move over.
pub(super) struct Sides {
    /// Over what it listens.
    pub(super) listeners: Vec<ListenerStatus>,
    /// Over what its server is reached, in the order in which it tries.
    pub(super) upstream: Vec<ReachedOver>,
}

impl Sides {
    /// Those of a pair with these listeners and a server with these addresses.
    pub(super) fn new(
        plan: &PairPlan,
        listeners: Vec<ListenerStatus>,
        server: &[SocketAddr],
    ) -> Self {
        Self {
            listeners,
            upstream: upstream(plan, server),
        }
    }
}

/// What a pair reaches a server with these addresses over, in the order in which it tries.
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
    let devices = match !plan.provider.wants_devices() && server.iter().all(is_loopback) {
        true => Vec::new(),
        false => plan.provider.device_names(),
    };
    match (plan.provider.wants_devices(), devices.is_empty()) {
        (true, _) => vec![over(provider::name(true), devices)],
        (false, true) => vec![over(provider::name(false), Vec::new())],
        (false, false) => vec![
            over(provider::name(true), devices),
            over(provider::name(false), Vec::new()),
        ],
    }
}

/// What one connection to the server of a pair is over.
pub(super) fn provider_of(plan: &PairPlan, connection: &UpstreamConnection) -> &'static str {
    match plan.upstream.scheme {
        Scheme::Tcp => TCP,
        Scheme::Rdma => provider::name(connection.device.is_some()),
    }
}

/// Connections to the server of a pair, summed up.
pub(super) fn summed_up(
    plan: &PairPlan,
    connections: Vec<UpstreamConnection>,
) -> Vec<UpstreamStatus> {
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

/// Listeners beside the first, and what that one is over, in words.
pub(super) fn describe_listeners(listeners: &[ListenerStatus]) -> String {
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

/// What a server is reached over, in words.
pub(super) fn describe_upstream(over: &[ReachedOver]) -> String {
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
    use crate::provider::{ProviderArgs, ProviderName};

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
            provider: ProviderArgs::new(Some(ProviderName::Iwarp), None),
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
