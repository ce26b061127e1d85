//! READ, WRITE and COMMIT (RFC 8881 §18.22, §18.32, §18.3).

use super::Nfs4;
use super::compound::{Ran, Running, after};
use super::convert;
use super::current::At;
use super::special_io::SpecialIo;
use crate::fs::Error;
use crate::{MAX_READ, MAX_WRITE};
use nfs_proto::v4::file::{CommitArgs, CommitOk, ReadArgs, ReadOk, WriteArgs, WriteOk};
use nfs_proto::v4::{ResOp, StateId, Status};
use nfs_proto::{Data, WriteVerifier};
use oncrpc::xdr::gather_len;

/// Bytes of the result of READ beside the data: operation, status, end of the file, length.
const READ: usize = 4 + 4 + 4 + 4;

impl Nfs4 {
    /// Checks that a state id allows to read or write a file. While the operation is executed with a special one, nobody is granted a
    /// denial of it (RFC 8881 §9.1.2).
    pub(super) fn check_io(
        &self,
        run: &mut Running,
        at: &At,
        state: StateId,
        writes: bool,
    ) -> Result<(), Status> {
        let (client, key) = (run.client()?, run.key(at));
        let is_special = (self.inner.state).with(|all| {
            let now = all.now;
            let open = all.server.check_io(now, client, &key, state, writes)?;
            if open.is_none() {
                all.server.begin_special_io(&key, writes);
            }
            Ok::<_, Status>(open.is_none())
        });
        if is_special? {
            let state = self.inner.state.clone();
            run.special_io.push(SpecialIo { state, key, writes });
        }
        Ok(())
    }

    pub(super) fn read(&self, run: &mut Running, args: &ReadArgs) -> Ran {
        let at = run.file(Status::IsDirectory)?;
        let state = run.state_id(args.state)?;
        self.check_io(run, &at, state, false)?;
        let wanted = args.count.min(MAX_READ);
        let room = run.room_for_item(READ, wanted as usize);
        if room == 0 && wanted > 0 {
            run.check_room(READ, Some(1))?;
        }
        let count = u32::try_from(room).map_or(wanted, |room| room.min(wanted));
        let fs = &run.export(&at).fs;
        let outcome = fs.read(&run.who(&at), at.file, args.offset, count);
        after(self, run, outcome, move |nfs, run, found| {
            match found.result {
                Ok(read) => {
                    let len = gather_len(&read.data);
                    let data = Data::from(read.data);
                    let eof = read.eof;
                    run.counted.moved(len as u64);
                    run.push_eligible(len, ReadOk { eof, data })
                }
                Err(error @ Error::Invalid) => nfs.refine(run, &at, error, found.attributes),
                Err(error) => Err(convert::status(error)),
            }
        })
    }

    pub(super) fn write(&self, run: &mut Running, args: WriteArgs<'_>) -> Ran {
        let at = run.file(Status::IsDirectory)?;
        let state = run.state_id(args.state)?;
        self.check_io(run, &at, state, true)?;
        if at.options.read_only {
            return Err(Status::ReadOnly);
        }
        let mut data = args.data.into_gather();
        let mut left = MAX_WRITE as usize;
        for piece in &mut data {
            piece.truncate(left);
            left -= piece.len();
        }
        let fs = &run.export(&at).fs;
        // The verifier is read before the write: if data is lost during the write, the verifier of the COMMIT must differ from
        // this one.
        let verifier = WriteVerifier(fs.write_verifier().to_be_bytes());
        let stability = args.stable.into();
        let outcome = fs.write(&run.who(&at), at.file, args.offset, data, stability);
        after(self, run, outcome, move |nfs, run, done| {
            match done.result {
                Ok(written) => {
                    run.counted.moved(written.count.into());
                    run.push(ResOp::Write(Ok(WriteOk {
                        count: written.count,
                        committed: written.committed.into(),
                        verifier,
                    })))
                }
                Err(error @ Error::Invalid) => nfs.refine(run, &at, error, done.wcc.after),
                Err(error) => Err(convert::status(error)),
            }
        })
    }

    pub(super) fn commit(&self, run: &mut Running, args: &CommitArgs) -> Ran {
        let at = run.file(Status::IsDirectory)?;
        if at.options.read_only {
            return Err(Status::ReadOnly);
        }
        let fs = run.fs(&at);
        let outcome = fs.commit(&run.who(&at), at.file, args.offset, args.count);
        after(self, run, outcome, move |nfs, run, done| {
            match done.result {
                Ok(()) => {
                    let verifier = WriteVerifier(fs.write_verifier().to_be_bytes());
                    run.push(ResOp::Commit(Ok(CommitOk { verifier })))
                }
                Err(error @ Error::Invalid) => nfs.refine(run, &at, error, done.wcc.after),
                Err(error) => Err(convert::status(error)),
            }
        })
    }
}
