//! Pairs that lead back to themselves: through other pairs of the same gateway, or at once.
//!
//! A call would go round, with a connection more for each round, until no pair takes another connection.

use super::plan::PairPlan;
use std::net::SocketAddr;

/// A pair whose addresses are known.
#[derive(Clone, Copy)]
pub(super) struct ResolvedPair<'a> {
    /// Its configuration.
    pub(super) plan: &'a PairPlan,
    /// The address of its listener: that of the service manager's socket, if there is one.
    pub(super) listening: SocketAddr,
    /// The addresses of its server.
    pub(super) upstream: &'a [SocketAddr],
}

/// The way from a pair through others and back to it, in words.
pub(super) fn circle(pairs: &[ResolvedPair<'_>], of: usize) -> Option<String> {
    // Of each pair that is reached, the one before.
    let mut before: Vec<Option<usize>> = vec![None; pairs.len()];
    let mut next = vec![of];
    while let Some(at) = next.pop() {
        for (to, place) in before.iter_mut().enumerate() {
            if place.is_none() && leads_to(pairs[at], pairs[to]) {
                *place = Some(at);
                next.push(to);
            }
        }
    }
    let mut at = before[of]?;
    let mut way = vec![pairs[of].plan.listen.to_string()];
    while at != of {
        way.push(pairs[at].plan.listen.to_string());
        at = before[at]?;
    }
    way.push(pairs[of].plan.listen.to_string());
    way.reverse();
    Some(way.join(" to "))
}

/// Whether connections of a pair to its server come to another pair.
fn leads_to(pair: ResolvedPair<'_>, other: ResolvedPair<'_>) -> bool {
    let mut upstream = pair.upstream.iter();
    pair.plan.upstream.scheme == other.plan.listen.scheme
        && upstream.any(|&addr| reaches(addr, other.listening))
}

/// Whether connections to `addr` come to a listener `at` an address.
pub(super) fn reaches(addr: SocketAddr, at: SocketAddr) -> bool {
    let same_host = || match at.ip().is_unspecified() {
        true => (at.is_ipv6() || addr.is_ipv4()) && socket_owner::is_local(addr),
        false => at.ip().to_canonical() == addr.ip().to_canonical(),
    };
    at.port() != 0 && at.port() == addr.port() && same_host()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::gateway::mount_place::MountPlace;

    pub(crate) fn plan(listen: &str, upstream: &str) -> (PairPlan, Vec<SocketAddr>) {
        let addr = upstream.split_once("://").unwrap().1.parse().unwrap();
        let plan = PairPlan {
            listen: listen.parse().unwrap(),
            upstream: upstream.parse().unwrap(),
            allow: Vec::new(),
            mount_port: None,
            upstream_mount: MountPlace::default(),
            rpcbind: false,
            reserved_port: false,
            hide_pnfs: false,
            provider: Default::default(),
        };
        (plan, vec![addr])
    }

    #[test]
    fn circle_is_found_through_any_number_of_pairs_and_on_every_address() {
        let check = |pairs: &[(&str, &str)], expected: &[Option<&str>]| {
            let plans: Vec<_> = pairs.iter().map(|(one, other)| plan(one, other)).collect();
            let known: Vec<_> = plans
                .iter()
                .map(|(plan, to)| ResolvedPair {
                    plan,
                    listening: plan.listen.addr,
                    upstream: to,
                })
                .collect();
            let found: Vec<_> = (0..known.len()).map(|of| circle(&known, of)).collect();
            let found: Vec<_> = found.iter().map(Option::as_deref).collect();
            assert_eq!(found, expected);
        };
        let (a, b) = ("tcp://127.0.0.1:1", "rdma://0.0.0.0:2");
        check(
            &[(a, "rdma://127.0.0.9:2"), (b, a)],
            &[
                Some("tcp://127.0.0.1:1 to rdma://0.0.0.0:2 to tcp://127.0.0.1:1"),
                Some("rdma://0.0.0.0:2 to tcp://127.0.0.1:1 to rdma://0.0.0.0:2"),
            ],
        );
        check(
            &[(b, "rdma://127.0.0.1:2")],
            &[Some("rdma://0.0.0.0:2 to rdma://0.0.0.0:2")],
        );
        // A tunnel within one gateway ends at a server.
        check(
            &[(a, "rdma://127.0.0.1:2"), (b, "tcp://127.0.0.1:3")],
            &[None, None],
        );
        // One that leads into a circle is in none.
        check(
            &[
                ("tcp://127.0.0.1:4", "rdma://127.0.0.1:2"),
                (b, "rdma://127.0.0.1:2"),
            ],
            &[None, Some("rdma://0.0.0.0:2 to rdma://0.0.0.0:2")],
        );
    }

    #[test]
    fn circle_is_found_through_the_socket_that_a_pair_listens_with() {
        let (plan, upstream) = plan("tcp://0.0.0.0:1", "tcp://[::1]:1");
        let circle_at = |listening: &str| {
            let pair = ResolvedPair {
                plan: &plan,
                listening: listening.parse().unwrap(),
                upstream: &upstream,
            };
            circle(&[pair], 0)
        };
        assert_eq!(circle_at("0.0.0.0:1"), None);
        assert!(circle_at("[::]:1").is_some());
    }
}
