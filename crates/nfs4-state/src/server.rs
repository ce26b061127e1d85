//! The state of a server: client ids and sessions. Files are in [`files`], leases and the grace period in [`time`].

mod files;
mod listing;
mod time;

use crate::Random;
use crate::client::{Client, Clients, Creation, Decision, ExchangeCall, Exchanged, Stage};
use crate::event::{ClientEnd, Event, Events, Limit};
use crate::grace::{Grace, Recorded, Ticket};
use crate::lease::Leases;
use crate::limits::Limits;
use crate::session::{
    CallbackCredential, CallbackResult, CallbackSettings, CallbackSlot, ChannelLimits,
    ConnectionId, Place, RequestDigest, Session, Sessions, Wishes,
};
use crate::state::States;
use bytes::Bytes;
use nfs_proto::v4::security::CallbackSecurities;
use nfs_proto::v4::session::{
    BindConnToSessionArgs, BindConnToSessionOk, ChannelAttributes, CreateSessionArgs,
    CreateSessionFlags, CreateSessionOk, SequenceArgs, SequenceOk, SequenceStatus,
};
use nfs_proto::v4::{ClientId, SessionId, SlotId, StateId, Status};
use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use files::{LockError, LockRequest, OpenRequest};
pub use listing::{
    ClientStage, ClientView, GraceView, Listing, MAX_LISTED_CONNECTIONS, MAX_LISTED_LOCKS, Revoked,
    StateKind, StateView, StatesPage,
};

/// Bytes of the reply to a SEQUENCE alone: header of RPC, status, tag, number of results, result.
const SEQUENCE_REPLY: u32 = 24 + 4 + 4 + 4 + 8 + 36;

/// Settings of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Time in which a client has to renew its lease: the attribute `lease_time`.
    pub lease: Duration,
    /// Time for which state stays after that, if it is in nobody's way.
    pub courtesy: Duration,
    /// Time for reclaims after a start: at least the lease of the server before it (RFC 8881 §8.4.2.1).
    pub grace: Duration,
    /// Limits for all clients together.
    pub limits: Limits,
    /// Limits of requests.
    pub fore: ChannelLimits,
    /// Limits of callbacks. How many there may be at a time, and of how many operations, is for the client to say (RFC 8881 §18.36.3).
    pub back: ChannelLimits,
}

/// Something that the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand<P, F> {
    /// Record a client on stable storage, in place of an earlier record of the same owner; then report
    /// [`handle_recorded`](Server::handle_recorded).
    Record(Ticket, Recorded<P>),
    /// Remove the record of an owner from stable storage; once that is durable, report [`handle_removed`](Server::handle_removed).
    /// The removal has to be tried until it succeeds: the server restarts without harm, but before that others do not get what the
    /// client had.
    ///
    /// Records are made and removed in the order in which they are demanded.
    Remove(Ticket, Arc<[u8]>),
    /// Tell a lock owner that its lock may be free: CB_NOTIFY_LOCK (RFC 8881 §20.11).
    NotifyLock {
        /// The client.
        client: ClientId,
        /// The owner.
        owner: Arc<[u8]>,
        /// The file.
        file: F,
    },
    /// Tell a client that it should use fewer slots of a session, as others lack them: CB_RECALL_SLOT (RFC 8881 §20.8), with what
    /// [`recalled_slots`](Server::recalled_slots) tells then. The results of SEQUENCE say so, too: nothing is lost if it cannot be told.
    RecallSlots {
        /// The client.
        client: ClientId,
        /// The session.
        session: SessionId,
    },
    /// Release what is kept for an open, or for a lock owner in an open, that has ended or was revoked.
    Release {
        /// The file.
        file: F,
        /// The last state id.
        state: StateId,
    },
}

/// A CREATE_SESSION, with what the connection and the credential say.
#[derive(Clone, Copy, Debug)]
pub struct CreateCall<'a, P> {
    /// Arguments.
    pub args: &'a CreateSessionArgs<'a>,
    /// The caller, as its credential says.
    pub principal: &'a P,
    /// On which connection.
    pub connection: ConnectionId,
    /// Whether callbacks can be sent on it.
    pub can_call: bool,
    /// Minor version of the COMPOUND: that of the session's callbacks.
    pub minor_version: u32,
}

/// Answer to a RECLAIM_COMPLETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// It is done.
    Done,
    /// The answer comes from [`handle_recorded`](Server::handle_recorded), once the client stands on stable storage.
    AfterRecord(Ticket),
}

