//! ONC RPC (RFC 5531) without I/O: messages, authentication, [`xdr`], and the traits of a service and
//! of a transport.
//!
//! A [`Service`] answers calls and a [`Transport`] carries them, independently of each other. The
//! same NFS code therefore runs over RDMA and over TCP (crate `oncrpc-tcp`).
//!
//! # Example
//!
//! A program that answers in memory, without a transport:
//!
//! ```
//! use oncrpc::xdr::Writer;
//! use oncrpc::{
//!     Answer, Call, Caller, Credential, Procedure, Program, Programs, Reply, Service, read_reply, write_call,
//! };
//! use std::ops::RangeInclusive;
//!
//! /// Answers procedure 1 with the number of bytes of its argument.
//! struct Length;
//!
//! impl Program for Length {
//!     fn number(&self) -> u32 {
//!         0x2000_0001
//!     }
//!
//!     fn versions(&self) -> RangeInclusive<u32> {
//!         1..=1
//!     }
//!
//!     fn call(&self, call: Call) -> Answer {
//!         Answer::Now(match call.decode(|r| Ok(r.opaque(1024)?.len())) {
//!             Ok(len) => {
//!                 let mut w = call.into_success();
//!                 w.length(len);
//!                 Reply::Message(w.finish())
//!             }
//!             Err(error) => call.unreadable(error),
//!         })
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let service = Programs::new().with(Length);
//! let procedure = Procedure { prog: 0x2000_0001, vers: 1, proc: 1 };
//! let mut w = Writer::default();
//! write_call(&mut w, 7, procedure, &Credential::None);
//! w.opaque(b"hello");
//!
//! let caller = Caller::new("192.0.2.1:700".parse()?);
//! let Answer::Now(Reply::Message(reply)) = service.call(w.finish(), &caller) else {
//!     panic!("this program answers at once");
//! };
//! assert_eq!(read_reply(&reply, 7)?.u32()?, 5);
//! # Ok(())
//! # }
//! ```

pub mod auth;
mod cause;
mod connections;
mod lease;
mod local_users;
mod message;
mod peer_group;
mod plain;
mod program;
mod reply_room;
mod service;
mod transport;
pub mod xdr;

pub use auth::{AuthStat, AuthSys, Credential};
pub use cause::{Cause, Chain};
pub use connections::{Closing, Connections, DeliveryQuery, OpenConnection};
pub use lease::Lease;
pub use local_users::{LocalUserError, LocalUsers, Origin};
pub use message::{
    AcceptStatus, CallError, CallHeader, EncodedCredential, MAX_REPLY_HEADER, Procedure,
    REPLY_HEADER, RPC_VERSION, RejectStatus, ReplyHeader, ReplyStatus, RpcError, read_reply,
    write_call,
};
pub use peer_group::PeerGroup;
pub use plain::plain;
pub use program::{Call, Program, Programs};
pub use reply_room::ReplyRoom;
pub use service::{Answer, Caller, ConnectionId, ReceivedCall, Reply, Respond, Service};
pub use transport::{ReplyBound, Transport, TransportError, USUAL_DEPTH};
