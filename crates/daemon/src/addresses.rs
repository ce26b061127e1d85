//! Socket addresses as listeners have them.

use std::net::{IpAddr, SocketAddr};

/// Another port at the same address, with its zone.
pub fn at_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}

/// Whether two sockets cannot listen at these addresses at the same time.
pub fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let same_port = one.port() != 0 && one.port() == other.port();
    same_port && (has_host_of(one, other) || has_host_of(other, one))
}

/// Whether a socket that listens at `one` has the IP address of `other`, at whatever port: the same one, or all of its
/// family. A socket at all addresses of IPv6 has those of IPv4, too, unless this machine says otherwise (ipv6(7)).
pub fn has_host_of(one: SocketAddr, other: SocketAddr) -> bool {
    let zone = |addr: SocketAddr| match addr {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(addr) => addr.scope_id(),
    };
    let (ip, theirs) = (one.ip().to_canonical(), other.ip().to_canonical());
    let is_same = ip == theirs && zone(one) == zone(other);
    let is_of_all = match ip {
        IpAddr::V4(ip) => ip.is_unspecified() && theirs.is_ipv4(),
        IpAddr::V6(ip) => ip.is_unspecified() && (theirs.is_ipv6() || !binds_ipv6_only()),
    };
    is_same || is_of_all
}

/// Whether sockets at all addresses of IPv6 take no IPv4 here.
pub fn binds_ipv6_only() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    setting.is_ok_and(|setting| setting.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_meet_at_one_port_of_one_address_or_of_all() {
        let check = |one: &str, other: &str, expected: bool| {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(meet(one, other), expected, "{one} {other}");
            assert_eq!(meet(other, one), expected, "{other} {one}");
        };
        check("192.0.2.1:7", "192.0.2.1:7", true);
        check("192.0.2.1:7", "192.0.2.1:8", false);
        check("192.0.2.1:0", "192.0.2.1:0", false);
        check("192.0.2.1:7", "192.0.2.2:7", false);
        check("0.0.0.0:7", "192.0.2.1:7", true);
        check("0.0.0.0:7", "[2001:db8::1]:7", false);
        check("[::]:7", "[2001:db8::1]:7", true);
        check("[fe80::1%1]:7", "[fe80::1%2]:7", false);
        check("[::]:7", "[::ffff:192.0.2.1]:7", !binds_ipv6_only());
        check("[::]:7", "0.0.0.0:7", !binds_ipv6_only());
    }
}
