//! The sending half of a connection: a queue of messages, written by `writev` without a copy.

use crate::memory::OutputLease;
use crate::record::{LAST, MARK};
use oncrpc::TransportError;
use oncrpc::xdr::{Payload, pad};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncWrite;
use tokio::sync::OwnedSemaphorePermit;

/// Largest number of pieces of one write.
const MAX_PIECES: usize = 128;

/// Bytes of messages that wait to be written before no further call of the peer is begun, and no
/// further reply is taken from its call.
pub(crate) const OUTPUT_LIMIT: usize = 1 << 20;

/// Bytes of waiting messages of one connection that need no memory of the budget of its server.
const FREE_OUTPUT: usize = 64 << 10;

/// Bytes that a waiting message occupies beside its own: its place in the queue, which may be twice as
/// long as it needs to be, and the headers of its memory.
const MESSAGE_COST: usize = 768;

/// Places of an empty queue that keep their memory.
const KEPT_PLACES: usize = 32;

/// The stream for output, and the messages that wait for it.
///
/// Whoever has a message may write: the task of the connection, or the thread that has the message.
/// The task finishes what the stream does not take at once.
pub(crate) struct Output {
    counts: Counts,
    state: Mutex<State>,
}

/// Numbers of bytes, which are read without the lock.
struct Counts {
    /// Those that wait to be written, with [`MESSAGE_COST`] for each message.
    waiting: AtomicUsize,
    /// There is no memory for them.
    lacks_memory: AtomicBool,
    /// Those that are written.
    sent: AtomicU64,
}

struct State {
    /// Gone with the connection.
    stream: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    queue: VecDeque<Outgoing>,
    /// Bytes of the messages in the queue that have no lease of their own, with [`MESSAGE_COST`] for each.
    unleased: usize,
    /// The memory of these beyond [`FREE_OUTPUT`], if the server has a budget.
    lease: Option<OutputLease>,
    /// Bytes of the first message that are written.
    written: usize,
    /// The stream takes no more: the task of the connection is woken when it does.
    blocked: bool,
    failed: Option<io::Error>,
    /// Wakes the task of the connection.
    task: Waker,
}

/// A message to send, as a record of one fragment.
pub(crate) struct Outgoing {
    mark: [u8; MARK],
    message: Payload,
    /// Bytes of the message and its mark.
    pub(crate) len: usize,
    /// The place of a call in the queue.
    _place: Option<OwnedSemaphorePermit>,
}

/// State of the output after a turn of the connection's task.
pub(crate) struct Turn {
    /// Number of bytes written so far, if more wait for the stream.
    pub(crate) blocked: Option<u64>,
    /// Why nothing more can be written.
    pub(crate) failed: Option<io::Error>,
}

impl Outgoing {
    /// Fails if the message is too large for a record of one fragment (RFC 5531 §11).
    pub(crate) fn new(
        message: Payload,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Self, TransportError> {
        let len = message.stream_len();
        let limit = (LAST - 1) as usize;
        let mark = u32::try_from(len).ok().filter(|len| len & LAST == 0);
        let mark = mark.ok_or(TransportError::TooLarge { len, limit })?;
        Ok(Self {
            mark: (mark | LAST).to_be_bytes(),
            message,
            len: MARK + len,
            _place: place,
        })
    }

    /// Bytes that it occupies and for which it has no lease.
    fn unleased(&self) -> usize {
        match self.message.has_lease() {
            true => 0,
            false => self.len + MESSAGE_COST,
        }
    }

    /// Appends the pieces of the record behind its first `skip` bytes.
    fn pieces<'a>(&'a self, mut skip: usize, out: &mut SmallVec<[IoSlice<'a>; MAX_PIECES]>) {
        let mut add = |piece: &'a [u8]| {
            let from = skip.min(piece.len());
            skip -= from;
            if from < piece.len() && out.len() < MAX_PIECES {
                out.push(IoSlice::new(&piece[from..]));
            }
        };
        add(&self.mark);
        let (head, items) = self.message.parts();
        let mut done = 0;
        for item in items {
            add(&head[done..item.at]);
            done = item.at;
            item.data.iter().for_each(|piece| add(piece));
            add(&[0; 3][..pad(item.len())]);
        }
        add(&head[done..]);
    }
}

