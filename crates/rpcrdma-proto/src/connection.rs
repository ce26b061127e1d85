//! Protocol state of one connection: both roles, and their shared state.
//!
//! This is version one, complete. How it handles a message depends only on the [`Agreed`] value;
//! version two is a layer above that replaces this value.

use crate::agreed::Agreed;
use crate::codec::{Body, Header, Invalid, Refused, Rejection};
use crate::counters::Counters;
use crate::event::{CallId, Ended, MemoryNeed, Violation};
use crate::flow::{Allowance, FlowControl, Grant, Need};
use crate::invalidation::persistent::{PersistentArguments, PersistentPool};
use crate::invalidation::registration::{Registration, Registrations};
use crate::limits::{MAX_CALLS_IN_SERVICE, MAX_CREDITS, PART_RECEIVES, RECEIVE_SLACK};
use crate::message::CallRequest;
use crate::owner::Owner;
use crate::receives::{ReceiveQueue, Receives};
use crate::requester::{FailedCall, NewReply, Requester, Unfinished};
use crate::responder::{NewCall, Pulls, Responder, StreamAt};
use crate::role::Role;
use crate::shared::{Shared, receive};
use crate::v2::ietf07::RdmaError;
use crate::version::Refusal;
use crate::wire::direction::Direction;
use crate::wire::private_data::PrivateData;
use crate::wire::threshold::{InlineThreshold, Thresholds};
use crate::work::{Posts, Purpose};
use buffer::{Buffer, Pool};
use oncrpc::xdr::Payload;
use oncrpc::{Reply, ReplyRoom};
use std::collections::VecDeque;
use std::time::Instant;
use verbs::{Completion, Invalidated, Limits, QueuePair, WorkError, WorkRequest, WrId};

/// Settings of one end of a connection, for every version.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) role: Role,
    pub(crate) own: PrivateData,
    /// Credits to request, or the largest grant.
    pub(crate) credits: u32,
    /// Credits that a server grants at first; 0 for all.
    pub(crate) first_grant: u32,
    /// Credits of the backward direction.
    pub(crate) backward_credits: u32,
    pub(crate) reserve_credit: bool,
    pub(crate) max_chunk: usize,
    pub(crate) max_segment: usize,
    pub(crate) registrations: Registrations,
    pub(crate) persistent: Option<PersistentArguments>,
    pub(crate) one_region: bool,
    pub(crate) receives: Receives,
    /// Whether credits may count messages, some of which are parts of replies.
    pub(crate) counts_messages: bool,
    /// Initial size of each Receive in bytes.
    pub(crate) receive_size: usize,
    pub(crate) pool: Pool,
}

impl Settings {
    fn credits_forward(&self) -> u32 {
        self.credits.clamp(1, MAX_CREDITS)
    }

    fn credits_backward(&self) -> u32 {
        self.backward_credits.min(MAX_CREDITS)
    }

    /// Returns the credits for calls of this end, and of the peer.
    fn both_credits(&self) -> (u32, u32) {
        match self.role {
            Role::Client => (self.credits_forward(), self.credits_backward()),
            Role::Server => (self.credits_backward(), self.credits_forward()),
        }
    }

    /// Returns the credits that are granted to the peer at first.
    fn first_grant(&self) -> u32 {
        let (_, of_peer) = self.both_credits();
        match (self.role, self.receives, self.first_grant) {
            (Role::Client, ..) | (_, Receives::Shared { .. }, _) | (_, _, 0) => of_peer,
            (Role::Server, Receives::Posted, first) => first.min(of_peer),
        }
    }

    /// Returns the Receives for messages beyond the credits.
    fn spare_receives(&self) -> usize {
        match self.counts_messages {
            true => RECEIVE_SLACK + PART_RECEIVES as usize,
            false => RECEIVE_SLACK,
        }
    }

