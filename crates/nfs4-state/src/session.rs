//! Sessions, their slots and their connections (RFC 8881 §2.10).

mod back;
mod budget;
mod slots;

use crate::Random;
use crate::address::{AddressKey, may_grow};
use crate::limits::{MAX_CONNECTIONS_PER_SESSION, MAX_SESSIONS_PER_CLIENT};
pub(crate) use back::{BackSlot, CallbackSettings};
pub use back::{CallbackCredential, CallbackResult, CallbackSlot, SysCallbackCredential};
use budget::Budget;
use bytes::Bytes;
use foldhash::HashMap;
use nfs_proto::v4::session::{ChannelAttributes, ClientDirection, SequenceArgs, ServerDirection};
use nfs_proto::v4::{ClientId, SequenceId, SessionId, SlotId, Status};
use slab::Slab;
use slots::{Slots, Step};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Sessions that are looked at for slots that others lack, with each SEQUENCE and each new session.
const SESSIONS_AT_ONCE: usize = 16;

/// A connection. The caller numbers them, and uses no number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Digest of a request and its user, by which a retry is told from another request on the same slot (RFC 8881
/// §2.10.6.1.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestDigest(pub u64);

/// Limits that the server sets for sessions. A client gets what it wants, and no more than this (RFC 8881
/// §18.36.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelLimits {
    /// Bytes of a request.
    pub max_request: u32,
    /// Bytes of a reply.
    pub max_response: u32,
    /// Bytes of a reply that is kept for a retry.
    pub max_response_cached: u32,
    /// Operations of a request.
    pub max_operations: u32,
    /// Slots.
    pub max_requests: u32,
    /// Fewest bytes of requests and replies with which the channel is of use.
    pub min_message: u32,
}

impl ChannelLimits {
    /// Returns the attributes of a channel for which a client has its wishes.
    ///
    /// # Errors
    ///
    /// `TooSmall`: no request or no reply would fit (RFC 8881 §18.36.3).
    fn grant(&self, wanted: &ChannelAttributes) -> Result<ChannelAttributes, Status> {
        let smallest = wanted.max_request.min(wanted.max_response);
        if smallest < self.min_message || wanted.max_operations == 0 || wanted.max_requests == 0 {
            return Err(Status::TooSmall);
        }
        Ok(ChannelAttributes {
            // The server uses no padding.
            header_pad: 0,
            max_request: wanted.max_request.min(self.max_request),
            max_response: wanted.max_response.min(self.max_response),
            max_response_cached: wanted.max_response_cached.min(self.max_response_cached),
            max_operations: wanted.max_operations.min(self.max_operations),
            max_requests: wanted.max_requests.min(self.max_requests),
            rdma_ird: None,
        })
    }
}

/// The channels for which a connection is bound to a session.
#[derive(Clone, Copy, Debug)]
struct Binding {
    connection: ConnectionId,
    fore: bool,
    back: bool,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    id: SessionId,
    pub(crate) client: ClientId,
    address: AddressKey,
    pub(crate) fore: ChannelAttributes,
    pub(crate) back: ChannelAttributes,
    pub(crate) callbacks: CallbackSettings,
    pub(crate) back_slot: BackSlot,
    /// The client has asked for callbacks in this session.
    pub(crate) wants_callbacks: bool,
    /// The server has lost its place in the back channel.
    pub(crate) is_faulty: bool,
    slots: Slots,
    connections: Vec<Binding>,
}

impl Session {
    /// Returns the connections for callbacks.
    pub(crate) fn back_connections(&self) -> impl Iterator<Item = ConnectionId> {
        let bindings = self.connections.iter().filter(|binding| binding.back);
        bindings.map(|binding| binding.connection)
    }

    /// Returns whether there is a connection for callbacks.
    pub(crate) fn has_back_connection(&self) -> bool {
        self.back_connections().next().is_some()
    }

    /// Returns whether the request of a slot is being executed.
    pub(crate) fn is_in_progress(&self, slot: SlotId) -> bool {
        self.slots.is_in_progress(slot)
    }

    /// Returns the connections that are bound.
    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.connections.iter().map(|binding| binding.connection)
    }

    /// Returns the number of slots that the client may use.
    pub(crate) fn active_slots(&self) -> usize {
        self.slots.active() as usize
    }

    pub(crate) fn is_bound(&self, connection: ConnectionId) -> bool {
        let mut bindings = self.connections.iter();
        bindings.any(|binding| binding.connection == connection)
    }

    /// Returns the highest slot that the client is asked to use, if it may still use others.
    pub(crate) fn recalled_to(&self) -> Option<SlotId> {
        let (highest, target) = self.highest_slots();
        Some(target).filter(|&target| target < highest)
    }

    /// Highest slot that the client may use, and highest that it is asked to use.
    pub(crate) fn highest_slots(&self) -> (SlotId, SlotId) {
        let highest = |slots: u32| SlotId(slots - 1);
        (highest(self.slots.active()), highest(self.slots.target()))
    }
}

