//! The place of MOUNT of the server of a pair, as it is configured.

use super::urls::UpstreamUrl;
use nfs_client::Endpoint;
use nfs_proto::MOUNT_PORT;
use std::fmt;
use std::str::FromStr;

/// The place of MOUNT of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MountPlace {
    /// At the port that rpcbind of the server's host says, or the usual one if there is no rpcbind.
    #[default]
    ByRpcbind,
    /// At this port of the server's host.
    Port(u16),
    /// Elsewhere.
    At(Endpoint),
}

impl FromStr for MountPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse::<u16>() {
            return match port {
                0 => Err("port 0 is none".to_owned()),
                port => Ok(Self::Port(port)),
            };
        }
        let has_port = text.rsplit_once(']').map_or(text, |(_, behind)| behind);
        if !has_port.contains(':') {
            return Err("it is a port, or a host and a port, as filer:20048".to_owned());
        }
        text.parse()
            .map(Self::At)
            .map_err(|error| format!("{error}"))
    }
}

impl fmt::Display for MountPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByRpcbind => f.write_str("the port that rpcbind says"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::At(endpoint) => endpoint.fmt(f),
        }
    }
}

impl MountPlace {
    /// The place in words.
    pub fn describe(&self, upstream: &UpstreamUrl) -> String {
        let host = &upstream.server.host;
        match self {
            Self::ByRpcbind => {
                format!("the port of MOUNT that rpcbind of {host} says, else {MOUNT_PORT}")
            }
            Self::Port(port) => format!("port {port} of {host} (upstream_mount)"),
            Self::At(endpoint) => format!("{endpoint} (upstream_mount)"),
        }
    }

    /// The place for programs: `rpcbind`, or a host and a port.
    pub fn name(&self, upstream: &UpstreamUrl) -> String {
        match self {
            Self::ByRpcbind => "rpcbind".to_owned(),
            Self::Port(port) => at(&upstream.server.host, *port).to_string(),
            Self::At(endpoint) => endpoint.to_string(),
        }
    }
}

/// A port of a host.
pub fn at(host: &str, port: u16) -> Endpoint {
    Endpoint {
        host: host.to_owned(),
        port,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_mount_is_a_port_with_or_without_a_host() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<MountPlace>().unwrap().to_string(), expected);
        };
        check("635", "port 635");
        check("filer:635", "filer:635");
        check("[::1]:635", "[::1]:635");
        for bad in ["", "0", "filer", "70000", "[::1]"] {
            assert!(bad.parse::<MountPlace>().is_err(), "{bad}");
        }
    }
}
