//! Numbers by which clients tell files apart (`fileid`).
//!
//! With `fsid`, the number of the export, a fileid identifies a file (RFC 1813 §2.6): programs on
//! clients take files with equal numbers for names of one file. Inode numbers identify a file only
//! within a device (POSIX `sys/stat.h`), and an export may have several.

use super::id;
use super::node::Node;
use super::sys::{Pace, Stat};
use super::{Inner, Resolver};
use crate::fs::FileId;
use siphasher::sip::SipHasher24;

/// Inode number of the root directory of each subvolume of btrfs.
pub(super) const SUBVOLUME_ROOT: u64 = 256;

/// Source of the numbers of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileIds {
    /// The inode numbers: all files are of one device.
    Inodes,
    /// The inode numbers, mixed with the number of the subvolume, which is in the kernel handles of
    /// btrfs; without it in this subvolume, that of the export.
    Subvolumes(u64),
    /// The ids of files: inode numbers are of several devices, and may change.
    Ids,
}

impl FileIds {
    /// Returns the number of the root directory, which has this key among the open files.
    pub(super) fn of_root(self, key: u64, stat: &Stat) -> u64 {
        match self {
            Self::Ids => key,
            Self::Inodes | Self::Subvolumes(_) => stat.attributes.fileid,
        }
    }
}

impl Inner {
    /// Returns the number of a file that clients are told.
    pub(super) fn fileid(&self, file: FileId, ino: u64) -> u64 {
        match self.file_ids {
            FileIds::Inodes => ino,
            FileIds::Subvolumes(export) => ino ^ mix(export, file),
            FileIds::Ids => self.key_of(file),
        }
    }

    /// Returns the number of an entry of a directory from the inode number in the entry; `None` if
    /// the file has to be looked at.
    pub(super) fn fileid_of_entry(&self, dir: &Node, ino: u64, is_directory: bool) -> Option<u64> {
        match self.file_ids {
            FileIds::Inodes => Some(ino),
            // The entry of a subvolume has its number in place of an inode number.
            FileIds::Subvolumes(_) if is_directory => None,
            FileIds::Subvolumes(export) => Some(ino ^ mix(export, dir.id())),
            FileIds::Ids => None,
        }
    }

    /// Returns the number of the directory above one in the export, from the inode number in its
    /// entry.
    pub(super) fn fileid_of_parent(&self, dir: &Node, ino: u64) -> u64 {
        let is_within = self.file_ids == FileIds::Inodes
            || matches!(self.file_ids, FileIds::Subvolumes(_)) && dir.ino != SUBVOLUME_ROOT;
        match is_within {
            true => self.fileid_of_entry(dir, ino, false).unwrap_or(ino),
            false => self
                .parent(dir, Pace::Patient)
                .map_or(ino, |parent| parent.fileid),
        }
    }
}

/// Returns the source of the numbers of files in an export with this root.
pub(super) fn file_ids(resolver: &Resolver, root: FileId, uniform: bool) -> FileIds {
    match (resolver, id::subvolume(root)) {
        (Resolver::Kernel(_), Some(subvolume)) => FileIds::Subvolumes(subvolume),
        _ if uniform => FileIds::Inodes,
        _ => FileIds::Ids,
    }
}

/// Returns the bits that distinguish the inode numbers of a subvolume from those of the export's.
fn mix(export: u64, file: FileId) -> u64 {
    match id::subvolume(file) {
        Some(subvolume) if subvolume != export => SipHasher24::new().hash(&subvolume.to_be_bytes()),
        Some(_) | None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syscalls::FileHandle;

    /// A kernel handle of btrfs (`struct btrfs_fid`): inode, subvolume, generation.
    fn handle(ino: u64, subvolume: u64) -> FileId {
        let mut bytes = [ino.to_ne_bytes(), subvolume.to_ne_bytes()].concat();
        bytes.extend_from_slice(&[7; 4]);
        id::of_kernel(&FileHandle::new(0x4d, &bytes).unwrap()).unwrap()
    }

    #[test]
    fn subvolumes_have_numbers_of_their_own() {
        let number = |ino, subvolume| ino ^ mix(5, handle(ino, subvolume));
        assert_eq!(number(257, 5), 257, "the export itself keeps its numbers");
        let others = [number(257, 256), number(257, 257), number(258, 256)];
        for (n, other) in others.iter().enumerate() {
            assert!(*other > u32::MAX.into());
            assert!(!others[n + 1..].contains(other));
        }
    }

    #[test]
    fn only_handles_of_btrfs_have_a_subvolume() {
        assert_eq!(id::subvolume(handle(257, 300)), Some(300));
        let other = FileHandle::new(1, &[1; 20]).unwrap();
        assert_eq!(id::subvolume(id::of_kernel(&other).unwrap()), None);
        let short = FileHandle::new(0x4d, &[1; 12]).unwrap();
        assert_eq!(id::subvolume(id::of_kernel(&short).unwrap()), None);
    }
}
