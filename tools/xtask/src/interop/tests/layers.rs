//! File systems on which inode numbers do not identify a file, served and copied by our program: an overlayfs over two
//! file systems, FUSE, and subvolumes of btrfs. On the host alone, in namespaces of its own.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::interop::TestRun;

/// It takes some seconds on an idle machine.
const LIMIT_SECONDS: &str = "600";

/// Lines of the script's output that are shown if it fails.
const SHOWN: usize = 40;

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "this test mounts file systems in namespaces of its own, which takes root"
    );
    let script = crate::root().join("testing/interop/host/layers.sh");
    let log = run.logs.join("layers.log");
    let output = File::create(&log)?;
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", LIMIT_SECONDS])
        .args(["unshare", "--net", "--mount", "--pid", "--mount-proc"])
        .args(["--fork", "--kill-child", "sh"])
        .arg(script)
        .env("WORK", &run.work)
        .env("PROGRAM", run.program)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let status = command
        .status()
        .context("cannot run timeout, of the package coreutils")?;
    if !status.success() {
        let said = fs::read_to_string(&log)?;
        let lines: Vec<_> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
        bail!("layers.sh ended with {status}:\n{last}");
    }
    Ok(())
}
