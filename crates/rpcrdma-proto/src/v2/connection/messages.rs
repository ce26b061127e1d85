//! Messages of the peer on their way to a role or to the session, and control messages of this end.

use super::{Connection, Oversized, Phase, unused_xid};
use crate::codec::{Body, Control, Header, Invalid, PeerError, Rejection};
use crate::event::Violation;
use crate::limits::FIRST_MESSAGE;
use crate::owner::Owner;
use crate::role::Role;
use crate::v2::codec::{error_of, malformed};
use crate::v2::header::{RdmaError, emit_error, emit_optional};
use crate::v2::session::{Message, Opening, Session};
use crate::v2::versions::DEFAULT_INLINE;
use crate::version::{Version, version_of};
use crate::wire::direction::{Direction, REPLY, prefix};
use crate::work::Purpose;
use buffer::{Buffer, Gather};
use tracing::debug;
use verbs::{Invalidated, WorkRequest};

impl<O: Owner> Connection<O> {
    /// Handles a message, with the handle that the peer invalidated.
    pub(super) fn handle_message(&mut self, message: Buffer, invalidated: Option<Invalidated>) {
        self.core.shared.counters.inline_bytes_received += message.len() as u64;
        let limit = self.largest_expected(&message);
        if message.len() > limit {
            self.core.shared.counters.oversized += 1;
            let bytes = message.len();
            self.oversized.get_or_insert(Oversized { bytes, limit });
        }
        match self.phase {
            Phase::Settled => self.handle_settled(message, invalidated),
            Phase::Listening => {
                let header = self.listen(&message);
                self.route(header, message, invalidated);
            }
            Phase::Offered { xid } => {
                self.core.shared.flow.handle_message();
                if self.take_answer(xid, &message) {
                    let header = self.core.shared.agreed.codec.parse(&message);
                    self.route(header, message, invalidated);
                } else {
                    self.core.shared.refuse_invalidation(invalidated);
                }
            }
        }
        if let Some(session) = self.session.as_deref_mut() {
            session.handle_heard();
        }
        self.core.replace_receive();
        self.note_receives();
    }

    /// Handles a message once the version is settled. Nearly every small one is plain, and in version one nobody else has to see
    /// it than its role.
    fn handle_settled(&mut self, message: Buffer, invalidated: Option<Invalidated>) {
        let for_role = self.session.is_none() && self.exchange.is_none();
        let message = match invalidated {
            None if for_role => match self.core.receive_plain(message) {
                Ok(()) => return,
                Err(message) => message,
            },
            _ => message,
        };
        let header = self.core.receive(&message);
        self.route(header, message, invalidated);
    }

    /// Returns the bytes of the largest message that the peer may send now.
    fn largest_expected(&self, message: &[u8]) -> usize {
        if let (Phase::Settled, Some(exchange)) = (self.phase, self.exchange.as_deref()) {
            return exchange.receive_size();
        }
        match (self.phase, self.session.as_deref()) {
            // cel-01 §5: whatever the server announced, the first message may be for one of version
            // one without private data.
            (Phase::Listening, _) if version_of(message) == Some(Version::Two.number()) => {
                FIRST_MESSAGE
            }
            (Phase::Settled, Some(session)) => session.announced_receive_size(),
            (Phase::Offered { .. }, _) => self.announced.max(DEFAULT_INLINE.bytes()),
            (Phase::Listening, _) | (Phase::Settled, None) => self.announced,
        }
    }

    /// Passes a message to a role, or to the session if it is for no role.
    fn route(
        &mut self,
        header: Result<Header, Invalid>,
        message: Buffer,
        invalidated: Option<Invalidated>,
    ) {
        if self.exchange.is_some() && self.phase == Phase::Settled {
            return self.route_ietf07(header, message, invalidated);
        }
        if self.session.is_none() {
            if let Some((low, high)) = self.assumption_refuted(&header) {
                self.core.shared.refuse_invalidation(invalidated);
                let violation = Violation::NoCommonVersion { low, high };
                return self.core.shared.fail(violation);
            }
            return self.core.route(header, message, invalidated);
        }
        match &header {
            Ok(Header {
                xid,
                credits,
                stream,
                body: Body::Control(control),
            }) => {
                self.core.shared.refuse_invalidation(invalidated);
                self.take_control(*xid, *credits, control, &message[*stream..]);
            }
            Ok(Header {
                xid,
                body: Body::Error(error),
                ..
            }) => {
                if self.take_control_error(*xid, *error) {
                    return self.core.shared.refuse_invalidation(invalidated);
                }
                self.core.route(header, message, invalidated);
                // It may have been the last that the session waits for.
                self.note_message(Direction::Reply, false);
            }
            Ok(Header {
                xid,
                credits,
                stream,
                body: Body::Rpc(rpc),
            }) => {
                let said = prefix(&message[*stream..]);
                let (xid, credits) = (*xid, *credits);
                // cel-01 §4.2.2: the word is the same as in the RPC message.
                if rpc.direction == Some(Direction::Call)
                    && !rpc.long
                    && matches!(said, Some((_, REPLY)))
                {
                    debug!(xid, "a reply that says it is a call (cel-01 §4.2.2)");
                    let invalid = malformed(xid, credits, Rejection::Header, true);
                    return self.core.route(Err(invalid), message, invalidated);
                }
                let chunks = !rpc.lists.is_empty();
                let direction = rpc.direction;
                self.core.route(header, message, invalidated);
                if let Some(direction) = direction {
                    self.note_message(direction, chunks);
                }
            }
            Err(Invalid::Reply { xid }) => {
                self.core.shared.refuse_invalidation(invalidated);
                self.take_unreadable_reply(*xid);
                self.core.route(header, message, None);
            }
            Ok(Header {
                body: Body::Done | Body::Part { .. } | Body::Properties { .. } | Body::Grant,
                ..
            })
            | Err(_) => self.core.route(header, message, invalidated),
        }
    }

