//! The directory with the state of a server: the key of file handles.

use crate::systemd;
use nfs_server::{HandleKey, KeyError, default_state_dir};
use oncrpc::plain;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The directory that the administrator has named: this one, or else that of the service manager.
pub(super) fn named_dir(setting: Option<&Path>) -> Option<PathBuf> {
    setting.map(Path::to_owned).or_else(systemd::state_dir)
}

/// The directory of the state, if there is any: the named one, or else the usual one.
pub(super) fn dir(setting: Option<&Path>) -> Option<PathBuf> {
    named_dir(setting).or_else(default_state_dir)
}

/// Opens the directory of the state, if there is any, and loads the key of file handles there. The usual directory, which no
/// setting names, need not be usable.
///
/// # Errors
///
/// If the key cannot be used.
pub(super) fn open(setting: Option<&Path>) -> Result<(Option<PathBuf>, HandleKey), KeyError> {
    if let Some(dir) = named_dir(setting) {
        let key = HandleKey::load_or_create(&dir)?;
        return Ok((Some(dir), key));
    }
    let missing = match default_state_dir() {
        None => NO_HOME.to_owned(),
        Some(dir) => match HandleKey::load_or_create(&dir) {
            Ok(key) => return Ok((Some(dir), key)),
            Err(error) => unusable(&error).ok_or(error)?,
        },
    };
    tracing::warn!(target: "serve", "{}", without_state(&missing));
    Ok((None, HandleKey::random()?))
}

/// Reason for a missing directory of state.
pub(super) const NO_HOME: &str = "this user has no home";

/// The reason why a directory has no place for a key; `None` for a key that is there and cannot be used.
pub(super) fn unusable(error: &KeyError) -> Option<String> {
    let KeyError::File { path, error } = error else {
        return None;
    };
    let no_place = matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::NotADirectory
            | ErrorKind::ReadOnlyFilesystem
    );
    no_place.then(|| plain(&format_args!("{}: {error}", path.display())))
}

/// Warning about missing state, with the reason.
pub(super) fn without_state(why: &str) -> String {
    format!(
        "file handles will not survive a restart: {why} (--state-dir names a directory for the key)"
    )
}

/// The directory of the state, and whether records of clients are there, in words.
pub(super) fn describe(dir: Option<&Path>, has_records: bool) -> String {
    match (dir, has_records) {
        (Some(dir), true) => format!(
            "{} (file handles and locks survive a restart; records of NFSv4 clients are in nfs4)",
            dir.display()
        ),
        (Some(dir), false) => format!(
            "{} (file handles survive a restart; locks of NFSv4 clients do not, as another server uses it)",
            dir.display()
        ),
        (None, _) => "none: file handles and locks are lost at exit (--state-dir)".to_owned(),
    }
}
