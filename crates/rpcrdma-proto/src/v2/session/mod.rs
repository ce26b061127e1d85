//! The protocol of both ends about characteristics: the operations of xcharext §4.
//!
//! A [`Session`] is the state of one end, without I/O. Its owner passes in received RDMA2_OPTIONAL
//! messages and errors, and the facts named below, sends what
//! [`poll_message`](Session::poll_message) returns, and asks how large a message may be.
//!
//! # What its owner does
//!
//! - It posts [`CONTROL_RECEIVES`](crate::limits::CONTROL_RECEIVES) beyond all credits for the
//!   messages of the peer's session, and makes no Receive smaller than
//!   [`receive_size`](Session::receive_size). Messages of a session take no credit; their XIDs are
//!   those of calls and replies of their direction.
//! - While [`opening`](Session::opening) is not [`Opening::Done`] it keeps to what that says.
//! - It hands in each RDMA2_OPTIONAL ([`handle_optional`](Session::handle_optional)), each
//!   RDMA2_ERROR ([`handle_error`](Session::handle_error), which says whether that was for a message
//!   of the session), and that an RPC message came ([`handle_message`](Session::handle_message); the
//!   first is enough). Where it finds a reply malformed itself, it calls
//!   [`handle_unreadable_reply`](Session::handle_unreadable_reply).
//! - After each message, whatever became of it, it says that one came
//!   ([`handle_heard`](Session::handle_heard)): an INITXCH behind it is not the first.
//! - While [`awaits_receives`](Session::awaits_receives) it says how large the smallest Receive is
//!   that is posted, whenever that changes.
//! - When [`awaits_calls`](Session::awaits_calls) becomes true it notes which calls of its own are on
//!   their way, and says when the last of them is answered.
//! - After each of these it sends what there is to send, and closes the connection if the session
//!   [is flooded](Session::is_flooded) or [unclear](Session::is_unclear).
//!
//! # How large a message may be
//!
//! [`send_limit`](Session::send_limit) bounds all that is sent. A reply to a call that fits no other
//! way may go to [`last_resort_limit`](Session::last_resort_limit). A call needs a Reply chunk if its
//! reply may be larger than [`reply_limit`](Session::reply_limit).

mod agreement;
pub(super) mod config;
mod counters;
mod event;
mod incoming;
mod outgoing;
mod outstanding;
pub(super) mod own;
pub(super) mod peer;
pub(super) mod sizes;
#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError};
pub use counters::Counters;
pub use event::{Event, Settled};
pub use own::TellError;
pub use peer::RequestError;
pub use sizes::RaiseError;

use self::agreement::Agreement;
use self::outstanding::{Outstanding, What};
use self::own::Own;
use self::peer::Peer;
use super::characteristics::{
    BackwardRequestSupport, BackwardSupport, Characteristic, ReceiveSize,
    RequesterRemoteInvalidation, XcharSpec, XcharVal,
};
use super::header::{Direction, Optional, RdmaError};
use super::operations::{Operation, RespXch, Supported};
use crate::invalidation::design::Design;
use crate::limits::{FIRST_MESSAGE, MAX_CONTROL_MESSAGES};
use crate::role::Role;
use std::collections::VecDeque;

/// One end's state of the protocol about characteristics, for the life of one connection.
#[derive(Clone, Debug)]
pub struct Session {
    role: Role,
    supported: Supported,
    opening: Opening,
    own: Own,
    peer: Peer,
    agreement: Agreement,
    outstanding: Outstanding,
    /// Answers to send, in the order of the peer's messages.
    answers: VecDeque<Answer>,
    /// Whether a message of the peer has arrived.
    heard: bool,
    /// Whether this end has sent its INITXCH.
    introduced: bool,
    /// Whether the peer may be unaware of this end's INITXCH: a client's that is not answered.
    unanswered: bool,
    flooded: bool,
    unclear_design: bool,
    /// Size of the peer's Receives, or the smaller one that was requested. Cached, because every
    /// message needs it.
    peer_receives: ReceiveSize,
    events: VecDeque<Event>,
    counters: Counters,
}

/// First message of this end on a connection, as far as it may send one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Only the client's INITXCH, until it is answered (cel-01 §5).
    Exchanging,
    /// One call at a time, of at most [`FIRST_MESSAGE`] bytes, until the first reply that is not an
    /// error: there are no characteristics (cel-01 §5), or the server has announced its own and not
    /// answered the client's (xcharext §4.1).
    Cautious,
    /// Everything within credits and limits.
    Done,
}

