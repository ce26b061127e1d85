//! Clients as rules name them: networks, and hosts by their names.

use nfs_server::{Network, NetworkError};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// Addresses of hosts, by name.
pub type Addresses = BTreeMap<HostName, Vec<IpAddr>>;

/// The clients of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// An address or a network.
    Network(Network),
    /// A host, by the addresses that its name has.
    Host(HostName),
}

/// The name of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// The name, in small letters.
    pub fn as_str(&self) -> &str {
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

/// Advice for clients in forms of exports(5) that are not supported.
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

/// Names in a line; of many the first ones, and how many there are.
pub fn summed_up(names: &[String]) -> String {
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
mod tests {
    use super::*;

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
    fn many_names_are_summed_up() {
        let names: Vec<String> = (0..20).map(|n| format!("h{n}")).collect();
        let said = summed_up(&names);
        assert!(said.ends_with("h7 and 12 more"), "{said}");
        assert_eq!(summed_up(&names[..2]), "h0, h1");
    }
}
