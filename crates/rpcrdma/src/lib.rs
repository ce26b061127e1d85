//! RPC over RDMA for programs: a [`Client`] that carries calls and a [`Server`] that answers them.
//!
//! Each connection has one task that owns its queue pair, its protocol state and its timers, and
//! answers calls itself. Everything protocol is in `rpcrdma-proto`; here are tasks, timers, memory
//! and threads.

mod client;
mod clock;
mod config;
mod server;
mod spin;
mod wire;

pub use client::{Client, ConnectionInfo};
pub use config::{ClientConfig, ServerConfig, Spin};
pub use rpcrdma_proto::{Counters, InlineSize, PrivateData, Thresholds};
pub use server::{Server, ServerStats};
