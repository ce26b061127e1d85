//! A provider in memory, in virtual time, where one seed decides everything.
//!
//! It exists for tests. A [`Fabric`] holds the time and all connections made on it. For tests of
//! protocol cores, [`Fabric::pair`] gives the two ends of a connection at once, to be driven by
//! hand: `progress`, `poll_cq`, [`Fabric::advance`]. For tests of drivers, [`Fabric::provider`]
//! gives a [`verbs::Provider`] that connects and listens on the same fabric; its wake-ups use
//! nothing but the standard library's wakers, and [`Fabric::keep_time`] couples the virtual time
//! to any runtime's clock.
//!
//! It keeps to the contract of [`verbs`] strictly, where software and hardware may be lenient: a
//! Send without a Receive ends the connection, a place in a queue is free only when its completion
//! has been taken, and every access to registered memory is checked. [`Faults`] adds what goes
//! wrong in the world: delay, connections cut at any byte, stalls, failing work, refused posts.
//!
//! The same seed and the same calls give the same run: [`Fabric::trace`] says so in one number.
//! Each connection draws from its own stream of numbers, so that adding one does not change the
//! others.
//!
//! # Example
//!
//! ```
//! use verbs::{Buffer, Completion, Gather, QueuePair, WorkRequest, WrId};
//! use verbs_sim::{Fabric, PairOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new(7);
//! let (mut left, mut right) = fabric.pair(&PairOptions::default());
//!
//! let buffer = Buffer::with_capacity(64);
//! right.post(WorkRequest::Receive { wr: WrId(1), buffer })?;
//! let mut buffer = Buffer::with_capacity(64);
//! buffer.extend_from_slice(b"hello");
//! let (rest, invalidate) = (Gather::new(), None);
//! left.post(WorkRequest::Send { wr: WrId(2), buffer, rest, invalidate })?;
//!
//! loop {
//!     while left.progress() | right.progress() {}
//!     match fabric.next_event() {
//!         Some(time) => fabric.advance_to(time),
//!         None => break,
//!     }
//! }
//! let Some(Completion::Receive { buffer, .. }) = right.poll_cq() else {
//!     panic!("the message arrives");
//! };
//! assert_eq!(&buffer[..], b"hello");
//! # Ok(())
//! # }
//! ```

mod connection;
mod costs;
mod end;
mod fabric;
mod handshake;
mod options;
mod provider;
mod qp;
mod reads;
mod regions;
mod rng;
mod side;
mod trace;
mod wire;

pub use costs::Costs;
pub use end::{Outstanding, Traffic};
pub use fabric::{Fabric, Sleep};
pub use options::{Cut, EndOptions, Faults, PairOptions, Setup, Stall, Way};
pub use provider::{Mute, SimProvider};
pub use qp::SimQp;
pub use rng::Rng;
pub use side::{ConnectionId, Side};
pub use trace::TraceHash;
