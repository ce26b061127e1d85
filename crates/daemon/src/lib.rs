//! An NFS server or a gateway as a service of the system.
//!
//! A [`RunningServer`](server::RunningServer) serves exports, a [`RunningGateway`](gateway::RunningGateway) passes calls on. Both
//! take typed options, which [a file and a command line](config) fill, use sockets of [systemd] and tell it how they are, register
//! with rpcbind, answer at a [control socket](control) and serve [metrics], look up names of hosts again, and keep within the
//! limits of the process. Whoever runs them has the command line and the output, opens [providers], and starts the [log].
//!
//! # Example
//!
//! The servers that run on this machine:
//!
//! ```no_run
//! use rpcrdma_daemon::control::asking;
//!
//! # async fn run() {
//! for server in asking::running(std::iter::empty()).await {
//!     eprintln!("process {} listens at {}", server.pid, server.listening);
//! }
//! # }
//! ```

pub mod addresses;
mod capacity;
mod checks;
pub mod clients;
pub mod config;
pub mod control;
#[cfg(doc)]
pub mod design;
mod end;
pub mod errors;
pub mod gateway;
mod guard;
mod heap;
pub mod listen;
pub mod listening;
mod locked_memory;
pub mod log;
mod lookup;
pub mod metrics;
mod names;
pub mod process;
pub mod providers;
mod registration;
mod reloads;
pub mod reports;
pub mod server;
pub mod signals;
pub mod systemd;
mod terminal;
