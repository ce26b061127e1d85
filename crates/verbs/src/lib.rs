//! Interface between RPC-over-RDMA and the providers that move the bytes.
//!
//! Above it, protocol cores post [`WorkRequest`]s and take [`Completion`]s. Below it, a provider
//! (software iWARP, a simulation, hardware) carries them out. Memory moves with the work: what is
//! posted is out of the poster's reach until a completion brings it back, so that the borrow
//! checker is the DMA fence.
//!
//! A provider never sees RPC. What a provider can and cannot do is in its [`Limits`], and nothing
//! above asks which provider it is.

mod completion;
mod limits;
mod provider;
mod shared;
mod work;
mod wrap;

pub use buffer::{Buffer, Gather};
pub use completion::{CloseReason, Completion, Invalidated, WorkError};
pub use limits::{Invalidation, Limits, PrivateDataCapacity};
pub use provider::{
    BoxFuture, Connected, Incoming, IoCounters, Listener, NotPersistent, PostError, Provider,
    QpOptions, QueuePair, RegisterError, SetupError,
};
pub use shared::{
    NoBlock, ReceiveShare, SHARED_RECEIVE_KEEP, SharedReceiveQueue, SharedReceiveStats,
};
pub use work::{Access, Handle, Memory, RemoteAddress, Segment, WorkRequest, WrId};
pub use wrap::{WrapProvider, WrapQueuePair};
