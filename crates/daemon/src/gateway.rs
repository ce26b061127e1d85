//! A gateway as a service: its pairs of a listening address and a server.

pub mod allowed_clients;
pub mod event_loops;
pub mod mount_place;
pub mod urls;