    /// Returns the largest number of Receives posted at a time.
    pub(crate) fn posted_receives(&self) -> usize {
        match self.receives {
            Receives::Posted => {
                (self.credits_forward() + self.credits_backward()) as usize + self.spare_receives()
            }
            Receives::Shared { .. } => 0,
        }
    }

    /// Returns the number of initial Receives: one for each call that the peer may send, and none
    /// for replies, because no call is in flight (RFC 8166 §3.3.1, RFC 8167 §4.3).
    fn first_receives(&self) -> usize {
        match self.receives {
            Receives::Posted => self.first_grant() as usize + self.spare_receives(),
            Receives::Shared { .. } => 0,
        }
    }

    /// Returns the Receives to post before the connection is made (RFC 8166 §3.3.2).
    pub(crate) fn initial_receives(&self) -> Vec<WorkRequest> {
        (0..self.first_receives())
            .map(|_| receive(self.pool.take(self.receive_size)))
            .collect()
    }

    fn flow_control(&self, limits: &Limits) -> FlowControl {
        let (of_us, of_peer) = self.both_credits();
        let of_peer = match (self.counts_messages, self.receives) {
            // Every message needs one, and some are for no call.
            (true, Receives::Posted) => {
                let room = limits.receives.saturating_sub(self.spare_receives());
                u32::try_from(room).map_or(of_peer, |room| room.min(of_peer))
            }
            (true, Receives::Shared { .. }) | (false, _) => of_peer,
        };
        // Each reply needs a Receive (RFC 8166 §3.3.1). One that the provider has no room for would be
        // in the way of all that is to be sent.
        let room = match self.receives {
            Receives::Posted => {
                let of_calls = of_peer as usize + self.spare_receives();
                limits.receives.saturating_sub(of_calls)
            }
            Receives::Shared { .. } => usize::MAX,
        };
        let of_us = u32::try_from(room).map_or(of_us, |room| room.min(of_us));
        let reserve = self.reserve_credit && self.role == Role::Client;
        let mut flow = FlowControl::new(
            Allowance::new(of_us, reserve),
            Grant::new(of_peer, self.first_grant()),
            ReceiveQueue::new(self.receives, self.first_receives(), self.receive_size),
        );
        flow.count_messages(self.counts_messages);
        flow
    }
}

/// Protocol state of one connection, with both roles.
#[derive(Debug)]
pub(crate) struct Connection<O: Owner> {
    role: Role,
    peer: PrivateData,
    pub(crate) shared: Shared<O>,
    pub(crate) requester: Requester<O>,
    pub(crate) responder: Responder<O>,
}

impl<O: Owner> Connection<O> {
    /// Creates the state of a new connection on a queue pair with these limits, on which the
    /// [initial Receives](Settings::initial_receives) are posted. `peer` is the peer's private
    /// data, if it sent any.
    ///
    /// # Panics
    ///
    /// If R is set although memory is exposed that must not be invalidated remotely.
    pub(crate) fn new(
        settings: &Settings,
        owner: O,
        peer: Option<PrivateData>,
        limits: &Limits,
    ) -> Self {
        let own = settings.own;
        let peer = peer.unwrap_or(PrivateData::ABSENT);
        let persistent = settings.registrations.has(Registration::Persistent);
        assert!(
            !own.remote_invalidation || !persistent,
            "R is set only if every handle may be invalidated remotely (RFC 8797 §3.2)"
        );
        assert!(
            settings.persistent.is_none() || persistent,
            "what is exposed is to be known"
        );
        let max_chunk = settings.max_chunk.min(limits.max_region);
        let max_chunk = max_chunk.min(limits.max_message as usize);
        let flow = settings.flow_control(limits);
        let persistent = PersistentPool::new(settings.persistent, limits);
        let ready = settings.role == Role::Client;
        Self {
            role: settings.role,
            peer,
            requester: Requester::new(flow.asked(), ready, persistent),
            responder: Responder::new(),
            shared: Shared {
                owner,
                agreed: Agreed::version_one(settings.role, own, peer, settings.receive_size),
                terms: 0,
                flow,
                limits: limits.clone(),
                max_chunk,
                max_segment: match settings.max_segment {
                    // Its length is a word.
                    0 => max_chunk.clamp(1, u32::MAX as usize),
                    bytes => bytes.min(u32::MAX as usize),
                },
                max_parts: match settings.one_region {
                    true => limits.parts,
                    false => 0,
                },
                pool: settings.pool.clone(),
                posts: Posts::new(limits.sends),
                replies: VecDeque::new(),
                calls: VecDeque::new(),
                counters: Counters::default(),
                violation: None,
                largest_reply: 0,
            },
        }
    }

