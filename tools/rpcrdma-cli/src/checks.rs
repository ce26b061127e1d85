//! The option `--check` of `serve` and `gateway`.

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
    check: Option<Checked>,
}

impl CheckArgs {
    /// Returns the kind of check, with this file of `--config`.
    ///
    /// # Errors
    ///
    /// If it is the file, and there is none.
    pub(crate) fn wanted(&self, config: Option<&Path>) -> anyhow::Result<Option<Checked>> {
        match (self.check, config) {
            (Some(Checked::File), None) => {
                bail!(Usage(
                    "--check=file looks at a file alone: name it with --config FILE".to_owned()
                ))
            }
            (wanted, _) => Ok(wanted),
        }
    }
}

/// The extent of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Checked {
    /// Whether a start would succeed: also names, ports, devices and directories
    All,
    /// Whether the file can be read and understood
    File,
}
