//! Exports with their rules, as they are configured.

use super::exports::{self, Export};
use crate::clients::{Addresses, Clients, HostName, summed_up};
use anyhow::{Context, ensure};
use nfs_server::{AccessList, ClientOptions, ClientRule, ExportOptions, Network};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// A directory to serve, and the rules for it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name and directory.
    pub export: Export,
    /// Number of the export in file handles, if it has one.
    pub fsid: Option<NonZeroU32>,
    /// Whether file systems that are mounted below the directory are served with it.
    pub crossmnt: bool,
    /// Condition for it to be served.
    pub presence: Presence,
    /// The first rule with the address of a client decides.
    pub clients: Vec<ClientPlan>,
    /// File, line and key of it, if it is of a file.
    pub origin: Option<String>,
}

/// Condition for a directory to be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Presence {
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
pub struct ClientPlan {
    /// The clients.
    pub clients: Clients,
    /// Their rights.
    pub options: ClientOptions,
}

impl Plan {
    /// The directory, if what has to be there is.
    ///
    /// # Errors
    ///
    /// Why it cannot be served now.
    pub fn locate(&self) -> anyhow::Result<PathBuf> {
        self.presence.locate(&self.export)
    }

    /// Whether the same is served in the same way.
    pub fn is_same(&self, other: &Self) -> bool {
        self.export == other.export
            && self.fsid == other.fsid
            && self.crossmnt == other.crossmnt
            && self.clients == other.clients
    }

    /// Whether no client can change anything.
    pub fn read_only(&self) -> bool {
        self.clients.iter().all(|rule| rule.options.read_only)
    }

    /// Its clients in words.
    pub fn describe_clients(&self) -> String {
        let mut seen = BTreeSet::new();
        let names = self.clients.iter().map(|rule| rule.clients.to_string());
        let names: Vec<String> = names.filter(|name| seen.insert(name.clone())).collect();
        summed_up(&names)
    }

    /// Names of hosts in the rules.
    pub fn hosts(&self) -> impl Iterator<Item = &HostName> {
        self.clients.iter().filter_map(|rule| match &rule.clients {
            Clients::Host(name) => Some(name),
            Clients::Network(_) => None,
        })
    }

    /// The rules, with these addresses of hosts.
    pub fn options(&self, addresses: &Addresses) -> ExportOptions {
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
    pub fn locate(&self, export: &Export) -> anyhow::Result<PathBuf> {
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

/// The clients of all exports in words; `None` if exports have different ones.
pub fn common_clients(plans: &[Plan]) -> Option<String> {
    let mut all = plans.iter().map(Plan::describe_clients);
    let first = all.next()?;
    all.all(|clients| clients == first).then_some(first)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn plan(dir: &str, clients: &[&str], read_only: bool) -> Plan {
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
