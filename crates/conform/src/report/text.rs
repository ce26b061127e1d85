//! Tables for people.

use super::Report;
use crate::case::Case;
use crate::verdict::{Direction, Finding, Verdict};
use std::fmt::Write;

/// Octets of a line of a dump.
const OCTETS: usize = 16;

/// One line for a case: verdict, code, level, title. Behind one that did not pass stands its reason; with `exchange`, the
/// messages of a case that failed follow, and their octets.
pub fn verdict_line(finding: &Finding, exchange: bool) -> String {
    let Finding {
        code, title, level, ..
    } = finding;
    let verdict = match finding.known {
        true => "known",
        false => finding.verdict.name(),
    };
    let level = level.name();
    let mut text = format!("{verdict:<5}  {code:<8}  {level:<10}  {title}\n");
    if !finding.why.is_empty() {
        // A string takes all that is written.
        let _ = writeln!(text, "       {}", finding.why);
    }
    if matches!(finding.verdict, Verdict::Fail | Verdict::Error) {
        let _ = writeln!(text, "       {}", finding.section);
        if exchange {
            exchanged(finding, &mut text);
        }
    }
    text
}

fn exchanged(finding: &Finding, text: &mut String) {
    for message in &finding.exchange {
        let arrow = match message.direction {
            Direction::Sent => "->",
            Direction::Came => "<-",
        };
        let _ = writeln!(text, "       {arrow} {}", message.what);
        let octets: Vec<&str> = (0..message.octets.len() / 2)
            .map(|at| &message.octets[2 * at..2 * at + 2])
            .collect();
        for (at, line) in (0..).step_by(OCTETS).zip(octets.chunks(OCTETS)) {
            let _ = writeln!(text, "          {at:04x}  {}", line.join(" "));
        }
    }
}

/// Counts of a run, with the codes that matter.
pub fn summary(report: &Report) -> String {
    let Report {
        passed,
        failed,
        skipped,
        errors,
        new_failures,
        now_pass,
        ..
    } = report;
    let known = report
        .findings
        .iter()
        .filter(|finding| finding.known)
        .count();
    let mut text = format!("{passed} passed, {failed} failed, {skipped} skipped");
    if *errors > 0 {
        let _ = write!(text, ", {errors} could not be carried out");
    }
    if known > 0 {
        let _ = write!(text, "; {known} of the failures are known");
    }
    text.push('\n');
    if !new_failures.is_empty() {
        let _ = writeln!(text, "failures: {}", new_failures.join(" "));
    }
    if !now_pass.is_empty() {
        let _ = writeln!(
            text,
            "known failures that now pass: {} (take them out of the baseline)",
            now_pass.join(" ")
        );
    }
    text
}

/// One line for each case, in columns: code, level, section and title.
pub fn listing<'a>(cases: impl Iterator<Item = &'a Case>) -> String {
    let mut text = String::new();
    for case in cases {
        let (code, level) = (case.code, case.level.name());
        let _ = writeln!(
            text,
            "{code:<8}  {level:<10}  {}\n{:22}{}",
            case.title, "", case.section
        );
    }
    text
}
