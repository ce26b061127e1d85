//! Cache of the kernel's answers about rights of callers on a file.

use crate::fs::{Identity, Time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Largest number of callers whose rights are cached per open file; the oldest is evicted first.
const MAX_REMEMBERED_CALLERS: usize = 8;

/// Rights of callers on a file, as answered by the kernel.
#[derive(Debug, Default)]
pub(super) struct KnownRights {
    kept: Mutex<VecDeque<Known>>,
    asked: AtomicBool,
}

#[derive(Debug)]
struct Known {
    who: Identity,
    /// Ctime of the file at the time of the answer.
    changed: Time,
    /// For each combination of the three permission bits: whether the answer is known, and whether
    /// it grants them.
    known: u8,
    granted: u8,
}

impl KnownRights {
    /// Whether the kernel can be asked without waiting for a disk: it was asked before, and so has
    /// the list of this open file in memory. A caller that may wait always asks, which is noted.
    pub(super) fn ask(&self, may_wait: bool) -> bool {
        match may_wait {
            true => {
                self.asked.store(true, Relaxed);
                true
            }
            false => self.asked.load(Relaxed),
        }
    }

    /// Returns the cached answer; `None` if the file has changed since.
    pub(super) fn get(&self, who: &Identity, changed: Time, want: u32) -> Option<bool> {
        let rights = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let of_caller = rights.iter().find(|known| known.who == *who)?;
        let bit = 1_u8 << want;
        (of_caller.changed == changed && of_caller.known & bit != 0)
            .then_some(of_caller.granted & bit != 0)
    }

    /// Caches an answer for a file with this ctime.
    pub(super) fn keep(&self, who: &Identity, changed: Time, want: u32, granted: bool) {
        let mut rights = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = rights.iter().position(|known| known.who == *who);
        let at = known.unwrap_or_else(|| {
            if rights.len() >= MAX_REMEMBERED_CALLERS {
                rights.pop_front();
            }
            rights.push_back(Known {
                who: who.clone(),
                changed,
                known: 0,
                granted: 0,
            });
            rights.len() - 1
        });
        let of_caller = &mut rights[at];
        if of_caller.changed != changed {
            (of_caller.changed, of_caller.known, of_caller.granted) = (changed, 0, 0);
        }
        let bit = 1_u8 << want;
        of_caller.known |= bit;
        of_caller.granted |= if granted { bit } else { 0 };
    }
}
