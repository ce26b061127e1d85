//! RPC-over-RDMA without I/O: version one (RFC 8166, RFC 8797), and above it an experimental version
//! two ([`v2`]).
//!
//! A [`Connection`] is the protocol state of one end of one connection, both roles in one value.
//! Its owner hands in completions, and takes out work to post and events for the RPC layer:
//!
//! ```text
//! while let Some(completion) = qp.poll_cq() {
//!     connection.handle_completion(completion);
//! }
//! while let Some(need) = connection.poll_memory() {
//!     connection.handle_memory(lease(bytes));
//! }
//! connection.send_waiting(now, &mut qp);
//! while let Some(work) = connection.poll_post() {
//!     qp.post(work)?;
//! }
//! ```
//!
//! It opens nothing, waits for nothing, takes no lock of its own and knows no clock: how long anything may take,
//! and what happens after a connection is lost, is up to the driver (crate `rpcrdma`).
//!
//! # Calls
//!
//! [`Connection::call`] takes a call and keeps it in one slot until its end: an [`Event::Reply`],
//! [`Connection::cancel`], or the end of the connection. A call for which there is no credit, or no
//! room for the memory it registers, waits in its slot, in order; [`Connection::send_waiting`] sends it
//! when there is room. [`Connection::room`] says how many calls can be sent at once.
//!
//! The [`Owner`] attaches a value of its own to each of its calls, which comes back with the end of the
//! call. A call of the peer with chunks needs memory before they are read: [`Connection::poll_memory`]
//! asks for it, and the owner's lease stays with the call until that is over.
//!
//! # Both directions
//!
//! Either end may call (RFC 8167). XIDs, credits and Receives of the two directions are kept apart. To
//! use the backward direction:
//!
//! - Set [`Config::backward_credits`]: on a client the number of calls that it takes at a time, on a
//!   server the number that it sends. 0 means that this end has no backward direction. Their Receives
//!   are among the [initial ones](Config::initial_receives), and in [`Config::posted_receives`].
//! - On a client, answer each [`Event::Call`] with [`Connection::reply`], as a server does. A client
//!   without a service for it uses `oncrpc::Programs::new()`, which says PROG_UNAVAIL to everything.
//! - On a server, call [`Connection::handle_client_ready`] when the upper layer has learnt from the
//!   client that it is ready (RFC 8167 §6): for NFS, a CREATE_SESSION or BIND_CONN_TO_SESSION with
//!   the back channel. Until then [`room`](Connection::room) is 0 and every call fails.
//! - After that, calls of a server work as those of a client. The driver chooses their XIDs, without
//!   regard to those of the client. One call goes before the first reply, and then as many as the
//!   client grants.
//! - Version one has no chunks in the backward direction: a call that does not fit a Send, or whose
//!   reply may not, fails with `TransportError::TooLarge`. So [`Connection::thresholds`] bound what an
//!   upper layer may say here.
//! - When the connection is over, [`Connection::into_unfinished`] gives back the calls of either
//!   end. A server sends them again when the client has come back, and is ready again.
//!
//! Health checks: with [`Config::reserve_credit`] the last credit is used by calls made with
//! [`CallRequest::as_health_check`] only; [`Connection::can_check_health`] says whether it is free.
//!
//! # From one connection to the next
//!
//! Each connection is a new value. What a driver keeps between them:
//!
//! - The calls that had no end ([`Unfinished`]), with the number of connections that each has cost
//!   ([`CallRequest::losses`], and [`losses_alone`](CallRequest::losses_alone)): one that costs too
//!   many is not sent again (RFC 8166 §4.5.3). A connection that the driver gave up because its peer
//!   never spoke has cost none ([`Connection::into_unanswered`]).
//! - On a server, the calls of each client that broke a connection ([`Owner::condemn`]). How many are
//!   remembered is for the driver to limit.
//! - On a client, whether a connection ended with [`Violation::LostHandle`]: then the next is made
//!   without R. To know before it matters, a driver sends a call without consequences, made with
//!   [`CallRequest::with_reply_chunk`], as the first one.
//!
//! # Modules
//!
//! A driver enters at [`Connection`], which is that of [`v2`]; it wraps the one of version one. Version one reads alone, from the
//! bottom up: `wire` has its formats, `plan` decides how a message
//! travels, `flow` counts credits, `requester` and `responder` are the two roles, and `connection` holds
//! both. They know one value, `Agreed`, of what both ends have agreed on. [`v2`] stands above them and
//! replaces that value; all about designs for remote invalidation is in `invalidation`.
//!
//! # Example
//!
//! Private data of RPC-over-RDMA within what a peer sent (RFC 8797 §5.2), and an RDMA_MSG header without chunks
//! (RFC 8166 §4):
//!
//! ```
//! use rpcrdma_proto::header::{Body, Header};
//! use rpcrdma_proto::{InlineThreshold, PrivateData};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let own = PrivateData {
//!     send: InlineThreshold::at_most(8 << 10),
//!     receive: InlineThreshold::at_most(4 << 10),
//!     remote_invalidation: true,
//! };
//! let mut received = b"of others".to_vec();
//! received.extend_from_slice(&own.emit());
//! assert_eq!(PrivateData::find(&received), Some(own));
//!
//! let words: [u32; 7] = [0x1234_5678, 1, 32, 0, 0, 0, 0];
//! let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
//! let (header, payload_at) = Header::parse(&bytes).map_err(|error| format!("{error:?}"))?;
//! assert_eq!((header.xid, header.credits, payload_at), (0x1234_5678, 32, 28));
//! assert!(matches!(header.body, Body::Msg(lists) if lists.reads.is_empty()));
//! # Ok(())
//! # }
//! ```

mod agreed;
mod codec;
mod connection;
mod counters;
#[cfg(doc)]
pub mod design;
mod event;
mod flow;
mod invalidation;
pub mod limits;
mod message;
mod messages;
mod owner;
pub mod plan;
mod receives;
mod requester;
mod responder;
mod role;
mod shared;
#[cfg(test)]
mod tests;
pub mod v2;
mod version;
pub mod wire;
mod work;
mod xid;

pub use counters::Counters;
pub use event::{CallId, Event, MemoryNeed, Violation};
pub use invalidation::design::{Design, Designs, Selection, UnknownDesign};
pub use invalidation::persistent::PersistentArguments;
pub use invalidation::registration::{Registration, Registrations};
pub use message::CallRequest;
pub use owner::Owner;
pub use receives::Receives;
pub use requester::{FailedCall, Unfinished};
pub use responder::Pulls;
pub use role::Role;
pub use v2::config::{Characteristics, Config};
pub use v2::connection::{Connection, InlineSizes, Oversized};
pub use v2::versions::{DEFAULT_INLINE, Versions};
pub use version::{Refusal, Version, version_of};
pub use wire::direction::Direction;
pub use wire::private_data::PrivateData;
pub use wire::threshold::{InlineThreshold, Thresholds};
pub use wire::{header, private_data};
pub use xid::Xids;
