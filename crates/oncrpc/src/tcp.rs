//! RPC over TCP: a server for any [`Service`](crate::Service), and a client that is a
//! [`Transport`](crate::Transport).
//!
//! Made for MOUNT and rpcbind, whose messages are small: by-reference items are copied here.

mod client;
mod places;
mod server;

pub use client::Client;
pub use server::{Limits, Server};

/// Most octets read at once.
const READ_SIZE: usize = 16 << 10;

#[cfg(test)]
mod tests;
