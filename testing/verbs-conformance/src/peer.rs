//! One end of a connection, with a book of what it posted.

use buffer::{Buffer, Gather, Pool};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use verbs::{
    Completion, Handle, Handles, Memory, PostError, QueuePair, RegisterError, RemoteAddress,
    Segment, SharedReceiveQueue, WorkError, WorkRequest, WrId,
};

/// Bytes that the memory of one end may keep for reuse.
const KEEP: usize = 256 << 20;

/// Bytes of an announcement: a handle and an address.
const ANNOUNCEMENT: usize = 12;

/// One end. It checks of every completion that it was owed.
pub struct Peer {
    name: &'static str,
    /// The end itself.
    pub qp: Box<dyn QueuePair>,
    pool: Pool,
    next: u64,
    owed: BTreeMap<u64, Kind>,
    receives: VecDeque<u64>,
    done: BTreeMap<u64, Completion>,
    /// Addresses of memory that this end has registered, or that the peer has announced. Offsets in
    /// this suite are counted from there.
    addresses: BTreeMap<Handle, u64>,
    shared: Option<SharedMessages>,
}

/// The shared receive queue of an end, and the order in which its messages are expected.
struct SharedMessages {
    queue: SharedReceiveQueue,
    /// Messages that nobody expected yet.
    early: VecDeque<Completion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Receive,
    Send,
    Write,
    Read,
    Invalidate,
}

impl Kind {
    fn of(work: &WorkRequest) -> Self {
        match work {
            WorkRequest::Receive { .. } => Self::Receive,
            WorkRequest::Send { .. } => Self::Send,
            WorkRequest::Write { .. } => Self::Write,
            WorkRequest::Read { .. } => Self::Read,
            WorkRequest::Invalidate { .. } => Self::Invalidate,
        }
    }
}

