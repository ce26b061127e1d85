//! `rpcrdma conform` on the kernel's server, beside the baseline of its version.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::kernel_server::KernelServer;
use crate::TestRun;
use programs::root;

/// The cases that the server does not answer wait for their patience, and it may crash and be waited for.
const GUEST_LIMIT: Duration = Duration::from_secs(1500);

/// How long each answer may take in an emulated machine.
const PATIENCE: &str = "10s";

/// Cases that a kernel does not survive: `BUG_ON` a scatterlist without entries, which a Read chunk becomes that has no
/// octets.
const FATAL: &str = "RDCH-03,RDCH-12";

/// Cases behind which siw, the kernel's software iWARP, takes no connection any more, or may not.
const FATAL_TO_SIW: &str = "MPA-05,MPA-12,MPA-21,MPA-22";

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let server = KernelServer::start(run, 1, GUEST_LIMIT)?;
    let known = baseline(run);
    let found = run.logs.join("conform.json");
    let written = run.logs.join("conform.known");
    let mut conform = Command::new(run.program);
    conform
        .args(["conform", "--json", "--patience", PATIENCE])
        .args(["--directory", "/export/inbox"])
        .args(["--mount-port", &server.mount_port.to_string()])
        .arg("--junit")
        .arg(run.logs.join("conform.xml"))
        .arg("--write-known")
        .arg(&written)
        .args(["--except", FATAL, "--except", FATAL_TO_SIW])
        .arg(format!("127.0.0.1:{}", server.port));
    if known.is_file() {
        conform.arg("--known").arg(&known);
    }
    let output = conform
        .output()
        .with_context(|| format!("cannot run {}", run.program.display()))?;
    fs::write(&found, &output.stdout)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("conform ended with {}: {said}", output.status))?;
    for count in ["passed", "failed", "skipped", "errors"] {
        run.report
            .say(run.name, &format!("{count}: {}", report[count]));
    }
    ensure!(
        report["new_failures"] == Value::Array(Vec::new()),
        "cases fail that {} lacks: {}; {} has all failures, and {} what was sent and came",
        known.display(),
        report["new_failures"],
        written.display(),
        found.display()
    );
    server.stop()
}

/// The baseline of the kernel's version.
fn baseline(run: &TestRun<'_>) -> PathBuf {
    root().join(format!("testing/conform/knfsd-{}.known", run.kernel))
}
