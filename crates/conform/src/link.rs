//! One end of a connection whose work requests are all a case's own, over any provider.

use crate::deadline::Deadline;
use crate::message::{Segment, describe};
use crate::verdict::{Log, Stop, Tested, error, fail};
use buffer::{Buffer, Gather};
use bytes::Bytes;
use smallvec::smallvec;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout_at};
use verbs::{
    Completion, Handle, Invalidated, Memory, QueuePair, RemoteAddress, WorkError, WorkRequest, WrId,
};

/// Most messages that wait until a case looks at them. A peer that sends more gets no further Receives.
const MAX_HEARD: usize = 1024;

/// Octet that memory has before the peer writes to it.
pub(crate) const UNTOUCHED: u8 = 0xa5;

/// Outcome of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A message, and the handle that it invalidated.
    Message {
        bytes: Vec<u8>,
        invalidated: Option<u32>,
    },
    /// The end of the connection.
    End(String),
    /// Nothing in the time allowed.
    Silence,
}

/// One end of a connection.
pub(crate) struct Link {
    qp: Box<dyn QueuePair>,
    runtime: Rc<Runtime>,
    log: Log,
    patience: Duration,
    deadline: Deadline,
    /// Private data of the peer.
    pub(crate) private_data: Vec<u8>,
    next: u64,
    heard: VecDeque<Heard>,
    /// Memory that is not registered any more, by its handle; whether the peer invalidated it.
    returned: BTreeMap<u32, (Memory, bool)>,
    /// Reads and invalidations that have ended, by their identifiers.
    ended: BTreeMap<u64, Result<Buffer, WorkError>>,
    /// Whether the end was told.
    over: bool,
    /// A message in words.
    describe: fn(&[u8]) -> String,
}

/// Identifier of the work whose end nobody waits for.
const UNWATCHED: WrId = WrId(0);

/// The Receives that a link has at first.
pub(crate) fn receives(count: usize, size: usize) -> Vec<WorkRequest> {
    let receive = |_| WorkRequest::Receive {
        wr: UNWATCHED,
        buffer: Buffer::with_capacity(size),
    };
    (0..count).map(receive).collect()
}

impl Link {
    pub(crate) fn new(
        qp: Box<dyn QueuePair>,
        private_data: Vec<u8>,
        runtime: &Rc<Runtime>,
        log: &Log,
        (patience, deadline): (Duration, &Deadline),
    ) -> Self {
        Self {
            qp,
            runtime: Rc::clone(runtime),
            log: log.clone(),
            patience,
            deadline: deadline.clone(),
            private_data,
            next: 1,
            heard: VecDeque::new(),
            returned: BTreeMap::new(),
            ended: BTreeMap::new(),
            over: false,
            describe,
        }
    }

    /// The same whose messages are described otherwise.
    pub(crate) fn described_by(self, describe: fn(&[u8]) -> String) -> Self {
        Self { describe, ..self }
    }

    /// The end of the connection, if it has come.
    pub(crate) fn closed(&self) -> Option<String> {
        self.qp.closed().map(ToString::to_string)
    }

    /// Octets that a Send can have at most.
    pub(crate) fn max_message(&self) -> usize {
        self.qp.limits().max_message as usize
    }

    /// Registers octets that the peer may read.
    pub(crate) fn source(&mut self, bytes: &[u8]) -> Tested<Segment> {
        let memory = Memory::Source(Gather::from_iter([Bytes::copy_from_slice(bytes)]));
        self.register(memory)
    }

    /// Registers so many octets that the peer may write.
    pub(crate) fn sink(&mut self, length: usize) -> Tested<Segment> {
        let mut buffer = Buffer::with_capacity(length);
        buffer.memory_mut().fill(UNTOUCHED);
        self.register(Memory::Sink(buffer))
    }

    fn register(&mut self, memory: Memory) -> Tested<Segment> {
        let length = u32::try_from(memory.len()).expect("memory of a case is small");
        match self.qp.register(memory) {
            Ok(RemoteAddress { handle, offset }) => Ok(Segment {
                handle: handle.0,
                length,
                offset,
            }),
            Err(refused) => error(format!("cannot register memory: {refused}")),
        }
    }