    /// Frees memory of tables and queues that are empty.
    pub(crate) fn trim(&mut self) {
        self.responder.trim();
        self.shared.posts.trim();
        if self.shared.calls.is_empty() {
            self.shared.calls = VecDeque::new();
        }
    }

    /// Replaces the agreed parameters.
    pub(crate) fn agree(&mut self, agreed: Agreed) {
        if !agreed.plans_as(&self.shared.agreed) {
            self.shared.terms = self.shared.terms.wrapping_add(1);
        }
        self.shared.agreed = agreed;
    }

    /// Returns the role of this end.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Returns the largest message of each direction, rounded to KiB.
    pub(crate) fn thresholds(&self) -> Thresholds {
        let sizes = self.shared.agreed.sizes;
        Thresholds {
            send: InlineThreshold::at_most(sizes.send),
            receive: InlineThreshold::at_most(sizes.reply),
        }
    }

    /// Returns the peer's private data, or the default.
    pub(crate) fn peer(&self) -> PrivateData {
        self.peer
    }

    /// Returns how many calls of this end can be sent now.
    pub(crate) fn room(&self) -> usize {
        self.requester.room(&self.shared)
    }

    /// Whether a credit is available for a liveness probe.
    pub(crate) fn can_check_health(&self) -> bool {
        let need = Need::HealthCheck;
        self.requester.credits_for(&self.shared, need) > 0
    }

    /// Sets the credits that are granted to the peer.
    pub(crate) fn set_grant(&mut self, credits: u32) {
        self.shared.flow.set_granted(credits);
        self.shared.post_receives();
    }

    /// Handles a completion of what this end posted. Messages of the peer go through [`receive`](Self::receive) and
    /// [`route`](Self::route), as the version decides.
    pub(crate) fn handle_completion(&mut self, completion: Completion) {
        let shared = &mut self.shared;
        match completion {
            Completion::Receive { .. } => unreachable!("the version routes messages"),
            Completion::Send { wr } | Completion::Write { wr } => self.handle_sent(wr),
            Completion::Read { wr, sink } => {
                shared.posts.completed();
                if let Purpose::Pull { call, chunk } = Purpose::of(wr) {
                    self.responder.handle_read(shared, call, chunk, sink);
                }
            }
            Completion::Invalidate { wr, invalidated } => {
                shared.posts.completed();
                if let Purpose::Invalidate { call } = Purpose::of(wr) {
                    self.requester.handle_invalidated(shared, call, invalidated);
                }
            }
            Completion::Failed { wr, error } => self.handle_failed(Purpose::of(wr), error),
        }
    }

    /// Handles the completion of a Send or Write.
    pub(crate) fn handle_sent(&mut self, wr: WrId) {
        self.shared.posts.completed();
        match Purpose::of(wr) {
            Purpose::Reply { call } | Purpose::ReplyPart { call } => {
                self.responder.handle_sent(call);
            }
            Purpose::Call
            | Purpose::Control
            | Purpose::CallPart
            | Purpose::Grant
            | Purpose::Receive
            | Purpose::Invalidate { .. }
            | Purpose::Pull { .. } => {}
        }
    }

