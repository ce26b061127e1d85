//! The state of clients of NFS version 4.

use nfs_server::{Nfs4Settings, Nfs4State, Nfs4StateError};
use std::path::Path;
use std::time::Duration;

/// Opens the state of clients: with their records in the state directory, if there is one.
///
/// Another server may have the directory, such as one of another configuration of the same user. Files can be shared by
/// both, and records of clients cannot: then the clients of this server reclaim nothing after a restart.
///
/// # Errors
///
/// If the state directory cannot be used.
pub(super) fn open(state_dir: Option<&Path>, lease: Duration) -> anyhow::Result<Nfs4State> {
    let settings = Nfs4Settings {
        lease,
        grace: lease,
        state_dir: state_dir.map(Path::to_owned),
        ..Nfs4Settings::default()
    };
    match Nfs4State::open(settings.clone()) {
        Err(in_use @ Nfs4StateError::InUse { .. }) => {
            tracing::warn!(
                target: "serve",
                "{in_use}: NFSv4 clients of this server lose their locks when it restarts (give it a --state-dir of its own)"
            );
            let state_dir = None;
            Ok(Nfs4State::open(Nfs4Settings {
                state_dir,
                ..settings
            })?)
        }
        opened => Ok(opened?),
    }
}
