//! The memory windows of one connection that are not in use, and the keys of their next bindings.

use crate::memory::{Domain, Window};
use std::collections::VecDeque;
use std::io;

/// Windows that a connection allocates before it uses one again: keys that were in use stay invalid for a while.
const FEWEST: usize = 32;

/// A window, and by how much its key changes from one binding to the next.
pub(crate) struct FreeWindow {
    pub(crate) window: Window,
    step: u8,
}

impl FreeWindow {
    /// Key of the next binding. The low byte is the owner's to choose and must change; it returns to the same value
    /// after 256 bindings, as the step is odd.
    pub(crate) fn next_key(&self) -> u32 {
        next_key(self.window.key(), self.step)
    }
}

fn next_key(key: u32, step: u8) -> u32 {
    let [low, ..] = key.to_le_bytes();
    (key & !0xff) | u32::from(low.wrapping_add(step))
}

/// Windows of a connection.
#[derive(Default)]
pub(crate) struct Windows {
    free: VecDeque<FreeWindow>,
    allocated: usize,
}

impl Windows {
    /// A window that is not bound: of those that are free, any of the older half.
    pub(crate) fn take(&mut self, domain: &Domain) -> io::Result<FreeWindow> {
        if self.free.is_empty() || self.allocated < FEWEST {
            match self.allocate(domain) {
                Ok(()) => {}
                Err(error) if self.free.is_empty() => return Err(error),
                Err(error) => tracing::debug!(%error, "no more memory windows"),
            }
        }
        let older_half = self.free.len().div_ceil(2);
        let at = random()? as usize % older_half.max(1);
        let window = self.free.swap_remove_front(at);
        window.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Allocates until there are enough at first, and one more later.
    fn allocate(&mut self, domain: &Domain) -> io::Result<()> {
        let more = FEWEST.saturating_sub(self.allocated).max(1);
        for _ in 0..more {
            let window = domain.window()?;
            let [step, ..] = random()?.to_le_bytes();
            self.allocated += 1;
            self.free.push_back(FreeWindow {
                window,
                step: step | 1,
            });
        }
        Ok(())
    }

    /// Takes back a window whose binding has ended.
    pub(crate) fn give_back(&mut self, window: FreeWindow) {
        self.free.push_back(window);
    }

    /// Gives all free windows back to the device.
    pub(crate) fn clear(&mut self) {
        self.free.clear();
    }
}

/// A number that nobody can guess.
fn random() -> io::Result<u32> {
    getrandom::u32().map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_of_a_window_differ_in_the_low_byte_and_repeat_after_256_bindings() {
        for step in [1, 0x7f, 0xff] {
            let mut key = 0x0001_23fe;
            let mut seen = BTreeSet::new();
            for _ in 0..256 {
                assert!(seen.insert(key), "{key:#x} came twice");
                assert_eq!(key >> 8, 0x123);
                key = next_key(key, step);
            }
            assert_eq!(key, 0x0001_23fe);
        }
    }
}
