//! Interface between RPC-over-RDMA and the providers that move the bytes.
//!
//! Above it, protocol cores post [`WorkRequest`]s and take [`Completion`]s. Below it, a provider
//! (software iWARP, a simulation, hardware) carries them out. Memory moves with the work: what is
//! posted is out of the poster's reach until a completion brings it back, so that the borrow
//! checker is the DMA fence.
//!
//! A provider never sees RPC. What a provider can and cannot do is in its [`Limits`], and nothing
//! above asks which provider it is.
//!
//! # Example
//!
//! A queue pair around another one, which lets only one Read be outstanding. [`WrapQueuePair`] passes on all
//! methods that are not written:
//!
//! ```
//! use verbs::{PostError, QueuePair, WorkRequest, WrapQueuePair};
//! use verbs::{Completion, WorkError};
//!
//! struct OneRead<Q> {
//!     inner: Q,
//!     reading: bool,
//! }
//!
//! impl<Q: QueuePair> WrapQueuePair for OneRead<Q> {
//!     type Inner = Q;
//!
//!     fn inner(&self) -> &Q {
//!         &self.inner
//!     }
//!
//!     fn inner_mut(&mut self) -> &mut Q {
//!         &mut self.inner
//!     }
//!
//!     fn wrap_post(&mut self, work: WorkRequest) -> Result<(), PostError> {
//!         let reads = matches!(work, WorkRequest::Read { .. });
//!         if reads && self.reading {
//!             // The refused work comes back with the error, and its memory with it.
//!             return Err(PostError::Full(work));
//!         }
//!         self.inner.post(work)?;
//!         self.reading |= reads;
//!         Ok(())
//!     }
//!
//!     fn wrap_poll_cq(&mut self) -> Option<Completion> {
//!         let completion = self.inner.poll_cq()?;
//!         let ended = matches!(
//!             completion,
//!             Completion::Read { .. } | Completion::Failed { error: WorkError::Flushed, .. }
//!         );
//!         self.reading &= !ended;
//!         Some(completion)
//!     }
//! }
//! ```

mod completion;
mod counters;
mod limits;
mod parts;
mod provider;
mod reason;
mod shared;
mod work;
mod wrap;

pub use buffer::{Buffer, Gather};
pub use completion::{CloseReason, Completion, Invalidated, WorkError};
pub use counters::{IoCounters, WorkCounters};
pub use limits::{Invalidation, Limits, PrivateDataCapacity};
pub use parts::{Part, Parts};
pub use provider::{
    BoxFuture, Connected, Incoming, Listener, NotPersistent, PostError, Provider, QpOptions,
    QueuePair, RegisterError, SetupError,
};
pub use reason::{Loss, ProtocolError, ProtocolMismatch, Reason, RejectReason};
pub use shared::{
    NoBlock, ReceiveShare, SHARED_RECEIVE_KEEP, SharedReceiveQueue, SharedReceiveStats,
};
pub use work::{
    Access, Handle, Handles, Memory, RemoteAddress, Segment, WorkKind, WorkRequest, WrId,
};
pub use wrap::{WrapProvider, WrapQueuePair};
