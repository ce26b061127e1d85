//! Locks of byte ranges on files, and those who wait for them (RFC 8881 §9, §18.10 to §18.12).
//!
//! The table knows nothing of state ids: an owner is any comparable value, so that owners of other protocols
//! share it. Locks of one owner split, merge, upgrade and downgrade as those of POSIX.

mod range;
mod table;
mod waiters;

pub use range::{LockKind, Range};
pub use table::{Lock, LockTable, OverLimit};
pub use waiters::Wait;
