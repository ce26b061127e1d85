//! Finds out whether an address belongs to this machine.

use crate::netlink::{ask, list};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// How often the addresses are listed, if they change meanwhile.
pub(crate) const MAX_LISTINGS: usize = 4;

/// Returns whether an address is one of this machine: packets to it stay here, or an interface has
/// it, in whatever VRF. `interface` is that of the server's socket, or 0.
///
/// # Errors
///
/// The kernel does not tell. Then the address may be one of this machine.
pub(crate) fn is_local(addr: SocketAddr, interface: u32) -> io::Result<bool> {
    if routes_to_here(addr, 0)? || (interface != 0 && routes_to_here(addr, interface)?) {
        return Ok(true);
    }
    match is_of_an_interface(addr.ip()) {
        // Addresses of other VRFs are not to be bound, and remain unknown there.
        Err(error) if is_forbidden(&error) && interface == 0 => is_bindable(addr),
        found => found,
    }
}

/// Whether the routing table of an interface, or the main one, delivers packets to an address here.
fn routes_to_here(addr: SocketAddr, interface: u32) -> io::Result<bool> {
    match route_type(addr, interface) {
        Ok(kind) => Ok(kind == RouteType::Local),
        Err(error) if is_without_route(&error) || is_forbidden(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether there is no route to an address, or one that discards packets.
fn is_without_route(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::PermissionDenied
    )
}

/// Whether this process may not use netlink.
fn is_forbidden(error: &io::Error) -> bool {
    let forbidden = [
        Errno::PERM,
        Errno::ACCESS,
        Errno::NOSYS,
        Errno::AFNOSUPPORT,
        Errno::PROTONOSUPPORT,
    ];
    Errno::from_io_error(error).is_some_and(|errno| forbidden.contains(&errno))
}

/// Whether an address can be bound. With ip_nonlocal_bind that can be an address of another machine,
/// which is the safe choice.
fn is_bindable(addr: SocketAddr) -> io::Result<bool> {
    let mut at = addr;
    at.set_port(0);
    is_bound(UdpSocket::bind(at))
}

/// Any other error than that of an address that is not there tells nothing.
fn is_bound<T>(bound: io::Result<T>) -> io::Result<bool> {
    match bound {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        Err(error) => Err(error),
    }
}

fn route_type(addr: SocketAddr, interface: u32) -> io::Result<RouteType> {
    let mut request = RouteMessage::default();
    request.header.address_family = family(addr.ip());
    request.header.destination_prefix_length = match addr {
        SocketAddr::V4(_) => 32,
        SocketAddr::V6(_) => 128,
    };
    let to = RouteAttribute::Destination(RouteAddress::from(addr.ip()));
    request.attributes.push(to);
    if interface != 0 {
        request.attributes.push(RouteAttribute::Oif(interface));
    }
    // The protocol number of NETLINK_ROUTE is 0.
    match ask(None, RouteNetlinkMessage::GetRoute(request))? {
        RouteNetlinkMessage::NewRoute(route) => Ok(route.header.kind),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Whether an interface of this machine has the address, in whatever VRF.
fn is_of_an_interface(ip: IpAddr) -> io::Result<bool> {
    let mut tries = 1;
    loop {
        let mut request = AddressMessage::default();
        request.header.family = family(ip);
        let mut found = false;
        let listed = list(None, RouteNetlinkMessage::GetAddress(request), |answer| {
            found |= matches!(answer, RouteNetlinkMessage::NewAddress(one) if own_address(&one) == Some(ip))
        });
        match listed {
            _ if found => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted && tries < MAX_LISTINGS => {
                tries += 1;
            }
            listed => return listed.map(|()| false),
        }
    }
}

/// The address of this end, where an interface has one for each end.
fn own_address(message: &AddressMessage) -> Option<IpAddr> {
    let mut either = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => return Some(*ip),
            AddressAttribute::Address(ip) => either = Some(*ip),
            _ => {}
        }
    }
    either
}

/// Whether an interface is that of a VRF, whose routes and addresses are its own.
///
/// # Errors
///
/// The kernel does not tell.
pub(crate) fn is_vrf(interface: u32) -> io::Result<bool> {
    let mut request = LinkMessage::default();
    request.header.index = interface;
    let RouteNetlinkMessage::NewLink(link) = ask(None, RouteNetlinkMessage::GetLink(request))?
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let is_vrf = |info: &LinkInfo| matches!(info, LinkInfo::Kind(InfoKind::Vrf));
    Ok(link.attributes.iter().any(
        |attribute| matches!(attribute, LinkAttribute::LinkInfo(infos) if infos.iter().any(is_vrf)),
    ))
}

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_of_another_machine_only_if_the_kernel_says_so() {
        let bound = |errno: Errno| is_bound::<UdpSocket>(Err(errno.into()));
        assert!(is_bound(Ok(())).unwrap());
        assert!(!bound(Errno::ADDRNOTAVAIL).unwrap());
        for unknown in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::ACCESS] {
            assert!(bound(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn every_address_of_an_interface_is_listed() {
        assert!(is_of_an_interface([127, 0, 0, 1].into()).unwrap());
        assert!(!is_of_an_interface([203, 0, 113, 2].into()).unwrap());
        assert!(!is_of_an_interface("2001:db8::2".parse().unwrap()).unwrap());
    }

    #[test]
    fn own_address_of_an_interface_with_two_ends_is_the_local_one() {
        let (own, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut message = AddressMessage::default();
        message.attributes.push(AddressAttribute::Address(other));
        assert_eq!(own_address(&message), Some(other));
        message.attributes.push(AddressAttribute::Local(own));
        assert_eq!(own_address(&message), Some(own));
    }
}
