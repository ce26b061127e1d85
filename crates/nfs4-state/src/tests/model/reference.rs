//! The opens and locks of clients by brute force: a list of opens, and an entry for each byte and lock owner.

use crate::lock::LockKind;
use nfs_proto::v4::ClientId;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a file that locks are about.
pub(super) const BYTES: u64 = 16;

/// An open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) client: ClientId,
    pub(super) owner: u8,
    pub(super) file: u32,
    /// Access and denial of each OPEN.
    pub(super) parts: Vec<(u32, u32)>,
}

impl Share {
    /// Access and denial of all.
    pub(super) fn union(&self) -> (u32, u32) {
        let parts = self.parts.iter();
        parts.fold((0, 0), |(a, d), part| (a | part.0, d | part.1))
    }
}

/// A lock owner: a client, and a number.
pub(super) type Locker = (ClientId, u8);

/// A lock on a byte: its kind, and the open owner through which it was made.
pub(super) type ByteLock = (LockKind, u8);

#[derive(Clone, Debug, Default)]
pub(super) struct Reference {
    pub(super) shares: Vec<Share>,
    pub(super) bytes: BTreeMap<(u32, u64), BTreeMap<Locker, ByteLock>>,
}

impl Reference {
    /// Clients whose opens are in the way of one.
    pub(super) fn share_conflicts(&self, file: u32, access: u32, deny: u32) -> BTreeSet<ClientId> {
        let of_file = self.shares.iter().filter(|share| share.file == file);
        let conflicts = of_file.filter(|share| {
            let (its_access, its_deny) = share.union();
            access & its_deny != 0 || deny & its_access != 0
        });
        conflicts.map(|share| share.client).collect()
    }

    pub(super) fn open(&mut self, client: ClientId, owner: u8, file: u32, access: u32, deny: u32) {
        match self.share_mut(client, owner, file) {
            Some(share) => share.parts.push((access, deny)),
            None => self.shares.push(Share {
                client,
                owner,
                file,
                parts: vec![(access, deny)],
            }),
        }
    }

    pub(super) fn share_mut(
        &mut self,
        client: ClientId,
        owner: u8,
        file: u32,
    ) -> Option<&mut Share> {
        self.shares
            .iter_mut()
            .find(|share| (share.client, share.owner, share.file) == (client, owner, file))
    }

    pub(super) fn close(&mut self, client: ClientId, owner: u8, file: u32) {
        self.shares
            .retain(|share| (share.client, share.owner, share.file) != (client, owner, file));
        for (_, locks) in self.bytes.range_mut((file, 0)..(file + 1, 0)) {
            locks.retain(|&(its, _), &mut (_, via)| (its, via) != (client, owner));
        }
    }

    /// Clients whose locks are in the way of one.
    pub(super) fn lock_conflicts(
        &self,
        locker: Locker,
        file: u32,
        (first, last): (u64, u64),
        kind: LockKind,
    ) -> BTreeSet<ClientId> {
        let mut clients = BTreeSet::new();
        for (_, locks) in self.bytes.range((file, first)..=(file, last)) {
            for (&other, &(its, _)) in locks {
                if other != locker && its.conflicts(kind) {
                    clients.insert(other.0);
                }
            }
        }
        clients
    }

    pub(super) fn lock(
        &mut self,
        locker: Locker,
        file: u32,
        (first, last): (u64, u64),
        lock: Option<ByteLock>,
    ) {
        for byte in first..=last {
            let locks = self.bytes.entry((file, byte)).or_default();
            match lock {
                Some(lock) => locks.insert(locker, lock),
                None => locks.remove(&locker),
            };
        }
    }

    pub(super) fn end(&mut self, client: ClientId) {
        self.shares.retain(|share| share.client != client);
        for locks in self.bytes.values_mut() {
            locks.retain(|&(its, _), _| its != client);
        }
    }

    /// Locks of a client.
    pub(super) fn locks_of(&self, client: ClientId) -> Vec<(u32, u64, u8, ByteLock)> {
        let all = self.bytes.iter().flat_map(|(&(file, byte), locks)| {
            let its = locks.iter().filter(|((its, _), _)| *its == client);
            its.map(move |(&(_, owner), &lock)| (file, byte, owner, lock))
        });
        all.collect()
    }

    /// Panics if two owners hold what they cannot both hold.
    pub(super) fn check(&self) {
        for (at, share) in self.shares.iter().enumerate() {
            let (access, deny) = share.union();
            for other in self.shares[..at]
                .iter()
                .filter(|other| other.file == share.file)
            {
                let (its_access, its_deny) = other.union();
                let conflict = access & its_deny != 0 || deny & its_access != 0;
                assert!(!conflict, "{share:?} {other:?}");
            }
        }
        for (byte, locks) in &self.bytes {
            let exclusive = locks.values().any(|(kind, _)| *kind == LockKind::Exclusive);
            assert!(!exclusive || locks.len() == 1, "{byte:?} {locks:?}");
        }
    }
}
