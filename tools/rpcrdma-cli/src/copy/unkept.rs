//! Attributes that a copy could not be given.

/// An attribute that a copy lacks which has its data.
#[derive(Debug, thiserror::Error)]
#[error("its {what} could not be kept: {why}")]
pub(crate) struct Unkept {
    what: &'static str,
    why: String,
}

impl Unkept {
    pub(crate) fn new(what: &'static str, why: impl std::fmt::Display) -> Self {
        let why = crate::failure::plain(&why);
        Self { what, why }
    }
}
