//! Rights of callers.
//!
//! The third layer. It owns the identity of this process, acts as the caller, and asks the kernel what
//! a caller may do. It may call the [`OpenFiles`] and the [`Volume`]; which rights an operation needs
//! is for the operations.
//!
//! A server run by root makes changes as the caller ([`Rights::as_caller`]): for one system call the
//! thread has the caller's fsuid, fsgid and groups, and none of the capabilities by which root
//! bypasses checks and limits. So the kernel enforces access control lists, default lists, quotas,
//! reserved blocks, sticky and set-group-id bits.
//!
//! Read-only operations are done by the process, through descriptors that all callers share, after
//! the kernel was asked whether this caller has the right ([`Rights::may`]). Answers are cached
//! beside the open file, as long as the file's ctime shows no change of mode, owner or lists. Where
//! lists are those of POSIX, the mode decides for the owner and for files without a list, as in the
//! kernel.

use super::open_files::OpenFiles;
use super::open_files::node::Node;
use super::posix_acl;
use super::sys::{self, Pace, Stop, Try};
use super::volume::Volume;
use crate::fs::{Attributes, Error, FileKind, Identity, Time};
use crate::permission::{self, EXECUTE};
use rustix::fd::AsFd;
use rustix::fs::Access;
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::Arc;
use syscalls::{ActingAs, FsUser, check_access};

/// Smallest age of the last change of a file for which an answer is cached, in nanoseconds: more
/// than two ticks of the kernel's coarse clock, so that a later change has another time.
const SETTLED: i128 = 20_000_000;

/// The same for file systems with times in whole seconds, such as ext4 with small inodes.
const SETTLED_SECONDS: i128 = 2_000_000_000;

/// Returns the smallest age of a change with this time.
fn settled_after(changed: Time) -> i128 {
    match changed.nanos {
        0 => SETTLED_SECONDS,
        _ => SETTLED,
    }
}

/// Identity of this process.
pub(super) struct Process {
    pub(super) me: Identity,
    pub(super) umask: u32,
    /// Whether it acts for the caller: it is root, and can act as others.
    pub(super) acts_for_callers: bool,
}

/// Rights of callers on the files of an export.
pub(super) struct Rights {
    volume: Arc<Volume>,
    files: Arc<OpenFiles>,
    process: Process,
}

impl Rights {
    pub(super) fn new(volume: Arc<Volume>, files: Arc<OpenFiles>, process: Process) -> Self {
        Self {
            volume,
            files,
            process,
        }
    }

    /// Whether this process acts for the caller, instead of as the user who runs it.
    pub(super) fn acts_for_callers(&self) -> bool {
        self.process.acts_for_callers
    }

    /// Returns the umask of this process.
    pub(super) fn umask(&self) -> u32 {
        self.process.umask
    }

    /// Returns the identity whose rights apply: the caller's, or that of this process.
    pub(super) fn acting<'a>(&'a self, who: &'a Identity) -> &'a Identity {
        match self.process.acts_for_callers {
            true => who,
            false => &self.process.me,
        }
    }

    /// Runs `call` as the caller, if this process acts for callers. `call` must be a single system
    /// call.
    pub(super) fn as_caller<T>(
        &self,
        who: &Identity,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.as_user((who.uid, who.gid, &who.groups), call)
    }

    /// Like [`as_caller`](Self::as_caller), but without groups, which is cheaper. For writes: the
    /// file is open, so the kernel checks no group. On unknown file systems, which may pass the
    /// identity to another process, the groups are set too.
    pub(super) fn as_writer<T>(
        &self,
        who: &Identity,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match self.volume.posix_lists {
            true => self.as_user((who.uid, 0, &[]), call),
            false => self.as_caller(who, call),
        }
    }

    fn as_user<T>(
        &self,
        (uid, gid, groups): (u32, u32, &[u32]),
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if !self.process.acts_for_callers {
            return call();
        }
        // A user that does not exist in this user namespace has no rights.
        let _acting = ActingAs::enter(FsUser { uid, gid, groups }).map_err(|_| Errno::ACCESS)?;
        call()
    }

