//! Entries of a directory, by name and in the order of their creation.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Largest cookie before those of entries: 1 is `.` and 2 is `..`.
pub(super) const DOTS: u64 = 2;

/// Entries of a directory. A cookie belongs to one entry and is never reused, so that cookies stay
/// valid while entries are added and removed.
pub(super) struct Directory {
    pub(super) parent: u64,
    by_name: HashMap<Arc<[u8]>, (u64, u64)>,
    by_cookie: BTreeMap<u64, (Arc<[u8]>, u64)>,
    last_cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: u64) -> Self {
        Self {
            parent,
            by_name: HashMap::new(),
            by_cookie: BTreeMap::new(),
            last_cookie: DOTS,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|(_, file)| *file)
    }

    /// Adds an entry with an unused name.
    pub(super) fn insert(&mut self, name: &[u8], file: u64) {
        self.last_cookie += 1;
        let name: Arc<[u8]> = name.into();
        self.by_name
            .insert(Arc::clone(&name), (self.last_cookie, file));
        self.by_cookie.insert(self.last_cookie, (name, file));
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let (cookie, file) = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie);
        Some(file)
    }

    /// Returns names, cookies and files after a cookie. `this` is the directory itself.
    pub(super) fn list(&self, this: u64, after: u64) -> impl Iterator<Item = (&[u8], u64, u64)> {
        let dots: [(&[u8], u64, u64); 2] = [(b".", 1, this), (b"..", DOTS, self.parent)];
        let entries = self
            .by_cookie
            .range(after.saturating_add(1)..)
            .map(|(cookie, (name, file))| (&**name, *cookie, *file));
        dots.into_iter()
            .filter(move |(_, cookie, _)| *cookie > after)
            .chain(entries)
    }
}