/// A message to send. The owner of the session fills in the credits, by direction (cel-01 §4.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An RDMA2_OPTIONAL of at most [`FIRST_MESSAGE`] bytes, with nothing behind it.
    Optional {
        /// XID of the message.
        xid: u32,
        /// Content of the message.
        optional: Optional,
    },
    /// An RDMA2_ERROR.
    Error {
        /// XID of the refused message.
        xid: u32,
        /// The error.
        error: RdmaError,
    },
}

/// An answer to a message of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// This end's INITXCH, encoded when it is sent.
    Initial {
        xid: u32,
    },
    Response {
        xid: u32,
        response: RespXch,
    },
    Error {
        xid: u32,
        error: RdmaError,
    },
}

impl Session {
    /// Creates the session of a new connection.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid or does not fit the first message.
    pub fn new(mut config: Config) -> Result<Self, ConfigError> {
        config.keep_agreeable_designs();
        let (role, supported) = (config.role, config.supported);
        let agreement = Agreement::new(role, config.designs.clone());
        let own = config.into_own()?;
        let opening = match (role, supported) {
            (Role::Server, _) => Opening::Done,
            (Role::Client, Supported::None) => Opening::Cautious,
            (Role::Client, _) => Opening::Exchanging,
        };
        Ok(Self {
            role,
            supported,
            opening,
            own,
            peer: Peer::default(),
            agreement,
            outstanding: Outstanding::default(),
            answers: VecDeque::new(),
            heard: false,
            introduced: false,
            unanswered: role == Role::Client,
            flooded: false,
            unclear_design: false,
            peer_receives: ReceiveSize::DEFAULT,
            events: VecDeque::new(),
            counters: Counters::default(),
        })
    }

    /// Returns what may be sent at this stage.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Returns the size of the largest message that may be sent: what the peer's Receives hold, or
    /// will hold if smaller ones were requested, limited by this end's maximum.
    pub fn send_limit(&self) -> usize {
        self.limit(self.peer_receives)
    }

    /// Returns the size of the largest reply to a call that fits no other way. A peer that was
    /// asked for smaller Receives keeps the old ones until the calls are answered that it sent
    /// before the request.
    pub fn last_resort_limit(&self) -> usize {
        self.limit(self.peer.receive_size())
    }

    fn limit(&self, receives: ReceiveSize) -> usize {
        match self.opening {
            Opening::Exchanging | Opening::Cautious => FIRST_MESSAGE,
            Opening::Done => receives.min(self.own.largest_sent()).bytes(),
        }
    }

    /// Returns the size of the largest reply for which a call needs no Reply chunk: the smaller
    /// Receive size of both ends, because each end sends as much as it receives.
    pub fn reply_limit(&self) -> usize {
        let own = match self.unanswered {
            true => ReceiveSize::DEFAULT,
            false => self.own.sizes.for_replies(),
        };
        own.min(self.peer_receives).bytes()
    }

    /// Returns the size of Receives to post from now on, in bytes.
    pub fn receive_size(&self) -> usize {
        self.own.sizes.next().bytes()
    }

    /// Returns the size of the largest message that the peer may send, in bytes: what this end has
    /// announced of its Receives, or the default.
    pub fn announced_receive_size(&self) -> usize {
        match self.introduced {
            true => self.own.sizes.announced().bytes(),
            false => ReceiveSize::DEFAULT.bytes(),
        }
    }

    /// Returns the last announced value of a characteristic of this end, or the default.
    pub fn own<C: Characteristic>(&self) -> C::Value {
        self.own.said().get::<C>().unwrap_or_else(C::default)
    }

    /// Returns the last announced value of a characteristic of the peer, or the default.
    pub fn peer<C: Characteristic>(&self) -> C::Value {
        self.peer.values().get::<C>().unwrap_or_else(C::default)
    }

    /// Latest values of the peer's characteristics, of those in the registry.
    pub fn peer_values(&self) -> &XcharSpec {
        self.peer.values()
    }

    /// Whether the peer has announced its characteristics.
    pub fn peer_has_characteristics(&self) -> bool {
        self.peer.has_said()
    }

    /// Whether the peer has named a characteristic. One that does not, because it lacks or refuses
    /// xcharext, has sent no INITXCH or an empty one.
    pub fn peer_names_characteristics(&self) -> bool {
        self.peer.names_any()
    }

