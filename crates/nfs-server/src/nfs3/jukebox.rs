//! Replies with NFS3ERR_JUKEBOX, for calls without a place.

use nfs_proto::{AclProcedure, NFSACL_PROGRAM, Procedure, Status};
use oncrpc::{Call, Reply};

/// Makes an NFS3ERR_JUKEBOX reply: the call was not executed, and the client may retry later (RFC
/// 1813 §2.6).
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
        // All optional attributes are omitted.
        w.bool(false);
    }
    Reply::Message(w.finish())
}

/// Returns the number of optional attributes in a failure: of the file or directory, or before and
/// after for each directory to change (RFC 1813 §3.3).
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

/// The same for NFSACL.
fn attributes_of_acl_failure(procedure: AclProcedure) -> usize {
    match procedure {
        AclProcedure::Null => 0,
        AclProcedure::GetAcl | AclProcedure::SetAcl => 1,
    }
}
