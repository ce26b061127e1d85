//! What the two ends of one connection tell each other about themselves: the operations of xcharext
//! §4 as a protocol of their own.
//!
//! A [`Session`] is the state of one end. It posts nothing and knows no Receive: its owner hands in
//! the RDMA2_OPTIONAL messages and errors that come, and the facts named below, sends what
//! [`poll_message`](Session::poll_message) gives, and asks how large a message may be.
//!
//! # What its owner does
//!
//! - It posts [`CONTROL_RECEIVES`] beyond all credits for the messages of the peer's session, and
//!   makes no Receive smaller than [`receive_size`](Session::receive_size). Messages of a session
//!   take no credit; their XIDs are those of calls and replies of their direction.
//! - While [`opening`](Session::opening) is not [`Opening::Done`] it keeps to what that says.
//! - It hands in each RDMA2_OPTIONAL ([`handle_optional`](Session::handle_optional)), each
//!   RDMA2_ERROR ([`handle_error`](Session::handle_error), which says whether that was for a message
//!   of the session), and that an RPC message came ([`handle_message`](Session::handle_message); the
//!   first is enough). Where it finds a reply malformed itself, it calls
//!   [`handle_unreadable_reply`](Session::handle_unreadable_reply).
//! - While [`awaits_receives`](Session::awaits_receives) it says how large the smallest Receive is
//!   that is posted, whenever that changes.
//! - When [`awaits_calls`](Session::awaits_calls) becomes true it notes which calls of its own are on
//!   their way, and says when the last of them is answered.
//! - After each of these it sends what there is to send, and closes the connection if the session
//!   [is flooded](Session::is_flooded).
//!
//! # How large a message may be
//!
//! [`send_limit`](Session::send_limit) bounds all that is sent. A reply to a call that fits no other
//! way may go to [`last_resort_limit`](Session::last_resort_limit). A call needs a Reply chunk if its
//! reply may be larger than [`reply_limit`](Session::reply_limit).

mod agreement;
mod config;
mod outstanding;
mod own;
mod peer;
mod sizes;
#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError};
pub use own::TellError;
pub use peer::{RequestError, Settled};
pub use sizes::RaiseError;

use self::agreement::Agreement;
use self::outstanding::{Outstanding, What};
use self::own::Own;
use self::peer::Peer;
use super::characteristics::{
    BackwardRequestSupport, BackwardSupport, Characteristic, Oddities, ReceiveSize,
    RequesterRemoteInvalidation, XcharId, XcharVal,
};
use super::header::{Direction, Optional, RdmaError};
use super::operations::{
    InitXch, Operation, OperationError, ReqXch, RespXch, Supported, UpdXch, Update,
};
use crate::Role;
use crate::invalidation::Design;
use crate::limits::{CONTROL_RECEIVES, FIRST_MESSAGE};
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
    /// One call at a time, in a message of [`FIRST_MESSAGE`] octets at most, until a reply comes that
    /// is no error: there are no characteristics (cel-01 §5).
    Cautious,
    /// All that credits and limits allow.
    Done,
}

/// What to send. Credits are for the owner of the session to put in, by direction (cel-01 §4.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An RDMA2_OPTIONAL without anything behind it, of [`FIRST_MESSAGE`] octets at most.
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

/// What a user of the connection may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// What was asked of the peer has come to its end.
    Settled {
        /// What was asked for.
        wanted: XcharVal,
        /// What became of it.
        outcome: Settled,
    },
    /// The peer asks for this value of a registered characteristic of ours. It is pending until
    /// [`Session::settle`].
    Wanted(XcharVal),
    /// A characteristic of the peer has another value.
    PeerChanged(XcharId),
}

