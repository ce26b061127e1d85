//! Results of a run, and the forms in which they are written.

mod junit;
mod tap;
mod text;

use crate::known::Known;
use crate::verdict::{Finding, Verdict};
use serde::Serialize;

pub use junit::junit;
pub use tap::Tap;
pub use text::{listing, summary, verdict_line};

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Report {
    /// Address of the peer, or at which Requesters were waited for.
    pub peer: String,
    /// Side that was tested: `responder` or `requester`.
    pub side: &'static str,
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed, those that the baseline has among them.
    pub failed: usize,
    /// Cases that were not run.
    pub skipped: usize,
    /// Cases that could not be carried out.
    pub errors: usize,
    /// Codes of cases that failed or could not be carried out, and are not in the baseline.
    pub new_failures: Vec<&'static str>,
    /// Codes of cases that the baseline has as failures, and that passed.
    pub now_pass: Vec<&'static str>,
    /// Each case, in the order in which they ran.
    pub findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(
        peer: String,
        side: &'static str,
        findings: Vec<Finding>,
        known: &Known,
    ) -> Self {
        let count = |verdict| {
            let of = findings.iter().filter(|finding| finding.verdict == verdict);
            of.count()
        };
        let codes = |is: &dyn Fn(&&Finding) -> bool| -> Vec<&'static str> {
            findings
                .iter()
                .filter(is)
                .map(|finding| finding.code)
                .collect()
        };
        Self {
            peer,
            side,
            passed: count(Verdict::Pass),
            failed: count(Verdict::Fail),
            skipped: count(Verdict::Skip),
            errors: count(Verdict::Error),
            new_failures: codes(&|finding| finding.is_unexpected()),
            now_pass: codes(&|finding| finding.verdict == Verdict::Pass && known.has(finding.code)),
            findings,
        }
    }

    /// Number of cases that turn the run red.
    pub fn unexpected(&self) -> usize {
        self.new_failures.len()
    }

    /// Whether any case came to a verdict on the peer.
    pub fn tested_anything(&self) -> bool {
        self.passed + self.failed > 0
    }
}
