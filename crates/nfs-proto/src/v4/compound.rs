//! COMPOUND: operations taken one by one from a call, and results put one by one into a reply
//! (RFC 8881 §16.2).

use crate::limits::{MAX_OPERATIONS, MAX_TAG};
use crate::v4::operation::{ArgOp, Operation, ResOp};
use crate::v4::status::{Res, Status};
use crate::{Bytes, Wire};
use oncrpc::xdr::{Error, Place, Reader, Writer};

xdr_enum! {
    /// Procedures of NFS version 4, and of its callback program (RFC 8881 §16, §19).
    pub enum Procedure ("procedure") {
        /// NULL and CB_NULL: nothing.
        Null = 0,
        /// COMPOUND and CB_COMPOUND: operations.
        Compound = 1,
    }
}

/// Tag of a COMPOUND or CB_COMPOUND, which the reply repeats.
pub type Tag<'a> = Bytes<'a, MAX_TAG>;

/// Arguments of a COMPOUND whose operations are read one by one (`COMPOUND4args`, RFC 8881 §16.2.1).
#[derive(Clone, Debug)]
pub struct CompoundArgs<'a> {
    /// Tag.
    pub tag: Tag<'a>,
    /// Minor version.
    pub minor_version: u32,
    /// Operations still to be read.
    left: usize,
    reader: Reader<'a>,
}

/// Operation that cannot be executed, and ends its COMPOUND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOperation {
    /// The number is no operation of the minor version.
    Illegal(u32),
    /// The arguments are not those of the operation.
    Malformed(Operation, Error),
}

impl BadOperation {
    /// Returns the result that a server answers (RFC 8881 §15.1.1.1, §15.1.3.4, §18.52).
    pub fn result<'a>(self) -> ResOp<'a> {
        match self {
            Self::Illegal(_) => ResOp::Illegal(Err(Status::IllegalOperation)),
            Self::Malformed(operation, _) => ResOp::failed(operation, Status::BadXdr),
        }
    }
}

impl<'a> CompoundArgs<'a> {
    /// Reads the arguments up to the first operation.
    ///
    /// # Errors
    ///
    /// If they are malformed, or there are more than [`MAX_OPERATIONS`].
    pub fn parse(mut reader: Reader<'a>) -> Result<Self, Error> {
        Ok(Self {
            tag: Tag::parse(&mut reader)?,
            minor_version: reader.u32()?,
            left: reader.length(MAX_OPERATIONS)?,
            reader,
        })
    }

    /// Returns the number of operations that are still to be read: at first, all of the COMPOUND.
    pub fn operations_left(&self) -> usize {
        self.left
    }

    /// Goes on in arguments that were read up to a place, from which `left` operations are still to be read.
    pub fn resume(reader: Reader<'a>, minor_version: u32, left: usize) -> Self {
        Self {
            tag: Tag::default(),
            minor_version,
            left,
            reader,
        }
    }

    /// Returns the place of the next operation.
    pub fn place(&self) -> Place {
        self.reader.place()
    }

    /// Reads the next operation. `None` behind the last one, and behind a bad one.
    pub fn next_operation(&mut self) -> Option<Result<ArgOp<'a>, BadOperation>> {
        self.left = self.left.checked_sub(1)?;
        let operation = self.read();
        if operation.is_err() {
            // The next one cannot be found.
            self.left = 0;
        }
        Some(operation)
    }

    fn read(&mut self) -> Result<ArgOp<'a>, BadOperation> {
        let mut number = self.reader.clone();
        let operation = read_number(&mut number, self.minor_version)?;
        ArgOp::parse(&mut self.reader).map_err(|error| BadOperation::Malformed(operation, error))
    }

    /// Reads the number of the next operation, as [`next_operation`](Self::next_operation) does. Its
    /// [arguments](Self::arguments) have to be read before the next one.
    ///
    /// An [`ArgOp`] has room for the arguments of any operation. Where each is executed by itself, this saves its moves.
    #[inline]
    pub fn next_number(&mut self) -> Option<Result<Operation, BadOperation>> {
        self.left = self.left.checked_sub(1)?;
        let operation = read_number(&mut self.reader, self.minor_version);
        if operation.is_err() {
            self.left = 0;
        }
        Some(operation)
    }

    /// Reads the arguments of the operation whose number was read.
    ///
    /// # Errors
    ///
    /// If they are malformed: nothing can be read behind them.
    #[inline]
    pub fn arguments<T: Wire<'a>>(&mut self) -> Result<T, Error> {
        let arguments = T::parse(&mut self.reader);
        if arguments.is_err() {
            self.left = 0;
        }
        arguments
    }

    /// Checks that nothing follows the operations, once all have been read.
    ///
    /// # Errors
    ///
    /// If octets or by-reference items follow.
    pub fn finish(self) -> Result<(), Error> {
        self.reader.finish()
    }
}

/// Reads the number of an operation that the minor version has.
#[inline]
fn read_number(reader: &mut Reader<'_>, minor_version: u32) -> Result<Operation, BadOperation> {
    let number = reader
        .u32()
        .map_err(|error| BadOperation::Malformed(Operation::Illegal, error))?;
    let operation = Operation::try_from(number).ok();
    let operation = operation.filter(|operation| operation.is_in(minor_version));
    operation.ok_or(BadOperation::Illegal(number))
}

/// Writes the arguments of a COMPOUND operation by operation.
#[derive(Debug)]
#[must_use = "the number of operations is written when it is finished"]
pub struct CallWriter<'w> {
    writer: &'w mut Writer,
    count: Count,
}

