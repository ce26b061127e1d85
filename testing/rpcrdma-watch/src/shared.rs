//! State shared by all parties of a watch: findings, and notes of events.

use rpcrdma_proto::Design;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most findings that are kept: the first ones tell the story.
const MAX_FINDINGS: usize = 20;

/// Receives a line for each event.
pub type Notes = Arc<dyn Fn(String) + Send + Sync>;

/// Findings and notes of one [`Watch`](crate::Watch).
#[derive(Default)]
pub(super) struct Shared {
    findings: Mutex<Vec<String>>,
    /// Connections by the design for remote invalidation that was agreed on (reminv §4).
    designs: Mutex<BTreeMap<Design, u64>>,
    notes: Option<Notes>,
}

impl Shared {
    pub(super) fn with_notes(notes: Notes) -> Self {
        Self {
            notes: Some(notes),
            ..Self::default()
        }
    }

    pub(super) fn findings(&self) -> Vec<String> {
        lock(&self.findings).clone()
    }

    pub(super) fn designs(&self) -> BTreeMap<Design, u64> {
        lock(&self.designs).clone()
    }

    pub(super) fn finding(&self, what: impl fmt::Display) {
        let what = what.to_string();
        self.note(|| format!("FOUND: {what}"));
        let mut findings = lock(&self.findings);
        if findings.len() < MAX_FINDINGS {
            findings.push(what);
        }
    }

    pub(super) fn agreed(&self, design: Design) {
        *lock(&self.designs).entry(design).or_default() += 1;
    }

    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        if let Some(notes) = &self.notes {
            notes(line());
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
