//! What the two ends of one connection tell each other about themselves: the operations of xcharext
//! §4 as a protocol of their own.
//!
//! A [`Session`] is the state of one end. It posts nothing and knows no Receive: its owner hands in
//! the RDMA2_OPTIONAL messages and errors that come, and the facts named below, sends what
//! [`poll_message`](Session::poll_message) gives, and asks how large a message may be.
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
    RequesterRemoteInvalidation, XcharVal,
};
use super::header::{Direction, Optional, RdmaError};
use super::operations::{Operation, RespXch, Supported};
use crate::invalidation::design::Design;
use crate::limits::{FIRST_MESSAGE, MAX_CONTROL_MESSAGES};
use crate::role::Role;
use std::collections::VecDeque;

/// One end's part in agreeing about characteristics, for the life of one connection.
#[derive(Clone, Debug)]
pub struct Session {
    role: Role,
    supported: Supported,
    opening: Opening,
    own: Own,
    peer: Peer,
    agreement: Agreement,
    outstanding: Outstanding,
    /// What the peer is owed, in the order of its messages.
    answers: VecDeque<Answer>,
    /// Whether a message of the peer has come.
    heard: bool,
    flooded: bool,
    unclear_design: bool,
    /// What the peer's Receives hold, or will hold if it was asked for less: for each message, so it
    /// is kept at hand.
    peer_receives: ReceiveSize,
    events: VecDeque<Event>,
    counters: Counters,
}

/// What this end may send at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The client's INITXCH, and nothing else until it is answered (cel-01 §5).
    Exchanging,
    /// One call at a time, in a message of [`FIRST_MESSAGE`] bytes at most, until a reply comes that
    /// is no error: there are no characteristics (cel-01 §5).
    Cautious,
    /// All that credits and limits allow.
    Done,
}

/// What to send. Credits are for the owner of the session to put in, by direction (cel-01 §4.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An RDMA2_OPTIONAL without anything behind it, of [`FIRST_MESSAGE`] bytes at most.
    Optional {
        /// The transaction.
        xid: u32,
        /// What it says.
        optional: Optional,
    },
    /// An RDMA2_ERROR.
    Error {
        /// Of the message that is refused.
        xid: u32,
        /// Why.
        error: RdmaError,
    },
}

