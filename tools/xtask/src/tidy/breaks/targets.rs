//! Targets of cargo that have the tests of a row, and their programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::copy::TreeCopy;
use programs::command::tail;

/// Tests that need a virtual machine, which this does not run.
const IN_MACHINES: &str = "testing/interop/src/tests";

/// Tests that run over every provider, and the target with the provider that most rules are about.
const OVER_PROVIDERS: &str = "testing/verbs-conformance/src";
const PROVIDER: (&str, &str) = ("crates/verbs-iwarp", "conformance");

/// A package of the work tree, by its folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) folder: PathBuf,
    name: String,
}

/// A target of a package that has tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Lib,
    Bins,
    Test(String),
}

/// A target, and its package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) package: Package,
    pub(super) kind: Kind,
}

/// A test that a row names.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// The test as the row has it.
    pub(super) test: String,
    pub(super) target: Target,
    /// Modules from the file's path.
    modules: Vec<String>,
    function: String,
}

impl Package {
    /// The package that has a file.
    pub(super) fn of(root: &Path, file: &Path) -> Result<Self> {
        let has_manifest = |folder: &&Path| root.join(folder).join("Cargo.toml").is_file();
        let mut above = file.ancestors().skip(1);
        let folder = above.find(has_manifest).context("no package has it")?;
        let manifest = std::fs::read_to_string(root.join(folder).join("Cargo.toml"))?;
        let mut names = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("name = \""));
        let name = names.next().context("a package without a name")?;
        Ok(Self {
            folder: folder.to_owned(),
            name: name.trim_end_matches('"').to_owned(),
        })
    }
}

impl Named {
    /// Finds the target of a test; `None` if it needs a virtual machine.
    pub(super) fn of(root: &Path, test: &str) -> Result<Option<Self>> {
        let (file, function) = test.split_once("::").context("no function")?;
        let path = Path::new(file);
        if path.starts_with(IN_MACHINES) {
            return Ok(None);
        }
        let (package, kind, inner) = if let Ok(inner) = path.strip_prefix(OVER_PROVIDERS) {
            let (folder, name) = PROVIDER;
            let package = Package::of(root, &Path::new(folder).join("Cargo.toml"))?;
            (package, Kind::Test(name.to_owned()), inner)
        } else {
            let package = Package::of(root, path)?;
            let inner = path.strip_prefix(&package.folder)?;
            let mut parts = inner.components();
            let first = parts.next().context("no folder")?;
            let rest = parts.as_path();
            if first.as_os_str() == "tests" {
                let name = rest.components().next().context("no test")?;
                let name = Path::new(name.as_os_str()).file_stem().unwrap_or_default();
                let kind = Kind::Test(name.to_string_lossy().into_owned());
                (
                    package,
                    kind,
                    rest.strip_prefix(name).unwrap_or(Path::new("")),
                )
            } else {
                let kind = match root.join(&package.folder).join("src/lib.rs").is_file() {
                    true => Kind::Lib,
                    false => Kind::Bins,
                };
                (package, kind, rest)
            }
        };
        Ok(Some(Self {
            test: test.to_owned(),
            target: Target { package, kind },
            modules: modules(inner),
            function: function.to_owned(),
        }))
    }

    /// Selects this test in a list of those of its target: of that name in the modules of the file, or with only the
    /// last of these where a macro made it elsewhere, or anywhere.
    pub(super) fn select<'a>(&self, listed: &'a [String]) -> Vec<&'a str> {
        let has = |name: &str, part: &str| name.split("::").any(|found| found == part);
        let named: Vec<&str> = listed
            .iter()
            .map(String::as_str)
            .filter(|name| has(name, &self.function))
            .collect();
        let prefix: String = self.modules.iter().map(|m| format!("{m}::")).collect();
        let last = self.modules.last();
        let in_file: Vec<&str> = named
            .iter()
            .copied()
            .filter(|n| n.starts_with(&prefix))
            .collect();
        let in_module = |name: &&str| last.is_some_and(|last| has(name, last));
        let in_module: Vec<&str> = named.iter().copied().filter(in_module).collect();
        [in_file, in_module, named]
            .into_iter()
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }
}

