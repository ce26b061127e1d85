//! Commands with which Linux clients mount exports.

use super::exports::Export;
use crate::addresses::has_host_of;
use nfs_client::printable;
use nfs_proto::{MOUNT_PORT, NFS_PORT};
use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};

/// The command that mounts over RDMA from this address, with the newest version of NFS that both sides have.
pub fn over_rdma(export: &Export, at: SocketAddr) -> String {
    let (rdma, port) = (of_family("rdma", at), at.port());
    format!(
        "mount -t nfs -o proto={rdma},port={port} {} /mnt",
        place(export, at)
    )
}

/// The same over TCP.
pub fn over_tcp(export: &Export, at: SocketAddr) -> String {
    format!(
        "mount -t nfs -o port={} {} /mnt",
        at.port(),
        place(export, at)
    )
}

/// The command that mounts version 3 from this address, over RDMA or TCP as `over` says, with MOUNT at this port.
pub fn version_three(over: &str, export: &Export, at: SocketAddr, mount_port: u16) -> String {
    let (over, tcp, port) = (of_family(over, at), of_family("tcp", at), at.port());
    format!(
        "mount -t nfs -o vers=3,nolock,proto={over},port={port},mountproto={tcp},mountport={mount_port} {} /mnt",
        place(export, at)
    )
}

/// The commands for a client that reaches the server at this address over RDMA alone, and has no device: a gateway there, and
/// the mount of it. `mount_port` is that of the server's MOUNT.
pub fn by_gateway(export: &Export, at: SocketAddr, mount_port: u16) -> [String; 2] {
    // A client that can only be on this machine finds our own MOUNT at its usual port.
    let ours = at.ip().to_canonical().is_loopback() && mount_port == MOUNT_PORT;
    let port = if ours { MOUNT_PORT + 2 } else { MOUNT_PORT };
    let elsewhere = match mount_port {
        MOUNT_PORT => String::new(),
        other => format!(" --upstream-mount {other}"),
    };
    [
        format!(
            "rpcrdma gateway --listen tcp://127.0.0.1 --upstream rdma://{}:{} --mount-port {port}{elsewhere}",
            bracketed_host(at),
            at.port()
        ),
        over_tcp(export, (Ipv4Addr::LOCALHOST, NFS_PORT).into()),
    ]
}

/// The port of MOUNT for clients of this address, if there is MOUNT: sockets of a service manager may have several.
pub fn mount_port(mounts: &[SocketAddr], at: SocketAddr) -> Option<u16> {
    let of_host = mounts.iter().find(|mount| has_host_of(**mount, at));
    of_host.or(mounts.first()).map(SocketAddr::port)
}

/// An address as clients are to write it, without a port or brackets.
pub fn host(at: SocketAddr) -> String {
    match at.ip() {
        ip if ip.is_unspecified() => "THIS-HOST".to_owned(),
        ip => ip.to_string(),
    }
}

/// The export of this host, as a shell reads it.
fn place(export: &Export, at: SocketAddr) -> String {
    quoted(&format!("{}:{}", bracketed_host(at), export.name)).into_owned()
}

/// The host with brackets around an IPv6 address, before a colon.
fn bracketed_host(at: SocketAddr) -> String {
    match host(at) {
        host if host.contains(':') => format!("[{host}]"),
        host => host,
    }
}

/// The netid for a kind of address (RFC 5665 §5.1).
fn of_family(netid: &str, at: SocketAddr) -> String {
    let six = if at.is_ipv6() { "6" } else { "" };
    format!("{netid}{six}")
}

/// A word as a shell reads it: in quotes, if it has characters that mean something to the shell.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "/.:_-+,=@%".contains(c);
    match word.chars().all(plain) {
        true => word.into(),
        // bash, ksh and zsh know `$'...'`, where control characters can be written.
        false if word.contains(char::is_control) => {
            let word = word.replace('\\', r"\\").replace('\'', r"\'");
            format!("$'{}'", printable(word.as_bytes())).into()
        }
        false => format!("'{}'", word.replace('\'', r"'\''")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export() -> Export {
        Export {
            name: "/data".to_owned(),
            path: "/srv/data".into(),
            dir: "/srv/data".into(),
        }
    }

    #[test]
    fn mount_command_names_ports_and_transport() {
        let (four, six) = ("192.0.2.1:4711", "[2001:db8::1]:20049");
        let check = |command: String, expected: &str| assert_eq!(command, expected);
        let at = |addr: &str| addr.parse().unwrap();
        check(
            over_rdma(&export(), at(four)),
            "mount -t nfs -o proto=rdma,port=4711 192.0.2.1:/data /mnt",
        );
        check(
            over_rdma(&export(), at(six)),
            "mount -t nfs -o proto=rdma6,port=20049 '[2001:db8::1]:/data' /mnt",
        );
        check(
            over_tcp(&export(), at("0.0.0.0:2049")),
            "mount -t nfs -o port=2049 THIS-HOST:/data /mnt",
        );
        check(
            version_three("rdma", &export(), at(four), 815),
            "mount -t nfs -o vers=3,nolock,proto=rdma,port=4711,mountproto=tcp,mountport=815 192.0.2.1:/data /mnt",
        );
        check(
            version_three("tcp", &export(), at(six), 815),
            "mount -t nfs -o vers=3,nolock,proto=tcp6,port=20049,mountproto=tcp6,mountport=815 \
             '[2001:db8::1]:/data' /mnt",
        );
    }

    #[test]
    fn gateway_has_ports_that_are_free_on_the_client() {
        let check = |at: &str, mount_port, expected: &str| {
            let [gateway, mount] = by_gateway(&export(), at.parse().unwrap(), mount_port);
            assert_eq!(gateway, expected);
            let expected = "mount -t nfs -o port=2049 127.0.0.1:/data /mnt";
            assert_eq!(mount, expected);
        };
        check(
            "192.0.2.1:20049",
            20048,
            "rpcrdma gateway --listen tcp://127.0.0.1 --upstream rdma://192.0.2.1:20049 --mount-port 20048",
        );
        check(
            "[::1]:4711",
            20048,
            "rpcrdma gateway --listen tcp://127.0.0.1 --upstream rdma://[::1]:4711 --mount-port 20050",
        );
        check(
            "127.0.0.1:4711",
            815,
            "rpcrdma gateway --listen tcp://127.0.0.1 --upstream rdma://127.0.0.1:4711 --mount-port 20048 \
             --upstream-mount 815",
        );
    }

    #[test]
    fn words_that_mean_something_to_a_shell_are_quoted() {
        assert_eq!(quoted("/a-b_c%20"), "/a-b_c%20");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert!(quoted("a\nb").starts_with("$'a"));
    }
}
