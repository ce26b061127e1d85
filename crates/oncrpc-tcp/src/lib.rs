//! ONC RPC over TCP: a [`Server`] for any [`Service`](oncrpc::Service), a [`Client`] that is a
//! [`Transport`](oncrpc::Transport), [record marks](record) (RFC 5531 §11) and [`rpcbind`]
//! (RFC 1833).
//!
//! Made for MOUNT and rpcbind, whose messages are small: by-reference items are copied here.

mod client;
pub mod record;
pub mod rpcbind;
mod server;

pub use client::Client;
pub use server::{Limits, Server};

/// Most bytes read at once.
const READ_SIZE: usize = 16 << 10;

#[cfg(test)]
mod tests;
