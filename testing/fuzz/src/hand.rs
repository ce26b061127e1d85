//! A queue pair driven by a script: posted work stays posted until the script completes it.

use crate::script::Script;
use buffer::Buffer;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use verbs::{
    Access, CloseReason, Completion, Handle, Invalidated, Invalidation, Limits, Memory,
    NotPersistent, Part, PostError, PrivateDataCapacity, QueuePair, RegisterError, RemoteAddress,
    WorkError, WorkRequest, WrId,
};

/// The queue pair under a connection, and the memory that its peer can reach.
pub(crate) struct Hand {
    pub(crate) limits: Limits,
    next_handle: u32,
    pub(crate) regions: BTreeMap<Handle, Memory>,
    pub(crate) receives: VecDeque<(WrId, Buffer)>,
    /// Other work, in the order in which it was posted.
    pub(crate) work: VecDeque<WorkRequest>,
}

impl Hand {
    pub(crate) fn new(script: &mut Script<'_>) -> Self {
        let none = PrivateDataCapacity {
            request: 0,
            accept: 0,
            reject: 0,
        };
        Self {
            limits: Limits {
                private_data: none,
                private_data_exact: true,
                shared_receives: false,
                holds_peer_back: false,
                receives: 64,
                sends: 1 + script.below(8),
                outstanding_reads: script.below(4),
                inbound_reads: 4,
                max_message: 1 << 20,
                regions: script.pick(&[1, 3, 64]),
                max_region: 1 << 20,
                parts: 64,
                remote_invalidation: Invalidation::Region,
                invalidations: 16,
                keepalive: false,
            },
            next_handle: 1,
            regions: BTreeMap::new(),
            receives: VecDeque::new(),
            work: VecDeque::new(),
        }
    }

    /// Finishes a piece of work that may be the next to finish: Sends and Writes do in order, Reads
    /// among themselves, and Invalidates when they can. What is read begins with these bytes.
    pub(crate) fn complete(
        &mut self,
        script: &mut Script<'_>,
        read: impl FnOnce(&WorkRequest) -> Vec<u8>,
    ) -> Option<Completion> {
        let first = |wanted: fn(&WorkRequest) -> bool| self.work.iter().position(wanted);
        let candidates = [
            first(|work| matches!(work, WorkRequest::Send { .. } | WorkRequest::Write { .. })),
            first(|work| matches!(work, WorkRequest::Read { .. })),
            first(|work| matches!(work, WorkRequest::Invalidate { .. })),
            self.work
                .iter()
                .rposition(|work| matches!(work, WorkRequest::Invalidate { .. })),
        ];
        let candidates: Vec<usize> = candidates.into_iter().flatten().collect();
        if candidates.is_empty() {
            return None;
        }
        let work = self
            .work
            .remove(script.pick(&candidates))
            .expect("it is there");
        let bytes = match &work {
            WorkRequest::Read { .. } => read(&work),
            _ => Vec::new(),
        };
        Some(match work {
            WorkRequest::Receive { .. } => unreachable!("Receives are kept apart"),
            WorkRequest::Send { wr, .. } => Completion::Send { wr },
            WorkRequest::Write { wr, .. } => Completion::Write { wr },
            WorkRequest::Read { wr, mut sink, from } => {
                let len = from.iter().map(|segment| segment.length as usize).sum();
                let memory = &mut sink.memory_mut()[..len];
                let known = bytes.len().min(len);
                memory.fill(0x77);
                memory[..known].copy_from_slice(&bytes[..known]);
                sink.set_len(len);
                Completion::Read { wr, sink }
            }
            WorkRequest::Invalidate { wr, handle } => match self.regions.remove(&handle) {
                Some(memory) => Completion::Invalidate {
                    wr,
                    invalidated: Invalidated::new(handle, memory),
                },
                None => Completion::Failed {
                    wr,
                    error: WorkError::NoSuchHandle,
                },
            },
        })
    }

