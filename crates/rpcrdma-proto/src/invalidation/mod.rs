//! Remote invalidation: which designs there are, which handles go by them, and what is registered.
//!
//! Version one knows one design, [`Design::PerConnection`](design::Design::PerConnection): both ends
//! set R in their private data (RFC 8797 §4.1). Version two can agree on any.

pub(crate) mod design;
pub(crate) mod persistent;
pub(crate) mod registration;
pub(crate) mod rule;
