//! Kinds of file systems and their properties.

use crate::fs::Abilities;
use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags, SeekFrom, StatFs};

/// The largest position in any file.
const MAX_OFFSET: u64 = i64::MAX.unsigned_abs();

/// File systems whose files the kernel makes up when they are looked at (`linux/magic.h`).
const PSEUDO: &[(u32, &str)] = &[
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x6265_6570, "configfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x5a3c_69f0, "apparmorfs"),
    (0xcafe_4a11, "bpf"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x1980_0202, "mqueue"),
    (0x6573_5543, "fusectl"),
    (0x6759_6969, "rpc_pipefs"),
    (0x6e66_7364, "nfsd"),
    (0x6e73_6673, "nsfs"),
    (0x0765_5821, "resctrl"),
    (0x0187, "autofs"),
    (0x1cd1, "devpts"),
    (0x9fa2, "usbdevfs"),
    (0x6c6f_6f70, "binderfs"),
    (0xabba_1974, "xenfs"),
];

/// What is known of a kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FsKind {
    Ext,
    Xfs,
    Btrfs,
    Overlay,
    /// tmpfs and ramfs.
    Memory,
    /// Other file systems on local disks: f2fs, ZFS, bcachefs.
    Disk,
    /// Unknown: perhaps behind a network or another process.
    Other,
}

impl FsKind {
    /// By the magic number that statfs tells.
    pub(super) fn of(system: &StatFs) -> Self {
        match magic(system) {
            0xef53 => Self::Ext,
            0x5846_5342 => Self::Xfs,
            0x9123_683e => Self::Btrfs,
            0x794c_7630 => Self::Overlay,
            0x0102_1994 | 0x8584_58f6 => Self::Memory,
            0xf2f5_2010 | 0x2fc1_2fc1 | 0xca45_1a4e => Self::Disk,
            _ => Self::Other,
        }
    }

    /// The name of a file system whose files the kernel makes up when they are looked at.
    pub(super) fn pseudo(system: &StatFs) -> Option<&'static str> {
        let magic = magic(system);
        let known = PSEUDO.iter().find(|(known, _)| *known == magic);
        known.map(|(_, name)| *name)
    }

    /// Whether a file is found by the kernel's handle at any time. FUSE and FAT may find it by that only
    /// as long as the kernel has it in its memory, though their roots can always be found.
    pub(super) fn keeps_handles(system: &StatFs) -> bool {
        !matches!(magic(system), 0x6573_5546 | 0x4d44 | 0x2011_bab0)
    }

    /// Whether it is known to be on this machine, with its clock.
    pub(super) fn is_local(self) -> bool {
        self != Self::Other
    }

    /// Whether data is read and written without waiting for a disk.
    pub(super) fn is_memory(self) -> bool {
        self == Self::Memory
    }

    /// Whether a sync of a new regular file puts its name on the disk as well, so that its directory need
    /// not be synced; `mount` is the mount id.
    ///
    /// fsync(2) does not promise that, but these file systems do it in any case. ext4 and XFS make a file
    /// and its name with one transaction, and fsync of the file commits their log up to the last change
    /// of the inode, which is that one or a later one. Without a journal, ext4 writes the directory of a
    /// new file in its fsync (`ext4_sync_parent`). btrfs keeps in its log tree the names of an inode with
    /// it, and gives it those when the log is replayed. The driver of ext2 does nothing like it, and has
    /// the same magic number: there, and where it cannot be told, both are synced.
    pub(super) fn syncs_names(self, mount: u64) -> bool {
        match self {
            Self::Xfs | Self::Btrfs => true,
            Self::Ext => matches!(driver(mount).as_deref(), Some("ext3" | "ext4")),
            Self::Overlay | Self::Memory | Self::Disk | Self::Other => false,
        }
    }

    /// Whether its access control lists are those of POSIX, which say nothing about the owner of a file.
    pub(super) fn has_posix_lists(self) -> bool {
        matches!(self, Self::Ext | Self::Xfs | Self::Btrfs | Self::Memory)
    }

    /// Whether a file keeps its time of birth. On overlayfs it changes when a file is first
    /// written to, as the file is copied then, while the inode number stays.
    pub(super) fn keeps_births(self) -> bool {
        self != Self::Overlay
    }

    /// `root` is a directory of it.
    pub(super) fn abilities(self, system: &StatFs, root: BorrowedFd<'_>) -> Abilities {
        let max_links = match self {
            Self::Ext => 65_000,
            Self::Xfs => i32::MAX.unsigned_abs(),
            Self::Btrfs => 65_535,
            // The least that Linux file systems with links allow.
            Self::Overlay | Self::Memory | Self::Disk | Self::Other => 32_000,
        };
        let name = u64::try_from(system.f_namelen).unwrap_or(0);
        let found = match self.is_local() {
            true => probe_file_size(root),
            false => None,
        };
        Abilities {
            max_file_size: found.unwrap_or_else(|| self.max_file_size(system)),
            time_step: 1,
            max_links,
            max_name: u32::try_from(name).map_or(255, |name| name.clamp(1, 255)),
        }
    }

    /// The largest file, where it cannot be found out.
    fn max_file_size(self, system: &StatFs) -> u64 {
        match self {
            // The blocks of a file have numbers of 32 bits.
            Self::Ext => {
                let block = u64::try_from(system.f_bsize).unwrap_or(1);
                block.saturating_mul(u32::MAX.into()).min(MAX_OFFSET)
            }
            Self::Xfs | Self::Btrfs | Self::Overlay | Self::Memory | Self::Disk | Self::Other => {
                MAX_OFFSET
            }
        }
    }
}

