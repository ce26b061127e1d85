//! A connection to a server, over TCP or RDMA.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use oncrpc::xdr::Payload;
use oncrpc::{ReplyBound, Transport, TransportError};
use rpcrdma::ClientConfig;
use verbs_iwarp::{Config, CrcMode, Iwarp};

/// How long one call over TCP may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// CRCs of frames, unless the server asks for them.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Crc {
    On,
    Off,
}

/// A connection to a server.
pub(crate) enum Connection {
    Tcp(oncrpc_tcp::Client),
    Rdma(rpcrdma::Client),
}

impl Connection {
    /// Connects over software iWARP, with CRCs or without, or over TCP.
    ///
    /// # Errors
    ///
    /// Nobody answers at that address.
    pub(crate) async fn open(addr: SocketAddr, rdma: Option<Crc>) -> Result<Self> {
        let at = || format!("cannot connect to {addr}");
        let Some(crc) = rdma else {
            let client = oncrpc_tcp::Client::connect(addr, TIMEOUT).await;
            return client.map(Self::Tcp).with_context(at);
        };
        let provider = Iwarp::new(Config::default().with_crc(match crc {
            Crc::On => CrcMode::On,
            Crc::Off => CrcMode::Off,
        }));
        let config = ClientConfig::default();
        let client = rpcrdma::Client::connect(Arc::new(provider), addr, config).await;
        client.map(Self::Rdma).with_context(at)
    }
}

impl Transport for Connection {
    fn next_xid(&self) -> u32 {
        match self {
            Self::Tcp(client) => client.next_xid(),
            Self::Rdma(client) => client.next_xid(),
        }
    }

    async fn call(&self, call: Payload, bound: ReplyBound) -> Result<Payload, TransportError> {
        match self {
            Self::Tcp(client) => client.call(call, bound).await,
            Self::Rdma(client) => client.call(call, bound).await,
        }
    }
}
