//! Results of the suite, beside those that are expected.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Result, bail};

/// Result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// Its dependencies have failed, or the server lacks what it tests.
    Skipped,
}

/// A case that was run.
#[derive(Debug, PartialEq, Eq)]
struct Case {
    outcome: Outcome,
    /// Reason of a failure.
    message: String,
}

/// The cases that were run, by code.
#[derive(Debug)]
pub(super) struct Results {
    cases: BTreeMap<String, Case>,
    took: Duration,
}

/// Reasons of cases that are expected to fail, by code.
pub(super) struct Known(BTreeMap<String, String>);

impl Known {
    /// Reads a list: a code and its reason in a line each, between comments.
    ///
    /// # Errors
    ///
    /// A code has no reason, or stands there twice.
    pub(super) fn read(text: &str) -> Result<Self> {
        let mut known = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((code, why)) = line.split_once(char::is_whitespace) else {
                bail!("{line} has no reason");
            };
            let before = known.insert(code.to_owned(), why.trim().to_owned());
            if before.is_some() {
                bail!("{code} is there twice");
            }
        }
        Ok(Self(known))
    }
}

impl Results {
    /// Reads the list at the end of the suite's output, between two lines of asterisks: a line for each case, and behind it
    /// its message, if it has one.
    pub(super) fn read(output: &str, took: Duration) -> Self {
        let mut lines = output.lines().rev();
        let is_ruler = |line: &&str| line.len() > 10 && line.bytes().all(|byte| byte == b'*');
        lines.by_ref().find(is_ruler);
        let list: Vec<&str> = lines.take_while(|line| !is_ruler(line)).collect();
        let mut cases = BTreeMap::new();
        let mut code = None;
        for line in list.into_iter().rev() {
            if line.starts_with(' ') {
                let case = code.as_ref().and_then(|code| cases.get_mut(code));
                if let Some(Case { message, .. }) = case {
                    let separator = if message.is_empty() { "" } else { " " };
                    message.push_str(separator);
                    message.push_str(line.trim());
                }
                continue;
            }
            let Some((case, result)) = line.rsplit_once(" : ") else {
                continue;
            };
            let outcome = match result {
                "PASS" | "WARNING" | "UNSUPPORTED" => Outcome::Passed,
                "FAILURE" => Outcome::Failed,
                _ => Outcome::Skipped,
            };
            let name = case.split_whitespace().next().unwrap_or_default();
            let message = String::new();
            cases.insert(name.to_owned(), Case { outcome, message });
            code = Some(name.to_owned());
        }
        Self { cases, took }
    }

    /// Whether no case was run.
    pub(super) fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// Cases that failed and are not expected to, or passed and are expected to fail.
    pub(super) fn unexpected<'a>(&'a self, known: &'a Known) -> impl Iterator<Item = &'a str> {
        let is_unexpected = move |(code, case): &(&'a String, &'a Case)| match case.outcome {
            Outcome::Passed => known.0.contains_key(*code),
            Outcome::Failed => !known.0.contains_key(*code),
            Outcome::Skipped => false,
        };
        let cases = self.cases.iter().filter(is_unexpected);
        cases.map(|(code, _)| &**code)
    }

    fn count(&self, outcome: Outcome) -> usize {
        let cases = self.cases.values();
        cases.filter(|case| case.outcome == outcome).count()
    }

    /// A line for each case that failed, or passed against what is expected, and one with the counts.
    pub(super) fn describe(&self, known: &Known) -> String {
        let mut text = String::new();
        for (code, Case { outcome, message }) in &self.cases {
            let reason = known.0.get(code);
            let (mark, why) = match (outcome, reason) {
                (Outcome::Failed, Some(reason)) => ("known", reason),
                (Outcome::Failed, None) => ("FAILED", message),
                (Outcome::Passed, Some(reason)) => ("PASSED", reason),
                (Outcome::Passed, None) | (Outcome::Skipped, _) => continue,
            };
            let _ = writeln!(text, "{code:<10}  {mark:<6}  {why}");
        }
        let unexpected = self.unexpected(known).count();
        let _ = writeln!(
            text,
            "{} passed, {} failed, {} skipped, {unexpected} of them unexpected, in {} s",
            self.count(Outcome::Passed),
            self.count(Outcome::Failed),
            self.count(Outcome::Skipped),
            self.took.as_secs()
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
INIT     st_a.testSetup : FAILURE
**************************************************
CSESS1   st_create_session.testSupported1                         : PASS
CSESS2   st_create_session.testSupported2                         : FAILURE
            OP_CREATE_SESSION should return NFS4_OK, instead got
            NFS4ERR_INVAL
DELEG1   st_delegation.testReadDeleg                              : FAILURE
            no delegation
DELEG2   st_delegation.testWriteDeleg                             : PASS
EID1     st_exchange_id.testSupported                             : WARNING
LKPP4    st_lookupp.testSpecial                                   : OMIT
**************************************************
Command line asked for 6 of 264 tests
Of those: 1 Skipped, 2 Failed, 1 Warned, 2 Passed
";

    #[test]
    fn cases_are_told_with_what_is_expected_of_them() {
        let known = "# of later\nDELEG1  not built\nDELEG2  not built\nDELEG3  not built\n";
        let known = Known::read(known).unwrap();
        let results = Results::read(OUTPUT, Duration::from_secs(7));
        let unexpected: Vec<&str> = results.unexpected(&known).collect();
        assert_eq!(unexpected, ["CSESS2", "DELEG2"]);
        assert_eq!(
            results.describe(&known),
            "CSESS2      FAILED  OP_CREATE_SESSION should return NFS4_OK, instead got NFS4ERR_INVAL\n\
             DELEG1      known   not built\n\
             DELEG2      PASSED  not built\n\
             3 passed, 2 failed, 1 skipped, 2 of them unexpected, in 7 s\n"
        );
    }

    #[test]
    fn output_without_a_list_has_no_cases() {
        for output in [
            "",
            "Initialization failed, no tests run.\n",
            "***********\n",
        ] {
            assert!(Results::read(output, Duration::ZERO).is_empty(), "{output}");
        }
    }

    #[test]
    fn list_of_expected_failures_has_a_reason_for_each_and_none_twice() {
        assert!(Known::read("A1\n").is_err());
        assert!(Known::read("A1 why\nA1 why\n").is_err());
    }

    #[test]
    fn committed_list_is_one() {
        let path = programs::root().join(super::super::KNOWN);
        Known::read(&std::fs::read_to_string(path).unwrap()).unwrap();
    }
}
