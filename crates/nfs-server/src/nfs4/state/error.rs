//! Errors of the state of clients at its start.

use std::io;
use std::path::PathBuf;

/// Why the state of clients cannot be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
#[non_exhaustive]
pub enum Nfs4StateError {
    #[error(
        "{path}: cannot keep the records of NFSv4 clients here: {error} (--state-dir names another directory)"
    )]
    Directory { path: PathBuf, error: io::Error },
    #[error(
        "{path}: others than the user who runs the server can change it, and so say whose locks are kept over a restart (chown or chmod it, or choose another directory with --state-dir)"
    )]
    NotPrivate { path: PathBuf },
    #[error("{path}: another server with the same --state-dir uses it")]
    InUse { path: PathBuf },
    #[error(
        "{path}: it is damaged from byte {at} on (remove it to go on; NFSv4 clients lose the locks that they hold, and programs with locks get errors)"
    )]
    Damaged { path: PathBuf, at: usize },
    #[error("the system has no random numbers for the state of NFSv4 clients: {0}")]
    Random(getrandom::Error),
    #[error("cannot start a thread for the state of NFSv4 clients: {0}")]
    Thread(io::Error),
    #[error("the lease of NFSv4 clients must be longer than zero")]
    NoLease,
}
