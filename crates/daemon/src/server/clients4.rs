//! The state of clients of NFS version 4.

use nfs_server::{Nfs4Settings, Nfs4State, Nfs4StateError};
use printing::units;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Opens the state of clients: with their records in the state directory, if there is one. Returns the place of these, too.
///
/// Another server may have the directory, such as one of another configuration of the same user. Files can be shared by
/// both, and records of clients cannot: then the clients of this server reclaim nothing after a restart.
///
/// # Errors
///
/// If the state directory cannot be used.
pub(super) fn open(
    state_dir: Option<&Path>,
    lease: Duration,
) -> anyhow::Result<(Nfs4State, Option<PathBuf>)> {
    let settings = Nfs4Settings {
        lease,
        grace: lease,
        state_dir: state_dir.map(Path::to_owned),
        ..Nfs4Settings::default()
    };
    let (state, records) = match Nfs4State::open(settings.clone()) {
        Err(in_use @ Nfs4StateError::InUse { .. }) => {
            tracing::warn!(
                target: "serve",
                "{in_use}: NFSv4 clients of this server lose their locks when it restarts (give it a --state-dir of its own)"
            );
            let state_dir = None;
            let state = Nfs4State::open(Nfs4Settings {
                state_dir,
                ..settings
            })?;
            (state, None)
        }
        opened => (opened?, state_dir.map(|dir| dir.join(RECORDS))),
    };
    let status = state.status();
    if let Some(left) = status.grace_left {
        let seconds = Duration::from_secs((left + HALF_A_SECOND).as_secs());
        tracing::info!(
            target: "serve",
            clients = status.awaited,
            "NFSv4 clients of before the restart may reclaim their locks; until they have, for {} if they do not come, new opens and locks wait",
            units::duration(seconds)
        );
    }
    Ok((state, records))
}

/// Added to a time that is shown in whole seconds.
const HALF_A_SECOND: Duration = Duration::from_millis(500);

/// Name of the directory with the records of clients, within that of the state.
const RECORDS: &str = "nfs4";