    fn handle_failed(&mut self, purpose: Purpose, error: WorkError) {
        let shared = &mut self.shared;
        let violation = match (error, purpose) {
            // The provider says itself why the connection is over.
            (WorkError::Flushed, _) => return,
            (WorkError::NoSuchHandle, Purpose::Invalidate { .. }) => Violation::LostHandle,
            (WorkError::RemoteAccess, Purpose::Pull { call, .. } | Purpose::Reply { call }) => {
                self.responder.handle_failed(shared, call);
                Violation::WorkFailed(error)
            }
            (WorkError::NoSuchHandle | WorkError::TooLong | WorkError::RemoteAccess, _) => {
                Violation::WorkFailed(error)
            }
        };
        shared.fail(violation);
    }

    /// Handles a message that is [plain](PlainHeader), and that invalidated nothing, as [`receive`](Self::receive) and
    /// [`route`](Self::route) do, without what there can be of chunks. Any other message goes back, and nothing has changed.
    pub(crate) fn receive_plain(&mut self, message: Buffer) -> Result<(), Buffer> {
        let Some(header) = self.shared.agreed.codec.parse_plain(&message) else {
            return Err(message);
        };
        match self.role.direction_of_inline(header.direction) {
            Direction::Reply => {
                let requester = &mut self.requester;
                requester.handle_plain_reply(&mut self.shared, header, message)
            }
            Direction::Call => {
                self.shared.flow.handle_message();
                self.take_call(header.credits, |responder, shared| {
                    responder.handle_plain_call(shared, header, message);
                });
                Ok(())
            }
        }
    }

    /// Passes a call that asks for so many credits to the Responder, if calls are taken.
    fn take_call(&mut self, asked: u32, take: impl FnOnce(&mut Responder<O>, &mut Shared<O>)) {
        let shared = &mut self.shared;
        if !shared.flow.takes_calls() {
            // Nobody here has said that calls are taken (RFC 8167 §6).
            shared.counters.discarded += 1;
            return;
        }
        shared.flow.handle_asked(asked);
        take(&mut self.responder, shared);
    }

    /// Handles a received message, and returns its header.
    pub(crate) fn receive(&mut self, message: &[u8]) -> Result<Header, Invalid> {
        self.shared.flow.handle_message();
        self.shared.agreed.codec.parse(message)
    }

    /// Posts a Receive in place of the used one, if a message may come for it.
    pub(crate) fn replace_receive(&mut self) {
        self.shared.post_receives();
    }

    /// Passes a message to its role, with the handle that the peer invalidated.
    pub(crate) fn route(
        &mut self,
        header: Result<Header, Invalid>,
        message: Buffer,
        invalidated: Option<Invalidated>,
    ) {
        let shared = &mut self.shared;
        let Header {
            xid,
            credits,
            stream,
            body,
        } = match header {
            Ok(header) => header,
            Err(invalid) => {
                shared.refuse_invalidation(invalidated);
                let owed = self.owed(invalid, &message);
                return self.responder.handle_invalid(&mut self.shared, owed);
            }
        };
        let rpc = match body {
            Body::Rpc(rpc) => rpc,
            Body::Error(refusal) => {
                let requester = &mut self.requester;
                return requester.handle_refused(shared, xid, refusal, invalidated);
            }
            Body::Done
            | Body::Control(_)
            | Body::Part { .. }
            | Body::Properties { .. }
            | Body::Grant => {
                shared.refuse_invalidation(invalidated);
                shared.counters.discarded += 1;
                return;
            }
        };
        let awaited = || self.requester.awaits(xid);
        match self.role.direction_of(&rpc, awaited) {
            Direction::Reply => {
                let reply = NewReply {
                    xid,
                    granted: credits,
                    header: rpc,
                    message,
                    stream,
                    invalidated,
                };
                self.requester.handle_reply(shared, reply);
            }
            Direction::Call => {
                shared.refuse_invalidation(invalidated);
                let call = NewCall {
                    xid,
                    asked: credits,
                    at: match rpc.long {
                        false => StreamAt::Message(stream),
                        true => StreamAt::FirstChunk,
                    },
                    lists: rpc.lists,
                    named: rpc.invalidate,
                    message,
                };
                self.take_call(credits, |responder, shared| {
                    responder.handle_call(shared, call);
                });
            }
        }
    }

