//! Names that protocol cores must not use: sockets and runtimes, locks and wakers, and, in version one,
//! version two.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::exceptions::{Exceptions, HERE};
use super::fault::Fault;
use super::house::is_for_tests;
use super::sources::Sources;
use super::tokens::outside_tests;
use programs::command;

/// Crates that no protocol core is built with.
const RUNTIMES: [&str; 3] = ["mio", "socket2", "tokio"];

/// Protocol cores whose names do not end in `-proto`.
const CORES: [&str; 1] = ["nfs4-state"];

/// Names that have no place in a protocol core, which one task owns.
const LOCK_NAMES: [&str; 3] = ["Mutex", "RwLock", "Waker"];

/// The parts of `rpcrdma-proto` that are version one.
const VERSION_ONE: [&str; 4] = ["plan", "requester", "responder", "wire"];

/// Checks the sources of protocol cores.
pub(super) fn check(sources: &Sources, exceptions: Exceptions, faults: &mut Vec<Fault>) {
    let Exceptions {
        locks, version_two, ..
    } = exceptions;
    let files = sources
        .iter()
        .filter(|(path, _)| is_of_a_core(path) && !is_for_tests(path, sources));
    let mut needed = BTreeSet::new();
    for (path, text) in files {
        let is_version_one = path
            .strip_prefix("crates/rpcrdma-proto/src")
            .is_ok_and(is_version_one);
        let mut named = BTreeSet::new();
        for token in outside_tests(text) {
            let excused = match token.text {
                lock if LOCK_NAMES.contains(&lock) => locks
                    .iter()
                    .find(|(file, name)| Path::new(file) == path && *name == lock)
                    .copied(),
                "v2" if is_version_one => version_two
                    .iter()
                    .find(|file| Path::new(file) == path)
                    .map(|file| (*file, "v2")),
                _ => continue,
            };
            needed.extend(excused);
            if excused.is_none() && named.insert(token.text) {
                let what = match token.text {
                    "v2" => "version one knows nothing of v2".to_owned(),
                    lock => format!("a protocol core has one owner, and no {lock}"),
                };
                faults.push(Fault::new(path, token.line, what));
            }
        }
    }
    let version_two = version_two.iter().map(|file| (*file, "v2"));
    for exception in locks.iter().copied().chain(version_two) {
        if !needed.contains(&exception) {
            let (file, name) = exception;
            let what = format!("the exception for {name} in {file} is no longer needed");
            faults.push(Fault::new(Path::new(HERE), 1, what));
        }
    }
}

/// Whether a crate is a protocol core.
fn is_a_core(krate: &str) -> bool {
    krate.ends_with("-proto") || CORES.contains(&krate)
}

/// Whether a file is a source of a protocol core.
fn is_of_a_core(path: &Path) -> bool {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    parts.next() == Some("crates")
        && parts.next().is_some_and(is_a_core)
        && parts.next() == Some("src")
}

/// Whether a file below `src` belongs to version one.
fn is_version_one(below: &Path) -> bool {
    let first = below.iter().next().and_then(|part| part.to_str());
    first.is_some_and(|first| VERSION_ONE.contains(&first.trim_end_matches(".rs")))
}

/// Checks what the protocol cores of this work tree are built with.
///
/// # Errors
///
/// Cargo does not say.
pub(super) fn check_dependencies(faults: &mut Vec<Fault>) -> Result<()> {
    let mut cargo = command::cargo();
    cargo.args(["metadata", "--format-version", "1", "--locked", "--quiet"]);
    // What only other platforms need is not fetched for this.
    cargo.args(["--filter-platform", "host-tuple"]);
    let metadata = command::output(&mut cargo)?;
    let metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
    dependencies(&metadata, faults).context("cargo metadata has another form")
}

