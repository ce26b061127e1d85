//! Sockets that the service manager holds, each for the pair that listens at its address (sd_listen_fds(3)).

use super::plan::PairPlan;
use crate::errors::Usage;
use anyhow::{Context, bail, ensure};
use listenfd::ListenFd;
use nfs_client::printable;
use socket2::SockRef;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// The name of a socket that the service manager gives none, as sd_listen_fds_with_names(3) has it.
const UNNAMED: &str = "unknown";

/// Sockets that listen already.
#[derive(Default)]
pub struct Sockets(Vec<HeldSocket>);

struct HeldSocket {
    at: SocketAddr,
    /// `FileDescriptorName=` of its unit.
    name: String,
    /// Whether clients of IPv4 do not come to it (IPV6_V6ONLY).
    only_v6: bool,
    socket: TcpListener,
}

impl HeldSocket {
    fn new(socket: TcpListener, name: &str) -> anyhow::Result<Self> {
        let at = socket.local_addr()?;
        let options = SockRef::from(&socket);
        ensure!(options.is_listener()?, "{at}: it does not listen");
        Ok(Self {
            at,
            name: name.to_owned(),
            only_v6: at.is_ipv6() && options.only_v6()?,
            socket,
        })
    }

    /// Its address and name, in words.
    fn describe(&self) -> String {
        let name = printable(self.name.as_bytes());
        format!("{} ({name}) that was handed to this process", self.at)
    }

    /// Whether it listens at what a pair names.
    fn is_at(&self, addr: SocketAddr) -> bool {
        listens_at(self.at, self.only_v6, addr)
    }
}

impl Sockets {
    /// Takes those that this process was started with.
    ///
    /// # Errors
    ///
    /// If there is one that is no listening socket of TCP.
    pub fn take() -> anyhow::Result<Self> {
        let mut given = ListenFd::from_env();
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = Vec::new();
        for index in 0..given.len() {
            let name = names.next().filter(|name| !name.is_empty());
            let name = name.unwrap_or(UNNAMED);
            let described = || {
                let name = printable(name.as_bytes());
                format!("the socket {index} ({name}) that was handed to this process")
            };
            if let Some(socket) = given.take_tcp_listener(index).with_context(described)? {
                sockets.push(HeldSocket::new(socket, name).with_context(described)?);
            }
        }
        Ok(Self(sockets))
    }

    /// Checks that there is a pair for each of them, and no other one for the same.
    ///
    /// # Errors
    ///
    /// If nobody would accept the connections of one.
    pub fn check(&self, plans: &[PairPlan]) -> anyhow::Result<()> {
        let listeners = || plans.iter().flat_map(PairPlan::listeners);
        for held in &self.0 {
            if !listeners().any(|addr| held.is_at(addr)) {
                let held = held.describe();
                bail!(Usage(format!(
                    "the socket {held} is that of no pair: ListenStream= of its unit and \
                     `listen` (or the address of `listen` with `mount_port`) have to be the same"
                )));
            }
        }
        for addr in listeners() {
            let mut of_pair = self.0.iter().filter(|held| held.is_at(addr));
            if let (Some(_), Some(held)) = (of_pair.next(), of_pair.next()) {
                let held = held.describe();
                bail!(Usage(format!(
                    "the socket {held} is the second one for {addr}: a pair uses one"
                )));
            }
        }
        Ok(())
    }

    fn find(&self, addr: SocketAddr) -> Option<&HeldSocket> {
        self.0.iter().find(|held| held.is_at(addr))
    }

    /// Whether there is one for this address.
    pub fn has(&self, addr: SocketAddr) -> bool {
        self.find(addr).is_some()
    }

    /// The listener of a pair that names this address: that of the socket for it, if there is one.
    pub fn listening_at(&self, addr: SocketAddr) -> SocketAddr {
        self.find(addr).map_or(addr, |held| held.at)
    }

    /// The one for this address. It listens on when that ends, so that clients wait meanwhile.
    ///
    /// # Errors
    ///
    /// If there is no descriptor for it.
    pub fn at(&self, addr: SocketAddr) -> io::Result<Option<TcpListener>> {
        let held = self.find(addr);
        held.map(|held| held.socket.try_clone()).transpose()
    }

    /// The name of the one for this address, if there is one.
    pub fn name(&self, addr: SocketAddr) -> Option<&str> {
        self.find(addr).map(|held| &*held.name)
    }

    /// Their addresses.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().map(|held| held.at)
    }
}

/// Whether a socket listens at what a pair names. A service manager that is told a port alone listens at [::], where
/// clients of IPv4 come, too, unless the socket is for IPv6 only.
fn listens_at(socket: SocketAddr, only_v6: bool, addr: SocketAddr) -> bool {
    let (at, ip) = (socket.ip().to_canonical(), addr.ip().to_canonical());
    let every_v4 = || at.is_ipv6() && at.is_unspecified() && !only_v6;
    let is_same = at == ip || (ip.is_ipv4() && ip.is_unspecified() && every_v4());
    socket.port() == addr.port() && is_same
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::circles::tests::plan;
    use socket2::{Domain, Socket, Type};

    #[test]
    fn socket_is_that_of_its_address_or_of_every_address() {
        let check = |socket: &str, only_v6: bool, addr: &str, expected: bool| {
            let same = listens_at(socket.parse().unwrap(), only_v6, addr.parse().unwrap());
            assert_eq!(same, expected, "{socket} {addr}");
        };
        check("192.0.2.1:7", false, "192.0.2.1:7", true);
        check("[::]:7", false, "0.0.0.0:7", true);
        check("[::]:7", true, "0.0.0.0:7", false);
        check("[::]:7", true, "[::]:7", true);
        check("0.0.0.0:7", false, "[::]:7", false);
        check("[::ffff:192.0.2.1]:7", false, "192.0.2.1:7", true);
        check("[::]:7", false, "192.0.2.1:7", false);
        check("192.0.2.1:7", false, "0.0.0.0:7", false);
        check("192.0.2.1:7", false, "192.0.2.1:8", false);
    }

    fn bound(addr: &str) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        let addr: SocketAddr = addr.parse().unwrap();
        socket.bind(&addr.into()).unwrap();
        socket
    }

    #[test]
    fn socket_that_does_not_listen_is_refused() {
        let error = HeldSocket::new(bound("127.0.0.1:0").into(), "nfs").err();
        let error = error.expect("it only has an address").to_string();
        assert!(error.ends_with("it does not listen"), "{error}");
    }

    #[test]
    fn second_socket_of_a_pair_is_refused() {
        let held = |addr: &str| {
            let socket = bound(addr);
            socket.listen(1).unwrap();
            HeldSocket::new(socket.into(), "nfs").unwrap()
        };
        let first = held("127.0.0.1:0");
        let at = first.at.to_string();
        let (pair, _) = plan(&format!("tcp://{at}"), "rdma://192.0.2.1:20049");
        let mut sockets = Sockets(vec![first]);
        sockets.check(std::slice::from_ref(&pair)).unwrap();
        sockets.0.push(held(&at));
        let error = sockets.check(&[pair]).unwrap_err().to_string();
        assert!(error.contains("the second one for 127.0.0.1"), "{error}");
    }
}
