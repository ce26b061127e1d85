//! Cache of the kernel's answers about rights of callers on a file.

use crate::fs::{Identity, Time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Largest number of callers whose rights are cached per open file; the oldest is evicted first.
const MAX_REMEMBERED_CALLERS: usize = 8;

/// Rights of callers on a file, as answered by the kernel.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    kept: Mutex<VecDeque<Verdict>>,
    asked: AtomicBool,
}

#[derive(Debug)]
struct Verdict {
    who: Identity,
    /// Ctime of the file at the time of the answer.
    changed: Time,
    /// For each combination of the three permission bits: whether the answer is known, and whether
    /// it grants them.
    known: u8,
    granted: u8,
}

impl Verdicts {
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
        let verdicts = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = verdicts.iter().find(|verdict| verdict.who == *who)?;
        let bit = 1_u8 << want;
        (verdict.changed == changed && verdict.known & bit != 0)
            .then_some(verdict.granted & bit != 0)
    }

    /// Caches an answer for a file with this ctime.
    pub(super) fn keep(&self, who: &Identity, changed: Time, want: u32, granted: bool) {
        let mut verdicts = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = verdicts.iter().position(|verdict| verdict.who == *who);
        let at = known.unwrap_or_else(|| {
            if verdicts.len() >= MAX_REMEMBERED_CALLERS {
                verdicts.pop_front();
            }
            verdicts.push_back(Verdict {
                who: who.clone(),
                changed,
                known: 0,
                granted: 0,
            });
            verdicts.len() - 1
        });
        let verdict = &mut verdicts[at];
        if verdict.changed != changed {
            (verdict.changed, verdict.known, verdict.granted) = (changed, 0, 0);
        }
        let bit = 1_u8 << want;
        verdict.known |= bit;
        verdict.granted |= if granted { bit } else { 0 };
    }
}
