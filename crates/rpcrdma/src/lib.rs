//! RPC over RDMA for programs: a [`Client`] that carries calls and a [`Server`] that answers them
//! (RFC 8166, RFC 8167, RFC 8797; version two on request).
//!
//! The RNIC is a [`Provider`]: software iWARP on TCP sockets in crate `verbs-iwarp`, a simulation in
//! `verbs-sim`. What is carried are RPC messages as [`Payload`]s; crate `oncrpc` builds and reads
//! them, and everything that stands in a signature here is exported here too.
//!
//! ```
//! use oncrpc::{Call, Credential, Procedure, Program, Programs, read_reply, write_call};
//! use oncrpc::xdr::Writer;
//! use rpcrdma::{Answer, Client, ClientConfig, Reply, ReplyBound, Server, ServerConfig, Transport};
//! use std::ops::RangeInclusive;
//! use std::sync::Arc;
//! use verbs_iwarp::Iwarp;
//!
//! const PROGRAM: u32 = 0x2000_0001;
//!
//! /// Answers procedure 1 with the sum of two numbers.
//! struct Sum;
//!
//! impl Program for Sum {
//!     fn number(&self) -> u32 {
//!         PROGRAM
//!     }
//!
//!     fn versions(&self) -> RangeInclusive<u32> {
//!         1..=1
//!     }
//!
//!     fn call(&self, call: Call) -> Answer {
//!         Answer::Now(match call.decode(|r| Ok((r.u32()?, r.u32()?))) {
//!             Ok((a, b)) => {
//!                 let mut w = call.success(Default::default());
//!                 w.u32(a.wrapping_add(b));
//!                 Reply::Message(w.finish())
//!             }
//!             Err(error) => call.unreadable(error),
//!         })
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let service = Arc::new(Programs::new().with(Sum));
//! let iwarp = Arc::new(Iwarp::default());
//! let any = "127.0.0.1:0".parse()?;
//! let server = Server::bind(iwarp.clone(), any, service, ServerConfig::default()).await?;
//!
//! let client = Client::connect(iwarp, server.local_addr(), ClientConfig::default()).await?;
//! let procedure = Procedure { prog: PROGRAM, vers: 1, proc: 1 };
//! let (mut call, xid) = (Writer::default(), client.next_xid());
//! write_call(&mut call, xid, procedure, &Credential::None);
//! call.u32(40);
//! call.u32(2);
//! let bound = ReplyBound { fixed: 64, ..ReplyBound::default() };
//! let reply = client.call(call.finish(), bound).await?;
//! assert_eq!(read_reply(&reply, xid)?.u32()?, 42);
//! # Ok(()) })
//! # }
//! ```
//!
//! Each connection has one task that owns its queue pair, its protocol state and its deadlines, and
//! answers calls itself. The protocol is crate `rpcrdma-proto`; this crate adds tasks, timers, memory
//! and threads.

mod client;
mod config;
mod driver;
mod server;

pub use buffer::{Pool, PoolStats};
pub use client::{Client, ConnectionInfo, TimedClient};
pub use config::{
    CallbackService, ClientConfig, HealthCheck, HealthChecks, MAX_CONNECTIONS,
    REMEMBER_VERSION_ONE, ServerConfig, Spin,
};
pub use oncrpc::xdr::Payload;
pub use oncrpc::{
    Answer, Caller, ConnectionId, Reply, ReplyBound, Service, Transport, TransportError,
};
pub use rpcrdma_proto::{
    Counters, Design, InlineThreshold, PersistentArguments, PrivateData, Thresholds, Version,
    Versions,
};
pub use server::{
    Backchannel, Backchannels, BackwardClient, ConnectionState, ConnectionStats, Server,
    ServerMonitor, ServerStats,
};
pub use verbs::{IoCounters, Provider, SetupError};
