//! Advice about exports that an administrator may not have meant: those that are dangerous, and rules without effect.

use super::plan::{ClientPlan, Plan};
use crate::clients::{Addresses, Clients};
use nfs_client::printable;
use nfs_server::{Network, Squash};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// Logs warnings about these exports. Hosts have these addresses, and clients connect to those in `listen`.
pub(super) fn warn(plans: &[Plan], addresses: &Addresses, listen: &[IpAddr]) {
    for warning in warnings(plans, addresses, listen) {
        tracing::warn!(target: "serve", "{warning}");
    }
}

/// Warnings about these exports, one sentence each.
pub(super) fn warnings(plans: &[Plan], addresses: &Addresses, listen: &[IpAddr]) -> Vec<String> {
    let mut warnings = dangers(plans);
    let plans = &plans[..plans.len().min(COMPARED)];
    for (index, plan) in plans.iter().enumerate() {
        warnings.extend(rules_that_never_count(plan, addresses));
        warnings.extend(rules_of_no_listener(plan, addresses, listen));
        for other in &plans[..index] {
            warnings.extend(twice(other, plan));
        }
        for other in plans {
            warnings.extend(written_through(other, plan, addresses));
        }
    }
    warnings.truncate(MOST);
    warnings
}

/// Warnings about all exports together.
const MOST: usize = 64;

/// Exports, rules of an export, and networks of its rules that are compared with each other. Of more, the
/// first ones are.
const COMPARED: usize = 256;

/// Warnings about dangerous exports, one sentence each.
fn dangers(plans: &[Plan]) -> Vec<String> {
    let mut warnings = Vec::new();
    for plan in plans {
        let name = &plan.export.name;
        for rule in &plan.clients {
            let everybody = match &rule.clients {
                Clients::Network(network) if network.is_everybody() => network,
                _ => continue,
            };
            let can = match rule.options.read_only {
                true => "read",
                false => "read and change",
            };
            warnings.push(format!(
                "{everybody} is everybody who reaches this machine: each can {can} {name} as any user \
                 but those that squash takes away, as AUTH_SYS believes the user ids it is told"
            ));
        }
        if let Some(rule) = plan.clients.iter().find(|rule| is_nobody_root(rule)) {
            let whom = match rule.options.squash {
                Squash::All => "every caller",
                _ => "whoever says nothing of who it is, and root where it is squashed,",
            };
            warnings.push(format!(
                "anonuid is 0 for {} of {name}: {whom} is root there; give the number of a user without rights",
                rule.clients
            ));
        }
        if plan.export.dir.parent().is_none() && !plan.read_only() {
            let root = plan
                .clients
                .iter()
                .any(|rule| rule.options.squash == Squash::None && !rule.options.read_only);
            let root = match root {
                true => ", and root of a client is root here",
                false => "",
            };
            warnings.push(format!(
                "{name} is the whole file system of this machine, read-write: programs, passwords and \
                 devices among it{root}; export a directory, or make it read-only"
            ));
        }
    }
    warnings
}

/// Whether the user that stands for nobody is root.
fn is_nobody_root(rule: &ClientPlan) -> bool {
    rule.options.anonymous.uid == 0
}

/// The networks that a rule is for.
fn networks(rule: &ClientPlan, addresses: &Addresses) -> Vec<Network> {
    match &rule.clients {
        Clients::Network(network) => vec![*network],
        Clients::Host(name) => {
            let known = addresses.get(name).into_iter().flatten();
            known.copied().map(Network::from).collect()
        }
    }
}

/// Rules whose clients all have a rule before them.
fn rules_that_never_count(plan: &Plan, addresses: &Addresses) -> Vec<String> {
    let rules = plan.clients.iter().take(COMPARED);
    let rules: Vec<_> = rules
        .map(|rule| (rule, networks(rule, addresses)))
        .collect();
    let mut found = Vec::new();
    for (index, (rule, own)) in rules.iter().enumerate() {
        let has_all = |(earlier, others): &&(&ClientPlan, Vec<Network>)| {
            let covered = |own: &Network| others.iter().any(|other| other.covers(*own));
            earlier.clients == rule.clients || !own.is_empty() && own.iter().all(covered)
        };
        if let Some((earlier, _)) = rules[..index].iter().find(has_all) {
            found.push(format!(
                "the rule of {} for {} never counts, as the one for {} stands before it{}",
                name(plan),
                rule.clients,
                earlier.clients,
                match earlier.options == rule.options {
                    true => " and says the same",
                    false => ": put it first",
                }
            ));
        }
    }
    found
}

