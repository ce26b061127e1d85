//! Sockets that the service manager holds, each for the pair that listens at its address (sd_listen_fds(3)).

use super::plan::PairPlan;
use crate::failure::Usage;
use anyhow::{Context, bail};
use listenfd::ListenFd;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Sockets that listen already.
#[derive(Default)]
pub(super) struct Sockets(Vec<(SocketAddr, TcpListener)>);

impl Sockets {
    /// Takes those that this process was started with.
    ///
    /// # Errors
    ///
    /// If there is one that is no listening socket of TCP.
    pub(super) fn take() -> anyhow::Result<Self> {
        let mut given = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..given.len() {
            let named = || format!("the socket {index} that was handed to this process");
            if let Some(socket) = given.take_tcp_listener(index).with_context(named)? {
                sockets.push((socket.local_addr().with_context(named)?, socket));
            }
        }
        Ok(Self(sockets))
    }

    /// Checks that there is a pair for each of them.
    ///
    /// # Errors
    ///
    /// If nobody would accept the connections of one.
    pub(super) fn check(&self, plans: &[PairPlan]) -> anyhow::Result<()> {
        let listens = |at| {
            let mut all = plans.iter().flat_map(PairPlan::listeners);
            all.any(|addr| is_same(at, addr))
        };
        match self.0.iter().find(|(at, _)| !listens(*at)) {
            Some((at, _)) => bail!(Usage(format!(
                "the socket {at} that was handed to this process is that of no pair: ListenStream= of its unit and \
                 `listen` (or the address of `listen` with `mount_port`) have to be the same"
            ))),
            None => Ok(()),
        }
    }

    /// Whether there is one for this address.
    pub(super) fn has(&self, addr: SocketAddr) -> bool {
        self.0.iter().any(|(at, _)| is_same(*at, addr))
    }

    /// The one for this address. It listens on when that ends, so that clients wait meanwhile.
    ///
    /// # Errors
    ///
    /// If there is no descriptor for it.
    pub(super) fn at(&self, addr: SocketAddr) -> io::Result<Option<TcpListener>> {
        let socket = self.0.iter().find(|(at, _)| is_same(*at, addr));
        socket.map(|(_, socket)| socket.try_clone()).transpose()
    }
}

/// Whether a socket listens at what a pair names. A service manager that is told a port alone listens at [::], where
/// clients of IPv4 come, too.
fn is_same(socket: SocketAddr, addr: SocketAddr) -> bool {
    let (at, ip) = (socket.ip().to_canonical(), addr.ip().to_canonical());
    socket.port() == addr.port() && (at == ip || at.is_unspecified() && ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_that_of_its_address_or_of_every_address() {
        let check = |socket: &str, addr: &str, expected: bool| {
            let same = is_same(socket.parse().unwrap(), addr.parse().unwrap());
            assert_eq!(same, expected, "{socket} {addr}");
        };
        check("192.0.2.1:7", "192.0.2.1:7", true);
        check("[::]:7", "0.0.0.0:7", true);
        check("[::ffff:192.0.2.1]:7", "192.0.2.1:7", true);
        check("[::]:7", "192.0.2.1:7", false);
        check("192.0.2.1:7", "0.0.0.0:7", false);
        check("192.0.2.1:7", "192.0.2.1:8", false);
    }
}
