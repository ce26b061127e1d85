//! Procedures that move data: READ, WRITE, COMMIT and READLINK.

use super::{MAX_READ, MAX_WRITE, Nfs3, Operation, PostOp, changed, convert, refused, seen, tally};
use crate::export_metrics::Tally;
use crate::exports::Target;
use crate::fs::{Attributes, Error, Identity, Outcome, ReadOut, Seen};
use crate::metrics::ErrorClass;
use bytes::Bytes;
use nfs_proto::results::{self, Res};
use nfs_proto::{Arguments, Data, Failed, Path, Status, WccData, Wire, WriteVerifier, args};
use oncrpc::xdr::{Gather, gather_len};
use oncrpc::{Answer, Call, Reply, ReplyBound, ReplyRoom};

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

    /// Answers READ. What the file system returns at once is written where it is: it is large.
    pub(super) fn read(&self, call: &mut Call) -> Answer {
        let args = match call.decode(args::Read::parse) {
            Ok(args) => args,
            Err(error) => return Answer::Now(call.take().unreadable(error)),
        };
        let operation = Operation::new(call);
        let opened = self.open(&operation, &args.file);
        let counted = operation.export();
        let (target, who) = match opened {
            Ok(opened) => opened,
            Err(status) => {
                let refused = refused(status).map(Ok);
                return self.respond(call, counted, refused, tally_read, write_read);
            }
        };
        let ask = args::Read {
            count: args.count.min(MAX_READ),
            ..args
        };
        if !call.caller.reply_room.carries(&ask.reply_bound()) {
            let room = call.caller.reply_room;
            let outcome = read_what_fits(room, &target, who, ask);
            return self.respond(call, counted, outcome, tally_read, write_read);
        }
        let export = target.export.id();
        let fs = &target.export.fs;
        let mut outcome = fs.read(&who, target.file, ask.offset, ask.count);
        if let Outcome::Ready(found) = &mut outcome {
            self.count(counted, call, tally_found(found));
            return Answer::Now(write_found(call, export, found));
        }
        let write = move |call: &mut Call, mut found| write_found(call, export, &mut found);
        self.respond(call, counted, outcome, tally_found, write)
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

/// Reads as much as there is, if the reply has room for that: the data may still fit if the file ends before the bytes asked for.
fn read_what_fits(
    room: ReplyRoom,
    target: &Target,
    who: Identity,
    ask: args::Read,
) -> Outcome<ReadResults> {
    let export = target.export.id();
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
                    .map(move |mut found| Ok(read_results(export, &mut found))),
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

/// Reply to a READ whose results, of this size, fit neither inline nor the offered chunk: the file was
/// not read.
struct NoRoom(ReplyBound);

type ReadResults = Result<Res<results::Read<'static>, PostOp>, NoRoom>;

/// Takes what was read.
fn read_results(export: u32, found: &mut Seen<ReadOut>) -> Res<results::Read<'static>, PostOp> {
    let attributes = found.attributes.as_ref();
    let attributes = attributes.map(|found| convert::attributes(export, found));
    match &mut found.result {
        Ok(read) => Ok(results::Read {
            attributes,
            count: u32::try_from(gather_len(&read.data))
                .expect("a file system reads no more than it was asked to"),
            eof: read.eof,
            data: Data::from(std::mem::take(&mut read.data)),
        }),
        Err(error) => Err(Failed::new(convert::status(*error), attributes)),
    }
}

/// Encodes the reply of READ, with the data that was read by reference.
fn write_found(call: &mut Call, export: u32, found: &mut Seen<ReadOut>) -> Reply {
    super::write(call, read_results(export, found))
}

/// Encodes the reply of READ, with the data by reference.
fn write_read(call: &mut Call, results: ReadResults) -> Reply {
    match results {
        Ok(results) => super::write(call, results),
        Err(NoRoom(bound)) => Reply::TooLarge(bound.into()),
    }
}

/// Returns the bytes read, or the failure.
fn tally_read(results: &ReadResults) -> Tally {
    match results {
        Ok(Ok(read)) => Tally::moved(read.count),
        Ok(Err(failed)) => Tally::failed(failed.status),
        Err(NoRoom(_)) => Tally {
            failure: Some(ErrorClass::Rpc),
            bytes: 0,
        },
    }
}

/// Returns the bytes that the file system read, or the failure.
fn tally_found(found: &Seen<ReadOut>) -> Tally {
    match &found.result {
        Ok(read) => Tally {
            failure: None,
            bytes: gather_len(&read.data) as u64,
        },
        Err(error) => Tally::failed(convert::status(*error)),
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