impl<'w> CallWriter<'w> {
    /// Begins with tag and minor version.
    pub fn new(writer: &'w mut Writer, tag: Tag<'_>, minor_version: u32) -> Self {
        tag.write(writer);
        writer.u32(minor_version);
        let count = Count::new(writer);
        Self { writer, count }
    }

    /// Adds an operation.
    pub fn push(&mut self, operation: ArgOp<'_>) {
        operation.hand_over(self.writer);
        self.count.number += 1;
    }

    /// Ends the arguments.
    pub fn finish(self) {
        self.count.finish(self.writer);
    }
}

/// Writes the results of a COMPOUND one by one (`COMPOUND4res`, RFC 8881 §16.2.2). Its status is that of the
/// last result.
#[derive(Debug)]
#[must_use = "status and number of results are written when it is finished"]
pub struct ReplyWriter {
    writer: Writer,
    /// Offset of the status.
    start: usize,
    status: Res<()>,
    count: Count,
    /// Offset of the last result, behind its number.
    last: usize,
}

impl ReplyWriter {
    /// Begins with the tag of the call, and the status of a reply without results.
    pub fn new(mut writer: Writer, tag: Tag<'_>, status: Res<()>) -> Self {
        let start = writer.len();
        writer.u32(0);
        tag.write(&mut writer);
        let count = Count::new(&mut writer);
        let last = writer.len();
        Self {
            writer,
            start,
            status,
            count,
            last,
        }
    }

    /// Adds a result.
    pub fn push(&mut self, result: ResOp<'_>) {
        self.status = result.status();
        self.count.number += 1;
        self.last = self.writer.len();
        result.hand_over(&mut self.writer);
    }

    /// Adds the result of an operation whose `resok` the caller writes, such as by
    /// [`DirectoryWriter`](crate::v4::directory::DirectoryWriter) or [`write_fattr`](crate::v4::fattr::write_fattr). If that
    /// fails, the result is the error alone.
    #[inline]
    pub fn push_with(
        &mut self,
        operation: Operation,
        write: impl FnOnce(&mut Writer) -> Result<(), Status>,
    ) {
        let before = self.writer.len();
        self.writer.words([operation as u32, 0]);
        match write(&mut self.writer) {
            Ok(()) => {
                self.status = Ok(());
                self.count.number += 1;
                self.last = before;
            }
            Err(status) => {
                self.writer.truncate(before);
                self.push(ResOp::failed(operation, status));
            }
        }
    }

    /// Replaces the last result by an error, such as `NFS4ERR_REP_TOO_BIG` where it does not fit
    /// (RFC 8881 §15.1.3.6).
    pub fn replace_last(&mut self, result: ResOp<'_>) {
        self.writer.truncate(self.last);
        self.count.number = self.count.number.saturating_sub(1);
        self.push(result);
    }

    /// Returns the bytes of the whole reply so far, without the header of RPC.
    pub fn stream_len(&self) -> usize {
        self.writer.stream_len() - self.start
    }

    /// Returns the status of the last result.
    pub fn status(&self) -> Res<()> {
        self.status
    }

    /// Returns the number of results so far.
    pub fn results(&self) -> u32 {
        self.count.number
    }

    /// Ends the reply, and returns the writer that it was begun with.
    pub fn finish(mut self) -> Writer {
        let status = self.status.map_or_else(|status| status as u32, |()| 0);
        self.writer.patch_u32(self.start, status);
        self.count.finish(&mut self.writer);
        self.writer
    }
}

/// Results of a COMPOUND that are read one by one (`COMPOUND4res`, RFC 8881 §16.2.2).
#[derive(Clone, Debug)]
pub struct CompoundRes<'a> {
    /// Status of the last operation that was executed.
    pub status: Res<()>,
    /// Tag of the call.
    pub tag: Tag<'a>,
    left: usize,
    reader: Reader<'a>,
}

impl<'a> CompoundRes<'a> {
    /// Reads a reply up to the first result.
    ///
    /// # Errors
    ///
    /// If it is malformed, or there are more than [`MAX_OPERATIONS`].
    pub fn parse(mut reader: Reader<'a>) -> Result<Self, Error> {
        Ok(Self {
            status: Wire::parse(&mut reader)?,
            tag: Tag::parse(&mut reader)?,
            left: reader.length(MAX_OPERATIONS)?,
            reader,
        })
    }

    /// Reads the next result. `None` behind the last one.
    ///
    /// # Errors
    ///
    /// If it is malformed; nothing can be read behind it.
    pub fn next_result(&mut self) -> Option<Result<ResOp<'a>, Error>> {
        self.left = self.left.checked_sub(1)?;
        let result = ResOp::parse(&mut self.reader);
        if result.is_err() {
            self.left = 0;
        }
        Some(result)
    }

    /// Checks that nothing follows the results, once all have been read.
    ///
    /// # Errors
    ///
    /// If octets or by-reference items follow.
    pub fn finish(self) -> Result<(), Error> {
        self.reader.finish()
    }
}

/// Number of elements that is written when all are there.
#[derive(Debug)]
struct Count {
    at: usize,
    number: u32,
}

impl Count {
    fn new(writer: &mut Writer) -> Self {
        let at = writer.len();
        writer.u32(0);
        Self { at, number: 0 }
    }

    fn finish(&self, writer: &mut Writer) {
        writer.patch_u32(self.at, self.number);
    }
}
