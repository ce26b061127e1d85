//! Kinds of file systems and their properties.

use crate::fs::Abilities;
use crate::localfs::id::IdentifiedBy;
use crate::localfs::posix_acl;
use crate::localfs::sys::{self, Stat};
use crate::localfs::user_xattr;
use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags, SeekFrom, StatFs};
use rustix::io::Errno;
use std::num::NonZeroU32;

/// Largest offset in a file.
const MAX_OFFSET: u64 = i64::MAX.unsigned_abs();

/// Pseudo file systems, whose files exist only in the kernel: magic number (`linux/magic.h`) and
/// name.
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

/// Kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::localfs) enum FsKind {
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
    /// Returns the kind for the magic number of statfs(2).
    pub(in crate::localfs) fn of(system: Option<&StatFs>) -> Self {
        let Some(system) = system else {
            return Self::Other;
        };
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

    /// Returns the name of a pseudo file system; `None` for others.
    pub(in crate::localfs) fn pseudo(system: &StatFs) -> Option<&'static str> {
        let magic = magic(system);
        let known = PSEUDO.iter().find(|(known, _)| *known == magic);
        known.map(|(_, name)| *name)
    }

    /// Whether kernel handles stay valid. FUSE and FAT may find a file by its handle only while the
    /// kernel has it cached, though their root directories are always found.
    pub(in crate::localfs) fn keeps_handles(system: &StatFs) -> bool {
        !matches!(magic(system), 0x6573_5546 | 0x4d44 | 0x2011_bab0)
    }

    /// Whether the file system is known to be local, with the clock of this machine.
    pub(in crate::localfs) fn is_local(self) -> bool {
        self != Self::Other
    }

    /// Whether all changes are made through this kernel and this file system, which tell of them (inotify(7)). The layers of an overlayfs
    /// can be changed below it.
    pub(in crate::localfs) fn tells_of_changes(self) -> bool {
        self.is_local() && self != Self::Overlay
    }

    /// Whether data is read and written without waiting for a disk.
    pub(in crate::localfs) fn is_memory(self) -> bool {
        self == Self::Memory
    }

    /// Whether a sync of a new regular file makes its name durable too, so that its directory need
    /// not be synced; `mount` is the mount id.
    ///
    /// fsync(2) does not promise that, but these file systems always do it. ext4 and XFS create a
    /// file and its name in one transaction, and fsync of the file commits their log up to the last
    /// change of the inode, which is that transaction or a later one. Without a journal, fsync of
    /// ext4 writes the directory of a new file (`ext4_sync_parent`). btrfs logs the names of an
    /// inode with the inode, and restores them when the log is replayed. The driver of ext2 does
    /// nothing similar and has the magic number of ext4: with that driver, or an unknown one, both
    /// are synced.
    fn syncs_names(self, mount: u64) -> bool {
        match self {
            Self::Xfs | Self::Btrfs => true,
            Self::Ext => matches!(driver(mount).as_deref(), Some("ext3" | "ext4")),
            Self::Overlay | Self::Memory | Self::Disk | Self::Other => false,
        }
    }

    /// Whether one transaction creates a file with all its attributes. XFS creates the file and its
    /// name in one transaction, and sets the inherited access control list and the security label
    /// in later ones, which a sync of the directory may not include.
    fn makes_whole(self) -> bool {
        self == Self::Ext
    }

    /// Whether a sync makes all earlier changes durable: the log of XFS and the journal of ext4, if
    /// it has one, are written in order. A sync of a directory then makes its new files durable
    /// too, since one transaction creates a file and its name. `device` is the device of the file
    /// system.
    fn has_journal(self, device: (u32, u32)) -> bool {
        match self {
            Self::Xfs => true,
            Self::Ext => has_journal(device).unwrap_or(false),
            Self::Btrfs | Self::Overlay | Self::Memory | Self::Disk | Self::Other => false,
        }
    }

    /// Whether access control lists are POSIX lists, which do not restrict the owner of a file.
    pub(in crate::localfs) fn has_posix_lists(self) -> bool {
        matches!(self, Self::Ext | Self::Xfs | Self::Btrfs | Self::Memory)
    }

    /// Whether the position of a directory entry stays while other entries come and go, and the
    /// directory is opened again.
    pub(in crate::localfs) fn keeps_positions(self) -> bool {
        !matches!(self, Self::Overlay | Self::Other)
    }

    /// Returns what identifies a file of an export with this root.
    ///
    /// On overlayfs the birth time changes with the first write, which copies the file from a lower
    /// layer. The inode number stays if all layers are on one file system. Otherwise it is that of
    /// the layer, and the numbers of directories are new each time. A file system in another process
    /// passes on what numbers it likes.
    pub(in crate::localfs) fn identified_by(self, root: &Stat, uniform: bool) -> IdentifiedBy {
        match self {
            Self::Overlay if uniform => IdentifiedBy::Number,
            Self::Overlay => IdentifiedBy::Path,
            Self::Other if root.born.is_none() => IdentifiedBy::PathAndNumber,
            _ => IdentifiedBy::Birth,
        }
    }

    /// Whether all files below this directory have the same device, and keep their inode numbers.
    pub(in crate::localfs) fn is_uniform(self, root: &Stat, dir: BorrowedFd<'_>) -> bool {
        self != Self::Overlay || has_device_of(root, dir)
    }

    /// Returns the limits of the file system; `root` is one of its directories.
    pub(in crate::localfs) fn abilities(
        self,
        system: Option<&StatFs>,
        root: BorrowedFd<'_>,
    ) -> Abilities {
        let max_links = match self {
            Self::Ext => 65_000,
            Self::Xfs => i32::MAX.unsigned_abs(),
            Self::Btrfs => 65_535,
            // The smallest limit of Linux file systems with links.
            Self::Overlay | Self::Memory | Self::Disk | Self::Other => 32_000,
        };
        let name = system.map_or(255, |system| u64::try_from(system.f_namelen).unwrap_or(0));
        let found = match self.is_local() {
            true => probe_file_size(root),
            false => None,
        };
        Abilities {
            max_file_size: found.unwrap_or_else(|| self.max_file_size(system)),
            time_step: 1,
            max_links,
            max_name: u32::try_from(name).map_or(255, |name| name.clamp(1, 255)),
            case_insensitive: system.is_some_and(folds_case),
            lists: posix_acl::are_supported(root),
            xattrs: user_xattr::are_supported(root),
            clone_block: match self.is_local() {
                true => probe_clones(system, root),
                false => None,
            },
            ..Abilities::default()
        }
    }

    /// Returns the largest file size of this kind, if it cannot be probed.
    fn max_file_size(self, system: Option<&StatFs>) -> u64 {
        match self {
            // Block numbers have 32 bits.
            Self::Ext => {
                let block = system.map_or(1, |system| u64::try_from(system.f_bsize).unwrap_or(1));
                block.saturating_mul(u32::MAX.into()).min(MAX_OFFSET)
            }
            Self::Xfs | Self::Btrfs | Self::Overlay | Self::Memory | Self::Disk | Self::Other => {
                MAX_OFFSET
            }
        }
    }
}

