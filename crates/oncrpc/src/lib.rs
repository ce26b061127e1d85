//! ONC RPC (RFC 5531): messages, authentication, record marking, and what a service and a
//! transport are.
//!
//! A [`Service`] answers calls and a [`Transport`] carries them; neither knows the other. The same
//! NFS code therefore runs over RDMA and over TCP.

mod service;
mod transport;

pub use service::{Answer, Caller, Reply, Service};
pub use transport::{ReplyBound, Transport, TransportError};
