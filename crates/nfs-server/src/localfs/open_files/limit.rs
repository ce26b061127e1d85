//! The number of files that exports keep open.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bounds of the number of files kept open by all exports together. Within them it is a quarter of
/// the descriptor limit of the process, as a file takes up to three descriptors.
const OPEN_FILES: std::ops::RangeInclusive<usize> = 64..=16_384;

/// Largest number of files kept open by an export.
pub(super) const MOST: usize = *OPEN_FILES.end();

/// The part of the files that an export may keep open for which no client holds one, as its reciprocal.
pub(super) const OTHERS_PART: usize = 4;

/// Exports that share the descriptors of this process.
static EXPORTS: AtomicUsize = AtomicUsize::new(0);

/// One of [`EXPORTS`].
pub(super) struct Counted;

impl Counted {
    pub(super) fn new() -> Self {
        EXPORTS.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        EXPORTS.fetch_sub(1, Relaxed);
    }
}

/// Returns the number of files that each export may keep open.
pub(super) fn share_of_files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    share(limit, EXPORTS.load(Relaxed))
}

fn share(limit: Option<u64>, exports: usize) -> usize {
    let quarter = limit.map_or(*OPEN_FILES.end(), |limit| {
        usize::try_from(limit / 4).unwrap_or(usize::MAX)
    });
    quarter.clamp(*OPEN_FILES.start(), *OPEN_FILES.end()) / exports.max(1)
}

/// Returns how many files may be held, of those that may be open.
pub(super) fn most_held(most: usize) -> usize {
    most - most / OTHERS_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_left_for_those_that_no_client_holds() {
        assert_eq!(most_held(100), 75);
        assert_eq!(most_held(3), 3);
        assert_eq!(most_held(1), 1);
    }

    #[test]
    fn exports_share_the_descriptors_of_the_process() {
        assert_eq!(share(Some(4096), 1), 1024);
        assert_eq!(share(Some(4096), 4), 256);
        assert_eq!(share(Some(16), 1), *OPEN_FILES.start());
        assert_eq!(share(None, 2), OPEN_FILES.end() / 2);
    }
}
