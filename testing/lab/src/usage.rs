//! Command lines that make no sense.

/// Options make no sense together: exit code 2, as for options that do not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);
