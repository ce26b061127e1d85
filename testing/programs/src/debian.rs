//! Programs of Debian packages that chores need on this machine, and how to install them.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::command::output;

/// Whether a program can be started.
pub fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// How to install a package by hand.
pub fn by_hand(package: &str) -> String {
    format!("apt-get update && apt-get install -y --no-install-recommends {package}")
}

/// Installs the package of a program, as root or with sudo.
///
/// # Errors
///
/// `apt-get` fails, or the package does not bring the program.
pub fn install(package: &str, program: &str) -> Result<()> {
    let is_root = output(Command::new("id").arg("-u"))?.trim() == "0";
    for arguments in [
        &["update"][..],
        &["install", "-y", "--no-install-recommends", package],
    ] {
        let mut command = if is_root {
            Command::new("apt-get")
        } else {
            let mut command = Command::new("sudo");
            command.arg("apt-get");
            command
        };
        output(command.args(arguments))?;
    }
    if !has(program) {
        bail!("there is no {program}, though {package} is installed");
    }
    Ok(())
}
