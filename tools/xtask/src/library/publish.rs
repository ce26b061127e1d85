//! `cargo xtask publish`: whether each published crate could go to the registry. Nothing is uploaded.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::rust_version::target_dir;
use programs::command::{cargo, line, output};

/// Fields that each published crate has to have.
const FIELDS: [&str; 5] = [
    "description",
    "license",
    "rust_version",
    "readme",
    "documentation",
];

/// Most keywords and categories that the registry takes.
const MOST: usize = 5;

/// Packages all published crates and checks each as it would be downloaded, with those it depends on from
/// their packages too.
///
/// `cargo publish --dry-run` does the same and builds every dependency anew for it. Here the packages are
/// unpacked as a workspace of their own, which shares what other checks have compiled of the registry's crates.
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
    let published: Vec<_> = packages
        .iter()
        .filter(|package| is_published(package))
        .collect();
    let faults: Vec<String> = published.iter().copied().flat_map(faults).collect();
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    let target = target_dir()?;
    fs::create_dir_all(&target)?;
    // A new directory, so that no package is taken for an earlier one of the same name and version.
    let folder = tempfile::Builder::new()
        .prefix("publish-")
        .tempdir_in(&target)?;
    let names: Vec<_> = published.iter().map(|package| Name::of(package)).collect();
    pack(&names, folder.path())?;
    let unpacked = folder.path().join("package");
    unpack(&names, &unpacked)?;
    let mut check = cargo();
    check.args(["check", "--workspace", "--quiet", "--manifest-path"]);
    check.arg(unpacked.join("Cargo.toml"));
    check.arg("--target-dir").arg(&target);
    let status = check.status();
    folder.close()?;
    if !status?.success() {
        bail!("{} failed", line(&check));
    }
    Ok(())
}

/// A package by name and version.
struct Name<'a> {
    name: &'a str,
    version: &'a str,
}

impl<'a> Name<'a> {
    fn of(package: &'a Value) -> Self {
        let text = |field| package[field].as_str().unwrap_or_default();
        Self {
            name: text("name"),
            version: text("version"),
        }
    }

    /// The directory in its archive.
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// Writes the archive of each package into `package` below this directory.
fn pack(names: &[Name<'_>], folder: &Path) -> Result<()> {
    let mut package = cargo();
    package.args(["package", "--no-verify", "--quiet"]);
    // What is not committed yet is checked too.
    package.arg("--allow-dirty");
    package.arg("--target-dir").arg(folder);
    for name in names {
        package.args(["--package", name.name]);
    }
    if !package.status()?.success() {
        bail!("{} failed", line(&package));
    }
    Ok(())
}

/// Unpacks the archives in a directory and makes them a workspace, whose members depend on each other.
fn unpack(names: &[Name<'_>], folder: &Path) -> Result<()> {
    for name in names {
        let archive = fs::File::open(folder.join(format!("{}.crate", name.folder())))?;
        tar::Archive::new(flate2::read::GzDecoder::new(archive)).unpack(folder)?;
    }
    fs::write(folder.join("Cargo.toml"), workspace(names))?;
    // The versions that all other checks take.
    fs::copy(
        programs::root().join("Cargo.lock"),
        folder.join("Cargo.lock"),
    )?;
    Ok(())
}

/// The manifest of that workspace.
fn workspace(names: &[Name<'_>]) -> String {
    let mut manifest = String::from("[workspace]\nresolver = \"3\"\nmembers = [\n");
    for name in names {
        manifest += &format!("  \"{}\",\n", name.folder());
    }
    manifest += "]\n\n[patch.crates-io]\n";
    for name in names {
        manifest += &format!("{} = {{ path = \"{}\" }}\n", name.name, name.folder());
    }
    manifest
}

/// Whether a package goes to the registry.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

/// Faults of the manifest of a published crate.
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
    fn unpacked_packages_depend_on_each_other() {
        let names = [
            Name {
                name: "a",
                version: "0.1.0",
            },
            Name {
                name: "b",
                version: "0.2.0",
            },
        ];
        assert_eq!(
            workspace(&names),
            concat!(
                "[workspace]\nresolver = \"3\"\nmembers = [\n  \"a-0.1.0\",\n  \"b-0.2.0\",\n]\n\n",
                "[patch.crates-io]\na = { path = \"a-0.1.0\" }\nb = { path = \"b-0.2.0\" }\n",
            )
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
