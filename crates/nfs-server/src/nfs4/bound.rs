//! Bounds of replies by the arguments of a COMPOUND, so that a transport leases no more memory than the reply can need, whatever the
//! client offers for it.

use super::attributes;
use crate::MAX_READ;
use crate::fs::MAX_XATTR_VALUE;
use nfs_proto::Wire;
use nfs_proto::limits::MAX_PATH;
use nfs_proto::v4::directory::CreateType;
use nfs_proto::v4::lock::LockDenied;
use nfs_proto::v4::{ArgOp, CompoundArgs, Handle};
use oncrpc::xdr::{Reader, padded};
use oncrpc::{MAX_REPLY_HEADER, ReplyBound};

/// Largest reply in bytes, regardless of the request: reading so many entries with their attributes takes a thread some milliseconds.
pub(super) const MAX_DIRECTORY: usize = 256 << 10;

/// Bytes of a result beside what depends on its arguments: number, status, and all of those that are not named in [`result`].
const RESULT: usize = 512;

/// Returns a bound of the reply to a COMPOUND with these arguments; `None` for one that cannot be read to its end as it stands, such
/// as one whose data comes in chunks.
pub(super) fn of_compound(args: Reader<'_>) -> Option<ReplyBound> {
    let mut args = CompoundArgs::parse(args).ok()?;
    // The tag comes again, between status and number of results.
    let mut bound = ReplyBound::new(MAX_REPLY_HEADER + 4 + 4 + padded(args.tag.len()) + 4);
    while let Some(operation) = args.next_operation() {
        add(&mut bound, &operation.ok()?)?;
    }
    Some(bound)
}

/// Adds the result of an operation. `None` if what follows it cannot be found: its data may be elsewhere.
fn add(bound: &mut ReplyBound, operation: &ArgOp<'_>) -> Option<()> {
    bound.fixed += RESULT;
    match operation {
        ArgOp::Write(_) => return None,
        ArgOp::Create(args) if matches!(args.kind, CreateType::Symlink(_)) => return None,
        ArgOp::Read(args) => bound.results.push(args.count.min(MAX_READ) as usize),
        ArgOp::ReadLink => bound.results.push(MAX_PATH as usize),
        ArgOp::GetAttr(args) => bound.fixed += attributes::bound(&args.wanted),
        ArgOp::ReadDir(args) => bound.fixed += (args.max_count as usize).min(MAX_DIRECTORY),
        ArgOp::ListXattrs(args) => {
            bound.fixed = bound.fixed.saturating_add(args.max_count as usize);
        }
        ArgOp::GetXattr(_) => bound.fixed += padded(MAX_XATTR_VALUE),
        ArgOp::GetFh => bound.fixed += Handle::MAX,
        ArgOp::Lock(_) | ArgOp::LockT(_) => bound.fixed += LockDenied::MAX,
        ArgOp::TestStateId(args) => bound.fixed += 4 * args.states.len(),
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::v4::directory::ReadDirArgs;
    use nfs_proto::v4::file::{ReadArgs, WriteArgs};
    use nfs_proto::v4::session::SequenceArgs;
    use nfs_proto::v4::{CallWriter, StateId, Tag};
    use oncrpc::xdr::Writer;

    fn bound(operations: Vec<ArgOp<'_>>) -> Option<ReplyBound> {
        let mut w = Writer::default();
        let mut call = CallWriter::new(&mut w, Tag::new(b"tag").unwrap(), 2);
        call.push(ArgOp::Sequence(SequenceArgs::default()));
        for operation in operations {
            call.push(operation);
        }
        call.finish();
        let args = w.finish();
        of_compound(Reader::new(args.head()))
    }

    fn read(count: u32) -> ArgOp<'static> {
        ArgOp::Read(ReadArgs {
            state: StateId::default(),
            offset: 0,
            count,
        })
    }

    fn list(max_count: u32) -> ArgOp<'static> {
        ArgOp::ReadDir(ReadDirArgs {
            cookie: Default::default(),
            verifier: Default::default(),
            dir_count: 0,
            max_count,
            wanted: Default::default(),
        })
    }

    #[test]
    fn reply_is_bounded_by_what_its_operations_return() {
        let small = bound(vec![ArgOp::PutRootFh, ArgOp::GetFh]).unwrap();
        assert!(small.fixed < 4096 && small.results.is_empty());
        let two = bound(vec![read(100), read(u32::MAX)]).unwrap();
        assert_eq!(two.results[..], [100, MAX_READ as usize]);
        let all = bound(vec![list(u32::MAX)]).unwrap();
        assert!(all.fixed < MAX_DIRECTORY + 4096);
        let some = bound(vec![list(4096)]).unwrap();
        assert_eq!(all.fixed - some.fixed, MAX_DIRECTORY - 4096);
    }

    #[test]
    fn reply_to_what_cannot_be_read_has_no_bound() {
        let write = ArgOp::Write(WriteArgs {
            state: StateId::default(),
            offset: 0,
            stable: nfs_proto::Stable::Unstable,
            data: nfs_proto::Data::from(&b"data"[..]),
        });
        assert_eq!(bound(vec![write, read(1)]), None);
        assert_eq!(of_compound(Reader::new(&[0, 0, 0, 9])), None);
    }
}
