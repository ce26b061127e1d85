//! Counts of operations, errors and bytes by export.
//!
//! An export has a slot by its name, which it keeps across replaced lists and while its file system
//! is missing. Calls carry the number of the slot, so that a call costs two or three additions to
//! memory that threads rarely share, and no lock, no allocation and no reference count.

use crate::metrics::{self, ErrorClass, SHARDS};
use nfs_proto::{AclProcedure, NFSACL_PROGRAM, Procedure, Status};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Largest number of exports with counters of their own since the start. All further names share
/// those of one more slot.
pub const MAX_COUNTED_EXPORTS: usize = 255;

/// Statistics of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportStats {
    /// Path that clients mount; `None` for the sum of the exports beyond
    /// [`MAX_COUNTED_EXPORTS`].
    pub name: Option<String>,
    /// Executed operations of NFS and NFSACL, by class. A repeated call that is answered from the
    /// duplicate request cache is not one of them.
    pub operations: [(OperationClass, u64); OperationClass::ALL.len()],
    /// Failed operations, by class of error.
    pub errors: [(ErrorClass, u64); ErrorClass::ALL.len()],
    /// Bytes of file data that READ returned.
    pub bytes_read: u64,
    /// Bytes of file data that WRITE stored.
    pub bytes_written: u64,
}

/// Class of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationClass {
    /// READ.
    Read,
    /// WRITE and COMMIT.
    Write,
    /// Attributes, rights, names and directories are read.
    Metadata,
    /// Attributes, names and directories are changed.
    Change,
}

impl OperationClass {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Metadata, Self::Change];

    /// Returns the name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Metadata => "metadata",
            Self::Change => "change",
        }
    }

    /// Returns the class of a procedure of NFS or NFSACL.
    fn of(program: u32, procedure: u32) -> Self {
        if program == NFSACL_PROGRAM {
            return match AclProcedure::try_from(procedure) {
                Ok(AclProcedure::SetAcl) => Self::Change,
                Ok(AclProcedure::Null | AclProcedure::GetAcl) | Err(_) => Self::Metadata,
            };
        }
        match Procedure::try_from(procedure) {
            Ok(Procedure::Read) => Self::Read,
            Ok(Procedure::Write | Procedure::Commit) => Self::Write,
            Ok(
                Procedure::SetAttr
                | Procedure::Create
                | Procedure::MkDir
                | Procedure::Symlink
                | Procedure::MkNod
                | Procedure::Remove
                | Procedure::RmDir
                | Procedure::Rename
                | Procedure::Link,
            ) => Self::Change,
            Ok(
                Procedure::Null
                | Procedure::GetAttr
                | Procedure::Lookup
                | Procedure::Access
                | Procedure::ReadLink
                | Procedure::ReadDir
                | Procedure::ReadDirPlus
                | Procedure::FsStat
                | Procedure::FsInfo
                | Procedure::PathConf,
            )
            | Err(_) => Self::Metadata,
        }
    }
}

/// Result of an operation, as far as it is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Class of the error, if the operation failed.
    pub(crate) failure: Option<ErrorClass>,
    /// Bytes of file data, for READ and WRITE.
    pub(crate) bytes: u64,
}

impl Tally {
    /// An operation that moved this much file data.
    pub(crate) fn moved(bytes: u32) -> Self {
        Self {
            failure: None,
            bytes: bytes.into(),
        }
    }

    /// An operation that failed.
    pub(crate) fn failed(status: Status) -> Self {
        Self {
            failure: Some(ErrorClass::of(status)),
            bytes: 0,
        }
    }
}

/// Number of the counters of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u8);

/// Counters of all exports.
pub(crate) struct ExportCounters {
    /// Names of exports in the order of their slots.
    names: Mutex<Vec<String>>,
    slots: [OnceLock<Box<Sharded>>; Slot::COUNT],
}

type Sharded = [Counters; SHARDS];

/// Counters of a shard, aligned to their own cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Counters {
    operations: [AtomicU64; OperationClass::ALL.len()],
    errors: [AtomicU64; ErrorClass::ALL.len()],
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Slot {
    const COUNT: usize = MAX_COUNTED_EXPORTS + 1;

    /// Slot of all exports that have none of their own.
    const FURTHER: Self = Self(u8::MAX);
}

const _: () = assert!(Slot::FURTHER.0 as usize == MAX_COUNTED_EXPORTS);

impl Default for ExportCounters {
    fn default() -> Self {
        Self {
            names: Mutex::default(),
            slots: [const { OnceLock::new() }; Slot::COUNT],
        }
    }
}

