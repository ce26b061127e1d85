//! A gateway as a service: its pairs of a listening address and a server.

mod advice;
mod allowed_clients;
pub mod check;
mod circles;
mod descriptors;
mod event_loops;
pub mod mount_place;
pub mod observed;
mod operation;
pub mod pairs;
pub mod plan;
mod prepare;
mod replace;
mod retry;
mod running;
pub mod sockets;
pub mod transports;
mod upstream_connector;
pub mod urls;

pub use operation::{Administration, Reread};
pub use running::RunningGateway;
