//! One connection: both roles, sharing what is received.

use crate::budget::Budget;
use crate::counters::Counters;
use crate::header::{Body, Header};
use crate::inline::Thresholds;
use crate::limits::{MAX_CREDITS, RECEIVE_SLACK};
use crate::link::{Event, Link, Violation, receive};
use crate::message::{self, CallRequest, CallToken};
use crate::private_data::PrivateData;
use crate::requester::{Called, Requester, Unfinished, refuse_invalidation};
use crate::responder::{CallId, Responder, stream_of_call};
use crate::work::{Posts, Purpose};
use buffer::{Buffer, Pool};
use oncrpc::Reply;
use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;
use verbs::{Completion, Invalidated, Limits, QueuePair, WorkError, WorkRequest};

/// Which end of a connection this is, and so what a message is taken for that does not say
/// whether it is a call or a reply (RFC 8167 §4.2).
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
    /// What we say about ourselves.
    pub own: PrivateData,
    /// Credits to ask for, or to grant at most; taken to be within 1 and
    /// [`MAX_CREDITS`](crate::limits::MAX_CREDITS).
    pub credits: u32,
    /// Octets of the largest chunk.
    pub max_chunk: usize,
    /// Octets of the largest segment that we offer; 0 for chunks of one segment.
    pub max_segment: usize,
    /// Memory for what is pulled and written.
    pub budget: Budget,
    /// Where memory comes from.
    pub pool: Pool,
}

/// The protocol state of one connection. It opens nothing and waits for nothing: its owner hands
/// in completions and posts what comes out.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    link: Link,
    requester: Requester,
    responder: Responder,
}

impl Config {
    fn credits(&self) -> u32 {
        self.credits.clamp(1, MAX_CREDITS)
    }

    /// Receives that are posted at a time, at most.
    pub fn receives(&self) -> usize {
        self.credits() as usize + RECEIVE_SLACK
    }

    /// Receives that are posted from the beginning: on a server one for each call that a client
    /// may send, on a client none for replies, as it has no call out (RFC 8166 §3.3.1).
    fn first_receives(&self) -> usize {
        match self.role {
            Role::Client => RECEIVE_SLACK,
            Role::Server => self.receives(),
        }
    }

    /// The Receives to post before the connection is made (RFC 8166 §3.3.2).
    pub fn initial_receives(&self) -> Vec<WorkRequest> {
        let size = self.own.receive.octets();
        (0..self.first_receives())
            .map(|_| receive(self.pool.take(size)))
            .collect()
    }
}

impl Connection {
    /// A new connection on a queue pair with these limits, on which the
    /// [initial Receives](Config::initial_receives) are posted, to a peer that said this about
    /// itself in its private data, or nothing.
    pub fn new(config: &Config, peer: Option<PrivateData>, limits: &Limits) -> Self {
        let peer = peer.unwrap_or(PrivateData::ABSENT);
        let max_chunk = config.max_chunk.min(limits.max_region);
        let link = Link {
            own: config.own,
            peer,
            thresholds: config.own.thresholds(peer),
            limits: limits.clone(),
            max_chunk,
            max_segment: match config.max_segment {
                0 => max_chunk,
                octets => octets.min(max_chunk),
            },
            pool: config.pool.clone(),
            posts: Posts::new(limits.sends),
            receives: config.first_receives(),
            events: VecDeque::new(),
            counters: Counters::default(),
            violation: None,
        };
        Self {
            role: config.role,
            link,
            requester: Requester::new(config.credits()),
            responder: Responder::new(config.credits(), config.budget.account()),
        }
    }

    /// The largest message in each direction.
    pub fn thresholds(&self) -> Thresholds {
        self.link.thresholds
    }

    /// What the peer said about itself, or is taken to have said.
    pub fn peer(&self) -> PrivateData {
        self.link.peer
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
        self.requester.can_call()
    }

