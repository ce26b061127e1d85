//! Connections over whatever reaches a server, and servers that listen over whatever is there.
//!
//! [`connect`] tries RDMA devices for InfiniBand and RoCE first, where this machine has any, and then software iWARP.
//! [`listen`] listens over software iWARP and, at the same port, over the devices that have an address. [`Options`] select one of
//! these, or a single device. [`Providers`] are open ones, for several connections, or for a server with a provider of the
//! caller's around each. A [`Connector`] is for programs that run for long: it opens devices that come, and does not wait for
//! those over which a server does not answer each time. [`devices`] says which devices there are, and why one cannot be used.
//!
//! Two rules are the same everywhere. iWARP devices are left alone unless devices alone are selected, because software iWARP
//! reaches the same peers. Loopback is left to software iWARP, over which a server can tell whose a connection is.
//!
//! # Example
//!
//! A server, and a connection to it:
//!
//! ```
//! use rpcrdma::{Chain, ClientConfig, Programs, ServerConfig, any};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let at = ["127.0.0.1:0".parse()?];
//! let listening = any::listen(&at, Arc::new(Programs::new()), ServerConfig::default()).await?;
//! for missing in &listening.devices.missing {
//!     eprintln!("{missing}");
//! }
//! let server = listening.server;
//!
//! let client = match any::connect(server.local_addr(), ClientConfig::default()).await {
//!     Ok(client) => client,
//!     Err(error) => {
//!         let advice = error.advice().unwrap_or("there is no advice");
//!         return Err(format!("{} ({advice})", Chain(&error)).into());
//!     }
//! };
//! let connection = client.connection().ok_or("it has ended")?;
//! assert_eq!(connection.device, None, "loopback is left to software iWARP");
//!
//! client.close().await;
//! server.shutdown().await;
//! # Ok(()) })
//! # }
//! ```

mod connect;
mod connector;
mod device_answers;
mod device_info;
mod device_listeners;
pub mod devices;
mod interfaces;
mod listen;
mod open_error;
mod options;
mod providers;
mod sockets;

pub use connect::{ConnectError, DEVICE_SETUP, try_software};
pub use connector::{Connector, Error};
pub use device_listeners::{
    DeviceListeners, MAX_DEVICE_ADDRESSES, NoListener, WhyNoListener, is_in_use,
};
pub use listen::{ListenError, Listeners};
pub use open_error::OpenError;
pub use options::{Options, Selection};
pub use providers::{Over, Providers};

use crate::{Client, ClientConfig, ServerConfig};
use oncrpc::Service;
use std::net::SocketAddr;
use std::sync::Arc;

/// Connects to a server over an RDMA device, or else over software iWARP.
///
/// A program that connects several times opens [`Providers`] once, or has a [`Connector`].
///
/// # Errors
///
/// The error of each provider that was tried.
pub async fn connect(to: SocketAddr, config: ClientConfig) -> Result<Client, Error> {
    let connector = Connector::new(Options::default());
    connector.connect(to, config).await
}

/// Serves over software iWARP at each of these addresses, and over the RDMA devices that have one of them. Port 0 is a free port.
///
/// # Errors
///
/// If it cannot listen at one of them over software iWARP. Devices that cannot be listened over are
/// [named](DeviceListeners::missing).
pub async fn listen(
    at: &[SocketAddr],
    service: Arc<dyn Service>,
    config: ServerConfig,
) -> Result<Listeners, ListenError> {
    let options = Options::default();
    let providers = Providers::open_to_listen(&options, at, Vec::new())?;
    providers.listen(at, service, config).await
}
