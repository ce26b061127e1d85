//! Requirements of a comparison in namespaces.

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
