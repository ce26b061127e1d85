//! Kinds of file systems, and what is known of each.

use crate::fs::Abilities;
use rustix::fs::StatFs;

/// What is known of a kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FsKind {
    Ext,
    Xfs,
    Btrfs,
    Overlay,
    /// tmpfs and ramfs.
    Memory,
    /// Others on disks of this machine: f2fs, ZFS, bcachefs.
    Disk,
    /// Perhaps behind a network or another process.
    Other,
}

impl FsKind {
    /// By the magic number that statfs tells.
    pub(super) fn of(system: &StatFs) -> Self {
        // The field is signed on some machines, and of 32 bits at most.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the magic numbers have 32 bits"
        )]
        match system.f_type as u32 {
            0xef53 => Self::Ext,
            0x5846_5342 => Self::Xfs,
            0x9123_683e => Self::Btrfs,
            0x794c_7630 => Self::Overlay,
            0x0102_1994 | 0x8584_58f6 => Self::Memory,
            0xf2f5_2010 | 0x2fc1_2fc1 | 0xca45_1a4e => Self::Disk,
            _ => Self::Other,
        }
    }

    /// Whether it is known to be on this machine, with its clock.
    pub(super) fn is_local(self) -> bool {
        self != Self::Other
    }

    /// Whether data is read and written without waiting for a disk.
    pub(super) fn is_memory(self) -> bool {
        self == Self::Memory
    }

    /// Whether a file keeps its time of birth. On overlayfs it changes when a file is first
    /// written to, as the file is copied then, while the inode number stays.
    pub(super) fn keeps_births(self) -> bool {
        self != Self::Overlay
    }

    pub(super) fn abilities(self, system: &StatFs) -> Abilities {
        let max_links = match self {
            Self::Ext => 65_000,
            Self::Xfs => i32::MAX.unsigned_abs(),
            Self::Btrfs => 65_535,
            // The least that Linux file systems with links allow.
            Self::Overlay | Self::Memory | Self::Disk | Self::Other => 32_000,
        };
        let name = u64::try_from(system.f_namelen).unwrap_or(0);
        Abilities {
            max_file_size: i64::MAX.unsigned_abs(),
            time_step: 1,
            max_links,
            max_name: u32::try_from(name).map_or(255, |name| name.clamp(1, 255)),
        }
    }
}
