//! COMPOUND of NFS versions 4.0, 4.1 and 4.2 (RFC 8267 §6).

mod arguments;
mod attributes;
pub(super) mod operation;
mod results;
mod room;

pub(super) use attributes::bits;

use super::shape::Shape::{Calls, Opaque, Results, Tag, Words};
use super::shape::{Note, Shape, Shapes, accepted};
use crate::limits::{MAX_OPERATIONS, MAX_TAG};
use room::Room;

/// `COMPOUND4args` (RFC 7530 §15.2.1).
pub(super) const CALL: Shapes = &[
    Tag(MAX_TAG),
    Shape::Note(Note::MinorVersion),
    Calls(MAX_OPERATIONS),
];

/// Reply with `COMPOUND4res` (RFC 7530 §15.2.2): its status is that of the last result.
pub(super) const REPLY: Shapes = accepted![Words(1), Opaque(MAX_TAG), Results(MAX_OPERATIONS)];

/// Bytes of `COMPOUND4res` without tag and results.
pub(super) const REPLY_FIXED: usize = 12;

/// Bytes of each result before what depends on the operation: number and status.
pub(super) const RESULT_FIXED: usize = 8;

/// Returns the arguments of an operation and the room for its result. `None` if the minor version
/// does not have it.
pub(super) fn call(minor_version: u32, operation: u32) -> Option<(Shapes, Room)> {
    if operation > operation::last(minor_version)? {
        return None;
    }
    Some((arguments::arguments(operation)?, room::room(operation)))
}

/// Returns the result of an operation, status included. `None` if it is not known.
pub(super) fn result(operation: u32) -> Option<Shapes> {
    results::results(operation)
}

/// Whether a call whose reply does not fit its chunks may be sent again with larger ones (RFC 8267
/// §6.2.1): a GETATTR of version 4.0, beside operations that change nothing.
pub(super) fn may_retry(minor_version: u32, operations: &[u8]) -> bool {
    let operations = || operations.iter().map(|&number| u32::from(number));
    minor_version == 0
        && operations().any(|number| number == operation::GETATTR)
        && operations().all(operation::changes_nothing)
}

#[cfg(test)]
mod tests {
    use super::super::machine::DEPTH;
    use super::*;

    /// Depth of arrays and unions within each other.
    fn depth(shapes: Shapes) -> usize {
        let depths = shapes.iter().map(|shape| match *shape {
            Shape::Array(_, element) | Shape::List(element) => 1 + depth(element),
            Shape::Union(arms, other) => {
                let arms = arms.iter().map(|&(_, arm)| arm).chain(other);
                1 + arms.map(depth).max().unwrap_or(0)
            }
            Shape::Attributes | Shape::KeptOption => 1,
            _ => 0,
        });
        depths.max().unwrap_or(0)
    }

    #[test]
    fn every_operation_is_known_and_no_deeper_than_a_scan_can_go() {
        for &operation in operation::ALL {
            let (arguments, _) = call(2, operation).unwrap();
            let deepest = depth(arguments).max(depth(result(operation).unwrap()));
            // The array of operations is around them.
            assert!(deepest < DEPTH, "{operation}");
        }
    }

    #[test]
    fn minor_versions_have_their_operations() {
        for (minor_version, last) in [(0, 39), (1, 58), (2, 75)] {
            let known = (0..100).filter(|&number| call(minor_version, number).is_some());
            assert_eq!(known.collect::<Vec<_>>(), (3..=last).collect::<Vec<_>>());
        }
        assert!(call(3, operation::PUTFH).is_none());
        assert!(result(2).is_none() && result(76).is_none());
    }
}
