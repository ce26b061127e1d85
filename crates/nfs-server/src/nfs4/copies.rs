//! COPY within this server, and CLONE (RFC 7862 §15.2, §15.13): from the file that the saved file handle names to that of the
//! current one.

use super::Nfs4;
use super::compound::{Ran, Running, after};
use super::convert;
use super::current::{At, Object};
use crate::fs::{Error, FileKind};
use nfs_proto::v4::copy::{CloneArgs, CopyArgs, CopyOk, CopyRequirements, WriteResponse};
use nfs_proto::v4::{ResOp, SpecialStateId, StateId, Status};
use nfs_proto::{Stable, WriteVerifier};

/// Most bytes of one COPY, which is answered when they are copied: the client asks for the rest in another one. As knfsd has it.
const MAX_COPY: u64 = 4 << 20;

/// Ranges of two regular files that may be used in this way, the first of them before the end of its file.
struct Ranges {
    from: (At, u64),
    to: (At, u64),
    len: u64,
}

/// The range that a client asks for, with its state ids.
#[derive(Clone, Copy)]
struct Asked {
    from_state: StateId,
    to_state: StateId,
    from: u64,
    to: u64,
    count: u64,
}

impl Nfs4 {
    /// COPY, which is always complete before the reply, in order.
    pub(super) fn copy(&self, run: &mut Running, args: &CopyArgs<'_>) -> Ran {
        if !args.source_servers.is_empty() {
            return Err(Status::NotSupported);
        }
        let asked = Asked {
            from_state: args.source_state,
            to_state: args.destination_state,
            from: args.source_offset,
            to: args.destination_offset,
            count: args.count,
        };
        self.ranges(run, asked, |nfs, run, ranges| {
            let Ranges { from, to, len } = ranges;
            if from.0.export != to.0.export {
                // The client copies in another way.
                return Err(Status::OffloadDenied);
            }
            if from.0.file == to.0.file {
                return Err(Status::Invalid);
            }
            let fs = run.fs(&to.0);
            // As for WRITE, it is read before the data can be lost.
            let verifier = WriteVerifier(fs.write_verifier().to_be_bytes());
            if len == 0 {
                return copied(run, 0, verifier);
            }
            let (from, to) = ((from.0.file, from.1), (to.0, to.1));
            let who = run.who(&to.0);
            let outcome = fs.copy(&who, from, (to.0.file, to.1), len.min(MAX_COPY));
            after(nfs, run, outcome, move |_, run, done| {
                copied(run, done.result.map_err(convert::status)?, verifier)
            })
        })
    }

    /// CLONE.
    pub(super) fn clone_range(&self, run: &mut Running, args: &CloneArgs) -> Ran {
        let asked = Asked {
            from_state: args.source_state,
            to_state: args.destination_state,
            from: args.source_offset,
            to: args.destination_offset,
            count: args.count,
        };
        self.ranges(run, asked, |nfs, run, ranges| {
            let Ranges { from, to, len } = ranges;
            if from.0.export != to.0.export {
                return Err(Status::CrossDevice);
            }
            let fs = run.fs(&to.0);
            if fs.abilities().clone_block.is_none() {
                return Err(Status::NotSupported);
            }
            if from.0.file == to.0.file && from.1.abs_diff(to.1) < len {
                return Err(Status::Invalid);
            }
            if len == 0 {
                return run.push(ResOp::Clone(Ok(())));
            }
            let who = run.who(&to.0);
            let outcome = fs.clone_range(&who, (from.0.file, from.1), (to.0.file, to.1), len);
            after(nfs, run, outcome, |_, run, done| {
                done.result.map_err(convert::status)?;
                run.push(ResOp::Clone(Ok(())))
            })
        })
    }

    /// Checks the files and what is asked for, and goes on with the ranges.
    ///
    /// # Errors
    ///
    /// `NoFileHandle`, `WrongType`, `ReadOnly`; those of state ids; `Invalid`: the source does not have this range.
    fn ranges(
        &self,
        run: &mut Running,
        asked: Asked,
        then: impl FnOnce(&Self, &mut Running, Ranges) -> Ran + Send + 'static,
    ) -> Ran {
        let to = run.file(Status::WrongType)?;
        let Object::File(from) = run.saved.ok_or(Status::NoFileHandle)? else {
            return Err(Status::WrongType);
        };
        let from_state = match asked.from_state.special() {
            // It is saved with the file handle.
            Some(SpecialStateId::Current) => run.saved_state.ok_or(Status::BadStateId)?,
            _ => asked.from_state,
        };
        let to_state = run.state_id(asked.to_state)?;
        self.check_io(run, &from, from_state, false)?;
        self.check_io(run, &to, to_state, true)?;
        if to.options.read_only {
            return Err(Status::ReadOnly);
        }
        let outcome = run.fs(&to).attributes(to.file);
        after(self, run, outcome, move |nfs, run, found| {
            check_kind(found.map_err(convert::status)?.kind)?;
            let outcome = run.fs(&from).attributes(from.file);
            after(nfs, run, outcome, move |nfs, run, found| {
                let found = found.map_err(convert::status)?;
                check_kind(found.kind)?;
                let left = found.size.checked_sub(asked.from).ok_or(Status::Invalid)?;
                let len = match asked.count {
                    // All up to the end.
                    0 => left,
                    count if count <= left => count,
                    _ => return Err(Status::Invalid),
                };
                if asked.to.checked_add(len).is_none() {
                    return Err(convert::status(Error::TooLarge));
                }
                let ranges = Ranges {
                    from: (from, asked.from),
                    to: (to, asked.to),
                    len,
                };
                then(nfs, run, ranges)
            })
        })
    }
}

/// Checks the kind of a file to copy from or to.
fn check_kind(kind: FileKind) -> Result<(), Status> {
    match kind {
        FileKind::Regular => Ok(()),
        _ => Err(Status::WrongType),
    }
}

fn copied(run: &mut Running, count: u64, verifier: WriteVerifier) -> Ran {
    run.push(ResOp::Copy(Ok(CopyOk {
        response: WriteResponse {
            callback: None,
            count,
            committed: Stable::Unstable,
            verifier,
        },
        requirements: CopyRequirements {
            consecutive: true,
            synchronous: true,
        },
    })))
}