/// Finds the runtimes that a protocol core, or `oncrpc`, is built with.
fn dependencies(metadata: &Value, faults: &mut Vec<Fault>) -> Option<()> {
    let mut names = BTreeMap::new();
    for package in metadata["packages"].as_array()? {
        names.insert(package["id"].as_str()?, package["name"].as_str()?);
    }
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array()? {
        let normal = node["deps"].as_array()?.iter().filter(|dependency| {
            let kinds = dependency["dep_kinds"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        });
        let normal = normal.filter_map(|dependency| dependency["pkg"].as_str());
        edges.insert(node["id"].as_str()?, normal.collect());
    }
    for member in metadata["workspace_members"].as_array()? {
        let member = member.as_str()?;
        let name = *names.get(member)?;
        if !(is_a_core(name) || name == "oncrpc") {
            continue;
        }
        for way in ways_to_runtimes(member, &names, &edges) {
            let what = format!("a protocol core without I/O is built with {way}");
            let manifest = Path::new("crates").join(name).join("Cargo.toml");
            faults.push(Fault::new(&manifest, 1, what));
        }
    }
    Some(())
}

/// How each runtime comes into a package.
fn ways_to_runtimes(
    package: &str,
    names: &BTreeMap<&str, &str>,
    edges: &BTreeMap<&str, Vec<&str>>,
) -> Vec<String> {
    let mut ways = BTreeMap::from([(package, String::new())]);
    let mut next = vec![package];
    let mut found = Vec::new();
    while let Some(at) = next.pop() {
        let to_here = ways.get(at).cloned().unwrap_or_default();
        for dependency in edges.get(at).into_iter().flatten() {
            let name = names.get(dependency).copied().unwrap_or_default();
            let way = format!("{to_here}{name}");
            if ways.contains_key(dependency) {
                continue;
            }
            if RUNTIMES.contains(&name) {
                found.push(way.clone());
            }
            ways.insert(dependency, format!("{way} → "));
            next.push(dependency);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check_with(exceptions: Exceptions, path: &str, text: &str, expected: &[&str]) {
        let mut faults = Vec::new();
        check(&Sources::of([(path, text)]), exceptions, &mut faults);
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(faults, expected);
    }

    #[test]
    fn protocol_cores_name_no_lock_and_no_waker() {
        let none = Exceptions::default();
        let core = "crates/a-proto/src/b.rs";
        let lock = "use std::sync::Mutex;\nstruct A(Mutex<u8>);";
        let fault = "crates/a-proto/src/b.rs:1: a protocol core has one owner, and no Mutex";
        check_with(none, core, lock, &[fault]);
        let fault = "crates/nfs4-state/src/b.rs:1: a protocol core has one owner, and no Mutex";
        check_with(none, "crates/nfs4-state/src/b.rs", lock, &[fault]);
        check_with(none, "crates/a/src/b.rs", lock, &[]);
        check_with(none, "crates/a-proto/tests/b.rs", lock, &[]);
        check_with(
            none,
            core,
            "#[cfg(test)]\nmod tests { use std::task::Waker; }",
            &[],
        );
        let excused = Exceptions {
            locks: &[("crates/a-proto/src/b.rs", "Mutex")],
            ..none
        };
        check_with(excused, core, lock, &[]);
        check_with(
            excused,
            core,
            "",
            &[
                "tools/xtask/src/tidy/exceptions.rs:1: the exception for Mutex in \
               crates/a-proto/src/b.rs is no longer needed",
            ],
        );
    }

    #[test]
    fn version_one_does_not_name_version_two() {
        let none = Exceptions::default();
        let text = "//! See v2.\nuse crate::v2::Session;";
        let fault = |file: &str| format!("{file}:2: version one knows nothing of v2");
        for part in [
            "wire/parse.rs",
            "plan.rs",
            "requester/mod.rs",
            "responder.rs",
        ] {
            let file = format!("crates/rpcrdma-proto/src/{part}");
            check_with(none, &file, text, &[&fault(&file)]);
        }
        check_with(none, "crates/rpcrdma-proto/src/v2/wire.rs", text, &[]);
        check_with(none, "crates/other-proto/src/wire.rs", text, &[]);
        let excused = Exceptions {
            version_two: &["crates/rpcrdma-proto/src/plan.rs"],
            ..none
        };
        check_with(excused, "crates/rpcrdma-proto/src/plan.rs", text, &[]);
        check_with(
            excused,
            "crates/rpcrdma-proto/src/plan.rs",
            "",
            &[
                "tools/xtask/src/tidy/exceptions.rs:1: the exception for v2 in \
               crates/rpcrdma-proto/src/plan.rs is no longer needed",
            ],
        );
    }

    #[test]
    fn runtimes_are_found_through_other_crates_but_not_in_tests() {
        let package = |name: &str| json!({"id": name, "name": name});
        let dependency =
            |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let packages = ["a-proto", "b-proto", "driver", "net", "tokio"].map(package);
        let metadata = json!({
            "packages": packages,
            "workspace_members": ["a-proto", "b-proto", "driver"],
            "resolve": {"nodes": [
                {"id": "a-proto", "deps": [dependency("net", Value::Null)]},
                {"id": "b-proto", "deps": [dependency("tokio", json!("dev"))]},
                {"id": "driver", "deps": [dependency("tokio", Value::Null)]},
                {"id": "net", "deps": [dependency("tokio", Value::Null)]},
                {"id": "tokio", "deps": []},
            ]},
        });
        let mut faults = Vec::new();
        dependencies(&metadata, &mut faults).unwrap();
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(
            faults,
            ["crates/a-proto/Cargo.toml:1: a protocol core without I/O is built with net → tokio"]
        );
        assert_eq!(dependencies(&json!({}), &mut Vec::new()), None);
    }
}
