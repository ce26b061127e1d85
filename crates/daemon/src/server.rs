//! An NFS server as a service: exports with rules for their clients, opened, served, observed and replaced.

pub mod advice;
mod allowed;
pub mod export_changes;
pub mod exports;
pub mod live_exports;
pub mod local_users;
mod mount_server;
mod mounts;
pub mod observed;
mod operation;
pub mod plan;
mod running;
pub mod state;
mod users;

pub use operation::{Administration, Reread};
pub use running::{RunningServer, ServerOptions};
