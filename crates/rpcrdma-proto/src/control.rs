//! What the session of a connection means for its two roles, and the messages of the session.

use crate::connection::{Connection, Role};
use crate::direction::Direction;
use crate::invalidation::{Accepts, Design, Rule};
use crate::layout::Layout;
use crate::limits::FIRST_MESSAGE;
use crate::link::Violation;
use crate::negotiation::Phase;
use crate::owner::Owner;
use crate::plan::Chunks;
use crate::v2::characteristics::{BackwardRequestSupport, BackwardSupport, ReceiveSize, XcharVal};
use crate::v2::header::{self as two, Optional, WordLayout};
use crate::v2::operations::{InitXch, Operation};
use crate::v2::session::{Event, Message, Opening, RaiseError, RequestError, Session, TellError};
use crate::version::Version;
use crate::work::Purpose;
use buffer::Gather;
use verbs::WorkRequest;

impl<O: Owner> Connection<O> {
    /// What both ends have said about themselves, unless version one is spoken.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// Asks the peer to change its characteristics to these values (xcharext §4.2). Each has its end
    /// with an event, or with the connection.
    ///
    /// # Errors
    ///
    /// If one cannot be asked for, or there are no characteristics; then none is.
    pub fn request_peer(&mut self, want: Vec<XcharVal>) -> Result<(), RequestError> {
        let none = Err(RequestError::PeerTakesNone);
        self.change(none, |session| session.request_peer(want))
    }

    /// Makes Receives that are posted from now on larger. The peer is told when no smaller one is
    /// left, for which there have to be messages that use them up.
    ///
    /// # Errors
    ///
    /// If the peer could not be told, or the size is more than the largest, less than now, or the
    /// peer has asked for less.
    pub fn raise_receive_size(&mut self, to: ReceiveSize) -> Result<(), RaiseError> {
        let none = Err(RaiseError::Unsupported);
        self.change(none, |session| session.raise_receive_size(to))
    }

    /// Tells the peer another value of a registered characteristic.
    ///
    /// # Errors
    ///
    /// If it cannot have that value, or the peer cannot be told.
    pub fn tell_peer(&mut self, value: XcharVal) -> Result<(), TellError> {
        let none = Err(TellError::Unsupported);
        self.change(none, |session| session.tell(value))
    }

    /// Ends the request of the peer for a registered characteristic, with the value that it has now.
    ///
    /// # Errors
    ///
    /// If nothing was asked for, or it cannot have that value.
    pub fn settle_request(&mut self, value: XcharVal) -> Result<(), TellError> {
        let none = Err(TellError::Unsupported);
        self.change(none, |session| session.settle(value))
    }

    /// The next thing to tell our user about characteristics.
    pub fn poll_characteristics(&mut self) -> Option<Event> {
        self.session.as_deref_mut()?.poll_event()
    }

    fn change<T>(&mut self, none: T, change: impl FnOnce(&mut Session) -> T) -> T {
        match self.session.as_deref_mut() {
            Some(session) => {
                let done = change(session);
                self.apply_session();
                done
            }
            None => none,
        }
    }

    /// The one message that a client sends before it knows what is spoken (cel-01 §5).
    pub(crate) fn offer(&mut self) {
        self.phase = Phase::Offered { xid: 0 };
        self.requester.set_settled(false);
        let posted = match self.poll_control() {
            Some(offer) => offer,
            // It supports no operation, and so says nothing by this one.
            None => self.control(Message::Optional {
                xid: self.xids.next(),
                optional: Operation::InitXch(InitXch::default()).to_optional(Direction::Call),
            }),
        };
        self.link.posts.put_back(posted);
    }

    /// Whether the session of a client awaits the answer to what it said first.
    pub(crate) fn is_exchanging(&self) -> bool {
        let session = self.session.as_deref();
        session.is_some_and(|session| session.opening() == Opening::Exchanging)
    }

    /// Version two is spoken from now on.
    pub(crate) fn begin_session(&mut self) {
        let Some(session) = self.session.as_deref_mut() else {
            unreachable!("where version two may be spoken there is a session");
        };
        let backward = session.own::<BackwardRequestSupport>();
        if self.role == Role::Client && backward == BackwardSupport::General {
            self.responder.set_chunks(Chunks::Allowed);
        }
        if self.raise_to.octets() > session.receive_size() {
            // If the peer could not be told, it stays as it is.
            let _ = session.raise_receive_size(self.raise_to.into());
        }
        self.apply_session();
    }

    /// Puts into effect what the session says, where version two is spoken.
    pub(crate) fn apply_session(&mut self) {
        let Some(session) = self.session.as_deref_mut() else {
            return;
        };
        if session.is_flooded() {
            self.link.fail(Violation::ControlFlood);
        }
        if session.is_unclear() {
            self.link.fail(Violation::UnclearDesign);
        }
        if matches!(self.phase, Phase::Offered { .. } | Phase::Listening) {
            return;
        }
        let link = &mut self.link;
        let before = (link.send_limit, link.reply_limit, link.layout);
        link.send_limit = session.send_limit();
        link.last_resort_limit = session.last_resort_limit();
        link.reply_limit = session.reply_limit();
        link.receive_size = session.receive_size();
        let design = session.design();
        link.layout = Layout::Two(WordLayout::of(design));
        let by_version = self.by_version;
        let all_may_go = link.own.remote_invalidation || by_version;
        link.accepts = Accepts::of(design, all_may_go);
        link.rule = match design {
            Some(design) => Rule::By(design),
            None if by_version => Rule::By(Design::PerVersion),
            None if link.own.remote_invalidation && session.peer_allows_invalidation() => {
                Rule::By(Design::PerConnection)
            }
            None => Rule::Never,
        };
        let chunks = match session.backward() {
            BackwardSupport::None => None,
            BackwardSupport::Inline => Some(Chunks::Refused),
            BackwardSupport::General => Some(Chunks::Allowed),
        };
        let mut changed = before != (link.send_limit, link.reply_limit, link.layout);
        if self.role == Role::Server {
            changed |= self.requester.set_chunks(chunks);
        }
        link.terms = link.terms.wrapping_add(u32::from(changed));
        if session.awaits_calls() {
            self.requester.mark();
            if self.requester.marked() == 0 {
                session.handle_calls_drained();
                link.receive_size = session.receive_size();
            }
        } else {
            self.requester.forget_mark();
        }
    }

