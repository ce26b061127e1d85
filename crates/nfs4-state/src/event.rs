//! Events that an administrator may want to hear of.

use nfs_proto::v4::ClientId;
use std::collections::VecDeque;
use std::sync::Arc;

/// Events that are kept until they are polled. When there are more, the oldest is lost.
const MAX_EVENTS: usize = 256;

/// An event that an administrator may want to hear of. Nothing has to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time for reclaims is over.
    GraceEnded {
        /// The reason.
        why: GraceEnd,
        /// Clients that had not reclaimed all they had.
        lost: usize,
    },
    /// The state of a client is ending that had some, and did not give it back itself.
    ClientEnded {
        /// The client.
        client: ClientId,
        /// Its name.
        owner: Arc<[u8]>,
        /// The reason.
        why: ClientEnd,
        /// Opens.
        opens: usize,
        /// Locks of byte ranges.
        locks: usize,
    },
    /// A client was refused something, as there is as much as there may be, of all or of its address.
    LimitReached(Limit),
}

/// Reason for the end of the time for reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraceEnd {
    /// All clients have said that they are done.
    Complete,
    /// The time is up.
    TimeUp,
    /// The administrator has ended it.
    Administrator,
}

/// Reason for the end of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEnd {
    /// Its lease ran out, and others want what it has.
    InTheWay,
    /// Its lease ran out, and there is no room for what others want.
    NoRoom,
    /// Its lease ran out, and so did the time for which state stays after that.
    Expired,
    /// Its lease ran out, and another principal has come under its name.
    Replaced,
    /// The administrator has ended it.
    Administrator,
}

/// A limit on what clients have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Client ids.
    Clients,
    /// Sessions.
    Sessions,
    /// Opens.
    Opens,
    /// Locks, or owners of locks.
    Locks,
}

/// Events that were not polled yet.
#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<Event>);

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        // A limit that is reached again and again is one event until somebody hears of it.
        if self.0.back() == Some(&event) {
            return;
        }
        if self.0.len() == MAX_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_nobody_polls_take_bounded_memory() {
        let mut events = Events::default();
        for lost in 0..2 * MAX_EVENTS {
            let why = GraceEnd::TimeUp;
            events.push(Event::GraceEnded { why, lost });
            events.push(Event::LimitReached(Limit::Opens));
            events.push(Event::LimitReached(Limit::Opens));
        }
        let all: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(all.len(), MAX_EVENTS);
        let last = [all[MAX_EVENTS - 2].clone(), all[MAX_EVENTS - 1].clone()];
        let why = GraceEnd::TimeUp;
        let lost = 2 * MAX_EVENTS - 1;
        assert_eq!(
            last,
            [
                Event::GraceEnded { why, lost },
                Event::LimitReached(Limit::Opens)
            ]
        );
    }
}
