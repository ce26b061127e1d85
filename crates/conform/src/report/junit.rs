//! JUnit's XML, as continuous integration reads it.

use super::Report;
use crate::verdict::{Direction, Finding, Verdict};
use std::fmt::Write;

/// A report in XML. A known failure is a case that was skipped, so that it is not red.
pub fn junit(report: &Report) -> String {
    let known = report
        .findings
        .iter()
        .filter(|finding| finding.known)
        .count();
    let failures = report
        .findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Fail && !finding.known)
        .count();
    let seconds: f64 = report
        .findings
        .iter()
        .map(|finding| finding.took_ms)
        .sum::<f64>()
        / 1e3;
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    // A string takes all that is written.
    let _ = writeln!(
        xml,
        "<testsuite name=\"rpcrdma conform {}\" tests=\"{}\" failures=\"{failures}\" errors=\"{}\" skipped=\"{}\" \
         time=\"{seconds:.3}\">",
        report.side,
        report.findings.len(),
        report.new_failures.len() - failures,
        report.skipped + known,
    );
    for finding in &report.findings {
        case(finding, &mut xml);
    }
    xml.push_str("</testsuite>\n");
    xml
}

fn case(finding: &Finding, xml: &mut String) {
    let area = finding
        .code
        .rsplit_once('-')
        .map_or(finding.code, |(area, _)| area);
    let seconds = finding.took_ms / 1e3;
    let _ = write!(
        xml,
        "  <testcase classname=\"{area}\" name=\"{} {}\" time=\"{seconds:.3}\">",
        finding.code,
        escaped(finding.title)
    );
    let why = escaped(&finding.why);
    let _ = match (finding.verdict, finding.known) {
        (Verdict::Pass, _) => Ok(()),
        (Verdict::Skip, _) => write!(xml, "<skipped message=\"{why}\"/>"),
        (_, true) => write!(xml, "<skipped message=\"known: {why}\"/>"),
        (Verdict::Fail, false) => write!(
            xml,
            "<failure message=\"{why}\">{}</failure>",
            escaped(&details(finding))
        ),
        (Verdict::Error, false) => write!(xml, "<error message=\"{why}\"/>"),
    };
    xml.push_str("</testcase>\n");
}

fn details(finding: &Finding) -> String {
    let mut text = format!("{} ({})\n", finding.section, finding.level.name());
    for message in &finding.exchange {
        let direction = match message.direction {
            Direction::Sent => "sent",
            Direction::Came => "came",
        };
        let _ = writeln!(text, "{direction}: {} {}", message.what, message.octets);
    }
    text
}

/// Text as XML 1.0 takes it: no control characters, and nothing of markup.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_cannot_be_markup() {
        assert_eq!(
            escaped("<a b=\"&\">\u{1}"),
            "&lt;a b=&quot;&amp;&quot;&gt;\u{fffd}"
        );
    }
}
