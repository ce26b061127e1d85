//! RPC-over-RDMA in userspace (RFC 8166, RFC 8167, RFC 8797): a [`Client`] that sends RPC calls and a
//! [`Server`] that answers them.
//!
//! The RNIC is a [`Provider`]. [`Iwarp`] is a software RNIC on ordinary TCP sockets: it needs no
//! hardware, no kernel module and no privilege, and a Linux kernel speaks to it with its driver `siw`. NFS
//! version 3 is in the module `nfs`, with the feature of that name.
//!
//! # A first program
//!
//! A program with one procedure, its server and its client, on loopback:
//!
//! ```
//! use rpcrdma::xdr::Writer;
//! use rpcrdma::{
//!     Answer, Call, Client, ClientConfig, Credential, Iwarp, Procedure, Program, Programs, Reply, ReplyBound,
//!     Server, ServerConfig, Transport, read_reply, write_call,
//! };
//! use std::ops::RangeInclusive;
//! use std::sync::Arc;
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
//!         if call.proc != 1 {
//!             return Answer::Now(call.proc_unavail());
//!         }
//!         Answer::Now(match call.decode(|r| Ok((r.u32()?, r.u32()?))) {
//!             Ok((a, b)) => {
//!                 let mut w = call.into_success();
//!                 w.u32(a.wrapping_add(b));
//!                 Reply::Message(w.finish())
//!             }
//!             Err(error) => call.unreadable(error),
//!         })
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let service = Arc::new(Programs::new().with(Sum));
//!     let iwarp = Arc::new(Iwarp::default());
//!     let any = "127.0.0.1:0".parse()?;
//!     let server = Server::bind(iwarp.clone(), any, service, ServerConfig::default()).await?;
//!
//!     let client = Client::connect(iwarp, server.local_addr(), ClientConfig::default()).await?;
//!     let procedure = Procedure { prog: PROGRAM, vers: 1, proc: 1 };
//!     let (mut call, xid) = (Writer::default(), client.next_xid());
//!     write_call(&mut call, xid, procedure, &Credential::None);
//!     call.u32(40);
//!     call.u32(2);
//!     let reply = client.call(call.finish(), ReplyBound::new(64)).await?;
//!     assert_eq!(read_reply(&reply, xid)?.u32()?, 42);
//!
//!     client.close().await;
//!     server.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! # What to read next
//!
//! - [`ClientConfig`] and [`ServerConfig`] have the defaults, and a method for each field.
//! - [`Program`] and [`Service`] answer calls: at once, from a thread that may block, or from a future.
//! - Large arguments and results travel by RDMA Read and Write when the upper layer marks them:
//!   [`xdr::Writer::item`], [`xdr::Reader::item`] and [`ReplyBound::with_result`].
//! - [`Backchannels`] are for a server that calls its clients (RFC 8167).
//! - [`Versions`] and [`characteristics`] are for version two, which has no RFC.
//! - The module `any`, with the features `iwarp` and `verbs`, connects over whatever reaches a server and listens over whatever is
//!   there: RDMA devices, and software iWARP.
//! - [`verbs`] has the traits of a provider.
//!
//! Programs in the directory `examples`, each of which ends after a check of its own result:
//!
//! | example | shows |
//! |---|---|
//! | `serve_memfs` | an NFS server for a file system in memory |
//! | `read_file` | a file read over NFS, by URL |
//! | `echo` | an RPC program with an argument and a result by reference, and the RDMA operations they cost |
//! | `backward_call` | a server that calls its client |
//! | `custom_file_system` | a file system of your own behind NFS |
//! | `custom_characteristic` | a transport characteristic of your own (version two) |
//! | `custom_provider` | a provider around another one, tested by the suite for providers |
//! | `idle_connections` | memory that a server has for Receives of idle and of busy connections |
//! | `callbacks` | NFSv4.1 callbacks of a Linux server, which it needs |
//!
//! `cargo run -p rpcrdma --all-features --example serve_memfs` runs the first one.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
#![cfg_attr(
    feature = "iwarp",
    doc = "| `iwarp` | yes | [`Iwarp`], the software RNIC, and its module [`iwarp`] |"
)]
#![cfg_attr(
    not(feature = "iwarp"),
    doc = "| `iwarp` | yes | `Iwarp`, the software RNIC, and its module `iwarp` |"
)]
#![cfg_attr(
    feature = "nfs",
    doc = "| `nfs` | no | module [`nfs`]: NFS version 3 client and server, RPC over TCP, users of this machine |"
)]
#![cfg_attr(
    not(feature = "nfs"),
    doc = "| `nfs` | no | module `nfs`: NFS version 3 client and server, RPC over TCP, users of this machine |"
)]
#![cfg_attr(
    feature = "verbs",
    doc = "| `verbs` | no | [`Ibv`], RDMA devices through libibverbs and librdmacm, and its module [`ibv`]; with `iwarp`, module `any`: connections over whatever reaches a server |"
)]
#![cfg_attr(
    not(feature = "verbs"),
    doc = "| `verbs` | no | `Ibv`, RDMA devices through libibverbs and librdmacm, and its module `ibv`; with `iwarp`, module `any`: connections over whatever reaches a server |"
)]
//!
//! Features only add. Without `iwarp` and `verbs` the provider is the caller's own. A program with `verbs` builds and
//! starts without those libraries, which it loads when it opens a device.
//!
//! The minimum supported Rust version is `rust-version` in `Cargo.toml`; CI builds and tests with exactly
//! that version, and an increase is a new minor version.
//!
//! # How it works
//!
//! Each connection has one task that owns its queue pair, its protocol state and its deadlines, and answers
//! calls itself. The protocol is in [`proto`], without I/O; this crate adds tasks, timers, memory and threads.
//! A tokio runtime with I/O and time enabled is required.