    /// Returns the backward direction support of both ends. A client infers that of the server from
    /// its calls (xcharext §3.3).
    pub fn backward(&self) -> BackwardSupport {
        let said = self.peer::<BackwardRequestSupport>();
        let peer = match self.role {
            Role::Client => self
                .peer
                .shown_backward()
                .map_or(said, |shown| shown.max(said)),
            Role::Server => said,
        };
        peer.min(self.own.backward())
    }

    /// Returns the remote invalidation design that both ends agreed on, which then governs both
    /// directions.
    pub fn design(&self) -> Option<Design> {
        self.agreement.design()
    }

    /// Whether replies to the peer may use Send with Invalidate because the peer permitted it for
    /// all its calls (xcharext §3.2). False if a design was agreed on.
    pub fn peer_allows_invalidation(&self) -> bool {
        self.design().is_none() && self.peer::<RequesterRemoteInvalidation>()
    }

    /// Returns the number of this end's messages that may still occupy a Receive of the peer,
    /// answers not counted.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Returns the XIDs of the messages without an answer.
    pub(crate) fn outstanding_xids(&self) -> impl Iterator<Item = u32> {
        self.outstanding.xids()
    }

    /// Whether the session waits until no Receive is smaller than
    /// [`receive_size`](Self::receive_size).
    pub fn awaits_receives(&self) -> bool {
        self.own.sizes.raising()
    }

    /// Whether the session waits for the replies to the calls that were in flight when this became
    /// true.
    pub fn awaits_calls(&self) -> bool {
        self.own.sizes.draining()
    }

    /// Whether the peer sends faster than it receives answers. The connection must then be closed.
    pub fn is_flooded(&self) -> bool {
        self.flooded
    }