/// Changes that one sync makes durable beside the synced file.
#[derive(Clone, Copy, Debug)]
pub(in crate::localfs) struct SyncExtent {
    /// All earlier changes; see [`FsKind::has_journal`].
    pub(in crate::localfs) journal: bool,
    /// All attributes of a new file, in a sync of its directory; see [`FsKind::makes_whole`].
    pub(in crate::localfs) makes_whole: bool,
    /// The name of a new file; see [`FsKind::syncs_names`].
    pub(in crate::localfs) names: bool,
}

impl SyncExtent {
    /// Returns those of a file system with this mount id and device.
    pub(in crate::localfs) fn of(kind: FsKind, mount: u64, device: (u32, u32)) -> Self {
        Self {
            journal: kind.has_journal(device),
            makes_whole: kind.makes_whole(),
            names: kind.syncs_names(mount),
        }
    }
}

/// The figures of a file system as statfs(2) or statvfs(3) returned them; `None` if it has none, as some
/// in FUSE.
pub(in crate::localfs) fn figures<T>(found: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match found {
        Err(Errno::NOSYS) => Ok(None),
        found => found.map(Some),
    }
}

/// Whether a file of the upper layer of an overlayfs has the device of its directories, so that all
/// layers are on one file system, or their numbers are made different (`xino`). The probe uses an
/// unnamed temporary file and writes nothing; where that cannot be made, the answer is no.
fn has_device_of(root: &Stat, dir: BorrowedFd<'_>) -> bool {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, c".", flags, Mode::RUSR | Mode::WUSR);
    let stat = file.and_then(|file| sys::stat(file, IdentifiedBy::Number));
    stat.is_ok_and(|stat| stat.device == root.device)
}

/// Whether names that differ in case only are one name, as on vfat, exFAT, NTFS and SMB. Single directories of
/// ext4 and f2fs can do so too, which their superblock does not tell.
fn folds_case(system: &StatFs) -> bool {
    matches!(
        magic(system),
        0x4d44 | 0x2011_bab0 | 0x5346_544e | 0x7366_746e | 0x517b | 0xff53_4d42 | 0xfe53_4d42
    )
}

/// Probes the largest file size.
///
/// A seek beyond the largest size is an error, in an empty file too. The probe uses an unnamed
/// temporary file and writes nothing. Returns `None` if such a file cannot be created, for instance
/// without permission.
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

/// Returns the block of files that share data, if files of the file system can.
///
/// The probe clones nothing, from one unnamed temporary file to another.
fn probe_clones(system: Option<&StatFs>, root: BorrowedFd<'_>) -> Option<NonZeroU32> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = || rustix::fs::openat(root, c".", flags, Mode::RUSR | Mode::WUSR).ok();
    syscalls::clone_range(file()?, 0, file()?, 0, 0).ok()?;
    NonZeroU32::new(u32::try_from(system?.f_bsize).ok()?)
}

