//! Printing what was measured.

use anyhow::Result;
use serde::Serialize;
use std::io::{StdoutLock, Write};

/// Prints what was measured: one JSON document, or a table.
pub(super) fn print<R: Serialize>(
    json: bool,
    report: &R,
    table: fn(&R, &mut StdoutLock<'static>) -> std::io::Result<()>,
) -> Result<()> {
    crate::output::check()?;
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", crate::json::document(report)?)?;
    } else {
        table(report, &mut out)?;
    }
    Ok(())
}
