//! A gateway as a service: its pairs of a listening address and a server.

pub mod advice;
pub mod allowed_clients;
pub mod circles;
mod descriptors;
mod event_loops;
pub mod mount_place;
pub mod observed;
mod operation;
pub mod pairs;
pub mod plan;
mod prepare;
pub mod replace;
mod retry;
mod running;
pub mod sockets;
pub mod transports;
pub mod urls;

pub use operation::{Administration, Reread};
pub use running::{NO_HOME, RunningGateway, no_control_socket};
