//! The sending half of a connection: a queue of messages, written by `writev` without a copy.

use crate::connection_end::ConnectionEnd;
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
    end: Option<ConnectionEnd>,
    draining: bool,
    /// Wakes the task of the connection.
    task: Waker,
}

/// A message to send, as a record of one fragment.
pub(crate) struct Outgoing {
    mark: [u8; MARK],
    message: Payload,
    len: usize,
    /// The place of a call in the queue.
    _place: Option<OwnedSemaphorePermit>,
}

/// State of the output after a turn of the connection's task.
pub(crate) struct Turn {
    /// Number of bytes written so far, if more wait for the stream.
    pub(crate) blocked: Option<u64>,
    /// Why the connection must end now.
    pub(crate) end: Option<ConnectionEnd>,
    /// No further call may be begun.
    pub(crate) draining: bool,
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
                end: None,
                draining: false,
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

    /// Queues a message; the connection's task, which is running, writes it.
    pub(crate) fn queue(&self, message: Outgoing) {
        self.lock().push(message, &self.counts);
    }

    /// Queues a message, and has the connection's task write it with what else waits by then.
    pub(crate) fn queue_and_wake(&self, message: Outgoing) {
        let mut state = self.lock();
        state.push(message, &self.counts);
        // A blocked stream wakes the task itself.
        if !state.blocked {
            state.task.wake_by_ref();
        }
    }

    /// Writes a message at once as far as the stream takes it; the connection's task writes the rest.
    pub(crate) fn write(&self, message: Outgoing) {
        let mut state = self.lock();
        state.push(message, &self.counts);
        if !state.blocked {
            state.write(&self.counts);
        }
        if state.failed.is_some() {
            state.task.wake_by_ref();
        }
    }

    /// Writes what waits, on behalf of the connection's task.
    pub(crate) fn turn(&self, cx: &Context<'_>) -> Turn {
        let mut state = self.lock();
        state.attend(cx);
        state.write(&self.counts);
        let failed = state.failed.take().map(ConnectionEnd::Io);
        // The service closes behind its replies, which may take the peer a while.
        let behind = matches!(state.end, Some(ConnectionEnd::ByService)) && state.blocked;
        let end = match behind {
            true => None,
            false => state.end.take(),
        };
        Turn {
            blocked: state.blocked.then(|| self.sent()),
            end: failed.or(end),
            draining: state.draining || behind,
        }
    }

    /// Ends the connection for this reason, unless it ends already for one that does not wait for the
    /// peer.
    pub(crate) fn end(&self, why: ConnectionEnd) {
        let mut state = self.lock();
        if matches!(state.end, None | Some(ConnectionEnd::ByService)) {
            state.end = Some(why);
        }
        state.task.wake_by_ref();
    }

    /// Ends the connection once the calls in service are answered.
    pub(crate) fn drain(&self) {
        let mut state = self.lock();
        state.draining = true;
        state.task.wake_by_ref();
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
            self.settle(counts);
        }
    }

    /// Leases the memory that the messages need.
    fn settle(&mut self, counts: &Counts) {
        if let Some(lease) = &mut self.lease {
            let has_memory = lease.resize(self.unleased.saturating_sub(FREE_OUTPUT));
            counts.lacks_memory.store(!has_memory, Relaxed);
        }
    }

    fn attend(&mut self, cx: &Context<'_>) {
        if !self.task.will_wake(cx.waker()) {
            self.task.clone_from(cx.waker());
        }
    }

    /// Writes until nothing waits or the stream takes no more.
    fn write(&mut self, counts: &Counts) {
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
        self.settle(counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::Buffer;
    use bytes::Bytes;
    use oncrpc::xdr::Item;
    use smallvec::smallvec;

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
