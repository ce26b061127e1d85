//! Measurements of whole commands and of many connections, beside other implementations: `cargo xtask compare` and
//! `cargo xtask scale`.

pub mod compare;
mod compared;
pub mod scale;