/// Rules for clients that cannot connect to where the server listens.
fn rules_of_no_listener(plan: &Plan, addresses: &Addresses, listen: &[IpAddr]) -> Vec<String> {
    let listen: Vec<IpAddr> = listen.iter().map(IpAddr::to_canonical).collect();
    // A socket at :: takes IPv4 too.
    let everywhere = listen.contains(&Ipv6Addr::UNSPECIFIED.into());
    let comes_here = |network: &Network| {
        let is_loopback = Network::LOOPBACK.iter().any(|here| here.covers(*network));
        let mut others = listen.iter().filter(|ip| !ip.is_loopback());
        let may_come = others.any(|ip| network.is_ipv4() == ip.is_ipv4());
        everywhere || is_loopback || network.is_everybody() || may_come
    };
    let rules = plan.clients.iter().take(COMPARED);
    let unreached = rules.filter(|rule| {
        let own = networks(rule, addresses);
        !own.is_empty() && !own.iter().any(comes_here)
    });
    let (at, are_several) = (crate::listen::shown(&listen), listen.len() > 1);
    let mut others = listen.iter().filter(|ip| !ip.is_loopback());
    let why = match (others.next(), are_several) {
        (None, _) => "where only this machine connects",
        (Some(IpAddr::V4(_)), false) => "an IPv4 address, and they have IPv6 addresses",
        (Some(IpAddr::V6(_)), false) => "an IPv6 address, and they have IPv4 addresses",
        (Some(IpAddr::V4(_)), true) => "where others come over IPv4, and they have IPv6 addresses",
        (Some(IpAddr::V6(_)), true) => "where others come over IPv6, and they have IPv4 addresses",
    };
    let said = unreached.map(|rule| {
        format!(
            "the rule of {} for {} never counts: the server listens at {at}, {why} (--listen)",
            name(plan),
            rule.clients
        )
    });
    said.collect()
}

/// Two exports of one directory.
fn twice(one: &Plan, other: &Plan) -> Option<String> {
    (one.export.dir == other.export.dir).then(|| {
        let dir = printable(one.export.dir.as_os_str().as_bytes());
        let (one, other) = (name(one), name(other));
        format!("{one} and {other} are both {dir}: the rules of either are a way to its files")
    })
}

/// An export that is read-only for a client that may change what it is within.
fn written_through(outer: &Plan, inner: &Plan, addresses: &Addresses) -> Option<String> {
    let (around, dir) = (&outer.export.dir, &inner.export.dir);
    if dir == around || !dir.starts_with(around) || !(outer.crossmnt || same_disk(outer, inner)) {
        return None;
    }
    let with = |plan: &Plan, read_only| -> Vec<Network> {
        let rules = plan.clients.iter();
        let rules = rules.filter(|rule| rule.options.read_only == read_only);
        let networks = rules.flat_map(|rule| networks(rule, addresses));
        networks.take(COMPARED).collect()
    };
    let (readers, writers) = (with(inner, true), with(outer, false));
    let both = |reader: &Network| {
        let is_same = |writer: &Network| writer.covers(*reader) || reader.covers(*writer);
        writers.iter().any(is_same)
    };
    readers.iter().any(both).then(|| {
        let (inner, outer) = (name(inner), name(outer));
        format!(
            "{inner} is read-only, but lies within {outer}, through which clients can change it"
        )
    })
}

fn same_disk(one: &Plan, other: &Plan) -> bool {
    let device = |plan: &Plan| plan.export.dir.metadata().map(|about| about.dev()).ok();
    device(one) == device(other)
}

