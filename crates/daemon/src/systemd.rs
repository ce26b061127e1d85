//! A server as a service of systemd: readiness, watchdog, sockets and state that it is given
//! (sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3), systemd.exec(5)).

use crate::errors::Usage;
use anyhow::{Context, bail};
use listenfd::ListenFd;
use rustix::fs::fstat;
use sd_notify::NotifyState;
use socket2::SockRef;
use std::collections::BTreeMap;
use std::future::pending;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use tokio::time::{MissedTickBehavior, interval};

/// Reports that the service is ready.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports the state of the service in a line.
pub(crate) fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Reports that the file is read again, which [`ready`] ends.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot tell systemd of a reload"),
    }
}

/// Reports that the service ends once its calls are answered.
pub fn stopping() {
    notify(&[
        NotifyState::Stopping,
        NotifyState::Status("letting calls finish"),
    ]);
}

/// Tells systemd, if it has started this.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

/// Tells the watchdog of systemd, for ever and as often as it wants, that every event loop runs: this one,
/// which serves MOUNT over TCP, and those that `respond` asks. A loop that hangs ends the pings.
pub(crate) async fn feed_watchdog(respond: impl AsyncFn()) {
    let Some(timeout) = sd_notify::watchdog_enabled() else {
        return pending().await;
    };
    // Half of it is what sd_watchdog_enabled(3) recommends.
    let mut due = interval(timeout / 2);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        respond().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// The directory in which systemd keeps the state of the service, if it does.
pub(crate) fn state_dir() -> Option<PathBuf> {
    // There may be several, with colons between them.
    let dirs = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&dirs).find(|dir| dir.is_absolute())
}

/// The directory in which systemd has the service keep its sockets, if it does.
pub(crate) fn runtime_dir() -> Option<PathBuf> {
    let dirs = std::env::var_os("RUNTIME_DIRECTORY")?;
    std::env::split_paths(&dirs).find(|dir| dir.is_absolute())
}

/// Name of sockets for RPC-over-RDMA, as `FileDescriptorName=` of their units has it.
pub const RDMA_SOCKET: &str = "rdma";
/// Name of sockets for NFS over TCP.
pub(crate) const TCP_SOCKET: &str = "tcp";
/// Name of sockets for MOUNT over TCP.
pub(crate) const MOUNT_SOCKET: &str = "mount";

/// Sockets that listen already, each with its address, in the order of their units.
#[derive(Default)]
pub struct Sockets {
    /// For RPC-over-RDMA on software iWARP, which is plain TCP below.
    pub rdma: Vec<(SocketAddr, TcpListener)>,
    /// For NFS over TCP.
    pub tcp: Vec<(SocketAddr, TcpListener)>,
    /// For MOUNT over TCP.
    pub mount: Vec<(SocketAddr, TcpListener)>,
}

impl Sockets {
    /// Takes those that this process was started with, by the names in `LISTEN_FDNAMES`.
    ///
    /// # Errors
    ///
    /// If there is one that is no TCP socket, has another name, or does not listen, or if two are one.
    pub fn take() -> anyhow::Result<Self> {
        let mut given = ListenFd::from_env();
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = Self::default();
        for index in 0..given.len() {
            let name = names.next().unwrap_or_default();
            let place = match name {
                RDMA_SOCKET => &mut sockets.rdma,
                TCP_SOCKET => &mut sockets.tcp,
                MOUNT_SOCKET => &mut sockets.mount,
                _ => bail!(Usage(format!(
                    "the socket {index} that was handed to this process is named '{name}': \
                     FileDescriptorName= of its unit has to be rdma, tcp or mount"
                ))),
            };
            let handed = || format!("the socket {name} that was handed to this process");
            if let Some(socket) = given.take_tcp_listener(index).with_context(handed)? {
                place.push((socket.local_addr().with_context(handed)?, socket));
            }
        }
        sockets.check()?;
        Ok(sockets)
    }

    /// Checks that each can accept connections, of its own role.
    ///
    /// # Errors
    ///
    /// If one does not listen, or two are one.
    fn check(&self) -> anyhow::Result<()> {
        let mut seen = BTreeMap::new();
        let rdma = self.rdma.iter().map(|held| (RDMA_SOCKET, held));
        let tcp = self.tcp.iter().map(|held| (TCP_SOCKET, held));
        let mount = self.mount.iter().map(|held| (MOUNT_SOCKET, held));
        for (name, (_, socket)) in rdma.chain(tcp).chain(mount) {
            if !SockRef::from(socket).is_listener()? {
                bail!(Usage(format!(
                    "the socket {name} that was handed to this process does not listen: its unit needs ListenStream= \
                     and Accept=no"
                )));
            }
            // Descriptors of one socket have one inode.
            let inode = fstat(socket)?.st_ino;
            if let Some(other) = seen.insert(inode, name) {
                bail!(Usage(format!(
                    "the sockets {other} and {name} that were handed to this process are one: each needs an address \
                     or a port of its own"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    fn refused(sockets: &Sockets) -> String {
        let error = sockets.check().unwrap_err();
        assert!(error.downcast_ref::<Usage>().is_some(), "{error}");
        error.to_string()
    }

    #[test]
    fn socket_that_does_not_listen_is_refused() {
        let bound = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let sockets = Sockets {
            rdma: Vec::new(),
            tcp: Vec::new(),
            mount: vec![(([127, 0, 0, 1], 0).into(), bound.into())],
        };
        assert!(refused(&sockets).contains("the socket mount that was handed"));
    }

    #[test]
    fn each_role_may_have_several_sockets_but_none_twice() {
        let listener = || {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            (socket.local_addr().unwrap(), socket)
        };
        let again =
            |(addr, socket): &(SocketAddr, TcpListener)| (*addr, socket.try_clone().unwrap());
        let first = listener();
        let both = Sockets {
            rdma: vec![again(&first)],
            tcp: Vec::new(),
            mount: vec![again(&first)],
        };
        assert!(refused(&both).contains("rdma and mount that were handed to this process are one"));
        let twice = Sockets {
            rdma: vec![again(&first), listener(), again(&first)],
            tcp: Vec::new(),
            mount: vec![listener()],
        };
        assert!(refused(&twice).contains("rdma and rdma that were handed to this process are one"));
        let sockets = Sockets {
            rdma: vec![first, listener()],
            tcp: vec![listener()],
            mount: vec![listener(), listener()],
        };
        sockets.check().unwrap();
    }
}
