//! Licenses of the libraries that are linked into the program, which ask to go with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::facts;
use programs::command::{cargo, output};

/// The package of the program.
const PROGRAM: &str = "rpcrdma-cli";

/// Beginnings of names of files that have a license in them, in lower case.
const NAMES: [&str; 6] = [
    "license",
    "licence",
    "copying",
    "copyright",
    "notice",
    "unlicense",
];

const RULE: &str =
    "--------------------------------------------------------------------------------";

/// One library.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Library {
    name: String,
    version: String,
    license: String,
    repository: String,
    folder: String,
}

/// All of them in one text: a list of the libraries, then each license with the libraries that have it.
///
/// # Errors
///
/// Cargo does not say what there is, or a file cannot be read.
pub(super) fn text() -> Result<String> {
    let host = facts::host()?;
    let metadata = output(cargo().args([
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform",
        &host,
    ]))?;
    let libraries = linked(&serde_json::from_str(&metadata)?)?;
    let mut text = String::from("Libraries that are linked into rpcrdma, and their licenses\n\n");
    // By text, so that each is there once.
    let mut licenses: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for library in &libraries {
        let Library {
            name,
            version,
            license,
            repository,
            folder,
        } = library;
        writeln!(text, "{name} {version}: {license}; {repository}")?;
        for license in files(Path::new(folder)).with_context(|| folder.clone())? {
            licenses
                .entry(license)
                .or_default()
                .push(format!("{name} {version}"));
        }
    }
    for (license, of) in &licenses {
        write!(
            text,
            "\n{RULE}\n{}\n{RULE}\n\n{}\n",
            of.join(", "),
            license.trim_end()
        )?;
    }
    Ok(text)
}

/// The libraries of other projects that `cargo metadata` has below the program.
fn linked(metadata: &Value) -> Result<BTreeSet<Library>> {
    let list = |value: &Value, key: &str| {
        let list = value[key].as_array().cloned();
        list.with_context(|| format!("cargo metadata has no {key}"))
    };
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> = list(metadata, "packages")?
        .into_iter()
        .map(|package| (string(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"], "nodes")?
        .into_iter()
        .map(|node| (string(&node["id"]), node))
        .collect();
    let program = packages
        .iter()
        .find(|(_, package)| package["name"] == PROGRAM);
    let mut waiting = vec![program.context("cargo metadata has no program")?.0.clone()];
    let mut seen = BTreeSet::new();
    let mut libraries = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let package = packages.get(&id).context("a package that is not listed")?;
        // What has no source is of this project.
        if !package["source"].is_null() {
            let manifest = string(&package["manifest_path"]);
            libraries.insert(Library {
                name: string(&package["name"]),
                version: string(&package["version"]),
                license: string(&package["license"]),
                repository: string(&package["repository"]),
                folder: manifest.trim_end_matches("Cargo.toml").to_owned(),
            });
        }
        let node = nodes.get(&id).context("a package that is not resolved")?;
        for dependency in list(node, "deps")? {
            // Those of builds and tests have a name for their kind, and are not linked.
            let kinds = list(&dependency, "dep_kinds")?;
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                waiting.push(string(&dependency["pkg"]));
            }
        }
    }
    Ok(libraries)
}

/// The licenses in a folder.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut paths: Vec<_> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    let license = |path: &&std::path::PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        path.is_file() && NAMES.iter().any(|known| name.starts_with(known))
    };
    paths
        .iter()
        .filter(license)
        .map(|path| Ok(String::from_utf8_lossy(&fs::read(path)?).replace("\r\n", "\n")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_builds_tests_and_this_project_are_left_out() {
        let package = |id: &str, source: Value| {
            serde_json::json!({
                "id": id, "name": id, "version": "1.0.0", "license": "MIT", "repository": "r",
                "source": source, "manifest_path": format!("/{id}/Cargo.toml"),
            })
        };
        let needs =
            |id: &str, kind: Value| serde_json::json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = serde_json::json!({
            "packages": [
                package(PROGRAM, Value::Null), package("ours", Value::Null),
                package("linked", "registry".into()), package("below", "registry".into()),
                package("build", "registry".into()), package("test", "registry".into()),
            ],
            "resolve": {"nodes": [
                {"id": PROGRAM, "deps": [needs("ours", Value::Null), needs("test", "dev".into())]},
                {"id": "ours", "deps": [needs("linked", Value::Null), needs("build", "build".into())]},
                {"id": "linked", "deps": [needs("below", Value::Null)]},
                {"id": "below", "deps": []}, {"id": "build", "deps": []}, {"id": "test", "deps": []},
            ]},
        });
        let found = linked(&metadata).unwrap();
        let names: Vec<_> = found.iter().map(|library| library.name.as_str()).collect();
        assert_eq!(names, ["below", "linked"]);
        assert_eq!(found.first().unwrap().folder, "/below/");
    }

    #[test]
    fn every_linked_library_comes_with_a_license() {
        let text = text().unwrap();
        assert!(text.contains("\ntokio 1."), "{text}");
        assert!(!text.contains("\nproptest "));
        assert!(!text.contains(": ; "), "a library without a license");
        assert!(text.contains("Permission is hereby granted"));
    }
}
