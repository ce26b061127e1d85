//! A connection that may use version two: the connection of version one, with a session above it.
//!
//! It settles the version, passes control messages to the session, and replaces what is
//! [agreed](Agreed) when the session agrees on something else.

mod ietf07;
mod messages;
mod negotiation;

use self::ietf07::Exchange;
use super::characteristics::{BackwardRequestSupport, BackwardSupport, ReceiveSize, XcharVal};
use super::codec::codec;
use super::config::Config;
use super::dialect::Dialect;
use super::header::WordLayout;
use super::ietf07::Properties;
use super::session::own::TellError;
use super::session::peer::RequestError;
use super::session::sizes::RaiseError;
use super::session::{self, Session};
use super::versions::Versions;
use crate::agreed::{Agreed, OurCalls, Sizes};
use crate::connection;
use crate::counters::Counters;
use crate::event::{CallId, Event, MemoryNeed, Violation};
use crate::invalidation::design::Design;
use crate::invalidation::rule::{Accepts, Rule};
use crate::message::CallRequest;
use crate::owner::Owner;
use crate::plan::Chunks;
use crate::requester::Requester;
use crate::requester::{FailedCall, Unfinished};
use crate::responder::Pulls;
use crate::role::Role;
use crate::version::Version;
use crate::wire::direction::Direction;
use crate::wire::private_data::PrivateData;
use crate::wire::threshold::{InlineThreshold, Thresholds};
use crate::xid::Xids;
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use oncrpc::{Reply, ReplyRoom};
use std::time::{Duration, Instant};
use tracing::trace;
use verbs::{Completion, Limits, QueuePair, WorkRequest};

/// Protocol state of one connection, without I/O: its owner passes in completions and posts the
/// work that comes out.
#[derive(Debug)]
pub struct Connection<O: Owner> {
    /// The connection of version one, with both roles.
    pub(crate) core: connection::Connection<O>,
    versions: Versions,
    /// Whether version one is used on the assumption that the peer lacks version two.
    one_is_assumed: bool,
    dialect: Dialect,
    phase: Phase,
    xids: Xids,
    /// The session, if version two may be used or is.
    session: Option<Box<Session>>,
    /// The exchange of properties in ietf-07, which takes its place.
    exchange: Option<Box<Exchange>>,
    /// Parameters of version one, by private data.
    one: Agreed,
    /// Size of Receives once version two is settled, if larger than before.
    raise_to: InlineThreshold,
    /// Bytes of the largest message that this end would ever send in version two.
    largest_sent: usize,
    /// Whether every handle of this end may be invalidated remotely.
    all_may_go: bool,
    /// Whether the use of version two permits invalidation of any handle (reminv §4.1).
    by_version: bool,
    /// Credits that the peer's last control message requested.
    control_asked: u32,
    /// Bytes of the largest message that this end's private data permits to the peer.
    announced: usize,
    oversized: Option<Oversized>,
}

/// A message of the peer that was longer than this end had announced that it receives. A provider
/// whose Receives are no larger than announced ends the connection for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversized {
    /// Bytes of the message.
    pub bytes: usize,
    /// Bytes that were announced (RFC 8797 §4.2, xcharext §3.1), or that a first message of version
    /// two may have (cel-01 §5).
    pub limit: usize,
}

/// Largest messages without chunks, in bytes of the RPC message: without the transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineSizes {
    /// Largest call.
    pub call: usize,
    /// Largest reply.
    pub reply: usize,
}

/// Phase of version negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A client has offered version two in a message with this XID, and sends nothing else until it
    /// is answered (cel-01 §5).
    Offered { xid: u32 },
    /// A server waits for the first valid header of its client.
    Listening,
    /// The version is settled.
    Settled,
}

