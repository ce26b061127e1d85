//! Facts that all packages have in common: progress of a run, version, time, machine, checksums.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use programs::command::output;

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
            .current_dir(programs::root()),
    );
    // Sources without a history are as old as they can be.
    Ok(committed
        .ok()
        .and_then(|time| time.trim().parse().ok())
        .unwrap_or(0))
}

/// The revision of the package of one version: nothing but its sources changes it.
const REVISION: &str = "1";

/// Digits of a commit in the version of a package.
const DIGITS: usize = 8;

/// The sources between two versions of the program.
struct Snapshot {
    /// Time of the commit in UTC, as in 20261127.151705.
    time: String,
    commit: String,
    /// Whether files differ from the commit.
    is_changed: bool,
}

/// The version of the Debian package (Debian Policy §5.6.12): that of the program and, unless the commit is tagged with it, the
/// time and the commit of the sources, as in 0.1.0+git20261127.151705.22c11b60-1. So later sources sort behind earlier ones and
/// the version itself, and before the next. Sources without git are those of the version.
///
/// # Errors
///
/// git fails.
pub(super) fn debian_version() -> Result<String> {
    Ok(debian_version_of(version(), snapshot()?.as_ref()))
}

fn debian_version_of(version: &str, snapshot: Option<&Snapshot>) -> String {
    // A part of the version behind a `-` is that of a version to come, which sorts before it.
    let version = version.replacen('-', "~", 1);
    let Some(Snapshot {
        time,
        commit,
        is_changed,
    }) = snapshot
    else {
        return format!("{version}-{REVISION}");
    };
    let commit = commit.get(..DIGITS).unwrap_or(commit);
    let changed = if *is_changed { ".changed" } else { "" };
    format!("{version}+git{time}.{commit}{changed}-{REVISION}")
}

/// Whether a program that says this of its version is of the commit that the version of a Debian package names, if that names
/// one.
pub(super) fn is_of_commit(said: &str, version: &str) -> bool {
    let Some((_, snapshot)) = version.split_once("+git") else {
        return true;
    };
    let commit = snapshot.split(['.', '-']).nth(2);
    commit.is_some_and(|commit| said.contains(&format!("({commit}")))
}

/// The commit of the sources, if they are in git and not those of a version.
fn snapshot() -> Result<Option<Snapshot>> {
    let git = |arguments: &[&str]| {
        output(
            Command::new("git")
                .args(arguments)
                .current_dir(programs::root())
                .env("TZ", "UTC"),
        )
    };
    // Sources of a package may lie in somebody else's work tree.
    if git(&["ls-files", "--error-unmatch", "tools/xtask/Cargo.toml"]).is_err() {
        return Ok(None);
    }
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    let tag = format!("v{}", version());
    let is_tagged = git(&["tag", "--points-at", "HEAD"])?
        .lines()
        .any(|line| line == tag);
    if is_tagged && !is_changed {
        return Ok(None);
    }
    let date = "--date=format-local:%Y%m%d.%H%M%S";
    let said = git(&["log", "-1", "--format=%cd %H", date])?;
    let (time, commit) = said
        .trim()
        .split_once(' ')
        .context("git log says nothing")?;
    Ok(Some(Snapshot {
        time: time.to_owned(),
        commit: commit.to_owned(),
        is_changed,
    }))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: &str, time: &str, commit: &str, is_changed: bool) -> String {
        let snapshot = Snapshot {
            time: time.to_owned(),
            commit: commit.to_owned(),
            is_changed,
        };
        debian_version_of(version, Some(&snapshot))
    }

    #[test]
    fn version_of_the_package_names_the_commit() {
        let commit = "22c11b60c0ffee";
        assert_eq!(
            of("0.1.0", "20261127.151705", commit, false),
            "0.1.0+git20261127.151705.22c11b60-1"
        );
        assert_eq!(debian_version_of("0.1.0", None), "0.1.0-1");
        assert_eq!(debian_version_of("0.2.0-rc.1", None), "0.2.0~rc.1-1");
        let here = debian_version().unwrap();
        assert!(
            here.starts_with(version()) && here.ends_with("-1"),
            "{here}"
        );
    }

    #[test]
    fn program_of_another_commit_is_told_from_that_of_the_package() {
        let (said, commit) = ("rpcrdma 0.1.0 (22c11b60c0ff)", "22c11b60c0ffee");
        for is_changed in [false, true] {
            let version = of("0.1.0", "20261127.151705", commit, is_changed);
            assert!(is_of_commit(said, &version));
            assert!(!is_of_commit("rpcrdma 0.1.0", &version));
        }
        let other = of("0.1.0", "20261127.151705", "0badc0dec0ffee", false);
        assert!(!is_of_commit(said, &other));
        assert!(is_of_commit("rpcrdma 0.1.0", "0.1.0-1"));
    }

    #[test]
    fn versions_of_packages_sort_as_their_sources() {
        let versions = [
            debian_version_of("0.1.0-rc.1", None),
            debian_version_of("0.1.0", None),
            of("0.1.0", "20261127.090000", "ffffffff", false),
            of("0.1.0", "20261127.151705", "00000000", false),
            of("0.1.0", "20261127.151705", "00000000", true),
            of("0.1.0", "20261128.000000", "00000000", false),
            debian_version_of("0.1.1-rc.1", None),
            of("0.1.1-rc.1", "20261129.000000", "00000000", false),
            debian_version_of("0.1.1", None),
        ];
        for pair in versions.windows(2) {
            let compared = Command::new("dpkg")
                .args(["--compare-versions", &pair[0], "lt", &pair[1]])
                .status();
            let Ok(compared) = compared else {
                eprintln!("not run: this machine has no dpkg");
                return;
            };
            assert!(compared.success(), "{} is not before {}", pair[0], pair[1]);
        }
    }
}
