//! The kernel's answers to what callers may do with a file.

use crate::fs::{Identity, Time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Callers whose rights are kept beside an open file; those of the one asked about first go first.
const MAX_REMEMBERED_CALLERS: usize = 8;

/// What the kernel said callers may do with a file.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    kept: Mutex<VecDeque<Verdict>>,
    asked: AtomicBool,
}

#[derive(Debug)]
struct Verdict {
    who: Identity,
    /// The file's time of change when it was asked.
    changed: Time,
    /// By the three bits of a class that were asked for together: whether it is known, and granted.
    known: u8,
    granted: u8,
}

impl Verdicts {
    /// Whether the kernel may be asked without waiting for a disk: it was before, and so has the list of this
    /// file, which is kept open, in memory. Who may wait asks in any case, and that is noted.
    pub(super) fn ask(&self, may_wait: bool) -> bool {
        match may_wait {
            true => {
                self.asked.store(true, Relaxed);
                true
            }
            false => self.asked.load(Relaxed),
        }
    }

    /// What is known; of a file that changed since, nothing.
    pub(super) fn get(&self, who: &Identity, changed: Time, want: u32) -> Option<bool> {
        let verdicts = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = verdicts.iter().find(|verdict| verdict.who == *who)?;
        let bit = 1_u8 << want;
        (verdict.changed == changed && verdict.known & bit != 0)
            .then_some(verdict.granted & bit != 0)
    }

    /// Keeps an answer about the file as it was when it had last changed then.
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
