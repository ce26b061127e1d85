//! The two sides of a pair, as URLs: `rdma://ADDR[:PORT]` and `tcp://HOST[:PORT]`.

use crate::listen;
use gateway::TransportKind;
use nfs_client::{Endpoint, ipv6_host};
use nfs_proto::NFS_RDMA_PORT;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Port of NFS over TCP.
const NFS_TCP_PORT: u16 = 2049;

/// The transport of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// RPC-over-RDMA.
    Rdma,
    /// RPC over TCP.
    Tcp,
}

/// The side that clients connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenUrl {
    /// The transport.
    pub scheme: Scheme,
    /// The address.
    pub addr: SocketAddr,
}

/// The side of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// The transport.
    pub scheme: Scheme,
    /// Host and port.
    pub server: Endpoint,
}

impl Scheme {
    /// Its name in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
        }
    }

    /// Its usual port.
    pub fn port(self) -> u16 {
        match self {
            Self::Rdma => NFS_RDMA_PORT,
            Self::Tcp => NFS_TCP_PORT,
        }
    }

    /// The transport for the gateway.
    pub fn transport(self) -> TransportKind {
        match self {
            Self::Rdma => TransportKind::Rdma,
            Self::Tcp => TransportKind::Tcp,
        }
    }

    /// The other transport.
    pub fn other(self) -> Self {
        match self {
            Self::Rdma => Self::Tcp,
            Self::Tcp => Self::Rdma,
        }
    }

    /// The service at its usual port, in words.
    pub fn service(self) -> &'static str {
        match self {
            Self::Rdma => "NFS/RDMA",
            Self::Tcp => "plain NFS/TCP",
        }
    }

    /// The transport, and what follows it.
    fn split(text: &str) -> Result<(Self, &str), String> {
        let split = text.split_once("://").map(|(scheme, rest)| {
            let rest = rest.strip_suffix('/').unwrap_or(rest);
            (scheme.to_ascii_lowercase(), rest)
        });
        match split {
            Some((scheme, rest)) if scheme == "rdma" => Ok((Self::Rdma, rest)),
            Some((scheme, rest)) if scheme == "tcp" => Ok((Self::Tcp, rest)),
            Some((scheme, _)) => Err(format!("there is no transport {scheme}: write rdma or tcp")),
            None => Err("it must begin with rdma:// or tcp://".to_owned()),
        }
    }
}

impl UpstreamUrl {
    /// Whether the server has the usual port of its transport, which one server of a host has.
    pub fn has_usual_port(&self) -> bool {
        self.server.port == self.scheme.port()
    }
}

impl FromStr for ListenUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = Scheme::split(text)?;
        let addr = listen::parse_with(rest, scheme.port())?;
        Ok(Self { scheme, addr })
    }
}

impl FromStr for UpstreamUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = Scheme::split(text)?;
        let mut server: Endpoint = rest.parse().map_err(|error| format!("{error}"))?;
        let behind_host = rest.rsplit_once(']').map_or(rest, |(_, behind)| behind);
        if ipv6_host(rest).is_some() || !behind_host.contains(':') {
            server.port = scheme.port();
        }
        Ok(Self { scheme, server })
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.addr)
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_may_be_left_out_on_either_side() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<ListenUrl>().unwrap().to_string(), expected);
            assert_eq!(text.parse::<UpstreamUrl>().unwrap().to_string(), expected);
        };
        check("rdma://192.0.2.1", "rdma://192.0.2.1:20049");
        check("tcp://192.0.2.1/", "tcp://192.0.2.1:2049");
        check("TCP://192.0.2.1:7", "tcp://192.0.2.1:7");
        check("tcp://[::1]", "tcp://[::1]:2049");
        check("tcp://::1", "tcp://[::1]:2049");
        check("rdma://[::1]:7", "rdma://[::1]:7");
        for zone in ["fe80::1%eth0", "[fe80::1%25eth0]", "[fe80::1%eth0]:2049"] {
            let upstream: UpstreamUrl = format!("tcp://{zone}").parse().unwrap();
            assert_eq!(upstream.to_string(), "tcp://[fe80::1%eth0]:2049");
        }
        let upstream: UpstreamUrl = "tcp://filer.example.org".parse().unwrap();
        assert_eq!(upstream.to_string(), "tcp://filer.example.org:2049");
        assert!("rdma://filer".parse::<ListenUrl>().is_err());
    }

    #[test]
    fn other_transports_are_refused_with_a_reason() {
        let check = |text: &str, says: &str| {
            let error = text.parse::<UpstreamUrl>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        };
        check("filer:2049", "it must begin with rdma:// or tcp://");
        check("udp://filer", "there is no transport udp");
        check("nfs://filer", "write rdma or tcp");
        check("tcp://", "");
        check("tcp://filer:0", "");
    }
}