/// A SEQUENCE, with the COMPOUND around it.
#[derive(Clone, Copy, Debug)]
pub struct SequenceCall<'a> {
    /// Arguments.
    pub args: &'a SequenceArgs,
    /// The connection.
    pub connection: ConnectionId,
    /// Digest of the request and its user.
    pub digest: RequestDigest,
    /// Number of operations of the COMPOUND.
    pub operations: u32,
    /// Bytes of the request.
    pub size: u32,
}

/// Answer to a SEQUENCE.
#[derive(Debug)]
pub enum Sequenced {
    /// The request is new: the COMPOUND is to be executed, and its reply given to [`finish`](Server::finish).
    New(Request),
    /// The request was executed: this is its reply.
    Replay(Bytes),
    /// The request was executed, and its reply was not kept: SEQUENCE has this result, and the next operation
    /// `RetryUncachedReply` (RFC 8881 §2.10.6.1.3).
    Uncached(SequenceOk),
    /// The request is being executed. The caller may wait, and ask again after the [`finish`](Server::finish); answer
    /// `Delay`, after which Linux waits 15 s; or leave the retry unanswered if its connection is the same (RFC 8881
    /// §2.10.6.2).
    InProgress,
}

/// A request that is being executed. It has its slot until it is given to [`finish`](Server::finish).
#[derive(Debug)]
#[must_use = "a request keeps its slot until it is finished"]
pub struct Request {
    client: ClientId,
    session: SessionId,
    cache_this: bool,
    result: SequenceOk,
    fore: ChannelAttributes,
}

impl Request {
    /// Returns what the session has agreed on for requests and replies.
    pub fn fore(&self) -> &ChannelAttributes {
        &self.fore
    }

    /// Returns the client.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Returns whether the reply has to be kept for a retry.
    pub fn cache_this(&self) -> bool {
        self.cache_this
    }

    /// Returns the result of the SEQUENCE.
    pub fn result(&self) -> &SequenceOk {
        &self.result
    }
}

/// A way for callbacks to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackPath {
    /// The session.
    pub session: SessionId,
    /// A connection of its back channel.
    pub connection: ConnectionId,
    /// Program number.
    pub program: u32,
    /// Minor version.
    pub minor_version: u32,
    /// Credential of the calls.
    pub credential: CallbackCredential,
    /// Limits.
    pub attributes: ChannelAttributes,
}

/// Numbers of what a server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Client ids, with those that are not confirmed.
    pub clients: usize,
    /// Sessions.
    pub sessions: usize,
    /// Opens, and lock owners in opens.
    pub states: usize,
    /// Locks of byte ranges.
    pub locks: usize,
    /// Owners that wait for locks.
    pub waiters: usize,
}

/// The state of a server. `P` is a principal, `F` names a file.
#[derive(Debug)]
pub struct Server<P, F> {
    config: Config,
    clients: Clients<P>,
    sessions: Sessions,
    states: States<F>,
    leases: Leases,
    grace: Grace<P>,
    demands: VecDeque<Demand<P, F>>,
    events: Events,
    /// Clients that end in steps, with the time since when.
    ending: VecDeque<(Instant, ClientId)>,
}

impl<P: Clone + Eq, F: Clone + Eq + Hash> Server<P, F> {
    /// Starts a server for the clients that stand on stable storage: there is a grace period if there are any.
    ///
    /// # Panics
    ///
    /// If the lease is zero.
    pub fn new(
        now: Instant,
        config: Config,
        recorded: impl IntoIterator<Item = Recorded<P>>,
    ) -> Self {
        assert!(config.lease > Duration::ZERO, "a lease takes time");
        let Limits {
            clients,
            sessions,
            slots,
            ..
        } = config.limits;
        Self {
            config,
            clients: Clients::new(clients),
            sessions: Sessions::new((sessions, slots), config.lease, config.fore, config.back),
            states: States::new(config.limits),
            leases: Leases::default(),
            grace: Grace::new(now, config.grace, recorded),
            demands: VecDeque::new(),
            events: Events::default(),
            ending: VecDeque::new(),
        }
    }

    /// Returns how much there is.
    pub fn usage(&self) -> Usage {
        Usage {
            clients: self.clients.len(),
            sessions: self.sessions.len(),
            states: self.states.len(),
            locks: self.states.locks.held(),
            waiters: self.states.locks.waiting(),
        }
    }

