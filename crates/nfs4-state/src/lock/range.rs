//! Ranges of bytes, and kinds of locks on them.

use nfs_proto::v4::Status;
use nfs_proto::v4::lock::LockType;

/// A range of bytes that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    first: u64,
    last: u64,
}

impl Range {
    /// A whole file, however long it gets.
    pub const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    /// Creates a range as LOCK, LOCKT and LOCKU have it: a length of all ones is to the end of the file, however long
    /// it gets (RFC 8881 §18.10.3).
    ///
    /// # Errors
    ///
    /// `Invalid`: the length is zero, or the sum of offset and length is more than 2⁶⁴ − 1 (RFC 8881 §18.10.3).
    pub fn new(offset: u64, length: u64) -> Result<Self, Status> {
        let last = match length {
            0 => return Err(Status::Invalid),
            u64::MAX => u64::MAX,
            length => offset.checked_add(length).ok_or(Status::Invalid)? - 1,
        };
        Ok(Self {
            first: offset,
            last,
        })
    }

    /// Creates a range from its first to its last byte; `None` if that is before the first.
    pub fn of_bytes(first: u64, last: u64) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// Returns the first byte.
    pub fn first(self) -> u64 {
        self.first
    }

    /// Returns the last byte; `u64::MAX` is the end of the file, however long it gets.
    pub fn last(self) -> u64 {
        self.last
    }

    /// Returns the number of bytes as the protocol has it: all ones if the range is to the end.
    pub fn length(self) -> u64 {
        match self.last {
            u64::MAX => u64::MAX,
            last => last - self.first + 1,
        }
    }

    /// Returns whether two ranges have a byte in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns what of a range is before another that overlaps it, and what is behind.
    pub(super) fn without(self, other: Self) -> [Option<Self>; 2] {
        let before = other.first.checked_sub(1);
        let behind = other.last.checked_add(1);
        [
            before.and_then(|last| Self::of_bytes(self.first, last)),
            behind.and_then(|first| Self::of_bytes(first, self.last)),
        ]
    }

    /// Returns whether two ranges overlap, or one begins directly behind the other.
    pub(super) fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    /// Returns the smallest range with both.
    pub(super) fn joined(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Any number of owners may have it.
    Shared,
    /// One owner has it.
    Exclusive,
}

impl LockKind {
    /// Returns whether locks of two owners cannot both be held.
    pub fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

impl From<LockType> for LockKind {
    fn from(kind: LockType) -> Self {
        match kind {
            LockType::Read | LockType::ReadWait => Self::Shared,
            LockType::Write | LockType::WriteWait => Self::Exclusive,
        }
    }
}

impl From<LockKind> for LockType {
    fn from(kind: LockKind) -> Self {
        match kind {
            LockKind::Shared => Self::Read,
            LockKind::Exclusive => Self::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_all_ones_is_to_the_end() {
        let check = |offset, length, expected: Result<(u64, u64), Status>| {
            let range = Range::new(offset, length).map(|r| (r.first(), r.last()));
            assert_eq!(range, expected, "{offset} {length}");
        };
        check(0, 1, Ok((0, 0)));
        check(5, 10, Ok((5, 14)));
        check(5, u64::MAX, Ok((5, u64::MAX)));
        check(u64::MAX, u64::MAX, Ok((u64::MAX, u64::MAX)));
        check(1, u64::MAX - 1, Ok((1, u64::MAX - 1)));
        check(2, u64::MAX - 1, Err(Status::Invalid));
        check(u64::MAX, 1, Err(Status::Invalid));
        check(7, 0, Err(Status::Invalid));
        assert_eq!(Range::new(5, u64::MAX).unwrap().length(), u64::MAX);
        assert_eq!(Range::new(5, 6).unwrap().length(), 6);
    }
}
