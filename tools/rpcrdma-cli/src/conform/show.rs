//! Output of a run: a table that grows, TAP, or JSON at the end.

use crate::output::stdout;
use ::conform::{Case, Finding, Report, report};
use printing::json;
use std::io::Write;
use std::time::Duration;

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Tap,
    Json,
}

/// Shows a run as it goes on.
pub(super) struct Show {
    form: Form,
    verbose: bool,
    tap: report::Tap,
}

impl Show {
    pub(super) fn new(form: Form, verbose: bool) -> Self {
        Self {
            form,
            verbose,
            tap: report::Tap::new(0),
        }
    }

    /// Prints the peer under test, the number of cases, and how long they take.
    pub(super) fn begin(
        &mut self,
        what: &str,
        cases: usize,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let seconds = ::conform::estimate(cases).as_secs().max(1);
        let patience = printing::units::duration(patience);
        let mut out = stdout();
        match self.form {
            Form::Text => writeln!(
                out,
                "{what}: {cases} cases, about {seconds} s, and up to {patience} for each answer that does not come"
            )?,
            Form::Tap => {
                self.tap = report::Tap::new(cases);
                write!(out, "{}", self.tap.begin())?;
            }
            Form::Json => {}
        }
        Ok(out.flush()?)
    }

    /// A case begins.
    pub(super) fn begins(&self, code: &str) -> anyhow::Result<()> {
        tracing::debug!(code, "begins");
        Ok(())
    }

    /// A case has ended.
    pub(super) fn ended(&mut self, finding: &Finding) -> anyhow::Result<()> {
        let mut out = stdout();
        match self.form {
            Form::Text => write!(out, "{}", report::verdict_line(finding, self.verbose))?,
            Form::Tap => write!(out, "{}", self.tap.line(finding))?,
            Form::Json => {}
        }
        Ok(out.flush()?)
    }

    /// The run has ended.
    pub(super) fn end(&self, found: &Report) -> anyhow::Result<()> {
        let mut out = stdout();
        match self.form {
            Form::Text => write!(out, "\n{}", report::summary(found))?,
            Form::Tap => {}
            Form::Json => writeln!(out, "{}", json::line(found)?)?,
        }
        Ok(())
    }
}

/// Prints cases.
pub(super) fn list(cases: &[&'static Case]) -> anyhow::Result<()> {
    let listing = report::listing(cases.iter().copied());
    Ok(write!(stdout(), "{listing}")?)
}
