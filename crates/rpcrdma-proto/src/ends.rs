//! What a connection has to say to its owner, calls of the peer apart from the ends of our own.

use crate::link::Event;
use crate::owner::Owner;
use crate::{CallId, Connection};
use oncrpc::TransportError;
use oncrpc::xdr::Payload;

impl<O: Owner> Connection<O> {
    /// Whether a call of ours has ended that was not told yet.
    pub fn has_replies(&self) -> bool {
        let mut events = self.link.events.iter();
        events.any(|event| matches!(event, Event::Reply { .. }))
    }

    /// The next call of ours that has ended.
    pub fn poll_reply(&mut self) -> Option<(O::Call, Result<Payload, TransportError>)> {
        let events = &mut self.link.events;
        let at = events
            .iter()
            .position(|event| matches!(event, Event::Reply { .. }))?;
        match events.remove(at)? {
            Event::Reply { call, reply } => Some((call, reply)),
            Event::Call { .. } => None,
        }
    }

    /// The next call of the peer, whole again.
    pub fn poll_call(&mut self) -> Option<(CallId<O::Lease>, Payload)> {
        let events = &mut self.link.events;
        let at = events
            .iter()
            .position(|event| matches!(event, Event::Call { .. }))?;
        match events.remove(at)? {
            Event::Call { id, message } => Some((id, message)),
            Event::Reply { .. } => None,
        }
    }
}
