//! Upper-layer binding of NFS (RFC 8267 §4): the results of each procedure, and bounds of their
//! size.
//!
//! DDP-eligible items have the types [`Data`](crate::Data) and [`Path`](crate::Path). No other item
//! is eligible.
//!
//! Bounds include the header of an accepted reply with an AUTH_NONE verifier ([`REPLY_HEADER`]),
//! which servers return to AUTH_NONE and AUTH_SYS. An AUTH_SHORT verifier has up to 400 bytes more,
//! which fit wherever a reply is returned inline; READDIR has no room for it, because no NFS server
//! sends one.

pub mod scan;

use crate::limits::{MAX_MOUNT_LIST_REPLY, MAX_PATH};
use crate::results::{self, Res};
use crate::{
    AclProcedure, Attributes, CookieVerifier, MOUNT_PROGRAM, MOUNT_V3, MountProcedure, NFS_PROGRAM,
    NFS_V3, NFSACL_PROGRAM, NFSACL_V3, Procedure, WccData, Wire, acl, args, mount,
};
use oncrpc::xdr::Reader;
use oncrpc::{REPLY_HEADER, ReplyBound};
use smallvec::{SmallVec, smallvec};

/// Largest reply without results, in bytes: PROG_MISMATCH, with its two versions.
const NO_RESULTS: usize = REPLY_HEADER + 8;

/// Arguments of a procedure, with its numbers, its results and a bound of their size.
pub trait Arguments<'a>: Wire<'a> {
    /// Program.
    const PROGRAM: u32;
    /// Version.
    const VERSION: u32;
    /// Procedure.
    const PROCEDURE: u32;
    /// Name of the procedure in the RFC.
    const NAME: &'static str;

    /// Type of the results.
    type Reply<'r>: Wire<'r>;

