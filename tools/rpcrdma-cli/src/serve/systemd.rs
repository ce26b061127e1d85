//! A server as a service of systemd: readiness, watchdog, sockets and state that it is given
//! (sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3), systemd.exec(5)).

use crate::failure::Usage;
use anyhow::{Context, bail};
use listenfd::ListenFd;
use rustix::fs::fstat;
use sd_notify::NotifyState;
use socket2::SockRef;
use std::future::pending;
use std::net::TcpListener;
use std::path::PathBuf;
use tokio::time::{MissedTickBehavior, interval};

/// Says that the server serves.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says how the server is.
pub(crate) fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Says that the file is read again, which [`ready`] ends.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot tell systemd of a reload"),
    }
}

/// Says that the server lets calls finish.
pub(crate) fn stopping() {
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

/// Where systemd keeps the state of the service, if it does.
pub(super) fn state_dir() -> Option<PathBuf> {
    // There may be several, with colons between them.
    let dirs = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&dirs).find(|dir| dir.is_absolute())
}

/// Where systemd has the service keep its sockets, if it does.
pub(crate) fn runtime_dir() -> Option<PathBuf> {
    let dirs = std::env::var_os("RUNTIME_DIRECTORY")?;
    std::env::split_paths(&dirs).find(|dir| dir.is_absolute())
}

/// The names of sockets, as `FileDescriptorName=` of their units has them.
pub(super) const RDMA_SOCKET: &str = "rdma";
pub(super) const MOUNT_SOCKET: &str = "mount";

/// Sockets that listen already.
#[derive(Default)]
pub(super) struct Sockets {
    /// For RPC-over-RDMA on software iWARP, which is plain TCP below.
    pub(super) rdma: Option<TcpListener>,
    /// For MOUNT over TCP.
    pub(super) mount: Option<TcpListener>,
}

impl Sockets {
    /// Takes those that this process was started with, by the names in `LISTEN_FDNAMES`.
    ///
    /// # Errors
    ///
    /// If there is one that is no TCP socket, has another name, or is the second of its name.
    pub(super) fn take() -> anyhow::Result<Self> {
        let mut given = ListenFd::from_env();
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = Self::default();
        for index in 0..given.len() {
            let name = names.next().unwrap_or_default();
            let place = match name {
                RDMA_SOCKET => &mut sockets.rdma,
                MOUNT_SOCKET => &mut sockets.mount,
                _ => bail!(Usage(format!(
                    "the socket {index} that was handed to this process is named '{name}': \
                     FileDescriptorName= of its unit has to be rdma or mount"
                ))),
            };
            let socket = given
                .take_tcp_listener(index)
                .with_context(|| format!("the socket {name} that was handed to this process"))?;
            if place.is_some() {
                bail!(Usage(format!(
                    "two sockets named {name} were handed to this process: it can use one"
                )));
            }
            *place = socket;
        }
        sockets.check()?;
        Ok(sockets)
    }

    /// Checks that each can accept connections, of its own role.
    ///
    /// # Errors
    ///
    /// If one does not listen, or both are one.
    fn check(&self) -> anyhow::Result<()> {
        let mut seen = None;
        for (name, socket) in [(RDMA_SOCKET, &self.rdma), (MOUNT_SOCKET, &self.mount)] {
            let Some(socket) = socket else {
                continue;
            };
            if !SockRef::from(socket).is_listener()? {
                bail!(Usage(format!(
                    "the socket {name} that was handed to this process does not listen: its unit needs ListenStream= \
                     and Accept=no"
                )));
            }
            // Descriptors of one socket have one inode.
            let inode = fstat(socket)?.st_ino;
            if seen.replace(inode) == Some(inode) {
                bail!(Usage(format!(
                    "the sockets {RDMA_SOCKET} and {MOUNT_SOCKET} that were handed to this process are one: each \
                     needs a port of its own"
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
            rdma: None,
            mount: Some(bound.into()),
        };
        assert!(refused(&sockets).contains("the socket mount that was handed"));
    }

    #[test]
    fn one_socket_for_both_roles_is_refused() {
        let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
        let first = listener();
        let sockets = Sockets {
            rdma: Some(first.try_clone().unwrap()),
            mount: Some(first),
        };
        assert!(refused(&sockets).contains("are one"));
        let sockets = Sockets {
            rdma: Some(listener()),
            mount: Some(listener()),
        };
        sockets.check().unwrap();
    }
}
