//! What `--check` of `serve` and `gateway` looks at.

use clap::{Args, ValueEnum};

/// The option `--check`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct CheckArgs {
    /// Check the configuration, print what would be done, and exit. With =file, look at the file of --config alone, as
    /// before a reload, and print nothing but an error
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true,
        default_missing_value = "all")]
    pub(crate) check: Option<Checked>,
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Checked {
    /// Whether a start would succeed: also names, ports, devices and directories
    All,
    /// Whether the file can be read and understood
    File,
}
