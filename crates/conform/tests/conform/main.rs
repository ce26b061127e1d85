//! Cases against our own peers, which pass, and against broken ones, which are caught.

mod broken_requester;
mod broken_responder;
mod faulty;
mod requester;
mod responder;

use conform::Selection;

/// The cases that patterns select; all without any.
fn only_these(patterns: &[&str]) -> Selection {
    Selection {
        only: patterns.iter().map(|&pattern| pattern.to_owned()).collect(),
        ..Selection::default()
    }
}
