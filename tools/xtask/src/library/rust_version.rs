//! `cargo xtask rust-version`: whether CI uses the minimum version of Rust that the manifests promise.

use std::process::Command;

use anyhow::{Context, Result, bail};

use programs::command::{cargo, line, output};

/// Says so if the compiler in use has exactly the minimum version: then every other check was made with
/// it. With another one, the work tree is checked with the minimum version from rustup.
///
/// # Errors
///
/// The work tree does not build with the minimum version, or that is not installed.
pub(crate) fn run() -> Result<()> {
    let minimum = minimum()?;
    let compiler = output(
        Command::new("rustc")
            .arg("--version")
            .current_dir(programs::root()),
    )?;
    let used = version(&compiler).context("rustc tells no version")?;
    if is_release_of(used, &minimum) {
        eprintln!("rustc {used} is the minimum version, {minimum}");
        return Ok(());
    }
    eprintln!("rustc {used} is not the minimum version, {minimum}: checking with that");
    let mut check = Command::new("rustup");
    // The proxy of rustup chooses the toolchain; this program was started by another one.
    check
        .current_dir(programs::root())
        .env_remove("RUSTUP_TOOLCHAIN");
    check.args([
        "run",
        &minimum,
        "cargo",
        "check",
        "--workspace",
        "--all-targets",
    ]);
    check
        .arg("--target-dir")
        .arg(target_dir()?.join("rust-version"));
    let status = check.status().with_context(|| line(&check))?;
    if !status.success() {
        bail!(
            "does not build with Rust {minimum} (rustup toolchain install {minimum} installs it)"
        );
    }
    Ok(())
}

/// The `rust-version` of the work tree.
fn minimum() -> Result<String> {
    let manifest = std::fs::read_to_string(programs::root().join("Cargo.toml"))?;
    let found = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let found = found.context("the work tree has no rust-version")?;
    Ok(found.trim_matches('"').to_owned())
}

/// Folder in which cargo builds.
pub(super) fn target_dir() -> Result<std::path::PathBuf> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let metadata: serde_json::Value = serde_json::from_str(&output(&mut metadata)?)?;
    let folder = metadata["target_directory"].as_str();
    Ok(folder.context("cargo metadata has another form")?.into())
}

/// The version in what `rustc --version` prints.
fn version(printed: &str) -> Option<&str> {
    printed.strip_prefix("rustc ")?.split_whitespace().next()
}

/// Whether a version is one of `minimum`, which may leave out the last number.
fn is_release_of(used: &str, minimum: &str) -> bool {
    used == minimum
        || used
            .strip_prefix(minimum)
            .and_then(|rest| rest.strip_prefix('.'))
            .is_some_and(|patch| patch.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_version_is_told_from_others() {
        let printed = "rustc 1.95.0 (59807616e 2026-04-14)\n";
        assert_eq!(version(printed), Some("1.95.0"));
        assert!(is_release_of("1.95.0", "1.95"));
        assert!(is_release_of("1.95.0", "1.95.0"));
        for other in ["1.96.0", "1.9.0", "1.950.0", "1.95.0-nightly", "1.95"] {
            assert_eq!(is_release_of(other, "1.95"), other == "1.95", "{other}");
        }
    }

    #[test]
    fn the_work_tree_has_a_minimum_version() {
        assert!(minimum().unwrap().starts_with("1."));
    }
}
