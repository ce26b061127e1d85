//! Software RNIC: iWARP over TCP sockets.
//!
//! [`Iwarp`] is a [`verbs::Provider`] that needs no hardware, no kernel module and no privilege: it
//! speaks MPA, DDP and RDMAP over a TCP connection, to itself, to Linux's siw, and to iWARP
//! hardware. The protocol is in the `iwarp-proto` crate; here are the sockets, the timers and the
//! exchange that sets a connection up.
//!
//! # Example
//!
//! A message over loopback:
//!
//! ```
//! use std::future::poll_fn;
//! use std::time::Duration;
//! use verbs::{Buffer, Completion, Gather, Provider, QpOptions, QueuePair, WorkRequest, WrId};
//! use verbs_iwarp::Iwarp;
//!
//! /// Drives a queue pair until its next completion.
//! async fn completion(qp: &mut dyn QueuePair) -> Completion {
//!     loop {
//!         qp.progress();
//!         if let Some(completion) = qp.poll_cq() {
//!             return completion;
//!         }
//!         poll_fn(|cx| qp.poll_ready(cx)).await;
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let iwarp = Iwarp::default();
//! let options = QpOptions::default();
//! let mut listener = iwarp.listen("127.0.0.1:0".parse()?).await?;
//! let address = listener.local_addr();
//!
//! let server = async {
//!     let mut incoming = listener.accept().await?;
//!     let private_data = incoming.request(Duration::from_secs(10)).await?;
//!     assert_eq!(private_data, b"who I am");
//!     let receive = WorkRequest::Receive { wr: WrId(1), buffer: Buffer::with_capacity(64) };
//!     incoming.accept(&options, b"", vec![receive]).await
//! };
//! let client = iwarp.connect(address, &options, b"who I am", Vec::new());
//! let (server, client) = tokio::join!(server, client);
//! let (mut server, mut client) = (server?, client?.qp);
//!
//! let mut buffer = Buffer::with_capacity(64);
//! buffer.extend_from_slice(b"hello");
//! client.post(WorkRequest::Send { wr: WrId(2), buffer, rest: Gather::new(), invalidate: None })?;
//! let sent = completion(&mut *client).await;
//! assert!(matches!(sent, Completion::Send { wr: WrId(2) }));
//! let Completion::Receive { buffer, .. } = completion(&mut *server).await else {
//!     panic!("the message arrives");
//! };
//! assert_eq!(&buffer[..], b"hello");
//! # Ok(()) })
//! # }
//! ```

mod config;
mod connect;
#[cfg(doc)]
pub mod design;
mod handshake;
mod listen;
mod queue_pair;
mod setup_failure;
mod shared;
mod socket;
mod startup;
mod timers;

pub use config::{Config, CrcMode, FpduPolicy};
pub use setup_failure::SetupFailure;
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
        let options = QpOptions::default().with_receives(MAX_RECEIVES);
        queue_pair::limits(&self.shared.config, &options)
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
