//! Entries of a directory, by name and in the order of their creation.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Largest cookie before those of entries: 1 is `.` and 2 is `..`.
pub(super) const DOTS: u64 = 2;

/// Which names are one name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names {
    /// The same bytes for all spellings of a name; without it, a name is its bytes.
    pub(super) key: Option<fn(&[u8]) -> Vec<u8>>,
    /// Whether the spellings differ in case.
    pub(super) fold_case: bool,
}

impl Names {
    fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        match self.key {
            None => name.into(),
            Some(key) => key(name).into(),
        }
    }
}

/// Entries of a directory. A cookie belongs to one entry and is never reused, so that cookies stay
/// valid while entries are added and removed.
pub(super) struct Directory {
    pub(super) parent: u64,
    names: Names,
    by_name: HashMap<Arc<[u8]>, (u64, u64)>,
    by_cookie: BTreeMap<u64, (Arc<[u8]>, u64)>,
    last_cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: u64, names: Names) -> Self {
        Self {
            parent,
            names,
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
        let key = self.names.key(name);
        self.by_name.get(&*key).map(|(_, file)| *file)
    }

    /// The name of an entry as it was made; for a name without an entry, that name.
    pub(super) fn spelling(&self, name: &[u8]) -> Arc<[u8]> {
        let found = self.by_name.get(&*self.names.key(name));
        let spelled = found.and_then(|(cookie, _)| self.by_cookie.get(cookie));
        spelled.map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }

    /// Adds an entry with an unused name.
    pub(super) fn insert(&mut self, name: &[u8], file: u64) {
        self.last_cookie += 1;
        let key = self.names.key(name);
        let name: Arc<[u8]> = name.into();
        // Both maps share the bytes where they are the same.
        let key = match key {
            Cow::Borrowed(_) => Arc::clone(&name),
            Cow::Owned(folded) => folded.into(),
        };
        self.by_name.insert(key, (self.last_cookie, file));
        self.by_cookie.insert(self.last_cookie, (name, file));
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let (cookie, file) = self.by_name.remove(&*self.names.key(name))?;
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
