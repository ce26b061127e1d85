//! ONC RPC (RFC 5531): messages, authentication, record marking, and what a service and a
//! transport are.
//!
//! A [`Service`] answers calls and a [`Transport`] carries them; neither knows the other. The same
//! NFS code therefore runs over RDMA and over TCP.

pub mod auth;
mod message;
mod program;
pub mod record;
pub mod rpcbind;
mod service;
pub mod tcp;
mod transport;

pub use auth::{AuthStat, AuthSys, Credential};
pub use message::{
    AcceptStatus, CallError, CallHeader, MAX_CALL_HEADER, MAX_REPLY_HEADER, Procedure,
    REPLY_HEADER, RPC_VERSION, RejectStatus, ReplyHeader, ReplyStatus, RpcError, Signature,
    read_reply, write_call,
};
pub use program::{Call, Program, Programs};
pub use service::{Answer, Caller, ConnectionId, Reply, Service};
pub use transport::{ReplyBound, Transport, TransportError};