    /// Whether the kernel grants the caller all rights in `want` on a file. `attributes` are its
    /// current attributes.
    pub(super) fn may(
        &self,
        who: &Identity,
        node: &Node,
        attributes: &Attributes,
        want: u32,
        pace: Pace,
    ) -> Try<bool> {
        match self.ask(who, node, attributes, want, pace) {
            Ok(()) => Ok(true),
            // The file system is read-only, or the file is immutable.
            Err(Stop::Fail(Error::Access | Error::ReadOnly | Error::NotOwner)) => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    /// Returns an error unless the caller has these rights. A server that is not root checks
    /// nothing here: the kernel checks its own rights in the operation itself.
    pub(super) fn check(
        &self,
        who: &Identity,
        node: &Node,
        attributes: &Attributes,
        want: u32,
        pace: Pace,
    ) -> Try<()> {
        if !self.process.acts_for_callers {
            return Ok(());
        }
        self.ask(who, node, attributes, want, pace)
    }

    fn ask(
        &self,
        who: &Identity,
        node: &Node,
        attributes: &Attributes,
        want: u32,
        pace: Pace,
    ) -> Try<()> {
        let verdict = |granted| match granted {
            true => Ok(()),
            false => Err(Error::Access.into()),
        };
        let who = self.acting(who);
        // Lists do not apply to root, and POSIX lists do not apply to the owner.
        if who.is_root() || self.volume.posix_lists && who.uid == attributes.uid {
            return verdict(permission::granted(who, attributes, want));
        }
        if let Some(granted) = node.rights.get(who, attributes.ctime, want) {
            return verdict(granted);
        }
        // An access control list may have to be read from a disk.
        if !node.rights.ask(pace == Pace::Patient || self.volume.memory) {
            return Err(Stop::WouldBlock);
        }
        if self.volume.posix_lists && self.has_no_list(node, attributes)? {
            return verdict(permission::granted(who, attributes, want));
        }
        let now = sys::coarse_now();
        // The kernel's answer depends on the mount options of this machine: a program on a `noexec`
        // mount can still be executed on the client.
        let by_list =
            self.volume.no_exec && want & EXECUTE != 0 && attributes.kind == FileKind::Regular;
        let granted = match by_list {
            true => match posix_acl::read(node, posix_acl::ACCESS)? {
                Some(list) => list.grants(who, (attributes.uid, attributes.gid), want),
                None => permission::granted(who, attributes, want),
            },
            false => {
                let access = Access::from_bits_truncate(want);
                match self.as_caller(who, || check_access(&node.path, access)) {
                    Ok(()) => true,
                    Err(Errno::ACCESS) => false,
                    Err(errno) => return Err(errno.into()),
                }
            }
        };
        // A remote file system has an unknown clock.
        if self.volume.local
            && nanos(now) - nanos(attributes.ctime) > settled_after(attributes.ctime)
        {
            node.rights.keep(who, attributes.ctime, want, granted);
        }
        verdict(granted)
    }

    /// Whether the file has no access control list, so that its mode decides. This takes two system
    /// calls, a fifth of the time of asking as the caller. It matters because a directory in use
    /// changes its ctime all the time.
    fn has_no_list(&self, node: &Node, attributes: &Attributes) -> Try<bool> {
        // The kernel ignores a list whose mask, the group bits of the mode, grants nothing.
        if attributes.mode & 0o070 == 0 {
            return Ok(true);
        }
        let found = match node.reader() {
            Some(fd) => rustix::fs::fgetxattr(fd, ACCESS_LIST, &mut [0_u8; 0]),
            None => self.volume.proc.xattr_len(node.path.as_fd(), ACCESS_LIST),
        };
        if !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP)) {
            return Ok(false);
        }
        // If a list was removed meanwhile, the group bits were its mask until then.
        let now = self.files.attributes(node)?;
        let rights = |of: &Attributes| (of.mode, of.uid, of.gid);
        Ok(rights(&now) == rights(attributes))
    }
}

/// The attribute that holds the access control list of a file.
const ACCESS_LIST: &CStr = c"system.posix_acl_access";

fn nanos(time: Time) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::localfs::Handles;
    use crate::localfs::open::tests::opened;
    use crate::permission::{READ, WRITE};
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn process_that_acts_for_nobody_has_its_own_rights() {
        let dir = tempfile::tempdir().unwrap();
        set_permissions(dir.path(), Permissions::from_mode(0o704)).unwrap();
        let mut opening = opened(dir.path(), Handles::Table);
        opening.volume.posix_lists = true;
        let volume = Arc::new(opening.volume);
        let files = OpenFiles::new(Arc::clone(&volume), opening.root, opening.verifier, None);
        let files = Arc::new(files);
        let me = Identity::new(54_321, 54_321);
        for acts_for_callers in [false, true] {
            let process = Process {
                me: me.clone(),
                umask: 0,
                acts_for_callers,
            };
            let rights = Rights::new(Arc::clone(&volume), Arc::clone(&files), process);
            let (root, who) = (files.root(), Identity::root());
            let attributes = files.attributes(&root).unwrap();
            let may = |want| rights.may(&who, &root, &attributes, want, Pace::Patient);
            assert_eq!(rights.acting(&who) == &me, !acts_for_callers);
            assert!(may(READ).unwrap());
            assert_eq!(may(WRITE).unwrap(), acts_for_callers);
            // Without acting for callers, the kernel checks each operation.
            let checked = rights.check(&who, &root, &attributes, WRITE, Pace::Patient);
            assert!(checked.is_ok());
        }
    }
}
