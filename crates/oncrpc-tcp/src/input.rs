//! The receiving half of a connection: bytes of the stream become records.

use crate::connection_end::ConnectionEnd;
use crate::dispatch::REPLY;
use crate::memory::{Account, Lease, SCARCE_AFTER, cost};
use crate::record::{Decoder, FIRST_ROOM, PREFIX};
use crate::reply_memory::{LaterLease, Leasing, ReplyMemory};
use oncrpc::xdr::Payload;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

/// Most bytes read at once, other than into a large record.
const READ_SIZE: usize = 64 << 10;

/// Largest number of records that are passed on in one turn, before their replies go out and other connections have
/// theirs: as many as one write takes replies.
pub(crate) const RECORDS: usize = 64;

/// The stream for input, and what is not decoded yet.
///
/// Between records it has no memory: bytes are read to the stack, and kept only if they are part of
/// a record or may not be decoded yet.
pub(crate) struct Input {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    decoder: Decoder,
    /// The budget for calls, if there is one.
    account: Option<Account>,
    /// The budget for replies, if there is one.
    replies: Option<Replies>,
    /// Memory of the call that has begun.
    lease: Option<Lease>,
    /// A small record that is complete and waits for memory.
    waiting: Option<Payload>,
    /// Received bytes that are not decoded yet, from `at` on.
    rest: Vec<u8>,
    at: usize,
    /// Number of complete records.
    records: u64,
    ended: bool,
}

/// Memory for received replies.
struct Replies {
    memory: Arc<dyn ReplyMemory>,
    /// Lease that a record waits for.
    leasing: Option<LaterLease>,
    /// Memory of the record that has begun.
    lease: Option<Box<dyn oncrpc::Lease>>,
}

impl Replies {
    /// Asks for the memory of a record of so many bytes. Returns whether it need not wait.
    fn ask(&mut self, bytes: usize) -> bool {
        match self.memory.lease(bytes) {
            Leasing::Free => true,
            Leasing::Now(lease) => {
                self.lease = Some(lease);
                true
            }
            Leasing::Later(lease) => {
                self.leasing = Some(lease);
                false
            }
        }
    }

    /// Waits for the memory that was asked for.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(leasing) = &mut self.leasing {
            let lease = ready!(leasing.as_mut().poll(cx));
            self.lease = Some(lease);
            self.leasing = None;
        }
        Poll::Ready(())
    }

    /// Has a complete record keep its memory.
    fn keep(&mut self, record: Payload) -> Payload {
        match self.lease.take() {
            Some(mut lease) => {
                lease.shrink(record.stream_len());
                record.with_lease(lease)
            }
            None => record,
        }
    }
}

/// Receiver of decoded records.
pub(crate) trait Take {
    /// Whether a further record may be taken.
    fn may_take(&self) -> bool;

