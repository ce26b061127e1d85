//! Addresses and ports to listen on.

use crate::addresses::{at_port, has_host_of};
use nfs_client::ipv6_host;
use nfs_proto::{NFS_PORT, NFS_RDMA_PORT};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};
use std::borrow::Cow;
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use verbs::SetupError;

/// The option with the addresses of a server.
pub const LISTEN_OPTION: &str = "--listen ADDR:PORT";

/// The option with the addresses of a server over TCP.
pub const TCP_OPTION: &str = "--tcp [ADDR:]PORT";

/// Message for a text that is neither a port nor an address.
const NO_TCP_ADDRESS: &str =
    "it is neither a port nor an address, as 2049, 0.0.0.0:2049 and [::]:2049 are";

/// Message for a text that is no address.
const NO_ADDRESS: &str =
    "it is not an address, as 127.0.0.1, 0.0.0.0:20049 and [::]:20049 are, or localhost";

/// An address to listen at, `ADDR` or `ADDR:PORT`; the port is 20049 if none is given. `localhost` is
/// 127.0.0.1.
///
/// # Errors
///
/// If it is neither. Other names are not accepted: they may mean several addresses, and other ones
/// tomorrow.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    parse_with(text, NFS_RDMA_PORT)
}

/// The same with another port if none is given.
///
/// # Errors
///
/// Those of [`parse`].
pub fn parse_with(text: &str, port: u16) -> Result<SocketAddr, String> {
    let numeric = numeric(text);
    let text = &*numeric;
    if text.contains('%') {
        return parse_with_zone(text, port);
    }
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    let unbracketed = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    unbracketed
        .parse::<IpAddr>()
        .map(|addr| SocketAddr::new(addr, port))
        .map_err(|_| NO_ADDRESS.into())
}

/// A place at which a server listens over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpAddress {
    /// At this port of the hosts of RPC-over-RDMA.
    Port(u16),
    /// At this address.
    At(SocketAddr),
}

impl FromStr for TcpAddress {
    type Err = String;

    /// A port, or an address; the port of an address is 2049 if none is given.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse() {
            return Ok(Self::Port(port));
        }
        match parse_with(text, NFS_PORT) {
            Ok(addr) => Ok(Self::At(addr)),
            Err(error) if error == NO_ADDRESS => Err(NO_TCP_ADDRESS.to_owned()),
            Err(error) => Err(error),
        }
    }
}

/// The addresses of a server over TCP that listens for RPC-over-RDMA there.
pub fn tcp_addresses(tcp: &[TcpAddress], listen: &[SocketAddr]) -> Vec<SocketAddr> {
    let of_one = |tcp: &TcpAddress| match *tcp {
        TcpAddress::Port(port) => mount_addresses(listen, port),
        TcpAddress::At(addr) => vec![addr],
    };
    tcp.iter().flat_map(of_one).collect()
}

/// An IPv6 address with a zone, `fe80::1%eth0` or, as in a URL, `[fe80::1%25eth0]:PORT`.
fn parse_with_zone(text: &str, port: u16) -> Result<SocketAddr, String> {
    let in_brackets = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match in_brackets {
        None => (text, Some(port)),
        Some((host, "")) => (host, Some(port)),
        Some((host, behind)) => {
            let port = behind.strip_prefix(':').map(str::parse);
            (host, port.and_then(Result::ok))
        }
    };
    let (Some(host), Some(port)) = (ipv6_host(host), port) else {
        return Err(NO_ADDRESS.into());
    };
    // It is numeric: nothing but the name of the interface is looked up.
    let found = (&*host, port).to_socket_addrs().ok();
    found.and_then(|mut found| found.next()).ok_or_else(|| {
        let zone = host.split_once('%').map_or("", |(_, zone)| zone);
        format!("this machine has no interface {zone}")
    })
}

/// Addresses at which a server can listen at most. Each takes a descriptor, and a wildcard one for each address of a device.
pub const MAX_LISTEN: usize = 64;

/// Addresses of MOUNT at a port of the same hosts: each once, and none that a socket at all addresses has.
pub fn mount_addresses(listen: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
    let mut hosts: Vec<SocketAddr> = Vec::new();
    for &addr in listen {
        if !hosts.iter().any(|&host| has_host_of(host, addr)) {
            hosts.retain(|&host| !has_host_of(addr, host));
            hosts.push(addr);
        }
    }
    hosts.into_iter().map(|host| at_port(host, port)).collect()
}

/// Addresses in words.
pub fn shown<'a, A: Display + 'a>(addrs: impl IntoIterator<Item = &'a A>) -> String {
    let addrs: Vec<String> = addrs.into_iter().map(ToString::to_string).collect();
    addrs.join(", ")
}

/// The same with 127.0.0.1 for the host `localhost` (RFC 6761 §6.3).
pub fn numeric(text: &str) -> Cow<'_, str> {
    let (host, port) = match text.split_once(':') {
        Some((host, _)) => text.split_at(host.len()),
        None => (text, ""),
    };
    match host.eq_ignore_ascii_case("localhost") {
        true => format!("{}{port}", Ipv4Addr::LOCALHOST).into(),
        false => text.into(),
    }
}