    /// Takes something that is to be done.
    pub fn poll_demand(&mut self) -> Option<Demand<P, F>> {
        self.demands.pop_front()
    }

    /// Returns lists of what there is.
    pub fn listing(&self) -> Listing<'_, P, F> {
        Listing(self)
    }

    /// Takes an event of which an administrator may want to hear.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Executes EXCHANGE_ID (RFC 8881 §18.35).
    ///
    /// # Errors
    ///
    /// - `Invalid`: a flag that means nothing.
    /// - `ClientIdInUse`: another principal has this owner.
    /// - `NoEntry`, `NotSame`, `Perm`: there is no record to update, or it is of another instance or principal.
    /// - `Delay`: there are too many client ids, or too many of this address.
    pub fn exchange_id(
        &mut self,
        now: Instant,
        random: &mut impl Random,
        call: &ExchangeCall<'_, P>,
    ) -> Result<Exchanged, Status> {
        // What it had before the restart counts as state under a lease.
        if self.grace.belongs_to_another(call.owner, call.principal) {
            return Err(Status::ClientIdInUse);
        }
        let (states, sessions) = (&self.states, &self.sessions);
        let is_in_use = |client: &Client<P>| {
            client.stage != Stage::Courtesy
                && (states.has_any(client.id) || sessions.of(client.id).next().is_some())
        };
        let decision = self.clients.decide(call, is_in_use);
        let (forgets, gives_up) = match decision {
            Ok(Decision::Known(known)) => return Ok(known),
            Ok(Decision::New { forgets, gives_up }) => (forgets, gives_up),
            Err(Status::Delay) => {
                self.events.push(Event::LimitReached(Limit::Clients));
                self.relieve(now);
                return Err(Status::Delay);
            }
            Err(status) => return Err(status),
        };
        if let Some(client) = forgets {
            self.leases.forget(client);
            self.clients.remove(client);
        }
        if let Some(client) = gives_up {
            self.leave(now, client, Some(ClientEnd::Replaced));
        }
        let exchanged = self.clients.insert(now, random, call);
        self.leases
            .look_at(now + self.config.lease, exchanged.client);
        Ok(exchanged)
    }

    /// Executes CREATE_SESSION (RFC 8881 §18.36). The first session of a client id confirms it.
    ///
    /// # Errors
    ///
    /// - `Invalid`: a flag that means nothing.
    /// - `StaleClientId`: the client id is unknown.
    /// - `ClientIdInUse`: it is another principal's.
    /// - `SequenceMisordered`: the sequence id is neither the last nor the next.
    /// - `TooSmall`: no request or no reply would fit the session.
    /// - `NoSpace`: there are too many sessions.
    pub fn create_session(
        &mut self,
        now: Instant,
        random: &mut impl Random,
        call: &CreateCall<'_, P>,
    ) -> Result<CreateSessionOk, Status> {
        let args = call.args;
        if !CreateSessionFlags::all().contains(args.flags) {
            return Err(Status::Invalid);
        }
        let client = self.clients.usable(args.client)?;
        match client.begin_create(call.principal, args.sequence)? {
            Creation::Replay(reply) => return reply,
            Creation::New => {}
        }
        let wishes = Wishes {
            fore: args.fore,
            back: args.back,
            callback_settings: CallbackSettings {
                program: args.callback_program,
                minor_version: call.minor_version,
                credential: CallbackCredential::of(&args.callback_security),
            },
            callbacks: args.flags.contains(CreateSessionFlags::CONN_BACK_CHAN) && call.can_call,
            address: client.address,
        };
        self.sessions.handle_time(now);
        let session = (self.sessions).create(random, args.client, &wishes, call.connection);
        let reply = session.map(|session| CreateSessionOk {
            session: session.id(),
            sequence: args.sequence,
            // Neither replies that survive a restart nor a change of the transport is offered.
            flags: match wishes.callbacks {
                true => CreateSessionFlags::CONN_BACK_CHAN,
                false => CreateSessionFlags::empty(),
            },
            fore: session.fore,
            back: session.back,
        });
        client.end_create(args.sequence, reply);
        demand_recalls(&mut self.sessions, &mut self.demands);
        if reply == Err(Status::NoSpace) {
            self.events.push(Event::LimitReached(Limit::Sessions));
        }
        reply?;
        renew(client, &mut self.leases, now, self.config.lease);
        if client.is_confirmed() {
            return reply;
        }
        let owner = &client.owner;
        client.may_reclaim = self.grace.awaits(owner) && self.grace.is_durable(owner);
        // RFC 8881 §18.35.4, case 5: now the state of the earlier instance ends.
        if let Some(earlier) = self.clients.confirm(args.client) {
            self.purge(now, earlier);
        }
        reply
    }

    /// Executes SEQUENCE (RFC 8881 §18.46). The lease is renewed unless it fails.
    ///
    /// # Errors
    ///
    /// - `BadSession`: there is no such session.
    /// - `ConnectionNotBound`: the client insists on BIND_CONN_TO_SESSION, and this connection had none.
    /// - `TooManyOperations`, `RequestTooBig`: more than the session allows.
    /// - `ReplyTooBigToCache`: no reply is small enough to be kept.
    /// - `BadSlot`, `BadHighSlot`: a slot that the client does not have.
    /// - `SequenceMisordered`: the sequence id is neither the last nor the next.
    /// - `SequenceFalseRetry`: another request had this sequence id.
    pub fn sequence(&mut self, now: Instant, call: &SequenceCall<'_>) -> Result<Sequenced, Status> {
        let args = call.args;
        let session = self.sessions.get(args.session)?;
        if call.operations > session.fore.max_operations {
            return Err(Status::TooManyOperations);
        }
        if call.size > session.fore.max_request {
            return Err(Status::RequestTooBig);
        }
        if args.cache_this && session.fore.max_response_cached < SEQUENCE_REPLY {
            return Err(Status::ReplyTooBigToCache);
        }
        let id = session.client;
        let client = self.clients.usable(id).expect("a session has a client");
        let must_be_bound = client.protection.is_some();
        self.sessions.handle_time(now);
        let place = (self.sessions).place(args, call.connection, call.digest, must_be_bound)?;
        if matches!(place, Place::InProgress) {
            return Ok(Sequenced::InProgress);
        }
        demand_recalls(&mut self.sessions, &mut self.demands);
        renew(client, &mut self.leases, now, self.config.lease);
        let session = self.sessions.get(args.session)?;
        let fore = session.fore;
        let (highest_slot, target_highest_slot) = session.highest_slots();
        let result = SequenceOk {
            session: args.session,
            sequence: args.sequence,
            slot: args.slot,
            highest_slot,
            target_highest_slot,
            status: self.status(session),
        };
        Ok(match place {
            Place::New => Sequenced::New(Request {
                client: id,
                session: args.session,
                cache_this: args.cache_this,
                result,
                fore,
            }),
            Place::Replay(reply) => Sequenced::Replay(reply),
            Place::Uncached => Sequenced::Uncached(result),
            Place::InProgress => Sequenced::InProgress,
        })
    }

    /// Status flags of a SEQUENCE (RFC 8881 §18.46.3).
    ///
    /// EXPIRED_ALL_STATE_REVOKED and EXPIRED_SOME_STATE_REVOKED never are set: a client whose state was in the
    /// way after its lease ran out loses its client id, and begins anew. Nor is RESTART_RECLAIM_NEEDED: sessions do not
    /// outlast a restart, so a client with a session knows of it.
    fn status(&self, session: &Session) -> SequenceStatus {
        let mut status = SequenceStatus::empty();
        if session.wants_callbacks && !session.has_back_connection() {
            status |= SequenceStatus::CB_PATH_DOWN_SESSION;
            let mut sessions = self.sessions.of(session.client);
            if sessions.all(|session| !session.has_back_connection()) {
                status |= SequenceStatus::CB_PATH_DOWN;
            }
        }
        if session.is_faulty {
            status |= SequenceStatus::BACKCHANNEL_FAULT;
        }
        if self.states.revoked(session.client) > 0 {
            status |= SequenceStatus::ADMIN_STATE_REVOKED;
        }
        status
    }

    /// Ends a request, and keeps its reply for a retry, if there is one to keep. A reply that is larger than the session allows
    /// is not kept: for one that has to be, the COMPOUND fails with `ReplyTooBigToCache` before (RFC 8881 §2.10.6.4).
    ///
    /// The lease lasts as long from now as if it was renewed (RFC 8881 §8.3).
    pub fn finish(&mut self, now: Instant, request: Request, reply: Option<Bytes>) {
        let SequenceOk { slot, sequence, .. } = request.result;
        let is_in_session = self.sessions.finish(request.session, slot, sequence, reply);
        if let Ok(client) = self.clients.usable(request.client)
            && is_in_session
        {
            renew(client, &mut self.leases, now, self.config.lease);
        }
    }

    /// Executes BIND_CONN_TO_SESSION (RFC 8881 §18.34).
    ///
    /// # Errors
    ///
    /// - `BadSession`: there is no such session.
    /// - `WrongCredential`: the client's state is protected, and another principal calls.
    /// - `Invalid`: the connection has other channels, or cannot have these.
    pub fn bind_connection(
        &mut self,
        args: &BindConnToSessionArgs,
        principal: &P,
        connection: ConnectionId,
        can_call: bool,
    ) -> Result<BindConnToSessionOk, Status> {
        self.check_protection(args.session, principal)?;
        let sessions = &mut self.sessions;
        let direction =
            sessions.bind_channels(args.session, connection, args.direction, can_call)?;
        Ok(BindConnToSessionOk {
            session: args.session,
            direction,
            use_rdma: false,
        })
    }

    /// Returns whether the state of a session's client is protected. Then only the principal that made the client id may
    /// change the session.
    fn check_protection(&mut self, session: SessionId, principal: &P) -> Result<bool, Status> {
        let client = self.sessions.get(session)?.client;
        let client = self.clients.usable(client)?;
        match client.protection.is_some() {
            true if client.principal != *principal => Err(Status::WrongCredential),
            is_protected => Ok(is_protected),
        }
    }

    /// Executes DESTROY_SESSION (RFC 8881 §18.37).
    ///
    /// The connection must be bound only where the client's state is protected: elsewhere any SEQUENCE would bind it, so
    /// that to refuse would protect nothing, and would leave sessions of clients that have just connected anew.
    ///
    /// # Errors
    ///
    /// - `BadSession`: there is no such session.
    /// - `WrongCredential`, `ConnectionNotBound`: the client's state is protected.
    pub fn destroy_session(
        &mut self,
        session: SessionId,
        principal: &P,
        connection: ConnectionId,
    ) -> Result<(), Status> {
        let is_protected = self.check_protection(session, principal)?;
        if is_protected && !self.sessions.get(session)?.is_bound(connection) {
            return Err(Status::ConnectionNotBound);
        }
        self.sessions.destroy(session)
    }

    /// Executes DESTROY_CLIENTID (RFC 8881 §18.50).
    ///
    /// # Errors
    ///
    /// - `StaleClientId`: the client id is unknown.
    /// - `WrongCredential`: its state is protected, and another principal calls.
    /// - `ClientIdBusy`: there are sessions or state.
    pub fn destroy_client(
        &mut self,
        now: Instant,
        client: ClientId,
        principal: &P,
    ) -> Result<(), Status> {
        let record = self.clients.usable(client)?;
        if record.protection.is_some() && record.principal != *principal {
            return Err(Status::WrongCredential);
        }
        let has_expired = record.stage == Stage::Courtesy;
        let is_in_use = self.states.has_any(client) || self.sessions.of(client).next().is_some();
        match is_in_use {
            true if !has_expired => return Err(Status::ClientIdBusy),
            true => self.leave(now, client, None),
            false => self.purge(now, client),
        }
        Ok(())
    }

    /// Notes that a connection is gone.
    pub fn handle_disconnect(&mut self, connection: ConnectionId) {
        self.sessions.disconnect(connection);
    }

    /// Returns the ways for callbacks to a client: one for each connection of a back channel. Those of one session follow each
    /// other. A session whose back channel is lost, or that has no credential which can be used, has none.
    pub fn callback_paths(&self, client: ClientId) -> impl Iterator<Item = CallbackPath> {
        let sessions = self.sessions.of(client);
        let sessions = sessions.filter(|session| !session.is_faulty);
        sessions.flat_map(|session| {
            let settings = &session.callbacks;
            let credential = settings.credential.as_ref().into_iter();
            credential.flat_map(move |credential| {
                session
                    .back_connections()
                    .map(move |connection| CallbackPath {
                        session: session.id(),
                        connection,
                        program: settings.program,
                        minor_version: settings.minor_version,
                        credential: credential.clone(),
                        attributes: session.back,
                    })
            })
        })
    }

    /// Takes the slot of a session's back channel for a callback, until [`end_callback`](Self::end_callback). Only slot 0 is used. `None`
    /// if the session is gone, its back channel is lost, or another callback is on its way.
    pub fn begin_callback(&mut self, session: SessionId) -> Option<CallbackSlot> {
        let session = self.sessions.get_mut(session).ok()?;
        match session.is_faulty {
            true => None,
            false => session.back_slot.begin(),
        }
    }

    /// Returns the slot of a callback. If the client executed it, its lease is renewed (RFC 8881 §20.9.3). If that is not known, the
    /// server has lost its place in the back channel, and the client makes a new session (SEQ4_STATUS_BACKCHANNEL_FAULT).
    ///
    /// # Errors
    ///
    /// `BadSession`: the session is gone.
    pub fn end_callback(
        &mut self,
        now: Instant,
        session: SessionId,
        result: CallbackResult,
    ) -> Result<(), Status> {
        let session = self.sessions.get_mut(session)?;
        session.back_slot.end(result);
        match result {
            CallbackResult::Executed => {
                let client = self.clients.usable(session.client)?;
                renew(client, &mut self.leases, now, self.config.lease);
            }
            CallbackResult::NotExecuted => {}
            CallbackResult::Unknown => session.is_faulty = true,
        }
        Ok(())
    }

    /// Returns the highest slot that the client of a session is asked to use; `None` if it may use no others, or the session is
    /// gone.
    pub fn recalled_slots(&self, session: SessionId) -> Option<SlotId> {
        self.sessions.get(session).ok()?.recalled_to()
    }

    /// Returns the number of sessions that were destroyed since the start. While it does not change, no request in progress has lost
    /// its session.
    pub fn sessions_destroyed(&self) -> u64 {
        self.sessions.destroyed()
    }

    /// Returns whether the request in a slot is being executed.
    pub fn is_in_progress(&self, session: SessionId, slot: SlotId) -> bool {
        let session = self.sessions.get(session);
        session.is_ok_and(|session| session.is_in_progress(slot))
    }

    /// Sets the program number of a session's callbacks (BACKCHANNEL_CTL, RFC 8881 §18.33).
    ///
    /// # Errors
    ///
    /// `BadSession`: there is no such session.
    pub fn set_callback_program(&mut self, session: SessionId, program: u32) -> Result<(), Status> {
        self.sessions.get_mut(session)?.callbacks.program = program;
        Ok(())
    }

    /// Sets the credential of a session's callbacks, the first of these that can be used (BACKCHANNEL_CTL, RFC 8881 §18.33).
    ///
    /// # Errors
    ///
    /// `BadSession`: there is no such session.
    pub fn set_callback_security(
        &mut self,
        session: SessionId,
        security: &CallbackSecurities<'_>,
    ) -> Result<(), Status> {
        let session = self.sessions.get_mut(session)?;
        session.callbacks.credential = CallbackCredential::of(security);
        Ok(())
    }

    /// Locks of a file with their owners, for tests that have a table of their own.
    #[cfg(test)]
    pub(crate) fn locks_of(
        &self,
        file: &F,
    ) -> Vec<(
        ClientId,
        Arc<[u8]>,
        crate::lock::Range,
        crate::lock::LockKind,
    )> {
        self.states.locks_of(file)
    }

    /// Sets the seqid of a state, for tests of its end.
    #[cfg(test)]
    pub(crate) fn set_seqid(&mut self, state: StateId, seqid: u32) {
        self.states.set_seqid(state, seqid);
    }

    /// Number of all entries, for tests of what is left.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.clients.entries()
            + self.sessions.entries()
            + self.states.entries()
            + self.leases.entries()
            + self.grace.entries()
            + self.demands.len()
            + self.ending.len()
    }
}

/// Demands that clients are told of the slots that others lack.
fn demand_recalls<P, F>(sessions: &mut Sessions, demands: &mut VecDeque<Demand<P, F>>) {
    let recalls = sessions.drain_recalls();
    demands.extend(recalls.map(|(client, session)| Demand::RecallSlots { client, session }));
}

/// Renews the lease of a client, also if it ran out, and nobody wanted what the client has.
fn renew<P>(client: &mut Client<P>, leases: &mut Leases, now: Instant, lease: Duration) {
    client.renewed = now;
    if client.stage == Stage::Courtesy {
        client.stage = Stage::Confirmed;
        leases.renew(client.id);
        leases.look_at(now + lease, client.id);
    }
}
