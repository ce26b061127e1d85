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
mod socket;
mod startup;
mod timers;

pub use config::{Config, CrcMode, FpduPolicy};
pub use startup::{Exchange, Startup};

use buffer::{Pool, PoolStats};
use iwarp_proto::mpa::{Frame, MAX_DEPTH, Offer};
use iwarp_proto::{MAX_MESSAGE, MAX_REGION, MAX_REGIONS, MAX_SENDS};
use std::net::SocketAddr;
use std::sync::Arc;
use verbs::{
    BoxFuture, Connected, Invalidation, Limits, Listener, PrivateDataCapacity, Provider, QpOptions,
    SetupError, WorkRequest,
};

/// Receives that can be posted at a time on one connection, whatever its options ask for.
const MAX_RECEIVES: usize = 1 << 16;

/// Bytes of staging and framing memory that a provider keeps for reuse, at most. Connections borrow
/// it while there is something to receive or to send.
const POOL_KEEP: usize = 16 << 20;

/// A provider of iWARP connections over TCP. Clones share their memory.
#[derive(Clone, Debug)]
pub struct Iwarp {
    shared: Arc<Shared>,
}

/// What all connections of a provider have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Lends staging and framing memory.
    pub(crate) pool: Pool,
}

impl Default for Iwarp {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Iwarp {
    /// A provider whose connections behave like this.
    pub fn new(config: Config) -> Self {
        let pool = Pool::new(POOL_KEEP);
        Self {
            shared: Arc::new(Shared { config, pool }),
        }
    }

    /// How its connections behave.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Staging and framing memory that connections have borrowed, and that is kept for them.
    pub fn memory(&self) -> PoolStats {
        self.shared.pool.stats()
    }

    /// Connects as [`Provider::connect`] does, and tells what was said on the way: for a look at the
    /// peer, also at one that does not speak iWARP.
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
        limits(&QpOptions {
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

/// What a connection can do at most, before anything is negotiated.
fn limits(options: &QpOptions) -> Limits {
    let capacity = Frame::capacity(true);
    Limits {
        private_data: PrivateDataCapacity {
            request: capacity,
            accept: capacity,
            reject: capacity,
        },
        private_data_exact: true,
        receives: options.receives.min(MAX_RECEIVES),
        shared_receives: true,
        holds_peer_back: true,
        sends: MAX_SENDS,
        outstanding_reads: MAX_DEPTH.into(),
        inbound_reads: MAX_DEPTH.into(),
        max_message: MAX_MESSAGE,
        regions: MAX_REGIONS,
        max_region: MAX_REGION,
        remote_invalidation: Invalidation::Region,
        keepalive: true,
    }
}

/// What to offer to a peer.
fn offer(config: &Config, options: &QpOptions) -> Offer {
    let depth = |wanted: usize| u16::try_from(wanted).unwrap_or(MAX_DEPTH).min(MAX_DEPTH);
    Offer {
        crc: config.crc != CrcMode::Off,
        ird: depth(options.inbound_reads),
        ord: depth(options.outstanding_reads),
        peer_to_peer: false,
    }
}
