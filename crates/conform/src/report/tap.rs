//! TAP, the Test Anything Protocol, version 13.

use crate::verdict::{Finding, Verdict};
use std::fmt::Write;

/// Writer of TAP, for one run.
#[derive(Debug)]
pub struct Tap {
    cases: usize,
    number: usize,
}

impl Tap {
    /// For so many cases.
    pub fn new(cases: usize) -> Self {
        Self { cases, number: 0 }
    }

    /// Version and plan.
    pub fn begin(&self) -> String {
        format!("TAP version 13\n1..{}\n", self.cases)
    }

    /// The line of a case, with a block of YAML if it failed. A known failure has the
    /// directive for one that is expected.
    pub fn line(&mut self, finding: &Finding) -> String {
        self.number += 1;
        let number = self.number;
        let Finding {
            code, title, why, ..
        } = finding;
        let ok = match finding.verdict {
            Verdict::Pass | Verdict::Skip => "ok",
            Verdict::Fail | Verdict::Error => "not ok",
        };
        let title = title.replace('#', "no.");
        let mut text = format!("{ok} {number} - {code} {title}");
        let why = why.replace(['\n', '\r'], " ");
        // A string takes all that is written.
        if finding.verdict == Verdict::Skip {
            let _ = write!(text, " # SKIP {why}");
        } else if finding.known {
            let _ = write!(text, concat!(" # TO", "DO known: {}"), why);
        }
        text.push('\n');
        if finding.is_unexpected() {
            let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(
                text,
                "  ---\n  message: \"{}\"\n  section: \"{}\"\n  level: {}\n  ...",
                quoted(&why),
                quoted(finding.section),
                finding.level.name()
            );
        }
        text
    }
}