    /// Whether a record of so many bytes is to be received, as it waits for memory behind its XID and
    /// its type. Otherwise it is skipped.
    fn wants_large(&mut self, xid: u32, kind: u32, len: usize) -> Result<bool, ConnectionEnd>;

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
            replies: None,
            lease: None,
            waiting: None,
            rest: Vec::new(),
            at: 0,
            records: 0,
            ended: false,
        }
    }

    /// The input of a client, whose replies are of a budget.
    pub(crate) fn for_replies(
        stream: Box<dyn AsyncRead + Send + Unpin>,
        mut decoder: Decoder,
        memory: Arc<dyn ReplyMemory>,
    ) -> Self {
        decoder.ask_early();
        let replies = Replies {
            memory,
            leasing: None,
            lease: None,
        };
        Self {
            replies: Some(replies),
            ..Self::new(stream, decoder, None)
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

    /// Number of complete records, and bytes of the one that has begun, if that holds memory of the budget.
    pub(crate) fn delivered(&self) -> Option<(u64, usize)> {
        let is_begun = self.lease.is_some() && self.waiting.is_none();
        is_begun.then(|| (self.records, self.decoder.have()))
    }

    /// Whether others have waited for memory of the budget for long.
    pub(crate) fn is_memory_scarce(&self, now: Instant) -> bool {
        let account = self.account.as_ref();
        account.is_some_and(|account| account.is_scarce(now, SCARCE_AFTER))
    }

    /// Whether calls have memory of the budget that others may need.
    pub(crate) fn holds_memory(&self) -> bool {
        self.account.as_ref().is_some_and(Account::holds)
    }

    /// Whether calls have held memory for so long that the connection [gives way](Account::must_give_way).
    pub(crate) fn must_give_way(&self, now: Instant, after: Duration) -> bool {
        let account = self.account.as_ref();
        account.is_some_and(|account| account.must_give_way(now, after))
    }

    /// Decodes what has come, and reads once if all of that is decoded. Ready if anything came.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        taker: &mut impl Take,
    ) -> Poll<Result<(), ConnectionEnd>> {
        if let Some(replies) = &mut self.replies
            && replies.leasing.is_some()
        {
            ready!(replies.poll(cx));
            self.decoder.grant(self.decoder.most());
        }
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
            && self.decoder.wants().is_some()
        {
            // All at once, so that none waits for more while it holds some.
            let bytes = self.decoder.most();
            ready!(account.poll_enlarge(cx, &mut self.lease, bytes));
            self.decoder.grant(bytes);
        }
        if !self.has_room(taker)? {
            return self.poll(cx, taker);
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

    /// Decodes until nothing is left, or no further record may be taken, now or in this turn.
    fn decode(&mut self, bytes: &mut &[u8], taker: &mut impl Take) -> Result<(), ConnectionEnd> {
        let most = self.records + RECORDS as u64;
        while !bytes.is_empty()
            && self.records < most
            && self.waiting.is_none()
            && self.has_room(taker)?
            && taker.may_take()
        {
            if let Some(record) = self.decoder.decode(bytes).map_err(ConnectionEnd::Record)? {
                self.pass(record, taker)?;
            }
        }
        Ok(())
    }

    /// Asks for the memory of a large reply that has begun, unless it is skipped. Returns false if it has
    /// to wait for that.
    fn has_room(&mut self, taker: &mut impl Take) -> Result<bool, ConnectionEnd> {
        let Some(replies) = &mut self.replies else {
            return Ok(true);
        };
        if replies.leasing.is_some() {
            return Ok(false);
        }
        let (Some(len), Some((xid, kind))) = (self.decoder.wants(), self.decoder.prefix()) else {
            return Ok(true);
        };
        if !taker.wants_large(xid, kind, len)? {
            self.decoder.skip();
            return Ok(true);
        }
        // All at once, so that none waits for more while it holds some.
        let most = self.decoder.most();
        if !replies.ask(most) {
            return Ok(false);
        }
        self.decoder.grant(most);
        Ok(true)
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
        if let Some(replies) = &mut self.replies
            && replies.lease.is_none()
            && is_reply(&message)
            && !replies.ask(message.stream_len())
        {
            self.waiting = Some(message);
            return Ok(());
        }
        self.take(message, taker)
    }

    fn take(&mut self, message: Payload, taker: &mut impl Take) -> Result<(), ConnectionEnd> {
        let mut lease = self.lease.take();
        if let Some(lease) = &mut lease {
            // A call in fragments was lent as much as the largest may need.
            lease.shrink(cost(message.stream_len()));
        }
        if lease.is_some() || self.replies.is_some() {
            self.decoder.grant(FIRST_ROOM);
        }
        let message = match &mut self.replies {
            Some(replies) => replies.keep(message),
            None => message,
        };
        taker.take(Record { message, lease })
    }
}

fn is_reply(message: &Payload) -> bool {
    let kind = message.head().get(4..PREFIX);
    kind.is_some_and(|kind| kind == REPLY.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::record::MARK;
    use buffer::Buffer;
    use oncrpc::PeerGroup;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Mutex;
    use std::task::Waker;
    use tokio::io::AsyncWriteExt;
    use tokio::sync::{OwnedSemaphorePermit, Semaphore};

    /// Takes every record, and keeps it.
    #[derive(Default)]
    struct Keep(Vec<Record>);

    impl Take for Keep {
        fn may_take(&self) -> bool {
            true
        }

        fn wants_large(&mut self, xid: u32, _: u32, _: usize) -> Result<bool, ConnectionEnd> {
            Ok(xid != SKIPPED)
        }

        fn take(&mut self, record: Record) -> Result<(), ConnectionEnd> {
            self.0.push(record);
            Ok(())
        }
    }

    /// XID of a reply that nobody can take.
    const SKIPPED: u32 = 99;

    /// A budget of one reply, which notes what it was asked for.
    struct One {
        asked: Mutex<Vec<usize>>,
        place: Arc<Semaphore>,
    }

    /// The memory of that reply.
    struct Place {
        _permit: OwnedSemaphorePermit,
    }

    impl oncrpc::Lease for Place {
        fn shrink(&mut self, _: usize) {}
    }

    impl ReplyMemory for One {
        fn lease(&self, bytes: usize) -> Leasing {
            self.asked.lock().expect("no panic").push(bytes);
            match Arc::clone(&self.place).try_acquire_owned() {
                Ok(place) => Leasing::Now(Box::new(Place { _permit: place })),
                Err(_) => {
                    let place = Arc::clone(&self.place).acquire_owned();
                    Leasing::Later(Box::pin(async {
                        let _permit = place.await.expect("it is never closed");
                        Box::new(Place { _permit }) as Box<dyn oncrpc::Lease>
                    }))
                }
            }
        }
    }

    /// A reply with this XID, as fragments of a record.
    fn reply(xid: u32, fragments: &[usize]) -> Vec<u8> {
        let len = fragments.iter().sum();
        let mut message = [xid.to_be_bytes(), REPLY.to_be_bytes()].concat();
        message.resize(len, 7);
        let (mut stream, mut rest) = (Vec::new(), &message[..]);
        for &len in fragments {
            let (now, later) = rest.split_at(len);
            let last = u32::from(later.is_empty()) << 31;
            stream.extend((u32::try_from(len).expect("small") | last).to_be_bytes());
            stream.extend(now);
            rest = later;
        }
        stream
    }

    #[tokio::test]
    async fn reply_waits_for_memory_and_one_that_nobody_can_take_is_skipped_as_it_comes() {
        const LARGE: usize = 200 << 10;
        const LIMIT: usize = 1 << 20;
        for cut in [usize::MAX, 70_000, 5] {
            let memory = Arc::new(One {
                asked: Mutex::default(),
                place: Arc::new(Semaphore::new(0)),
            });
            let (mut server, stream) = tokio::io::duplex(1 << 20);
            let (stream, _output) = tokio::io::split(stream);
            let budget = Arc::clone(&memory) as _;
            let mut input = Input::for_replies(Box::new(stream), Decoder::new(LIMIT), budget);
            let mut taker = Keep::default();
            let stream = [
                reply(SKIPPED, &[LARGE]),
                reply(1, &[LARGE]),
                reply(SKIPPED, &[4, 100, LARGE, 9]),
                reply(2, &[100]),
                reply(3, &[4, 100, LARGE, 5]),
            ]
            .concat();
            for piece in stream.chunks(cut.min(stream.len())) {
                server.write_all(piece).await.expect("there is room");
                poll_all(&mut input, &mut taker);
            }
            assert!(taker.0.is_empty() && memory.asked.lock().expect("no panic")[..] == [LARGE]);
            assert_eq!(input.decoder.have(), PREFIX, "it takes no memory yet");
            memory.place.add_permits(1);
            let (mut lens, mut xids) = (Vec::new(), Vec::new());
            for _ in 0..3 {
                // The runtime has a budget for each turn of a task.
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                    poll_all(&mut input, &mut taker);
                }
                // The next one waits for it.
                let record = taker.0.pop().expect("a reply");
                assert!(taker.0.is_empty());
                lens.push(record.message.head().len());
                xids.push(record.message.head()[3]);
            }
            assert_eq!(
                (&xids[..], &lens[..]),
                (&[1, 2, 3][..], &[LARGE, 100, LARGE + 109][..])
            );
            assert_eq!(
                memory.asked.lock().expect("no panic")[..],
                [LARGE, 100, LIMIT]
            );
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

    #[tokio::test]
    async fn call_in_fragments_has_memory_of_the_budget_however_its_reads_end() {
        const FRAGMENT: usize = 16 << 10;
        /// Room for the largest call.
        const BUDGET: usize = 1 << 20;
        let memory = Memory::new(BUDGET);
        let group = |host| PeerGroup::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)));
        let mut other = memory.account(group(1));
        let (mut held, mut cx) = (None, Context::from_waker(Waker::noop()));
        assert!(other.poll_enlarge(&cx, &mut held, BUDGET).is_ready());
        let (mut client, stream) = tokio::io::duplex(BUDGET);
        let (stream, _output) = tokio::io::split(stream);
        let account = memory.account(group(2));
        let mut input = Input::new(Box::new(stream), Decoder::new(BUDGET), Some(account));
        let mut taker = Keep::default();
        let mut fragment = u32::try_from(FRAGMENT).unwrap().to_be_bytes().to_vec();
        fragment.resize(MARK + FRAGMENT, 7);
        for number in 1..=BUDGET / FRAGMENT {
            if number == BUDGET / FRAGMENT {
                fragment[0] |= 0x80;
            }
            client.write_all(&fragment).await.expect("there is room");
            poll_all(&mut input, &mut taker);
        }
        let most = FIRST_ROOM + READ_SIZE;
        assert!(
            taker.0.is_empty() && input.decoder.have() <= most,
            "the rest stays in the socket"
        );
        drop(held);
        while let Poll::Ready(polled) = input.poll(&mut cx, &mut taker) {
            polled.expect("it is valid");
            tokio::task::yield_now().await;
        }
        assert_eq!(taker.0.len(), 1);
    }

    #[tokio::test]
    async fn call_in_fragments_has_memory_of_its_own_length_once_it_is_complete() {
        const FRAGMENT: usize = 40 << 10;
        const LEN: usize = 3 * FRAGMENT;
        /// Room for the largest call.
        const BUDGET: usize = 1 << 20;
        let memory = Memory::new(BUDGET);
        let group = |host| PeerGroup::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)));
        let (mut client, stream) = tokio::io::duplex(BUDGET);
        let (stream, _output) = tokio::io::split(stream);
        let account = memory.account(group(1));
        let mut input = Input::new(Box::new(stream), Decoder::new(BUDGET), Some(account));
        let call = reply(1, &[FRAGMENT; LEN / FRAGMENT]);
        client.write_all(&call).await.expect("there is room");
        let mut taker = Keep::default();
        poll_all(&mut input, &mut taker);
        assert_eq!(taker.0.len(), 1);
        let mut other = memory.account(group(2));
        let mut is_left = |bytes| {
            let (mut lease, cx) = (None, Context::from_waker(Waker::noop()));
            other.poll_enlarge(&cx, &mut lease, bytes).is_ready()
        };
        assert!(!is_left(BUDGET - LEN), "the call has its memory");
        assert!(is_left(BUDGET - cost(LEN)));
        taker.0.clear();
        assert!(is_left(BUDGET));
    }

    #[tokio::test]
    async fn one_turn_passes_on_a_few_of_many_records() {
        let (mut client, stream) = tokio::io::duplex(READ_SIZE);
        let (stream, _output) = tokio::io::split(stream);
        let mut input = Input::new(Box::new(stream), Decoder::new(CALL), None);
        let all = 2 * RECORDS + 1;
        let calls = reply(1, &[8]).repeat(all);
        client.write_all(&calls).await.expect("there is room");
        let mut taker = Keep::default();
        let mut cx = Context::from_waker(Waker::noop());
        for passed in [RECORDS, 2 * RECORDS, all] {
            assert!(input.poll(&mut cx, &mut taker).is_ready());
            assert_eq!(taker.0.len(), passed);
        }
        assert!(input.poll(&mut cx, &mut taker).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn small_calls_beyond_the_memory_of_their_connection_wait_for_that_of_the_budget() {
        // Room for two calls beyond those.
        let memory = Memory::new(4 * cost(CALL));
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