    /// A message of the peer into the next Receive, which takes a handle of ours along if it is
    /// one; nothing, if there is no Receive or it does not fit.
    pub(crate) fn receive(
        &mut self,
        message: &[u8],
        invalidate: Option<Handle>,
    ) -> Option<Completion> {
        if self.receives.front()?.1.capacity() < message.len() {
            return None;
        }
        let (wr, mut buffer) = self.receives.pop_front()?;
        buffer.clear();
        buffer.extend_from_slice(message);
        let invalidated = invalidate.and_then(|handle| {
            let memory = self.regions.remove(&handle)?;
            Some(Invalidated::new(handle, memory))
        });
        Some(Completion::Receive {
            wr,
            buffer,
            invalidated,
        })
    }

    /// Regions that are for one call each.
    pub(crate) fn of_calls(&self) -> impl Iterator<Item = Handle> {
        let stays = |memory: &Memory| matches!(memory, Memory::Persistent(..));
        let regions = self.regions.iter();
        let regions = regions.filter(move |(_, memory)| !stays(memory));
        regions.map(|(handle, _)| *handle)
    }

    /// Everything that is posted comes back undone.
    pub(crate) fn flush(&mut self, error: WorkError) -> Vec<Completion> {
        let receives = self.receives.drain(..).map(|(wr, _)| wr);
        let work = self.work.drain(..).map(|work| work.wr());
        let failed = work.map(|wr| Completion::Failed { wr, error });
        let flushed = receives.map(|wr| Completion::Failed {
            wr,
            error: WorkError::Flushed,
        });
        failed.chain(flushed).collect()
    }

    /// Bytes that the peer can write.
    pub(crate) fn sink_mut(&mut self, handle: Handle) -> Option<&mut [u8]> {
        let buffer = match self.regions.get_mut(&handle)? {
            Memory::Sink(buffer) | Memory::Persistent(Access::Write, buffer) => buffer,
            Memory::Parts(parts) => {
                let mut numbers = 0..parts.iter().len();
                let is_sink = |&number: &usize| matches!(parts.get(number), Some(Part::Sink(_)));
                let number = numbers.find(is_sink)?;
                match parts.get_mut(number)? {
                    Part::Sink(buffer) => buffer,
                    Part::Source(_) => return None,
                }
            }
            Memory::Source(_) | Memory::Persistent(Access::Read, _) => return None,
        };
        Some(buffer.memory_mut())
    }
}

impl Hand {
    fn persistent(
        &mut self,
        handle: Handle,
        offset: usize,
        length: usize,
    ) -> Result<&mut [u8], NotPersistent> {
        match self.regions.get_mut(&handle) {
            Some(Memory::Persistent(_, buffer)) => {
                let end = offset.checked_add(length);
                let range = end.and_then(|end| buffer.memory_mut().get_mut(offset..end));
                range.ok_or(NotPersistent(handle))
            }
            Some(Memory::Source(_) | Memory::Sink(_) | Memory::Parts(_)) | None => {
                Err(NotPersistent(handle))
            }
        }
    }
}

impl QueuePair for Hand {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        match work {
            WorkRequest::Receive { wr, buffer } => self.receives.push_back((wr, buffer)),
            work => {
                assert!(
                    self.work.len() < self.limits.sends,
                    "more than there is room for"
                );
                self.work.push_back(work);
            }
        }
        Ok(())
    }

    fn register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError> {
        let (most, max_region) = (self.limits.parts, self.limits.max_region);
        let registrable = match &memory {
            Memory::Parts(parts) => parts.are_registrable(most, max_region),
            memory => !memory.is_empty() && memory.len() <= max_region,
        };
        if !registrable {
            return Err(RegisterError::Size(memory));
        }
        if self.regions.len() == self.limits.regions {
            return Err(RegisterError::Full(memory));
        }
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        self.regions.insert(handle, memory);
        Ok(RemoteAddress { handle, offset: 0 })
    }

    fn copy_in(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NotPersistent> {
        let memory = self.persistent(handle, offset, bytes.len())?;
        memory.copy_from_slice(bytes);
        Ok(())
    }

    fn copy_out(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NotPersistent> {
        bytes.copy_from_slice(self.persistent(handle, offset, bytes.len())?);
        Ok(())
    }

    fn poll_cq(&mut self) -> Option<Completion> {
        None
    }

    fn progress(&mut self) -> bool {
        false
    }

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn closed(&self) -> Option<&CloseReason> {
        None
    }

    fn close(&mut self) {}

    fn peer_addr(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    fn describe(&self) -> String {
        String::from("by hand")
    }
}
