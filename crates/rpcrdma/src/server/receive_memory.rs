//! Memory budget for the Receives of all connections of a server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A new connection gets Receives for at most one `PART`th of what is left.
const PART: usize = 8;

/// The budget: bytes left for Receives.
#[derive(Clone, Debug)]
pub(super) struct ReceiveMemory {
    left: Arc<Mutex<usize>>,
}

/// The share of one connection, returned to the budget on drop.
#[derive(Debug)]
pub(super) struct ReceiveLease {
    memory: ReceiveMemory,
    bytes: usize,
    /// Number of Receives that the share is good for.
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

    /// Takes memory for as many of `wanted` Receives of `size` bytes as a new connection may have.
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

/// Returns how many of `wanted` Receives of `size` bytes a new connection gets where `left` bytes
/// are left: at most an eighth of what is left, and none if nothing is left.
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
