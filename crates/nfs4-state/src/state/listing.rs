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

impl UsageOfClient {
    /// Returns how much a client has.
    pub(crate) fn of<F>(states: &States<F>, client: ClientId) -> Self {
        let its = states.clients.get(&client);
        its.map_or_else(Self::default, |its| Self {
            opens: its.opens,
            locks: its.locks,
            waiting: its.waiting,
            revoked: its.revoked,
        })
    }
}

/// Some places of states.
pub(crate) struct Page<'a, F> {
    states: &'a States<F>,
    places: std::ops::Range<u32>,
    /// Place of the next page, if there may be more.
    next: Option<u32>,
}

impl<'a, F: Clone + Eq + Hash> Page<'a, F> {
    /// The places from one on, at most so many.
    pub(crate) fn at(states: &'a States<F>, from: u32, max: u32) -> Self {
        // Places are not numbered beyond what there was room for.
        let end = u32::try_from(states.entries.places()).unwrap_or(u32::MAX);
        let last = from.saturating_add(max).min(end);
        Self {
            states,
            places: from..last,
            next: (last < end).then_some(last),
        }
    }

    /// Returns the states, and the place of the next page.
    pub(crate) fn states(self) -> (Vec<StateView<F>>, Option<u32>) {
        let views = self.places.filter_map(|at| view(self.states, at));
        (views.collect(), self.next)
    }

    /// Returns the files of states that are such files and not revoked, and the place of the next page.
    pub(crate) fn files(self, is_of: impl Fn(&F) -> bool) -> (HashSet<F>, Option<u32>) {
        let entries = &self.states.entries;
        let entries = self.places.filter_map(|at| entries.get(at as usize));
        let entries = entries.filter(|entry| !entry.is_revoked && is_of(&entry.file));
        let files = entries.map(|entry| entry.file.clone()).collect();
        (files, self.next)
    }
}

fn view<F: Clone + Eq + Hash>(states: &States<F>, at: u32) -> Option<StateView<F>> {
    let entry = states.entries.get(at as usize)?;
    let kind = match &entry.kind {
        Kind::Open(open) => StateKind::Open {
            access: open.access,
            deny: open.deny,
        },
        Kind::Locks { .. } => {
            let held = states.locks.of_file(&entry.file).iter();
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
        state: states.id_of(at),
        client: entry.client,
        owner: Arc::clone(&states.owners[entry.owner as usize].name),
        file: entry.file.clone(),
        is_revoked: entry.is_revoked,
        kind,
    })
}
