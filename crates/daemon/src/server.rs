//! An NFS server as a service: exports with rules for their clients, opened, served, observed and replaced.

mod advice;
mod allowed;
pub mod check;
mod export_changes;
pub mod exports;
pub mod live_exports;
pub mod local_users;
mod mount_server;
mod mounts;
pub mod observed;
mod operation;
pub mod plan;
mod running;
mod state;
mod users;

pub use operation::{Administration, Reread};
pub use running::{RunningServer, ServerOptions};
