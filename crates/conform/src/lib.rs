//! Conformance cases for RPC-over-RDMA, against any Responder and any Requester.
//!
//! Each [`Case`] has a stable code, the section of the text that it tests, and the requirement level of the rule. A run
//! ([`Responder`]) makes connections, sends messages, compares what comes with what the text says, and looks after
//! each case whether the peer still serves others. [`Report`] has the verdicts, and is written as a table, TAP, JUnit's
//! XML or JSON. [`Known`] is a baseline of expected failures.
//!
//! Cases speak through work requests of any provider, RDMA devices among them, and are exactly as wrong as they
//! want in messages and memory. Those below RPC-over-RDMA, of MPA, DDP and RDMAP, speak through [`iwarp`], which has frames
//! of its own. [`header`], [`ietf07`] and [`rpc`] write messages down as words.
//!
//! A case judges by the text alone. Where a text leaves a choice, each answer that it allows passes; where it is silent, the
//! level is robustness, and the peer has to survive.

mod bed;
mod case;
mod deadline;
mod fixture;
pub mod header;
pub mod ietf07;
pub mod iwarp;
mod known;
mod link;
mod message;
pub mod report;
pub mod requester;
mod responder;
pub mod rpc;
mod run;
mod verdict;

pub use case::Case;
pub use fixture::Fixture;
pub use known::Known;
pub use report::Report;
pub use requester::requester_cases;
pub use run::{NobodyThere, Responder, Selection, Told, estimate, responder_cases};
pub use verdict::{Direction, Exchanged, Finding, Level, Verdict};

/// Bytes of these words, as XDR has them.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Words of these bytes, whose number is a multiple of four.
///
/// # Panics
///
/// If it is not.
pub fn as_words(bytes: &[u8]) -> Vec<u32> {
    let (chunks, rest) = bytes.as_chunks();
    assert!(rest.is_empty(), "{} bytes are no words", bytes.len());
    chunks.iter().copied().map(u32::from_be_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_and_titles_say_something() {
        let mut codes = BTreeSet::new();
        for case in responder_cases().into_iter().chain(requester_cases()) {
            assert!(codes.insert(case.code), "{} is there twice", case.code);
            let (area, number) = case.code.rsplit_once('-').unwrap();
            assert!(
                area.bytes()
                    .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'-')
            );
            assert!(
                number.len() == 2 && number.parse::<u8>().is_ok(),
                "{}",
                case.code
            );
            assert!(
                case.section.contains('§'),
                "{}: {}",
                case.code,
                case.section
            );
            assert!(
                !case.title.is_empty() && !case.title.ends_with('.'),
                "{}",
                case.code
            );
        }
    }
}
