//! Advice about pairs that an administrator may not have meant, for a check, a start and a reload.

use super::mount_place::MountPlace;
use super::plan::PairPlan;
use super::urls::UpstreamUrl;
use crate::clients::Clients;
use crate::lookup::addresses_of;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Warnings about a pair, as it is written.
pub(super) fn of(plan: &PairPlan) -> Vec<String> {
    let all = [
        port_of_other_transport(plan),
        nobody_may_connect(plan),
        everybody_may_connect(plan),
    ];
    all.into_iter().flatten().collect()
}

/// Warning about a pair whose MOUNT is at a host without an address.
pub(super) async fn of_mount_host(plan: &PairPlan) -> Option<String> {
    let MountPlace::At(endpoint) = &plan.upstream_mount else {
        return None;
    };
    let error = addresses_of(endpoint).await.err()?;
    Some(format!(
        "the host {} of upstream_mount of {} has no address now, and MOUNT would not be answered: {error:#}",
        endpoint.host, plan.listen
    ))
}

/// Logs the warnings about a pair that starts, or has other clients.
pub(super) fn log(plan: &PairPlan) {
    for warning in of(plan) {
        tracing::warn!(target: "gateway", listen = %plan.listen, "{warning}");
    }
}

/// Logs the warning about the host of MOUNT of a pair, once it is looked up.
pub(super) fn log_mount_host(plan: &PairPlan) {
    if !matches!(plan.upstream_mount, MountPlace::At(_)) {
        return;
    }
    let plan = plan.clone();
    tokio::spawn(async move {
        if let Some(warning) = of_mount_host(&plan).await {
            tracing::warn!(target: "gateway", listen = %plan.listen, "{warning}");
        }
    });
}

/// Warning if the port of a server is the usual one of the other transport.
fn port_of_other_transport(plan: &PairPlan) -> Option<String> {
    let UpstreamUrl { scheme, server } = &plan.upstream;
    let other = scheme.other();
    (server.port == other.port()).then(|| {
        format!(
            "the upstream {} of {} has the usual port of {}: is {}://{server} meant?",
            plan.upstream,
            plan.listen,
            other.service(),
            other.name()
        )
    })
}

/// Warning if only this machine can connect, and may not.
fn nobody_may_connect(plan: &PairPlan) -> Option<String> {
    let at = plan.listen.addr.ip();
    let has_hosts = |clients: &Clients| matches!(clients, Clients::Host(_));
    if !at.to_canonical().is_loopback() || plan.allow.iter().any(has_hosts) {
        return None;
    }
    let list = plan.access(&Default::default());
    let here = [at, Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let may = here.into_iter().any(|addr| list.allows(addr));
    (!may).then(|| {
        format!(
            "{} can be reached from this machine alone, which allow does not have: nobody can connect. Add {at} to allow, \
             or listen at another address",
            plan.listen
        )
    })
}

/// Warning if every address may connect.
fn everybody_may_connect(plan: &PairPlan) -> Option<String> {
    let all = plan.allow.iter().map(ToString::to_string);
    let all = all.filter(|clients| clients.ends_with("/0"));
    let all = all.collect::<Vec<_>>().join(" and ");
    (!all.is_empty()).then(|| {
        format!(
            "allow of {} has {all}: everybody who reaches it has the rights that the server gives to this gateway",
            plan.listen
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::circles::tests::plan;

    #[test]
    fn usual_port_of_the_other_transport_is_a_warning_that_names_it() {
        let check = |upstream: &str, expected: Option<&str>| {
            let (plan, _) = plan("rdma://127.0.0.1", upstream);
            let said = port_of_other_transport(&plan);
            assert_eq!(said.is_some(), expected.is_some(), "{said:?}");
            assert!(
                said.unwrap_or_default()
                    .contains(expected.unwrap_or_default())
            );
        };
        check(
            "tcp://192.0.2.1:20049",
            Some("is rdma://192.0.2.1:20049 meant?"),
        );
        check(
            "rdma://192.0.2.1:2049",
            Some("is tcp://192.0.2.1:2049 meant?"),
        );
        check("tcp://192.0.2.1:2049", None);
        check("rdma://192.0.2.1:20049", None);
    }

    #[test]
    fn list_that_lets_nobody_in_or_everybody_is_a_warning() {
        let check = |listen: &str, allow: &[&str], says: Option<&str>| {
            let (mut plan, _) = plan(listen, "tcp://192.0.2.1:2049");
            plan.allow = allow.iter().map(|one| one.parse().unwrap()).collect();
            let said = of(&plan);
            assert_eq!(said.len(), usize::from(says.is_some()), "{said:?}");
            assert!(said.join("").contains(says.unwrap_or_default()), "{said:?}");
        };
        let nobody = Some("nobody can connect");
        check("rdma://127.0.0.1", &["192.0.2.0/24"], nobody);
        check("tcp://[::1]", &["192.0.2.0/24"], nobody);
        check("rdma://127.0.0.1", &["192.0.2.0/24", "127.0.0.1"], None);
        check("rdma://127.0.0.1", &["localhost"], None);
        check("rdma://0.0.0.0", &["192.0.2.0/24"], None);
        check(
            "rdma://0.0.0.0",
            &["0.0.0.0/0"],
            Some("has 0.0.0.0/0: everybody"),
        );
        check("rdma://[::]", &["::/0"], Some("has ::/0: everybody"));
    }

    #[tokio::test]
    async fn mount_host_without_an_address_is_named() {
        let (mut plan, _) = plan("rdma://127.0.0.1", "tcp://192.0.2.1:2049");
        assert_eq!(of_mount_host(&plan).await, None);
        plan.upstream_mount = "no-such-host.invalid:635".parse().unwrap();
        let said = of_mount_host(&plan).await.unwrap();
        assert!(
            said.starts_with("the host no-such-host.invalid of upstream_mount"),
            "{said}"
        );
        plan.upstream_mount = "192.0.2.1:635".parse().unwrap();
        assert_eq!(of_mount_host(&plan).await, None);
    }
}
