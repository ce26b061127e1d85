//! Access list by network address.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, as in `192.0.2.0/24` or `2001:db8::/32`. A single address is a range of
/// one. The bits after the prefix are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpNet);

/// Error of parsing a [`Network`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
#[non_exhaustive]
pub enum NetworkError {
    #[error("'{0}' is no IP address; write a network as 192.0.2.0/24 or 2001:db8::/32")]
    Address(String),
    #[error("/{prefix} is no length of a prefix: it is 0 to {most} here")]
    Prefix { prefix: String, most: u8 },
    #[error("{network} has bits behind its prefix; was {meant} meant?")]
    HostBits { network: String, meant: Network },
}

impl Network {
    /// Addresses of this machine only.
    pub const LOOPBACK: [Self; 2] = [
        Self(IpNet::V4(Ipv4Net::new_assert(
            Ipv4Addr::new(127, 0, 0, 0),
            8,
        ))),
        Self(IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128))),
    ];

    /// Whether it contains every address of its family.
    pub fn is_everybody(self) -> bool {
        self.0.prefix_len() == 0
    }

    /// Whether its addresses are those of IPv4, and not of IPv6.
    pub fn is_ipv4(self) -> bool {
        self.0.addr().is_ipv4()
    }

    /// Whether it contains every address of the other network.
    pub fn covers(self, other: Self) -> bool {
        self.0.contains(&other.0)
    }

    /// Whether it contains the address. An IPv4-mapped IPv6 address, as a dual-stack socket reports
    /// it, counts as the IPv4 address.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl From<IpAddr> for Network {
    /// The range of one address.
    fn from(address: IpAddr) -> Self {
        Self(address.to_canonical().into())
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| NetworkError::Address(text.into()))?;
        let network = match prefix {
            None => address.into(),
            Some(prefix) => {
                let length = prefix.parse().ok();
                let network = length.and_then(|length| IpNet::new(address, length).ok());
                network.ok_or_else(|| NetworkError::Prefix {
                    prefix: prefix.into(),
                    most: IpNet::from(address).max_prefix_len(),
                })?
            }
        };
        if network != network.trunc() {
            return Err(NetworkError::HostBits {
                network: text.into(),
                meant: Self(network.trunc()),
            });
        }
        Ok(Self(network))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// List of the addresses that are served; by default those of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList(Vec<Network>);

impl Default for AccessList {
    fn default() -> Self {
        Self(Network::LOOPBACK.into())
    }
}

impl AccessList {
    /// Creates a list of these networks. An empty list serves nobody.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        Self(networks.into_iter().collect())
    }

    /// Whether clients with this address are served.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Returns the networks.
    pub fn networks(&self) -> &[Network] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(network: &str, address: &str, inside: bool) {
        let network: Network = network.parse().unwrap();
        assert_eq!(network.contains(address.parse().unwrap()), inside);
    }

    #[test]
    fn addresses_are_in_the_networks_they_begin_with() {
        check("192.0.2.0/24", "192.0.2.255", true);
        check("192.0.2.0/24", "192.0.3.0", false);
        check("192.0.2.7", "192.0.2.7", true);
        check("192.0.2.7", "192.0.2.6", false);
        check("0.0.0.0/0", "203.0.113.9", true);
        check("0.0.0.0/0", "2001:db8::1", false);
        check("2001:db8::/32", "2001:db8:ffff::1", true);
        check("2001:db8::/32", "2001:db9::1", false);
        check("::/0", "2001:db9::1", true);
        check("10.0.0.0/8", "::ffff:10.1.2.3", true);
    }

    #[test]
    fn network_covers_those_within_it() {
        let check = |network: &str, other: &str, covers| {
            let [network, other] = [network, other].map(|text| text.parse::<Network>().unwrap());
            assert_eq!(network.covers(other), covers, "{network} {other}");
        };
        check("192.0.2.0/24", "192.0.2.7", true);
        check("192.0.2.0/24", "192.0.2.0/24", true);
        check("192.0.2.0/24", "192.0.2.128/25", true);
        check("192.0.2.128/25", "192.0.2.0/24", false);
        check("192.0.2.0/24", "192.0.3.0/25", false);
        check("0.0.0.0/0", "::/0", false);
        check("::/0", "::1", true);
    }

    #[test]
    fn only_loopback_is_served_by_default() {
        let list = AccessList::default();
        assert!(list.allows("127.0.0.2".parse().unwrap()));
        assert!(list.allows("::1".parse().unwrap()));
        assert!(!list.allows("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn invalid_networks_are_refused_with_a_reason() {
        let message = |text: &str| text.parse::<Network>().unwrap_err().to_string();
        assert!(message("example").contains("no IP address"));
        assert!(message("192.0.2.0/33").contains("0 to 32"));
        assert!(message("::/129").contains("0 to 128"));
        assert!(message("10.1.2.3/8").contains("10.0.0.0/8"));
    }
}