    /// The octets of memory that was registered, which is not registered afterwards; and whether the peer invalidated
    /// it.
    pub(crate) fn take(&mut self, segment: Segment) -> Tested<(Vec<u8>, bool)> {
        if !self.returned.contains_key(&segment.handle) {
            let wr = self.number();
            self.post(WorkRequest::Invalidate {
                wr,
                handle: Handle(segment.handle),
            })?;
            self.drive(self.patience, |link| {
                link.returned.contains_key(&segment.handle)
            });
        }
        match self.returned.remove(&segment.handle) {
            Some((Memory::Sink(buffer) | Memory::Persistent(_, buffer), remote)) => {
                Ok((buffer.memory().to_vec(), remote))
            }
            Some((Memory::Source(pieces), remote)) => Ok((pieces.concat(), remote)),
            Some((Memory::Parts(_), _)) => {
                error("memory comes back in parts, as no case registers it".to_owned())
            }
            None => error(match self.closed() {
                Some(why) => format!("memory was lost with the connection: {why}"),
                None => "memory could not be invalidated".to_owned(),
            }),
        }
    }

    fn number(&mut self) -> WrId {
        self.next += 1;
        WrId(self.next)
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &[u8]) -> Tested {
        self.send_invalidating(message, None)
    }

    /// Sends a message that invalidates a handle of the peer, if there is one.
    pub(crate) fn send_invalidating(&mut self, message: &[u8], handle: Option<u32>) -> Tested {
        match handle {
            Some(handle) => {
                let what = format!("{} (invalidates {handle:#010x})", (self.describe)(message));
                self.log.sent(what, message);
            }
            None => self.log.sent((self.describe)(message), message),
        }
        self.post(WorkRequest::Send {
            wr: UNWATCHED,
            buffer: Buffer::from(message.to_vec()),
            rest: Gather::new(),
            invalidate: handle.map(|handle| Handle(handle).into()),
        })?;
        self.qp.progress();
        Ok(())
    }

    /// Writes to memory of the peer. What becomes of it shows in what is heard.
    pub(crate) fn write(&mut self, to: Segment, bytes: &[u8]) -> Tested {
        self.log
            .sent(format!("RDMA Write of {} octets", bytes.len()), &[]);
        let (handle, offset) = (Handle(to.handle), to.offset);
        self.post(WorkRequest::Write {
            wr: UNWATCHED,
            source: Gather::from_iter([Bytes::copy_from_slice(bytes)]),
            to: RemoteAddress { handle, offset },
        })?;
        self.qp.progress();
        Ok(())
    }

    /// Reads memory of the peer.
    ///
    /// # Errors
    ///
    /// `Ok(Err(..))` if the peer refuses.
    pub(crate) fn read(&mut self, from: &[Segment]) -> Tested<Result<Vec<u8>, String>> {
        let mut bytes = Vec::new();
        for segment in from {
            let wr = self.number();
            self.log
                .sent(format!("RDMA Read of {} octets", segment.length), &[]);
            self.post(WorkRequest::Read {
                wr,
                sink: Buffer::with_capacity(segment.length as usize),
                from: smallvec![verbs::Segment {
                    handle: Handle(segment.handle),
                    length: segment.length,
                    offset: segment.offset,
                }],
            })?;
            self.drive(self.patience, |link| link.ended.contains_key(&wr.0));
            match self.ended.remove(&wr.0) {
                Some(Ok(sink)) => bytes.extend_from_slice(&sink),
                Some(Err(why)) => {
                    let end = self.closed().unwrap_or_default();
                    return Ok(Err(format!("{why} {end}").trim_end().to_owned()));
                }
                None => return Ok(Err("an RDMA Read was not answered".to_owned())),
            }
        }
        Ok(Ok(bytes))
    }

    /// Posts work. While the queue is full, what has completed is taken out of it.
    fn post(&mut self, mut work: WorkRequest) -> Tested {
        let deadline = std::time::Instant::now() + self.patience;
        loop {
            match self.qp.post(work) {
                Ok(()) => return Ok(()),
                Err(verbs::PostError::Invalid(_)) => {
                    return error("this provider cannot do what the case needs");
                }
                Err(full @ verbs::PostError::Full(_)) => work = full.into_work(),
            }
            let mut first = true;
            self.drive(self.patience, |_| !std::mem::take(&mut first));
            if std::time::Instant::now() > deadline {
                return fail("the peer takes in nothing");
            }
        }
    }

