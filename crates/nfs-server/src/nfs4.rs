//! The NFS version 4 program, minor versions 1 and 2 (RFC 8881, RFC 7862).
//!
//! A COMPOUND is executed operation by operation (`compound.rs`) for as long as none has to wait, on the task of the connection;
//! one that waits goes on from there on the thread of a job. Handles are those of version 3, and the directories above the exports
//! (`current.rs`). State of clients is in [`Nfs4State`], which several programs may share.

mod acl;
mod administration;
mod attributes;
mod callbacks;
mod compound;
mod convert;
mod counting;
mod current;
mod data;
mod listing;
mod locks;
mod names;
mod objects;
mod opening;
mod operate;
mod owners;
mod records;
mod sessions;
mod state;

pub use administration::{HeldState, HeldStates, owner_name};
pub use nfs4_state::limits::Limits as Nfs4Limits;
pub use nfs4_state::lock::LockKind;
pub use nfs4_state::{ClientStage, ClientView, StateKind, Usage};
pub use state::{Nfs4Settings, Nfs4State, Nfs4StateError, Nfs4Status};

use crate::exports::Exports;
use crate::fs::Time;
use crate::in_flight::InFlight;
use crate::user_groups::UserGroups;
use attributes::ServerValues;
use buffer::Pool;
use counting::OperationMetrics;
use nfs_proto::v4::Procedure;
use nfs_proto::{NFS_PROGRAM, NFS_V4};
use oncrpc::{Answer, Call, ConnectionId, Program};
use rpc_serving::backchannels::Backchannels;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Largest number of calls of all clients that wait for a thread or a disk. Further ones are answered with NFS4ERR_DELAY.
const MAX_IN_FLIGHT: usize = 8192;

/// The NFS version 4 program. Clones share everything.
#[derive(Clone)]
pub struct Nfs4 {
    inner: Arc<Inner>,
    users: UserGroups,
    backchannels: Option<Backchannels>,
}

struct Inner {
    exports: Exports,
    pool: Pool,
    state: Nfs4State,
    in_flight: InFlight,
    values: ServerValues,
    metrics: OperationMetrics,
    /// When the directories above the exports came to be.
    started: Time,
}

impl Nfs4 {
    /// Creates the program for these exports. Memory for replies comes from `pool`.
    pub fn new(exports: Exports, pool: Pool, state: Nfs4State) -> Self {
        let values = ServerValues {
            lease: u32::try_from(state.lease().as_secs()).unwrap_or(u32::MAX),
            max_read: crate::MAX_READ,
            max_write: crate::MAX_WRITE,
        };
        Self {
            inner: Arc::new(Inner {
                exports,
                pool,
                state,
                in_flight: InFlight::new(MAX_IN_FLIGHT),
                values,
                metrics: counting::metrics(),
                started: Time::now(),
            }),
            users: UserGroups::default(),
            backchannels: None,
        }
    }

    /// Sets the source of callers' groups.
    #[must_use]
    pub fn with_users(mut self, users: UserGroups) -> Self {
        self.users = users;
        self
    }

    /// Sets the registry of connections on which clients can be called, with which the servers are configured too. Without it
    /// clients are called on none, and those that wait for a lock ask again from time to time.
    #[must_use]
    pub fn with_backchannels(mut self, backchannels: Backchannels) -> Self {
        self.backchannels = Some(backchannels);
        self
    }

    /// Whether the client can be called on a connection.
    fn can_call(&self, connection: ConnectionId) -> bool {
        let all = self.backchannels.as_ref();
        all.is_some_and(|all| all.get(connection).is_some())
    }

    /// Returns the state of the clients.
    pub fn state(&self) -> &Nfs4State {
        &self.inner.state
    }
}

impl Program for Nfs4 {
    fn number(&self) -> u32 {
        NFS_PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        NFS_V4..=NFS_V4
    }

    fn connection_ended(&self, connection: ConnectionId) {
        self.inner.state.connection_ended(connection);
    }

    fn call(&self, call: Call) -> Answer {
        match Procedure::try_from(call.proc) {
            Ok(Procedure::Null) => Answer::Now(match call.decode(|_| Ok(())) {
                Ok(()) => match crate::client_options::denial(&call) {
                    Some(stat) => call.denied(stat),
                    None => call.void(),
                },
                Err(error) => call.unreadable(error),
            }),
            Ok(Procedure::Compound) => self.compound(call),
            Err(_) => Answer::Now(call.proc_unavail()),
        }
    }
}

#[cfg(test)]
mod tests;