impl<O: Owner> Connection<O> {
    /// Creates the state of a new connection on a queue pair with these limits, on which the
    /// [initial Receives](Config::initial_receives) are posted. `peer` is the peer's private data,
    /// if it sent any.
    ///
    /// # Panics
    ///
    /// If R is set although memory is exposed that must not be invalidated remotely, if shared
    /// Receives are smaller than the size announced to the peer, or if the characteristics
    /// contradict each other or do not fit a message of 1024 bytes.
    pub fn new(config: &Config, owner: O, peer: Option<PrivateData>, limits: &Limits) -> Self {
        let core = connection::Connection::new(&config.settings(), owner, peer, limits);
        let by_version = config.by_version(limits);
        let mut this = Self {
            versions: config.versions,
            one_is_assumed: false,
            dialect: config.dialect,
            phase: Phase::Settled,
            xids: config.xids.clone(),
            session: config.session(limits).map(Box::new),
            exchange: config
                .may_count_messages()
                .then(|| Box::new(Exchange::new(config, limits))),
            one: core.shared.agreed,
            raise_to: config.characteristics.raise_to,
            largest_sent: config.characteristics.largest_sent.bytes(),
            all_may_go: config.own.remote_invalidation || by_version,
            by_version,
            control_asked: 0,
            announced: config.own.receive.bytes(),
            oversized: None,
            core,
        };
        match (config.role, config.versions) {
            (_, Versions::One) => {}
            (Role::Client, Versions::Two | Versions::Auto) => this.offer(),
            // ietf-07 §4.3: the client speaks first, and the server says its properties then.
            (Role::Server, Versions::Two) if this.exchange.is_some() => {
                this.unsettle(Phase::Listening);
            }
            (Role::Server, Versions::Two) => this.settle(Version::Two),
            (Role::Server, Versions::Auto) => this.unsettle(Phase::Listening),
        }
        this
    }

    /// Assumes version one, because the peer lacked version two some time ago. If the peer turns
    /// out to support only version two by now, the connection ends with
    /// [`Violation::NoCommonVersion`], and the call that showed it is unfinished.
    pub fn assume_version_one(&mut self) {
        self.one_is_assumed = self.versions == Versions::One;
    }

    /// Returns an XID for a message of this end that no caller asked for, such as a liveness probe.
    /// No call in flight has it. A later call may choose the same one: it is sent after the message
    /// was answered.
    pub fn next_xid(&self) -> u32 {
        unused_xid(&self.xids, &self.core.requester)
    }

    /// Returns the XID source of this connection's own calls.
    pub fn xids(&self) -> Xids {
        self.xids.clone()
    }

    /// Returns the version; `None` until it is settled. Until then no call can be sent.
    pub fn version(&self) -> Option<Version> {
        match self.phase {
            Phase::Offered { .. } | Phase::Listening => None,
            Phase::Settled if self.session.is_some() || self.exchange.is_some() => {
                Some(Version::Two)
            }
            Phase::Settled => Some(Version::One),
        }
    }

    /// Returns the dialect of version two.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns the largest message of each direction, rounded to KiB. It may change in version two.
    pub fn thresholds(&self) -> Thresholds {
        self.core.thresholds()
    }

    /// Returns the sizes of the largest messages of this end's calls that need no chunk. They may
    /// change in version two.
    pub fn inline_sizes(&self) -> InlineSizes {
        let (header, sizes) = (
            self.core.shared.agreed.codec.plain_len(Direction::Call),
            self.core.shared.agreed.sizes,
        );
        InlineSizes {
            call: sizes.send.saturating_sub(header),
            reply: sizes.reply.saturating_sub(header),
        }
    }

    /// Returns the peer's private data, or the default.
    pub fn peer(&self) -> PrivateData {
        self.core.peer()
    }

    /// Returns the design by which the peer's replies may invalidate handles of this end (reminv
    /// §4), if any. In version two it is known once the peer's characteristics are.
    pub fn design(&self) -> Option<Design> {
        if self.core.shared.agreed.accepts == Accepts::Nothing {
            return None;
        }
        let agreed = match self.exchange {
            Some(_) => Some(Design::PerCall),
            None => self.session().and_then(Session::design),
        };
        let by_version = self.by_version && self.version() == Some(Version::Two);
        Some(agreed.unwrap_or(match by_version {
            true => Design::PerVersion,
            false => Design::PerConnection,
        }))
    }

    /// Returns the largest chunk that this end offers in bytes: the configured one, or what the
    /// provider registers or moves at once if that is less.
    pub fn max_chunk(&self) -> usize {
        self.core.shared.max_chunk
    }

    /// Returns how many calls of this end may be in flight at a time.
    pub fn credits(&self) -> u32 {
        self.core.shared.flow.in_force()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.core.shared.counters
    }

