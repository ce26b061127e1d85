//! Cases against our own peers, which pass, and against broken ones, which are caught.

mod broken_ietf07;
mod broken_requester;
mod broken_responder;
mod faulty;
mod free_responder;
mod requester;
mod responder;

use conform::{Report, Selection, Verdict};

/// The cases that patterns select; all without any.
fn only_these(patterns: &[&str]) -> Selection {
    Selection {
        only: patterns.iter().map(|&pattern| pattern.to_owned()).collect(),
        ..Selection::default()
    }
}

/// A run of these cases, each with its code alone, has failed them all.
#[track_caller]
fn assert_fails(report: &Report, codes: &[&str]) {
    assert_eq!(report.findings.len(), codes.len(), "{codes:?}");
    for finding in &report.findings {
        assert_eq!(finding.verdict, Verdict::Fail, "{finding:?}");
    }
}
