//! Parts of the listings of directories in the order of a hash of the names.

use crate::fs::FileId;
use rustix::fs::FileType;
use siphasher::sip::SipHasher24;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest part of a directory that is kept between calls, in bytes of names and [`OVERHEAD`]s. A
/// pass over the directory needs twice as much.
const MAX_LISTED: usize = 4 << 20;

/// Bytes of an entry beside its name.
const OVERHEAD: usize = size_of::<Entry>() + 16;

/// Largest number of kept parts.
const MAX_PARTS: usize = 16;

/// Rounds of the sweeper after which a part without a reader is dropped: a minute.
const KEPT_ROUNDS: u64 = 80;

/// Cookie of `.`; that of `..` is the next one.
const FIRST: u64 = 1;

/// A directory entry.
pub(in crate::localfs) struct Entry {
    /// Position in the listing.
    pub(in crate::localfs) cookie: u64,
    pub(in crate::localfs) ino: u64,
    pub(in crate::localfs) kind: FileType,
    pub(in crate::localfs) name: Box<[u8]>,
}

/// Entries that follow one another in the listing of a directory.
pub(in crate::localfs) struct Part {
    pub(in crate::localfs) dir: FileId,
    /// Cookie before the first entry.
    pub(in crate::localfs) from: u64,
    pub(in crate::localfs) entries: Vec<Entry>,
    /// Whether no entry follows.
    pub(in crate::localfs) ends: bool,
    /// Number of the pass among all of the export.
    pub(in crate::localfs) pass: u64,
}

impl Part {
    /// Returns the entries after a cookie; `None` if it is not known which are.
    pub(in crate::localfs) fn after(&self, cookie: u64) -> Option<&[Entry]> {
        let begin = self.entries.partition_point(|entry| entry.cookie <= cookie);
        let known = self.from <= cookie && (self.ends || begin < self.entries.len());
        known.then(|| &self.entries[begin..])
    }
}

/// Parts of the listings of directories.
pub(in crate::localfs) struct Parts {
    kept: Mutex<Kept>,
    /// See [`MAX_LISTED`].
    pub(in crate::localfs) max_listed: usize,
}

#[derive(Default)]
struct Kept {
    /// With the round of their last use, the one used last behind.
    parts: VecDeque<(Arc<Part>, u64)>,
    round: u64,
    passes: u64,
}

impl Parts {
    pub(in crate::localfs) fn new() -> Self {
        Self {
            kept: Mutex::default(),
            max_listed: MAX_LISTED,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a round of the sweeper: drops what was not used for long.
    pub(in crate::localfs) fn begin_round(&self, round: u64) {
        let mut kept = self.kept();
        kept.round = round;
        kept.parts
            .retain(|(_, used)| used.saturating_add(KEPT_ROUNDS) > round);
    }

    /// Returns the part of a directory that tells what follows a cookie.
    pub(in crate::localfs) fn find(&self, dir: FileId, cookie: u64) -> Option<Arc<Part>> {
        let mut kept = self.kept();
        let tells = |part: &Part| part.dir == dir && part.after(cookie).is_some();
        let at = kept.parts.iter().position(|(part, _)| tells(part))?;
        let (part, _) = kept.parts.remove(at)?;
        let round = kept.round;
        kept.parts.push_back((Arc::clone(&part), round));
        Some(part)
    }

    /// Returns the number of a new pass.
    pub(in crate::localfs) fn begin_pass(&self) -> u64 {
        let mut kept = self.kept();
        kept.passes += 1;
        kept.passes
    }

    /// Keeps a part, unless the directory was listed from its beginning since the pass began. A
    /// reader that began then must see all that was there, so the parts from before are dropped.
    pub(in crate::localfs) fn keep(&self, part: &Arc<Part>) {
        let mut kept = self.kept();
        let is_older = |other: &Part| other.dir == part.dir && other.pass < part.pass;
        if part.from == 0 {
            kept.parts.retain(|(other, _)| !is_older(other));
        }
        let is_outdated = |(other, _): &(Arc<Part>, u64)| {
            other.dir == part.dir && other.from == 0 && other.pass > part.pass
        };
        if kept.parts.iter().any(is_outdated) {
            return;
        }
        if kept.parts.len() == MAX_PARTS {
            kept.parts.pop_front();
        }
        let round = kept.round;
        kept.parts.push_back((Arc::clone(part), round));
    }
}

/// The entries that follow a cookie, as many as fit.
pub(in crate::localfs) struct Next {
    from: u64,
    max: usize,
    entries: Vec<Entry>,
    bytes: usize,
    /// Cookie from which on entries were left out.
    end: u64,
}

impl Next {
    pub(in crate::localfs) fn new(from: u64, max: usize) -> Self {
        Self {
            from,
            max,
            entries: Vec::new(),
            bytes: 0,
            end: u64::MAX,
        }
    }

    pub(in crate::localfs) fn push(&mut self, name: &[u8], ino: u64, kind: FileType) {
        let cookie = cookie_of(name);
        if cookie <= self.from || cookie >= self.end {
            return;
        }
        self.bytes += OVERHEAD + name.len();
        self.entries.push(Entry {
            cookie,
            ino,
            kind,
            name: name.into(),
        });
        if self.bytes > 2 * self.max {
            self.cut();
        }
    }

    /// Leaves the last entries out, so that the others fit, or one is left.
    fn cut(&mut self) {
        self.entries.sort_unstable_by_key(|entry| entry.cookie);
        let mut bytes = 0;
        let fits = self.entries.iter().take_while(|entry| {
            bytes += OVERHEAD + entry.name.len();
            bytes <= self.max
        });
        let len = fits.count().max(1);
        if let Some(first) = self.entries.get(len) {
            self.end = first.cookie;
        }
        self.entries.truncate(len);
        let sizes = self.entries.iter().map(|entry| OVERHEAD + entry.name.len());
        self.bytes = sizes.sum();
    }

    pub(in crate::localfs) fn finish(mut self) -> (Vec<Entry>, bool) {
        if self.bytes > self.max {
            self.cut();
        }
        self.entries.sort_unstable_by_key(|entry| entry.cookie);
        (self.entries, self.end == u64::MAX)
    }
}

/// Derives the cookie of an entry. Some clients take cookies for signed numbers. Of two names with
/// one hash, which exist only if they were searched for, one is not listed where a page ends between
/// them.
fn cookie_of(name: &[u8]) -> u64 {
    match name {
        b"." => FIRST,
        b".." => FIRST + 1,
        name => (SipHasher24::new().hash(name) >> 1).max(FIRST + 2),
    }
}
