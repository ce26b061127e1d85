//! One connection: both roles, sharing what is received.

use crate::characteristics::Characteristics;
use crate::counters::Counters;
use crate::credits::{Allowance, Need};
use crate::inline::{InlineSize, Thresholds};
use crate::invalidation::{Accepts, Design, Rule};
use crate::layout::Layout;
use crate::limits::{MAX_CREDITS, RECEIVE_SLACK};
use crate::link::{Event, Link, Violation, receive};
use crate::message::CallRequest;
use crate::negotiation::{Phase, Versions};
use crate::owner::Owner;
use crate::persistent::{PersistentArguments, PersistentPool};
use crate::plan::Chunks;
use crate::private_data::PrivateData;
use crate::receives::{ReceiveQueue, Receives};
use crate::registration::{Registration, Registrations};
use crate::requester::{CallKey, FailedCall, Requester, Unfinished};
use crate::responder::{CallId, Pulls, Responder};
use crate::v2::session::Session;
use crate::version::Version;
use crate::work::{Posts, Purpose};
use crate::xid::Xids;
use buffer::{Buffer, Pool};
use oncrpc::Reply;
use std::collections::VecDeque;
use std::time::Instant;
use verbs::{Completion, Invalidated, Limits, QueuePair, WorkError, WorkRequest};

/// Which end of a connection this is, and so what a message is taken for that does not say
/// whether it is a call or a reply (RFC 8167 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It connected, and calls.
    Client,
    /// It accepted, and answers.
    Server,
}

/// What this end of a connection is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end.
    pub role: Role,
    /// What it speaks.
    pub versions: Versions,
    /// Where the XIDs come from of messages that are not calls, in the direction in which this end
    /// calls: from where those of its calls do, as an error says nothing but the XID.
    pub xids: Xids,
    /// What we say about ourselves.
    pub own: PrivateData,
    /// The same where version two is spoken.
    pub characteristics: Characteristics,
    /// Credits to ask for, or to grant at most; taken to be within 1 and
    /// [`MAX_CREDITS`](crate::limits::MAX_CREDITS). No more are asked for than the provider has room
    /// for Receives.
    pub credits: u32,
    /// The same for calls of the server to the client (RFC 8167 §4.1): what a client grants, or a
    /// server asks for. At most [`MAX_CREDITS`](crate::limits::MAX_CREDITS); 0 for no such calls.
    pub backward_credits: u32,
    /// Whether a client keeps the last credit back for health checks (RFC 8267 §6.7.2). If it is
    /// granted a single one, that is for all calls.
    pub reserve_credit: bool,
    /// Octets of the largest chunk.
    pub max_chunk: usize,
    /// Octets of the largest segment that we offer; 0 for chunks of one segment.
    pub max_segment: usize,
    /// What is exposed on this connection: R in `own` has to be in keeping with it.
    pub registrations: Registrations,
    /// Memory that stays registered for arguments, if there is to be any. Then `registrations` has
    /// [`Registration::Persistent`].
    pub persistent: Option<PersistentArguments>,
    /// Where Receives come from.
    pub receives: Receives,
    /// Where memory comes from.
    pub pool: Pool,
}

/// The protocol state of one connection. It opens nothing and waits for nothing: its owner hands
/// in completions and posts what comes out.
#[derive(Debug)]
pub struct Connection<O: Owner> {
    pub(crate) role: Role,
    pub(crate) versions: Versions,
    pub(crate) phase: Phase,
    pub(crate) xids: Xids,
    /// Where version two may be spoken, or is.
    pub(crate) session: Option<Box<Session>>,
    /// The size of Receives once version two is spoken, if that is larger than before.
    pub(crate) raise_to: InlineSize,
    /// Whether version two says by itself that any handle may go (reminv §4.1).
    pub(crate) by_version: bool,
    /// Credits that the peer asked for with its last message about characteristics.
    pub(crate) control_asked: u32,
    pub(crate) link: Link<O>,
    pub(crate) requester: Requester<O>,
    pub(crate) responder: Responder<O>,
}

