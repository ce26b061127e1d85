//! Groups of addresses that count as one peer.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The addresses that count as one peer wherever peers share something: one IPv4 address, or the
/// /64 of an IPv6 address, as one host can use every address of its /64 (RFC 4291 §2.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressGroup(IpAddr);

/// The network part of an IPv6 address.
const NETWORK: u128 = !(u64::MAX as u128);

impl AddressGroup {
    /// The group of an address. An IPv4 address mapped to IPv6 is that IPv4 address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        })
    }
}

impl fmt::Display for AddressGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(address: &str) -> AddressGroup {
        AddressGroup::of(address.parse().expect("an address"))
    }

    #[test]
    fn ipv4_address_is_a_group_also_when_it_is_mapped_to_ipv6() {
        assert_eq!(group("10.0.0.1"), group("::ffff:10.0.0.1"));
        assert_ne!(group("10.0.0.1"), group("10.0.0.2"));
        assert_eq!(group("::ffff:10.0.0.1").to_string(), "10.0.0.1");
    }

    #[test]
    fn ipv6_addresses_of_one_64_are_a_group() {
        assert_eq!(group("2001:db8::1"), group("2001:db8::ffff:0:0:2"));
        assert_ne!(group("2001:db8::1"), group("2001:db8:0:1::1"));
        assert_eq!(group("2001:db8::1").to_string(), "2001:db8::/64");
    }
}
