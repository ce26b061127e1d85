//! Sending: messages are segmented into FPDUs and passed to the socket, a window at a time.

use super::counters::Counters;
use super::message::{End, Message};
use super::phase::Phase;
use super::window::Window;
use super::{Endpoint, Role};
use crate::ddp;
use crate::fpdu;
use crate::markers::Markers;
use buffer::Pool;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use verbs::{Completion, WrId};

/// Octets to frame at a time. Payload that was just read for the CRC, or written by the user, is
/// then still in the CPU cache when the kernel copies it; with twice as much, READs of 1 MiB are a
/// quarter slower.
const WINDOW: usize = 512 << 10;

/// Outgoing messages, and the window of framed FPDUs.
pub(super) struct Tx {
    queue: VecDeque<Message>,
    window: Window,
    crc: bool,
    markers: Option<Markers>,
    max_ulpdu: usize,
    /// MSN of the current or next message, per queue.
    pub(super) sequences: [u32; 3],
}

impl Tx {
    pub(super) fn new(crc: bool, markers: bool, max_ulpdu: usize, pool: Pool) -> Self {
        Self {
            queue: VecDeque::new(),
            window: Window::new(pool),
            crc,
            markers: markers.then(Markers::new),
            max_ulpdu,
            sequences: [1; 3],
        }
    }

    #[inline]
    pub(super) fn push(&mut self, message: Message) {
        self.queue.push_back(message);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.window.is_empty() && self.queue.is_empty()
    }

    /// Frames messages until the window is full or nothing waits.
    fn fill(&mut self, counters: &mut Counters) {
        // Those that are framed are dropped at the end, where they are.
        let mut framed = 0;
        while self.window.len() < WINDOW && self.window.has_room() {
            let Some(message) = self.queue.get_mut(framed) else {
                break;
            };
            let header_len = if message.is_tagged() {
                ddp::TAGGED_LEN
            } else {
                ddp::UNTAGGED_LEN
            };
            let segment = fpdu::segment_len(message.len(), self.max_ulpdu - header_len);
            let len = segment.min(message.left());
            let queue = message.queue().map(|queue| queue as usize);
            let sequence = queue.map_or(0, |queue| self.sequences[queue]);
            let (header, body) = message.cut(len, sequence);
            match &mut self.markers {
                None => self.window.frame(header, body, len, self.crc, counters),
                Some(markers) => self
                    .window
                    .frame_marked(markers, header, body, len, self.crc, counters),
            }
            if message.left() > 0 {
                continue;
            }
            self.window.owe(message.end);
            if let Some(queue) = queue {
                self.sequences[queue] = self.sequences[queue].wrapping_add(1);
            }
            framed += 1;
        }
        match framed == self.queue.len() {
            true => self.queue.clear(),
            false => drop(self.queue.drain(..framed)),
        }
    }

    /// Drops Read Requests that are not sent yet.
    pub(super) fn drop_read_requests(&mut self) {
        self.queue.retain(|message| !message.is_read_request());
    }

    /// Drops messages that are not framed yet; returns the work without a completion.
    ///
    /// Framed FPDUs are still sent: a partial one would make the next one unreadable.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = WrId> + '_ {
        let queued = self.queue.drain(..).map(|message| message.end);
        self.window
            .drain_ends()
            .chain(queued)
            .filter_map(|end| match end {
                End::Send(wr) | End::Write(wr) => Some(wr),
                End::ReadResponse(_) | End::Nothing => None,
            })
    }

    pub(super) fn release(&mut self) {
        self.window.release();
    }

    pub(super) fn trim(&mut self) {
        self.window.trim();
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }
}

impl Endpoint {
    /// Whether [`send_with`](Self::send_with) has octets to send.
    pub fn has_output(&self) -> bool {
        let open = match self.phase {
            Phase::Open | Phase::Ending { .. } => true,
            Phase::Closed(_) => false,
        };
        // RFC 5044 §7.1.2 rule 4: a responder listens before it talks.
        let may_talk = self.heard || self.config.role == Role::Initiator;
        open && may_talk && !self.tx.is_empty()
    }

    /// Calls `io` once with the slices that are ready, in order. `io` returns how many octets it
    /// sent.
    ///
    /// CRCs are computed here, right before the octets are sent.
    ///
    /// # Errors
    ///
    /// Those of `io`. Nothing is lost if it would block.
    pub fn send_with(
        &mut self,
        io: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !self.has_output() {
            return Ok(0);
        }
        if self.tx.window.is_empty() {
            self.tx.fill(&mut self.counters);
        }
        let written = self.tx.window.write(io)?;
        self.counters.writes += 1;
        self.counters.bytes_out += written as u64;
        while let Some(end) = self.tx.window.pop_end() {
            match end {
                End::Nothing => {}
                End::Send(wr) => self.complete(Completion::Send { wr }),
                End::Write(wr) => self.complete(Completion::Write { wr }),
                End::ReadResponse(slot) => {
                    self.places.serving -= 1;
                    if let Some(slot) = slot {
                        self.unhold(slot);
                    }
                }
            }
        }
        Ok(written)
    }
}
