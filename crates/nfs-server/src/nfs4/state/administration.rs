//! The state of clients as an administrator sees and changes it.

use super::files::Release;
use super::{FileKey, Nfs4State};
use crate::fs::HeldFile;
use crate::nfs4::owner_name::owner_name;
use nfs_proto::v4::{ClientId, Status};
use nfs4_state::limits::Limits;
use nfs4_state::{ClientView, StateView, Usage};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients, or places of states, that are looked at while the lock is held.
const PAGE: u32 = 256;

/// The state of clients in numbers.
#[derive(Clone, Copy, Debug)]
pub struct Nfs4Status {
    /// How much there is.
    pub usage: Usage,
    /// How much there may be.
    pub limits: Limits,
    /// Time in which clients have to renew their lease.
    pub lease: Duration,
    /// Whether new opens and locks are refused, as clients reclaim theirs.
    pub is_in_grace: bool,
    /// Time until the grace period ends, unless clients reclaim until then, who get a little more.
    pub grace_left: Option<Duration>,
    /// Clients that have not said that they have reclaimed all they will.
    pub awaited: usize,
}

/// An open or owner of locks, with the file that is held for it.
type StateWithFile = (StateView<FileKey>, Option<Arc<dyn HeldFile>>);

/// A page of opens and owners of locks.
pub(in crate::nfs4) struct StatesWithFiles {
    /// The states, with the files that are held for them.
    pub(in crate::nfs4) states: Vec<StateWithFile>,
    /// From where the list goes on; `None` at its end.
    pub(in crate::nfs4) next: Option<u32>,
}

impl Nfs4State {
    /// Returns the state in numbers.
    pub fn status(&self) -> Nfs4Status {
        let shared = self.shared();
        self.with(|locked| {
            let grace = locked.server.grace();
            Nfs4Status {
                usage: locked.server.usage(),
                limits: shared.limits,
                lease: shared.lease,
                is_in_grace: locked.server.is_in_grace(),
                grace_left: grace.map(|grace| grace.until.saturating_duration_since(locked.now)),
                awaited: grace.map_or(0, |grace| grace.awaited),
            }
        })
    }

    /// Returns the first clients in the order of their ids, at most so many, each with the time since it renewed its lease.
    pub fn clients(&self, max: usize) -> Vec<(ClientView, Duration)> {
        let mut all: Vec<(ClientView, Duration)> = Vec::new();
        while all.len() < max {
            let after = all.last().map(|(client, _)| client.client);
            let page = (max - all.len()).min(PAGE as usize);
            let since = |now: Instant, client: ClientView| {
                let since = now.saturating_duration_since(client.renewed);
                (client, since)
            };
            let some: Vec<_> = self.with(|locked| {
                let some = locked.server.listing().clients_after(after, page);
                some.into_iter().map(|one| since(locked.now, one)).collect()
            });
            if some.is_empty() {
                break;
            }
            all.extend(some);
        }
        all
    }

    /// Returns the states of a page.
    pub(in crate::nfs4) fn states_from(&self, from: u32) -> StatesWithFiles {
        self.with(|locked| {
            let page = locked.server.listing().states_from(from, PAGE);
            let states = page.states.into_iter().map(|state| {
                let held = locked.held(state.state);
                (state, held)
            });
            StatesWithFiles {
                states: states.collect(),
                next: page.next,
            }
        })
    }

    /// Drops files that were held for a list where nobody waits for a disk.
    pub(in crate::nfs4) fn release_held(&self, held: Vec<Arc<dyn HeldFile>>) {
        let released = held.into_iter().map(Release::Held);
        self.with(|locked| locked.out.released.extend(released));
    }

    /// Revokes all opens and locks of files in exports with such numbers, and closes their files, soon after. Returns the number of
    /// states that now are revoked.
    pub(in crate::nfs4) fn revoke(&self, is_of: impl Fn(u32) -> bool) -> usize {
        let (mut revoked, mut from) = (0, Some(0));
        while let Some(at) = from {
            let some = self.with(|locked| {
                let is_of = |file: &FileKey| is_of(file.export);
                locked.server.revoke_where(locked.now, (at, PAGE), is_of)
            });
            revoked += some.states;
            from = some.next;
        }
        revoked
    }

    /// Finds a client by its id in hexadecimal digits, or by the name under which it is listed.
    ///
    /// # Errors
    ///
    /// `StaleClientId`: there is none.
    pub fn find_client(&self, named: &str) -> Result<ClientId, Status> {
        let all = self.clients(usize::MAX);
        let id = u64::from_str_radix(named, 16).ok().map(ClientId);
        let mut found = all.iter().map(|(client, _)| client);
        let found =
            found.find(|client| Some(client.client) == id || owner_name(&client.owner) == named);
        found
            .map(|client| client.client)
            .ok_or(Status::StaleClientId)
    }
}
