//! MOUNT over TCP.

use crate::addresses::at_port;
use crate::listen;
use anyhow::Context;
use nfs_proto::NullOnly;
use nfs_server::{Exports, Mount3};
use oncrpc::{LocalUsers, Programs};
use oncrpc_tcp::Limits;
use rpc_serving::admission::Admission;
use std::io::{self, ErrorKind};
use std::net::{self, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How often a port is chosen that has to be free at several addresses.
const PORTS_TRIED: usize = 16;

/// MOUNT over TCP.
pub(super) struct MountServer {
    /// Whether its sockets are those of the service manager.
    pub(super) is_adopted: bool,
    /// Addresses that it listens at: one at least.
    pub(super) addrs: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    listeners: JoinSet<()>,
}

impl MountServer {
    /// Listens at these addresses, which have the same port, or uses sockets that do, if there are some, and serves those whom
    /// an export is for. The limits are those of all addresses together.
    ///
    /// # Errors
    ///
    /// If it cannot listen at each of them.
    pub(super) async fn start(
        on: &[SocketAddr],
        held: Vec<(SocketAddr, net::TcpListener)>,
        mount: Mount3,
        exports: Exports,
        local_users: Option<Arc<dyn LocalUsers>>,
    ) -> anyhow::Result<Self> {
        let is_adopted = !held.is_empty();
        let sockets = match held.is_empty() {
            false => held
                .into_iter()
                .map(|(_, socket)| adopted(socket).context("the socket named mount"))
                .collect::<anyhow::Result<_>>()?,
            true => bound(on).await?,
        };
        let limits = Limits::default();
        let admission = Admission::new(limits.of_connections());
        let programs = Arc::new(Programs::new().with(mount).with(NullOnly));
        let (stop, stopped) = watch::channel(false);
        let (mut addrs, mut listeners) = (Vec::new(), JoinSet::new());
        for socket in sockets {
            addrs.push(socket.local_addr().context("cannot listen")?);
            let (exports, mut stopped) = (exports.clone(), stopped.clone());
            let server = oncrpc_tcp::Server::new(socket, Arc::clone(&programs) as _, limits)
                .admit(move |addr| exports.admits(addr))
                .admission(admission.clone())
                .local_users(local_users.clone());
            listeners.spawn(server.run(async move {
                // A dropped sender ends it, too.
                let _ = stopped.wait_for(|stopped| *stopped).await;
            }));
        }
        Ok(Self {
            is_adopted,
            addrs,
            stop,
            listeners,
        })
    }

    /// Answers what was begun, and ends.
    pub(super) async fn stop(mut self) {
        // They may have ended by themselves.
        let _ = self.stop.send(true);
        while self.listeners.join_next().await.is_some() {}
    }
}

/// Sockets at these addresses. Any free port is the same one at all of them, as clients are told one.
async fn bound(on: &[SocketAddr]) -> anyhow::Result<Vec<TcpListener>> {
    let mut tries = 1;
    loop {
        match bound_at(on).await {
            Ok(sockets) => return Ok(sockets),
            Err((_, error))
                if error.kind() == ErrorKind::AddrInUse
                    && tries < PORTS_TRIED
                    && on.iter().all(|addr| addr.port() == 0) =>
            {
                tries += 1;
            }
            Err((addr, error)) => return Err(listen::explain(error, addr, "--mount-port")),
        }
    }
}

async fn bound_at(on: &[SocketAddr]) -> Result<Vec<TcpListener>, (SocketAddr, io::Error)> {
    let mut sockets: Vec<TcpListener> = Vec::new();
    let mut chosen = 0;
    for &addr in on {
        let addr = match addr.port() {
            0 => at_port(addr, chosen),
            _ => addr,
        };
        let cannot = |error| (addr, error);
        let socket = TcpListener::bind(addr).await.map_err(cannot)?;
        chosen = socket.local_addr().map_err(cannot)?.port();
        sockets.push(socket);
    }
    Ok(sockets)
}

fn adopted(socket: net::TcpListener) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn any_port_is_the_same_one_at_each_address() {
        let on = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"].map(|addr| addr.parse().unwrap());
        let sockets = bound(&on).await.unwrap();
        let addrs = sockets.iter().map(|socket| socket.local_addr().unwrap());
        let addrs: Vec<SocketAddr> = addrs.collect();
        let hosts: Vec<_> = addrs.iter().map(|addr| at_port(*addr, 0)).collect();
        assert_eq!(hosts, on);
        assert!(addrs.iter().all(|addr| addr.port() == addrs[0].port()));
    }

    #[tokio::test]
    async fn port_that_is_taken_at_one_address_is_told_with_it() {
        let taken = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let on = [([127, 0, 0, 1], port).into(), ([127, 0, 0, 2], port).into()];
        let error = bound(&on).await.unwrap_err().to_string();
        let says = format!("port {port} of 127.0.0.2 is in use");
        assert!(error.starts_with(&says), "{error}");
    }
}
