//! `cargo xtask publish`: whether each published crate could go to the registry. Nothing is uploaded.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::rust_version::target_dir;
use crate::command::{cargo, line, output};

/// What each published crate has to say about itself.
const FIELDS: [&str; 5] = [
    "description",
    "license",
    "rust_version",
    "readme",
    "documentation",
];

/// Most keywords and categories that the registry takes.
const MOST: usize = 5;

/// Packages all published crates and builds each of them as it would be downloaded, with those it depends
/// on from their packages too.
///
/// # Errors
///
/// A manifest lacks something, or a package does not build.
pub(crate) fn run() -> Result<()> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version=1", "--no-deps"]);
    let metadata: Value = serde_json::from_str(&output(&mut metadata)?)?;
    let packages = metadata["packages"].as_array();
    let packages = packages.context("cargo metadata has another form")?;
    let published = packages.iter().filter(|package| is_published(package));
    let faults: Vec<String> = published.flat_map(faults).collect();
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    // In a new directory: cargo takes a package of the same name and version for what it unpacked or built before from
    // the same directory, whatever is in the package now.
    let target = target_dir()?;
    fs::create_dir_all(&target)?;
    let target = tempfile::Builder::new()
        .prefix("publish-")
        .tempdir_in(target)?;
    let unpacked = Unpacked::new()?;
    let mut publish = cargo();
    publish.args(["publish", "--workspace", "--dry-run", "--quiet"]);
    // What is not committed yet is checked too.
    publish
        .arg("--allow-dirty")
        .arg("--target-dir")
        .arg(target.path());
    publish.envs([("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "0")]);
    let status = publish.status();
    unpacked.remove_new()?;
    target.close()?;
    if !status?.success() {
        bail!("{} failed", line(&publish));
    }
    Ok(())
}

/// Directories into which cargo unpacked packages from directories of this machine.
struct Unpacked {
    folder: PathBuf,
    before: HashSet<PathBuf>,
}

impl Unpacked {
    fn new() -> Result<Self> {
        let home = env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
        let home = home.context("cargo has no directory: set CARGO_HOME")?;
        let folder = home.join("registry/src");
        let before = Self::all(&folder)?;
        Ok(Self { folder, before })
    }

    /// A registry of the network has its host before the first hyphen, and a directory has nothing.
    fn all(folder: &Path) -> Result<HashSet<PathBuf>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(HashSet::new()),
            entries => entries.with_context(|| format!("cannot read {}", folder.display()))?,
        };
        let mut all = HashSet::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b"-") {
                all.insert(entry.path());
            }
        }
        Ok(all)
    }

    /// Removes what was unpacked since, which nobody uses again.
    fn remove_new(self) -> Result<()> {
        for path in Self::all(&self.folder)?.difference(&self.before) {
            fs::remove_dir_all(path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

/// Whether a package goes to the registry.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

/// What is wrong with the manifest of a published crate.
fn faults(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let mut faults = Vec::new();
    for field in FIELDS {
        if package[field].as_str().is_none_or(str::is_empty) {
            faults.push(format!("{name} has no {}", field.replace('_', "-")));
        }
    }
    for field in ["keywords", "categories"] {
        match package[field].as_array().map_or(0, Vec::len) {
            1..=MOST => {}
            count => faults.push(format!("{name} has {count} {field}, not 1 to {MOST}")),
        }
    }
    let folder = package["manifest_path"].as_str().map(Path::new);
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let there = folder.is_some_and(|manifest| manifest.with_file_name(file).is_file());
        if !there {
            faults.push(format!("{name} has no {file}"));
        }
    }
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        // One for tests alone may be left out of the package.
        let is_for_tests = dependency["kind"] == "dev";
        if !is_for_tests && dependency["path"].is_string() && dependency["req"] == "*" {
            let on = dependency["name"].as_str().unwrap_or_default();
            faults.push(format!("{name} depends on {on} by path alone"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_unpacked_meanwhile_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("registry/src");
        let names = ["-1", "index.example-2", "-3", "index.example-4"];
        let [old, registry, new, other] = names.map(|name| folder.join(name));
        for path in [&old, &registry] {
            fs::create_dir_all(path).unwrap();
        }
        let before = Unpacked::all(&folder).unwrap();
        let unpacked = Unpacked { folder, before };
        fs::create_dir_all(new.join("package-0.1.0")).unwrap();
        fs::create_dir(&other).unwrap();
        unpacked.remove_new().unwrap();
        assert_eq!(
            [old, registry, new, other].map(|path| path.exists()),
            [true, true, false, true]
        );
    }

    #[test]
    fn what_the_registry_needs_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
            fs::write(folder.path().join(file), "text").unwrap();
        }
        let whole = json!({
            "name": "a", "description": "d", "license": "MIT", "rust_version": "1.95",
            "readme": "README.md", "documentation": "https://docs.rs/a",
            "keywords": ["k"], "categories": ["c"],
            "manifest_path": folder.path().join("Cargo.toml"),
            "dependencies": [
                {"name": "b", "kind": null, "path": "/b", "req": "^0.1.0"},
                {"name": "c", "kind": "dev", "path": "/c", "req": "*"},
            ],
        });
        assert_eq!(faults(&whole), Vec::<String>::new());
        let mut poor = whole;
        poor["description"] = json!("");
        poor["readme"] = Value::Null;
        poor["keywords"] = json!(["1", "2", "3", "4", "5", "6"]);
        poor["dependencies"][0]["req"] = json!("*");
        fs::remove_file(folder.path().join("LICENSE-MIT")).unwrap();
        assert_eq!(
            faults(&poor),
            [
                "a has no description",
                "a has no readme",
                "a has 6 keywords, not 1 to 5",
                "a has no LICENSE-MIT",
                "a depends on b by path alone",
            ]
        );
    }
}
