//! What is to be served: exports with their rules, as the command line or the file says.

use super::exports::{self, Export};
use anyhow::{Context, ensure};
use nfs_server::{AccessList, ClientOptions, ClientRule, ExportOptions, Network, NetworkError};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

/// Addresses of hosts, by name.
pub(crate) type Addresses = BTreeMap<HostName, Vec<IpAddr>>;

/// A directory to serve, and the rules for it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) export: Export,
    pub(super) fsid: Option<NonZeroU32>,
    /// Whether file systems that are mounted below the directory are served with it.
    pub(super) crossmnt: bool,
    pub(super) presence: Presence,
    /// The first rule with the address of a client decides.
    pub(super) clients: Vec<ClientPlan>,
    /// Where the file of exports says so: file, line and key.
    pub(super) origin: Option<String>,
}

/// What has to be there for a directory to be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Presence {
    /// The directory: without it nothing is served.
    #[default]
    Required,
    /// The directory: without it the other exports are served (`nofail` of fstab(5)).
    Optional,
    /// A file system that is mounted at this path: without it the other exports are served
    /// (`mountpoint` of exports(5)).
    Mounted(PathBuf),
}

/// Some clients, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientPlan {
    pub(super) clients: Clients,
    pub(super) options: ClientOptions,
}

/// The clients of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    Network(Network),
    /// A host, by the addresses that its name has.
    Host(HostName),
}

/// The name of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostName(String);

impl HostName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Clients {
    type Err = String;

    /// An address, a network, or the name of a host (RFC 1123 §2.1), which has a letter in its last
    /// label.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains([',', ' ']) {
            let what = "it is one address, network or host name: give each on its own (--allow A --allow B, \
                        or in a file [\"A\", \"B\"])";
            return Err(what.to_owned());
        }
        let error = match text.parse::<Network>() {
            Ok(network) => return Ok(Self::Network(network)),
            Err(NetworkError::Address(_)) => match unsupported(text) {
                Some(what) => return Err(what.to_owned()),
                None => {
                    "it is neither an address, a network as 192.0.2.0/24, nor the name of a host"
                }
            },
            Err(other) => {
                let hint = with_length(text).map(|network| format!("; write {network}"));
                return Err(format!("{other}{}", hint.unwrap_or_default()));
            }
        };
        let label = |label: &str| {
            let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            (1..=63).contains(&label.len()) && label.chars().all(inside) && !label.starts_with('-')
        };
        let name = text.strip_suffix('.').unwrap_or(text);
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_name = name.len() <= 253
            && name.split('.').all(label)
            && last.chars().any(|c| c.is_ascii_alphabetic());
        match is_name {
            true => Ok(Self::Host(HostName(name.to_ascii_lowercase()))),
            false => Err(error.to_owned()),
        }
    }
}

/// What there is to say of clients as exports(5) has them and we have not.
fn unsupported(text: &str) -> Option<&'static str> {
    match text {
        "*" => Some("for everybody, write 0.0.0.0/0 (IPv4) and ::/0 (IPv6)"),
        _ if text.starts_with('@') => Some("netgroups are not supported: list hosts or networks"),
        _ if text.contains(['*', '?']) => {
            Some("wildcards are not supported: list hosts, or networks as 192.0.2.0/24")
        }
        _ => None,
    }
}

/// A network that is written with a netmask, with the length of its prefix.
fn with_length(text: &str) -> Option<String> {
    let (address, mask) = text.split_once('/')?;
    let mask = mask.parse::<Ipv4Addr>().ok()?.to_bits();
    let length = mask.leading_ones();
    (length == mask.count_ones()).then(|| format!("{address}/{length}"))
}

impl std::fmt::Display for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Host(HostName(name)) => f.write_str(name),
        }
    }
}

impl Plan {
    /// The directory, if what has to be there is.
    ///
    /// # Errors
    ///
    /// Why it cannot be served now.
    pub(super) fn locate(&self) -> anyhow::Result<PathBuf> {
        self.presence.locate(&self.export)
    }