/// What the peer is owed for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// Our INITXCH, made when it is sent.
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
    /// A session of a new connection.
    ///
    /// # Errors
    ///
    /// If the configuration contradicts itself, or does not fit the first message.
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
            flooded: false,
            unclear_design: false,
            peer_receives: ReceiveSize::DEFAULT,
            events: VecDeque::new(),
            counters: Counters::default(),
        })
    }

    /// What may be sent at this stage.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Bytes of the largest message that may be sent: what the peer's Receives hold, or will hold
    /// if it was asked for less, and no more than we ever send.
    pub fn send_limit(&self) -> usize {
        self.limit(self.peer_receives)
    }

    /// Bytes of the largest reply to a call that fits no other way. A peer that was asked for smaller
    /// Receives keeps the old ones until the calls are answered that it sent before that.
    pub fn last_resort_limit(&self) -> usize {
        self.limit(self.peer.receive_size())
    }

    fn limit(&self, receives: ReceiveSize) -> usize {
        match self.opening {
            Opening::Exchanging | Opening::Cautious => FIRST_MESSAGE,
            Opening::Done => receives.min(self.own.largest_sent()).bytes(),
        }
    }

    /// Bytes of the largest reply for which a call needs no Reply chunk: what both ends receive, as
    /// each sends as much as it receives.
    pub fn reply_limit(&self) -> usize {
        let own = self.own.sizes.for_replies();
        own.min(self.peer_receives).bytes()
    }

    /// Bytes of each Receive that is posted from now on.
    pub fn receive_size(&self) -> usize {
        self.own.sizes.next().bytes()
    }

    /// What the peer was told last about a characteristic of ours, or its default.
    pub fn own<C: Characteristic>(&self) -> C::Value {
        self.own.said().get::<C>().unwrap_or_else(C::default)
    }

    /// What the peer said last about a characteristic of its own, or the default.
    pub fn peer<C: Characteristic>(&self) -> C::Value {
        self.peer.values().get::<C>().unwrap_or_else(C::default)
    }

    /// Whether the peer has said its characteristics at all.
    pub fn peer_has_characteristics(&self) -> bool {
        self.peer.has_said()
    }

    /// What both ends can do in the backward direction. What a client knows of a server is what the
    /// server has done (xcharext §3.3).
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

    /// The design for remote invalidation that both ends have agreed on. It alone governs then, in
    /// both directions.
    pub fn design(&self) -> Option<Design> {
        self.agreement.design()
    }

    /// Whether replies to the peer may be sent with Invalidate because it said so for all of its calls
    /// (xcharext §3.2). Where a design is agreed on this says nothing, and is false.
    pub fn peer_allows_invalidation(&self) -> bool {
        self.design().is_none() && self.peer::<RequesterRemoteInvalidation>()
    }

    /// Messages of ours that may still occupy a Receive of the peer; answers are not among them.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether it is awaited that no Receive is posted any more that is smaller than
    /// [`receive_size`](Self::receive_size).
    pub fn awaits_receives(&self) -> bool {
        self.own.sizes.raising()
    }

    /// Whether it is awaited that those calls of ours are answered which were on their way when this
    /// became true.
    pub fn awaits_calls(&self) -> bool {
        self.own.sizes.draining()
    }

    /// Whether the peer sends faster than it takes in what it is owed. The connection is to be
    /// closed.
    pub fn is_flooded(&self) -> bool {
        self.flooded
    }

    /// Whether the server has answered the offer of designs for remote invalidation with something else
    /// than one of them, or none. How it lays out its messages is then not known, and the connection
    /// is to be closed.
    pub fn is_unclear(&self) -> bool {
        self.unclear_design
    }

    /// What was done and seen so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// An RDMA2_OPTIONAL has come, with `rest` behind its header.
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

    /// An RDMA2_ERROR has come. Whether it is for a message of this session.
    pub fn handle_error(&mut self, xid: u32, error: RdmaError) -> bool {
        let Some(what) = self.answered(xid, |_| true) else {
            return false;
        };
        self.counters.refused += 1;
        let unsupported = error == RdmaError::InvalOption;
        match what {
            // Whatever is wrong with it: the peer has version two and knows nothing of us.
            What::Initial => self.opening = Opening::Cautious,
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

    /// A reply has come with this XID that cannot be read. It is not answered; if it was for a message
    /// of this session, it is still the end of that.
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

    /// A valid message has come that carries RPC, or belongs to it. Only the first one matters.
    pub fn handle_message(&mut self) {
        if self.opening == Opening::Cautious {
            self.opening = Opening::Done;
        }
    }

    /// A message has come, of whatever kind, and was looked at: a design for remote invalidation counts
    /// only in the first of each direction.
    pub fn handle_heard(&mut self) {
        self.heard = true;
    }

    /// A call of the server has come to this client, with chunks or without. It takes replies of the
    /// same kind (xcharext §3.3).
    pub fn handle_backward_call(&mut self, chunks: bool) {
        self.peer.handle_backward_call(chunks);
    }

    /// The smallest Receive that is posted now holds so many bytes: Receives of former sizes are
    /// gone.
    pub fn handle_old_receives_gone(&mut self, smallest: usize) {
        self.own.sizes.handle_receives(smallest);
    }

    /// Each call of ours is answered that was on its way when [`awaits_calls`](Self::awaits_calls)
    /// became true.
    pub fn handle_calls_drained(&mut self) {
        self.own.sizes.handle_drained();
    }

    /// Makes Receives that are posted from now on larger. The peer is told when there are no smaller
    /// ones any more.
    ///
    /// # Errors
    ///
    /// If the peer could not be told, or the size is more than the largest, less than now, or the
    /// peer has asked for less.
    pub fn raise_receive_size(&mut self, to: ReceiveSize) -> Result<(), RaiseError> {
        if !self.own.updates() {
            return Err(RaiseError::Unsupported);
        }
        let can_tell = self.can_tell(self.own.sizes.is_changing());
        self.own.sizes.raise(to, can_tell)
    }

    /// Whether a change can be told, or one that `waits` to be told be another. Without REQXCH nothing
    /// shows that an UPDXCH has arrived, so that there are as many in the life of a connection as the
    /// peer has Receives for.
    fn can_tell(&self, waits: bool) -> bool {
        let told = self.outstanding.updates() + self.own.untold();
        let room = self.supported.requests() || waits || told < MAX_CONTROL_MESSAGES;
        room && !self.peer.refuses_updates()
    }

    /// Asks the peer to change its characteristics to these values. Of a size that is lower than now
    /// this end makes use at once (xcharext §3.1). Each has its end with an [`Event::Settled`], or
    /// with the connection.
    ///
    /// # Errors
    ///
    /// If one cannot be asked for; then none is.
    pub fn request_peer(&mut self, want: Vec<XcharVal>) -> Result<(), RequestError> {
        if !self.supported.requests() {
            return Err(RequestError::Unsupported);
        }
        self.peer.request(want, self.own.registry())?;
        self.refresh();
        Ok(())
    }

    /// Tells the peer another value of a registered characteristic, with no regard to what it may
    /// have asked for: that is still pending.
    ///
    /// # Errors
    ///
    /// If it cannot have that value, or the peer cannot be told.
    pub fn tell(&mut self, value: XcharVal) -> Result<(), TellError> {
        let can_tell = self.can_tell(self.own.is_untold(value.which));
        self.own.tell(value, can_tell)
    }

    /// Ends the request of the peer for a registered characteristic, with the value that it has now:
    /// what was asked for, what it was before, or something else.
    ///
    /// # Errors
    ///
    /// If nothing was asked for, or it cannot have that value.
    pub fn settle(&mut self, value: XcharVal) -> Result<(), TellError> {
        let can_tell = self.can_tell(self.own.is_untold(value.which));
        self.own.settle(value, can_tell)
    }

    /// The next thing to tell our user.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What was asked of the peer and has no end yet, and will have none if the connection is over.
    pub fn unsettled(&self) -> impl Iterator<Item = &XcharVal> {
        self.peer.unsettled()
    }

    /// The next message to send, with an XID from `next_xid` if it needs one: it is from the numbers
    /// of our calls, so that an error is for one of them only.
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
