//! `cargo xtask tidy`: what the compiler does not check. The compliance tables name what exists, the
//! page of limits is true, and the sources keep the rules of the house.

mod compliance;
mod house;
mod limits;
mod sources;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Something to put right, and where.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    /// Relative to the root of the work tree.
    file: PathBuf,
    /// From one.
    line: usize,
    what: String,
}

impl Fault {
    fn new(file: &Path, line: usize, what: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// Checks the work tree, prints the counts of the compliance tables and every fault.
///
/// # Errors
///
/// There is a fault, or a file cannot be read.
pub(crate) fn run() -> Result<()> {
    let root = crate::root();
    let sources = sources::Sources::read(root)?;
    let mut faults = Vec::new();
    let counts = compliance::check(root, &sources, &mut faults)?;
    limits::check(root, &sources, &mut faults)?;
    house::check(root, &sources, &mut faults)?;
    println!("{counts}");
    for fault in &faults {
        eprintln!("{fault}");
    }
    if !faults.is_empty() {
        bail!("tidy: {} to put right", faults.len());
    }
    Ok(())
}
