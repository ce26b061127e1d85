//! Invariants of RPC-over-RDMA, checked between the stack and its provider.
//!
//! A [`Watch`] gives each user of a provider a [`Party`]. Its [provider](Party::provider) is the
//! one it is given, watched: it reads each RPC-over-RDMA header that is sent or received, follows
//! each region from its registration to its end, and notes every rule that is broken. Its
//! [transport](Party::transport) sees when a reply is delivered, and its
//! [service](Party::service) when a call is executed. Without all that, a test of a protocol as a
//! value makes a [`WatchedQp`] and tells it of both.
//!
//! Both ends are to keep to the rules: what a hostile peer makes of them says nothing of its victim.
//!
//! Checked are, for either direction of calls:
//!
//! - no region of a call is exposed any more when its reply is delivered (RFC 8166 §4.4.1), none is
//!   invalidated before the reply, none twice, and none is offered that is not registered;
//! - no call is sent without a credit (§3.3.1), nor without a Receive for its reply, and no credit
//!   is granted without one;
//! - a responder reads and writes only what the call offered, while it is not answered; it executes
//!   each call at most as often as it came, answers it at most once on a connection and not while it
//!   still reads its chunks, and invalidates only a handle of that call, if both ends agreed to it
//!   (RFC 8797 §4.1), and the one that their design says, where they have one (reminv §4): the first,
//!   one that the call names, or one that was read to its end for another call;
//! - a server answers with a design that its client offered; a call names handles of its own; memory
//!   that stays registered is offered by one call at a time, is not written to meanwhile, and not
//!   exposed where somebody else says what goes (reminv §2.3);
//! - no server calls a client that has not called on that connection, so that it cannot have said
//!   that it is ready (RFC 8167 §6), and none offers chunks (§5.3);
//! - each piece of work has one end.
//!
//! [`Watch::finish`] says what was found, and whether a queue pair is left.

#![allow(
    clippy::missing_panics_doc,
    reason = "a broken test of tests is to stop at once"
)]

mod call;
mod offer;
mod party;
mod provider;
mod qp;
mod rules;
mod service;
mod shared;
#[cfg(test)]
mod tests;
mod transport;

pub use party::{Party, Tally};
pub use qp::WatchedQp;
pub use shared::Notes;
pub use transport::Watched;

use rpcrdma_proto::Design;
use shared::Shared;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Watches all parties of a test, and keeps what it found.
#[derive(Clone, Default)]
pub struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    /// A watch that passes a line for each message to `notes`.
    pub fn with_notes(notes: Notes) -> Self {
        Self {
            shared: Arc::new(Shared::with_notes(notes)),
        }
    }

    /// Adds a user of a provider.
    pub fn party(&self, name: impl fmt::Display) -> Party {
        Party::new(Arc::clone(&self.shared), name.to_string())
    }

    /// Adds a finding of the caller's own.
    pub fn finding(&self, what: impl fmt::Display) {
        self.shared.finding(what);
    }

    /// The findings so far.
    pub fn findings(&self) -> Vec<String> {
        self.shared.findings()
    }

    /// Connections on which each design was agreed on (reminv §4), by a message.
    pub fn designs(&self) -> BTreeMap<Design, u64> {
        self.shared.designs()
    }

    /// Checks at the end of a test that nothing was found, and that no queue pair of these parties
    /// is left.
    ///
    /// # Panics
    ///
    /// If there is something.
    pub fn finish(&self, parties: &[&Party]) {
        for party in parties {
            party.check_gone();
        }
        let findings = self.findings();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings().fmt(f)
    }
}
