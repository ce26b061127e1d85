//! A gateway as a service: its pairs of a listening address and a server.

mod advice;
mod allowed_clients;
pub mod check;
mod circles;
pub mod configuration;
mod descriptors;
mod event_loops;
mod file;
pub mod mount_place;
pub mod observed;
mod operation;
pub mod pairs;
pub mod plan;
mod prepare;
mod replace;
mod retry;
mod running;
pub mod settings;
pub mod sockets;
pub mod transports;
mod upstream_connector;
pub mod urls;

pub use configuration::Configuration;
pub use running::RunningGateway;
pub use settings::GatewaySettings;