    /// Whether the same is served in the same way.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.export == other.export
            && self.fsid == other.fsid
            && self.crossmnt == other.crossmnt
            && self.clients == other.clients
    }

    /// Whether no client can change anything.
    pub(super) fn read_only(&self) -> bool {
        self.clients.iter().all(|rule| rule.options.read_only)
    }

    /// For whom it is, in words.
    pub(super) fn describe_clients(&self) -> String {
        let mut seen = BTreeSet::new();
        let names = self.clients.iter().map(|rule| rule.clients.to_string());
        let names: Vec<String> = names.filter(|name| seen.insert(name.clone())).collect();
        summed_up(&names)
    }

    /// Names of hosts in the rules.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &HostName> {
        self.clients.iter().filter_map(|rule| match &rule.clients {
            Clients::Host(name) => Some(name),
            Clients::Network(_) => None,
        })
    }

    /// The rules, with these addresses of hosts.
    pub(super) fn options(&self, addresses: &Addresses) -> ExportOptions {
        let rules = self.clients.iter().map(|rule| ClientRule {
            name: rule.clients.to_string(),
            networks: match &rule.clients {
                Clients::Network(network) => vec![*network],
                Clients::Host(name) => {
                    let found = addresses.get(name).into_iter().flatten();
                    found.copied().map(Network::from).collect()
                }
            },
            options: rule.options,
        });
        ExportOptions::default()
            .with_allow(AccessList::new([]))
            .with_rules(rules.collect())
            .with_fsid(self.fsid)
    }
}

impl Presence {
    /// The directory of an export, if what has to be there is.
    ///
    /// # Errors
    ///
    /// Why it cannot be served now.
    pub(super) fn locate(&self, export: &Export) -> anyhow::Result<PathBuf> {
        if let Self::Mounted(at) = self {
            let about = statx(CWD, at, AtFlags::empty(), StatxFlags::empty());
            let about = about.with_context(|| format!("nothing is mounted at {}", at.display()))?;
            ensure!(
                about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
                "nothing is mounted at {}",
                at.display()
            );
        }
        exports::directory(&export.path)
    }
}

/// Those whom all exports are for, in words; none if they are for different ones.
pub(super) fn common_clients(plans: &[Plan]) -> Option<String> {
    let mut all = plans.iter().map(Plan::describe_clients);
    let first = all.next()?;
    all.all(|clients| clients == first).then_some(first)
}

/// Names in a line; of many the first ones, and how many there are.
pub(crate) fn summed_up(names: &[String]) -> String {
    match names.split_at_checked(MOST_SHOWN) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} more", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

/// Names in a line.
const MOST_SHOWN: usize = 8;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::serve) fn plan(dir: &str, clients: &[&str], read_only: bool) -> Plan {
        Plan {
            export: Export {
                name: "/data".to_owned(),
                path: dir.into(),
                dir: dir.into(),
            },
            fsid: None,
            crossmnt: false,
            presence: Presence::Required,
            origin: None,
            clients: clients
                .iter()
                .map(|text| ClientPlan {
                    clients: text.parse().unwrap(),
                    options: ClientOptions {
                        read_only,
                        ..ClientOptions::default()
                    },
                })
                .collect(),
        }
    }

    #[test]
    fn clients_are_networks_and_hosts() {
        let check = |text: &str, shown: &str, host: bool| {
            let clients: Clients = text.parse().unwrap();
            assert_eq!(clients.to_string(), shown);
            assert_eq!(matches!(clients, Clients::Host(_)), host, "{text}");
        };
        check("192.0.2.0/24", "192.0.2.0/24", false);
        check("::1", "::1/128", false);
        check("laptop", "laptop", true);
        check("Files.Example.ORG.", "files.example.org", true);
        for bad in [
            "",
            "192.0.2",
            "10.1.2.3/8",
            "a b",
            "a..b",
            "-a",
            "*.org",
            "@group",
            "a/24",
        ] {
            assert!(bad.parse::<Clients>().is_err(), "{bad}");
        }
    }

    #[test]
    fn host_without_addresses_is_not_served() {
        let plan = plan("/srv", &["laptop"], false);
        let options = plan.options(&Addresses::new());
        assert_eq!(options.for_client("192.0.2.7".parse().unwrap()), None);
        let host = plan.hosts().next().unwrap().clone();
        let known = [(host, vec!["192.0.2.7".parse().unwrap()])];
        let options = plan.options(&known.into());
        assert!(options.for_client("192.0.2.7".parse().unwrap()).is_some());
        assert!(options.for_client("192.0.2.8".parse().unwrap()).is_none());
    }

    #[test]
    fn many_clients_are_summed_up() {
        let names: Vec<String> = (0..20).map(|n| format!("h{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let many = plan("/a", &names, true);
        let said = many.describe_clients();
        assert!(said.ends_with("h7 and 12 more"), "{said}");
        assert_eq!(common_clients(&[many.clone(), many.clone()]), Some(said));
        let one = plan("/a", &["h", "h"], true);
        assert_eq!(one.describe_clients(), "h");
        assert_eq!(common_clients(&[many, one]), None);
    }
}
