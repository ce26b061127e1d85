//! The receiving half of a connection: bytes of the stream become records.

use crate::connection_end::ConnectionEnd;
use crate::memory::{Account, Lease, cost};
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
    /// The budget for calls, if there is one.
    account: Option<Account>,
    /// Memory of the record that has begun.
    lease: Option<Lease>,
    /// A small call that is complete and waits for memory.
    waiting: Option<Payload>,
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

/// A received message, with the memory that it occupies if there is a budget.
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
            waiting: None,
            rest: Vec::new(),
            at: 0,
            records: 0,
            ended: false,
        }
    }

    /// Whether the peer has ended the stream, and all of it is decoded.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.rest.is_empty() && self.waiting.is_none()
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
        if self.waiting.is_some() {
            return self.poll_waiting(cx, taker);
        }
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

    /// Passes the call that waits for memory on, once there is some.
    fn poll_waiting(
        &mut self,
        cx: &Context<'_>,
        taker: &mut impl Take,
    ) -> Poll<Result<(), ConnectionEnd>> {
        if let (Some(call), Some(account)) = (&self.waiting, &mut self.account) {
            let bytes = call.stream_len();
            match account.take_free(bytes) {
                Some(free) => self.lease = Some(free),
                None => ready!(account.poll_enlarge(cx, &mut self.lease, cost(bytes))),
            }
        }
        match self.waiting.take() {
            Some(call) => Poll::Ready(self.take(call, taker)),
            None => Poll::Ready(Ok(())),
        }
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
        while !bytes.is_empty() && self.waiting.is_none() && taker.may_take() {
            if let Some(record) = self.decoder.decode(bytes).map_err(ConnectionEnd::Record)? {
                self.pass(record, taker)?;
            }
        }
        Ok(())
    }

    /// Passes a complete record on, or has it wait for memory.
    fn pass(&mut self, message: Payload, taker: &mut impl Take) -> Result<(), ConnectionEnd> {
        self.records += 1;
        if let Some(account) = &mut self.account
            && self.lease.is_none()
        {
            self.lease = account.take_free(message.stream_len());
            if self.lease.is_none() {
                self.waiting = Some(message);
                return Ok(());
            }
        }
        self.take(message, taker)
    }

    fn take(&mut self, message: Payload, taker: &mut impl Take) -> Result<(), ConnectionEnd> {
        let lease = self.lease.take();
        if lease.is_some() {
            self.decoder.grant(FIRST_ROOM);
        }
        taker.take(Record { message, lease })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use buffer::Buffer;
    use oncrpc::PeerGroup;
    use std::net::{IpAddr, Ipv4Addr};
    use std::task::Waker;
    use tokio::io::AsyncWriteExt;

    /// Takes every record, and keeps it.
    #[derive(Default)]
    struct Keep(Vec<Record>);

    impl Take for Keep {
        fn may_take(&self) -> bool {
            true
        }

        fn take(&mut self, record: Record) -> Result<(), ConnectionEnd> {
            self.0.push(record);
            Ok(())
        }
    }

    /// Bytes of a small call.
    const CALL: usize = 16 << 10;

    /// Polls until nothing comes any more.
    fn poll_all(input: &mut Input, taker: &mut Keep) {
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(polled) = input.poll(&mut cx, taker) {
            polled.expect("the records are valid");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn small_calls_beyond_the_memory_of_their_connection_wait_for_that_of_the_budget() {
        /// Room for two calls beyond those.
        const BUDGET: usize = 4 * (CALL + 2048);
        let memory = Memory::new(BUDGET);
        let (mut client, stream) = tokio::io::duplex(1 << 20);
        let (stream, _output) = tokio::io::split(stream);
        let account = memory.account(PeerGroup::of(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let mut input = Input::new(Box::new(stream), Decoder::new(CALL), Some(account));
        let mut calls = Buffer::default();
        for _ in 0..10 {
            let call = Payload::new(Buffer::from(vec![0; CALL]), 0);
            crate::record::encode(&call, &mut calls);
        }
        client.write_all(&calls).await.expect("there is room");
        let mut taker = Keep::default();
        poll_all(&mut input, &mut taker);
        assert_eq!(taker.0.len(), 3 + 2, "the budget leaves as much free");
        assert!(input.begun().is_none(), "its client is not to blame");
        for len in 6..=10 {
            // One of its own at first, then of the budget.
            drop(taker.0.remove(len % 2 * 2));
            poll_all(&mut input, &mut taker);
            assert_eq!(taker.0.len(), 5, "the next one goes on");
        }
        taker.0.clear();
        poll_all(&mut input, &mut taker);
        assert!(taker.0.is_empty() && !input.is_over());
    }
}