    /// Whether a credit is available for a call of this end.
    pub fn can_call(&self) -> bool {
        self.room() > 0
    }

    /// Returns how many calls of this end have a credit now, without the credit reserved for
    /// liveness probes. 0 until the version is settled, on a server until the client is ready, and
    /// while a call waits for room.
    pub fn room(&self) -> usize {
        self.core.room()
    }

    /// Whether a credit is available for a [liveness probe](CallRequest::as_health_check).
    pub fn can_check_health(&self) -> bool {
        self.core.can_check_health()
    }

    /// Declares on a server that the client is ready for calls, as the upper layer has learnt (RFC
    /// 8167 §6).
    pub fn handle_client_ready(&mut self) {
        self.core.requester.handle_ready();
    }

    /// Returns the size of the largest recent reply, which a larger Receive would have let fit one
    /// Send, without results in Write chunks. Resets it.
    pub fn take_largest_reply(&mut self) -> usize {
        std::mem::take(&mut self.core.shared.largest_reply)
    }

    /// Returns the credits that the next reply grants at most.
    pub fn grant(&self) -> u32 {
        self.core.shared.flow.granted()
    }

    /// Returns the largest grant.
    pub fn most_granted(&self) -> u32 {
        self.core.shared.flow.most_granted()
    }

    /// Returns the credits that the last call of the peer requested; 0 before the first call.
    pub fn asked_by_peer(&self) -> u32 {
        self.core.shared.flow.asked_by_peer()
    }

    /// Returns the number of Receives that are posted, or about to be: of these a lower grant takes back none that is
    /// posted. Counts no Receives that are shared.
    pub fn receives_held(&self) -> usize {
        self.core.shared.flow.receives_held()
    }

    /// Sets the credits that replies grant from the next one on, clamped to 1 to the maximum of the
    /// [`Config`]. May be called at any time: a peer with a larger grant has Receives for as many
    /// calls until it learns of the new one.
    pub fn set_grant(&mut self, credits: u32) {
        self.core.set_grant(credits);
    }

    /// Returns the number of this end's unfinished calls, cancelled and waiting ones included.
    pub fn calls_out(&self) -> usize {
        self.core.requester.len()
    }

    /// Returns the number of this end's calls that wait for a credit or for room for their regions.
    pub fn calls_waiting(&self) -> usize {
        self.core.requester.waiting()
    }

    /// Returns the number of the peer's calls in service.
    pub fn calls_in(&self) -> usize {
        self.core.responder.len()
    }

    /// Returns the number of this end's handles that the peer can use.
    pub fn exposed(&self) -> usize {
        self.core.requester.exposed()
    }

    /// Whether nothing is left to post, and nothing is outstanding but Receives.
    pub fn is_quiet(&self) -> bool {
        self.core.shared.posts.is_empty()
    }

    /// Frees memory of tables and queues that are empty. For when the peer makes no calls for a while.
    pub fn trim(&mut self) {
        self.core.trim();
    }

    /// Returns why the connection must be closed, if it must.
    pub fn violation(&self) -> Option<Violation> {
        self.core.shared.violation
    }

    /// Returns the first message of the peer that was longer than announced, if there was one. Each
    /// is processed, and [counted](Counters::oversized).
    pub fn oversized(&self) -> Option<Oversized> {
        self.oversized
    }

    /// Handles a completion.
    pub fn handle_completion(&mut self, completion: Completion) {
        trace!(?completion, "done");
        match completion {
            Completion::Receive {
                buffer,
                invalidated: None,
                ..
            } => self.handle_message(buffer, None),
            Completion::Receive {
                buffer,
                invalidated,
                ..
            } => self.handle_message(buffer, invalidated),
            // Nearly all others, which are not moved for that.
            Completion::Send { wr } | Completion::Write { wr } => self.core.handle_sent(wr),
            other => self.core.handle_completion(other),
        }
    }

    /// Takes a call, and sends it if there is a credit and room for its regions. Otherwise it
    /// waits, in order, until [`send_waiting`](Self::send_waiting) finds room. Memory is registered
    /// on `qp`, the queue pair of this connection, so that handles are known when the call is
    /// encoded.
    ///
    /// # Errors
    ///
    /// If this connection cannot carry the call.
    pub fn call(
        &mut self,
        now: Instant,
        request: CallRequest<O::Call>,
        qp: &mut dyn QueuePair,
    ) -> Result<(), FailedCall<O::Call>> {
        self.core.call(now, request, qp)
    }

