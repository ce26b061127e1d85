//! Results of READ and WRITE of NFS version 3, which may be of fewer octets than were asked for (RFC 1813 §3.3.6, §3.3.7).

use crate::bed::accepted;
use crate::rpc;
use crate::verdict::{Tested, ensure, fail, skip};

/// Octets of `fattr3` and `wcc_attr` (RFC 1813 §2.6).
const FATTR3: usize = 84;
const WCC_ATTR: usize = 24;

/// Octets that a READ gave.
pub(super) struct Data {
    /// Number of them.
    pub(super) length: usize,
    /// Their place in the reply, if they are inline; its end otherwise.
    pub(super) begin: usize,
}

fn word(stream: &[u8], at: usize) -> Tested<u32> {
    match stream.get(at..).and_then(<[u8]>::first_chunk) {
        Some(word) => Ok(u32::from_be_bytes(*word)),
        None => fail("the results end too early"),
    }
}

/// The place behind an optional item of so many octets.
fn behind_optional(stream: &[u8], at: usize, octets: usize) -> Tested<usize> {
    match word(stream, at)? {
        0 => Ok(at + 4),
        _ => Ok(at + 4 + octets),
    }
}

/// The place behind the status of the results, which must be NFS3_OK.
fn behind_status(stream: &[u8], xid: u32) -> Tested<usize> {
    let status = accepted(stream, xid)?;
    ensure(status == rpc::accept::SUCCESS, || {
        format!("accept_stat {status}")
    })?;
    let verifier = word(stream, 16)? as usize;
    let at = 24 + verifier.next_multiple_of(4);
    match word(stream, at)? {
        0 => Ok(at + 4),
        status => fail(format!("it fails with NFS status {status}")),
    }
}

/// The reply says that the call was carried out.
pub(super) fn is_done(stream: &[u8], xid: u32) -> Tested {
    behind_status(stream, xid).map(drop)
}

/// Data of a READ of so many octets, at a place where the file has some.
pub(super) fn read_data(stream: &[u8], xid: u32, asked: usize) -> Tested<Data> {
    let at = behind_optional(stream, behind_status(stream, xid)?, FATTR3)?;
    let (count, eof) = (word(stream, at)?, word(stream, at + 4)?);
    let length = word(stream, at + 8)?;
    ensure(count == length, || {
        format!("the count of a READ is {count}, and its data has {length} octets")
    })?;
    let length = length as usize;
    ensure(length <= asked, || {
        format!("a READ of {asked} octets gives {length}")
    })?;
    if length == 0 && asked > 0 {
        return match eof {
            0 => skip("READ gives no octets of the file"),
            _ => fail("the file ends before its content does"),
        };
    }
    let begin = at + 12;
    Ok(Data { length, begin })
}

/// Data of a READ of so many octets that is inline: the last item of its results, with its roundup (RFC 4506 §4.10).
pub(super) fn inline_data(stream: &[u8], xid: u32, asked: usize) -> Tested<Vec<u8>> {
    let Data { length, begin } = read_data(stream, xid, asked)?;
    ensure(stream.len() == begin + length.next_multiple_of(4), || {
        format!("{length} octets and their roundup are not the end of the reply")
    })?;
    Ok(stream[begin..begin + length].to_vec())
}

/// Octets that a WRITE of so many has written.
pub(super) fn written_by(stream: &[u8], xid: u32, given: usize) -> Tested<usize> {
    let at = behind_optional(stream, behind_status(stream, xid)?, WCC_ATTR)?;
    let at = behind_optional(stream, at, FATTR3)?;
    let count = word(stream, at)? as usize;
    ensure(count <= given, || {
        format!("a WRITE of {given} octets has written {count}")
    })?;
    match count {
        0 => skip("WRITE writes nothing to the file"),
        _ => Ok(count),
    }
}
