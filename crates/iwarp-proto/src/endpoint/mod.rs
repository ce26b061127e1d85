//! One end of an established connection: takes work requests, yields completions, moves octets.
//!
//! The endpoint acts only when called: [`Endpoint::post`] and [`Endpoint::register`] queue work,
//! [`Endpoint::send_with`] and [`Endpoint::recv_with`] move octets through a closure that
//! represents the socket, and [`Endpoint::poll_cq`] returns completions.

mod admit;
mod counters;
mod ending;
mod message;
mod phase;
mod places;
mod reads;
mod rx;
#[cfg(test)]
mod tests;
mod tx;
mod window;

pub use counters::Counters;
pub use rx::FPDUS_PER_TURN;

use crate::fpdu;
use crate::mpa::RtrMessage;
use crate::stag::SlotId;
use buffer::Pool;
use message::Message;
use phase::Phase;
use places::{Places, Receive};
use reads::ReadOp;
use rx::Rx;
use std::collections::VecDeque;
use tx::Tx;
use verbs::{
    CloseReason, Completion, Handle, Handles, Invalidated, Memory, NotPersistent, PostError,
    RegisterError, SharedReceiveQueue, WorkError, WorkRequest, WrId,
};

/// Largest number of regions registered at a time on one connection.
pub const MAX_REGIONS: usize = 2048;

/// Octets of the largest region, or of the largest part of one.
pub const MAX_REGION: usize = 1 << 30;

/// Largest number of STags that one Send can invalidate, where both ends have the extension for it.
pub const MAX_INVALIDATIONS: usize = 16;

/// Largest number of parts of a region: more than the chunks of any RPC call.
pub const MAX_PARTS: usize = 64;

/// Octets of the largest message, Write or Read.
pub const MAX_MESSAGE: u32 = 1 << 30;

/// Largest number of work requests, Receives not counted, posted at a time.
pub const MAX_SENDS: usize = 4096;

/// Role of this end in connection setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that sent the MPA Request, and may send first.
    Initiator,
    /// The end that sent the MPA Reply, and sends nothing before it has received from the initiator
    /// (RFC 5044 §7.1.2 rule 4).
    Responder,
}

/// Configuration of an endpoint: what was negotiated, and local limits.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Role of this end.
    pub role: Role,
    /// Whether CRCs are sent and checked.
    pub crc: bool,
    /// Whether every FPDU is verified before any of it is placed.
    pub strict: bool,
    /// Whether the peer's receiver requires markers.
    pub markers: bool,
    /// Read Requests of the peer to serve at a time.
    pub ird: u16,
    /// Read Requests to have outstanding.
    pub ord: u16,
    /// Receives that may be posted at a time, or blocks of the shared receive queue that messages
    /// of the peer may hold at a time.
    pub receives: usize,
    /// Shared receive queue to use instead of posted Receives.
    pub shared_receives: Option<SharedReceiveQueue>,
    /// Pool of memory, which is held only while there is something to receive or to send.
    pub pool: Pool,
    /// Octets of the largest ULPDU to send; clamped to what RFC 5044 §3 allows.
    pub max_ulpdu: usize,
    /// RTR message to send first, as initiator (RFC 6581 §9.2).
    pub rtr: Option<RtrMessage>,
    /// STags that one Send can invalidate, of this end and of the peer, at most [`MAX_INVALIDATIONS`].
    /// With more than 1 both ends have the extension of [`Opcode::Invalidate`](crate::rdmap::Opcode).
    pub invalidations: usize,
    /// Random seed of the STags, used for this connection only.
    pub seed: [u8; 32],
}

/// One end of an established connection.
pub struct Endpoint {
    config: EndpointConfig,
    phase: Phase,
    places: Places,
    rx: Rx,
    tx: Tx,
    cq: VecDeque<Completion>,
    /// Work other than Receives that is posted and has not completed.
    outstanding: usize,
    /// An FPDU of the peer has been found valid.
    heard: bool,
    counters: Counters,
}

impl Endpoint {
    /// Creates an endpoint that has not sent or received anything.
    pub fn new(config: EndpointConfig) -> Self {
        let max_ulpdu = config.max_ulpdu.clamp(fpdu::MIN_MULPDU, fpdu::MAX_MULPDU);
        // RFC 6581 §9.1: the responder has a place for the zero-length Read, whatever our ORD is.
        let ord = match config.rtr {
            Some(RtrMessage::Read) => config.ord.max(1),
            Some(RtrMessage::Write) | None => config.ord,
        };
        let queue = config.shared_receives.as_ref();
        let share = queue.map(|queue| queue.attach(config.receives));
        let invalidations = config.invalidations.min(MAX_INVALIDATIONS);
        let mut endpoint = Self {
            phase: Phase::Open,
            places: Places::new(config.seed, ord, share, invalidations),
            rx: Rx::new(config.crc, config.strict, config.pool.clone()),
            tx: Tx::new(config.crc, config.markers, max_ulpdu, config.pool.clone()),
            cq: VecDeque::new(),
            outstanding: 0,
            heard: false,
            counters: Counters::default(),
            config,
        };
        match endpoint.config.rtr {
            None => {}
            Some(RtrMessage::Write) => endpoint.tx.push(Message::empty_write()),
            Some(RtrMessage::Read) => {
                endpoint.places.reads.push(ReadOp::empty());
                endpoint.request_reads();
            }
        }
        endpoint
    }

