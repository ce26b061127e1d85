//! The file of records: a mark of the format, and batches of changes.
//!
//! A batch is its mark, the length of its body, the body, and a sum of it. The first has all that there was when the file was
//! made, and was durable before the file had its name.

use super::Change;
use crate::nfs4::state::Principal;
use nfs_proto::limits::MAX_STATE_OWNER;
use nfs4_state::Recorded;
use oncrpc::xdr::{Error, Reader, Writer};
use siphasher::sip::SipHasher24;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// First bytes of the file. A file of another format has others.
const FORMAT: [u8; 16] = *b"nfs4 clients  1\n";

/// First bytes of a batch.
const BATCH: [u8; 4] = *b"\nset";

/// Bytes of the sum behind the body of a batch.
const SUM: usize = 8;

/// Everything in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) identity: [u8; 16],
    pub(super) lease: Duration,
    pub(super) clients: BTreeMap<Arc<[u8]>, Principal>,
}

/// Damage of a file: from this byte on it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) at: usize,
}

/// Makes the bytes of a file.
pub(super) fn file(contents: &Contents) -> Vec<u8> {
    let mut bytes = FORMAT.to_vec();
    write_batch(&mut bytes, |w| {
        w.u32(Entry::IDENTITY);
        w.fixed(&contents.identity);
        write_lease(w, contents.lease);
        for (owner, principal) in &contents.clients {
            write_record(w, owner, principal);
        }
    });
    bytes
}

/// Makes the bytes of a batch.
pub(super) fn batch(changes: &[Change]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_batch(&mut bytes, |w| {
        for change in changes {
            match change {
                Change::Record(Recorded { owner, principal }) => write_record(w, owner, principal),
                Change::Remove(owner) => {
                    w.u32(Entry::REMOVE);
                    w.opaque(owner);
                }
                Change::Lease(lease) => write_lease(w, *lease),
            }
        }
    });
    bytes
}

fn write_batch(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Writer)) {
    let mut w = Writer::default();
    write(&mut w);
    let body = w.finish();
    let body = body.head();
    let len = u32::try_from(body.len()).expect("records have limits");
    bytes.extend(BATCH);
    bytes.extend(len.to_be_bytes());
    bytes.extend(body);
    bytes.extend(sum(body).to_be_bytes());
}

fn write_lease(w: &mut Writer, lease: Duration) {
    w.u32(Entry::LEASE);
    w.u64(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
}

fn write_record(w: &mut Writer, owner: &[u8], principal: &Principal) {
    w.u32(Entry::RECORD);
    w.opaque(owner);
    principal.write(w);
}

fn sum(body: &[u8]) -> u64 {
    SipHasher24::new().hash(body)
}

/// Reads a file. Returns also how many bytes at its end are a batch that is not complete.
///
/// # Errors
///
/// It is damaged.
pub(super) fn read(bytes: &[u8]) -> Result<(Contents, usize), Damage> {
    let mut rest = bytes.strip_prefix(&FORMAT).ok_or(Damage { at: 0 })?;
    let mut contents = Contents::new([0; 16], Duration::ZERO);
    let mut is_first = true;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let Some((body, behind)) = split_batch(rest) else {
            // A batch is written when the one before is durable: only the last can be incomplete.
            let is_last = !(1..rest.len()).any(|at| split_batch(&rest[at..]).is_some());
            return match is_last && !is_first {
                true => Ok((contents, rest.len())),
                false => Err(Damage { at }),
            };
        };
        let changed = read_body(body, &mut contents);
        changed.map_err(|_| Damage { at })?;
        (rest, is_first) = (behind, false);
    }
    match is_first {
        true => Err(Damage { at: FORMAT.len() }),
        false => Ok((contents, 0)),
    }
}

/// Splits the body of a batch from what is behind the batch; `None` if it is not whole.
fn split_batch(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let bytes = bytes.strip_prefix(&BATCH)?;
    let (len, bytes) = bytes.split_first_chunk()?;
    let (body, bytes) = bytes.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    let (found, behind) = bytes.split_first_chunk::<SUM>()?;
    (u64::from_be_bytes(*found) == sum(body)).then_some((body, behind))
}

/// Entries of a batch.
struct Entry;

impl Entry {
    const IDENTITY: u32 = 1;
    const LEASE: u32 = 2;
    const RECORD: u32 = 3;
    const REMOVE: u32 = 4;
}

fn read_body(body: &[u8], contents: &mut Contents) -> Result<(), Error> {
    let mut r = Reader::new(body);
    while r.remaining() > 0 {
        let change = match r.u32()? {
            Entry::IDENTITY => {
                contents.identity = r.fixed()?;
                continue;
            }
            Entry::LEASE => Change::Lease(Duration::from_millis(r.u64()?)),
            Entry::RECORD => Change::Record(Recorded {
                owner: r.opaque(MAX_STATE_OWNER)?.into(),
                principal: Principal::parse(&mut r)?,
            }),
            Entry::REMOVE => Change::Remove(r.opaque(MAX_STATE_OWNER)?.into()),
            value => return Err(Error::NotInEnum { value, of: "entry" }),
        };
        contents.apply(&[change]);
    }
    Ok(())
}
