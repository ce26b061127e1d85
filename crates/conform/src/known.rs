//! Baselines: failures that are expected of a peer.

use crate::case::Case;
use crate::report::Report;
use crate::verdict::{Finding, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Expected failures, by the codes of their cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known(BTreeMap<String, String>);

impl Known {
    /// Reads a baseline: a code of these cases on each line, and a reason behind it. A line that begins with `#` is a
    /// comment.
    ///
    /// # Errors
    ///
    /// If a line begins with something that is no code, or a code occurs twice.
    pub fn parse(text: &str, cases: &[&Case]) -> Result<Self, String> {
        let codes: Vec<&str> = cases.iter().map(|case| case.code).collect();
        let mut known = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (code, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            if !codes.contains(&code) {
                return Err(format!("line {number}: there is no case {code}"));
            }
            let reason = reason.trim().to_owned();
            if known.insert(code.to_owned(), reason).is_some() {
                return Err(format!("line {number}: {code} is there twice"));
            }
        }
        Ok(Self(known))
    }

    /// A baseline with the failures of a report. Reasons that this one has for them stay. Cases that came to no verdict,
    /// as they do behind one that ends the peer, are in it only if they are in this one.
    pub fn updated(&self, report: &Report) -> String {
        let peer = &report.peer;
        let mut text = format!("# Expected failures of {peer}, for `rpcrdma conform --known`.\n");
        let failed = |finding: &&Finding| match finding.verdict {
            Verdict::Fail => true,
            Verdict::Error => self.has(finding.code),
            _ => false,
        };
        for finding in report.findings.iter().filter(failed) {
            let reason = match self.0.get(finding.code) {
                Some(reason) if !reason.is_empty() => reason,
                _ => &finding.why,
            };
            let reason = reason.replace(['\n', '\r'], " ");
            // A string takes all that is written.
            let _ = writeln!(text, "{}  {reason}", finding.code);
        }
        text
    }

    /// The finding, as known if the baseline has it.
    pub(crate) fn marked(&self, mut finding: Finding) -> Finding {
        let failed = matches!(finding.verdict, Verdict::Fail | Verdict::Error);
        finding.known = failed && self.0.contains_key(finding.code);
        finding
    }

    /// Whether the baseline has a failure of this case.
    pub(crate) fn has(&self, code: &str) -> bool {
        self.0.contains_key(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_has_codes_with_reasons() {
        let text = "# comment\n\nHDR-01  drops the connection\n  NFS-01\n";
        let known = Known::parse(text, &crate::responder_cases()).unwrap();
        assert!(known.has("HDR-01") && known.has("NFS-01") && !known.has("HDR-02"));
        for wrong in ["HDR-999 x", "HDR-01\nHDR-01 y", "hello"] {
            assert!(
                Known::parse(wrong, &crate::responder_cases()).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn update_keeps_reasons_and_drops_what_passes_or_was_not_tested() {
        let cases = crate::responder_cases();
        let case = |code: &str| *cases.iter().find(|case| case.code == code).unwrap();
        let of = |code, tested| crate::run::finding(case(code), tested, std::time::Duration::ZERO);
        let fails = |why: &str| Err(crate::verdict::Stop::Fail(why.to_owned()));
        let gone = || Err(crate::verdict::Stop::Error("the peer has ended".to_owned()));
        let known = Known::parse("HDR-01 the reason\nHDR-02 gone\nHDR-05 hangs", &cases).unwrap();
        let findings = vec![
            known.marked(of("HDR-01", fails("again"))),
            known.marked(of("HDR-02", Ok(()))),
            known.marked(of("HDR-03", fails("new\nline"))),
            known.marked(of("HDR-04", gone())),
            known.marked(of("HDR-05", gone())),
        ];
        let report = Report::new("peer".to_owned(), "responder", findings, &known);
        assert_eq!(report.now_pass, ["HDR-02"]);
        assert_eq!(report.unexpected(), 2);
        let text = known.updated(&report);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let expected = ["HDR-01  the reason", "HDR-03  new line", "HDR-05  hangs"];
        assert_eq!(lines, expected);
        Known::parse(&text, &cases).unwrap();
    }
}
