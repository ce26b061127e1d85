//! What all packages have in common: progress of a run, version, time, machine, checksums.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::command::output;

/// Progress of a run.
pub(super) struct Progress(Instant);

impl Progress {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// One line.
    pub(super) fn say(&self, what: &str) {
        eprintln!(
            "[{:>6.1} s] package: {what}",
            self.0.elapsed().as_secs_f64()
        );
    }
}

/// The SHA-256 of bytes, in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The version of the program.
pub(super) fn version() -> &'static str {
    // That of the workspace.
    env!("CARGO_PKG_VERSION")
}

/// The time that all files of the packages have, in seconds since 1970: `SOURCE_DATE_EPOCH`, or that of the
/// last commit, so that the same sources make the same packages.
///
/// # Errors
///
/// The variable is no number.
pub(super) fn source_time() -> Result<u64> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return time.parse().context("SOURCE_DATE_EPOCH is no number");
    }
    let committed = output(
        Command::new("git")
            .args(["log", "-1", "--format=%ct"])
            .current_dir(crate::root()),
    );
    // Sources without a history are as old as they can be.
    Ok(committed
        .ok()
        .and_then(|time| time.trim().parse().ok())
        .unwrap_or(0))
}

/// The triple of this machine, as the Rust toolchain names it.
///
/// # Errors
///
/// It is not one that packages are made for, or there is no `rustc`.
pub(super) fn host() -> Result<String> {
    let said = output(Command::new("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    match host {
        Some(host) if host.ends_with("-linux-gnu") => Ok(host.to_owned()),
        _ => bail!("packages are made on Linux with the C library of GNU, and this is {host:?}"),
    }
}
