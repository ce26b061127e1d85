//! Remote invalidation: its designs, the rule for handles, and kinds of registered memory.
//!
//! Version one has one design, [`Design::PerConnection`](design::Design::PerConnection): both ends
//! set R in their private data (RFC 8797 §4.1). Version two can agree on any.

pub(crate) mod design;
pub(crate) mod persistent;
pub(crate) mod registration;
pub(crate) mod rule;
