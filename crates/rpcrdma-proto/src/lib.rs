//! RPC-over-RDMA version one (RFC 8166, RFC 8797) without I/O.
//!
//! A [`Connection`] is the protocol state of one end of one connection, both roles in one value.
//! Its owner hands in completions, and takes out work to post and events for the RPC layer:
//!
//! ```text
//! while let Some(completion) = qp.poll_cq() {
//!     connection.handle_completion(completion);
//! }
//! while let Some(work) = connection.poll_post() {
//!     qp.post(work)?;
//! }
//! ```
//!
//! It opens nothing, waits for nothing and knows no clock: how long anything may take, and what
//! happens after a connection is lost, is the driver's business (crate `rpcrdma`).
//!
//! [`header`] and [`private_data`] have each format twice: a view that reads what is there, for
//! decoders, and a parsed type that holds only what is valid.

mod budget;
mod connection;
mod counters;
pub mod header;
mod inline;
pub mod limits;
mod link;
mod message;
pub mod plan;
pub mod private_data;
mod pull;
mod requester;
mod responder;
#[cfg(test)]
mod tests;
mod work;
mod xid;

pub use budget::Budget;
pub use connection::{Config, Connection, Role};
pub use counters::Counters;
pub use inline::{InlineSize, Thresholds};
pub use link::{Event, Violation};
pub use message::{CallRequest, CallToken};
pub use private_data::PrivateData;
pub use requester::{Called, Unfinished};
pub use responder::CallId;
