//! RPC over RDMA for programs: a [`Client`] that carries calls and a [`Server`] that answers them.
//!
//! Each connection has one task that owns its queue pair, its protocol state and its timers, and
//! answers calls itself. Everything protocol is in `rpcrdma-proto`; here are tasks, timers, memory
//! and threads.

mod answers;
mod budget;
mod client;
mod clock;
mod config;
mod failed;
mod invalidation;
mod owner;
mod receives;
mod server;
mod spin;
mod watch;
mod wire;

pub use client::{Client, ConnectionInfo, TimedClient};
pub use config::{
    CallbackService, ClientConfig, HealthCheck, HealthChecks, MAX_CONNECTIONS,
    REMEMBER_VERSION_ONE, ServerConfig, Spin,
};
pub use rpcrdma_proto::{
    Counters, Design, InlineThreshold, PersistentArguments, PrivateData, Thresholds, Version,
    Versions,
};
pub use server::{Backchannel, Backchannels, BackwardClient, Server, ServerStats};
