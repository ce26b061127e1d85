//! Host and port of a server.

use crate::failure::plain;
use anyhow::anyhow;
use nfs_client::{UrlError, host_and_port, ipv6_host};
use nfs_proto::NFS_RDMA_PORT;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// What there is to say of a host that the system knows and that has no address.
pub(crate) const NO_ADDRESS: &str = "this host has no address";

/// A host, by name or address, and a port; [`NFS_RDMA_PORT`] if none is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// A name or an address, without brackets; an IPv6 address may have a zone, as `fe80::1%eth0`.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Endpoint {
    /// The addresses of the host.
    ///
    /// # Errors
    ///
    /// If the name cannot be resolved; the host is not named.
    pub(crate) async fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found = found.map_err(|error| {
            let text = plain(&error);
            let why = text.strip_prefix("failed to lookup address information: ");
            anyhow!(
                "cannot find this host: {} (check the name)",
                why.unwrap_or(&text)
            )
        });
        Ok(found?.collect())
    }

    /// Whether it is written with this address, and not with a name.
    pub(crate) fn is(&self, addr: SocketAddr) -> bool {
        let host = &self.host;
        let address = host.split_once('%').map_or(&**host, |(address, _)| address);
        address.parse() == Ok(addr.ip())
    }
}

/// Another port at the same address, with its zone.
pub(crate) fn at_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}

/// Whether two sockets cannot listen at these addresses at the same time.
pub(crate) fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let same_port = one.port() != 0 && one.port() == other.port();
    same_port && (has_host_of(one, other) || has_host_of(other, one))
}

/// Whether a socket that listens at `one` has the IP address of `other`, at whatever port: the same one, or all of its
/// family. A socket at all addresses of IPv6 has those of IPv4, too, unless this machine says otherwise (ipv6(7)).
pub(crate) fn has_host_of(one: SocketAddr, other: SocketAddr) -> bool {
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
pub(crate) fn binds_ipv6_only() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    setting.is_ok_and(|setting| setting.trim() == "1")
}

impl FromStr for Endpoint {
    type Err = UrlError;

    /// As in a URL, or the URL of a server; an IPv6 address without a port may also stand alone.
    fn from_str(text: &str) -> Result<Self, UrlError> {
        let text = match text.strip_prefix("nfs://") {
            Some(url) => match url.strip_suffix('/').unwrap_or(url) {
                path if path.contains('/') => return Err(UrlError::BadHost(path.to_owned())),
                server => server,
            },
            None => text,
        };
        let (host, port) = match ipv6_host(text) {
            Some(host) => (host, NFS_RDMA_PORT),
            None => host_and_port(text)?,
        };
        Ok(Self {
            host: host.into_owned(),
            port,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            // A zone that begins with 25 would otherwise be taken for an escaped one.
            let host = self.host.replace("%25", "%2525");
            write!(f, "[{host}]:{}", self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_parsed() {
        let check = |text: &str, host: &str, port| {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(
                (endpoint.host.as_str(), endpoint.port),
                (host, port),
                "{text}"
            );
            assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
        };
        check("127.0.0.1", "127.0.0.1", 20049);
        check("127.0.0.1:1", "127.0.0.1", 1);
        check("files.example.org:65535", "files.example.org", 65535);
        check("[::1]:7", "::1", 7);
        check("[::1]", "::1", 20049);
        check("2001:db8::7", "2001:db8::7", 20049);
        check("fe80::1%eth0", "fe80::1%eth0", 20049);
        check("[fe80::1%eth0]:7", "fe80::1%eth0", 7);
        check("[fe80::1%25eth0]:7", "fe80::1%eth0", 7);
        check("fe80::1%2525", "fe80::1%25", 20049);
        check("nfs://[fe80::1%25eth0]/", "fe80::1%eth0", 20049);
        check("nfs://127.0.0.1/", "127.0.0.1", 20049);
        check("nfs://[::1]:7", "::1", 7);
    }

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

    #[test]
    fn invalid_endpoints_are_refused_with_a_reason() {
        let check = |text: &str, error: UrlError| {
            assert_eq!(text.parse::<Endpoint>(), Err(error), "{text}");
        };
        check("", UrlError::NoHost);
        check(":7", UrlError::NoHost);
        check("host:", UrlError::BadPort(String::new()));
        check("host:0", UrlError::BadPort("0".to_owned()));
        check("host:65536", UrlError::BadPort("65536".to_owned()));
        check("host:nfs", UrlError::BadPort("nfs".to_owned()));
        check("[host]:7", UrlError::BadHost("[host]:7".to_owned()));
        check("[::1]7", UrlError::BadHost("[::1]7".to_owned()));
        check("a b", UrlError::BadHost("a b".to_owned()));
        let path = "host:7/path";
        check(&format!("nfs://{path}"), UrlError::BadHost(path.to_owned()));
        check("user@host", UrlError::BadHost("user@host".to_owned()));
    }
}
