//! Which addresses are this machine's own.

use crate::netlink::ask;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Whether what is sent to an address stays on this machine.
pub(crate) fn is_local(addr: SocketAddr) -> bool {
    match route_type(addr) {
        Ok(kind) => kind == RouteType::Local,
        // No way leads there.
        Err(error) if is_unreachable(&error) => false,
        // Nobody is to be asked. Where addresses of others can be bound too (ip_nonlocal_bind), they are
        // taken for this machine's, which is on the safe side.
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
    // NETLINK_ROUTE has the number 0.
    match ask(None, RouteNetlinkMessage::GetRoute(request))? {
        RouteNetlinkMessage::NewRoute(route) => Ok(route.header.kind),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