    /// The next message, the end of the connection, or silence within the patience of the run.
    pub(crate) fn hear(&mut self) -> Heard {
        self.hear_within(self.patience)
    }

    /// The same within this time. When the time of the case is over, that is the end.
    pub(crate) fn hear_within(&mut self, limit: Duration) -> Heard {
        if self.deadline.is_over() {
            return Heard::End("the case has taken too long".to_owned());
        }
        self.drive(limit, |link| !link.heard.is_empty());
        if let Some(heard) = self.heard.pop_front() {
            return heard;
        }
        match self.closed() {
            Some(why) => {
                if !std::mem::replace(&mut self.over, true) {
                    self.log.came(format!("the end: {why}"), &[]);
                }
                Heard::End(why)
            }
            None => Heard::Silence,
        }
    }

    /// Waits for the first message: false if the connection ends before, or nothing comes.
    pub(crate) fn speaks(&mut self) -> bool {
        self.drive(self.patience, |link| !link.heard.is_empty());
        !self.heard.is_empty()
    }

    /// The next message, which there must be.
    pub(crate) fn message(&mut self) -> Tested<(Vec<u8>, Option<u32>)> {
        match self.hear() {
            Heard::Message { bytes, invalidated } => Ok((bytes, invalidated)),
            Heard::End(why) => fail(format!("the connection ended instead of an answer: {why}")),
            Heard::Silence => fail(format!("no answer within {:?}", self.patience)),
        }
    }

    /// Moves the connection on until the condition holds, it has ended, or the time is over.
    fn drive(&mut self, limit: Duration, mut until: impl FnMut(&Self) -> bool) {
        let runtime = Rc::clone(&self.runtime);
        let limit = self.deadline.at_most(limit);
        runtime.block_on(async {
            let deadline = Instant::now() + limit;
            loop {
                let moved = self.qp.progress();
                while let Some(completion) = self.qp.poll_cq() {
                    self.take_in(completion);
                }
                if until(self) || self.qp.closed().is_some() && !moved {
                    return;
                }
                if moved && Instant::now() < deadline {
                    continue;
                }
                let ready = std::future::poll_fn(|cx| self.qp.poll_ready(cx));
                if timeout_at(deadline, ready).await.is_err() {
                    return;
                }
            }
        });
    }

    fn take_in(&mut self, completion: Completion) {
        match completion {
            Completion::Receive {
                mut buffer,
                invalidated,
                ..
            } => {
                let bytes = buffer.to_vec();
                let invalidated = invalidated.map(|Invalidated { handle, memory, .. }| {
                    self.returned.insert(handle.0, (memory, true));
                    handle.0
                });
                match invalidated {
                    Some(handle) => {
                        let what =
                            format!("{} (invalidates {handle:#010x})", (self.describe)(&bytes));
                        self.log.came(what, &bytes);
                    }
                    None => self.log.came((self.describe)(&bytes), &bytes),
                }
                if self.heard.len() >= MAX_HEARD {
                    return;
                }
                self.heard.push_back(Heard::Message { bytes, invalidated });
                buffer.clear();
                let wr = UNWATCHED;
                // On a connection that has ended it is of no use, and harms nobody.
                let _ = self.qp.post(WorkRequest::Receive { wr, buffer });
            }
            Completion::Read { wr, sink } => {
                self.ended.insert(wr.0, Ok(sink));
            }
            Completion::Invalidate { invalidated, .. } => {
                let Invalidated { handle, memory, .. } = invalidated;
                self.returned.insert(handle.0, (memory, false));
            }
            Completion::Failed { wr, error } => {
                if wr != UNWATCHED {
                    self.ended.insert(wr.0, Err(error));
                }
            }
            Completion::Send { .. } | Completion::Write { .. } => {}
        }
    }

    /// Closes the connection, as far as the peer takes part in that soon.
    pub(crate) fn close(mut self) {
        self.qp.close();
        self.drive(CLOSED_WITHIN, |link| link.qp.closed().is_some());
    }
}

/// How long the end of a connection may take.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

impl From<crate::iwarp::Trouble> for Stop {
    fn from(trouble: crate::iwarp::Trouble) -> Self {
        Self::Fail(trouble.to_string())
    }
}
