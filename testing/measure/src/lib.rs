//! Measurements of whole commands and of many connections, beside other implementations, and counts of instructions beside those
//! that are committed: `cargo xtask compare`, `cargo xtask scale` and `cargo xtask count`.

pub mod compare;
mod compared;
pub mod count;
pub mod scale;
