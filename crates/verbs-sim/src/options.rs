//! How a connection is made, and what is to go wrong with it.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;
use verbs::{Invalidation, Limits, PrivateDataCapacity, WorkError};

/// The two ends of a connection made by [`Fabric::pair`](crate::Fabric::pair).
#[derive(Clone, Debug, Default)]
pub struct PairOptions {
    /// The end that would have connected.
    pub left: EndOptions,
    /// The end that would have listened.
    pub right: EndOptions,
}

impl PairOptions {
    /// The same for both ends.
    pub fn both(end: EndOptions) -> Self {
        Self {
            left: end.clone(),
            right: end,
        }
    }
}

/// What one end can do, and its share of the misfortune.
#[derive(Clone, Debug)]
pub struct EndOptions {
    /// What it can do. Its outstanding Reads are lowered to what the other end serves.
    pub limits: Limits,
    /// Octets that it may have on the wire before work waits in it, as in a full socket. One
    /// message is let through whatever its size.
    pub window: usize,
    /// What goes wrong on its side. Nothing by default.
    pub faults: Faults,
}

impl Default for EndOptions {
    fn default() -> Self {
        Self {
            limits: default_limits(),
            window: usize::MAX,
            faults: Faults::default(),
        }
    }
}

/// What goes wrong with what one end does. Counts are per connection and begin at its first.
#[derive(Clone, Debug)]
pub struct Faults {
    /// How long what it sends is on its way, drawn anew for each message. Order within the
    /// connection is kept; across connections it is whatever the times make of it.
    pub latency: RangeInclusive<Duration>,
    /// Where what it sends stops arriving, and the connection with it.
    pub cut: Option<Cut>,
    /// A time during which it neither sends nor takes in anything.
    pub stall: Option<Stall>,
    /// Refuses about one post in so many as if the queue were full, but only while other work is
    /// outstanding, as a full queue would. Receives are not refused.
    pub refuse_post: Option<NonZeroU64>,
    /// The piece of work, counted from 0 in the order in which they begin, that fails with this
    /// error and takes the connection with it. Receives are not counted.
    pub fail_work: Option<(u64, WorkError)>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO..=Duration::ZERO,
            cut: None,
            stall: None,
            refuse_post: None,
            fail_work: None,
        }
    }
}

/// How much still arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// So many messages of any kind: Sends, Writes, Read requests, Read responses, the last word.
    Messages(u64),
    /// So many octets, with [`MESSAGE_HEADER`](Self::MESSAGE_HEADER) of them before each message.
    /// What arrives of a Write that is cut is placed, as a software or hardware RNIC may do.
    Octets(u64),
}

impl Cut {
    /// Octets that each message is taken to need beside its payload.
    pub const MESSAGE_HEADER: u64 = 20;
}

/// A time without progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Messages sent and taken in before it.
    pub after: u64,
    /// How long it is; [`Duration::MAX`] never ends.
    pub lasting: Duration,
}

/// Wide enough that a test meets a limit only where it sets one.
fn default_limits() -> Limits {
    Limits {
        private_data: PrivateDataCapacity {
            request: 508,
            accept: 508,
            reject: 508,
        },
        private_data_exact: true,
        receives: 256,
        sends: 1024,
        outstanding_reads: 32,
        inbound_reads: 32,
        max_message: 1 << 30,
        regions: 4096,
        max_region: 1 << 30,
        remote_invalidation: Invalidation::Region,
        keepalive: true,
    }
}
