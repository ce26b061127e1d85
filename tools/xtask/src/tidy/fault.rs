//! Report of a broken rule.

use std::fmt;
use std::path::{Path, PathBuf};

/// Something to put right, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Relative to the root of the work tree.
    file: PathBuf,
    /// From one.
    line: usize,
    what: String,
}

impl Fault {
    pub(super) fn new(file: &Path, line: usize, what: impl Into<String>) -> Self {
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
