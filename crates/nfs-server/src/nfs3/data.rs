//! Procedures that move data: READ, WRITE, COMMIT and READLINK.

use super::{MAX_READ, MAX_WRITE, Nfs3, PostOp, changed, convert, refused, seen};
use crate::fs::Outcome;
use bytes::Bytes;
use nfs_proto::results::{self, Res};
use nfs_proto::{Data, Path, Status, WccData, WriteVerifier, args};
use oncrpc::xdr::{Gather, gather_len};
use oncrpc::{Call, Reply};

impl Nfs3 {
    pub(super) fn read_link(
        &self,
        call: &Call,
        args: &args::ReadLink,
    ) -> Outcome<Res<(PostOp, Bytes), PostOp>> {
        let (target, who) = match self.open(call, &args.symlink) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        let export = target.export.id();
        let outcome = target.export.fs.read_link(&who, target.file);
        outcome.map(move |found| seen(export, found, |attributes, text| (attributes, text)))
    }

    pub(super) fn read(
        &self,
        call: &Call,
        args: &args::Read,
    ) -> Outcome<Res<results::Read<'static>, PostOp>> {
        let (target, who) = match self.open(call, &args.file) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        let export = target.export.id();
        let count = args.count.min(MAX_READ);
        let outcome = target.export.fs.read(&who, target.file, args.offset, count);
        outcome.map(move |found| {
            seen(export, found, |attributes, read| results::Read {
                attributes,
                count: u32::try_from(gather_len(&read.data))
                    .expect("a file system reads no more than it was asked to"),
                eof: read.eof,
                data: Data::from(read.data),
            })
        })
    }

    pub(super) fn write(
        &self,
        call: &Call,
        args: &args::Write<'_>,
    ) -> Outcome<Res<results::Write, WccData>> {
        let (target, who) = match self.open_to_change(call, &args.file) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        if args.count as usize != args.data.len() {
            return refused(Status::Invalid);
        }
        let mut data = args.data.clone().into_gather();
        shorten(&mut data, MAX_WRITE as usize);
        let export = target.export.id();
        let fs = &target.export.fs;
        let stability = convert::stability(args.stable);
        // From before: if data is lost while this is written, the client must see that the verifier
        // of its COMMIT is another one.
        let verifier = WriteVerifier(fs.write_verifier().to_be_bytes());
        let outcome = fs.write(&who, target.file, args.offset, data, stability);
        outcome.map(move |done| {
            let wcc = convert::wcc(export, &done.wcc);
            changed(wcc, done.result, |wcc, written| results::Write {
                wcc,
                count: written.count,
                committed: convert::stable(written.committed),
                verifier,
            })
        })
    }

    pub(super) fn commit(
        &self,
        call: &Call,
        args: &args::Commit,
    ) -> Outcome<Res<results::Commit, WccData>> {
        let (target, who) = match self.open_to_change(call, &args.file) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        let export = target.export.id();
        let fs = target.export.fs.clone();
        let outcome = fs.commit(&who, target.file, args.offset, args.count);
        outcome.map(move |done| {
            let wcc = convert::wcc(export, &done.wcc);
            changed(wcc, done.result, |wcc, ()| results::Commit {
                wcc,
                verifier: WriteVerifier(fs.write_verifier().to_be_bytes()),
            })
        })
    }
}

/// The reply of READ, whose data goes by reference.
pub(super) fn write_read(call: Call, results: Res<results::Read<'static>, PostOp>) -> Reply {
    super::write(call, &results)
}

/// The reply of READLINK, whose text goes by reference.
pub(super) fn write_link(call: Call, results: Res<(PostOp, Bytes), PostOp>) -> Reply {
    let results = results.map(|(attributes, text)| results::ReadLink {
        attributes,
        target: Path::from(Gather::from_elem(text, 1)),
    });
    super::write(call, &results)
}

fn shorten(data: &mut Gather, mut limit: usize) {
    for piece in data.iter_mut() {
        piece.truncate(limit);
        limit -= piece.len();
    }
}