/// Wishes for a session.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) fore: ChannelAttributes,
    pub(crate) back: ChannelAttributes,
    pub(crate) callback_settings: CallbackSettings,
    pub(crate) callbacks: bool,
    pub(crate) address: AddressKey,
}

/// Place of a request in the reply cache.
#[derive(Debug)]
pub(crate) enum Place {
    New,
    Replay(Bytes),
    Uncached,
    InProgress,
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    sessions: Slab<Session>,
    /// Sessions of each client.
    of_client: HashMap<ClientId, Vec<usize>>,
    /// Sessions of each connection.
    of_connection: HashMap<ConnectionId, Vec<usize>>,
    budget: Budget,
    /// Sessions whose clients are to be told that they should use fewer slots.
    recalls: Vec<(ClientId, SessionId)>,
    /// The session that is looked at next when slots are lacking.
    next_look: usize,
    /// Places of sessions that were looked at since the last one that had too many slots.
    looked_at: usize,
    /// Length of a period, in which clients can be expected to give slots back.
    period: Duration,
    /// When the current one ends.
    period_ends: Option<Instant>,
    max: usize,
    fore: ChannelLimits,
    back: ChannelLimits,
    /// Number of sessions that were destroyed.
    destroyed: u64,
}

impl Sessions {
    /// None yet, of at most `max` with so many slots. Clients renew their leases, and so hear of what they are asked for, within `lease`.
    pub(crate) fn new(
        (max, slots): (usize, u32),
        lease: Duration,
        fore: ChannelLimits,
        back: ChannelLimits,
    ) -> Self {
        Self {
            sessions: Slab::new(),
            of_client: HashMap::default(),
            of_connection: HashMap::default(),
            budget: Budget::new(slots),
            recalls: Vec::new(),
            next_look: 0,
            looked_at: 0,
            period: lease,
            period_ends: None,
            max,
            fore,
            back,
            destroyed: 0,
        }
    }

