//! An NFS server as a service: exports with rules for their clients, opened, served, observed and replaced.

mod advice;
mod allowed;
pub mod announcement;
pub mod check;
mod clients4;
pub mod configuration;
mod export_changes;
pub mod exports;
mod file;
pub mod live_exports;
pub mod local_users;
pub mod mount_commands;
mod mount_server;
mod mounts;
pub mod observed;
mod operation;
pub mod plan;
mod running;
pub mod settings;
mod state;
mod state_report;
mod tcp_server;
mod users;

pub use configuration::Configuration;
pub use running::{RunningServer, ServerOptions};
pub use settings::ServerSettings;
