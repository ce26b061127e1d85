//! Room for the result of each operation in a reply (RFC 8267 §6.2).

use super::attributes::BITMAP;
use super::operation as op;
use crate::limits::{
    MAX_NETWORK_ADDRESS, MAX_OWNER_NAME, MAX_PATH, MAX_READ_PLUS_SEGMENTS, MAX_STATE_OWNER,
    MAX_V4_HANDLE,
};

/// `stateid4`.
const STATEID: usize = 16;
/// `change_info4` (RFC 7530 §2.2.11).
const CHANGE_INFO: usize = 20;
/// An owner or identifier with its length.
const OWNER: usize = 4 + MAX_STATE_OWNER as usize;
/// `LOCK4denied` (RFC 7530 §16.10.3).
const DENIED: usize = 8 + 8 + 4 + 8 + OWNER;
/// `open_delegation4` for writing (RFC 7530 §16.16.3): the largest of its arms.
const DELEGATION: usize = 4 + STATEID + 4 + 12 + 12 + 4 + MAX_OWNER_NAME as usize;
/// `channel_attrs4` (RFC 8881 §18.36.1).
const CHANNEL: usize = 6 * 4 + 8;
/// `write_response4` (RFC 7862 §15.2.2).
const WRITE_RESPONSE: usize = 4 + STATEID + 8 + 4 + 8;

/// Room for the result of an operation.
pub(in crate::binding::scan) struct Room {
    /// Bytes beside number and status, and beside what the arguments add. `None`: no limit.
    pub(in crate::binding::scan) bytes: Option<usize>,
}

/// Returns the room for the result of a known operation.
pub(super) fn room(operation: u32) -> Room {
    Room {
        bytes: bytes(operation),
    }
}

fn bytes(operation: u32) -> Option<usize> {
    Some(match operation {
        op::ACCESS | op::COMMIT => 8,
        op::CREATE => CHANGE_INFO + BITMAP,
        op::GETATTR => BITMAP + 4,
        op::GETFH => 4 + MAX_V4_HANDLE as usize,
        op::LINK | op::REMOVE | op::SETXATTR | op::REMOVEXATTR => CHANGE_INFO,
        op::LOCK | op::LOCKT => DENIED,
        op::CLOSE | op::LOCKU | op::OPEN_CONFIRM | op::OPEN_DOWNGRADE => STATEID,
        op::OPEN => STATEID + CHANGE_INFO + 4 + BITMAP + DELEGATION,
        // `eof` and the length of the data.
        op::READ => 8,
        // `maxcount` limits all of READDIR4resok; some servers count the entries only.
        op::READDIR => 16,
        // The text is DDP-eligible, but Linux' server puts the count and not the end of the text into the
        // Write chunk, so none is offered.
        op::READLINK => 4 + MAX_PATH as usize,
        op::RENAME => 2 * CHANGE_INFO,
        op::SETATTR => BITMAP,
        op::SETCLIENTID => 2 * (4 + MAX_NETWORK_ADDRESS as usize),
        op::WRITE => 16,
        op::BIND_CONN_TO_SESSION => 16 + 8,
        // Names of implementations have the limit of the other fields here.
        op::EXCHANGE_ID => 16 + 4 + 2 * BITMAP + 8 + 2 * OWNER + 4 + 2 * OWNER + 12,
        op::CREATE_SESSION => 16 + 8 + 2 * CHANNEL,
        op::GET_DIR_DELEGATION => 4 + 8 + STATEID + 3 * BITMAP,
        // `gdia_maxcount` limits the address.
        op::GETDEVICEINFO => 8 + BITMAP,
        op::GETDEVICELIST => 8 + 8 + 4 + 4,
        op::LAYOUTCOMMIT => 12,
        // `loga_maxcount` limits the layouts.
        op::LAYOUTGET => 4 + STATEID + 4,
        op::LAYOUTRETURN => 4 + STATEID,
        op::SEQUENCE => 36,
        op::TEST_STATEID => 4,
        op::WANT_DELEGATION => DELEGATION,
        op::COPY => WRITE_RESPONSE + 8,
        op::IO_ADVISE => BITMAP,
        op::OFFLOAD_STATUS => 16,
        // Each segment has a kind, an offset, a length and padding, beside the data that the count
        // limits.
        op::READ_PLUS => 8 + 20 * MAX_READ_PLUS_SEGMENTS as usize,
        op::SEEK => 12,
        op::WRITE_SAME => WRITE_RESPONSE,
        // `lxa_maxcount` limits all of LISTXATTRS4resok (RFC 8276 §8.4.3.2).
        op::LISTXATTRS => 16,
        op::SECINFO | op::SECINFO_NO_NAME | op::SET_SSV | op::COPY_NOTIFY | op::GETXATTR => {
            return None;
        }
        // The status is all.
        _ => 0,
    })
}