    /// Returns a bound for the reply to these arguments (RFC 8166 §6.2, RFC 8267 §3, §4.1).
    fn reply_bound(&self) -> ReplyBound {
        fixed(Self::Reply::<'static>::MAX)
    }
}

/// A reply without eligible results.
fn fixed(results: usize) -> ReplyBound {
    ReplyBound {
        fixed: (REPLY_HEADER + results).max(NO_RESULTS),
        results: SmallVec::new(),
    }
}

/// A reply with one eligible result of up to `data` bytes.
fn eligible(results: usize, data: u32) -> ReplyBound {
    ReplyBound {
        fixed: REPLY_HEADER + results,
        results: smallvec![data as usize],
    }
}

/// A reply with up to `count` bytes of a directory.
///
/// RFC 1813 counts attributes and verifier of the directory among these bytes; some servers count
/// the entries only, so that room is made for both.
fn directory(count: u32) -> ReplyBound {
    fixed(4 + Option::<Attributes>::MAX + CookieVerifier::MAX + count as usize)
}

/// Implements [`Arguments`] for a procedure: its numbers, its name, its results and their bound.
macro_rules! bind {
    (
        $program:ident $version:ident $procedures:ident::$procedure:ident,
        $args:ty, $name:literal, $reply:ty $(, |$this:ident| $bound:expr)?
    ) => {
        impl<'a> Arguments<'a> for $args {
            const PROGRAM: u32 = $program;
            const VERSION: u32 = $version;
            const PROCEDURE: u32 = $procedures::$procedure as u32;
            const NAME: &'static str = $name;

            type Reply<'r> = $reply;

            $(fn reply_bound(&self) -> ReplyBound {
                let $this = self;
                $bound
            })?
        }
    };
}

macro_rules! nfs_call {
    ($args:ty, $procedure:ident, $($rest:tt)*) => {
        bind!(NFS_PROGRAM NFS_V3 Procedure::$procedure, $args, $($rest)*);
    };
}

macro_rules! acl_call {
    ($args:ty, $procedure:ident, $($rest:tt)*) => {
        bind!(NFSACL_PROGRAM NFSACL_V3 AclProcedure::$procedure, $args, $($rest)*);
    };
}

type PostOp = Option<Attributes>;

nfs_call!(args::Null, Null, "NULL", ());
nfs_call!(args::GetAttr, GetAttr, "GETATTR", Res<results::GetAttr, ()>);
nfs_call!(args::SetAttr, SetAttr, "SETATTR", Res<results::SetAttr, WccData>);
nfs_call!(args::Lookup<'a>, Lookup, "LOOKUP", Res<results::Lookup, PostOp>);
nfs_call!(args::CheckAccess, Access, "ACCESS", Res<results::CheckAccess, PostOp>);
nfs_call!(
    args::ReadLink,
    ReadLink,
    "READLINK",
    Res<results::ReadLink<'r>, PostOp>,
    |_this| eligible(Self::Reply::<'static>::MAX, MAX_PATH)
);
nfs_call!(
    args::Read,
    Read,
    "READ",
    Res<results::Read<'r>, PostOp>,
    |this| eligible(Self::Reply::<'static>::MAX, this.count)
);
nfs_call!(args::Write<'a>, Write, "WRITE", Res<results::Write, WccData>);
nfs_call!(args::Create<'a>, Create, "CREATE", Res<results::Create, WccData>);
nfs_call!(args::MkDir<'a>, MkDir, "MKDIR", Res<results::Create, WccData>);
nfs_call!(args::Symlink<'a>, Symlink, "SYMLINK", Res<results::Create, WccData>);
nfs_call!(args::MkNod<'a>, MkNod, "MKNOD", Res<results::Create, WccData>);
nfs_call!(args::Remove<'a>, Remove, "REMOVE", Res<results::Remove, WccData>);
nfs_call!(args::RmDir<'a>, RmDir, "RMDIR", Res<results::Remove, WccData>);
nfs_call!(args::Rename<'a>, Rename, "RENAME", Res<results::Rename, results::Rename>);
nfs_call!(args::Link<'a>, Link, "LINK", Res<results::Link, results::Link>);
nfs_call!(
    args::ReadDir,
    ReadDir,
    "READDIR",
    Res<results::ReadDir<'r>, PostOp>,
    |this| directory(this.count)
);
nfs_call!(
    args::ReadDirPlus,
    ReadDirPlus,
    "READDIRPLUS",
    Res<results::ReadDirPlus<'r>, PostOp>,
    |this| directory(this.max_count)
);
nfs_call!(args::FsStat, FsStat, "FSSTAT", Res<results::FsStat, PostOp>);
nfs_call!(args::FsInfo, FsInfo, "FSINFO", Res<results::FsInfo, PostOp>);
nfs_call!(args::PathConf, PathConf, "PATHCONF", Res<results::PathConf, PostOp>);
nfs_call!(args::Commit, Commit, "COMMIT", Res<results::Commit, WccData>);

/// Returns a bound for the reply to a call of NFS version 3, if the received part of its arguments
/// is sufficient: data that is transferred by reference may be missing.
pub fn reply_bound(procedure: Procedure, args: &mut Reader<'_>) -> Option<ReplyBound> {
    /// For arguments on which the bound does not depend: they are not read.
    fn any<'a, A: Arguments<'a>>() -> ReplyBound {
        fixed(A::Reply::<'static>::MAX)
    }
    /// For arguments on which the bound depends.
    fn of<'a, A: Arguments<'a>>(args: &mut Reader<'a>) -> Option<ReplyBound> {
        Some(A::parse(args).ok()?.reply_bound())
    }
    Some(match procedure {
        Procedure::Null => any::<args::Null>(),
        Procedure::GetAttr => any::<args::GetAttr>(),
        Procedure::SetAttr => any::<args::SetAttr>(),
        Procedure::Lookup => any::<args::Lookup<'_>>(),
        Procedure::Access => any::<args::CheckAccess>(),
        Procedure::ReadLink => return of::<args::ReadLink>(args),
        Procedure::Read => return of::<args::Read>(args),
        Procedure::Write => any::<args::Write<'_>>(),
        Procedure::Create => any::<args::Create<'_>>(),
        Procedure::MkDir => any::<args::MkDir<'_>>(),
        Procedure::Symlink => any::<args::Symlink<'_>>(),
        Procedure::MkNod => any::<args::MkNod<'_>>(),
        Procedure::Remove => any::<args::Remove<'_>>(),
        Procedure::RmDir => any::<args::RmDir<'_>>(),
        Procedure::Rename => any::<args::Rename<'_>>(),
        Procedure::Link => any::<args::Link<'_>>(),
        Procedure::ReadDir => return of::<args::ReadDir>(args),
        Procedure::ReadDirPlus => return of::<args::ReadDirPlus>(args),
        Procedure::FsStat => any::<args::FsStat>(),
        Procedure::FsInfo => any::<args::FsInfo>(),
        Procedure::PathConf => any::<args::PathConf>(),
        Procedure::Commit => any::<args::Commit>(),
    })
}

acl_call!(acl::Null, Null, "NFSACL NULL", ());
acl_call!(
    acl::GetAcl,
    GetAcl,
    "GETACL",
    Res<acl::Lists, PostOp>,
    |this| fixed(4 + acl::Lists::FIXED + this.lists())
);
acl_call!(acl::SetAcl, SetAcl, "SETACL", Res<acl::Done, PostOp>);

/// Returns a bound for the reply to a call of NFSACL version 3, if the received part of its
/// arguments is sufficient.
pub fn acl_reply_bound(procedure: AclProcedure, args: &mut Reader<'_>) -> Option<ReplyBound> {
    match procedure {
        AclProcedure::Null => Some(acl::Null.reply_bound()),
        AclProcedure::GetAcl => Some(acl::GetAcl::parse(args).ok()?.reply_bound()),
        AclProcedure::SetAcl => Some(fixed(<acl::SetAcl as Arguments>::Reply::<'_>::MAX)),
    }
}

macro_rules! mount_call {
    ($args:ty, $procedure:ident, $($rest:tt)*) => {
        bind!(MOUNT_PROGRAM MOUNT_V3 MountProcedure::$procedure, $args, $($rest)*);
    };
}

mount_call!(mount::Null, Null, "MOUNT NULL", ());
mount_call!(mount::Mount<'a>, Mount, "MNT", Result<mount::Mounted, mount::MountStatus>);
mount_call!(mount::Dump, Dump, "DUMP", mount::MountList<'r>, |_call| {
    fixed(MAX_MOUNT_LIST_REPLY)
});
mount_call!(mount::Unmount<'a>, Unmount, "UMNT", ());
mount_call!(mount::UnmountAll, UnmountAll, "UMNTALL", ());
mount_call!(
    mount::Export,
    Export,
    "EXPORT",
    mount::ExportList<'r>,
    |_call| fixed(MAX_MOUNT_LIST_REPLY)
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cookie, FileHandle};

    fn handle() -> FileHandle {
        FileHandle::new(b"file").unwrap()
    }

    #[track_caller]
    fn check<'a>(call: &impl Arguments<'a>, fixed: usize, results: &[usize]) {
        let bound = call.reply_bound();
        assert_eq!((bound.fixed, bound.results.as_slice()), (fixed, results));
    }

    #[test]
    fn reply_bounds_follow_from_the_arguments() {
        check(&args::Null, 32, &[]);
        check(&args::GetAttr { object: handle() }, 24 + 4 + 84, &[]);
        let read = args::Read {
            file: handle(),
            offset: 7,
            count: 65536,
        };
        check(&read, 24 + 4 + 88 + 4 + 4 + 4, &[65536]);
        check(
            &args::ReadLink { symlink: handle() },
            24 + 4 + 88 + 4,
            &[4096],
        );
        let (cookie, verifier) = (Cookie(0), CookieVerifier::default());
        let list = args::ReadDir {
            dir: handle(),
            cookie,
            verifier,
            count: 8192,
        };
        check(&list, 24 + 4 + 88 + 8 + 8192, &[]);
        let file = handle();
        let mask = acl::AclMask::ACCESS_COUNT | acl::AclMask::DEFAULT;
        let lists = 8 + 8 + 1024 * 12;
        check(&acl::GetAcl { file, mask }, 24 + 4 + 88 + 4 + lists, &[]);
    }

    #[test]
    fn every_reply_but_data_and_directories_fits_the_smallest_inline_size() {
        // RFC 8797 §3: 1024 bytes; 28 of them are the transport header of RFC 8166 §4.1.
        let largest = [
            <args::Link<'_> as Arguments>::Reply::<'_>::MAX,
            <args::Rename<'_> as Arguments>::Reply::<'_>::MAX,
            <args::Create<'_> as Arguments>::Reply::<'_>::MAX,
        ];
        assert!(
            largest
                .iter()
                .all(|results| results + REPLY_HEADER <= 1024 - 28)
        );
    }
}