/// Whether an address could be listened at.
///
/// # Errors
///
/// The error that a listener there would have.
pub fn try_out(addr: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    // As listeners have it: what is left of earlier connections does not matter.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())
}

/// Error of a listener, with advice; `option` names what sets its address.
pub fn explain(error: io::Error, addr: SocketAddr, option: &str) -> anyhow::Error {
    let what = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {} of {} is in use: stop the server that has it (`ss -ltnp` shows it), or \
             choose another port with {option}",
            addr.port(),
            addr.ip()
        ),
        io::ErrorKind::AddrNotAvailable => format!(
            "{} is not an address of this machine: choose another with {option}",
            addr.ip()
        ),
        io::ErrorKind::PermissionDenied => format!(
            "this user may not listen at port {}: choose one from 1024 on with {option}",
            addr.port()
        ),
        _ if is_out_of_descriptors(&error) => format!(
            "cannot listen at {addr}: too many open files: raise the limit, with LimitNOFILE= of the service or `ulimit -n`"
        ),
        _ => return anyhow::Error::new(error).context(format!("cannot listen at {addr}")),
    };
    // The words of the system would say the same once more.
    anyhow::Error::msg(what)
}

/// The same for a server over its first provider.
pub fn cannot(error: SetupError, listen: SocketAddr) -> anyhow::Error {
    match error {
        SetupError::Io(error) => explain(error, listen, LISTEN_OPTION),
        other => anyhow::Error::new(other).context(format!("cannot listen at {listen}")),
    }
}

/// Whether this process has as many open files as it may have.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_is_that_of_an_interface() {
        for text in [
            "fe80::1%lo",
            "[fe80::1%lo]",
            "[fe80::1%25lo]:20049",
            "[fe80::1%1]:20049",
        ] {
            let Ok(SocketAddr::V6(addr)) = parse(text) else {
                panic!("{text}");
            };
            assert_eq!((addr.scope_id(), addr.port()), (1, 20049), "{text}");
            // As it is shown.
            assert_eq!(parse(&addr.to_string()), Ok(addr.into()));
        }
        let error = parse("[fe80::1%no-such-one]:7").unwrap_err();
        assert_eq!(error, "this machine has no interface no-such-one");
    }

    #[test]
    fn mount_is_once_at_each_host() {
        let check = |listen: &[&str], expected: &[&str]| {
            let listen: Vec<_> = listen.iter().map(|addr| parse(addr).unwrap()).collect();
            let mount = mount_addresses(&listen, 635).into_iter();
            let mount: Vec<String> = mount.map(|addr| addr.to_string()).collect();
            assert_eq!(mount, expected, "{listen:?}");
        };
        let (one, other) = ("192.0.2.1", "198.51.100.1:7");
        check(&[one], &["192.0.2.1:635"]);
        check(&[one, "192.0.2.1:7"], &["192.0.2.1:635"]);
        check(&[one, other], &["192.0.2.1:635", "198.51.100.1:635"]);
        check(&[one, "0.0.0.0:7", other], &["0.0.0.0:635"]);
        check(&["0.0.0.0", "::1"], &["0.0.0.0:635", "[::1]:635"]);
        check(&["::1", "::"], &["[::]:635"]);
    }

    #[test]
    fn port_of_tcp_is_at_the_hosts_of_rdma_and_an_address_where_it_is() {
        let listen = ["192.0.2.1:1", "192.0.2.1:2", "::1"].map(|addr| parse(addr).unwrap());
        let check = |tcp: &[&str], expected: &[&str]| {
            let tcp: Vec<TcpAddress> = tcp.iter().map(|text| text.parse().unwrap()).collect();
            let addrs = tcp_addresses(&tcp, &listen).into_iter();
            let addrs: Vec<String> = addrs.map(|addr| addr.to_string()).collect();
            assert_eq!(addrs, expected, "{tcp:?}");
        };
        check(&[], &[]);
        check(&["2049"], &["192.0.2.1:2049", "[::1]:2049"]);
        check(&["localhost", "[::]:7"], &["127.0.0.1:2049", "[::]:7"]);
        for bad in ["", "65536", "example.org:2049", ":2049"] {
            assert_eq!(
                bad.parse::<TcpAddress>().unwrap_err(),
                NO_TCP_ADDRESS,
                "{bad}"
            );
        }
    }

    #[test]
    fn port_may_be_left_out() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse(text).unwrap().to_string(), expected, "{text}");
        };
        check("127.0.0.1", "127.0.0.1:20049");
        check("127.0.0.1:0", "127.0.0.1:0");
        check("0.0.0.0:7", "0.0.0.0:7");
        check("::1", "[::1]:20049");
        check("[::]", "[::]:20049");
        check("[::1]:7", "[::1]:7");
        check("localhost", "127.0.0.1:20049");
        check("LocalHost:7", "127.0.0.1:7");
        for bad in [
            "",
            "fe80::1%no-such-one",
            "[fe80::1%]",
            "127.0.0.1%lo",
            "localhost:",
            "example.org",
            "127.0.0.1:",
            "127.0.0.1:65536",
            ":20049",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
