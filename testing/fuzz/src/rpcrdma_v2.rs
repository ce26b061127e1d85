//! The messages of version two (cel-01, xcharext).

pub(crate) mod header;
pub(crate) mod operations;
pub(crate) mod session;
