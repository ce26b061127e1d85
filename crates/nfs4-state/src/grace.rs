//! The grace period after a restart (RFC 8881 §8.4.2), and records of clients on stable storage.
//!
//! A client may reclaim if it is recorded, and only during grace. A record is made before a client id is confirmed, and
//! is gone before others can have what the client had. So whoever is recorded at a restart lost nothing to others
//! before it (RFC 8881 §8.4.3).

use crate::session::{ConnectionId, Wishes};
use nfs_proto::v4::{ClientId, SequenceId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// A client that stands on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded<P> {
    /// Name of the client.
    pub owner: Arc<[u8]>,
    /// Who it was. Another principal cannot reclaim what it had (RFC 8881 §8.4.2.1.1).
    pub principal: P,
}

/// Names a change of stable storage that was demanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A CREATE_SESSION that is executed once its client is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) client: ClientId,
    pub(crate) owner: Arc<[u8]>,
    pub(crate) sequence: SequenceId,
    pub(crate) wishes: Wishes,
    /// Its connection, if it still is there.
    pub(crate) connection: Option<ConnectionId>,
}

/// Reason for which a record was demanded to be made or removed.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A client id is to be confirmed by a CREATE_SESSION, whose answer is withheld.
    Confirm(Pending),
    /// The state of a client is to end.
    Leave(ClientId),
    /// A client did not come back before grace ended.
    EndOfGrace,
    /// A client left nothing.
    Tidy,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Clients reclaim.
    Reclaiming,
    /// Records of so many clients that did not come back are still to be removed.
    Ending(usize),
    /// There is no grace period.
    Over,
}

/// Grace period and records.
#[derive(Debug)]
pub(crate) struct Grace<P> {
    stage: Stage,
    until: Instant,
    /// Clients that were recorded before the restart, and have not completed their reclaims.
    awaited: BTreeMap<Arc<[u8]>, P>,
    /// Owners that are recorded for certain, and whose record nobody is removing.
    durable: HashSet<Arc<[u8]>>,
    tickets: HashMap<Ticket, Purpose>,
    next: u64,
}

impl<P: Eq> Grace<P> {
    /// Begins a grace period for the clients that are recorded. Without any, it is over at once.
    pub(crate) fn new(until: Instant, recorded: impl IntoIterator<Item = Recorded<P>>) -> Self {
        let awaited: BTreeMap<_, _> = recorded
            .into_iter()
            .map(|client| (client.owner, client.principal))
            .collect();
        Self {
            stage: match awaited.is_empty() {
                true => Stage::Over,
                false => Stage::Reclaiming,
            },
            until,
            durable: awaited.keys().cloned().collect(),
            awaited,
            tickets: HashMap::new(),
            next: 0,
        }
    }

    /// Returns whether new opens and locks are refused.
    pub(crate) fn is_on(&self) -> bool {
        self.stage != Stage::Over
    }

    /// Returns when grace ends at the latest, while clients reclaim.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (self.stage == Stage::Reclaiming).then_some(self.until)
    }

    /// Returns whether reclaims are possible at all.
    pub(crate) fn takes_reclaims(&self) -> bool {
        self.stage == Stage::Reclaiming
    }

    /// Returns whether an owner is awaited, and is another principal.
    pub(crate) fn belongs_to_another(&self, owner: &[u8], principal: &P) -> bool {
        let awaited = self.awaited.get(owner);
        self.takes_reclaims() && awaited.is_some_and(|its| its != principal)
    }

    /// Returns whether an owner may reclaim.
    pub(crate) fn awaits(&self, owner: &[u8]) -> bool {
        self.takes_reclaims() && self.awaited.contains_key(owner)
    }

    /// Notes that an owner has reclaimed all it will.
    pub(crate) fn complete(&mut self, owner: &[u8]) {
        self.awaited.remove(owner);
        if self.awaited.is_empty() && self.stage == Stage::Reclaiming {
            self.stage = Stage::Over;
        }
    }

    /// Returns whether an owner is being recorded. This looks at all changes of stable storage that are under way.
    pub(crate) fn is_recording(&self, owner: &[u8]) -> bool {
        self.tickets.values().any(|purpose| match purpose {
            Purpose::Confirm(pending) => *pending.owner == *owner,
            Purpose::Leave(_) | Purpose::EndOfGrace | Purpose::Tidy => false,
        })
    }

    /// Ends the time for reclaims. Returns owners that did not come back, as `is_back` says, and are not just coming:
    /// their records are to be removed first.
    pub(crate) fn end(&mut self, is_back: impl Fn(&[u8]) -> bool) -> Vec<Arc<[u8]>> {
        let awaited = std::mem::take(&mut self.awaited).into_keys();
        let is_lost = |owner: &Arc<[u8]>| !is_back(owner) && !self.is_recording(owner);
        let lost: Vec<_> = awaited.filter(is_lost).collect();
        self.stage = match lost.len() {
            0 => Stage::Over,
            records => Stage::Ending(records),
        };
        lost
    }

    /// Notes that the record of an owner that did not come back is gone.
    pub(crate) fn removed_one(&mut self) {
        self.stage = match self.stage {
            Stage::Ending(records) if records > 1 => Stage::Ending(records - 1),
            Stage::Ending(_) | Stage::Over => Stage::Over,
            Stage::Reclaiming => unreachable!("records are removed after the time for reclaims"),
        };
    }

    /// Returns whether an owner is recorded for certain.
    pub(crate) fn is_durable(&self, owner: &[u8]) -> bool {
        self.durable.contains(owner)
    }

    /// Notes that a record is durable.
    pub(crate) fn recorded(&mut self, owner: Arc<[u8]>) {
        self.durable.insert(owner);
    }

    /// Notes that a record is being removed.
    pub(crate) fn removing(&mut self, owner: &[u8]) {
        self.durable.remove(owner);
    }

    /// Issues a ticket.
    pub(crate) fn ticket(&mut self, purpose: Purpose) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.tickets.insert(ticket, purpose);
        ticket
    }

    /// Takes a ticket back.
    pub(crate) fn redeem(&mut self, ticket: Ticket) -> Option<Purpose> {
        self.tickets.remove(&ticket)
    }

    /// Notes that a connection is gone.
    pub(crate) fn disconnect(&mut self, connection: ConnectionId) {
        for purpose in self.tickets.values_mut() {
            if let Purpose::Confirm(pending) = purpose {
                pending.connection = pending.connection.filter(|&its| its != connection);
            }
        }
    }

    /// Number of all entries, for tests of what is left.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.awaited.len() + self.durable.len() + self.tickets.len()
    }
}
