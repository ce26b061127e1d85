//! Procedures of NFS versions 2 and 3 (RFC 8267 §4, RFC 1094, RFC 1813).

use super::super::{directory, eligible, fixed, reply_bound};
use super::shape::Shape::{Is, Item, Opaque, Optional, SetTime, Words};
use super::shape::{Note, Shape, Shapes, accepted};
use crate::limits::{
    MAX_DATA, MAX_DIRECTORY_REPLY, MAX_FILENAME, MAX_HANDLE, MAX_PATH, MAX_V2_DATA, MAX_V2_NAME,
    MAX_V2_PATH,
};
use crate::{Attributes, NFS_V2, NFS_V3, Procedure, Wire};
use oncrpc::ReplyBound;
use oncrpc::xdr::Reader;

const HANDLE: Shape = Opaque(MAX_HANDLE);
const V2_HANDLE: Shape = Words(8);
const COUNT: Shape = Shape::Note(Note::Count);
const POST_OP_ATTR: Shape = Optional(21);

/// Returns the arguments of a procedure up to the last one that matters (RFC 1813 §3,
/// RFC 1094 §2.2).
pub(super) fn arguments(version: u32, procedure: u32) -> Shapes {
    match (version, procedure) {
        (NFS_V3, 6) => &[HANDLE, Words(2), COUNT],
        (NFS_V3, 7) => &[HANDLE, Words(4), Item(MAX_DATA)],
        (NFS_V3, 10) => &[
            HANDLE,
            Opaque(MAX_FILENAME),
            Optional(1),
            Optional(1),
            Optional(1),
            Optional(2),
            SetTime,
            SetTime,
            Item(MAX_PATH),
        ],
        (NFS_V3, 16) => &[HANDLE, Words(4), COUNT],
        (NFS_V3, 17) => &[HANDLE, Words(5), COUNT],
        (NFS_V2, 6) => &[V2_HANDLE, Words(1), COUNT],
        (NFS_V2, 8) => &[V2_HANDLE, Words(3), Item(MAX_V2_DATA)],
        (NFS_V2, 13) => &[V2_HANDLE, Opaque(MAX_V2_NAME), Item(MAX_V2_PATH)],
        (NFS_V2, 16) => &[V2_HANDLE, Words(1), COUNT],
        _ => &[],
    }
}

/// Whether there is such a procedure.
pub(super) fn is_known(version: u32, procedure: u32) -> bool {
    match version {
        NFS_V3 => Procedure::try_from(procedure).is_ok(),
        NFS_V2 => procedure <= 17,
        _ => false,
    }
}

/// Returns a bound of the reply, without the verifier of RPCSEC_GSS; `count` is that of READ,
/// READDIR or READDIRPLUS.
pub(super) fn bound(version: u32, procedure: u32, count: u32) -> Option<ReplyBound> {
    match version {
        NFS_V3 => bound_v3(Procedure::try_from(procedure).ok()?, count),
        NFS_V2 => bound_v2(procedure, count),
        _ => None,
    }
}

fn bound_v3(procedure: Procedure, count: u32) -> Option<ReplyBound> {
    /// Status and attributes of the file, before what READLINK and READ return.
    const ATTRIBUTES: usize = 4 + <Option<Attributes> as Wire<'_>>::MAX;
    match procedure {
        Procedure::ReadLink => Some(eligible(ATTRIBUTES + 4, MAX_PATH)),
        Procedure::Read => (count <= MAX_DATA).then(|| eligible(ATTRIBUTES + 12, count)),
        Procedure::ReadDir | Procedure::ReadDirPlus => {
            (count <= MAX_DIRECTORY_REPLY).then(|| directory(count))
        }
        other => reply_bound(other, &mut Reader::new(&[])),
    }
}

fn bound_v2(procedure: u32, count: u32) -> Option<ReplyBound> {
    /// `fattr` (RFC 1094 §2.3.5).
    const FATTR: usize = 68;
    Some(match procedure {
        // NULL, ROOT, WRITECACHE.
        0 | 3 | 7 => fixed(0),
        // GETATTR, SETATTR, WRITE: `attrstat`.
        1 | 2 | 8 => fixed(4 + FATTR),
        // LOOKUP, CREATE, MKDIR: `diropres`.
        4 | 9 | 14 => fixed(4 + 32 + FATTR),
        5 => eligible(4 + 4, MAX_V2_PATH),
        // A server returns no more than the version allows, whatever the count.
        6 => eligible(4 + FATTR + 4, count.min(MAX_V2_DATA)),
        // REMOVE, RENAME, LINK, SYMLINK, RMDIR: `stat`.
        10..=13 | 15 => fixed(4),
        // Room for the status, the end of the list and `eof` beside the entries.
        16 if count <= MAX_DIRECTORY_REPLY => fixed(12 + count as usize),
        17 => fixed(4 + 20),
        _ => return None,
    })
}

/// Returns the shape of a reply with an eligible result (RFC 1813 §3.3, RFC 1094 §2.2): accepted,
/// with the status OK. Empty for a procedure without such a result.
pub(super) fn reply(version: u32, procedure: u32) -> Shapes {
    match (version, procedure) {
        (NFS_V3, 5) => accepted![Is(0), POST_OP_ATTR, Item(MAX_PATH)],
        (NFS_V3, 6) => accepted![Is(0), POST_OP_ATTR, Words(2), Item(MAX_DATA)],
        (NFS_V2, 5) => accepted![Is(0), Item(MAX_V2_PATH)],
        (NFS_V2, 6) => accepted![Is(0), Words(17), Item(MAX_V2_DATA)],
        _ => &[],
    }
}
