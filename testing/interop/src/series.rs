//! The kernels to choose from.

use clap::ValueEnum;

/// A series of kernels that Debian 12 packages.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Series {
    /// Debian 12's own
    #[default]
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13's, packaged for Debian 12 too
    #[value(name = "6.12")]
    V6_12,
}

impl Series {
    /// Its number.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }
}
