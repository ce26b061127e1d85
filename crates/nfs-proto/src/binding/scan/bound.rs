//! Bounds of replies to calls that pass by (RFC 8267 §3, §4.1, §5, §6.2).

use super::super::{acl_reply_bound, fixed};
use super::compound::REPLY_FIXED;
use super::legacy;
use super::machine::{Scan, is_compound};
use super::shape::Note;
use crate::limits::MAX_COMPOUND_REPLY;
use crate::mount::{MountStatus, Mounted};
use crate::{
    AclProcedure, MOUNT_PROGRAM, MOUNT_V3, NFS_PROGRAM, NFS_V2, NFS_V3, NFS_V4, NFSACL_PROGRAM,
    NFSACL_V3, Wire,
};
use oncrpc::xdr::{Reader, padded};
use oncrpc::{REPLY_HEADER, ReplyBound};

/// Portmapper and rpcbind (RFC 1833).
const RPCBIND_PROGRAM: u32 = 100_000;
/// Network Lock Manager (RFC 1813 §6).
const NLM_PROGRAM: u32 = 100_021;
/// Network Status Monitor.
const NSM_PROGRAM: u32 = 100_024;
/// `netobj` (RFC 1813 §6.1.2): up to 1024 bytes.
const NETOBJ: usize = 4 + 1024;

/// Returns a bound of the reply to a call that was scanned to its end.
pub(super) fn bound(scan: &Scan) -> Option<ReplyBound> {
    if !scan.is_clear() || !scan.is_complete() {
        return None;
    }
    let (version, procedure) = (scan.note(Note::Version), scan.note(Note::Procedure));
    let program = scan.note(Note::Program);
    let mut bound = match (program, version) {
        (NFS_PROGRAM, NFS_V2 | NFS_V3) => {
            legacy::bound(version, procedure, scan.note(Note::Count))?
        }
        (NFS_PROGRAM, NFS_V4) if is_compound(program, version, procedure) => compound(scan)?,
        (NFS_PROGRAM | MOUNT_PROGRAM | NFSACL_PROGRAM, _)
        | (NLM_PROGRAM | NSM_PROGRAM | RPCBIND_PROGRAM, _)
            if procedure == 0 =>
        {
            fixed(0)
        }
        (MOUNT_PROGRAM, MOUNT_V3) => fixed(mount_v3(procedure)?),
        (MOUNT_PROGRAM, 1 | 2) => fixed(mount_v1(procedure)?),
        (NLM_PROGRAM, 4) => fixed(nlm_v4(procedure)?),
        (RPCBIND_PROGRAM, _) => fixed(rpcbind(version, procedure)?),
        (NFSACL_PROGRAM, NFSACL_V3) => acl(procedure)?,
        _ => return None,
    };
    bound.fixed += scan.verifier();
    Some(bound)
}

/// The sum over the operations, within the limit.
fn compound(scan: &Scan) -> Option<ReplyBound> {
    let room = scan.room();
    if room.unbounded {
        return None;
    }
    let fixed = room.fixed.saturating_add(REPLY_HEADER + REPLY_FIXED);
    let results: usize = room.results.iter().map(|&bytes| padded(bytes)).sum();
    let whole = fixed.saturating_add(results);
    (whole <= MAX_COMPOUND_REPLY).then(|| ReplyBound {
        fixed,
        results: room.results.clone(),
    })
}

/// Results of MOUNT version 3 (RFC 1813 §5.2). The lists of DUMP and EXPORT have no limit.
fn mount_v3(procedure: u32) -> Option<usize> {
    match procedure {
        1 => Some(<Result<Mounted, MountStatus> as Wire<'_>>::MAX),
        3 | 4 => Some(0),
        _ => None,
    }
}

/// Results of MOUNT versions 1 and 2 (RFC 1094, Appendix A).
fn mount_v1(procedure: u32) -> Option<usize> {
    match procedure {
        1 => Some(4 + 32),
        3 | 4 => Some(0),
        _ => None,
    }
}

/// Results of NLM version 4 (RFC 1813 §6.3).
fn nlm_v4(procedure: u32) -> Option<usize> {
    match procedure {
        // TEST: cookie, status, and the holder of the lock.
        1 => Some(NETOBJ + 4 + 8 + NETOBJ + 16),
        // LOCK, CANCEL, UNLOCK, GRANTED, NM_LOCK: cookie and status.
        2..=5 | 22 => Some(NETOBJ + 4),
        // The asynchronous procedures and FREE_ALL.
        6..=15 | 23 => Some(0),
        // SHARE, UNSHARE: a sequence number, too.
        20 | 21 => Some(NETOBJ + 8),
        _ => None,
    }
}

/// Results of the portmapper and of rpcbind (RFC 1833 §2.1, §3.1) that are one word: SET, UNSET, and
/// GETPORT or GETTIME.
fn rpcbind(version: u32, procedure: u32) -> Option<usize> {
    match (version, procedure) {
        (2..=4, 1 | 2) | (2, 3) | (3 | 4, 6) => Some(4),
        _ => None,
    }
}

/// NFSACL: GETACL has no limit (RFC 8267 §5.2).
fn acl(procedure: u32) -> Option<ReplyBound> {
    match AclProcedure::try_from(procedure).ok()? {
        AclProcedure::GetAcl => None,
        other => acl_reply_bound(other, &mut Reader::new(&[])),
    }
}
