//! Lists of states, in pages.

use super::{Kind, States};
use crate::lock::{LockKind, Range};
use crate::server::{MAX_LISTED_LOCKS, StateKind, StateView};
use nfs_proto::v4::ClientId;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Numbers of what a client has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UsageOfClient {
    pub(crate) opens: usize,
    pub(crate) locks: usize,
    pub(crate) waiting: usize,
    pub(crate) revoked: usize,
}

impl<F: Clone + Eq + Hash> States<F> {
    /// Returns how much a client has.
    pub(crate) fn usage_of(&self, client: ClientId) -> UsageOfClient {
        let its = self.clients.get(&client);
        its.map_or_else(UsageOfClient::default, |its| UsageOfClient {
            opens: its.opens,
            locks: its.locks,
            waiting: its.waiting,
            revoked: its.revoked,
        })
    }

    /// Places of a page, and the place of the next one, if there may be more.
    fn places(&self, from: u32, max: u32) -> (std::ops::Range<u32>, Option<u32>) {
        // Places are not numbered beyond what there was room for.
        let end = u32::try_from(self.entries.capacity()).unwrap_or(u32::MAX);
        let last = from.saturating_add(max).min(end);
        (from..last, (last < end).then_some(last))
    }

    /// Returns the states of a page, and the place of the next one.
    pub(crate) fn page(&self, from: u32, max: u32) -> (Vec<StateView<F>>, Option<u32>) {
        let (places, next) = self.places(from, max);
        (places.filter_map(|at| self.view(at)).collect(), next)
    }

    fn view(&self, at: u32) -> Option<StateView<F>> {
        let entry = self.entries.get(at as usize)?;
        let kind = match &entry.kind {
            Kind::Open(open) => StateKind::Open {
                access: open.access,
                deny: open.deny,
            },
            Kind::Locks { .. } => {
                let held = self.locks.of_file(&entry.file).iter();
                let held = held.filter(|lock| lock.via == at);
                let mut locks: Vec<(Range, LockKind)> = held
                    .map(|lock| (lock.range, lock.kind))
                    .take(MAX_LISTED_LOCKS + 1)
                    .collect();
                let has_more = locks.len() > MAX_LISTED_LOCKS;
                locks.truncate(MAX_LISTED_LOCKS);
                StateKind::Locks { locks, has_more }
            }
        };
        Some(StateView {
            state: self.id_of(at),
            client: entry.client,
            owner: Arc::clone(&self.owners[entry.owner as usize].name),
            file: entry.file.clone(),
            is_revoked: entry.is_revoked,
            kind,
        })
    }

    /// Returns the files of the states of a page that are such files and not revoked, and the place of the next page.
    pub(crate) fn files_of(
        &self,
        from: u32,
        max: u32,
        is_of: impl Fn(&F) -> bool,
    ) -> (HashSet<F>, Option<u32>) {
        let (places, next) = self.places(from, max);
        let entries = places.filter_map(|at| self.entries.get(at as usize));
        let entries = entries.filter(|entry| !entry.is_revoked && is_of(&entry.file));
        (entries.map(|entry| entry.file.clone()).collect(), next)
    }
}
