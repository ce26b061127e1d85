//! Numbers by which clients tell files apart (`fileid`).
//!
//! With `fsid`, the number of the export, a fileid identifies a file (RFC 1813 §2.6): programs on
//! clients take files with equal numbers for names of one file. Inode numbers identify a file only
//! within a device (POSIX `sys/stat.h`), and an export may have several.

use crate::fs::FileId;
use crate::localfs::id;
use siphasher::sip::SipHasher24;

/// Inode number of the root directory of each subvolume of btrfs.
const SUBVOLUME_ROOT: u64 = 256;

/// Source of the numbers of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::localfs) enum FileIds {
    /// The inode numbers: all files are of one device.
    Inodes,
    /// The inode numbers, mixed with the number of the subvolume, which is in the kernel handles of
    /// btrfs; without it in this subvolume, that of the export.
    Subvolumes(u64),
    /// The ids of files: inode numbers are of several devices, and may change.
    Ids,
}

impl FileIds {
    /// Returns the source of the numbers of files in an export with this root.
    pub(in crate::localfs) fn of(root: FileId, uniform: bool) -> Self {
        match id::subvolume(root) {
            Some(subvolume) => Self::Subvolumes(subvolume),
            None if uniform => Self::Inodes,
            None => Self::Ids,
        }
    }

    /// Returns the number of a file that clients are told.
    pub(in crate::localfs) fn number(self, file: FileId, ino: u64) -> u64 {
        match self {
            Self::Inodes => ino,
            Self::Subvolumes(export) => ino ^ mix(export, file),
            Self::Ids => id::key_of(file),
        }
    }

    /// Returns the number of an entry of a directory from the inode number in the entry; `None` if
    /// the file has to be looked at.
    pub(in crate::localfs) fn of_entry(
        self,
        dir: FileId,
        ino: u64,
        is_directory: bool,
    ) -> Option<u64> {
        match self {
            Self::Inodes => Some(ino),
            // The entry of a subvolume has its number in place of an inode number.
            Self::Subvolumes(_) if is_directory => None,
            Self::Subvolumes(export) => Some(ino ^ mix(export, dir)),
            Self::Ids => None,
        }
    }

    /// Returns the number of the directory above one, with this id and inode number, from the inode
    /// number in its entry; `None` if the directory has to be looked at.
    pub(in crate::localfs) fn of_parent(
        self,
        (dir, dir_ino): (FileId, u64),
        ino: u64,
    ) -> Option<u64> {
        match self {
            Self::Subvolumes(_) if dir_ino == SUBVOLUME_ROOT => None,
            Self::Inodes | Self::Subvolumes(_) | Self::Ids => self.of_entry(dir, ino, false),
        }
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
