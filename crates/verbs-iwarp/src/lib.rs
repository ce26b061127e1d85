//! Software RNIC: iWARP over TCP sockets.
//!
//! [`Iwarp`] is a [`verbs::Provider`] that needs no hardware, no kernel module and no privilege: it
//! speaks MPA, DDP and RDMAP over a TCP connection, to itself, to Linux's siw, and to iWARP
//! hardware. The protocol is in the `iwarp-proto` crate; here are the sockets, the timers and the
//! exchange that sets a connection up.

mod config;
mod connect;
mod handshake;
mod listen;
mod queue_pair;
mod shared;
mod socket;
mod startup;
mod timers;

pub use config::{Config, CrcMode, FpduPolicy};
pub use startup::{Exchange, Startup};

use buffer::PoolStats;
use queue_pair::MAX_RECEIVES;
use shared::Shared;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use verbs::{BoxFuture, Connected, Limits, Listener, Provider, QpOptions, SetupError, WorkRequest};

/// A provider of iWARP connections over TCP. Clones share their memory.
#[derive(Clone, Debug)]
pub struct Iwarp {
    shared: Arc<Shared>,
}

impl Default for Iwarp {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Iwarp {
    /// Creates a provider with this configuration.
    pub fn new(config: Config) -> Self {
        Self {
            shared: Arc::new(Shared::new(config)),
        }
    }

    /// The configuration of the provider.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Statistics of the staging and framing memory that connections borrow.
    pub fn memory(&self) -> PoolStats {
        self.shared.pool.stats()
    }

    /// Listens on an existing socket, for instance one from a service manager. Requires a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// If the socket does not listen.
    pub fn listen_with(&self, socket: TcpListener) -> io::Result<Box<dyn Listener>> {
        socket.set_nonblocking(true)?;
        let socket = tokio::net::TcpListener::from_std(socket)?;
        listen::accept_from(Arc::clone(&self.shared), socket)
    }

    /// Connects as [`Provider::connect`] does, and also returns the frames of the setup: for
    /// diagnosis of a peer, including one that does not speak iWARP.
    pub async fn connect_observed(
        &self,
        to: SocketAddr,
        options: &QpOptions,
        private_data: &[u8],
        receives: Vec<WorkRequest>,
    ) -> (Startup, Result<Connected, SetupError>) {
        let mut startup = Startup::default();
        let connecting = connect::connect(
            &self.shared,
            to,
            options,
            private_data,
            receives,
            &mut startup,
        );
        let connected = connecting.await;
        (startup, connected)
    }
}

impl Provider for Iwarp {
    fn limits(&self) -> Limits {
        queue_pair::limits(&QpOptions {
            receives: MAX_RECEIVES,
            ..QpOptions::default()
        })
    }

    fn connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(async move {
            let connecting = self.connect_observed(to, options, private_data, receives);
            connecting.await.1
        })
    }

    fn listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(listen::listen(Arc::clone(&self.shared), on))
    }
}