    /// Sends waiting calls as far as there is room. A call that this connection can no longer carry
    /// ends with an event.
    pub fn send_waiting(&mut self, now: Instant, qp: &mut dyn QueuePair) {
        self.core.send_waiting(now, qp);
    }

    /// Returns the send time of this end's oldest outstanding call, cancelled or not. If it is too
    /// long ago, only the end of the connection recovers its credit and memory.
    pub fn oldest_call(&self) -> Option<Instant> {
        self.core.requester.oldest(&self.core.shared)
    }

    /// Returns the exceeded time limit if a call in flight is overdue: the longest
    /// [limit](CallRequest::set_limit) of a call, or `usual`. Cancelled calls count too.
    pub fn overdue_call(&self, now: Instant, usual: Duration) -> Option<Duration> {
        self.core.requester.overdue(&self.core.shared, now, usual)
    }

    /// Stops sending calls, because this end is about to close the connection. Calls not sent yet
    /// are among the [unfinished](Self::into_unfinished), and the peer never sees them.
    pub fn withhold_calls(&mut self) {
        self.core.withhold_calls();
    }

    /// Returns the owner's values of unfinished calls.
    pub fn calls(&self) -> impl Iterator<Item = &O::Call> {
        self.core.requester.values()
    }

    /// Cancels the calls that `is_unwanted` selects, and drops the owner's values of them; they
    /// cause no event. Returns their number. A sent call keeps its credit and memory until its
    /// reply; a waiting call ends at once. A call whose reply has arrived is not affected.
    pub fn cancel(&mut self, is_unwanted: impl FnMut(&O::Call) -> bool) -> usize {
        self.core.cancel(is_unwanted)
    }

    /// Answers a call of the peer.
    pub fn reply(&mut self, id: CallId<O::Lease>, reply: Reply) {
        self.core.reply(id, reply);
    }

    /// Returns the progress of pulling, while the peer owes chunks: numbers that stay the same for
    /// long mean that the peer does not send them. Chunks are not counted one by one; otherwise a
    /// peer could hold the memory of a call longer, the more chunks it has.
    pub fn waits_for_chunks(&self) -> Option<Pulls> {
        self.core.waits_for_chunks()
    }

    /// Returns the progress of Sends, while one waits for credits of the peer: numbers that stay the
    /// same for long mean that it grants none.
    pub fn waits_for_credits(&self) -> Option<Pulls> {
        self.core.waits_for_credits()
    }

    /// Returns the number of the peer's calls that wait for memory.
    pub fn calls_waiting_for_memory(&self) -> usize {
        self.core.responder.waiting_for_memory()
    }

