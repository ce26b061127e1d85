//! One direction of a connection: an ordered stream of messages, each due at some time.

use crate::options::Cut;
use std::collections::VecDeque;
use std::time::Duration;
use verbs::{Handles, Loss, ProtocolError, Reason, RemoteAddress, Segment};

#[derive(Clone, Debug)]
pub(crate) enum Message {
    Send {
        bytes: Vec<u8>,
        invalidate: Option<Handles>,
    },
    Write {
        bytes: Vec<u8>,
        to: RemoteAddress,
    },
    ReadRequest(Segment),
    ReadResponse(Vec<u8>),
    /// The sender found that the receiver broke a rule, and ends the connection.
    Terminate {
        reason: Reason<ProtocolError>,
        /// The Read request, counted from 0, that it refused.
        refused: Option<u64>,
    },
    /// The sender is done, in good order.
    Fin,
    /// The connection went away.
    Reset(Loss),
}

impl Message {
    pub(crate) fn payload(&self) -> usize {
        match self {
            Self::Send { bytes, .. } | Self::Write { bytes, .. } | Self::ReadResponse(bytes) => {
                bytes.len()
            }
            Self::ReadRequest(_) | Self::Terminate { .. } | Self::Fin | Self::Reset(_) => 0,
        }
    }

    /// Part of it that has been placed after `bytes` bytes of payload.
    fn cut_to(self, bytes: u64) -> Option<Self> {
        match self {
            Self::Write {
                bytes: mut data,
                to,
            } => {
                data.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
                Some(Self::Write { bytes: data, to })
            }
            Self::Send { .. }
            | Self::ReadRequest(_)
            | Self::ReadResponse(_)
            | Self::Terminate { .. }
            | Self::Fin
            | Self::Reset(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Wire {
    queue: VecDeque<(Duration, Message)>,
    window: usize,
    in_flight: usize,
    last_due: Duration,
    messages: u64,
    bytes: u64,
    cut: Option<Cut>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing that is sent arrives any more.
    Cut,
    /// Nobody is there to take anything in.
    Deaf,
}

pub(crate) const CUT: Loss = Loss::PathCut;

impl Wire {
    pub(crate) fn new(window: usize, cut: Option<Cut>) -> Self {
        Self {
            queue: VecDeque::new(),
            window,
            in_flight: 0,
            last_due: Duration::ZERO,
            messages: 0,
            bytes: 0,
            cut,
            state: State::Open,
        }
    }

    /// Messages on their way.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether a message may be sent now.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < self.window
    }

    /// When the next message is there.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.queue.front().map(|(due, _)| *due)
    }

    /// Sends a message, due at `due` or behind what was sent before. Says whether this is where
    /// the path is cut, so that the caller tells the other direction.
    #[must_use]
    pub(crate) fn push(&mut self, due: Duration, message: Message) -> bool {
        if self.state != State::Open {
            return false;
        }
        let begin = self.bytes + Cut::MESSAGE_HEADER;
        let end = begin + message.payload() as u64;
        let whole = match self.cut {
            None => true,
            Some(Cut::Messages(most)) => self.messages < most,
            Some(Cut::Bytes(most)) => end <= most,
        };
        if whole {
            self.messages += 1;
            self.bytes = end;
            self.enqueue(due, message);
            return false;
        }
        if let Some(Cut::Bytes(most)) = self.cut
            && let Some(rest) = message.cut_to(most.saturating_sub(begin))
        {
            self.enqueue(due, rest);
        }
        self.sever(due);
        true
    }

    /// Cuts the path behind what is on its way.
    pub(crate) fn sever(&mut self, due: Duration) {
        if self.state == State::Open {
            self.enqueue(due, Message::Reset(CUT));
            self.state = State::Cut;
        }
    }

    /// Nobody takes in anything any more.
    pub(crate) fn deafen(&mut self) {
        self.queue.clear();
        self.in_flight = 0;
        self.state = State::Deaf;
    }

    /// The next message, if it is there.
    pub(crate) fn peek(&self, now: Duration) -> Option<&Message> {
        let (due, message) = self.queue.front()?;
        (*due <= now).then_some(message)
    }

    pub(crate) fn pop(&mut self, now: Duration) -> Option<Message> {
        let (_, message) = self.queue.pop_front_if(|(due, _)| *due <= now)?;
        self.in_flight -= message.payload();
        Some(message)
    }

    fn enqueue(&mut self, due: Duration, message: Message) {
        self.last_due = self.last_due.max(due);
        self.in_flight += message.payload();
        self.queue.push_back((self.last_due, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_that_is_cut_arrives_up_to_the_cut() {
        let mut wire = Wire::new(usize::MAX, Some(Cut::Bytes(Cut::MESSAGE_HEADER + 3)));
        let write = Message::Write {
            bytes: b"abcdef".to_vec(),
            to: RemoteAddress {
                handle: verbs::Handle(1),
                offset: 0,
            },
        };
        assert!(wire.push(Duration::ZERO, write));
        match wire.pop(Duration::ZERO) {
            Some(Message::Write { bytes, .. }) => assert_eq!(bytes, b"abc"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            wire.pop(Duration::ZERO),
            Some(Message::Reset(CUT))
        ));
        assert!(!wire.push(Duration::ZERO, Message::Fin));
        assert!(wire.pop(Duration::ZERO).is_none());
    }
}
