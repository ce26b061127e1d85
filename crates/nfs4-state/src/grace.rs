//! The grace period after a restart (RFC 8881 §8.4.2), and records of clients on stable storage.
//!
//! A client may reclaim if it is recorded, and only during grace. It is recorded before its RECLAIM_COMPLETE is
//! answered: until then it can make no new state, and after it the client knows that whatever it has not reclaimed is lost (RFC
//! 8881 §18.51.4). A record made earlier, with the client id, would let a client that lost its state reclaim it at a second
//! restart. The record is gone before others can have what the client had. So whoever is recorded at a restart lost nothing
//! to others that it does not know of (RFC 8881 §8.4.3).

use crate::limits::BETWEEN_RECLAIMS;
use nfs_proto::v4::ClientId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client that stands on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded<P> {
    /// Name of the client.
    pub owner: Arc<[u8]>,
    /// Its principal. Another one cannot reclaim what it had (RFC 8881 §8.4.2.1.1).
    pub principal: P,
}

/// Names a change of stable storage that was demanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Reason for which a record was demanded to be made or removed.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A client has reclaimed all it will: the answer to its RECLAIM_COMPLETE is withheld.
    Complete(ClientId),
    /// The state of a client is to end.
    Leave(ClientId),
    /// A client had not reclaimed all before grace ended.
    EndOfGrace,
    /// A client left nothing.
    Tidy,
}

/// Record of an owner, as far as the server can know. A record whose removal was demanded is not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// It was demanded, and is being made, or failed, which may also have been at the end.
    Possible,
    /// It is durable.
    Certain,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Clients reclaim.
    Reclaiming,
    /// Records of so many clients that had not reclaimed all are still to be removed.
    Ending(usize),
    /// There is no grace period.
    Over,
}

/// Grace period and records.
#[derive(Debug)]
pub(crate) struct Grace<P> {
    stage: Stage,
    until: Instant,
    /// End of the period if clients go on to reclaim.
    latest: Instant,
    /// Clients that were recorded before the restart, and have not completed their reclaims.
    awaited: BTreeMap<Arc<[u8]>, P>,
    records: HashMap<Arc<[u8]>, Record>,
    /// Changes under way, with their owners.
    tickets: HashMap<Ticket, (Arc<[u8]>, Purpose)>,
    /// The last change of each owner's record, while it is under way: earlier ones decide nothing.
    last: HashMap<Arc<[u8]>, Ticket>,
    next: u64,
}

impl<P: Eq> Grace<P> {
    /// Begins a grace period for the clients that are recorded. Without any, it is over at once.
    pub(crate) fn new(
        now: Instant,
        length: Duration,
        recorded: impl IntoIterator<Item = Recorded<P>>,
    ) -> Self {
        let until = now + length;
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
            latest: until + length,
            records: (awaited.keys())
                .map(|owner| (Arc::clone(owner), Record::Certain))
                .collect(),
            awaited,
            tickets: HashMap::new(),
            last: HashMap::new(),
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

    /// Returns the number of clients that have not completed their reclaims.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.len()
    }

    /// Notes that a client reclaims: it gets the time for its next reclaim, until the period has twice its length.
    pub(crate) fn reclaims(&mut self, now: Instant) {
        let next = (now + BETWEEN_RECLAIMS).min(self.latest);
        self.until = self.until.max(next);
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

    /// Returns whether an owner is being recorded.
    pub(crate) fn is_recording(&self, owner: &[u8]) -> bool {
        let last = self.last.get(owner);
        let purpose = last.and_then(|ticket| self.tickets.get(ticket));
        matches!(purpose, Some((_, Purpose::Complete(_))))
    }

    /// Ends the time for reclaims. Returns owners that have not completed theirs: their records are to be removed first,
    /// also of those that came back, as others may then have what they did not reclaim.
    pub(crate) fn end(&mut self) -> Vec<Arc<[u8]>> {
        let awaited = std::mem::take(&mut self.awaited).into_keys();
        // A removal that is demanded after a record would undo it.
        let lost: Vec<_> = awaited.filter(|owner| !self.is_recording(owner)).collect();
        self.stage = match lost.len() {
            0 => Stage::Over,
            records => Stage::Ending(records),
        };
        lost
    }

    /// Notes that the record of an owner that had not reclaimed all is gone.
    pub(crate) fn removed_one(&mut self) {
        self.stage = match self.stage {
            Stage::Ending(records) if records > 1 => Stage::Ending(records - 1),
            Stage::Ending(_) | Stage::Over => Stage::Over,
            Stage::Reclaiming => unreachable!("records are removed after the time for reclaims"),
        };
    }

    /// Returns whether an owner is recorded for certain.
    pub(crate) fn is_durable(&self, owner: &[u8]) -> bool {
        self.records.get(owner) == Some(&Record::Certain)
    }

    /// Returns whether an owner may be recorded, and nobody is removing that.
    pub(crate) fn may_be_recorded(&self, owner: &[u8]) -> bool {
        self.records.contains_key(owner)
    }

    /// Begins to record an owner.
    pub(crate) fn begin_record(&mut self, client: ClientId, owner: &Arc<[u8]>) -> Ticket {
        self.records
            .entry(Arc::clone(owner))
            .or_insert(Record::Possible);
        self.ticket(owner, Purpose::Complete(client))
    }

    /// Begins to remove the record of an owner.
    pub(crate) fn begin_removal(&mut self, owner: &Arc<[u8]>, purpose: Purpose) -> Ticket {
        self.records.remove(owner);
        self.ticket(owner, purpose)
    }

    fn ticket(&mut self, owner: &Arc<[u8]>, purpose: Purpose) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.tickets.insert(ticket, (Arc::clone(owner), purpose));
        self.last.insert(Arc::clone(owner), ticket);
        ticket
    }

    /// Ends the making of a record. Returns the client and its owner; `None` for a ticket that is not known.
    ///
    /// # Panics
    ///
    /// If the ticket is that of a removal.
    pub(crate) fn end_record(
        &mut self,
        ticket: Ticket,
        is_durable: bool,
    ) -> Option<(ClientId, Arc<[u8]>)> {
        let (owner, purpose) = self.tickets.remove(&ticket)?;
        let Purpose::Complete(client) = purpose else {
            panic!("the ticket is one of a record that was to be made");
        };
        if self.was_last(ticket, &owner) && is_durable {
            self.records.insert(Arc::clone(&owner), Record::Certain);
        }
        Some((client, owner))
    }

    /// Ends the removal of a record. Returns the purpose; `None` for a ticket that is not known.
    ///
    /// # Panics
    ///
    /// If the ticket is that of a record that was to be made.
    pub(crate) fn end_removal(&mut self, ticket: Ticket) -> Option<Purpose> {
        let (owner, purpose) = self.tickets.remove(&ticket)?;
        let is_removal = !matches!(purpose, Purpose::Complete(_));
        assert!(is_removal, "the ticket is one of a removal");
        self.was_last(ticket, &owner);
        Some(purpose)
    }

    /// Returns whether a change that has ended was the last one of its owner's record, and forgets it.
    fn was_last(&mut self, ticket: Ticket, owner: &Arc<[u8]>) -> bool {
        let was_last = self.last.get(owner) == Some(&ticket);
        if was_last {
            self.last.remove(owner);
        }
        was_last
    }

    /// Number of all entries, for tests of what is left.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.awaited.len() + self.records.len() + self.tickets.len() + self.last.len()
    }
}