    /// The configuration of the endpoint.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// The I/O counters of the endpoint.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the next completion.
    pub fn poll_cq(&mut self) -> Option<Completion> {
        self.cq.pop_front()
    }

    /// Looks at the next completion.
    pub fn peek_cq(&self) -> Option<&Completion> {
        self.cq.front()
    }

    /// Whether a completion is waiting.
    pub fn has_completions(&self) -> bool {
        !self.cq.is_empty()
    }

    /// Queues work.
    ///
    /// # Errors
    ///
    /// Returns the work if the queue is full or the connection can never do it. Once the connection
    /// ends, work is accepted and completes as flushed.
    #[allow(clippy::result_large_err)] // The work itself goes back: that is what it is for.
    pub fn post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        if let WorkRequest::Receive { wr, buffer } = work {
            return match self.places.share {
                // As hardware has it: who takes from a shared queue has none of its own.
                Some(_) => Err(PostError::Invalid(WorkRequest::Receive { wr, buffer })),
                None => self.post_receive(wr, buffer),
            };
        }
        if self.outstanding >= MAX_SENDS {
            return Err(PostError::Full(work));
        }
        if !self.is_possible(&work) {
            return Err(PostError::Invalid(work));
        }
        self.outstanding += 1;
        if !matches!(self.phase, Phase::Open) {
            self.fail(work.wr(), WorkError::Flushed);
            return Ok(());
        }
        match work {
            WorkRequest::Receive { .. } => unreachable!("taken above"),
            WorkRequest::Send {
                wr,
                buffer,
                rest,
                invalidate,
            } => {
                let first = invalidate.map(|handles| {
                    for &handle in handles.more() {
                        self.tx.push(Message::invalidate(handle));
                    }
                    handles.first()
                });
                self.tx.push(Message::send(wr, buffer, rest, first));
            }
            WorkRequest::Write { wr, source, to } => {
                self.tx.push(Message::write(wr, source, to));
            }
            WorkRequest::Read { wr, sink, from } => {
                self.places.reads.push(ReadOp::new(wr, sink, from));
                self.request_reads();
                self.complete_reads();
            }
            WorkRequest::Invalidate { wr, handle } => self.invalidate(wr, handle),
        }
        Ok(())
    }

    #[allow(clippy::result_large_err)] // As above.
    fn post_receive(&mut self, wr: WrId, buffer: buffer::Buffer) -> Result<(), PostError> {
        if !matches!(self.phase, Phase::Open) {
            self.cq.push_back(Completion::Failed {
                wr,
                error: WorkError::Flushed,
            });
            return Ok(());
        }
        if self.places.receives.len() >= self.config.receives {
            return Err(PostError::Full(WorkRequest::Receive { wr, buffer }));
        }
        self.places.receives.push_back(Receive { wr, buffer });
        Ok(())
    }

    fn is_possible(&self, work: &WorkRequest) -> bool {
        let fits = |len: u64| len <= u64::from(MAX_MESSAGE);
        match work {
            WorkRequest::Receive { .. } | WorkRequest::Invalidate { .. } => true,
            WorkRequest::Send {
                buffer,
                rest,
                invalidate,
                ..
            } => {
                let handles = invalidate.as_ref().map_or(0, Handles::count);
                fits((buffer.len() + buffer::gather_len(rest)) as u64)
                    && handles <= self.config.invalidations.min(MAX_INVALIDATIONS)
            }
            // Where it goes is for the peer to judge.
            WorkRequest::Write { source, .. } => fits(buffer::gather_len(source) as u64),
            WorkRequest::Read { sink, from, .. } => {
                let len = from.iter().map(|segment| u64::from(segment.length)).sum();
                self.config.ord > 0 && fits(len) && len <= sink.capacity() as u64
            }
        }
    }

    /// Registers memory for the peer, at offset 0.
    ///
    /// # Errors
    ///
    /// Returns the memory if the table is full or the connection has ended.
    #[allow(clippy::result_large_err)] // As above.
    pub fn register(&mut self, memory: Memory) -> Result<Handle, RegisterError> {
        if !matches!(self.phase, Phase::Open) {
            Err(RegisterError::Closed(memory))
        } else if !is_registrable(&memory) {
            Err(RegisterError::Size(memory))
        } else if self.places.table.regions() >= MAX_REGIONS {
            Err(RegisterError::Full(memory))
        } else {
            Ok(self.places.table.register(memory))
        }
    }

    /// Returns a range of this end's persistent memory.
    ///
    /// # Errors
    ///
    /// If the handle does not name persistent memory, or the range is outside of it.
    pub fn persistent(
        &mut self,
        handle: Handle,
        offset: usize,
        length: usize,
    ) -> Result<&mut [u8], NotPersistent> {
        let slot = self.places.region(handle.0);
        let memory = slot.and_then(|slot| self.places.table.persistent_mut(slot));
        let end = offset.checked_add(length);
        let range = end.and_then(|end| memory?.get_mut(offset..end));
        range.ok_or(NotPersistent(handle))
    }

    /// The STag dies at once; the memory comes back when no segment is being placed in it and no
    /// response is being sent from it (RFC 5042 §6.2.2).
    fn invalidate(&mut self, wr: WrId, handle: Handle) {
        let Some(slot) = self.places.region(handle.0) else {
            // The peer may have been first, and its Send may never come.
            if let Some(invalidated) = self.places.take_ahead(handle) {
                self.complete(Completion::Invalidate { wr, invalidated });
                return;
            }
            // A fault of our own user: it does not know what the peer can reach.
            self.fail(wr, WorkError::NoSuchHandle);
            self.catastrophe();
            return;
        };
        if let Some(memory) = self.places.table.retire(slot, wr) {
            self.complete(Completion::Invalidate {
                wr,
                invalidated: Invalidated::new(handle, memory),
            });
        }
    }

    /// Notes that a use of a region has ended, which an Invalidate may have waited for.
    fn unhold(&mut self, slot: SlotId) {
        if let Some((wr, memory)) = self.places.table.unhold(slot) {
            let handle = slot.handle();
            self.complete(Completion::Invalidate {
                wr,
                invalidated: Invalidated::new(handle, memory),
            });
        }
    }

    /// Sends as many Read Requests as the peer serves at a time.
    fn request_reads(&mut self) {
        let Places { reads, table, .. } = &mut self.places;
        while let Some(request) = reads.next_request(table) {
            self.tx.push(Message::read_request(request));
        }
    }

    /// Completes the Reads at the head of the queue that are whole.
    fn complete_reads(&mut self) {
        let Places { reads, table, .. } = &mut self.places;
        let mut done = false;
        while let Some((wr, sink)) = reads.pop_done(table) {
            if let Some(wr) = wr {
                self.cq.push_back(Completion::Read { wr, sink });
                self.outstanding -= 1;
            }
            done = true;
        }
        if done {
            self.request_reads();
        }
    }

    /// Adds the completion of work other than a Receive.
    #[inline]
    fn complete(&mut self, completion: Completion) {
        self.outstanding -= 1;
        self.cq.push_back(completion);
    }

    /// Fails work other than a Receive.
    fn fail(&mut self, wr: WrId, error: WorkError) {
        self.complete(Completion::Failed { wr, error });
    }

    /// Returns the close reason, once the connection has ended.
    pub fn closed(&self) -> Option<&CloseReason> {
        match &self.phase {
            Phase::Closed(reason) => Some(reason),
            Phase::Open | Phase::Ending { .. } => None,
        }
    }

    /// Whether the initiator has sent something and received nothing yet.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.phase, Phase::Open)
            && self.config.role == Role::Initiator
            && !self.heard
            && self.counters.bytes_out > 0
    }

    /// Queues a zero-length RDMA Write. It is valid and has no effect (RFC 5041 §7.1 has no check
    /// for it), but gives more octets to a peer that overlooked the first ones.
    pub fn nudge(&mut self) {
        if matches!(self.phase, Phase::Open) {
            self.tx.push(Message::empty_write());
        }
    }

    /// Returns memory without data to the pool. For when there is nothing more to receive or send
    /// for now.
    pub fn release(&mut self) {
        self.rx.release();
        self.tx.release();
    }

    /// Shrinks internal queues. For a connection that has been idle for a while.
    pub fn trim(&mut self) {
        self.release();
        self.tx.trim();
        self.places.trim();
        if self.cq.is_empty() {
            self.cq = VecDeque::new();
        }
    }
}

/// Whether memory has a size, and a number of parts, that can be registered.
fn is_registrable(memory: &Memory) -> bool {
    match memory {
        Memory::Parts(parts) => parts.are_registrable(MAX_PARTS, MAX_REGION),
        Memory::Source(_) | Memory::Sink(_) | Memory::Persistent(..) => {
            (1..=MAX_REGION).contains(&memory.len())
        }
    }
}
