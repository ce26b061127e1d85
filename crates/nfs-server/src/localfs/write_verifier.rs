//! The write verifier of an export.

use crate::fs::fresh_verifier;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number that changes when data that was not committed may be lost, so that clients send it again
/// (RFC 1813 §4.8). All clones are of one number.
#[derive(Clone)]
pub(super) struct WriteVerifier(Arc<AtomicU64>);

impl WriteVerifier {
    /// Returns one that no server had before.
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(fresh_verifier())))
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Notes that data may be lost.
    pub(super) fn change(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}