    /// Returns the memory that the next call of the peer needs, for its chunks and those of its
    /// reply. The owner provides it with [`handle_memory`](Self::handle_memory), or calls
    /// [`handle_no_memory`](Self::handle_no_memory).
    pub fn poll_memory(&self) -> Option<MemoryNeed<'_>> {
        self.core.needs_memory()
    }

    /// Returns the capacity for the reply to a call, inline and in the offered chunks.
    pub fn reply_room(&self, id: &CallId<O::Lease>) -> ReplyRoom {
        self.core.reply_room(id)
    }

    /// Provides the memory that [`poll_memory`](Self::poll_memory) asked for. The lease is kept
    /// until the call ends.
    pub fn handle_memory(&mut self, lease: O::Lease) {
        self.core.handle_memory(lease);
    }

    /// Reports that no memory is available now. Calls of the peer wait for it, and are counted
    /// once.
    pub fn handle_no_memory(&mut self) {
        self.core.handle_no_memory();
    }

    /// Returns the next work request to post.
    pub fn poll_post(&mut self) -> Option<WorkRequest> {
        let shared = &mut self.core.shared;
        if shared.flow.messages().is_none() && shared.posts.has_next() {
            // It is looked at where it is, as it is large to move.
            let next = shared.posts.peek();
            trace!(work = ?next, "posted; nothing is a Receive");
            shared.counters.inline_bytes_sent += next.map_or(0, bytes_of_send);
            return shared.posts.next();
        }
        let next = self.core.poll_post();
        let next = next.or_else(|| match self.exchange {
            Some(_) => self.poll_grant(),
            None => self.poll_control(),
        })?;
        trace!(work = ?next, "posted");
        self.core.shared.counters.inline_bytes_sent += bytes_of_send(&next);
        Some(next)
    }

    /// Takes back a work request for which the provider had no room. It is returned again before
    /// any other.
    pub fn handle_refused(&mut self, work: WorkRequest) {
        self.core.shared.counters.inline_bytes_sent -= bytes_of_send(&work);
        self.core.handle_refused(work);
    }

    /// Returns the next event: ends of this end's calls before calls of the peer.
    pub fn poll_event(&mut self) -> Option<Event<O>> {
        let reply = self.poll_reply();
        reply
            .map(|(call, reply)| Event::Reply { call, reply })
            .or_else(|| {
                let (id, message) = self.poll_call()?;
                Some(Event::Call { id, message })
            })
    }

    /// Whether a call of this end has ended without an event yet.
    pub fn has_replies(&self) -> bool {
        !self.core.shared.replies.is_empty()
    }

    /// Returns the next finished call of this end, by the owner's value.
    pub fn poll_reply(&mut self) -> Option<(O::Call, Result<Payload, TransportError>)> {
        self.core.poll_reply()
    }

    /// Whether a call of the peer has not been handed out yet.
    pub fn has_calls(&self) -> bool {
        !self.core.shared.calls.is_empty()
    }

    /// Returns the next call of the peer, reassembled. Answer it with [`reply`](Self::reply).
    pub fn poll_call(&mut self) -> Option<(CallId<O::Lease>, Payload)> {
        self.core.poll_call()
    }

    /// Ends the state after the connection has ended, which invalidated every handle. Returns the
    /// unfinished calls.
    pub fn into_unfinished(self) -> Vec<Unfinished<O::Call>> {
        self.core.into_unfinished(true)
    }

    /// Like [`into_unfinished`](Self::into_unfinished), for a connection that this end gave up
    /// because its peer was silent. The loss does not count against [its
    /// calls](crate::CallRequest::losses).
    pub fn into_unanswered(self) -> Vec<Unfinished<O::Call>> {
        self.core.into_unfinished(false)
    }

    /// Returns the session with the characteristics of both ends; `None` in version one.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// Returns the transport properties of the peer, once it has said them; `None` in other dialects
    /// than ietf-07 (§5).
    pub fn peer_properties(&self) -> Option<&Properties> {
        self.exchange.as_deref().and_then(Exchange::peer)
    }

    /// Asks the peer to change its characteristics to these values (xcharext §4.2). Each request
    /// ends with an event, or with the connection.
    ///
    /// # Errors
    ///
    /// If one of them cannot be requested, or there are no characteristics. Then none is requested.
    pub fn request_peer(&mut self, want: Vec<XcharVal>) -> Result<(), RequestError> {
        let none = Err(RequestError::PeerTakesNone);
        self.change(none, |session| session.request_peer(want))
    }

    /// Raises the size of Receives posted from now on. The peer is notified once no smaller one is
    /// left, which takes messages that use them up.
    ///
    /// # Errors
    ///
    /// If the peer cannot be notified, the size exceeds the maximum or is less than the current
    /// one, or the peer has asked for less.
    pub fn raise_receive_size(&mut self, to: ReceiveSize) -> Result<(), RaiseError> {
        let none = Err(RaiseError::Unsupported);
        self.change(none, |session| session.raise_receive_size(to))
    }

    /// Notifies the peer of a new value of a registered characteristic.
    ///
    /// # Errors
    ///
    /// If the characteristic cannot have that value, or the peer cannot be notified.
    pub fn tell_peer(&mut self, value: XcharVal) -> Result<(), TellError> {
        let none = Err(TellError::Unsupported);
        self.change(none, |session| session.tell(value))
    }

    /// Settles the peer's request for a registered characteristic, with its current value.
    ///
    /// # Errors
    ///
    /// If no request is pending, or the characteristic cannot have that value.
    pub fn settle_request(&mut self, value: XcharVal) -> Result<(), TellError> {
        let none = Err(TellError::Unsupported);
        self.change(none, |session| session.settle(value))
    }

    /// Returns the next event about characteristics.
    pub fn poll_characteristics(&mut self) -> Option<session::Event> {
        self.session.as_deref_mut()?.poll_event()
    }

    fn change<T>(&mut self, none: T, change: impl FnOnce(&mut Session) -> T) -> T {
        self.with_session(change).unwrap_or(none)
    }
}

