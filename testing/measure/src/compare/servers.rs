//! Our server beside the kernel's, under the kernel's client.

use std::path::Path;

use anyhow::Result;

use super::table::{Bounds, Row};
use crate::compared::Compared;
use interop::{self, GuestMachine, ServerTimes};

const BOUNDS: Bounds = Bounds {
    must: 1.15,
    aim: 1.0,
};

/// Measures in a guest, and says what that is.
///
/// # Errors
///
/// It cannot be measured.
pub(super) fn measure(
    program: &Path,
    version: &str,
    rounds: usize,
    install: bool,
) -> Result<(Vec<Row>, GuestMachine)> {
    let ServerTimes { guest, works } = interop::time_servers(program, version, rounds, install)?;
    let rows = works.into_iter().map(|work| Row {
        name: work.name.to_owned(),
        beside: "knfsd",
        times: Compared::of(&work.rounds),
        bounds: Some(BOUNDS),
    });
    Ok((rows.collect(), guest))
}
