//! Attributes on the wire (RFC 8881 §5): values for GETATTR and READDIR, changes of SETATTR and of new objects, and comparisons
//! of VERIFY and NVERIFY.

mod changes;
mod support;
#[cfg(test)]
mod tests;
mod usual;
mod values;

pub(super) use changes::{Changes, Purpose, changes};
pub(super) use support::{Needs, Support, bound, check_get, needs};
pub(super) use values::{ServerValues, Subject, same, write_attributes};

/// Nanoseconds of a second.
const SECOND: u32 = 1_000_000_000;
