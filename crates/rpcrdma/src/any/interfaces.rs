//! Network interfaces of this machine, by which the addresses of an iWARP device are found, and those to listen at.

use nix::ifaddrs::getifaddrs;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

/// Network interfaces by their names.
#[derive(Debug, Default)]
pub(super) struct Interfaces(BTreeMap<String, Interface>);

#[derive(Debug, Default)]
pub(super) struct Interface {
    /// Its Ethernet address, if it has one.
    pub(super) ethernet: Option<[u8; 6]>,
    pub(super) addresses: Vec<IpAddr>,
}

impl Interfaces {
    /// The interfaces of this machine now.
    ///
    /// # Errors
    ///
    /// If the kernel does not list them.
    pub(super) fn read() -> io::Result<Self> {
        let mut all = Self::default();
        for found in getifaddrs()? {
            let interface = all.0.entry(found.interface_name).or_default();
            let Some(address) = found.address else {
                continue;
            };
            if let Some(link) = address.as_link_addr() {
                interface.ethernet = link.addr();
            } else if let Some(address) = address.as_sockaddr_in() {
                interface.addresses.push(address.ip().into());
            } else if let Some(address) = address.as_sockaddr_in6() {
                interface.addresses.push(address.ip().into());
            }
        }
        Ok(all)
    }

    /// The interface of an iWARP device with this address: its first bytes are the Ethernet address. The kernel's
    /// connection manager looks for the device in the same way.
    pub(super) fn of_iwarp(&self, gid: Ipv6Addr) -> Option<&str> {
        let octets = gid.octets();
        let ethernet = octets
            .first_chunk::<6>()
            .filter(|first| **first != [0; 6])?;
        let mut all = self.0.iter();
        let found = all.find(|(_, interface)| interface.ethernet.as_ref() == Some(ethernet));
        found.map(|(name, _)| name.as_str())
    }

    /// The IP addresses of an interface.
    pub(super) fn addresses(&self, name: &str) -> &[IpAddr] {
        self.0
            .get(name)
            .map_or(&[], |interface| &interface.addresses)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An interface with an Ethernet address that ends in 1, and one without.
    pub(in crate::any) fn interfaces() -> Interfaces {
        let interface = |ethernet, address: &str| Interface {
            ethernet,
            addresses: vec![address.parse().unwrap()],
        };
        let eth0 = interface(Some([0x52, 0x54, 0, 0, 0, 1]), "192.0.2.7");
        let lo = interface(Some([0; 6]), "127.0.0.1");
        Interfaces([("eth0".to_owned(), eth0), ("lo".to_owned(), lo)].into())
    }

    #[test]
    fn interface_of_an_iwarp_device_is_found_by_its_ethernet_address() {
        let found = |gid: &str| {
            interfaces()
                .of_iwarp(gid.parse().unwrap())
                .map(str::to_owned)
        };
        assert_eq!(found("5254:0:1::").as_deref(), Some("eth0"));
        assert_eq!(found("5254:0:2::"), None);
        // The loopback interface has an Ethernet address of zeros.
        assert_eq!(found("::"), None);
        assert_eq!(interfaces().addresses("eth0").len(), 1);
        assert!(interfaces().addresses("eth1").is_empty());
    }

    #[test]
    fn loopback_interface_of_this_machine_is_listed() {
        let all = Interfaces::read().unwrap();
        let loopback = |address: &IpAddr| address.is_loopback();
        let lo = all.addresses("lo");
        assert!(lo.is_empty() || lo.iter().any(loopback), "{all:?}");
        assert!(all.0.contains_key("lo"), "{all:?}");
    }
}
