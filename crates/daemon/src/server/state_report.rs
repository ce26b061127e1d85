//! Clients of NFS version 4 and what they hold, for the control socket.

use crate::control::nfs4::{
    HeldList, HeldStatus, LockStatus, MAX_HELD, Nfs4ClientStatus, Share, StateAction, StateStatus,
};
use nfs_proto::v4::open::{ShareAccess, ShareDeny};
use nfs_proto::v4::{ClientId, Status};
use nfs_server::LockKind;
use nfs_server::{ClientStage, ClientView, HeldState, Nfs4, Nfs4Status, StateKind, owner_name};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The program of NFS version 4, with the place of the records of its clients.
#[derive(Clone)]
pub(super) struct Administered4 {
    pub(super) nfs: Nfs4,
    pub(super) records: Option<PathBuf>,
}

impl Administered4 {
    /// The clients. `peers` are the addresses of connections by their numbers.
    pub(super) fn clients(&self, peers: &HashMap<u64, SocketAddr>) -> Vec<Nfs4ClientStatus> {
        let all = self.nfs.state().clients(usize::MAX);
        all.iter()
            .map(|(client, since)| status(client, *since, peers))
            .collect()
    }

    /// Opens and locks of a client, or of all.
    pub(super) fn held(&self, client: Option<&str>) -> HeldList {
        let clients = self.nfs.state().clients(usize::MAX);
        let names: HashMap<ClientId, String> = clients
            .iter()
            .map(|(client, _)| (client.client, owner_name(&client.owner)))
            .collect();
        let client = match client.map(|named| (named, self.nfs.state().find_client(named))) {
            None => None,
            Some((_, Ok(client))) => Some(client),
            Some((named, Err(_))) => {
                return HeldList {
                    error: Some(no_client(named)),
                    ..HeldList::default()
                };
            }
        };
        let listed = self.nfs.held_states(client, MAX_HELD);
        let name = |client| names.get(&client).cloned().unwrap_or_default();
        let held = listed.states.iter();
        HeldList {
            held: held
                .map(|state| held_status(state, name(state.client)))
                .collect(),
            has_more: listed.has_more,
            error: None,
        }
    }

    /// Does something with the state, if that is wanted, and returns the state in numbers.
    pub(super) fn state(&self, action: Option<&StateAction>) -> StateStatus {
        let (done, error) = match action.map(|action| self.act(action)) {
            None => (None, None),
            Some(Ok(done)) => {
                tracing::info!(target: "serve", "{done}, as an administrator asked for it");
                (Some(done), None)
            }
            Some(Err(error)) => (None, Some(error)),
        };
        let now = self.status();
        let share = |now: usize, limit: usize| Share {
            now: now as u64,
            limit: limit as u64,
        };
        let Nfs4Status { usage, limits, .. } = now;
        StateStatus {
            lease_seconds: now.lease.as_secs_f64(),
            records: (self.records.as_ref()).map(|dir| dir.to_string_lossy().into_owned()),
            grace: now.is_in_grace,
            grace_seconds_left: now.grace_left.map(|left| left.as_secs_f64()),
            awaited_clients: now.awaited as u64,
            clients: share(usage.clients, limits.clients),
            sessions: share(usage.sessions, limits.sessions),
            opens: share(usage.states, limits.states),
            locks: share(usage.locks, limits.locks),
            waiting: share(usage.waiters, limits.waiters),
            done,
            error,
        }
    }

    /// The state in numbers.
    pub(super) fn status(&self) -> Nfs4Status {
        self.nfs.state().status()
    }

    fn expire(&self, named: &str) -> Result<(), Status> {
        let state = self.nfs.state();
        state.expire_client(state.find_client(named)?)
    }

    fn act(&self, action: &StateAction) -> Result<String, String> {
        match action {
            StateAction::Expire(named) => match self.expire(named) {
                Ok(()) => Ok(format!(
                    "the NFSv4 client {named} is ended with all it holds"
                )),
                Err(_) => Err(no_client(named)),
            },
            StateAction::Release(export) => match self.nfs.release_export(export) {
                Some(revoked) => Ok(format!(
                    "{revoked} opens and owners of locks in {export} are revoked"
                )),
                None => Err(format!("no export {export} is served")),
            },
            StateAction::EndGrace if !self.status().is_in_grace => {
                Err("there is no grace period now".to_owned())
            }
            StateAction::EndGrace => {
                self.nfs.state().end_grace();
                Ok("the grace period is ended".to_owned())
            }
        }
    }
}

fn no_client(named: &str) -> String {
    format!("there is no NFSv4 client {named} (`rpcrdma clients` lists them)")
}

fn status(
    client: &ClientView,
    since: Duration,
    peers: &HashMap<u64, SocketAddr>,
) -> Nfs4ClientStatus {
    let connections = client.connections.iter();
    let addresses = connections.filter_map(|connection| peers.get(&connection.0));
    Nfs4ClientStatus {
        id: id(client.client),
        name: owner_name(&client.owner),
        addresses: addresses.map(ToString::to_string).collect(),
        minor_version: client.minor_version,
        state: match client.stage {
            ClientStage::Unconfirmed => "unconfirmed",
            ClientStage::Confirmed => "active",
            ClientStage::Courtesy => "courtesy",
            ClientStage::Leaving => "leaving",
        }
        .to_owned(),
        has_reclaimed: client.has_reclaimed,
        renewed_seconds: since.as_secs_f64(),
        sessions: client.sessions as u64,
        slots: client.slots as u64,
        callbacks: client.has_backchannel,
        opens: client.opens as u64,
        locks: client.locks as u64,
        waiting: client.waiting as u64,
        revoked: client.revoked as u64,
    }
}

fn held_status(state: &HeldState, client_name: String) -> HeldStatus {
    let held = HeldStatus {
        client: id(state.client),
        client_name,
        owner: owner_name(&state.owner),
        export: state.export.clone(),
        path: (state.path.as_ref()).map(|path| path.to_string_lossy().into_owned()),
        file: state.file.clone(),
        revoked: state.is_revoked,
        ..HeldStatus::default()
    };
    match &state.kind {
        StateKind::Open { access, deny } => HeldStatus {
            kind: "open".to_owned(),
            reads: access.contains(ShareAccess::READ),
            writes: access.contains(ShareAccess::WRITE),
            denies_reading: deny.contains(ShareDeny::READ),
            denies_writing: deny.contains(ShareDeny::WRITE),
            ..held
        },
        StateKind::Locks { locks, has_more } => HeldStatus {
            kind: "locks".to_owned(),
            locks: locks
                .iter()
                .map(|(range, kind)| LockStatus {
                    first: range.first(),
                    last: (range.last() != u64::MAX).then(|| range.last()),
                    exclusive: *kind == LockKind::Exclusive,
                })
                .collect(),
            has_more_locks: *has_more,
            ..held
        },
    }
}

/// A client id as it is shown.
fn id(client: ClientId) -> String {
    format!("{:016x}", client.0)
}