    pub(crate) fn destroyed(&self) -> u64 {
        self.destroyed
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Index of a session. It stands in the id, beside 96 bits that nobody can guess.
    fn index(&self, id: SessionId) -> Result<usize, Status> {
        let [a, b, c, d, ..] = id.0;
        let index = u32::from_be_bytes([a, b, c, d]) as usize;
        match self.sessions.get(index) {
            Some(session) if session.id == id => Ok(index),
            _ => Err(Status::BadSession),
        }
    }

    /// Finds a session.
    ///
    /// # Errors
    ///
    /// `BadSession`: there is none with this id.
    pub(crate) fn get(&self, id: SessionId) -> Result<&Session, Status> {
        self.index(id).map(|index| &self.sessions[index])
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Result<&mut Session, Status> {
        self.index(id).map(|index| &mut self.sessions[index])
    }

    /// Returns the sessions of a client.
    pub(crate) fn of(&self, client: ClientId) -> impl Iterator<Item = &Session> {
        let of_client = self.of_client.get(&client).into_iter().flatten();
        of_client.map(|&index| &self.sessions[index])
    }

    /// Returns the attributes of the channels of a session for which a client has its wishes, the fore channel first.
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create).
    fn grant(
        &self,
        client: ClientId,
        wishes: &Wishes,
    ) -> Result<(ChannelAttributes, ChannelAttributes), Status> {
        let fore = self.fore.grant(&wishes.fore)?;
        // Also without callbacks now: another connection may be bound for them later.
        let granted = self.back.grant(&wishes.back)?;
        let back = ChannelAttributes {
            // RFC 8881 §18.36.3: these two are never changed. One slot is used, whatever the client offers.
            max_operations: wishes.back.max_operations,
            max_requests: wishes.back.max_requests,
            ..granted
        };
        let of_client = self.of_client.get(&client).map_or(0, Vec::len);
        let of_address = self.budget.sessions_of(wishes.address);
        let has_room = may_grow(of_address, self.sessions.len(), self.max);
        match has_room && of_client < MAX_SESSIONS_PER_CLIENT {
            true => Ok((fore, back)),
            false => Err(Status::NoSpace),
        }
    }

    /// Creates a session, and binds its connection.
    ///
    /// # Errors
    ///
    /// - `TooSmall`: no request or no reply would fit.
    /// - `NoSpace`: there are too many sessions, or too many of this client or address.
    pub(crate) fn create(
        &mut self,
        random: &mut impl Random,
        client: ClientId,
        wishes: &Wishes,
        connection: ConnectionId,
    ) -> Result<&Session, Status> {
        let (mut fore, back) = self.grant(client, wishes)?;
        self.budget.begin_session(wishes.address);
        let slots = Slots::new(fore.max_requests, self.budget.room(wishes.address));
        fore.max_requests = slots.active();
        let entry = self.sessions.vacant_entry();
        let index = entry.key();
        let mut id = SessionId::default();
        random.fill(&mut id.0);
        let place = u32::try_from(index).expect("sessions have a limit");
        id.0[..4].copy_from_slice(&place.to_be_bytes());
        entry.insert(Session {
            id,
            client,
            address: wishes.address,
            fore,
            back,
            callbacks: wishes.callback_settings.clone(),
            back_slot: BackSlot::default(),
            wants_callbacks: wishes.callbacks,
            is_faulty: false,
            slots,
            connections: Vec::new(),
        });
        self.of_client.entry(client).or_default().push(index);
        self.bind(index, connection, true, wishes.callbacks);
        self.looked_at = 0;
        self.recall_slots();
        Ok(&self.sessions[index])
    }

    /// Binds a connection, unless there are too many: then its requests are served, too, but it gets no callbacks.
    fn bind(&mut self, index: usize, connection: ConnectionId, fore: bool, back: bool) {
        let connections = &mut self.sessions[index].connections;
        if connections.len() < MAX_CONNECTIONS_PER_SESSION {
            connections.push(Binding {
                connection,
                fore,
                back,
            });
            let of_connection = self.of_connection.entry(connection).or_default();
            of_connection.push(index);
        }
    }

    /// Binds a connection to channels of a session (RFC 8881 §18.34.3). `can_call` says whether callbacks can
    /// be sent on it.
    ///
    /// # Errors
    ///
    /// - `BadSession`: there is no such session.
    /// - `Invalid`: the connection is bound to other channels of it, or it cannot have the channels that the client insists on.
    pub(crate) fn bind_channels(
        &mut self,
        id: SessionId,
        connection: ConnectionId,
        direction: ClientDirection,
        can_call: bool,
    ) -> Result<ServerDirection, Status> {
        let index = self.index(id)?;
        let (fore, back) = match direction {
            ClientDirection::Fore => (true, false),
            ClientDirection::Back if !can_call => return Err(Status::Invalid),
            ClientDirection::Back => (false, true),
            // To be the fore channel, too, is never refused; both forms may get both.
            ClientDirection::BackOrBoth if !can_call => return Err(Status::Invalid),
            ClientDirection::ForeOrBoth | ClientDirection::BackOrBoth => (true, can_call),
        };
        let session = &mut self.sessions[index];
        session.wants_callbacks |= back;
        let is_full = session.connections.len() >= MAX_CONNECTIONS_PER_SESSION;
        let mut bindings = session.connections.iter_mut();
        match bindings.find(|binding| binding.connection == connection) {
            Some(binding) if (binding.fore, binding.back) == (fore, back) => {}
            // A connection that only had a SEQUENCE is bound to the fore channel without having asked, and becomes
            // the back channel, too, when it asks: Linux does so after CB_PATH_DOWN.
            Some(binding) if binding.fore && fore && back => binding.back = true,
            Some(_) => return Err(Status::Invalid),
            None if is_full => return Err(Status::Invalid),
            None => self.bind(index, connection, fore, back),
        }
        Ok(match (fore, back) {
            (true, true) => ServerDirection::Both,
            (true, false) => ServerDirection::Fore,
            (false, _) => ServerDirection::Back,
        })
    }

    /// Finds the place of a request in the reply cache of its session.
    ///
    /// # Errors
    ///
    /// Those of SEQUENCE (RFC 8881 §18.46): nothing is changed.
    pub(crate) fn place(
        &mut self,
        args: &SequenceArgs,
        connection: ConnectionId,
        digest: RequestDigest,
        must_be_bound: bool,
    ) -> Result<Place, Status> {
        let index = self.index(args.session)?;
        let session = &mut self.sessions[index];
        let is_bound = session.is_bound(connection);
        if !is_bound && must_be_bound {
            return Err(Status::ConnectionNotBound);
        }
        let address = session.address;
        let before = session.slots.active();
        let step = (session.slots).check(args, digest, &mut self.budget, address)?;
        if session.slots.active() > before {
            // It may have more than its part now.
            self.looked_at = 0;
        }
        // RFC 8881 §2.10.3.1: a SEQUENCE binds its connection to the fore channel.
        if !is_bound {
            self.bind(index, connection, true, false);
        }
        self.recall_slots();
        Ok(match step {
            Step::New => Place::New,
            Step::Replay(reply) => Place::Replay(reply),
            Step::Uncached => Place::Uncached,
            Step::InProgress => Place::InProgress,
        })
    }

    /// Notes the time: whoever was asked for slots and has not given them back after a while is not counted on any more, and others are
    /// asked.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        if self.period_ends.is_some_and(|ends| now < ends) {
            return;
        }
        self.period_ends = Some(now + self.period);
        if self.budget.next_period() {
            self.looked_at = 0;
        }
    }

    /// Looks for sessions with more slots than their part, if slots are lacking: at some at a time, in turns. None is asked twice for
    /// the same slots.
    fn recall_slots(&mut self) {
        let places = self.sessions.capacity();
        for _ in 0..SESSIONS_AT_ONCE {
            if !self.budget.is_lacking() || self.looked_at >= places {
                return;
            }
            self.looked_at += 1;
            let index = self.next_look;
            self.next_look = (index + 1) % places;
            let Some(session) = self.sessions.get_mut(index) else {
                continue;
            };
            if (session.slots).recall(self.budget.room(session.address)) {
                self.looked_at = 0;
                // Others read it in the next reply.
                if session.has_back_connection() {
                    self.recalls.push((session.client, session.id));
                }
            }
        }
    }

    /// Takes the sessions whose clients are to be told that they should use fewer slots.
    pub(crate) fn drain_recalls(&mut self) -> impl Iterator<Item = (ClientId, SessionId)> {
        self.recalls.drain(..)
    }

    /// Keeps the reply of a request, if its session still is there, and the reply is no larger than the session
    /// allows. Returns whether the session is there.
    pub(crate) fn finish(
        &mut self,
        id: SessionId,
        slot: SlotId,
        sequence: SequenceId,
        reply: Option<Bytes>,
    ) -> bool {
        let Ok(session) = self.get_mut(id) else {
            return false;
        };
        let most = session.fore.max_response_cached as usize;
        let reply = reply.filter(|reply| reply.len() <= most);
        session.slots.finish(slot, sequence, reply);
        true
    }

    /// Returns whether a request of a client is being executed.
    pub(crate) fn is_busy(&self, client: ClientId) -> bool {
        self.of(client)
            .any(|session| session.slots.in_progress() > 0)
    }

    /// Destroys a session.
    ///
    /// # Errors
    ///
    /// `BadSession`: there is no such session.
    pub(crate) fn destroy(&mut self, id: SessionId) -> Result<(), Status> {
        let index = self.index(id)?;
        let session = self.sessions.remove(index);
        self.destroyed += 1;
        self.looked_at = 0;
        session.slots.give_back(self.budget.room(session.address));
        self.budget.end_session(session.address);
        forget(&mut self.of_client, session.client, index);
        for binding in session.connections {
            forget(&mut self.of_connection, binding.connection, index);
        }
        Ok(())
    }

    /// Destroys all sessions of a client.
    pub(crate) fn destroy_all(&mut self, client: ClientId) {
        let ids: Vec<SessionId> = self.of(client).map(|session| session.id).collect();
        for id in ids {
            self.destroy(id).expect("a session of the client");
        }
    }

    /// Forgets a connection.
    pub(crate) fn disconnect(&mut self, connection: ConnectionId) {
        for index in self.of_connection.remove(&connection).unwrap_or_default() {
            let connections = &mut self.sessions[index].connections;
            connections.retain(|binding| binding.connection != connection);
        }
    }

    /// Number of all entries, for tests of what is left.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.sessions.len()
            + self.of_client.len()
            + self.budget.entries()
            + self.recalls.len()
            + self.of_connection.len()
    }
}

/// Removes a session from a list, and a list that is empty.
fn forget<K: Copy + Eq + Hash>(lists: &mut HashMap<K, Vec<usize>>, key: K, index: usize) {
    if let Some(list) = lists.get_mut(&key) {
        list.retain(|&its| its != index);
        if list.is_empty() {
            lists.remove(&key);
        }
    }
}

impl Session {
    /// Returns the id.
    pub(crate) fn id(&self) -> SessionId {
        self.id
    }
}