    /// Whether the server's answer to the offered designs is neither one of them nor none. The
    /// layout of its messages is then unknown, and the connection must be closed.
    pub fn is_unclear(&self) -> bool {
        self.unclear_design
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Handles an RDMA2_OPTIONAL with `rest` behind its header.
    pub fn handle_optional(&mut self, xid: u32, optional: &Optional, rest: &[u8]) {
        let first = !std::mem::replace(&mut self.heard, true);
        let registry = self.own.registry();
        match Operation::parse(optional, rest, self.supported, registry) {
            Err(error) => self.refuse(xid, optional.direction, error),
            Ok((operation, oddities)) => {
                self.counters.count(oddities);
                match operation {
                    Operation::InitXch(init) => match optional.direction {
                        Direction::Call => self.take_initial(xid, &init, first),
                        Direction::Reply => self.take_initial_answer(xid, &init, first),
                    },
                    Operation::ReqXch(request) => self.take_request(xid, &request),
                    Operation::RespXch(response) => self.take_response(xid, response),
                    Operation::UpdXch(update) => self.take_update(update),
                }
            }
        }
        self.refresh();
    }

    /// Handles an RDMA2_ERROR. Returns whether it is for a message of this session.
    pub fn handle_error(&mut self, xid: u32, error: RdmaError) -> bool {
        let Some(what) = self.answered(xid, |_| true) else {
            return false;
        };
        self.counters.refused += 1;
        let unsupported = error == RdmaError::InvalOption;
        match what {
            // Whatever is wrong with it: the peer has version two and knows nothing of us.
            What::Initial if self.opening == Opening::Exchanging => {
                self.opening = Opening::Cautious;
            }
            What::Initial => {}
            What::Request(ids) => {
                self.peer
                    .handle_refused(&ids, unsupported, &mut self.events);
            }
            What::Update => {
                self.own.handle_ignored();
                self.peer.handle_update_refused(unsupported);
            }
        }
        self.refresh();
        true
    }

    /// Handles a malformed reply with this XID. It is not answered; if it was for a message of this
    /// session, that message has ended.
    pub fn handle_unreadable_reply(&mut self, xid: u32) {
        self.counters.bad_replies += 1;
        match self.answered(xid, What::has_answer) {
            // The peer has version two. Defaults stay.
            Some(What::Initial) => {
                self.opening = Opening::Done;
                let chosen = self.agreement.handle_unreadable_choice();
                self.take_choice(chosen);
            }
            // What it did is not known, so a lower size is kept to.
            Some(What::Request(ids)) => self.peer.handle_unknown_outcome(&ids),
            Some(What::Update) | None => {}
        }
        self.refresh();
    }

    /// Handles the arrival of a valid RPC message. Only the first one matters.
    pub fn handle_message(&mut self) {
        if self.opening == Opening::Cautious {
            self.opening = Opening::Done;
            // Its Receive is free again, and an answer could change nothing any more.
            self.outstanding.forget_initial();
        }
    }

    /// Handles the end of the processing of any message: a remote invalidation design counts only
    /// in the first message of each direction.
    pub fn handle_heard(&mut self) {
        self.heard = true;
    }

    /// Handles the arrival of a call of the server at this client, with or without chunks. The
    /// server then accepts replies of the same kind (xcharext §3.3).
    pub fn handle_backward_call(&mut self, chunks: bool) {
        self.peer.handle_backward_call(chunks);
    }

    /// Handles a change of the smallest posted Receive, in bytes: smaller ones are used up.
    pub fn handle_old_receives_gone(&mut self, smallest: usize) {
        self.own.sizes.handle_receives(smallest);
    }

    /// Handles the end of the last call that was in flight when
    /// [`awaits_calls`](Self::awaits_calls) became true.
    pub fn handle_calls_drained(&mut self) {
        self.own.sizes.handle_drained();
    }

    /// Raises the size of Receives posted from now on. The peer is notified once no smaller ones
    /// are left.
    ///
    /// # Errors
    ///
    /// If the peer cannot be notified, the size exceeds the maximum or is less than the current
    /// one, or the peer has asked for less.
    pub fn raise_receive_size(&mut self, to: ReceiveSize) -> Result<(), RaiseError> {
        if !self.own.updates() {
            return Err(RaiseError::Unsupported);
        }
        let can_tell = self.can_tell(self.own.sizes.is_changing());
        self.own.sizes.raise(to, can_tell)
    }

    /// Whether a change can be announced, or a waiting one (`waits`) be replaced. Without REQXCH
    /// nothing acknowledges an UPDXCH, so at most as many are sent in the life of a connection as
    /// the peer has Receives for.
    fn can_tell(&self, waits: bool) -> bool {
        let told = self.outstanding.updates() + self.own.untold();
        let room = self.supported.requests() || waits || told < MAX_CONTROL_MESSAGES;
        room && !self.peer.refuses_updates()
    }

    /// Asks the peer to change its characteristics to these values. This end keeps to a lower size
    /// at once (xcharext §3.1). Each request ends with an [`Event::Settled`], or with the
    /// connection.
    ///
    /// # Errors
    ///
    /// If one of them cannot be requested. Then none is.
    pub fn request_peer(&mut self, want: Vec<XcharVal>) -> Result<(), RequestError> {
        if !self.supported.requests() {
            return Err(RequestError::Unsupported);
        }
        self.peer.request(want, self.own.registry())?;
        self.refresh();
        Ok(())
    }

    /// Notifies the peer of a new value of a registered characteristic. A pending request of the
    /// peer stays pending.
    ///
    /// # Errors
    ///
    /// If the characteristic cannot have that value, or the peer cannot be notified.
    pub fn tell(&mut self, value: XcharVal) -> Result<(), TellError> {
        let can_tell = self.can_tell(self.own.is_untold(value.which));
        self.own.tell(value, can_tell)
    }

    /// Settles the peer's request for a registered characteristic with its current value, which may
    /// be the requested one, the old one or another.
    ///
    /// # Errors
    ///
    /// If no request is pending, or the characteristic cannot have that value.
    pub fn settle(&mut self, value: XcharVal) -> Result<(), TellError> {
        let can_tell = self.can_tell(self.own.is_untold(value.which));
        self.own.settle(value, can_tell)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the values of unsettled requests to the peer. If the connection has ended, they
    /// remain unsettled.
    pub fn unsettled(&self) -> impl Iterator<Item = &XcharVal> {
        self.peer.unsettled()
    }

    /// Returns the next message to send. If it needs an XID, that comes from `next_xid`, the XIDs
    /// of this end's calls, so that an error is unambiguous.
    pub fn poll_message(&mut self, next_xid: &mut dyn FnMut() -> u32) -> Option<Message> {
        let message = match self.opening {
            Opening::Exchanging => self.poll_initial(next_xid),
            Opening::Cautious => self.poll_answer(),
            Opening::Done => {
                let answer = self.poll_answer();
                answer.or_else(|| self.poll_own(next_xid))
            }
        };
        self.counters.sent += u64::from(message.is_some());
        message
    }

    fn refresh(&mut self) {
        self.peer_receives = self.peer.awaited_receive_size();
    }
}