    /// An RDMA2_OPTIONAL, with what is behind its header.
    pub(crate) fn take_optional(
        &mut self,
        xid: u32,
        credits: u32,
        optional: &Optional,
        rest: &[u8],
    ) {
        let Some(session) = self.session.as_deref_mut() else {
            unreachable!("version two is spoken with a session");
        };
        self.link.counters.control_received += 1;
        let opening = session.opening();
        session.handle_optional(xid, optional, rest);
        match optional.direction {
            Direction::Call => self.control_asked = credits,
            // The answer to the offer is the first message that grants credits (cel-01 §5).
            Direction::Reply if opening == Opening::Exchanging => {
                if session.opening() == Opening::Done {
                    self.requester.handle_grant(credits);
                }
            }
            Direction::Reply => {}
        }
        self.apply_session();
    }

    /// Whether an RDMA2_ERROR was for a message of the session.
    pub(crate) fn take_control_error(&mut self, xid: u32, error: two::RdmaError) -> bool {
        let Some(session) = self.session.as_deref_mut() else {
            return false;
        };
        let taken = !self.requester.awaits(xid) && session.handle_error(xid, error);
        if taken {
            self.apply_session();
        }
        taken
    }

    /// A reply came that cannot be read. If it was for a message of the session, that is over.
    pub(crate) fn take_unreadable_reply(&mut self, xid: u32) {
        if let Some(session) = self.session.as_deref_mut()
            && !self.requester.awaits(xid)
        {
            session.handle_unreadable_reply(xid);
            self.apply_session();
        }
    }

    /// A valid message with RPC in it came, and was looked at.
    pub(crate) fn note_message(&mut self, direction: Direction, chunks: bool) {
        let Some(session) = self.session.as_deref_mut() else {
            return;
        };
        match (self.role, direction) {
            (Role::Server, Direction::Call) => session.handle_message(),
            (Role::Client, Direction::Call) => session.handle_backward_call(chunks),
            (_, Direction::Reply) => {
                // A reply that was not valid proves nothing.
                if session.opening() == Opening::Cautious && self.link.counters.replies_received > 0
                {
                    session.handle_message();
                    self.apply_session();
                } else if session.awaits_calls() {
                    self.apply_session();
                }
            }
        }
    }

    /// A Receive was used, and others posted in its place.
    pub(crate) fn note_receives(&mut self) {
        if let Some(session) = self.session.as_deref_mut()
            && session.awaits_receives()
        {
            session.handle_old_receives_gone(self.link.receives.smallest());
            self.apply_session();
        }
    }

    /// The next message of the session. It waits until there is nothing else to be sent: so there are
    /// never many, and no call that was made before is larger than it says.
    pub(crate) fn poll_control(&mut self) -> Option<WorkRequest> {
        let waits = !self.link.posts.has_room() || self.requester.holds_calls();
        if self.phase == Phase::Listening || waits {
            return None;
        }
        let session = self.session.as_deref_mut()?;
        let message = session.poll_message(&mut || self.xids.next())?;
        Some(self.control(message))
    }

    /// The work that sends a message of the session.
    fn control(&mut self, message: Message) -> WorkRequest {
        let mut buffer = self.link.pool.take(FIRST_MESSAGE);
        let grant = self.responder.offer(self.control_asked);
        match message {
            Message::Optional { xid, optional } => {
                let credits = match optional.direction {
                    Direction::Call => self.requester.asked(),
                    Direction::Reply => grant,
                };
                if let Phase::Offered { xid: offer } = &mut self.phase {
                    *offer = xid;
                }
                let Optional {
                    direction,
                    operation,
                    info,
                } = optional;
                two::emit_optional(&mut buffer, xid, credits, direction, operation, &info);
                self.link.counters.control_sent += 1;
            }
            Message::Error { xid, error } => {
                match error {
                    two::RdmaError::InvalOption => self.link.counters.option_errors_sent += 1,
                    two::RdmaError::BadHeader => self.link.counters.chunk_errors_sent += 1,
                    two::RdmaError::Version { .. } => self.link.counters.version_errors_sent += 1,
                }
                two::emit_error(&mut buffer, xid, Version::Two.number(), grant, error);
            }
        }
        // What is agreed on may hold from this message on.
        self.apply_session();
        self.link.posts.push(WorkRequest::Send {
            wr: Purpose::Control.wr(),
            buffer,
            rest: Gather::new(),
            invalidate: None,
        });
        let next = self.link.posts.next();
        next.expect("there is room, and nothing before it")
    }
}
