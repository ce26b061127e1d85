//! The messages of version two (cel-01, xcharext; ietf-07).

pub(crate) mod header;
pub(crate) mod ietf07;
pub(crate) mod operations;
pub(crate) mod session;
