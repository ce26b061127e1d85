//! Procedures that move data: READ, WRITE, COMMIT and READLINK.

use super::{MAX_READ, MAX_WRITE, Nfs3, Operation, PostOp, changed, convert, refused, seen, tally};
use crate::export_metrics::Tally;
use crate::fs::{Attributes, Error, Outcome, ReadOut, Seen};
use crate::metrics::ErrorClass;
use bytes::Bytes;
use nfs_proto::results::{self, Res};
use nfs_proto::{Arguments, Data, Path, Status, WccData, WriteVerifier, args};
use oncrpc::xdr::{Gather, gather_len};
use oncrpc::{Call, Reply, ReplyBound};

impl Nfs3 {
    pub(super) fn read_link(
        &self,
        call: &Operation<'_>,
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

    pub(super) fn read(&self, call: &Operation<'_>, args: &args::Read) -> Outcome<ReadResults> {
        let (target, who) = match self.open(call, &args.file) {
            Ok(opened) => opened,
            Err(status) => return refused(status).map(Ok),
        };
        let export = target.export.id();
        let ask = args::Read {
            count: args.count.min(MAX_READ),
            ..*args
        };
        let room = call.caller.reply_room;
        if room.carries(&ask.reply_bound()) {
            let fs = &target.export.fs;
            let outcome = fs.read(&who, target.file, ask.offset, ask.count);
            return outcome.map(move |found| Ok(read_results(export, found)));
        }
        // The data may still fit if the file ends earlier.
        let (fs, file) = (target.export.fs.clone(), target.file);
        let shorten = move |found: Result<Attributes, Error>| match found {
            Ok(attributes) => {
                let left = attributes.size.saturating_sub(ask.offset);
                let count = ask.count.min(u32::try_from(left).unwrap_or(u32::MAX));
                let ask = args::Read { count, ..ask };
                let bound = ask.reply_bound();
                match room.carries(&bound) {
                    true => fs
                        .read(&who, file, ask.offset, count)
                        .map(move |found| Ok(read_results(export, found))),
                    false => Outcome::Ready(Err(NoRoom(bound))),
                }
            }
            Err(error) => Outcome::Ready(Ok(Err(convert::status(error).into()))),
        };
        match target.export.fs.attributes(file) {
            Outcome::Ready(found) => shorten(found),
            later => Outcome::Slow(Box::new(move || shorten(later.wait()).wait())),
        }
    }

    pub(super) fn write(
        &self,
        call: &Operation<'_>,
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
        let stability = args.stable.into();
        // The verifier is read before the write: if data is lost during the write, the verifier of
        // the COMMIT must differ from this one.
        let verifier = WriteVerifier(fs.write_verifier().to_be_bytes());
        let outcome = fs.write(&who, target.file, args.offset, data, stability);
        outcome.map(move |done| {
            let wcc = convert::wcc(export, &done.wcc);
            changed(wcc, done.result, |wcc, written| results::Write {
                wcc,
                count: written.count,
                committed: written.committed.into(),
                verifier,
            })
        })
    }

    pub(super) fn commit(
        &self,
        call: &Operation<'_>,
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

/// Reply to a READ whose results, of this size, fit neither inline nor the offered chunk: the file was
/// not read.
pub(super) struct NoRoom(ReplyBound);

type ReadResults = Result<Res<results::Read<'static>, PostOp>, NoRoom>;

fn read_results(export: u32, found: Seen<ReadOut>) -> Res<results::Read<'static>, PostOp> {
    seen(export, found, |attributes, read| results::Read {
        attributes,
        count: u32::try_from(gather_len(&read.data))
            .expect("a file system reads no more than it was asked to"),
        eof: read.eof,
        data: Data::from(read.data),
    })
}

/// Encodes the reply of READ, with the data by reference.
pub(super) fn write_read(call: &mut Call, results: ReadResults) -> Reply {
    match results {
        Ok(results) => super::write(call, results),
        Err(NoRoom(bound)) => Reply::TooLarge(bound.into()),
    }
}

/// Returns the bytes read, or the failure.
pub(super) fn tally_read(results: &ReadResults) -> Tally {
    match results {
        Ok(Ok(read)) => Tally::moved(read.count),
        Ok(Err(failed)) => Tally::failed(failed.status),
        Err(NoRoom(_)) => Tally {
            failure: Some(ErrorClass::Rpc),
            bytes: 0,
        },
    }
}

/// Returns the bytes written, or the failure.
pub(super) fn tally_write(results: &Res<results::Write, WccData>) -> Tally {
    match results {
        Ok(written) => Tally::moved(written.count),
        Err(_) => tally(results),
    }
}

/// Encodes the reply of READLINK, with the text by reference.
pub(super) fn write_link(call: &mut Call, results: Res<(PostOp, Bytes), PostOp>) -> Reply {
    let results = results.map(|(attributes, text)| results::ReadLink {
        attributes,
        target: Path::from(Gather::from_elem(text, 1)),
    });
    super::write(call, results)
}

fn shorten(data: &mut Gather, mut limit: usize) {
    for piece in data.iter_mut() {
        piece.truncate(limit);
        limit -= piece.len();
    }
}