    /// Calls of ours that can be sent now, as far as credits go.
    pub fn room(&self) -> usize {
        self.requester.room()
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
                    Purpose::Send
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
            // The provider says itself why the connection is over.
            Completion::Failed {
                error: WorkError::Flushed,
                ..
            } => {}
            Completion::Failed { error, .. } => link.fail(Violation::WorkFailed(error)),
        }
    }

    fn handle_message(&mut self, message: Buffer, invalidated: Option<Invalidated>) {
        self.take_message(message, invalidated);
        if self.role == Role::Client {
            // In the place of what answered no call.
            self.link.post_receives(self.requester.receives());
        }
    }

    fn take_message(&mut self, message: Buffer, invalidated: Option<Invalidated>) {
        let link = &mut self.link;
        link.receives -= 1;
        if self.role == Role::Server {
            // Its credit is in force again with the reply, so its Receive has to be there before.
            link.post_receives(self.responder.receives());
        }
        let (header, stream) = match Header::parse(&message) {
            Ok(parsed) => parsed,
            Err(error) => {
                refuse_invalidation(link, invalidated);
                match self.role {
                    // RFC 8166 §4.5: a Requester discards a reply whose header is not valid.
                    Role::Client => link.counters.discarded += 1,
                    Role::Server => self.responder.handle_invalid(link, error.disposition()),
                }
                return;
            }
        };
        if header.body == Body::Done {
            // RFC 8166 §4.6.2.
            refuse_invalidation(link, invalidated);
            link.counters.discarded += 1;
            return;
        }
        if !is_call(self.role, &header, &message[stream..]) {
            match self.role {
                Role::Client => {
                    let requester = &mut self.requester;
                    requester.handle_reply(link, header, message, stream, invalidated);
                }
                // RFC 8166 §4.2.4: an error, or a reply to nothing.
                Role::Server => {
                    refuse_invalidation(link, invalidated);
                    link.counters.discarded += 1;
                }
            }
            return;
        }
        refuse_invalidation(link, invalidated);
        match (self.role, stream_of_call(&header, stream), header.body) {
            (Role::Server, Some(at), Body::Msg(lists) | Body::NoMsg(lists)) => {
                let (xid, asked) = (header.xid, header.credits);
                let responder = &mut self.responder;
                responder.handle_call(link, xid, asked, lists, message, at);
            }
            // A client has not said that it is ready for calls (RFC 8167 §6), so there are none.
            _ => link.counters.discarded += 1,
        }
    }

    /// Sends a call, if there is a credit and room for what it exposes. Memory is registered on
    /// `qp`, the queue pair of this connection, so that handles are known when the call is made.
    pub fn call(&mut self, now: Instant, request: CallRequest, qp: &mut dyn QueuePair) -> Called {
        self.requester.call(now, &mut self.link, request, qp)
    }

    /// When the call of ours was sent that has waited longest for its end, be it cancelled or not.
    /// If that is too long ago, only the end of the connection brings back its credit and memory.
    pub fn oldest_call(&self) -> Option<Instant> {
        self.requester.oldest()
    }

    /// Nobody waits for the end of this call any more. It keeps its credit and its memory until
    /// its reply, and there will be no event.
    pub fn cancel(&mut self, xid: u32, token: CallToken) {
        self.requester.cancel(&mut self.link, xid, token);
    }

    /// Answers a call.
    pub fn reply(&mut self, id: CallId, reply: Reply) {
        self.responder.reply(&mut self.link, id, reply);
    }

    /// Calls of the peer that wait for memory.
    pub fn calls_waiting_for_memory(&self) -> usize {
        self.responder.waiting_for_memory()
    }

    /// How many chunks of the peer's calls were pulled so far, while the peer owes more: a number
    /// that stays the same for long means that it does not send them.
    pub fn waits_for_chunks(&self) -> Option<u64> {
        self.responder.waits_for_chunks()
    }

    /// Whether a call of the peer waits for memory.
    pub fn waits_for_memory(&self) -> bool {
        self.calls_waiting_for_memory() > 0
    }

    /// Lets calls go on that wait for memory. If some still wait, `waker` is woken when it is
    /// worth trying again.
    pub fn handle_memory(&mut self, waker: &Waker) {
        self.responder.admit(&mut self.link, Some(waker));
    }

    /// The next work to post.
    pub fn poll_post(&mut self) -> Option<WorkRequest> {
        self.link.posts.next()
    }

    /// The provider had no room for this work after all. It is handed out again, before any other.
    pub fn handle_refused(&mut self, work: WorkRequest) {
        self.link.posts.put_back(work);
    }

    /// The next thing to tell our user.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.link.events.pop_front()
    }

    /// The connection is over, and with it every handle: what becomes of the calls that had no end.
    pub fn into_unfinished(mut self) -> Vec<Unfinished> {
        self.requester.into_unfinished(&mut self.link)
    }
}

/// Whether a message is a call: as its RPC message says, or else as its chunks and the role of
/// this end have it (RFC 8167 §4.2).
fn is_call(role: Role, header: &Header, stream: &[u8]) -> bool {
    match &header.body {
        Body::Msg(_) => match message::prefix(stream) {
            Some((_, message::CALL)) => true,
            Some((_, message::REPLY)) => false,
            Some(_) | None => role == Role::Server,
        },
        Body::NoMsg(lists) => match lists.reads.first() {
            Some(chunk) => chunk.position == 0 || role == Role::Server,
            None => role == Role::Server,
        },
        Body::Done | Body::Error(_) => false,
    }
}
