//! The memory that the Receives of all connections of a server share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection has Receives for at most such a part of what is left for others.
const PART: usize = 8;

/// Bytes left for Receives.
#[derive(Clone, Debug)]
pub(super) struct ReceiveMemory {
    left: Arc<Mutex<usize>>,
}

/// The part of one connection, which goes back when this is dropped.
#[derive(Debug)]
pub(super) struct ReceiveLease {
    memory: ReceiveMemory,
    bytes: usize,
    /// Receives that there is memory for.
    pub(super) receives: usize,
}

impl ReceiveMemory {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            left: Arc::new(Mutex::new(bytes)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for as many of `wanted` Receives of `size` bytes as a new connection may have.
    pub(super) fn take(&self, wanted: usize, size: usize) -> ReceiveLease {
        let mut left = self.lock();
        let receives = granted(*left, wanted, size);
        let bytes = receives * size;
        *left -= bytes;
        drop(left);
        ReceiveLease {
            memory: self.clone(),
            bytes,
            receives,
        }
    }
}

/// Of `wanted` Receives of `size` bytes, those that a new connection gets where `left` bytes are left:
/// all, as long as they are at most an eighth of what is left; none if nothing is left.
pub(super) fn granted(left: usize, wanted: usize, size: usize) -> usize {
    let left = left / size;
    // The last ones are given one by one.
    wanted.min((left / PART).max(1)).min(left)
}

impl Drop for ReceiveLease {
    fn drop(&mut self) {
        *self.memory.lock() += self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_get_fewer_as_memory_does_and_come_back() {
        let memory = ReceiveMemory::new(1000 * 10);
        let leases: Vec<_> = (0..100).map(|_| memory.take(100, 10)).collect();
        let taken: Vec<usize> = leases.iter().map(|lease| lease.receives).collect();
        assert_eq!(taken[0], 100);
        assert!(taken.is_sorted_by(|a, b| a >= b), "{taken:?}");
        assert!(taken.iter().sum::<usize>() <= 1000);
        assert_eq!(taken[99], 0);
        drop(leases);
        assert_eq!(memory.take(100, 10).receives, 100);
    }
}
