//! ONC RPC (RFC 5531) without I/O: messages, authentication, [`xdr`], and the traits of a service and
//! of a transport.
//!
//! A [`Service`] answers calls and a [`Transport`] carries them; neither knows the other. The same
//! NFS code therefore runs over RDMA and over TCP (crate `oncrpc-tcp`).

pub mod admission;
pub mod auth;
mod local_users;
mod message;
mod peer_group;
mod program;
mod reply_room;
mod service;
mod transport;
pub mod warnings;
pub mod xdr;

pub use auth::{AuthStat, AuthSys, Credential};
pub use local_users::{LocalUserError, LocalUsers, Origin};
pub use message::{
    AcceptStatus, CallError, CallHeader, EncodedCredential, MAX_REPLY_HEADER, Procedure,
    REPLY_HEADER, RPC_VERSION, RejectStatus, ReplyHeader, ReplyStatus, RpcError, read_reply,
    write_call,
};
pub use peer_group::PeerGroup;
pub use program::{Call, Program, Programs};
pub use reply_room::ReplyRoom;
pub use service::{Answer, Caller, ConnectionId, Reply, Respond, Service};
pub use transport::{ReplyBound, Transport, TransportError};
