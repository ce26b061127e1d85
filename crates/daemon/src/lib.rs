//! An NFS server or a gateway as a service of the system.
//!
//! Both have in common how they are started, observed and reloaded: [sockets and readiness](systemd) of systemd,
//! [registrations](registration) with rpcbind, a [control socket](control) and [metrics] that [reports](reports) serve, [names of
//! hosts](names) that are looked up again, and limits of the process on [descriptors](capacity) and [locked
//! memory](locked_memory). [`gateway`] has what a gateway has beside that. A program adds a command line and its output.
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
pub mod capacity;
pub mod clients;
pub mod control;
pub mod device_listeners;
pub mod errors;
pub mod gateway;
pub mod guard;
pub mod heap;
pub mod listen;
pub mod listening;
pub mod locked_memory;
pub mod lookup;
pub mod metrics;
pub mod names;
mod peer_warnings;
pub mod process;
pub mod providers;
pub mod registration;
pub mod reloads;
pub mod reports;
pub mod server;
pub mod signals;
pub mod systemd;
pub mod terminal;
