//! Stage.
pub(crate) struct Stage;
