//! Operations of minor version 2 on ranges of files: ALLOCATE, DEALLOCATE, SEEK (RFC 7862 §15.1, §15.4, §15.11).

use super::Nfs4;
use super::compound::{Ran, Running, after};
use super::convert;
use crate::fs::{Content, Error, Reserve};
use nfs_proto::v4::copy::{AllocateArgs, SeekArgs, SeekOk, SeekTo};
use nfs_proto::v4::{ResOp, Status};

impl Nfs4 {
    /// ALLOCATE and DEALLOCATE, with the checks of WRITE.
    pub(super) fn reserve(&self, run: &mut Running, args: &AllocateArgs, what: Reserve) -> Ran {
        let at = run.file(Status::WrongType)?;
        let state = run.state_id(args.state)?;
        self.check_io(run, &at, state, true)?;
        if at.options.read_only {
            return Err(Status::ReadOnly);
        }
        if args.length == 0 {
            return Err(Status::Invalid);
        }
        let fs = &run.export(&at).fs;
        let outcome = fs.reserve(&run.who(&at), at.file, (args.offset, args.length), what);
        after(self, run, outcome, move |_, run, done| {
            match done.result {
                Ok(()) => run.push(match what {
                    Reserve::Space => ResOp::Allocate(Ok(())),
                    Reserve::Nothing => ResOp::Deallocate(Ok(())),
                }),
                // RFC 7862 §15.1.3, §15.4.3: of what is no regular file.
                Err(Error::IsDirectory | Error::Invalid) => Err(Status::WrongType),
                Err(error) => Err(convert::status(error)),
            }
        })
    }

    /// SEEK, with the checks of READ.
    ///
    /// The end of the file counts as behind it, as for lseek(2): no byte of the file is there.
    pub(super) fn seek(&self, run: &mut Running, args: &SeekArgs) -> Ran {
        let at = run.file(Status::IsDirectory)?;
        let state = run.state_id(args.state)?;
        self.check_io(run, &at, state, false)?;
        let content = match args.to {
            SeekTo::Data => Content::Data,
            SeekTo::Hole => Content::Hole,
        };
        let fs = &run.export(&at).fs;
        let outcome = fs.seek(&run.who(&at), at.file, args.offset, content);
        after(self, run, outcome, move |nfs, run, found| {
            match found.result {
                Ok(found) => run.push(ResOp::Seek(Ok(SeekOk {
                    eof: found.eof,
                    offset: found.offset,
                }))),
                Err(error @ Error::Invalid) => nfs.refine(run, &at, error, found.attributes),
                Err(error) => Err(convert::status(error)),
            }
        })
    }
}