impl Peer {
    pub(crate) fn new(name: &'static str, qp: Box<dyn QueuePair>) -> Self {
        Self {
            addresses: BTreeMap::new(),
            shared: None,
            name,
            qp,
            pool: Pool::new(KEEP),
            next: 0,
            owed: BTreeMap::new(),
            receives: VecDeque::new(),
            done: BTreeMap::new(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Memory whose return is checked at the end.
    pub(crate) fn buffer(&self, capacity: usize) -> Buffer {
        self.pool.take(capacity)
    }

    /// The same with data in it.
    pub(crate) fn filled(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.buffer(bytes.len());
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// The same, shared and in one piece.
    pub(crate) fn piece(&self, bytes: &[u8]) -> Bytes {
        self.filled(bytes).freeze()
    }

    pub(crate) fn try_post(
        &mut self,
        work: impl FnOnce(WrId) -> WorkRequest,
    ) -> Result<WrId, Box<PostError>> {
        let wr = WrId(self.next);
        self.next += 1;
        let work = work(wr);
        let kind = Kind::of(&work);
        match self.qp.post(work) {
            Ok(()) => {
                self.owed.insert(wr.0, kind);
                if kind == Kind::Receive {
                    self.receives.push_back(wr.0);
                }
                Ok(wr)
            }
            Err(error) => {
                assert_eq!(error.wr(), wr, "another work came back than was posted");
                Err(Box::new(error))
            }
        }
    }

    pub(crate) fn post(&mut self, work: impl FnOnce(WrId) -> WorkRequest) -> WrId {
        let name = self.name;
        self.try_post(work)
            .unwrap_or_else(|error| panic!("{name}: could not post: {error}"))
    }

    /// Posts a Receive, or with a shared receive queue, expects a message.
    pub(crate) fn receive(&mut self, buffer: Buffer) -> WrId {
        if self.shared.is_none() {
            return self.post(|wr| WorkRequest::Receive { wr, buffer });
        }
        let wr = WrId(self.next);
        self.next += 1;
        self.owed.insert(wr.0, Kind::Receive);
        self.receives.push_back(wr.0);
        self.match_shared();
        wr
    }

    /// Its messages come in blocks of this queue.
    pub(crate) fn take_from(&mut self, queue: Option<SharedReceiveQueue>) {
        self.shared = queue.map(|queue| SharedMessages {
            queue,
            early: VecDeque::new(),
        });
    }

    /// The next message that nobody expected, if it is there.
    pub(crate) fn early_message(&mut self) -> Option<Buffer> {
        match self.shared.as_mut()?.early.pop_front()? {
            Completion::Receive { buffer, .. } => Some(buffer),
            other => panic!("{other:?} is no message"),
        }
    }

    /// Gives the messages that came to those who expected them, in order. Nobody expects one on a
    /// connection that is over: with posted Receives the provider says so itself.
    fn match_shared(&mut self) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        while !shared.early.is_empty()
            && let Some(wr) = self.receives.pop_front()
        {
            self.owed.remove(&wr);
            self.done
                .extend(shared.early.pop_front().map(|message| (wr, message)));
        }
        if self.qp.closed().is_some() {
            for wr in self.receives.drain(..) {
                self.owed.remove(&wr);
                let error = WorkError::Flushed;
                let wr_id = WrId(wr);
                self.done
                    .insert(wr, Completion::Failed { wr: wr_id, error });
            }
        }
    }

    /// Enters Receives that were handed over when the connection was made.
    pub(crate) fn expect_receives(&mut self, wrs: std::ops::Range<u64>) {
        for wr in wrs {
            self.owed.insert(wr, Kind::Receive);
            self.receives.push_back(wr);
        }
    }

    /// A Receive of the usual size.
    pub(crate) fn receive_one(&mut self) -> WrId {
        let buffer = self.buffer(4096);
        self.receive(buffer)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> WrId {
        self.send_and(bytes, None)
    }

    pub(crate) fn send_and(&mut self, bytes: &[u8], invalidate: Option<Handle>) -> WrId {
        self.send_and_all(bytes, invalidate.map(Into::into))
    }

    pub(crate) fn send_and_all(&mut self, bytes: &[u8], invalidate: Option<Handles>) -> WrId {
        let buffer = self.filled(bytes);
        self.post(|wr| WorkRequest::Send {
            wr,
            buffer,
            rest: Gather::new(),
            invalidate,
        })
    }

    /// Sends one message of a head and pieces.
    pub(crate) fn send_from(&mut self, head: &[u8], rest: Gather) -> WrId {
        let buffer = self.filled(head);
        self.post(|wr| WorkRequest::Send {
            wr,
            buffer,
            rest,
            invalidate: None,
        })
    }

    pub(crate) fn write(&mut self, handle: Handle, offset: u64, bytes: &[u8]) -> WrId {
        let piece = self.piece(bytes);
        self.write_from(handle, offset, Gather::from_iter([piece]))
    }

    pub(crate) fn write_from(&mut self, handle: Handle, offset: u64, source: Gather) -> WrId {
        let to = RemoteAddress {
            handle,
            offset: self.address(handle, offset),
        };
        self.post(|wr| WorkRequest::Write { wr, source, to })
    }

    pub(crate) fn read(&mut self, from: &[Segment]) -> WrId {
        let length: usize = from.iter().map(|segment| segment.length as usize).sum();
        let sink = self.buffer(length);
        let from = from.iter().map(|segment| Segment {
            offset: self.address(segment.handle, segment.offset),
            ..*segment
        });
        let from = from.collect();
        self.post(|wr| WorkRequest::Read { wr, sink, from })
    }

    pub(crate) fn invalidate(&mut self, handle: Handle) -> WrId {
        self.post(|wr| WorkRequest::Invalidate { wr, handle })
    }

    /// Registers memory. The peer may use it once it is announced (`Pair::register`).
    pub(crate) fn register(&mut self, memory: Memory) -> Handle {
        let name = self.name;
        let registered = self.try_register(memory);
        registered.unwrap_or_else(|error| panic!("{name}: could not register: {error}"))
    }

    pub(crate) fn try_register(&mut self, memory: Memory) -> Result<Handle, RegisterError> {
        let at = self.qp.register(memory)?;
        self.addresses.insert(at.handle, at.offset);
        Ok(at.handle)
    }

    /// The message by which the peer learns of memory. It goes the way of all work, behind what opens
    /// the memory, so that the memory is open when it arrives.
    pub(crate) fn announcement(&self, handle: Handle) -> [u8; ANNOUNCEMENT] {
        let start = self.addresses.get(&handle).expect("it is registered here");
        let mut message = [0; ANNOUNCEMENT];
        message[..4].copy_from_slice(&handle.0.to_be_bytes());
        message[4..].copy_from_slice(&start.to_be_bytes());
        message
    }

    /// Takes in an announcement of the peer.
    pub(crate) fn learn(&mut self, announcement: &[u8]) -> Handle {
        let (handle, start) = announcement.split_at(4);
        let handle = handle.try_into().expect("a handle has 4 bytes");
        let handle = Handle(u32::from_be_bytes(handle));
        let start = start.try_into().expect("an address has 8 bytes");
        self.addresses.insert(handle, u64::from_be_bytes(start));
        handle
    }

    /// The address of an offset; one that cannot be counted stays what it is, and is as wrong.
    fn address(&self, handle: Handle, offset: u64) -> u64 {
        let start = self.addresses.get(&handle).copied().unwrap_or(0);
        start.checked_add(offset).unwrap_or(offset)
    }

    /// Registers memory of at least `capacity` zeros for the peer to write.
    pub(crate) fn sink(&mut self, capacity: usize) -> Handle {
        let mut buffer = self.buffer(capacity);
        buffer.memory_mut().fill(0);
        self.register(Memory::Sink(buffer))
    }

    /// Registers these bytes for the peer to read.
    pub(crate) fn source(&mut self, bytes: &[u8]) -> Handle {
        let piece = self.piece(bytes);
        self.register(Memory::Source(Gather::from_iter([piece])))
    }

    /// Takes every completion that is there.
    pub(crate) fn collect(&mut self) {
        while let Some(completion) = self.qp.poll_cq() {
            let name = self.name;
            if let Completion::Receive { wr, .. } = &completion
                && let Some(shared) = &mut self.shared
            {
                assert_eq!(*wr, SharedReceiveQueue::WR, "{name}: nobody posted it");
                shared.early.push_back(completion);
                continue;
            }
            let (wr, kind) = match &completion {
                Completion::Receive { wr, .. } => (*wr, Some(Kind::Receive)),
                Completion::Send { wr } => (*wr, Some(Kind::Send)),
                Completion::Write { wr } => (*wr, Some(Kind::Write)),
                Completion::Read { wr, .. } => (*wr, Some(Kind::Read)),
                Completion::Invalidate { wr, .. } => (*wr, Some(Kind::Invalidate)),
                Completion::Failed { wr, .. } => (*wr, None),
            };
            let owed = self
                .owed
                .remove(&wr.0)
                .unwrap_or_else(|| panic!("{name}: {completion:?} is not owed, or no longer"));
            assert!(
                kind.is_none_or(|kind| kind == owed),
                "{name}: {completion:?} for a {owed:?}"
            );
            if owed == Kind::Receive {
                assert_eq!(
                    self.receives.pop_front(),
                    Some(wr.0),
                    "{name}: Receives complete in the order of posting"
                );
            }
            self.done.insert(wr.0, completion);
        }
        self.match_shared();
    }

    /// Whether this work has completed.
    pub(crate) fn is_done(&self, wr: WrId) -> bool {
        self.done.contains_key(&wr.0)
    }

    /// The completion of this work, if there is one that has not been taken.
    pub(crate) fn take(&mut self, wr: WrId) -> Option<Completion> {
        self.done.remove(&wr.0)
    }

    /// Whether all that was posted has completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.owed.is_empty()
    }

    /// Asserts that this work has failed in this way.
    pub(crate) fn assert_failed(&mut self, wr: WrId, expected: WorkError) {
        match self.take(wr) {
            Some(Completion::Failed { error, .. }) if error == expected => {}
            other => panic!("{}: expected {expected:?}, got {other:?}", self.name),
        }
    }

    /// Asserts that all that was posted has completed.
    pub(crate) fn assert_nothing_owed(&self) {
        assert!(
            self.owed.is_empty(),
            "{}: closed ({:?}), but without completion: {:?}",
            self.name,
            self.qp.closed(),
            self.owed
        );
    }

    /// Drops the end and all that it gave back, and asserts that no memory is missing then.
    pub(crate) fn retire(self) {
        let Self {
            name,
            qp,
            pool,
            done,
            shared,
            ..
        } = self;
        drop(done);
        drop(qp);
        if let Some(SharedMessages { queue, early }) = shared {
            drop(early);
            // Others may be attached to it.
            let left = queue.stats();
            let some = (left.lent, left.waiting);
            assert!(some == (0, 0) || left.attached > 0, "{name}: {left:?}");
        }
        assert_eq!(pool.stats().out, 0, "{name}: bytes that never came back");
    }
}
