//! The receiving half of a connection: bytes of the stream become records.

use crate::connection_end::ConnectionEnd;
use crate::memory::{Account, Lease};
use crate::record::{Decoder, FIRST_ROOM};
use oncrpc::xdr::Payload;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Most bytes read at once, other than into a large record.
const READ_SIZE: usize = 64 << 10;

/// The stream for input, and what is not decoded yet.
///
/// Between records it has no memory: bytes are read to the stack, and kept only if they are part of
/// a record or may not be decoded yet.
pub(crate) struct Input {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    decoder: Decoder,
    /// The budget for large records, if there is one.
    account: Option<Account>,
    /// Memory of the record that has begun.
    lease: Option<Lease>,
    /// Received bytes that are not decoded yet, from `at` on.
    rest: Vec<u8>,
    at: usize,
    /// Number of complete records.
    records: u64,
    ended: bool,
}

/// Receiver of decoded records.
pub(crate) trait Take {
    /// Whether a further record may be taken.
    fn may_take(&self) -> bool;

    /// Takes a record.
    fn take(&mut self, record: Record) -> Result<(), ConnectionEnd>;
}

/// A received message, with the memory that it occupies if it is large.
pub(crate) struct Record {
    pub(crate) message: Payload,
    pub(crate) lease: Option<Lease>,
}

impl Input {
    pub(crate) fn new(
        stream: Box<dyn AsyncRead + Send + Unpin>,
        mut decoder: Decoder,
        account: Option<Account>,
    ) -> Self {
        if account.is_some() {
            decoder.grant(FIRST_ROOM);
        }
        Self {
            stream,
            decoder,
            account,
            lease: None,
            rest: Vec::new(),
            at: 0,
            records: 0,
            ended: false,
        }
    }

    /// Whether the peer has ended the stream, and all of it is decoded.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.rest.is_empty()
    }

    /// Number of complete records before the one that the peer is sending; `None` if it sends none,
    /// or the rest waits for memory. One that holds memory already, as others may wait for it, does
    /// not wait for more for longer than a peer may take.
    pub(crate) fn begun(&self) -> Option<u64> {
        let waits = self.account.as_ref().is_some_and(Account::waits);
        let waits = waits && self.lease.is_none();
        (!waits && !self.decoder.is_between_records()).then_some(self.records)
    }

    /// Decodes what has come, and reads once if all of that is decoded. Ready if anything came.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        taker: &mut impl Take,
    ) -> Poll<Result<(), ConnectionEnd>> {
        if !self.rest.is_empty() {
            return match taker.may_take() {
                true => Poll::Ready(self.decode_rest(taker)),
                false => Poll::Pending,
            };
        }
        if self.ended || !taker.may_take() {
            return Poll::Pending;
        }
        if let Some(account) = &mut self.account
            && let Some(bytes) = self.decoder.wants()
        {
            ready!(account.poll_enlarge(cx, &mut self.lease, bytes));
            self.decoder.grant(bytes);
        }
        let len = match self.decoder.place() {
            Some(place) => {
                let mut space = ReadBuf::new(place);
                ready!(Pin::new(&mut self.stream).poll_read(cx, &mut space))
                    .map_err(ConnectionEnd::Io)?;
                let len = space.filled().len();
                if let Some(record) = self.decoder.received(len) {
                    self.pass(record, taker)?;
                }
                len
            }
            None => ready!(self.read_staged(cx, taker))?,
        };
        self.ended = len == 0;
        Poll::Ready(Ok(()))
    }

    fn read_staged(
        &mut self,
        cx: &mut Context<'_>,
        taker: &mut impl Take,
    ) -> Poll<Result<usize, ConnectionEnd>> {
        let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
        let mut space = ReadBuf::uninit(&mut space);
        let read: io::Result<()> = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut space));
        read.map_err(ConnectionEnd::Io)?;
        let mut bytes = space.filled();
        self.decode(&mut bytes, taker)?;
        self.rest.extend_from_slice(bytes);
        Poll::Ready(Ok(space.filled().len()))
    }

    fn decode_rest(&mut self, taker: &mut impl Take) -> Result<(), ConnectionEnd> {
        let rest = std::mem::take(&mut self.rest);
        let mut bytes = &rest[self.at..];
        self.decode(&mut bytes, taker)?;
        self.at = rest.len() - bytes.len();
        match bytes.is_empty() {
            true => self.at = 0,
            false => self.rest = rest,
        }
        Ok(())
    }

    /// Decodes until nothing is left, or no further record may be taken.
    fn decode(&mut self, bytes: &mut &[u8], taker: &mut impl Take) -> Result<(), ConnectionEnd> {
        while !bytes.is_empty() && taker.may_take() {
            if let Some(record) = self.decoder.decode(bytes).map_err(ConnectionEnd::Record)? {
                self.pass(record, taker)?;
            }
        }
        Ok(())
    }

    fn pass(&mut self, message: Payload, taker: &mut impl Take) -> Result<(), ConnectionEnd> {
        self.records += 1;
        let lease = self.lease.take();
        if lease.is_some() {
            self.decoder.grant(FIRST_ROOM);
        }
        taker.take(Record { message, lease })
    }
}
