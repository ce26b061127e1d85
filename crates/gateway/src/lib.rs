//! Gateway between ONC RPC over TCP and RPC-over-RDMA.
//!
//! A [`Gateway`] listens on one side and passes every call on to one upstream server on the other.
//! Messages of every program pass unchanged, with their XIDs, but for sizes in CREATE_SESSION, which
//! may be reduced to what RDMA carries, and the step-up of a connection to RDMA, which is not made.
//! Data of NFS moves by chunks on the RDMA side (RFC 8267). Each client connection has its own
//! upstream connection, so that the server sees sessions, locks and replies as if the client had
//! connected itself.
//!
//! Mounts of NFS version 3 begin with a call of MOUNT, which many servers have at another port. A [`MountForwarder`] passes such
//! calls on: those at the NFS port as the [`MountService`] of the gateway, and those at a port of their own by a [`MountProxy`].
//!
//! # Example
//!
//! RDMA in front of an NFS server that speaks TCP:
//!
//! ```no_run
//! use gateway::{Gateway, GatewayConfig, Listen, Upstream};
//! use rpcrdma::{Iwarp, ServerConfig};
//! use std::sync::Arc;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let provider = Arc::new(Iwarp::default());
//! let listen = Listen::rdma(provider, "0.0.0.0:20049".parse()?, ServerConfig::default());
//! let upstream = Upstream::tcp("192.0.2.7:2049".parse()?);
//! let gateway = Gateway::bind(listen, upstream, GatewayConfig::default()).await?;
//! tokio::signal::ctrl_c().await?;
//! println!("passed on {} calls", gateway.shutdown().await.calls);
//! # Ok(())
//! # }
//! ```

mod backward;
mod config;
#[cfg(doc)]
pub mod design;
mod gateway;
mod listener;
mod mount;
mod mount_forwarder;
mod mount_proxy;
mod mount_server;
mod mount_service;
mod mount_turns;
mod outage;
mod phase;
mod places;
mod ports;
mod reduce;
mod relay;
mod replies;
mod reply_lease;
mod reply_memory;
mod retry;
mod session;
mod state;
mod stats;
mod tcp_replies;
mod transport_kind;
mod upstream_client;
mod xids;

pub use config::{
    CALLBACK_TIMEOUT, Connect, ConnectRdma, GatewayConfig, Listen, MAX_RECORD, MAX_REPLY,
    MAX_RETRIED_REPLY, MAX_TCP_CALLS, SourcePorts, Upstream, tcp_limits,
};
pub use gateway::{Gateway, GatewayMonitor};
pub use mount_forwarder::{CALLS_WITHOUT_PORT, MountFailures, MountForwarder};
pub use mount_proxy::MountProxy;
pub use mount_server::{MountPort, MountServer};
pub use mount_service::{MountOutcome, MountService};
pub use stats::{GatewayStats, TcpClient, UpstreamConnection};
pub use transport_kind::TransportKind;
