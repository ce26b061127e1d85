//! Where a server is: a host and a port.

use nfs_proto::NFS_RDMA_PORT;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A host, by name or address, and a port; [`NFS_RDMA_PORT`] if none is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// A name or an address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Why a text names no server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("there is no host")]
    NoHost,
    #[error("`{0}` is not a port: a number from 1 to 65535 is")]
    Port(String),
    #[error(
        "`{0}` is not a host: a name or an address is, an IPv6 address with a port in brackets"
    )]
    Host(String),
}

impl Endpoint {
    /// The addresses of the host.
    ///
    /// # Errors
    ///
    /// If the name cannot be resolved.
    pub(crate) async fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
        Ok(found.collect())
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (host, port) = split(text)?;
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_address = host.parse::<Ipv6Addr>().is_ok();
        match host {
            "" => return Err(EndpointError::NoHost),
            host if is_address || host.chars().all(sound) => {}
            host => return Err(EndpointError::Host(host.to_owned())),
        }
        let port = match port {
            None => NFS_RDMA_PORT,
            Some(port) => match port.parse() {
                Ok(number) if number != 0 => number,
                Ok(_) | Err(_) => return Err(EndpointError::Port(port.to_owned())),
            },
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

/// Host and port as written. An IPv6 address may stand alone, or in brackets before a port.
fn split(text: &str) -> Result<(&str, Option<&str>), EndpointError> {
    if let Some(rest) = text.strip_prefix('[') {
        let bad = || EndpointError::Host(text.to_owned());
        let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
        host.parse::<Ipv6Addr>().map_err(|_| bad())?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(bad()),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, None));
    }
    Ok(match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_told_apart() {
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
    }

    #[test]
    fn what_is_no_endpoint_says_why() {
        let check = |text: &str, error: EndpointError| {
            assert_eq!(text.parse::<Endpoint>(), Err(error), "{text}");
        };
        check("", EndpointError::NoHost);
        check(":7", EndpointError::NoHost);
        check("host:", EndpointError::Port(String::new()));
        check("host:0", EndpointError::Port("0".to_owned()));
        check("host:65536", EndpointError::Port("65536".to_owned()));
        check("host:nfs", EndpointError::Port("nfs".to_owned()));
        check("[host]:7", EndpointError::Host("[host]:7".to_owned()));
        check("[::1]7", EndpointError::Host("[::1]7".to_owned()));
        check("a b", EndpointError::Host("a b".to_owned()));
        check("user@host", EndpointError::Host("user@host".to_owned()));
    }
}