impl ExportCounters {
    /// Returns the slot of an export: that of its name or, for a new name, the next free one.
    pub(crate) fn slot(&self, name: &str) -> Slot {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            let next = names.len();
            if next < MAX_COUNTED_EXPORTS {
                names.push(name.to_owned());
            }
            next
        });
        let slot = u8::try_from(index).map_or(Slot::FURTHER, Slot);
        self.slots[usize::from(slot.0)].get_or_init(Box::default);
        slot
    }

    /// Counts an executed operation.
    pub(crate) fn count(&self, slot: Slot, program: u32, procedure: u32, tally: Tally) {
        self.count_as(slot, OperationClass::of(program, procedure), tally);
    }

    /// Counts an executed operation of this class.
    pub(crate) fn count_as(&self, slot: Slot, class: OperationClass, tally: Tally) {
        let Some(sharded) = self.slots[usize::from(slot.0)].get() else {
            return;
        };
        let counters = &sharded[metrics::shard()];
        counters.operations[class as usize].fetch_add(1, Relaxed);
        if let Some(failure) = tally.failure {
            counters.errors[failure as usize].fetch_add(1, Relaxed);
        }
        let moved = match class {
            OperationClass::Read => &counters.bytes_read,
            OperationClass::Write => &counters.bytes_written,
            OperationClass::Metadata | OperationClass::Change => return,
        };
        if tally.bytes > 0 {
            moved.fetch_add(tally.bytes, Relaxed);
        }
    }

    /// Returns the statistics of the exports with these names and slots; of those beyond
    /// [`MAX_COUNTED_EXPORTS`], the sum as the last element.
    pub(crate) fn stats<'a>(
        &self,
        exports: impl Iterator<Item = (&'a str, Slot)>,
    ) -> Vec<ExportStats> {
        let (further, own): (Vec<_>, Vec<_>) =
            exports.partition(|(_, slot)| *slot == Slot::FURTHER);
        let own = own
            .into_iter()
            .map(|(name, slot)| self.sum(slot, Some(name.to_owned())));
        let further = (!further.is_empty()).then(|| self.sum(Slot::FURTHER, None));
        own.chain(further).collect()
    }

    fn sum(&self, slot: Slot, name: Option<String>) -> ExportStats {
        let mut stats = ExportStats {
            name,
            operations: OperationClass::ALL.map(|class| (class, 0)),
            errors: ErrorClass::ALL.map(|class| (class, 0)),
            bytes_read: 0,
            bytes_written: 0,
        };
        let sharded = self.slots[usize::from(slot.0)].get();
        for counters in sharded.into_iter().flat_map(|sharded| sharded.iter()) {
            for ((_, count), counter) in stats.operations.iter_mut().zip(&counters.operations) {
                *count += counter.load(Relaxed);
            }
            for ((_, count), counter) in stats.errors.iter_mut().zip(&counters.errors) {
                *count += counter.load(Relaxed);
            }
            stats.bytes_read += counters.bytes_read.load(Relaxed);
            stats.bytes_written += counters.bytes_written.load(Relaxed);
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::NFS_PROGRAM;

    fn count(counters: &ExportCounters, slot: Slot, procedure: Procedure, tally: Tally) {
        counters.count(slot, NFS_PROGRAM, procedure as u32, tally);
    }

    #[test]
    fn operations_errors_and_bytes_are_those_of_their_export() {
        let counters = ExportCounters::default();
        let [a, b] = ["/a", "/b"].map(|name| counters.slot(name));
        assert_eq!(counters.slot("/a"), a, "a name keeps its slot");
        count(&counters, a, Procedure::Read, Tally::moved(5));
        count(&counters, a, Procedure::Write, Tally::moved(7));
        count(&counters, a, Procedure::Commit, Tally::default());
        count(&counters, b, Procedure::MkDir, Tally::failed(Status::Exist));
        let stats = counters.stats([("/a", a), ("/b", b)].into_iter());
        let [a, b] = &stats[..] else {
            panic!("{stats:?}")
        };
        assert_eq!((a.bytes_read, a.bytes_written), (5, 7));
        let operations = |of: &ExportStats| of.operations.map(|(_, count)| count);
        assert_eq!((operations(a), operations(b)), ([1, 2, 0, 0], [0, 0, 0, 1]));
        assert!(a.errors.iter().all(|(_, count)| *count == 0));
        assert!(b.errors.contains(&(ErrorClass::Exists, 1)));
    }

    #[test]
    fn names_beyond_the_limit_share_a_slot() {
        let counters = ExportCounters::default();
        let names: Vec<String> = (0..MAX_COUNTED_EXPORTS + 2)
            .map(|n| format!("/{n}"))
            .collect();
        let slots: Vec<Slot> = names.iter().map(|name| counters.slot(name)).collect();
        for slot in &slots {
            count(&counters, *slot, Procedure::GetAttr, Tally::default());
        }
        let all = names.iter().map(|name| &**name).zip(slots);
        let stats = counters.stats(all);
        assert_eq!(stats.len(), MAX_COUNTED_EXPORTS + 1);
        let last = stats.last().unwrap();
        assert_eq!(last.name, None);
        assert!(last.operations.contains(&(OperationClass::Metadata, 2)));
        let own = &stats[MAX_COUNTED_EXPORTS - 1];
        assert!(own.operations.contains(&(OperationClass::Metadata, 1)));
    }
}
