//! Host and port of a server.

use crate::url::{UrlError, host_and_port, ipv6_host};
use nfs_proto::NFS_RDMA_PORT;
use oncrpc::plain;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Message for a host that the system knows and that has no address.
pub const NO_ADDRESS: &str = "this host has no address";

/// The system does not know a host, or cannot tell. The message does not name the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot find this host: {0} (check the name)")]
pub struct LookupError(String);

/// A host, by name or address, and a port; [`NFS_RDMA_PORT`] if none is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address, without brackets; an IPv6 address may have a zone, as `fe80::1%eth0`.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// The addresses of the host.
    ///
    /// # Errors
    ///
    /// If the name cannot be resolved; the host is not named.
    pub async fn addresses(&self) -> Result<Vec<SocketAddr>, LookupError> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found = found.map_err(|error| {
            let text = plain(&error);
            let why = text.strip_prefix("failed to lookup address information: ");
            LookupError(why.unwrap_or(&text).to_owned())
        });
        Ok(found?.collect())
    }

    /// Whether it is written with this address, and not with a name.
    pub fn is(&self, addr: SocketAddr) -> bool {
        let host = &self.host;
        let address = host.split_once('%').map_or(&**host, |(address, _)| address);
        address.parse() == Ok(addr.ip())
    }
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
