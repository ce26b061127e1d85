//! Owners that wait for a lock that a local program is in the way of.
//!
//! No system call tells a server that such a lock is gone without a thread that waits for it, so the thread of the state looks from
//! time to time, and has the client called then (RFC 8881 §20.11). A client that is not called asks again by itself, Linux after 30 s.

use super::FileKey;
use super::files::{Other, Release, bytes, mode};
use crate::fs::LockFile;
use crate::nfs4::callbacks::{Callback, Queue};
use nfs_proto::v4::ClientId;
use nfs4_state::lock::{LockKind, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of such owners; each takes a descriptor. A client has at most as many as it leaves free. Others ask again.
const MAX_WAITS: usize = 256;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time after which an owner that has not asked again waits no more. Linux asks every 30 s.
const LIFE: Duration = Duration::from_secs(120);

/// All such owners.
#[derive(Default)]
pub(super) struct LocalWaits {
    waits: Vec<Wait>,
    /// The time of the next look, if there is something to look for.
    due: Option<Instant>,
}

/// An owner, and the lock that it waits for.
pub(super) struct Wait {
    pub(super) client: ClientId,
    pub(super) owner: Arc<[u8]>,
    /// The open that it locks through.
    pub(super) open: Other,
    pub(super) key: FileKey,
    pub(super) range: Range,
    pub(super) kind: LockKind,
    pub(super) file: Arc<dyn LockFile>,
    /// When it asked last.
    pub(super) asked: Instant,
}

impl Wait {
    fn is_by(&self, client: ClientId, key: &FileKey, owner: &[u8]) -> bool {
        self.client == client && self.key == *key && *self.owner == *owner
    }

    /// Returns whether no local program is in the way, or that cannot be found out: the client asks then, and is told why.
    fn is_over(&self) -> bool {
        let found = self.file.test(bytes(self.range), mode(self.kind));
        !matches!(found, Ok(Some(_)))
    }
}

impl LocalWaits {
    /// Enters an owner. If there is no place, it is not called.
    pub(super) fn enter(&mut self, wait: Wait, released: &mut Vec<Release>) {
        self.forget(wait.client, &wait.key, &wait.owner, wait.range, released);
        let its = self
            .waits
            .iter()
            .filter(|other| other.client == wait.client);
        if its.count() >= MAX_WAITS - self.waits.len() {
            released.push(Release::Lock(wait.file));
            return;
        }
        self.due.get_or_insert(wait.asked + INTERVAL);
        self.waits.push(wait);
    }

    /// Forgets an owner where it waited for some of these bytes.
    pub(super) fn forget(
        &mut self,
        client: ClientId,
        key: &FileKey,
        owner: &[u8],
        range: Range,
        released: &mut Vec<Release>,
    ) {
        let gone = |wait: &mut Wait| wait.is_by(client, key, owner) && wait.range.overlaps(range);
        self.remove(gone, released, |_| {});
    }

    /// Forgets those who waited through an open that is gone.
    pub(super) fn closed(&mut self, open: Other, released: &mut Vec<Release>) {
        self.remove(|wait| wait.open == open, released, |_| {});
    }

    /// Looks for what owners wait for, if it is time to: those whose lock is free are called.
    pub(super) fn look(&mut self, now: Instant, calls: &mut Queue, released: &mut Vec<Release>) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let old = |wait: &mut Wait| now.saturating_duration_since(wait.asked) > LIFE;
        self.remove(old, released, |_| {});
        let free = |wait: &mut Wait| wait.is_over();
        self.remove(free, released, |wait| {
            let callback = Callback::NotifyLock {
                owner: Arc::clone(&wait.owner),
                file: wait.key,
            };
            calls.push(wait.client, callback);
        });
        if self.due.is_some() {
            self.due = Some(now + INTERVAL);
        }
    }

    /// Returns the time of the next look.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn remove(
        &mut self,
        gone: impl FnMut(&mut Wait) -> bool,
        released: &mut Vec<Release>,
        mut note: impl FnMut(&Wait),
    ) {
        for wait in self.waits.extract_if(.., gone) {
            note(&wait);
            released.push(Release::Lock(wait.file));
        }
        if self.waits.is_empty() {
            self.due = None;
        }
    }
}