    /// Returns how to answer an invalid header. RFC 8166 §4.5: a Requester discards a reply, and a
    /// client receives mostly replies. An error for a reply would be taken for the end of an
    /// unrelated call, so a server discards what may be a reply to a call of its own.
    fn owed(&self, invalid: Invalid, message: &[u8]) -> Option<Refused> {
        match invalid {
            Invalid::Nothing | Invalid::Reply { .. } => None,
            Invalid::OtherVersion => self.owed_for_version(message),
            Invalid::Malformed { refused, is_call } => {
                let awaited = self.requester.awaits(refused.xid);
                let may_be_reply = self.role == Role::Client || awaited;
                (is_call || !may_be_reply).then_some(refused)
            }
        }
    }

    /// Returns the ERR_VERS for a message of another version, with the versions of this end.
    fn owed_for_version(&self, message: &[u8]) -> Option<Refused> {
        let Refusal {
            xid,
            version,
            credits,
        } = Refusal::of(message, self.role, || false)?;
        // Whatever it says of its direction, the peer may take an error for the end of its call.
        if self.requester.awaits(xid) {
            return None;
        }
        let (low, high) = self.shared.agreed.versions;
        let rejection = match self.shared.agreed.mismatch {
            // ietf-07 §7.1.2: it is supported, but not on this connection.
            Some(other) if other.number() == version => {
                Rejection::Ietf07(RdmaError::VersionMismatch)
            }
            Some(_) | None => Rejection::Versions {
                low: low.number(),
                high: high.number(),
            },
        };
        Some(Refused {
            xid,
            version,
            credits,
            rejection,
        })
    }

    /// Takes a call, and sends it if there is room.
    pub(crate) fn call(
        &mut self,
        now: Instant,
        request: CallRequest<O::Call>,
        qp: &mut dyn QueuePair,
    ) -> Result<(), FailedCall<O::Call>> {
        self.requester.call(now, &mut self.shared, request, qp)
    }

    /// Sends waiting calls as far as there is room.
    pub(crate) fn send_waiting(&mut self, now: Instant, qp: &mut dyn QueuePair) {
        self.requester.send_waiting(now, &mut self.shared, qp);
    }

    /// Stops sending calls.
    pub(crate) fn withhold_calls(&mut self) {
        self.requester.withhold(&mut self.shared);
    }

    /// Cancels the calls that `is_unwanted` selects. Returns their number.
    pub(crate) fn cancel(&mut self, is_unwanted: impl FnMut(&O::Call) -> bool) -> usize {
        self.requester.cancel(&mut self.shared, is_unwanted)
    }

    /// Answers a call of the peer.
    pub(crate) fn reply(&mut self, id: CallId<O::Lease>, reply: Reply) {
        self.responder.reply(&mut self.shared, id, reply);
    }

    /// Returns the progress of pulling, while the peer owes chunks.
    pub(crate) fn waits_for_chunks(&self) -> Option<Pulls> {
        self.responder.waits_for_chunks()
    }

    /// Returns the progress of Sends, while one waits for credits of the peer.
    pub(crate) fn waits_for_credits(&self) -> Option<Pulls> {
        let done = self.shared.flow.sent_without_room()?;
        let waits = self.shared.posts.sends() > 0;
        waits.then_some(Pulls {
            begun: done + 1,
            done,
        })
    }

