//! Acting as the caller, and asking the kernel what a caller may do.
//!
//! Run by root, changes are made as the caller ([`Inner::as_caller`]): for that one system call the
//! thread has the caller's fsuid, fsgid and groups, and none of the capabilities by which root
//! bypasses checks and limits. So the kernel enforces access control lists, default lists, quotas,
//! reserved blocks, sticky and set-group-id bits.
//!
//! Read-only operations are done by the process, through descriptors that all callers share, after
//! the kernel was asked whether this caller has the right ([`Inner::may`]). Answers are cached
//! beside the open file, as long as the file's ctime shows no change of mode, owner or lists. Where
//! lists are those of POSIX, the mode decides for the owner and for files without a list, as in the
//! kernel.
//!
//! The owner of a file may read and write it whatever its mode, and whoever may execute it may read
//! it (RFC 1813 §4.4): the client's open is unknown here, and may have been before a change of
//! mode.

use super::Inner;
use super::acl::access_list;
use super::node::Node;
use super::sys::{self, Pace, Stop, Try};
use crate::fs::{Attributes, Error, FileKind, Identity, Time};
use crate::permission::{self, EXECUTE, READ, WRITE};
use rustix::fd::AsFd;
use rustix::fs::Access;
use rustix::io::Errno;
use std::ffi::CStr;
use syscalls::{ActingAs, FsUser, check_access};

/// How long ago the last change of a file must be for an answer about it to be kept, in nanoseconds:
/// more than two steps of the kernel's coarse clock, so that a later change has another time.
const SETTLED: i128 = 20_000_000;

/// The same where times are whole seconds, as on ext4 with small inodes, in nanoseconds.
const SETTLED_SECONDS: i128 = 2_000_000_000;

/// How long ago a change of this time must be.
fn settled_after(changed: Time) -> i128 {
    match changed.nanos {
        0 => SETTLED_SECONDS,
        _ => SETTLED,
    }
}

impl Inner {
    /// Runs one system call as the caller, where this process may be somebody else; nothing else may
    /// happen in it.
    pub(super) fn as_caller<T>(
        &self,
        who: &Identity,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if !self.as_root {
            return call();
        }
        self.as_user((who.uid, who.gid, &who.groups), call)
    }

    /// As [`as_caller`](Self::as_caller) for a system call that looks at no group, because the file is
    /// open: one that writes. It is cheaper. A file system that is not known here may tell somebody else who
    /// writes, and gets all of it.
    pub(super) fn as_writer<T>(
        &self,
        who: &Identity,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if !self.as_root {
            return call();
        }
        match self.posix_lists {
            true => self.as_user((who.uid, 0, &[]), call),
            false => self.as_caller(who, call),
        }
    }

    fn as_user<T>(
        &self,
        (uid, gid, groups): (u32, u32, &[u32]),
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        // A user that the kernel does not know here, as in a user namespace, may do nothing.
        let _acting = ActingAs::enter(FsUser { uid, gid, groups }).map_err(|_| Errno::ACCESS)?;
        call()
    }

    /// Whether the kernel lets the caller do all that `want` has bits for with a file that had these
    /// attributes just now.
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
            // Of a file system that is read-only, and of a file that nobody may change.
            Err(Stop::Fail(Error::Access | Error::ReadOnly | Error::NotOwner)) => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    /// The same as a result, where this process is root; else its own rights decide when it comes to it.
    pub(super) fn check(
        &self,
        who: &Identity,
        node: &Node,
        attributes: &Attributes,
        want: u32,
        pace: Pace,
    ) -> Try<()> {
        if !self.as_root {
            return Ok(());
        }
        self.ask(who, node, attributes, want, pace)
    }

    /// Reading data (RFC 1813 §4.4).
    pub(super) fn check_read(
        &self,
        who: &Identity,
        node: &Node,
        attributes: &Attributes,
        pace: Pace,
    ) -> Try<()> {
        if !self.as_root
            || who.uid == attributes.uid
            || self.may(who, node, attributes, READ, pace)?
        {
            return Ok(());
        }
        self.ask(who, node, attributes, EXECUTE, pace)
    }

    /// Writing data (RFC 1813 §4.4).
    pub(super) fn check_write(
        &self,
        who: &Identity,
        node: &Node,
        attributes: &Attributes,
        pace: Pace,
    ) -> Try<()> {
        if !self.as_root || who.uid == attributes.uid {
            return Ok(());
        }
        self.ask(who, node, attributes, WRITE, pace)
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
        // No list says anything about root and, by POSIX, about the owner.
        if who.is_root() || self.posix_lists && who.uid == attributes.uid {
            return verdict(permission::granted(who, attributes, want));
        }
        if let Some(granted) = node.verdicts.get(who, attributes.ctime, want) {
            return verdict(granted);
        }
        // A list may have to be read from a disk.
        if !node.verdicts.ask(pace == Pace::Patient || self.memory) {
            return Err(Stop::WouldBlock);
        }
        if self.posix_lists && self.has_no_list(node, attributes)? {
            return verdict(permission::granted(who, attributes, want));
        }
        let now = sys::coarse_now();
        // The kernel's answer depends on how its own mount is used, too: where programs cannot be run on
        // this machine, they can be on the client's.
        let by_list = self.no_exec && want & EXECUTE != 0 && attributes.kind == FileKind::Regular;
        let granted = match by_list {
            true => match access_list(node)? {
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
        // The clock of a file system that is not on this machine is not known.
        if self.local && nanos(now) - nanos(attributes.ctime) > settled_after(attributes.ctime) {
            node.verdicts.keep(who, attributes.ctime, want, granted);
        }
        verdict(granted)
    }

    /// Whether the mode decides, as the file has no access control list. To ask for that takes two system
    /// calls, a fifth of what it takes to ask as the caller, and the attributes of a directory in use change
    /// all the time.
    fn has_no_list(&self, node: &Node, attributes: &Attributes) -> Try<bool> {
        // The kernel looks at no list whose mask, which is the group of the mode, grants nothing.
        if attributes.mode & 0o070 == 0 {
            return Ok(true);
        }
        let found = match node.reader() {
            Some(fd) => rustix::fs::fgetxattr(fd, ACCESS_LIST, &mut [0_u8; 0]),
            None => self.proc.xattr_len(node.path.as_fd(), ACCESS_LIST),
        };
        if !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP)) {
            return Ok(false);
        }
        // If a list went meanwhile, its mask was the group of the mode until then.
        let now = self.attributes(node)?;
        let rights = |of: &Attributes| (of.mode, of.uid, of.gid);
        Ok(rights(&now) == rights(attributes))
    }
}

/// The attribute that holds the access control list of a file.
const ACCESS_LIST: &CStr = c"system.posix_acl_access";

fn nanos(time: Time) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos)
}