impl Config {
    fn credits_forward(&self) -> u32 {
        self.credits.clamp(1, MAX_CREDITS)
    }

    fn credits_backward(&self) -> u32 {
        self.backward_credits.min(MAX_CREDITS)
    }

    /// Receives that are posted at a time, at most.
    pub fn posted_receives(&self) -> usize {
        match self.receives {
            Receives::Posted => {
                (self.credits_forward() + self.credits_backward()) as usize + RECEIVE_SLACK
            }
            Receives::Shared { .. } => 0,
        }
    }

    /// Octets of each Receive.
    pub fn receive_size(&self) -> usize {
        self.versions.receive_size(self.own.receive).octets()
    }

    /// Credits for calls of ours, and for those of the peer.
    fn both_credits(&self) -> (u32, u32) {
        match self.role {
            Role::Client => (self.credits_forward(), self.credits_backward()),
            Role::Server => (self.credits_backward(), self.credits_forward()),
        }
    }

    /// Receives that are posted from the beginning: one for each call that the peer may send, and
    /// none for replies, as no call is out (RFC 8166 §3.3.1, RFC 8167 §4.3).
    fn first_receives(&self) -> usize {
        let (_, of_peer) = self.both_credits();
        match self.receives {
            Receives::Posted => of_peer as usize + RECEIVE_SLACK,
            Receives::Shared { .. } => 0,
        }
    }

    /// The Receives to post before the connection is made (RFC 8166 §3.3.2).
    pub fn initial_receives(&self) -> Vec<WorkRequest> {
        let size = self.receive_size();
        (0..self.first_receives())
            .map(|_| receive(self.pool.take(size)))
            .collect()
    }
}

impl<O: Owner> Connection<O> {
    /// A new connection on a queue pair with these limits, on which the
    /// [initial Receives](Config::initial_receives) are posted, to a peer that said this about
    /// itself in its private data, or nothing.
    ///
    /// # Panics
    ///
    /// If R is set though something is exposed that must not be invalidated remotely, or if the
    /// characteristics contradict themselves or do not fit a message of 1024 octets.
    pub fn new(config: &Config, owner: O, peer: Option<PrivateData>, limits: &Limits) -> Self {
        let peer = peer.unwrap_or(PrivateData::ABSENT);
        assert!(
            !config.own.remote_invalidation || !config.registrations.has(Registration::Persistent),
            "R is set only if every handle may be invalidated remotely (RFC 8797 §3.2)"
        );
        assert!(
            config.persistent.is_none() || config.registrations.has(Registration::Persistent),
            "what is exposed is to be known"
        );
        if let Receives::Shared { size } = config.receives {
            assert!(
                config.largest_receive().octets() <= size,
                "no Receive size is told to the peer that the shared Receives do not have"
            );
        }
        let max_chunk = config.max_chunk.min(limits.max_region);
        let max_chunk = max_chunk.min(limits.max_message as usize);
        let (of_us, of_peer) = config.both_credits();
        // Each reply needs a Receive (RFC 8166 §3.3.1). One that the provider has no room for would be
        // in the way of all that is to be sent.
        let room = match config.receives {
            Receives::Posted => limits.receives.saturating_sub(config.first_receives()),
            Receives::Shared { .. } => usize::MAX,
        };
        let of_us = u32::try_from(room).map_or(of_us, |room| room.min(of_us));
        let thresholds = config.own.thresholds(peer);
        let link = Link {
            owner,
            terms: 0,
            own: config.own,
            peer,
            // RFC 8797 §4.1: if both have set R.
            rule: match config.own.remote_invalidation && peer.remote_invalidation {
                true => Rule::By(Design::PerConnection),
                false => Rule::Never,
            },
            accepts: Accepts::of(None, config.own.remote_invalidation),
            layout: Layout::One,
            send_limit: thresholds.send.octets(),
            last_resort_limit: thresholds.send.octets(),
            largest_sent: config.characteristics.largest_sent.octets(),
            largest_reply: 0,
            reply_limit: thresholds.receive.octets(),
            limits: limits.clone(),
            max_chunk,
            max_segment: match config.max_segment {
                // Its length is a word.
                0 => max_chunk.clamp(1, u32::MAX as usize),
                octets => octets.min(u32::MAX as usize),
            },
            pool: config.pool.clone(),
            posts: Posts::new(limits.sends),
            receives: ReceiveQueue::new(
                config.receives,
                config.first_receives(),
                config.receive_size(),
            ),
            receive_size: config.receive_size(),
            for_calls: of_peer as usize,
            for_replies: 0,
            events: VecDeque::new(),
            counters: Counters::default(),
            violation: None,
        };
        // RFC 8167 §5.3: version one does without chunks in the backward direction.
        let (of_calls, of_replies, ready) = match config.role {
            Role::Client => (Chunks::Allowed, Chunks::Refused, true),
            Role::Server => (Chunks::Refused, Chunks::Allowed, false),
        };
        let persistent = PersistentPool::new(config.persistent, limits);
        let reserve = config.reserve_credit && config.role == Role::Client;
        let allowance = Allowance::new(of_us, reserve);
        let mut this = Self {
            role: config.role,
            versions: config.versions,
            phase: Phase::Settled,
            xids: config.xids.clone(),
            session: config.session(limits).map(Box::new),
            raise_to: config.characteristics.raise_to,
            by_version: config.by_version(limits),
            control_asked: 0,
            link,
            requester: Requester::new(allowance, of_calls, ready, persistent),
            responder: Responder::new(of_peer, of_replies),
        };
        match (config.role, config.versions) {
            (_, Versions::One) => {}
            (Role::Client, Versions::Two | Versions::Auto) => this.offer(),
            (Role::Server, Versions::Two) => this.settle(Version::Two),
            (Role::Server, Versions::Auto) => {
                this.phase = Phase::Listening;
                this.requester.set_settled(false);
            }
        }
        this
    }

