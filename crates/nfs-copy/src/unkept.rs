//! Attributes that a copy could not be given.

/// An attribute that a copy with its data lacks.
#[derive(Debug, thiserror::Error)]
#[error("its {what} could not be kept: {why}")]
pub struct Unkept {
    what: &'static str,
    why: String,
}

impl Unkept {
    pub(crate) fn new(what: &'static str, why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        Self { what, why }
    }
}
