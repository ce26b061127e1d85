//! Groups of clients that count as one peer.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};

/// A group of clients that count as one peer wherever peers share a resource.
///
/// For other machines, a group is one IPv4 address or one IPv6 /64, since a host can use every
/// address of its /64 (RFC 4291 §2.5.4). On the server's machine every user can use all of its
/// addresses, including 127/8: there a group is one user, or all users if they are not identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerGroup(Group);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Address(IpAddr),
    ThisMachine,
    User(u32),
}

/// The network part of an IPv6 address.
const NETWORK: u128 = !(u64::MAX as u128);

impl PeerGroup {
    /// Clients on the server's machine whose users are not known.
    pub const THIS_MACHINE: Self = Self(Group::ThisMachine);

    /// The group of an address. An IPv4 address mapped to IPv6 is that IPv4 address.
    pub fn of(address: IpAddr) -> Self {
        Self(Group::Address(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        }))
    }

    /// The group of a user on the server's machine.
    pub fn of_user(uid: u32) -> Self {
        Self(Group::User(uid))
    }

    /// Returns a number that no other group has, for tables that know nothing of addresses.
    pub fn number(self) -> u128 {
        // The IPv6 addresses whose first 64 bits are zero stand for no network of their own.
        match self.0 {
            Group::Address(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
            Group::Address(IpAddr::V6(network)) => network.to_bits(),
            Group::ThisMachine => 1,
            Group::User(uid) => 1 << 32 | u128::from(uid),
        }
    }
}

/// Writes its [number](PeerGroup::number), as one piece: calls look their address up in several tables.
impl Hash for PeerGroup {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.number());
    }
}

impl fmt::Display for PeerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Group::Address(IpAddr::V4(address)) => address.fmt(f),
            Group::Address(IpAddr::V6(network)) => write!(f, "{network}/64"),
            Group::ThisMachine => write!(f, "this machine"),
            Group::User(uid) => write!(f, "uid {uid} of this machine"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(address: &str) -> PeerGroup {
        PeerGroup::of(address.parse().expect("an address"))
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

    #[test]
    fn users_of_this_machine_are_groups() {
        assert_ne!(PeerGroup::of_user(1), PeerGroup::of_user(2));
        assert_ne!(PeerGroup::of_user(0), PeerGroup::THIS_MACHINE);
        assert_eq!(PeerGroup::of_user(7).to_string(), "uid 7 of this machine");
    }

    #[test]
    fn groups_have_different_numbers() {
        let groups = [
            PeerGroup::THIS_MACHINE,
            PeerGroup::of_user(0),
            PeerGroup::of_user(u32::MAX),
            group("0.0.0.0"),
            group("0.0.0.1"),
            group("255.255.255.255"),
            group("::"),
            group("2001:db8::1"),
        ];
        let numbers: std::collections::HashSet<_> =
            groups.iter().map(|group| group.number()).collect();
        assert_eq!(numbers.len(), groups.len());
        assert_eq!(group("2001:db8::1").number(), group("2001:db8::2").number());
    }
}