/// The field is signed on some machines, and of 32 bits at most.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the magic numbers have 32 bits"
)]
pub(in crate::localfs) fn magic(system: &StatFs) -> u32 {
    system.f_type as u32
}

/// Returns the file system type of a mount, by its id (proc_pid_mountinfo(5)).
fn driver(mount: u64) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    driver_in(&mounts, mount).map(str::to_owned)
}

fn driver_in(mounts: &str, mount: u64) -> Option<&str> {
    // Optional fields precede the dash.
    let (_, about) = line_of(mounts, mount)?.split_once(" - ")?;
    about.split(' ').next()
}

/// Returns the device of a mount, by its id. Subvolumes of btrfs share it, although their files
/// report different devices.
pub(in crate::localfs) fn file_system(mount: u64) -> Option<(u32, u32)> {
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

/// Whether this device has a journal: `/proc/fs/jbd2` lists journals by device and inode. A journal
/// on another device is not found.
fn has_journal(device: (u32, u32)) -> Option<bool> {
    let device = std::fs::read_link(format!("/sys/dev/block/{}:{}", device.0, device.1)).ok()?;
    let prefix = format!("{}-", device.file_name()?.to_str()?);
    let journals = std::fs::read_dir("/proc/fs/jbd2").ok()?;
    let mut names = journals.filter_map(|journal| journal.ok()?.file_name().into_string().ok());
    let is_its = |name: String| {
        let inode = name.strip_prefix(&prefix);
        inode.is_some_and(|inode| inode.parse::<u64>().is_ok())
    };
    Some(names.any(is_its))
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
        let most = FsKind::of(Some(&system))
            .abilities(Some(&system), root.as_fd())
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
            assert_eq!(FsKind::Ext.max_file_size(Some(&system)), most);
        }
        assert_eq!(FsKind::Other.max_file_size(Some(&system)), MAX_OFFSET);
    }

    /// Some file systems in other processes answer statfs(2) with ENOSYS.
    #[test]
    fn file_system_without_figures_has_usual_limits() {
        let dir = tempfile::tempdir().unwrap();
        let (_, root) = find(dir.path().to_str().unwrap());
        assert!(figures::<()>(Err(Errno::NOSYS)).unwrap().is_none());
        assert_eq!(figures::<()>(Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(FsKind::of(None), FsKind::Other);
        let abilities = FsKind::Other.abilities(None, root.as_fd());
        assert_eq!(
            (abilities.max_name, abilities.max_file_size),
            (255, MAX_OFFSET)
        );
    }

    /// Figures of a file system with this magic number.
    fn with_magic(magic: u32) -> StatFs {
        let (mut system, _) = find("/");
        system.f_type = magic.into();
        system
    }

    /// Numbers of `linux/magic.h`, and of file systems that have theirs elsewhere.
    #[test]
    fn case_of_names_counts_but_on_file_systems_of_other_systems() {
        let folds = [
            (0x4d44, "vfat"),
            (0x2011_bab0, "exfat"),
            (0x5346_544e, "ntfs"),
            (0x7366_746e, "ntfs3"),
            (0x517b, "smb"),
            (0xff53_4d42, "cifs"),
            (0xfe53_4d42, "smb2"),
        ];
        let keeps = [
            (0xef53, "ext4"),
            (0x5846_5342, "xfs"),
            (0x9123_683e, "btrfs"),
            (0x794c_7630, "overlay"),
            (0x0102_1994, "tmpfs"),
            (0x8584_58f6, "ramfs"),
            (0xf2f5_2010, "f2fs"),
            (0x2fc1_2fc1, "zfs"),
            (0x6573_5546, "fuse"),
            (0x6969, "nfs"),
        ];
        let (_, root) = find("/");
        let all = folds.map(|it| (it, true)).into_iter();
        for ((magic, name), expected) in all.chain(keeps.map(|it| (it, false))) {
            let system = with_magic(magic);
            let abilities = FsKind::of(Some(&system)).abilities(Some(&system), root.as_fd());
            assert_eq!(abilities.case_insensitive, expected, "{name}");
        }
        let abilities = FsKind::Other.abilities(None, root.as_fd());
        assert!(!abilities.case_insensitive);
    }

    /// Elsewhere a directory is sorted, which takes time and memory.
    #[test]
    fn directories_of_local_disks_are_listed_in_the_order_of_the_kernel() {
        let keeps = |magic| FsKind::of(Some(&with_magic(magic))).keeps_positions();
        // ext4, XFS, btrfs, tmpfs, ramfs, f2fs, ZFS, bcachefs.
        for magic in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x0102_1994,
            0x8584_58f6,
            0xf2f5_2010,
            0x2fc1_2fc1,
            0xca45_1a4e,
        ] {
            assert!(keeps(magic), "{magic:#x}");
        }
        // overlayfs, FUSE, NFS.
        for magic in [0x794c_7630, 0x6573_5546, 0x6969] {
            assert!(!keeps(magic), "{magic:#x}");
        }
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