    /// Where the XIDs of this connection's own calls come from.
    pub fn xids(&self) -> Xids {
        self.xids.clone()
    }

    /// What is spoken; `None` as long as that is not settled. Until then no call can be sent.
    pub fn version(&self) -> Option<Version> {
        match (self.phase, self.link.layout) {
            (Phase::Offered { .. } | Phase::Listening, _) => None,
            (Phase::Settled, Layout::One) => Some(Version::One),
            (Phase::Settled, Layout::Two(_)) => Some(Version::Two),
        }
    }

    /// The largest message in each direction, in whole KiB. Where version two is spoken they change.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds {
            send: InlineSize::at_most(self.link.send_limit),
            receive: InlineSize::at_most(self.link.reply_limit),
        }
    }

    /// What the peer said about itself, or is taken to have said.
    pub fn peer(&self) -> PrivateData {
        self.link.peer
    }

    /// The design by which the peer may invalidate handles of ours with its replies (reminv §4), if it
    /// may. Where version two is spoken it is known once the peer has said what it is.
    pub fn design(&self) -> Option<Design> {
        if self.link.accepts == Accepts::Nothing {
            return None;
        }
        let agreed = self.session().and_then(Session::design);
        let by_version = self.by_version && matches!(self.link.layout, Layout::Two(_));
        Some(agreed.unwrap_or(match by_version {
            true => Design::PerVersion,
            false => Design::PerConnection,
        }))
    }

    /// Calls of ours that may be on their way at a time.
    pub fn credits(&self) -> u32 {
        self.requester.credits()
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.link.counters
    }

    /// Whether a call of ours can be sent now, as far as credits go.
    pub fn can_call(&self) -> bool {
        self.room() > 0
    }

    /// Calls of ours that can be sent now, as far as credits go; the credit that is kept back for
    /// health checks is not counted. 0 until it is settled what is spoken, on a server until the
    /// client is ready, and while a call waits for room.
    pub fn room(&self) -> usize {
        self.requester.room()
    }

    /// Whether a [health check](CallRequest::as_health_check) can be sent now, as far as credits
    /// go.
    pub fn can_check_health(&self) -> bool {
        self.requester.credits_for(Need::HealthCheck) > 0
    }

    /// On a server: the upper layer has learnt that the client is ready for calls, so that they may
    /// be sent from now on (RFC 8167 §6).
    pub fn handle_client_ready(&mut self) {
        self.requester.handle_ready();
    }

    /// Octets that the largest reply of late would have had as one message, without what went by Write
    /// chunks, of those that could be one if the peer's Receives were larger. It is 0 after that.
    pub fn take_largest_reply(&mut self) -> usize {
        std::mem::take(&mut self.link.largest_reply)
    }

    /// Credits that are granted with the next reply, at most.
    pub fn grant(&self) -> u32 {
        self.responder.grant()
    }

    /// Changes the credits that are granted to the peer with the next reply and from then on, within
    /// 1 and those of the [`Config`]. It may be done at any time: a peer that was granted more has
    /// Receives for as many calls until it has heard of it.
    pub fn set_grant(&mut self, credits: u32) {
        self.responder.set_grant(&mut self.link, credits);
    }

    /// Calls of ours that are not over, cancelled ones included.
    pub fn calls_out(&self) -> usize {
        self.requester.len()
    }

    /// Calls of the peer that are not answered to the end.
    pub fn calls_in(&self) -> usize {
        self.responder.len()
    }

    /// Handles of ours that the peer can use.
    pub fn exposed(&self) -> usize {
        self.requester.exposed()
    }

    /// Whether nothing is to be posted and nothing posted is outstanding but Receives.
    pub fn is_quiet(&self) -> bool {
        self.link.posts.is_empty()
    }

    /// Why the connection has to be closed, if it has to.
    pub fn violation(&self) -> Option<Violation> {
        self.link.violation
    }

    /// Work was done.
    pub fn handle_completion(&mut self, completion: Completion) {
        let link = &mut self.link;
        match completion {
            Completion::Receive {
                buffer,
                invalidated,
                ..
            } => self.handle_message(buffer, invalidated),
            Completion::Send { wr } | Completion::Write { wr } => {
                link.posts.completed();
                match Purpose::of(wr) {
                    Purpose::Reply { call } => self.responder.handle_sent(call),
                    Purpose::Call
                    | Purpose::Control
                    | Purpose::Receive
                    | Purpose::Invalidate { .. }
                    | Purpose::Pull { .. } => {}
                }
            }
            Completion::Read { wr, sink } => {
                link.posts.completed();
                if let Purpose::Pull { call, chunk } = Purpose::of(wr) {
                    self.responder.handle_read(link, call, chunk, sink);
                }
            }
            Completion::Invalidate { wr, invalidated } => {
                link.posts.completed();
                if let Purpose::Invalidate { call } = Purpose::of(wr) {
                    self.requester.handle_invalidated(link, call, invalidated);
                }
            }
            Completion::Failed { wr, error } => self.handle_failed(Purpose::of(wr), error),
        }
    }

    fn handle_failed(&mut self, purpose: Purpose, error: WorkError) {
        let link = &mut self.link;
        let violation = match (error, purpose) {
            // The provider says itself why the connection is over.
            (WorkError::Flushed, _) => return,
            (WorkError::NoSuchHandle, Purpose::Invalidate { .. }) => Violation::LostHandle,
            (WorkError::RemoteAccess, Purpose::Pull { call, .. } | Purpose::Reply { call }) => {
                self.responder.handle_failed(link, call);
                Violation::WorkFailed(error)
            }
            (WorkError::NoSuchHandle | WorkError::TooLong | WorkError::RemoteAccess, _) => {
                Violation::WorkFailed(error)
            }
        };
        link.fail(violation);
    }

    fn handle_message(&mut self, message: Buffer, invalidated: Option<Invalidated>) {
        self.link.receives.use_one();
        self.take_message(message, invalidated);
        // In the place of what was taken in, as far as something may come for it.
        self.link.post_receives();
        self.note_receives();
    }

    /// Takes a call, and sends it if there is a credit and room for what it exposes. Otherwise it
    /// waits, in order, until [`send_waiting`](Self::send_waiting) finds room for it. Memory is
    /// registered on `qp`, the queue pair of this connection, so that handles are known when the call
    /// is made.
    ///
    /// # Errors
    ///
    /// If this connection cannot carry the call.
    pub fn call(
        &mut self,
        now: Instant,
        request: CallRequest<O::Call>,
        qp: &mut dyn QueuePair,
    ) -> Result<CallKey, FailedCall<O::Call>> {
        self.requester.call(now, &mut self.link, request, qp)
    }

    /// Calls of ours that wait for a credit or for room for what they expose.
    pub fn calls_waiting(&self) -> usize {
        self.requester.waiting()
    }

    /// Sends calls that waited, as far as there is room now. One that this connection cannot carry any
    /// more ends with an event.
    pub fn send_waiting(&mut self, now: Instant, qp: &mut dyn QueuePair) {
        self.requester.send_waiting(now, &mut self.link, qp);
    }

    /// When the call of ours was sent that has waited longest for its end, be it cancelled or not.
    /// If that is too long ago, only the end of the connection brings back its credit and memory.
    pub fn oldest_call(&self) -> Option<Instant> {
        self.requester.oldest()
    }

    /// Nobody waits for the end of this call any more: there will be no event, and the owner gets its
    /// value back. One that was sent keeps its credit and its memory until its reply; one that
    /// waited is over. Nothing happens to a call whose reply is here.
    pub fn cancel(&mut self, key: CallKey) -> Option<O::Call> {
        self.requester.cancel(&mut self.link, key)
    }

    /// Answers a call.
    pub fn reply(&mut self, id: CallId<O::Lease>, reply: Reply) {
        self.responder.reply(&mut self.link, id, reply);
    }

    /// How many calls of the peer were pulled so far, while it owes chunks of some: numbers that stay
    /// the same for long mean that it does not send them. Chunks are not counted one by one, or a peer
    /// could hold the memory of a call for as many times as long as it has chunks.
    pub fn waits_for_chunks(&self) -> Option<Pulls> {
        self.responder.waits_for_chunks()
    }

    /// Calls of the peer that wait for memory.
    pub fn calls_waiting_for_memory(&self) -> usize {
        self.responder.waiting_for_memory()
    }

    /// Bytes of memory that the next call of the peer needs before its chunks are pulled: for those,
    /// and for those of its reply. The owner gives it with [`handle_memory`](Self::handle_memory), or
    /// says that there is none now.
    pub fn poll_memory(&self) -> Option<usize> {
        self.responder.needs_memory(&self.link)
    }

    /// The memory that [`poll_memory`](Self::poll_memory) asked for. It is kept until the call is
    /// over.
    pub fn handle_memory(&mut self, lease: O::Lease) {
        self.responder.handle_memory(&mut self.link, lease);
    }

    /// There is no memory now: calls of the peer wait for it, and are counted once.
    pub fn handle_no_memory(&mut self) {
        self.responder.handle_no_memory(&mut self.link);
    }

    /// The next work to post.
    pub fn poll_post(&mut self) -> Option<WorkRequest> {
        let next = self.link.posts.next();
        next.or_else(|| self.poll_control())
    }

    /// The provider had no room for this work after all. It is handed out again, before any other.
    pub fn handle_refused(&mut self, work: WorkRequest) {
        self.link.posts.put_back(work);
    }

    /// Whether there is something to tell our user.
    pub fn has_events(&self) -> bool {
        !self.link.events.is_empty()
    }

    /// The next thing to tell our user.
    pub fn poll_event(&mut self) -> Option<Event<O>> {
        self.link.events.pop_front()
    }

    /// The connection is over, and with it every handle: what becomes of the calls that had no end.
    pub fn into_unfinished(mut self) -> Vec<Unfinished<O::Call>> {
        self.requester.into_unfinished(&mut self.link, true)
    }

    /// The same for a connection that nothing has broken: this end gave it up because its peer did
    /// not speak. That is no sign against any call, and does not count among
    /// [their losses](crate::CallRequest::losses).
    pub fn into_unanswered(mut self) -> Vec<Unfinished<O::Call>> {
        self.requester.into_unfinished(&mut self.link, false)
    }
}