impl Output {
    pub(crate) fn new(
        stream: Box<dyn AsyncWrite + Send + Unpin>,
        lease: Option<OutputLease>,
    ) -> Self {
        Self {
            counts: Counts {
                waiting: AtomicUsize::new(0),
                lacks_memory: AtomicBool::new(false),
                sent: AtomicU64::new(0),
            },
            state: Mutex::new(State {
                stream: Some(stream),
                queue: VecDeque::new(),
                unleased: 0,
                lease,
                written: 0,
                blocked: false,
                failed: None,
                task: Waker::noop().clone(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more bytes wait than [`OUTPUT_LIMIT`], or than there is memory for.
    pub(crate) fn is_full(&self) -> bool {
        let counts = &self.counts;
        counts.waiting.load(Relaxed) > OUTPUT_LIMIT || counts.lacks_memory.load(Relaxed)
    }

    /// Number of bytes that the stream has taken.
    pub(crate) fn sent(&self) -> u64 {
        self.counts.sent.load(Relaxed)
    }

    /// Queues a message; the connection's task, which is running, writes it with what else waits by then.
    pub(crate) fn queue(&self, message: Outgoing) {
        self.lock().queue(message, &self.counts);
    }

    /// Queues a message, and has the connection's task write it with what else waits by then.
    pub(crate) fn queue_and_wake(&self, message: Outgoing) {
        let mut state = self.lock();
        let was_blocked = state.blocked;
        state.queue(message, &self.counts);
        // A stream that was blocked wakes the task itself. Of one that is now the task does not know.
        if !was_blocked {
            state.task.wake_by_ref();
        }
    }

    /// Writes a message at once as far as the stream takes it; the connection's task writes the rest.
    pub(crate) fn write(&self, message: Outgoing) {
        let mut state = self.lock();
        let was_blocked = state.blocked;
        state.push(message, &self.counts);
        state.write_unless_blocked(&self.counts);
        // The task has to know when the stream blocked, for its deadline.
        if state.failed.is_some() || state.blocked && !was_blocked {
            state.task.wake_by_ref();
        }
    }

    /// Writes what waits, on behalf of the connection's task.
    pub(crate) fn turn(&self, cx: &Context<'_>) -> Turn {
        let mut state = self.lock();
        state.attend(cx);
        state.write(&self.counts);
        Turn {
            blocked: state.blocked.then(|| self.sent()),
            failed: state.failed.take(),
        }
    }

    /// Wakes the connection's task.
    pub(crate) fn wake(&self) {
        self.lock().task.wake_by_ref();
    }

    /// Closes the stream and drops what waits.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        let queue = std::mem::take(&mut state.queue);
        let gone = (state.stream.take(), queue, state.lease.take());
        self.counts.waiting.store(0, Relaxed);
        drop(state);
        drop(gone);
    }
}

impl State {
    fn push(&mut self, message: Outgoing, counts: &Counts) {
        // After the end, nobody would take it off again.
        if self.stream.is_some() {
            counts
                .waiting
                .fetch_add(message.len + MESSAGE_COST, Relaxed);
            self.unleased += message.unleased();
            self.queue.push_back(message);
        }
    }

    /// Queues a message that may wait for others. If it needs memory beyond what there is, all are written
    /// now: what the stream takes at once needs none.
    fn queue(&mut self, message: Outgoing, counts: &Counts) {
        self.push(message, counts);
        let needed = self.needed();
        if self
            .lease
            .as_ref()
            .is_some_and(|lease| lease.bytes() < needed)
        {
            self.write_unless_blocked(counts);
        }
    }

    /// Bytes of the messages for which there has to be memory of the budget.
    fn needed(&self) -> usize {
        self.unleased.saturating_sub(FREE_OUTPUT)
    }

    /// Leases the memory that the messages need which the stream has not taken.
    fn settle(&mut self, counts: &Counts) {
        let needed = self.needed();
        if let Some(lease) = &mut self.lease {
            let has_memory = lease.resize(needed);
            counts.lacks_memory.store(!has_memory, Relaxed);
        }
    }

    /// Writes, unless the stream is known to take no more.
    fn write_unless_blocked(&mut self, counts: &Counts) {
        match self.blocked {
            true => self.settle(counts),
            false => self.write(counts),
        }
    }

    fn attend(&mut self, cx: &Context<'_>) {
        if !self.task.will_wake(cx.waker()) {
            self.task.clone_from(cx.waker());
        }
    }

    /// Writes until nothing waits or the stream takes no more, and leases memory for what waits then.
    fn write(&mut self, counts: &Counts) {
        self.write_all(counts);
        self.settle(counts);
    }

    fn write_all(&mut self, counts: &Counts) {
        self.blocked = false;
        while !self.queue.is_empty() && self.failed.is_none() {
            match self.write_once() {
                Poll::Ready(Ok(0)) => self.failed = Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(len)) => {
                    counts.waiting.fetch_sub(len, Relaxed);
                    counts.sent.fetch_add(len as u64, Relaxed);
                    self.advance(len, counts);
                }
                Poll::Ready(Err(error)) => self.failed = Some(error),
                Poll::Pending => {
                    self.blocked = true;
                    return;
                }
            }
        }
    }

    fn write_once(&mut self) -> Poll<io::Result<usize>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let mut pieces = SmallVec::new();
        let mut skip = self.written;
        for message in &self.queue {
            message.pieces(skip, &mut pieces);
            skip = 0;
            if pieces.len() >= MAX_PIECES {
                break;
            }
        }
        // Whichever thread this is, the connection's task goes on.
        let mut cx = Context::from_waker(&self.task);
        Pin::new(stream).poll_write_vectored(&mut cx, &pieces)
    }

    fn advance(&mut self, len: usize, counts: &Counts) {
        self.written += len;
        while let Some(first) = self.queue.front()
            && self.written >= first.len
        {
            self.written -= first.len;
            self.unleased -= first.unleased();
            counts.waiting.fetch_sub(MESSAGE_COST, Relaxed);
            self.queue.pop_front();
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(KEPT_PLACES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use buffer::Buffer;
    use bytes::Bytes;
    use oncrpc::PeerGroup;
    use oncrpc::xdr::Item;
    use smallvec::smallvec;
    use std::sync::Arc;
    use std::task::Wake;

    /// A stream that takes so many bytes.
    struct Takes(usize);

    impl AsyncWrite for Takes {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            match taken {
                0 => Poll::Pending,
                taken => Poll::Ready(Ok(taken)),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Ways of a message to the stream.
    const WAYS: [fn(&Output, Outgoing); 3] = [Output::queue, Output::queue_and_wake, Output::write];

    fn group(host: u8) -> PeerGroup {
        PeerGroup::of([192, 0, 2, host].into())
    }

    fn reply(bytes: usize) -> Outgoing {
        let message = Payload::new(Buffer::from(vec![0; bytes]), 0);
        Outgoing::new(message, None).expect("it is small enough")
    }

    #[test]
    fn reply_that_the_stream_takes_at_once_wakes_no_call_that_waits_for_memory() {
        const MEMORY: usize = 1 << 20;
        let memory = Memory::new(MEMORY);
        let (mut holds, mut waits) = (memory.account(group(1)), memory.account(group(2)));
        let (mut held, mut waiting) = (None, None);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(holds.poll_enlarge(&cx, &mut held, 4096).is_ready());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        cx = Context::from_waker(&waker);
        assert!(waits.poll_enlarge(&cx, &mut waiting, MEMORY).is_pending());
        let output = Output::new(Box::new(Takes(usize::MAX)), Some(memory.output(group(3))));
        for way in WAYS {
            for _ in 0..3 {
                way(&output, reply(4 * FREE_OUTPUT));
            }
            let turn = output.turn(&Context::from_waker(Waker::noop()));
            assert!(turn.blocked.is_none() && !output.is_full());
        }
        assert_eq!(wakes.0.load(Relaxed), 0);
        drop(held);
        assert_eq!(wakes.0.load(Relaxed), 1);
    }

    #[test]
    fn task_is_woken_when_the_stream_blocks_and_not_for_what_waits_behind() {
        for way in [Output::queue_and_wake, Output::write] {
            let memory = Memory::new(1 << 20);
            let output = Output::new(Box::new(Takes(1000)), Some(memory.output(group(1))));
            let wakes = Arc::new(Wakes::default());
            let waker = Waker::from(Arc::clone(&wakes));
            output.turn(&Context::from_waker(&waker));
            while output.turn(&Context::from_waker(&waker)).blocked.is_none() {
                let before = wakes.0.load(Relaxed);
                way(&output, reply(4 * FREE_OUTPUT));
                assert_eq!(wakes.0.load(Relaxed), before + 1);
            }
            let before = wakes.0.load(Relaxed);
            way(&output, reply(8));
            assert_eq!(wakes.0.load(Relaxed), before);
        }
    }

    #[test]
    fn replies_that_the_stream_does_not_take_are_within_the_budget_but_for_one() {
        const MEMORY: usize = 16 * FREE_OUTPUT;
        for way in WAYS {
            let memory = Memory::new(MEMORY);
            let outputs = [1, 2, 3]
                .map(|host| Output::new(Box::new(Takes(1000)), Some(memory.output(group(host)))));
            let mut waiting = 0;
            for output in &outputs {
                while !output.is_full() {
                    way(output, reply(FREE_OUTPUT / 2));
                    waiting += FREE_OUTPUT / 2;
                    assert!(waiting < MEMORY, "nothing bounds these");
                }
                assert!(output.counts.lacks_memory.load(Relaxed));
            }
            // Half is left to calls; each has its own part, and one reply beyond.
            let most = MEMORY / 2 + outputs.len() * (FREE_OUTPUT + FREE_OUTPUT / 2);
            assert!(waiting <= most, "{waiting} bytes");
            outputs.iter().for_each(Output::close);
            let (mut caller, mut all) = (memory.account(group(9)), None);
            let cx = Context::from_waker(Waker::noop());
            assert!(caller.poll_enlarge(&cx, &mut all, MEMORY).is_ready());
        }
    }

    fn item(at: usize, data: &'static [u8]) -> Item {
        Item {
            at,
            data: smallvec![Bytes::from_static(data)],
        }
    }

    #[test]
    fn place_in_a_queue_that_has_doubled_costs_no_more_than_is_counted() {
        // The memory of a small message has a header of the allocator's, and at least 32 bytes.
        assert!(2 * size_of::<Outgoing>() + 64 <= MESSAGE_COST);
    }

    #[test]
    fn record_is_cut_anywhere_and_its_items_are_not_copied() {
        static DATA: &[u8] = b"abcde";
        let head = Buffer::from(b"headtail".to_vec());
        let message = Payload::with_items(head, 0, smallvec![item(4, DATA), item(8, b"xyz")]);
        let record = Outgoing::new(message, None).unwrap();
        let whole = b"\x80\0\0\x14headabcde\0\0\0tailxyz\0";
        assert_eq!(record.len, whole.len());
        for skip in 0..=whole.len() {
            let mut pieces = SmallVec::new();
            record.pieces(skip, &mut pieces);
            let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            assert_eq!(bytes, whole[skip..]);
            let in_place = pieces.iter().any(|piece| piece.as_ptr() == DATA.as_ptr());
            assert_eq!(in_place, skip <= 8);
        }
    }
}