    /// Passes a control message to the session, with the bytes behind its header.
    pub(super) fn take_control(&mut self, xid: u32, credits: u32, control: &Control, rest: &[u8]) {
        self.core.shared.counters.control_received += 1;
        let done = self.with_session(|session| {
            let before = session.opening();
            session.handle_optional(xid, control, rest);
            before != Opening::Done && session.opening() == Opening::Done
        });
        match control.direction {
            Direction::Call => self.control_asked = credits,
            // The answer to the offer is the first message that grants credits (cel-01 §5).
            Direction::Reply if done == Some(true) => {
                self.core.shared.flow.handle_grant(credits);
            }
            Direction::Reply => {}
        }
    }

    /// Passes an error to the session. Returns whether it was for a message of the session.
    pub(super) fn take_control_error(&mut self, xid: u32, error: PeerError) -> bool {
        if self.core.requester.awaits(xid) {
            return false;
        }
        let taken = self.with_session(|session| session.handle_error(xid, error_of(error.cause)));
        taken == Some(true)
    }

    /// Handles a malformed reply. If it was for a message of the session, that message has ended.
    pub(super) fn take_unreadable_reply(&mut self, xid: u32) {
        if !self.core.requester.awaits(xid) {
            self.with_session(|session| session.handle_unreadable_reply(xid));
        }
    }

    /// Tells the session of a valid RPC message.
    fn note_message(&mut self, direction: Direction, chunks: bool) {
        let Some(session) = self.session.as_deref_mut() else {
            return;
        };
        let cautious = session.opening() == Opening::Cautious;
        match (self.core.role(), direction) {
            // A server is never cautious.
            (Role::Server, Direction::Call) => {}
            // Nothing that a client has agreed on depends on it.
            (Role::Client, Direction::Call) => session.handle_backward_call(chunks),
            (_, Direction::Reply) => {
                // A reply that was not valid proves nothing.
                if cautious && self.core.shared.counters.replies_received > 0 {
                    self.with_session(Session::handle_message);
                } else if session.awaits_calls() {
                    self.agree();
                }
            }
        }
    }

    /// Tells the session of the smallest posted Receive.
    fn note_receives(&mut self) {
        if self
            .session
            .as_deref()
            .is_some_and(Session::awaits_receives)
        {
            let smallest = self.core.shared.flow.smallest_receive();
            self.with_session(|session| session.handle_old_receives_gone(smallest));
        }
    }

    /// Returns the next control message. It waits until nothing else is to be sent: so there are
    /// never many, and no earlier call exceeds the announced size.
    pub(super) fn poll_control(&mut self) -> Option<WorkRequest> {
        let waits = !self.core.shared.posts.has_room() || self.core.requester.has_recalled();
        if self.phase == Phase::Listening || waits {
            return None;
        }
        let session = self.session.as_deref_mut()?;
        let message = session.poll_message(&mut || unused_xid(&self.xids, &self.core.requester))?;
        Some(self.control(message))
    }

    /// Makes the Send of a control message.
    pub(super) fn control(&mut self, message: Message) -> WorkRequest {
        let shared = &mut self.core.shared;
        let mut buffer = shared.pool.take(FIRST_MESSAGE);
        let grant = shared.flow.offer(self.control_asked);
        match message {
            Message::Optional { xid, optional } => {
                let credits = match optional.direction {
                    Direction::Call => shared.flow.asked(),
                    Direction::Reply => grant,
                };
                if let Phase::Offered { xid: offer } = &mut self.phase {
                    *offer = xid;
                }
                let Control {
                    direction,
                    operation,
                    info,
                } = optional;
                emit_optional(&mut buffer, xid, credits, direction, operation, &info);
                shared.counters.control_sent += 1;
            }
            Message::Error { xid, error } => {
                match error {
                    RdmaError::InvalOption => shared.counters.option_errors_sent += 1,
                    RdmaError::BadHeader => shared.counters.chunk_errors_sent += 1,
                    RdmaError::Version { .. } => shared.counters.version_errors_sent += 1,
                }
                emit_error(&mut buffer, xid, Version::Two.number(), grant, error);
            }
        }
        // What is agreed on may hold from this message on.
        self.agree();
        let posts = &mut self.core.shared.posts;
        posts.push(WorkRequest::Send {
            wr: Purpose::Control.wr(),
            buffer,
            rest: Gather::new(),
            invalidate: None,
        });
        posts.next().expect("there is room, and nothing before it")
    }
}
