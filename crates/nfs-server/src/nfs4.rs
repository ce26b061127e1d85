//! The NFS version 4 program, minor versions 1 and 2 (RFC 8881, RFC 7862).
//!
//! A COMPOUND is executed operation by operation (`compound.rs`) for as long as none has to wait, on the task of the connection;
//! one that waits goes on from there on the thread of a job. Handles are those of version 3, and the directories above the exports
//! (`current.rs`). State of clients is in [`Nfs4State`], which several programs may share.

mod acl;
mod administration;
mod attributes;
mod bound;
mod callbacks;
mod compound;
mod convert;
mod copies;
mod counting;
mod current;
mod data;
mod holds;
mod listing;
mod locks;
mod names;
mod objects;
mod opening;
mod operate;
mod owner_name;
mod owners;
mod ranges;
mod records;
mod sessions;
mod special_io;
mod state;
mod xattrs;

pub use administration::{HeldState, HeldStates};
pub use nfs4_state::limits::Limits as Nfs4Limits;
pub use nfs4_state::lock::LockKind;
pub use nfs4_state::{ClientStage, ClientView, StateKind, Usage};
pub use owner_name::owner_name;
pub use state::{Nfs4Settings, Nfs4State, Nfs4StateError, Nfs4Status, Nfs4Upkeep};

use crate::exports::{Exports, ExportsBefore};
use crate::fs::Time;
use crate::in_flight::InFlight;
use crate::metrics::ProgramStats;
use crate::user_groups::UserGroups;
use attributes::ServerValues;
use buffer::Pool;
use counting::OperationMetrics;
use holds::Holds;
use nfs_proto::v4::{ClientId, Procedure};
use nfs_proto::{NFS_PROGRAM, NFS_V4};
use oncrpc::xdr::Reader;
use oncrpc::{Answer, Call, ConnectionId, Program, ReplyBound};
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
    holds: Holds,
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
                holds: Holds::default(),
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

    /// Returns the statistics of the operations.
    pub fn stats(&self) -> ProgramStats {
        self.inner.metrics.stats()
    }

    /// Returns opens and owners of locks, of one client or of all: at most so many. It may wait for a disk, which tells paths of files.
    pub fn held_states(&self, client: Option<ClientId>, max: usize) -> HeldStates {
        administration::held_states(&self.inner.exports, &self.inner.state, client, max)
    }

    /// Revokes all opens and locks in an export, with what is mounted below it, and closes their files soon after, so that its file
    /// system can be unmounted. The export stays: clients may open files again. Returns the number of states that now are revoked;
    /// `None` without an export of this name.
    pub fn release_export(&self, name: &str) -> Option<usize> {
        let numbers = self.inner.exports.all().numbers_of(name);
        match numbers.is_empty() {
            true => None,
            false => Some(self.inner.state.revoke(|export| numbers.contains(&export))),
        }
    }

    /// Revokes all opens and locks in file systems that were exported and are no more, and closes their files soon after. Returns the
    /// number of states that now are revoked.
    pub fn exports_replaced(&self, before: &ExportsBefore) -> usize {
        let gone = before.gone_in(&self.inner.exports.all());
        match gone.is_empty() {
            true => 0,
            false => self.inner.state.revoke(|export| gone.contains(&export)),
        }
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

    fn reply_bound(
        &self,
        procedure: oncrpc::Procedure,
        args: &mut Reader<'_>,
    ) -> Option<ReplyBound> {
        match Procedure::try_from(procedure.proc).ok()? {
            Procedure::Null => None,
            Procedure::Compound => bound::of_compound(args.clone()),
        }
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