#[cfg(all(feature = "iwarp", feature = "verbs"))]
pub mod any;
pub mod characteristics;
mod client;
mod config;
#[cfg(doc)]
pub mod design;
mod driver;
#[cfg(feature = "nfs")]
pub mod nfs;
mod server;

pub use buffer;
pub use oncrpc;
pub use rpcrdma_proto as proto;
pub use verbs;
#[cfg(feature = "verbs")]
pub use verbs_ibv as ibv;
#[cfg(feature = "iwarp")]
pub use verbs_iwarp as iwarp;

pub use buffer::{Buffer, Gather, Pool, PoolStats};
pub use bytes::Bytes;
pub use client::{Client, ConnectError, ConnectionInfo, TimedClient};
pub use config::{
    CallbackService, ClientConfig, HealthCheck, HealthChecks, MAX_CONNECTIONS,
    REMEMBER_VERSION_ONE, ServerConfig, Spin,
};
pub use driver::close_reason::CloseReason;
pub use oncrpc::xdr::{self, Payload};
pub use oncrpc::{
    Answer, AuthStat, AuthSys, Call, Caller, Cause, Chain, ConnectionId, Credential,
    LocalUserError, LocalUsers, Origin, PeerGroup, Procedure, Program, Programs, Reply, ReplyBound,
    ReplyRoom, Respond, RpcError, Service, Transport, TransportError, read_reply, write_call,
};
pub use rpc_serving::backchannels::{Backchannel, Backchannels, BackwardClient, MessageSizes};
pub use rpcrdma_proto::{
    Counters, Design, InlineThreshold, PersistentArguments, PrivateData, Thresholds, Version,
    Versions,
};
pub use server::{ConnectionState, ConnectionStats, Server, ServerMonitor, ServerStats};
pub use verbs::{
    IoCounters, Limits, Loss, ProtocolError, ProtocolMismatch, Provider, Reason, RejectReason,
    SetupError,
};
#[cfg(feature = "verbs")]
pub use verbs_ibv::Ibv;
#[cfg(feature = "iwarp")]
pub use verbs_iwarp::Iwarp;
