//! Packages in use where nothing of this work tree is: the Debian package in a clean Debian, the program of the image
//! with nothing else. The scripts are in `testing/packages`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::facts::{self, Progress};
use interop::{CHROOT, clean_debian};
use programs::command::line;

/// Programs that it needs on this machine.
const NEEDS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("jq", "jq"),
    ("mmdebstrap", "mmdebstrap"),
    ("skopeo", "skopeo"),
    ("umoci", "umoci"),
];

/// Installs the Debian package in a clean Debian and uses it.
///
/// # Errors
///
/// A tool is missing, or something does not work.
pub(super) fn deb(package: &Path, progress: &Progress) -> Result<()> {
    check_tools()?;
    let root = clean_debian(&CHROOT, |what| progress.say(what))?;
    progress.say("checks the Debian package in a clean Debian");
    script("deb.sh", &[root, package.into()])
}

/// Unpacks the image as an engine would, and uses its program.
///
/// # Errors
///
/// As of [`deb`].
pub(super) fn oci(archive: &Path, progress: &Progress) -> Result<()> {
    check_tools()?;
    progress.say("checks the image with skopeo and umoci");
    script("oci.sh", &[archive.into(), facts::version().into()])
}

fn check_tools() -> Result<()> {
    let missing: Vec<_> = NEEDS
        .iter()
        .filter(|(tool, _)| {
            let mut tool = Command::new(tool);
            let tool = tool.arg("--version").stdin(Stdio::null());
            tool.stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_err()
        })
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "packages are checked with tools that are missing:\n  apt-get install -y --no-install-recommends {}",
        missing.join(" ")
    );
}

/// Runs a script with a folder for what it makes. What it mounts and starts ends with it: it has its own
/// namespaces.
fn script(name: &str, arguments: &[PathBuf]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--net",
            "bash",
        ])
        .arg(programs::root().join("testing/packages").join(name))
        .args(arguments)
        .arg(folder.path())
        .stdin(Stdio::null());
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", line(&command)))?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}
