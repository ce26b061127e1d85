//! When leases run out (RFC 8881 §8.3).

use foldhash::HashMap;
use nfs_proto::v4::ClientId;
use std::collections::BTreeSet;
use std::time::Instant;

/// Plan of one client id.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// The next look at it.
    look: Instant,
    /// When its lease ran out, if it was not renewed since.
    expired: Option<Instant>,
}

/// The next look at each client id, and those whose leases have run out.
///
/// A renewal in time changes nothing here: it is found at the next look, and then that is planned again.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    plans: HashMap<ClientId, Plan>,
    looks: BTreeSet<(Instant, u64)>,
    expired: BTreeSet<(Instant, u64)>,
}

impl Leases {
    /// Plans the next look at a client id.
    pub(crate) fn look_at(&mut self, look: Instant, client: ClientId) {
        let plan = self.plans.entry(client).or_insert(Plan {
            look,
            expired: None,
        });
        self.looks.remove(&(plan.look, client.0));
        plan.look = look;
        self.looks.insert((look, client.0));
    }

    /// Returns the time of the next look.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.looks.first().map(|&(when, _)| when)
    }

    /// Takes a client id at which to look now.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<ClientId> {
        self.next().filter(|&when| when <= now)?;
        self.looks.pop_first().map(|(_, client)| ClientId(client))
    }

    /// Notes that the lease of a client has run out.
    pub(crate) fn expire(&mut self, now: Instant, client: ClientId) {
        self.renew(client);
        if let Some(plan) = self.plans.get_mut(&client) {
            plan.expired = Some(now);
            self.expired.insert((now, client.0));
        }
    }

    /// Notes that a lease that ran out was renewed.
    pub(crate) fn renew(&mut self, client: ClientId) {
        let plan = self.plans.get_mut(&client);
        if let Some(expired) = plan.and_then(|plan| plan.expired.take()) {
            self.expired.remove(&(expired, client.0));
        }
    }

    /// Returns the client whose lease ran out first.
    pub(crate) fn first_expired(&self) -> Option<ClientId> {
        self.expired.first().map(|&(_, client)| ClientId(client))
    }

    /// Forgets a client id.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.renew(client);
        if let Some(plan) = self.plans.remove(&client) {
            self.looks.remove(&(plan.look, client.0));
        }
    }

    /// Number of all entries, for tests of what is left.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.plans.len() + self.looks.len() + self.expired.len()
    }
}
