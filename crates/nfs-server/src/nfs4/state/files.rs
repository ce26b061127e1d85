//! Files that are kept for opens and for owners of locks, with the locks on them.
//!
//! An owner of locks has one [`LockFile`] for a file, also where it locks through several opens: two would keep each other from what
//! is one owner's.

use super::{FileKey, Principal};
use crate::fs::{ByteRange, HeldFile, LocalLock, LockFile, LockMode};
use nfs_proto::v4::open::ShareAccess;
use nfs_proto::v4::{ClientId, StateId};
use nfs4_state::lock::{LockKind, Range};
use nfs4_state::{Denied, LockRequest, Locker, Server, SteadyMap};
use std::sync::Arc;

/// The part of a state id that stays.
pub(super) type Other = [u8; 12];

/// Files of all opens and owners of locks.
#[derive(Default)]
pub(super) struct Files {
    opens: SteadyMap<Other, Opened>,
    locks: SteadyMap<Other, LockState>,
    /// Clients choose the names, so that the standard hash is needed.
    owners: SteadyMap<Arc<LockOwner>, Owned, std::hash::RandomState>,
}

/// A file that is to be closed, without the lock of the state.
pub(super) enum Release {
    Held(Arc<dyn HeldFile>),
    Lock(#[expect(dead_code, reason = "it is kept to be dropped elsewhere")] Arc<dyn LockFile>),
}

impl Release {
    /// Ends it, if that waits for nothing. Returns whether it did.
    pub(super) fn end_at_once(&mut self) -> bool {
        match self {
            Self::Held(held) => Arc::get_mut(held).is_some_and(HeldFile::end_at_once),
            Self::Lock(_) => false,
        }
    }
}

/// Files of one open: one for reading and one for writing, or one for both.
#[derive(Default)]
struct Opened {
    reading: Option<Arc<dyn HeldFile>>,
    writing: Option<Arc<dyn HeldFile>>,
    both: Option<Arc<dyn HeldFile>>,
}

/// An owner of locks in an open.
struct LockState {
    open: Other,
    owner: Arc<LockOwner>,
}

/// Names an owner of locks of a file.
#[derive(PartialEq, Eq, Hash)]
struct LockOwner {
    client: ClientId,
    file: FileKey,
    name: Box<[u8]>,
}

/// The file of an owner of locks, and its states: one for each open.
struct Owned {
    file: Arc<dyn LockFile>,
    states: Vec<Other>,
}

impl Files {
    /// Keeps the file of an OPEN. An open that has such access already keeps the file that it has.
    pub(super) fn opened(
        &mut self,
        open: StateId,
        access: ShareAccess,
        held: Arc<dyn HeldFile>,
        released: &mut Vec<Release>,
    ) {
        let opened = self.opens.get_or_insert_with(open.other, Opened::default);
        let (reads, writes) = (
            access.contains(ShareAccess::READ),
            access.contains(ShareAccess::WRITE),
        );
        let place = match (reads, writes) {
            (true, true) => &mut opened.both,
            (true, false) => &mut opened.reading,
            (false, _) => &mut opened.writing,
        };
        let unneeded = match place {
            Some(_) => Some(held),
            None => place.replace(held),
        };
        released.extend(unneeded.map(Release::Held));
        if opened.both.is_some() {
            let others = [opened.reading.take(), opened.writing.take()];
            released.extend(others.into_iter().flatten().map(Release::Held));
        }
    }

    /// Returns the file of an open, or of the open of a lock owner: that with the most access.
    pub(super) fn held(&self, state: StateId) -> Option<Arc<dyn HeldFile>> {
        let open = self.locks.get(&state.other).map(|locks| locks.open);
        let opened = self.opens.get(&open.unwrap_or(state.other))?;
        let held = (opened.both.as_ref())
            .or(opened.writing.as_ref())
            .or(opened.reading.as_ref());
        held.cloned()
    }

    /// Returns the file of an owner of locks, by its name.
    pub(super) fn of_owner(
        &self,
        client: ClientId,
        file: FileKey,
        owner: &[u8],
    ) -> Option<&Arc<dyn LockFile>> {
        let name = owner.into();
        let owner = LockOwner { client, file, name };
        self.owners.get(&owner).map(|owned| &owned.file)
    }

    /// Returns the file of an owner of locks, as LOCK names it.
    pub(super) fn of_locker(
        &self,
        client: ClientId,
        file: FileKey,
        locker: Locker<'_>,
    ) -> Option<&Arc<dyn LockFile>> {
        match locker {
            Locker::New { owner, .. } => self.of_owner(client, file, owner),
            Locker::Existing(state) => self.of_state(state),
        }
    }