/// What a session has done and seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent, answers included.
    pub sent: u64,
    /// Valid operations taken in.
    pub taken: u64,
    /// RDMA2_ERR_BAD_HEADER queued for a message of the peer.
    pub bad_header: u64,
    /// RDMA2_ERR_INVAL_OPTION queued for a message of the peer.
    pub inval_option: u64,
    /// RDMA2_ERROR received for a message of the session.
    pub refused: u64,
    /// Replies that were malformed or not supported, and so had no answer.
    pub bad_replies: u64,
    /// Replies to nothing.
    pub stray_replies: u64,
    /// RESPXCHs whose subsets overlapped, left something out, or named too much.
    pub odd_responses: u64,
    /// UPDXCHs that ended a request which there was not.
    pub stray_ends: u64,
    /// Values that had no effect: of a second INITXCH, or of what was said not to change.
    pub ignored: u64,
    /// Designs for remote invalidation that were named, but could not be agreed on.
    pub no_design: u64,
    /// Values of unknown characteristics.
    pub unknown: u64,
    /// Values with octets behind their XDR.
    pub trailing: u64,
    /// Bits of subsets that were for no value.
    pub bits_for_nothing: u64,
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
    pub fn new(config: Config) -> Result<Self, ConfigError> {
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
            peer_receives: ReceiveSize::DEFAULT,
            events: VecDeque::new(),
            counters: Counters::default(),
        })
    }

    /// What may be sent at this stage.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Octets of the largest message that may be sent: what the peer's Receives hold, or will hold
    /// if it was asked for less, and no more than we ever send.
    pub fn send_limit(&self) -> usize {
        self.limit(self.peer_receives)
    }

    /// Octets of the largest reply to a call that fits no other way. A peer that was asked for smaller
    /// Receives keeps the old ones until the calls are answered that it sent before that.
    pub fn last_resort_limit(&self) -> usize {
        self.limit(self.peer.receive_size())
    }

    fn limit(&self, receives: ReceiveSize) -> usize {
        match self.opening {
            Opening::Exchanging | Opening::Cautious => FIRST_MESSAGE,
            Opening::Done => receives.min(self.own.sizes.most()).octets(),
        }
    }

    /// Octets of the largest reply for which a call needs no Reply chunk: what both ends receive, as
    /// each sends as much as it receives.
    pub fn reply_limit(&self) -> usize {
        let own = self.own.sizes.for_replies();
        own.min(self.peer_receives).octets()
    }

    /// Octets of each Receive that is posted from now on.
    pub fn receive_size(&self) -> usize {
        self.own.sizes.next().octets()
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
        let own = self.own.backward();
        match self.role {
            Role::Client => own.min(self.peer.shown_backward()),
            Role::Server => own.min(self.peer::<BackwardRequestSupport>()),
        }
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
        self.heard = true;
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
        self.heard = true;
        self.counters.bad_replies += 1;
        match self.answered(xid, What::has_answer) {
            // The peer has version two. Defaults stay.
            Some(What::Initial) => self.opening = Opening::Done,
            // What it did is not known, so a lower size is kept to.
            Some(What::Request(ids)) => self.peer.handle_unknown_outcome(&ids),
            Some(What::Update) | None => {}
        }
        self.refresh();
    }

    /// A valid message has come that carries RPC, or belongs to it. Only the first one matters.
    pub fn handle_message(&mut self) {
        self.heard = true;
        if self.opening == Opening::Cautious {
            self.opening = Opening::Done;
        }
    }

    /// A call of the server has come to this client, with chunks or without. It takes replies of the
    /// same kind (xcharext §3.3).
    pub fn handle_backward_call(&mut self, chunks: bool) {
        self.peer.handle_backward_call(chunks);
    }

    /// The smallest Receive that is posted now holds so many octets: Receives of former sizes are
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
        self.own.sizes.raise(to)
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
        self.own.tell(value)
    }

    /// Ends the request of the peer for a registered characteristic, with the value that it has now:
    /// what was asked for, what it was before, or something else.
    ///
    /// # Errors
    ///
    /// If nothing was asked for, or it cannot have that value.
    pub fn settle(&mut self, value: XcharVal) -> Result<(), TellError> {
        self.own.settle(value)
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

    /// The client's first message.
    fn poll_initial(&mut self, next_xid: &mut dyn FnMut() -> u32) -> Option<Message> {
        if self.outstanding.len() > 0 {
            return None;
        }
        let xid = next_xid();
        self.outstanding.push(xid, What::Initial);
        Some(call(xid, Operation::InitXch(self.own.initial())))
    }

    fn poll_answer(&mut self) -> Option<Message> {
        let (xid, operation) = match self.answers.pop_front()? {
            Answer::Initial { xid } => {
                self.agreement.handle_answered();
                (xid, Operation::InitXch(self.own.initial()))
            }
            Answer::Response { xid, response } => (xid, Operation::RespXch(response)),
            Answer::Error { xid, error } => return Some(Message::Error { xid, error }),
        };
        let optional = operation.to_optional(Direction::Reply);
        Some(Message::Optional { xid, optional })
    }

    /// An update, a request, or the empty one whose answer shows that an update has arrived.
    fn poll_own(&mut self, next_xid: &mut dyn FnMut() -> u32) -> Option<Message> {
        if !(self.peer.has_said() && self.outstanding.has_room()) {
            return None;
        }
        let requests = self.supported.requests();
        let update = self.peer.takes_updates() && self.own.has_update();
        if update && !(requests && self.outstanding.has_update()) {
            let update = self.own.poll_update()?;
            let xid = next_xid();
            self.outstanding.push(xid, What::Update);
            return Some(call(xid, Operation::UpdXch(update)));
        }
        if !requests || self.outstanding.has_request() {
            return None;
        }
        let want = self.peer.poll_request();
        if want.is_empty() && !self.outstanding.has_update() {
            return None;
        }
        let xid = next_xid();
        let ids = want.values().iter().map(|value| value.which).collect();
        self.outstanding.push(xid, What::Request(ids));
        Some(call(xid, Operation::ReqXch(ReqXch { want })))
    }

    /// Something came for this message of ours, if `is` meant it.
    fn answered(&mut self, xid: u32, is: impl Fn(&What) -> bool) -> Option<What> {
        let answered = self.outstanding.answered(xid, is)?;
        if answered.updates {
            self.own.handle_heard();
        }
        Some(answered.what)
    }

    fn refuse(&mut self, xid: u32, direction: Direction, error: OperationError) {
        match (direction, error) {
            (Direction::Reply, _) => self.handle_unreadable_reply(xid),
            (Direction::Call, OperationError::Unsupported(_)) => {
                self.counters.inval_option += 1;
                let error = RdmaError::InvalOption;
                self.answer(Answer::Error { xid, error });
            }
            (Direction::Call, OperationError::Malformed { .. }) => {
                self.counters.bad_header += 1;
                let error = RdmaError::BadHeader;
                self.answer(Answer::Error { xid, error });
            }
        }
    }

    fn answer(&mut self, answer: Answer) {
        if self.answers.len() < CONTROL_RECEIVES {
            self.answers.push_back(answer);
        } else {
            self.flooded = true;
        }
    }

    /// The peer says what it is. It is told what we are, however often it asks.
    fn take_initial(&mut self, xid: u32, init: &InitXch, first: bool) {
        self.counters.taken += 1;
        if self.peer.has_said() {
            self.counters.ignored += init.start.len() as u64;
        } else {
            self.peer.handle_initial(init, self.own.registry());
            match self.agreement.handle_offer(init, first) {
                Ok(Some(design)) => self.own.say_design(design),
                Ok(None) => {}
                Err(_) => self.counters.no_design += 1,
            }
        }
        self.answer(Answer::Initial { xid });
    }

    /// The peer answers with what it is.
    fn take_initial_answer(&mut self, xid: u32, init: &InitXch, first: bool) {
        let ours = |what: &What| *what == What::Initial;
        if self.answered(xid, ours).is_none() {
            self.counters.stray_replies += 1;
            return;
        }
        self.counters.taken += 1;
        self.opening = Opening::Done;
        if self.peer.has_said() {
            self.counters.ignored += init.start.len() as u64;
            return;
        }
        self.peer.handle_initial(init, self.own.registry());
        if self.agreement.handle_choice(init, first).is_err() {
            self.counters.no_design += 1;
        }
    }

    fn take_request(&mut self, xid: u32, request: &ReqXch) {
        self.counters.taken += 1;
        let response = self.own.handle_request(request, &mut self.events);
        self.answer(Answer::Response { xid, response });
    }

    fn take_response(&mut self, xid: u32, response: RespXch) {
        let request = |what: &What| matches!(what, What::Request(_));
        let Some(What::Request(ids)) = self.answered(xid, request) else {
            self.counters.stray_replies += 1;
            return;
        };
        self.counters.taken += 1;
        self.counters.odd_responses += u64::from(!response.is_answer_to(ids.len()));
        self.peer.handle_response(&ids, response, &mut self.events);
    }

    fn take_update(&mut self, update: UpdXch) {
        self.counters.taken += 1;
        let registry = self.own.registry();
        match self.peer.handle_update(update, registry, &mut self.events) {
            None => self.counters.ignored += 1,
            Some(Update::Stray) => self.counters.stray_ends += 1,
            Some(Update::Unsolicited | Update::Intermediate | Update::Final) => {}
        }
    }

    fn refresh(&mut self) {
        self.peer_receives = self.peer.awaited_receive_size();
    }
}

fn call(xid: u32, operation: Operation) -> Message {
    let optional = operation.to_optional(Direction::Call);
    Message::Optional { xid, optional }
}

impl Counters {
    fn count(&mut self, oddities: Oddities) {
        self.unknown += oddities.unknown as u64;
        self.trailing += oddities.trailing as u64;
        self.bits_for_nothing += oddities.bits_for_nothing as u64;
    }
}
