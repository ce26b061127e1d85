//! Options that select the servers to ask, and titles of their answers.

use clap::Args;
use nfs_client::printable;
use rpcrdma_daemon::control::Status;
use rpcrdma_daemon::control::asking;
use std::path::{Path, PathBuf};

/// Options that select servers and gateways.
#[derive(Args, Debug)]
pub(crate) struct ControlArgs {
    /// Control socket of the server [default: that of each server and gateway on this machine]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Options that select one server.
#[derive(Args, Debug)]
pub(crate) struct OneControlArgs {
    /// Control socket of the server [default: that of the only server on this machine]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl ControlArgs {
    /// The control sockets to ask: the one that was named, or those of all servers and gateways that run on this machine.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) async fn sockets(&self) -> anyhow::Result<Vec<PathBuf>> {
        match &self.socket {
            Some(path) => Ok(vec![path.clone()]),
            None => asking::all().await,
        }
    }
}

impl OneControlArgs {
    /// The server with this control socket, or the only one on this machine.
    pub(crate) fn of(socket: Option<PathBuf>) -> Self {
        Self { socket }
    }

    /// The control socket of the server.
    ///
    /// # Errors
    ///
    /// If there is no server, or more than one.
    pub(crate) async fn socket(&self) -> anyhow::Result<PathBuf> {
        match &self.socket {
            Some(path) => Ok(path.clone()),
            None => Ok(asking::one(None).await?.0),
        }
    }

    /// Asks the server for its statistics.
    ///
    /// # Errors
    ///
    /// If there is no server, or more than one, or it does not answer.
    pub(crate) async fn stats(&self) -> anyhow::Result<Status> {
        asking::stats_of_one(self.socket.as_deref()).await
    }
}

/// Title of one of several: its kind, and the option that selects it.
pub(crate) fn heading(status: &Status, socket: &Path) -> String {
    format!("{status}\n{}", option(socket))
}

/// The option that selects the one with this control socket, in a line.
pub(crate) fn option(socket: &Path) -> String {
    let socket = socket.display().to_string();
    format!("--socket {}\n", printable(socket.as_bytes()))
}
