//! The parts of a server of ONC RPC that are the same over every transport, and the division of what its peers share by
//! address: an address here means a [`PeerGroup`](oncrpc::PeerGroup).
//!
//! - [`shares`]: an amount, and the most that one address may hold of it.
//! - [`fair_queue`]: a queue in which addresses have turns.
//! - [`loans`]: when a connection must give way, because it has held for long what others wait for.
//! - [`by_address`]: values of addresses, each forgotten once it is of no use.
//! - [`admission`]: places for connections, and which connection gives its place to another.
//! - [`turns`]: turns on the CPU.
//! - [`backchannels`]: calls to clients, on the connections on which they call.
//! - [`dispatch`]: calls in service.
//! - [`ends`]: ends of connections that the server brings about.
//! - [`intake`]: the accept loop.
//! - [`jobs`]: threads for calls that may wait for a disk.
//! - [`warning_log`]: warnings about peers.
//! - [`warnings`]: how many of them are logged.
//! - [`workers`]: event loops that servers share.
//!
//! The first four are values without a lock, a clock or a waker, for owners that have these.
//!
//! # Example
//!
//! Buffers that calls of many peers wait for. No peer keeps another from one:
//!
//! ```
//! use oncrpc::PeerGroup;
//! use rpc_serving::fair_queue::{FairQueue, Turn};
//! use rpc_serving::shares::{Bound, Shares};
//!
//! let [busy, other] = [1, 2].map(|last| PeerGroup::of([192, 0, 2, last].into()));
//! let mut buffers = Shares::new(4, Bound::WhatItLeaves);
//! let mut waiting = FairQueue::default();
//! for call in 0..100 {
//!     waiting.push(busy, "connection 1", call);
//! }
//! waiting.push(other, "connection 2", 100);
//! let mut served = Vec::new();
//! while let Some((group, _, call)) = waiting.pop(|group, _| match buffers.may_take(group, 1) {
//!     true => Turn::Takes,
//!     false => Turn::IsPassed,
//! }) {
//!     buffers.take(group, 1);
//!     served.push(call);
//! }
//! assert_eq!(served, [0, 100], "half of them are left to others");
//! ```

pub mod admission;
pub mod backchannels;
pub mod by_address;
mod clock;
#[cfg(doc)]
pub mod design;
pub mod dispatch;
pub mod ends;
pub mod fair_queue;
pub mod intake;
pub mod jobs;
pub mod loans;
mod running;
pub mod shares;
pub mod turns;
pub mod warning_log;
pub mod warnings;
pub mod workers;