/// Agreed values.
impl<O: Owner> Connection<O> {
    /// Changes the session, and applies the result.
    fn with_session<T>(&mut self, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let done = self.session.as_deref_mut().map(change);
        self.agree();
        done
    }

    /// Applies the parameters of the session, in version two.
    fn agree(&mut self) {
        let Some(session) = self.session.as_deref_mut() else {
            return;
        };
        if session.is_flooded() {
            self.core.shared.fail(Violation::ControlFlood);
        }
        if session.is_unclear() {
            self.core.shared.fail(Violation::UnclearDesign);
        }
        self.core.requester.reserve_xids(session.outstanding_xids());
        if self.phase != Phase::Settled {
            return;
        }
        if session.awaits_calls() {
            self.core.requester.mark(&self.core.shared);
            if self.core.requester.marked() == 0 {
                session.handle_calls_drained();
            }
        } else {
            self.core.requester.forget_mark();
        }
        if let Some(session) = self.session.as_deref() {
            let agreed = self.agreed(session);
            self.core.agree(agreed);
        }
    }

    /// Returns the parameters that the session has agreed on.
    fn agreed(&self, session: &Session) -> Agreed {
        let two = Version::Two;
        let design = session.design();
        let backward = |support| match support {
            BackwardSupport::None => {
                OurCalls::Never("the peer takes no calls (BKREQSUP_NONE, xcharext §3.3)")
            }
            BackwardSupport::Inline => OurCalls::Sent(Chunks::Refused),
            BackwardSupport::General => OurCalls::Sent(Chunks::Allowed),
        };
        let (our_calls, peer_chunks) = match self.core.role() {
            Role::Server => (backward(session.backward()), self.one.peer_chunks),
            Role::Client => match session.own::<BackwardRequestSupport>() {
                BackwardSupport::General => (self.one.our_calls, Chunks::Allowed),
                BackwardSupport::None | BackwardSupport::Inline => {
                    (self.one.our_calls, self.one.peer_chunks)
                }
            },
        };
        Agreed {
            codec: codec(self.dialect, WordLayout::of(design)),
            versions: (two, two),
            mismatch: None,
            sizes: Sizes {
                send: session.send_limit(),
                last_resort: session.last_resort_limit(),
                largest_sent: self.largest_sent,
                reply: session.reply_limit(),
                receive: session.receive_size(),
                ..self.one.sizes
            },
            our_calls,
            peer_chunks,
            rule: match design {
                Some(design) => Rule::By(design),
                // reminv §4.1: always, unless the peer has a way to say otherwise (xcharext §3.2).
                None if self.by_version && !session.peer_names_characteristics() => {
                    Rule::By(Design::PerVersion)
                }
                None if !session.peer_allows_invalidation() => Rule::Never,
                None if self.by_version => Rule::By(Design::PerVersion),
                None if self.all_may_go => Rule::By(Design::PerConnection),
                None => Rule::Never,
            },
            accepts: Accepts::of(design, self.all_may_go),
            peer_announces: true,
        }
    }
}

/// Returns the next XID that neither a call in flight has nor a control message without an answer.
fn unused_xid<O: Owner>(xids: &Xids, requester: &Requester<O>) -> u32 {
    loop {
        let xid = xids.next();
        if !requester.uses(xid) {
            return xid;
        }
    }
}

/// Returns the bytes of the message that this work request sends, if it is a Send.
#[inline]
fn bytes_of_send(work: &WorkRequest) -> u64 {
    match work {
        WorkRequest::Send { buffer, rest, .. } => (buffer.len() + buffer::gather_len(rest)) as u64,
        WorkRequest::Receive { .. }
        | WorkRequest::Write { .. }
        | WorkRequest::Read { .. }
        | WorkRequest::Invalidate { .. } => 0,
    }
}
