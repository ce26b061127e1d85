//! Options and faults of simulated connections.

use crate::costs::Costs;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;
use verbs::{Invalidation, Limits, PrivateDataCapacity, SharedReceiveQueue, WorkError};

/// The two ends of a connection made by [`Fabric::pair`](crate::Fabric::pair).
#[derive(Clone, Debug, Default)]
pub struct PairOptions {
    /// The end that would have connected.
    pub left: EndOptions,
    /// The end that would have listened.
    pub right: EndOptions,
}

impl PairOptions {
    /// The same options for both ends.
    pub fn both(end: EndOptions) -> Self {
        Self {
            left: end.clone(),
            right: end,
        }
    }
}

/// Limits, costs and faults of one end.
#[derive(Clone, Debug)]
pub struct EndOptions {
    /// Its limits. Outstanding Reads are lowered to what the other end serves.
    pub limits: Limits,
    /// The address from which it connects.
    pub address: IpAddr,
    /// Shared receive queue to use instead of posted Receives.
    pub shared_receives: Option<SharedReceiveQueue>,
    /// Memory is reached from address 0 on, as on iWARP. Otherwise its address is one that nobody
    /// expects, as on hardware that uses virtual addresses.
    pub zero_based: bool,
    /// Bytes that it may have on the wire before work waits in it, as in a full socket. One
    /// message is let through whatever its size.
    pub window: usize,
    /// Time that operations cost. None by default.
    pub costs: Costs,
    /// Faults of this end. None by default.
    pub faults: Faults,
}

impl Default for EndOptions {
    fn default() -> Self {
        Self {
            limits: default_limits(),
            address: Ipv4Addr::LOCALHOST.into(),
            shared_receives: None,
            zero_based: false,
            window: usize::MAX,
            costs: Costs::default(),
            faults: Faults::default(),
        }
    }
}

/// Faults of one end. Counts are per connection.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Latency of what it sends, drawn anew for each message. Order within the
    /// connection is kept; across connections it is whatever the times make of it.
    pub latency: RangeInclusive<Duration>,
    /// Place at which its output is cut off, which ends the connection.
    pub cut: Option<Cut>,
    /// Stalls, in the order of [`Stall::after`].
    pub stalls: Vec<Stall>,
    /// Refuses about one post in so many as if the queue were full, but only while work other than
    /// Receives is outstanding, so that a completion follows, as it would with a full queue.
    pub refuse_post: Option<NonZeroU64>,
    /// Refuses about one registration in so many as if there were too many regions.
    pub refuse_registration: Option<NonZeroU64>,
    /// The piece of work, counted from 0 in the order in which they begin, that fails with this
    /// error and takes the connection with it. Receives are not counted.
    pub fail_work: Option<(u64, WorkError)>,
    /// Fault of connection setup, if this end is the one that connects.
    pub setup: Setup,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO..=Duration::ZERO,
            cut: None,
            stalls: Vec::new(),
            refuse_post: None,
            refuse_registration: None,
            fail_work: None,
            setup: Setup::Works,
        }
    }
}

/// How much arrives before a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// This many messages of any kind: Sends, Writes, Read Requests, Read Responses and Terminates.
    Messages(u64),
    /// So many bytes, with [`MESSAGE_HEADER`](Self::MESSAGE_HEADER) of them before each message.
    /// What arrives of a Write that is cut is placed, as a software or hardware RNIC may do.
    Bytes(u64),
}

impl Cut {
    /// Bytes that each message is taken to need beside its payload.
    pub const MESSAGE_HEADER: u64 = 20;
}

/// Outcome of connection setup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setup {
    /// It succeeds.
    #[default]
    Works,
    /// The connection is refused at once.
    Refused,
    /// The listener learns of the connection, but the request never comes.
    RequestLost,
    /// The listener may accept, but its answer is lost.
    AnswerLost,
}

/// A stall of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Messages sent and received before it.
    pub after: u64,
    /// Which directions stall.
    pub way: Way,
    /// Its duration; [`Duration::MAX`] never ends.
    pub lasting: Duration,
}

/// A direction, as seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Incoming messages.
    In,
    /// Outgoing messages.
    Out,
    /// Both.
    Both,
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
        shared_receives: true,
        holds_peer_back: true,
        sends: 1024,
        outstanding_reads: 32,
        inbound_reads: 32,
        max_message: 1 << 30,
        regions: 4096,
        max_region: 1 << 30,
        parts: 64,
        remote_invalidation: Invalidation::Region,
        invalidations: 16,
        keepalive: true,
    }
}