/// The largest size of a file that this file system takes.
///
/// To look for a position behind that is an error, in an empty file too: one without a name, which is gone
/// at the end, and of which nothing is written. Where none can be made, as without the right to, the answer
/// is not known.
fn probe_file_size(root: BorrowedFd<'_>) -> Option<u64> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, c".", flags, Mode::RUSR | Mode::WUSR).ok()?;
    let fits = |size| rustix::fs::seek(&file, SeekFrom::Start(size)).is_ok();
    if !fits(0) {
        return None;
    }
    let (mut most, mut too_many) = (0, MAX_OFFSET + 1);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        match fits(middle) {
            true => most = middle,
            false => too_many = middle,
        }
    }
    Some(most)
}

/// The field is signed on some machines, and of 32 bits at most.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the magic numbers have 32 bits"
)]
fn magic(system: &StatFs) -> u32 {
    system.f_type as u32
}

/// The driver of a mount, by its id (proc_pid_mountinfo(5)).
fn driver(mount: u64) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    driver_in(&mounts, mount).map(str::to_owned)
}

fn driver_in(mounts: &str, mount: u64) -> Option<&str> {
    // Any number of optional fields stand before the dash.
    let (_, about) = line_of(mounts, mount)?.split_once(" - ")?;
    about.split(' ').next()
}

/// The device that a mount is of, by its id. Subvolumes of btrfs, whose files say each that they are of
/// another one, have it in common.
pub(super) fn file_system(mount: u64) -> Option<(u32, u32)> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    device_in(&mounts, mount)
}

fn device_in(mounts: &str, mount: u64) -> Option<(u32, u32)> {
    let device = line_of(mounts, mount)?.split(' ').nth(2)?;
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn line_of(mounts: &str, mount: u64) -> Option<&str> {
    mounts.lines().find(|line| {
        let id = line.split(' ').next();
        id.is_some_and(|id| id.parse() == Ok(mount))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn find(path: &str) -> (StatFs, std::fs::File) {
        let dir = std::fs::File::open(path).unwrap();
        (rustix::fs::fstatfs(&dir).unwrap(), dir)
    }

    /// The kernel cuts a file to any size that fits, and to no larger one.
    #[test]
    fn largest_file_is_the_one_that_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let (system, root) = find(dir.path().to_str().unwrap());
        let most = FsKind::of(&system)
            .abilities(&system, root.as_fd())
            .max_file_size;
        let file = tempfile::tempfile_in(dir.path()).unwrap();
        file.set_len(most).unwrap();
        if most < MAX_OFFSET {
            let error = file.set_len(most + 1).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn largest_file_of_ext4_depends_on_its_blocks() {
        let (mut system, _) = find("/");
        for (block, most) in [(1024, (1 << 42) - 1024), (4096, (1 << 44) - 4096)] {
            system.f_bsize = block;
            assert_eq!(FsKind::Ext.max_file_size(&system), most);
        }
        assert_eq!(FsKind::Other.max_file_size(&system), MAX_OFFSET);
    }

    #[test]
    fn file_systems_that_the_kernel_makes_up_are_known() {
        assert_eq!(FsKind::pseudo(&find("/proc").0), Some("proc"));
        assert_eq!(FsKind::pseudo(&find("/sys").0), Some("sysfs"));
        let dir = tempfile::tempdir().unwrap();
        let (system, _) = find(dir.path().to_str().unwrap());
        assert_eq!(FsKind::pseudo(&system), None);
        for (n, (magic, _)) in PSEUDO.iter().enumerate() {
            assert!(PSEUDO[n + 1..].iter().all(|(other, _)| other != magic));
        }
    }

    #[test]
    fn driver_of_a_mount_is_found() {
        let mounts = "22 1 0:21 / /proc rw shared:5 - proc proc rw\n\
                      36 35 98:0 /a\\040-\\040b /c rw - ext2 /dev/vda rw\n\
                      37 35 98:1 / /d rw,noatime master:1 shared:2 - ext4 /dev/vdb rw\n";
        assert_eq!(driver_in(mounts, 22), Some("proc"));
        assert_eq!(driver_in(mounts, 36), Some("ext2"));
        assert_eq!(driver_in(mounts, 37), Some("ext4"));
        assert_eq!(driver_in(mounts, 3), None);
        assert_eq!(device_in(mounts, 36), Some((98, 0)));
        assert_eq!(device_in(mounts, 3), None);
    }
}
