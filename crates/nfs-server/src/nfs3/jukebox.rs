//! NFS3ERR_JUKEBOX, the answer to a call without room.

use nfs_proto::{AclProcedure, NFSACL_PROGRAM, Procedure, Status};
use oncrpc::{Call, Reply};

/// NFS3ERR_JUKEBOX: nothing was done, and the client may try again later (RFC 1813 §2.6).
pub(super) fn reply(call: Call) -> Reply {
    let attributes = match call.prog {
        NFSACL_PROGRAM => AclProcedure::try_from(call.proc).map(attributes_of_acl_failure),
        _ => Procedure::try_from(call.proc).map(attributes_of_failure),
    };
    let Ok(attributes) = attributes else {
        return call.proc_unavail();
    };
    let mut w = call.into_success();
    w.u32(Status::Jukebox as u32);
    for _ in 0..attributes {
        // They are left out.
        w.bool(false);
    }
    Reply::Message(w.finish())
}

/// How many optional attributes a failure comes with: of the file or directory, or those before and
/// after for each directory that would have changed (RFC 1813 §3.3).
fn attributes_of_failure(procedure: Procedure) -> usize {
    match procedure {
        Procedure::Null | Procedure::GetAttr => 0,
        Procedure::Lookup
        | Procedure::Access
        | Procedure::ReadLink
        | Procedure::Read
        | Procedure::ReadDir
        | Procedure::ReadDirPlus
        | Procedure::FsStat
        | Procedure::FsInfo
        | Procedure::PathConf => 1,
        Procedure::SetAttr
        | Procedure::Write
        | Procedure::Create
        | Procedure::MkDir
        | Procedure::Symlink
        | Procedure::MkNod
        | Procedure::Remove
        | Procedure::RmDir
        | Procedure::Commit => 2,
        Procedure::Link => 3,
        Procedure::Rename => 4,
    }
}

/// The same of NFSACL.
fn attributes_of_acl_failure(procedure: AclProcedure) -> usize {
    match procedure {
        AclProcedure::Null => 0,
        AclProcedure::GetAcl | AclProcedure::SetAcl => 1,
    }
}
