//! Verdicts on cases, and what was sent and came.

use serde::Serialize;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// Requirement level of a rule (RFC 2119).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// MUST, MUST NOT or REQUIRED.
    Must,
    /// SHOULD, SHOULD NOT or RECOMMENDED.
    Should,
    /// No keyword: the peer must survive, and serve others.
    Robustness,
}

impl Level {
    /// As the text writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Robustness => "robustness",
        }
    }
}

/// Verdict on a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The peer follows the rule.
    Pass,
    /// The peer breaks the rule.
    Fail,
    /// The case does not apply, or lacks something it needs.
    Skip,
    /// The case could not be carried out.
    Error,
}

impl Verdict {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skip => "skip",
            Self::Error => "error",
        }
    }
}

/// Reason why a case ended before its last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The peer broke the rule.
    Fail(String),
    /// The case does not apply.
    Skip(String),
    /// The case could not be carried out.
    Error(String),
}

/// Result of a case, or of a step of it.
pub(crate) type Tested<T = ()> = Result<T, Stop>;

/// The peer broke the rule.
pub(crate) fn fail<T>(why: impl Into<String>) -> Tested<T> {
    Err(Stop::Fail(why.into()))
}

/// The case does not apply.
pub(crate) fn skip<T>(why: impl Into<String>) -> Tested<T> {
    Err(Stop::Skip(why.into()))
}

/// The case cannot be carried out.
pub(crate) fn error<T>(why: impl Into<String>) -> Tested<T> {
    Err(Stop::Error(why.into()))
}

/// Fails with this reason unless the condition holds.
pub(crate) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Tested {
    match holds {
        true => Ok(()),
        false => fail(why()),
    }
}

/// Result of a case, with what was sent and what came.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Stable code of the case.
    pub code: &'static str,
    /// The rule, in a sentence.
    pub title: &'static str,
    /// Section of the text that has the rule.
    pub section: &'static str,
    /// Requirement level.
    pub level: Level,
    /// Verdict.
    pub verdict: Verdict,
    /// Reason of the verdict; empty if the case passed.
    pub why: String,
    /// Whether the baseline has this failure.
    pub known: bool,
    /// Duration in milliseconds.
    pub took_ms: f64,
    /// Messages in both directions, in order. The first 64 of a case are kept.
    pub exchange: Vec<Exchanged>,
}

impl Finding {
    /// Whether it turns the run red: a failure, or a case that could not be carried out, that the baseline does not
    /// have.
    pub fn is_unexpected(&self) -> bool {
        matches!(self.verdict, Verdict::Fail | Verdict::Error) && !self.known
    }
}

/// A message, or an event of the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Exchanged {
    /// Direction.
    pub direction: Direction,
    /// Description.
    pub what: String,
    /// Octets in hexadecimal, at most the first 512; empty for an event.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub octets: String,
}

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the peer.
    Sent,
    /// From the peer.
    Came,
}

/// Most messages of a case that are kept for the report.
const MAX_EXCHANGED: usize = 64;

/// Most octets of a message that are kept for the report.
const MAX_OCTETS: usize = 512;

/// Messages of a case, kept for the report. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Rc<RefCell<Vec<Exchanged>>>);

impl Log {
    pub(crate) fn sent(&self, what: impl fmt::Display, octets: &[u8]) {
        self.enter(Direction::Sent, what, octets);
    }

    pub(crate) fn came(&self, what: impl fmt::Display, octets: &[u8]) {
        self.enter(Direction::Came, what, octets);
    }

    fn enter(&self, direction: Direction, what: impl fmt::Display, octets: &[u8]) {
        let mut all = self.0.borrow_mut();
        if all.len() < MAX_EXCHANGED {
            let octets = &octets[..octets.len().min(MAX_OCTETS)];
            let octets = octets.iter().map(|octet| format!("{octet:02x}")).collect();
            all.push(Exchanged {
                direction,
                what: what.to_string(),
                octets,
            });
        }
    }

    pub(crate) fn take(&self) -> Vec<Exchanged> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_a_bounded_number_of_messages_and_octets() {
        let log = Log::default();
        for _ in 0..=MAX_EXCHANGED {
            log.sent("x", &[7; MAX_OCTETS + 1]);
        }
        let kept = log.take();
        assert_eq!(kept.len(), MAX_EXCHANGED);
        assert_eq!(kept[0].octets.len(), 2 * MAX_OCTETS);
    }
}