/// The modules of a file by its path from the root of its crate.
fn modules(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    parts
        .filter(|part| !["lib", "main", "mod"].contains(&part.as_str()))
        .collect()
}

/// The programs of some targets.
pub(super) type Programs = BTreeMap<Target, Vec<PathBuf>>;

/// Builds the tests of these targets in the copy. `shown`: cargo says what it does.
///
/// # Errors
///
/// They do not compile; the error has the end of what the compiler says.
pub(super) fn build(
    copy: &TreeCopy<'_>,
    targets: &BTreeSet<Target>,
    shown: bool,
) -> Result<Programs> {
    let packages: BTreeSet<&Package> = targets.iter().map(|target| &target.package).collect();
    let mut programs = Programs::new();
    for package in packages {
        let of_package = targets.iter().filter(|target| target.package == *package);
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(&copy.tree)
            .args(["test", "--no-run", "--locked", "--package", &package.name])
            .arg("--message-format=json-render-diagnostics")
            .env("CARGO_TARGET_DIR", &copy.build)
            // Nobody debugs these.
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        for target in of_package.clone() {
            match &target.kind {
                Kind::Lib => cargo.arg("--lib"),
                Kind::Bins => cargo.arg("--bins"),
                Kind::Test(name) => cargo.args(["--test", name]),
            };
        }
        if shown {
            cargo.stderr(std::process::Stdio::inherit());
        }
        let built = cargo.output().context("cannot run cargo")?;
        if !built.status.success() {
            let errors = String::from_utf8_lossy(&built.stderr);
            bail!("does not compile:\n{}", tail(&errors));
        }
        let text = String::from_utf8_lossy(&built.stdout);
        let messages: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        for target in of_package {
            let of_target = messages.iter().filter(|message| is_of(target, message));
            let found: Vec<PathBuf> = of_target
                .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
                .collect();
            programs.insert(target.clone(), found);
        }
    }
    Ok(programs)
}

/// Whether a message of cargo is about the program of this target.
fn is_of(target: &Target, message: &Value) -> bool {
    let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
    if message["profile"]["test"] != true {
        return false;
    }
    match &target.kind {
        Kind::Lib => kind == "lib",
        Kind::Bins => kind == "bin",
        Kind::Test(name) => kind == "test" && message["target"]["name"] == name.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(test: &str, kind: &Kind, listed: &[&str], expected: &[&str]) {
        let named = Named::of(programs::root(), test).unwrap().unwrap();
        assert_eq!(named.target.kind, *kind);
        let listed: Vec<String> = listed.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(named.select(&listed), expected);
    }

    #[test]
    fn tests_of_rows_are_found_in_their_targets() {
        check(
            "crates/iwarp-proto/src/endpoint/admit.rs::one",
            &Kind::Lib,
            &[
                "endpoint::admit::tests::one",
                "endpoint::tests::one",
                "endpoint::admit::tests::one_more",
            ],
            &["endpoint::admit::tests::one"],
        );
        check(
            "crates/iwarp-proto/src/lib.rs::one",
            &Kind::Lib,
            &["tests::one"],
            &["tests::one"],
        );
        check(
            "crates/verbs-iwarp/tests/peers.rs::one",
            &Kind::Test("peers".to_owned()),
            &["one", "two"],
            &["one"],
        );
        check(
            "crates/rpcrdma/tests/end_to_end/over_each.rs::one",
            &Kind::Test("end_to_end".to_owned()),
            &[
                "over_each::sim::one",
                "over_each::iwarp::one",
                "endings::one",
            ],
            &["over_each::sim::one", "over_each::iwarp::one"],
        );
        check(
            "testing/verbs-conformance/src/reads.rs::one",
            &Kind::Test("conformance".to_owned()),
            &["crc::reads::one", "crc::writes::one"],
            &["crc::reads::one"],
        );
        let machine = "testing/interop/src/tests/linux_mounts_us.rs::run";
        assert!(Named::of(programs::root(), machine).unwrap().is_none());
    }
}