    /// Returns the memory that the next call of the peer needs.
    pub(crate) fn needs_memory(&self) -> Option<MemoryNeed<'_>> {
        self.responder.needs_memory(&self.shared)
    }

    /// Returns the capacity for the reply to a call of the peer.
    pub(crate) fn reply_room(&self, id: &CallId<O::Lease>) -> ReplyRoom {
        self.responder.reply_room(&self.shared, id.key)
    }

    /// Provides memory for the next call of the peer.
    pub(crate) fn handle_memory(&mut self, lease: O::Lease) {
        self.responder.handle_memory(&mut self.shared, lease);
    }

    /// Reports that no memory is available now.
    pub(crate) fn handle_no_memory(&mut self) {
        self.responder.handle_no_memory(&mut self.shared);
    }

    /// Returns the next work request to post.
    pub(crate) fn poll_post(&mut self) -> Option<WorkRequest> {
        let Shared { posts, flow, .. } = &mut self.shared;
        if flow.messages().is_none() {
            return posts.next();
        }
        let responder = &mut self.responder;
        posts.next_if(|work| match work {
            WorkRequest::Send { wr, buffer, .. } => {
                // The call that it ends makes room for the next.
                let ended = ended_by(*wr);
                if let Some(call) = ended {
                    responder.note_posted(call);
                }
                let window = flow.window(responder.messages_in_service(), responder.len());
                let messages = flow.messages().expect("looked at just now");
                let goes = messages.stamp(buffer, window);
                if let (Some(call), false) = (ended, goes) {
                    responder.forget_posted(call);
                }
                goes
            }
            WorkRequest::Receive { .. }
            | WorkRequest::Write { .. }
            | WorkRequest::Read { .. }
            | WorkRequest::Invalidate { .. } => true,
        })
    }

    /// Makes room for a message that goes before those that wait, and carries nothing but credits,
    /// if one is due. Returns how many messages the peer may have outstanding.
    pub(crate) fn poll_grant(&mut self) -> Option<u32> {
        let (in_service, calls) = (self.responder.messages_in_service(), self.responder.len());
        let window = self.shared.flow.window(in_service, calls);
        let messages = self.shared.flow.messages()?;
        let within = self.shared.posts.is_within_message();
        let goes = messages.grant_is_due(window, within) && self.shared.posts.pass();
        goes.then_some(window)
    }

    /// Takes back a work request for which the provider had no room.
    pub(crate) fn handle_refused(&mut self, work: WorkRequest) {
        if let WorkRequest::Send { wr, .. } = &work
            && let Some(messages) = self.shared.flow.messages()
        {
            messages.handle_refused();
            if Purpose::of(*wr) == Purpose::Grant {
                // It is made again, with what is due by then.
                return self.shared.posts.completed();
            }
            if let Some(call) = ended_by(*wr) {
                self.responder.forget_posted(call);
            }
        }
        self.shared.posts.put_back(work);
    }

    /// Returns the next finished call of this end.
    pub(crate) fn poll_reply(&mut self) -> Option<Ended<O>> {
        self.shared.replies.pop_front()
    }

    /// Returns the next call of the peer.
    pub(crate) fn poll_call(&mut self) -> Option<(CallId<O::Lease>, Payload)> {
        let shared = &mut self.shared;
        if shared.flow.messages().is_some() {
            let handed_out = self.responder.in_service() - shared.calls.len();
            if handed_out >= MAX_CALLS_IN_SERVICE {
                return None;
            }
        }
        shared.calls.pop_front()
    }

    /// Ends the state and returns the unfinished calls. If `counts`, those in flight have one more
    /// loss.
    pub(crate) fn into_unfinished(mut self, counts: bool) -> Vec<Unfinished<O::Call>> {
        self.requester.into_unfinished(&mut self.shared, counts)
    }
}

/// Returns the call of the peer whose reply this Send completes.
fn ended_by(wr: WrId) -> Option<u32> {
    match Purpose::of(wr) {
        Purpose::Reply { call } => Some(call),
        Purpose::Receive
        | Purpose::Call
        | Purpose::CallPart
        | Purpose::Grant
        | Purpose::Control
        | Purpose::Invalidate { .. }
        | Purpose::Pull { .. }
        | Purpose::ReplyPart { .. } => None,
    }
}