fn name(plan: &Plan) -> String {
    printable(plan.export.name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::plan::tests::plan;

    #[test]
    fn exports_to_everybody_and_of_everything_are_warned_about() {
        let said = |dir, clients: &[&str], read_only| dangers(&[plan(dir, clients, read_only)]);
        assert!(said("/srv", &["10.0.0.0/8", "laptop"], false).is_empty());
        let everybody = said("/srv", &["0.0.0.0/0", "::/0"], false);
        assert_eq!(everybody.len(), 2);
        assert!(
            everybody[1].starts_with("::/0 is everybody"),
            "{everybody:?}"
        );
        assert!(said("/srv", &["0.0.0.0/0"], true)[0].contains("can read /data"));
        let all = said("/", &["127.0.0.1"], false);
        assert!(all[0].contains("whole file system"), "{all:?}");
        assert!(said("/", &["127.0.0.1"], true).is_empty());
    }

    #[test]
    fn nobody_who_is_root_is_warned_of() {
        let mut export = plan("/srv", &["10.0.0.0/8", "laptop"], false);
        assert!(dangers(std::slice::from_ref(&export)).is_empty());
        let options = &mut export.clients[1].options;
        (options.anonymous.uid, options.squash) = (0, Squash::All);
        let said = dangers(&[export]);
        assert_eq!(said.len(), 1, "{said:?}");
        let begins = "anonuid is 0 for laptop of /data: every caller is root there";
        assert!(said[0].starts_with(begins), "{said:?}");
    }

    #[test]
    fn rules_that_never_count_are_hinted_at() {
        let said = |clients: &[&str], known: &[(&str, &str)]| {
            let addresses = known.iter().map(|(host, address)| {
                let Ok(Clients::Host(host)) = host.parse() else {
                    panic!("{host} is no name");
                };
                (host, vec![address.parse().unwrap()])
            });
            rules_that_never_count(&plan("/srv", clients, false), &addresses.collect())
        };
        assert!(said(&["192.0.2.7", "192.0.2.0/24", "laptop"], &[]).is_empty());
        let shadowed = said(&["192.0.2.0/24", "192.0.2.7"], &[]);
        assert_eq!(
            shadowed,
            [
                "the rule of /data for 192.0.2.7/32 never counts, as the one for 192.0.2.0/24 stands before \
                 it and says the same"
            ]
        );
        assert_eq!(said(&["laptop", "laptop"], &[]).len(), 1);
        let host = ["192.0.2.0/24", "laptop"];
        assert!(said(&host, &[]).is_empty(), "nobody knows");
        assert_eq!(said(&host, &[("laptop", "192.0.2.7")]).len(), 1);
        assert!(said(&host, &[("laptop", "192.0.3.7")]).is_empty());
        let mut other = plan("/srv", &["::/0", "::1"], false);
        other.clients[1].options.read_only = true;
        let said = rules_that_never_count(&other, &Addresses::new());
        assert!(said[0].ends_with(": put it first"), "{said:?}");
    }

    #[test]
    fn rules_for_clients_that_cannot_connect_are_hinted_at() {
        let said = |clients: &[&str], listen: &str| {
            let plan = plan("/srv", clients, false);
            let listen: Vec<IpAddr> = listen.split(' ').map(|ip| ip.parse().unwrap()).collect();
            let said = rules_of_no_listener(&plan, &Addresses::new(), &listen);
            said.into_iter().next().unwrap_or_default()
        };
        for listen in ["0.0.0.0", "192.0.2.1", "::", "::ffff:192.0.2.1"] {
            assert_eq!(
                said(&["192.0.2.0/24", "127.0.0.1", "::1"], listen),
                "",
                "{listen}"
            );
        }
        for listen in ["127.0.0.1 192.0.2.1 2001:db8::1", "0.0.0.0 2001:db8::1"] {
            assert_eq!(said(&["2001:db8::/32", "198.51.100.0/24"], listen), "");
        }
        let both = said(&["2001:db8::/32"], "192.0.2.1 198.51.100.1 ::1");
        let says = "listens at 192.0.2.1, 198.51.100.1, ::1, where others come over IPv4, and they have IPv6";
        assert!(both.contains(says), "{both}");
        for listen in ["127.0.0.1", "::1", "127.0.0.1 ::1"] {
            assert_eq!(
                said(&["127.0.0.0/8", "::1", "0.0.0.0/0", "laptop"], listen),
                ""
            );
        }
        let here = said(&["192.0.2.0/24"], "127.0.0.1");
        let begins = "the rule of /data for 192.0.2.0/24 never counts: the server listens at 127.0.0.1, \
                      where only this machine connects";
        assert!(here.starts_with(begins), "{here}");
        let other = said(&["2001:db8::/32"], "0.0.0.0");
        assert!(
            other.contains("an IPv4 address, and they have IPv6"),
            "{other}"
        );
        let other = said(&["192.0.2.0/24"], "2001:db8::1");
        assert!(
            other.contains("an IPv6 address, and they have IPv4"),
            "{other}"
        );
    }

    #[test]
    fn directories_that_are_exported_twice_are_hinted_at() {
        let within =
            |outer: &Plan, inner: &Plan| written_through(outer, inner, &Addresses::new()).is_some();
        let (usr, lib) = (
            plan("/usr", &["192.0.2.0/24"], false),
            plan("/usr/lib", &["192.0.2.7"], true),
        );
        assert!(within(&usr, &lib));
        assert!(!within(&lib, &usr) && !within(&usr, &usr));
        assert!(!within(&usr, &plan("/usr/lib", &["192.0.2.7"], false)));
        assert!(!within(&usr, &plan("/usr/lib", &["192.0.3.7"], true)));
        assert!(!within(&plan("/usr", &["192.0.2.0/24"], true), &lib));
        let (root, proc) = (plan("/", &["::1"], false), plan("/proc", &["::1"], true));
        assert!(!within(&root, &proc), "it is another file system");
        let crossing = Plan {
            crossmnt: true,
            ..root
        };
        assert!(within(&crossing, &proc));
        assert!(twice(&usr, &lib).is_none());
        let said = twice(&usr, &usr).unwrap();
        assert!(said.starts_with("/data and /data are both /usr"), "{said}");
        let said = warnings(
            &[usr, lib],
            &Addresses::new(),
            &[Ipv6Addr::UNSPECIFIED.into()],
        );
        let says = "is read-only, but lies within /data, through which clients can change it";
        assert!(said[0].contains(says), "{said:?}");
    }
}
