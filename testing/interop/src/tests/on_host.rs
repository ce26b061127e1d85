//! Tests that are a script on the host alone, in namespaces of its own: root's.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::TestRun;
use programs::root;

/// They take some seconds on an idle machine.
const LIMIT_SECONDS: &str = "600";

/// Lines of the script's output that are shown if it fails.
const SHOWN: usize = 40;

/// File systems on which inode numbers do not identify a file, served and copied by our program: an overlayfs over two
/// file systems, FUSE, and subvolumes of btrfs.
pub(super) fn layers(run: &TestRun<'_>) -> Result<()> {
    script(run, "layers.sh", &[])
}

/// `rpcrdma conform` on nfs-ganesha behind our gateway, beside its baseline.
pub(super) fn conform_ganesha(run: &TestRun<'_>) -> Result<()> {
    let known = root().join("testing/conform/ganesha.known");
    let found = run.logs.join("conform.known");
    script(
        run,
        "conform-ganesha.sh",
        &[("KNOWN", &known), ("FOUND", &found)],
    )
}

fn script(run: &TestRun<'_>, name: &str, files: &[(&str, &Path)]) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "this test has namespaces of its own, which takes root"
    );
    let log = run.logs.join(name).with_extension("log");
    let output = File::create(&log)?;
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", LIMIT_SECONDS])
        .args(["unshare", "--net", "--mount", "--pid", "--mount-proc"])
        .args(["--fork", "--kill-child", "bash"])
        .arg(root().join("testing/interop/host").join(name))
        .env("WORK", &run.work)
        .env("PROGRAM", run.program)
        .envs(files.iter().copied())
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
        bail!("{name} ended with {status}:\n{last}");
    }
    Ok(())
}
