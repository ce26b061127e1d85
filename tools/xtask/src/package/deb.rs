//! The Debian package.
//!
//! Made by cargo-deb, by what `[package.metadata.deb]` of the program says. It is run as a program: its
//! library is experimental, as its documentation says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::facts::{self, Progress};
use super::{pages, share};
use programs::command::{build, output};
use programs::tool::Tool;

/// Tool that makes the packages. A debug build of it compiles in half the time.
const CARGO_DEB: Tool = Tool {
    name: "cargo-deb",
    version: "3.8.0",
    arguments: &["--debug"],
};

/// Units of systemd but for the first service, by the folder where cargo-deb finds each alone: beside that service
/// it would take it for theirs too.
const UNITS: [(&str, &str); 4] = [
    ("units/gateway", "rpcrdma-gateway.service"),
    ("units/rdma", "rpcrdma-rdma.socket"),
    ("units/tcp", "rpcrdma-tcp.socket"),
    ("units/mount", "rpcrdma-mount.socket"),
];

/// Folder in which `[package.metadata.deb]` looks for what is made here.
fn staging() -> PathBuf {
    programs::root().join("target/package")
}

/// Makes the package in `folder`, of the program as a profile of cargo builds it.
///
/// # Errors
///
/// The program does not build, a tool is missing, or lintian finds an error.
pub(super) fn make(
    folder: &Path,
    profile: &str,
    maintainer: Option<&str>,
    progress: &Progress,
) -> Result<PathBuf> {
    check_tools()?;
    let version = facts::debian_version()?;
    let profile = format!("--profile={profile}");
    progress.say(&format!("the program, with cargo build {profile}"));
    let program = build(&[&profile, "--package=rpcrdma-cli"], "rpcrdma")?;
    check_commit(&program, &version)?;
    let cargo_deb = CARGO_DEB.find(&staging().join("tools"), |what| progress.say(what))?;
    progress.say("manual pages, completions, documentation and licenses");
    let staging = staging();
    let share = share::make(&staging, &program)?;
    let time = facts::source_time()?;
    let maintainer = maintainer.map_or_else(default_maintainer, |given| Ok(given.to_owned()))?;
    fs::write(
        share.join("changelog.Debian"),
        changelog(&version, &maintainer, time)?,
    )?;
    for (place, unit) in UNITS {
        let place = staging.join(place);
        fs::create_dir_all(&place)?;
        fs::copy(
            programs::root().join("contrib/systemd").join(unit),
            place.join(unit),
        )?;
    }
    progress.say("the Debian package, with cargo-deb");
    let made = output(
        Command::new(&cargo_deb)
            .current_dir(programs::root())
            .args([
                "--package",
                "rpcrdma-cli",
                "--no-build",
                &profile,
                "--locked",
                "--strip",
                "--no-dbgsym",
            ])
            .args(["--deb-version", &version])
            .args(["--compress-type", "xz", "--maintainer", &maintainer])
            .arg("--output")
            .arg(folder)
            .env("SOURCE_DATE_EPOCH", time.to_string()),
    )?;
    let package = made
        .lines()
        .next_back()
        .map(|line| PathBuf::from(line.trim()));
    let package = package.filter(|path| path.is_file());
    let package = package.context("cargo-deb does not say what it has made")?;
    check_documentation(&package)?;
    progress.say("all links of the documentation lead somewhere");
    lint(&package, progress)?;
    Ok(package)
}

/// Checks that a program is of the commit that the version of its package names: another one may have been checked out while it
/// was built.
fn check_commit(program: &Path, version: &str) -> Result<()> {
    let said = output(Command::new(program).arg("--version"))?;
    let said = said.lines().next().unwrap_or_default();
    if !facts::is_of_commit(said, version) {
        bail!(
            "the program is {said}, and the package {version}: the sources have changed while it was built"
        );
    }
    Ok(())
}

/// Checks the documentation as it is in the package.
fn check_documentation(package: &Path) -> Result<()> {
    let unpacked = tempfile::tempdir()?;
    output(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package)
            .arg(unpacked.path()),
    )?;
    pages::check(unpacked.path(), programs::root())
}

/// Checks for the programs that cargo-deb runs.
fn check_tools() -> Result<()> {
    for (tool, package) in [("dpkg-shlibdeps", "dpkg-dev"), ("strip", "binutils")] {
        let there = Command::new(tool)
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        if there.is_err() {
            bail!(
                "{tool} is missing, of the package {package}: it takes Debian to make its packages"
            );
        }
    }
    Ok(())
}

/// The maintainer in the program's metadata.
fn default_maintainer() -> Result<String> {
    let path = programs::root().join("tools/rpcrdma-cli/Cargo.toml");
    let manifest = fs::read_to_string(path)?;
    let found = manifest
        .lines()
        .find_map(|line| line.strip_prefix("maintainer = "));
    let found = found.context("the package has no maintainer")?;
    Ok(found.trim_matches('"').to_owned())
}

/// The changelog of the package itself, which has one entry: what changes in the program is in that of the
/// program.
fn changelog(version: &str, maintainer: &str, time: u64) -> Result<String> {
    let date = output(
        Command::new("date")
            .args(["--utc", "--rfc-email", &format!("--date=@{time}")])
            .env("LC_ALL", "C"),
    )?;
    Ok(format!(
        "rpcrdma ({version}) unstable; urgency=medium\n\n  * New version; what changed is in changelog.gz.\n\n \
         -- {maintainer}  {}\n",
        date.trim()
    ))
}

/// Has lintian look at the package, where it is installed.
fn lint(package: &Path, progress: &Progress) -> Result<()> {
    let done = Command::new("lintian")
        .args([
            "--fail-on",
            "error",
            "--allow-root",
            "--tag-display-limit",
            "0",
        ])
        .arg(package)
        .stdin(Stdio::null())
        .output();
    let Ok(done) = done else {
        progress.say("not checked: lintian is not installed");
        return Ok(());
    };
    let said = String::from_utf8_lossy(&done.stdout);
    for line in said.lines() {
        progress.say(&format!("lintian: {line}"));
    }
    if !done.status.success() {
        bail!("lintian finds errors in {}", package.display());
    }
    progress.say("lintian finds no errors");
    Ok(())
}
