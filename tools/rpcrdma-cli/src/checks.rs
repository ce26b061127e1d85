//! What `--check` of `serve` and `gateway` looks at.

use crate::failure::Usage;
use anyhow::bail;
use clap::{Args, ValueEnum};
use std::path::Path;

/// The option `--check`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct CheckArgs {
    /// Check the configuration, print what would be done, and exit. With =file, look at the file of --config alone, as
    /// before a reload, and print nothing but an error
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true,
        default_missing_value = "all")]
    pub(crate) check: Option<Checked>,
}

impl CheckArgs {
    /// Whether the file of `--config` alone is checked.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn is_of_file(&self, config: Option<&Path>) -> anyhow::Result<bool> {
        match (self.check, config) {
            (Some(Checked::File), Some(_)) => Ok(true),
            (Some(Checked::File), None) => {
                bail!(Usage(
                    "--check=file looks at a file alone: name it with --config FILE".to_owned()
                ))
            }
            (Some(Checked::All) | None, _) => Ok(false),
        }
    }
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Checked {
    /// Whether a start would succeed: also names, ports, devices and directories
    All,
    /// Whether the file can be read and understood
    File,
}
