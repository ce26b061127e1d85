//! ONC RPC over TCP: a [`Server`] for any [`Service`](oncrpc::Service), a [`Client`] that is a
//! [`Transport`](oncrpc::Transport), [record marks](record) (RFC 5531 §11) and [`rpcbind`]
//! (RFC 1833).
//!
//! Calls go both ways on one connection: a client answers those of the server, and a service calls
//! clients through [`Backchannels`]. By-reference items are written from where they are, and large
//! records are read from the socket to where they stay.
//!
//! # Example
//!
//! A server without programs, and a client that gets PROG_UNAVAIL:
//!
//! ```
//! use oncrpc::xdr::Writer;
//! use oncrpc::{Credential, Procedure, Programs, ReplyBound, RpcError, Transport, read_reply, write_call};
//! use oncrpc_tcp::{Client, Limits, Server};
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tokio::net::TcpListener;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let server = Server::new(listener, Arc::new(Programs::new()), Limits::default());
//! let address = server.local_addr()?;
//! tokio::spawn(server.run(std::future::pending()));
//!
//! let client = Client::connect(address, Duration::from_secs(10)).await?;
//! let (mut call, xid) = (Writer::default(), client.next_xid());
//! write_call(&mut call, xid, Procedure { prog: 100_003, vers: 3, proc: 0 }, &Credential::None);
//! let reply = client.call(call.finish(), ReplyBound::new(64)).await?;
//! assert_eq!(read_reply(&reply, xid).err(), Some(RpcError::ProgUnavail));
//! # Ok(()) })
//! # }
//! ```

mod calls;
mod client;
mod config;
mod connection_end;
mod dispatch;
mod driver;
mod input;
mod keepalive;
mod local_port;
mod memory;
mod monitor;
mod output;
pub mod record;
mod reply_memory;
mod resetting;
pub mod rpcbind;
mod server;
mod shared;
mod source;

pub use client::{Client, ConnectError};
pub use config::ClientConfig;
pub use connection_end::ConnectionEnd;
pub use local_port::LocalPort;
pub use memory::FUTURE_COST;
pub use monitor::{ConnectionStats, ServerMonitor, ServerStats};
pub use reply_memory::{Leasing, ReplyMemory};
pub use rpc_serving::backchannels::{Backchannel, Backchannels, BackwardClient};
pub use rpc_serving::ends::End;
pub use rpc_serving::warning_log::WarningLog;
pub use server::{Limits, Server};
pub use source::{IncomingStream, Stream};

#[cfg(test)]
mod tests;
