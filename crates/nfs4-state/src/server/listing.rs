//! Lists of clients and of their state for an administrator, in pages.

use super::Server;
use crate::client::{Reclaims, Stage};
use crate::lock::{LockKind, Range};
use crate::session::ConnectionId;
use crate::state::{Page, UsageOfClient};
use nfs_proto::v4::open::{ShareAccess, ShareDeny};
use nfs_proto::v4::{ClientId, StateId};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

/// Connections of a client that are listed at most.
pub const MAX_LISTED_CONNECTIONS: usize = 16;

/// Locks of one state that are listed at most.
pub const MAX_LISTED_LOCKS: usize = 16;

/// A client id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientView {
    /// The client id.
    pub client: ClientId,
    /// Name of the client.
    pub owner: Arc<[u8]>,
    /// Stage in its life.
    pub stage: ClientStage,
    /// When its lease was last renewed.
    pub renewed: Instant,
    /// Whether it has said that it has reclaimed all it will.
    pub has_reclaimed: bool,
    /// Minor version of its newest session.
    pub minor_version: Option<u32>,
    /// Sessions.
    pub sessions: usize,
    /// Slots of these.
    pub slots: usize,
    /// Connections that are bound to these: the first [`MAX_LISTED_CONNECTIONS`].
    pub connections: Vec<ConnectionId>,
    /// Whether it can be called.
    pub has_backchannel: bool,
    /// Opens.
    pub opens: usize,
    /// Locks of byte ranges.
    pub locks: usize,
    /// Locks that it waits for.
    pub waiting: usize,
    /// States that were revoked, of which it has not taken note as yet.
    pub revoked: usize,
}

/// Stage in the life of a client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStage {
    /// It has no session as yet.
    Unconfirmed,
    /// It is confirmed, and its lease lives.
    Confirmed,
    /// Its lease ran out. Its state stays until it is in the way of others, or for long.
    Courtesy,
    /// Its state is ending.
    Leaving,
}

/// An open, or an owner of locks in an open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateView<F> {
    /// The state id.
    pub state: StateId,
    /// The client.
    pub client: ClientId,
    /// Name of the owner.
    pub owner: Arc<[u8]>,
    /// The file.
    pub file: F,
    /// Whether it was revoked, and is kept for the client to take note.
    pub is_revoked: bool,
    /// An open, or the locks of an owner.
    pub kind: StateKind,
}

/// Kind of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// An open.
    Open {
        /// Access.
        access: ShareAccess,
        /// Access that others are denied.
        deny: ShareDeny,
    },
    /// An owner of locks.
    Locks {
        /// Its locks: the first [`MAX_LISTED_LOCKS`].
        locks: Vec<(Range, LockKind)>,
        /// Whether it has more.
        has_more: bool,
    },
}

/// A page of a list of states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatesPage<F> {
    /// The states.
    pub states: Vec<StateView<F>>,
    /// From where the list goes on; `None` at its end.
    pub next: Option<u32>,
}

/// Progress of [`Server::revoke_where`](super::Server::revoke_where).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// States that now are revoked.
    pub states: usize,
    /// From where to go on; `None` at the end.
    pub next: Option<u32>,
}

/// The grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceView {
    /// When it ends, unless clients reclaim until then: these get a little more time.
    pub until: Instant,
    /// Clients that have not said that they are done.
    pub awaited: usize,
}

/// Lists of what a server has, in pages.
#[derive(Debug)]
pub struct Listing<'a, P, F>(pub(super) &'a Server<P, F>);

impl<P: Clone + Eq, F: Clone + Eq + Hash> Listing<'_, P, F> {
    /// Returns the first clients behind a client id, in the order of their ids: at most so many. It costs time in proportion to all
    /// clients.
    pub fn clients_after(&self, after: Option<ClientId>, max: usize) -> Vec<ClientView> {
        let mut ids: Vec<u64> = self.0.clients.ids().map(|id| id.0).collect();
        if let Some(ClientId(after)) = after {
            ids.retain(|id| *id > after);
        }
        if max < ids.len() {
            ids.select_nth_unstable(max);
            ids.truncate(max);
        }
        ids.sort_unstable();
        let views = ids.into_iter().map(|id| self.view(ClientId(id)));
        views.flatten().collect()
    }

    fn view(&self, id: ClientId) -> Option<ClientView> {
        let client = self.0.clients.get(id)?;
        let of_states = UsageOfClient::of(&self.0.states, id);
        let sessions = || self.0.sessions.of(id);
        let connections = sessions().flat_map(|session| session.connections());
        Some(ClientView {
            client: id,
            owner: Arc::clone(&client.owner),
            stage: match client.stage {
                Stage::Unconfirmed => ClientStage::Unconfirmed,
                Stage::Confirmed => ClientStage::Confirmed,
                Stage::Courtesy => ClientStage::Courtesy,
                Stage::Leaving => ClientStage::Leaving,
            },
            renewed: client.renewed,
            has_reclaimed: client.reclaims == Reclaims::Complete,
            minor_version: sessions()
                .last()
                .map(|session| session.callbacks.minor_version),
            sessions: sessions().count(),
            slots: sessions().map(|session| session.active_slots()).sum(),
            connections: connections.take(MAX_LISTED_CONNECTIONS).collect(),
            has_backchannel: sessions()
                .any(|session| session.has_back_connection() && !session.is_faulty),
            opens: of_states.opens,
            locks: of_states.locks,
            waiting: of_states.waiting,
            revoked: of_states.revoked,
        })
    }

    /// Returns the states at the places from `from` on, in the order of their places: at most `max` places are looked at.
    pub fn states_from(&self, from: u32, max: u32) -> StatesPage<F> {
        let (states, next) = Page::at(&self.0.states, from, max).states();
        StatesPage { states, next }
    }
}
