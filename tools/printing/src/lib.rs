//! Text and JSON of measurements: what the `rpcrdma` program and the experiments of `testing/lab` print alike.
//!
//! - [`table`]: columns for people.
//! - [`units`]: durations and sizes, parsed and formatted.
//! - [`latency`]: latencies of calls in a histogram.
//! - [`work`]: work of queue pairs per call.
//! - [`json`]: documents and lines for programs.

pub mod json;
pub mod latency;
pub mod table;
pub mod units;
pub mod work;

use serde::Serialize;
use std::io::{self, StdoutLock, Write};

/// Prints a result on standard output: one JSON document, or a table.
///
/// # Errors
///
/// Standard output cannot be written, or a key of a map in the result is no text.
pub fn print<R: Serialize>(
    json: bool,
    result: &R,
    table: fn(&R, &mut StdoutLock<'static>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match json {
        true => writeln!(out, "{}", json::document(result)?),
        false => table(result, &mut out),
    }
}
