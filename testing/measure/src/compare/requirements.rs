//! A comparison in namespaces: its requirements and its script.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// Checks that the user is root, and that these programs are there. Each stands with the Debian packages
/// that bring it.
///
/// # Errors
///
/// What is missing.
pub(super) fn check(needs: &[(&str, &str)]) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "it runs servers in namespaces of their own, which takes root"
    );
    for (program, package) in needs {
        let found = Command::new("sh")
            .args(["-c", "command -v \"$0\"", program])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        ensure!(
            found,
            "{program} is missing: apt-get install --no-install-recommends {package}"
        );
    }
    Ok(())
}

/// A script of `testing`, in network, mount and process namespaces of its own.
pub(super) fn script(path: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh"])
        .arg(programs::root().join("testing").join(path));
    command
}