    /// Returns the open and the name of an owner of locks, as LOCK names it.
    pub(super) fn locker<'a>(&'a self, locker: Locker<'a>) -> Option<(Other, &'a [u8])> {
        match locker {
            Locker::New { open, owner } => Some((open.other, owner)),
            Locker::Existing(state) => {
                let LockState { open, owner } = self.locks.get(&state.other)?;
                Some((*open, &owner.name))
            }
        }
    }

    /// Returns the file of an owner of locks, by its state.
    pub(super) fn of_state(&self, state: StateId) -> Option<&Arc<dyn LockFile>> {
        let locks = self.locks.get(&state.other)?;
        self.owners.get(&locks.owner).map(|owned| &owned.file)
    }

    /// Keeps the file of an owner of locks that has locked something.
    pub(super) fn locked(
        &mut self,
        state: StateId,
        request: &LockRequest<'_, FileKey>,
        file: Arc<dyn LockFile>,
    ) {
        // With another, the state is known.
        let Locker::New { open, owner } = request.locker else {
            return;
        };
        if self.locks.contains_key(&state.other) {
            return;
        }
        let owner = Arc::new(LockOwner {
            client: request.client,
            file: *request.file,
            name: owner.into(),
        });
        let owned = self
            .owners
            .get_or_insert_with(Arc::clone(&owner), || Owned {
                file,
                states: Vec::new(),
            });
        owned.states.push(state.other);
        let open = open.other;
        self.locks.insert(state.other, LockState { open, owner });
    }

    /// Releases the file of a state that is gone. Its locks go now.
    pub(super) fn release(
        &mut self,
        server: &Server<Principal, FileKey>,
        state: StateId,
        released: &mut Vec<Release>,
    ) {
        if let Some(Opened {
            reading,
            writing,
            both,
        }) = self.opens.remove(&state.other)
        {
            let files = [reading, writing, both].into_iter().flatten();
            released.extend(files.map(Release::Held));
            return;
        }
        let Some(LockState { owner, .. }) = self.locks.remove(&state.other) else {
            return;
        };
        let Some(owned) = self.owners.get_mut(&owner) else {
            return;
        };
        owned.states.retain(|&other| other != state.other);
        let Some(&other) = owned.states.first() else {
            owned.file.unlock(ByteRange::ALL);
            let owned = self.owners.remove(&owner);
            released.extend(owned.map(|owned| Release::Lock(owned.file)));
            return;
        };
        // The owner keeps what it has locked through other opens.
        let other = StateId { seqid: 0, other };
        let kept = server.locks_of_owner(owner.client, other);
        unlock_all_but(&*owned.file, kept.map(|(range, _)| range));
    }

    /// Number of all entries, for tests of what is left.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.opens.len() + self.locks.len() + self.owners.len()
    }
}

/// Unlocks all but some ranges, which are in order and do not overlap.
fn unlock_all_but(file: &dyn LockFile, kept: impl Iterator<Item = Range>) {
    let mut next = Some(0);
    for range in kept {
        if let Some(first) = next
            && let Some(last) = range.first().checked_sub(1)
            && first <= last
        {
            file.unlock(ByteRange { first, last });
        }
        next = range.last().checked_add(1);
    }
    if let Some(first) = next {
        let last = u64::MAX;
        file.unlock(ByteRange { first, last });
    }
}

/// A range in the terms of file systems.
pub(super) fn bytes(range: Range) -> ByteRange {
    ByteRange {
        first: range.first(),
        last: range.last(),
    }
}

/// A kind in the terms of file systems.
pub(super) fn mode(kind: LockKind) -> LockMode {
    match kind {
        LockKind::Shared => LockMode::Shared,
        LockKind::Exclusive => LockMode::Exclusive,
    }
}

/// A lock of a local program as a reason for a refusal. Its owner is nobody whom a client knows: no client, and an empty name, as
/// knfsd has it.
pub(super) fn denied_by(local: LocalLock) -> Denied {
    let ByteRange { first, last } = local.range;
    Denied {
        range: Range::of_bytes(first, last).unwrap_or(Range::ALL),
        kind: match local.mode {
            LockMode::Shared => LockKind::Shared,
            LockMode::Exclusive => LockKind::Exclusive,
        },
        client: ClientId(0),
        owner: Arc::default(),
    }
}
