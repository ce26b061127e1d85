//! Finds out whether an address belongs to this machine.

use crate::netlink::ask;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Whether packets to an address stay on this machine.
pub(crate) fn is_local(addr: SocketAddr) -> bool {
    match route_type(addr) {
        Ok(kind) => kind == RouteType::Local,
        // There is no route to the address.
        Err(error) if is_unreachable(&error) => false,
        // The route is unknown: an address that can be bound counts as local. With ip_nonlocal_bind
        // that can be an address of another machine, which is the safe choice.
        Err(_) => UdpSocket::bind((addr.ip(), 0)).is_ok(),
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable
    )
}

fn route_type(addr: SocketAddr) -> io::Result<RouteType> {
    let mut request = RouteMessage::default();
    let (family, bits) = match addr.ip() {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    request.header.address_family = family;
    request.header.destination_prefix_length = bits;
    let to = RouteAttribute::Destination(RouteAddress::from(addr.ip()));
    request.attributes.push(to);
    if let SocketAddr::V6(addr) = addr
        && addr.scope_id() != 0
    {
        request
            .attributes
            .push(RouteAttribute::Oif(addr.scope_id()));
    }
    // The protocol number of NETLINK_ROUTE is 0.
    match ask(None, RouteNetlinkMessage::GetRoute(request))? {
        RouteNetlinkMessage::NewRoute(route) => Ok(route.header.kind),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
