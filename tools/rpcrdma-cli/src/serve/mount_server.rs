//! MOUNT over TCP.

use super::listen;
use super::null::NullOnly;
use anyhow::Context;
use nfs_server::{Exports, Mount3};
use oncrpc::{LocalUsers, Programs};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// MOUNT over TCP.
pub(super) struct MountServer {
    pub(super) addr: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl MountServer {
    /// Listens, or uses a socket that does, and serves those whom an export is for.
    ///
    /// # Errors
    ///
    /// If it cannot listen there.
    pub(super) async fn start(
        on: SocketAddr,
        socket: Option<std::net::TcpListener>,
        mount: Mount3,
        exports: Exports,
        local_users: Option<Arc<dyn LocalUsers>>,
    ) -> anyhow::Result<Self> {
        let listener = match socket {
            Some(socket) => adopted(socket).context("the socket named mount")?,
            None => TcpListener::bind(on)
                .await
                .map_err(|error| listen::explain(error, on, "--mount-port"))?,
        };
        let addr = listener.local_addr().context("cannot listen")?;
        let programs = Programs::new().with(mount).with(NullOnly);
        let server =
            oncrpc_tcp::Server::new(listener, Arc::new(programs), oncrpc_tcp::Limits::default())
                .admit(move |addr| exports.admits(addr))
                .local_users(local_users);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            // A dropped sender means the same: nobody needs it any more.
            let _ = stopped.await;
        }));
        Ok(Self { addr, stop, task })
    }

    /// Answers what was begun, and ends.
    pub(super) async fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

fn adopted(socket: std::net::TcpListener) -> std::io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}
