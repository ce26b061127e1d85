//! `rpcrdma probe` against the kernel's server.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::kernel_server::KernelServer;
use crate::TestRun;

const GUEST_LIMIT: Duration = Duration::from_secs(240);

/// An inline size that is not the kernel's usual one.
const OTHER_SIZE: usize = 16384;

/// Expected report of the kernel's server: each place in the report with its value.
fn usual() -> Vec<(&'static str, Value)> {
    vec![
        ("/verdict", json!("rpcrdma")),
        ("/mpa/revision", json!(2)),
        ("/mpa/enhanced", json!(true)),
        ("/mpa/crc", json!(true)),
        ("/mpa/crc_required", json!(false)),
        ("/mpa/markers", json!(false)),
        ("/mpa/ird", json!(32)),
        ("/mpa/ord", json!(32)),
        // It says that nothing is to be invalidated remotely, and does so itself.
        ("/private_data/bytes", json!("f6ab0e1801000303")),
        ("/private_data/offset", json!(0)),
        ("/rpcrdma/invalidates", json!(true)),
        ("/inline", json!({"to_peer": 4096, "from_peer": 4096})),
        ("/rpcrdma/version_one", json!(true)),
        (
            "/rpcrdma/version_two",
            json!({"answer": "err_vers", "low": 1, "high": 1}),
        ),
        ("/rpcrdma/stray_messages", json!(0)),
        ("/rpcrdma/ended", Value::Null),
        ("/nfs_versions", json!([3, 4])),
        ("/programs/0/answer", json!("prog_mismatch")),
        ("/programs/3/answer", json!("prog_unavail")),
        ("/rtt_ms/calls", json!(10)),
    ]
}

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let mut server = KernelServer::start(run, 1, GUEST_LIMIT)?;
    let step = |what: &str| run.report.say(run.name, what);

    step("nfsd");
    let found = probe(run, server.port)?;
    holds(&found, &usual())?;
    let granted = found.pointer("/rpcrdma/credits_granted");
    let granted = granted.and_then(Value::as_u64).unwrap_or_default();
    ensure!(
        (2..=1024).contains(&granted),
        "{granted} credits are granted: {found}"
    );
    let minor = found["nfs4_minor_versions"].as_array();
    ensure!(
        minor.is_some_and(|minor| minor.contains(&json!(1)) && minor.contains(&json!(2))),
        "NFS versions 4.1 and 4.2 are not seen: {found}"
    );

    step("mountd, which speaks plain TCP");
    let tcp = probe(run, server.mount_port)?;
    holds(&tcp, &[("/plain_tcp/answer", json!("prog_unavail"))])?;

    step(&format!("nfsd with inline sizes of {OTHER_SIZE}"));
    server.restart(OTHER_SIZE)?;
    let other = [
        ("/verdict", json!("rpcrdma")),
        ("/private_data/send_size", json!(OTHER_SIZE)),
        ("/private_data/receive_size", json!(OTHER_SIZE)),
        ("/inline", json!({"to_peer": 4096, "from_peer": 8192})),
    ];
    holds(&probe(run, server.port)?, &other)?;
    server.stop()
}

/// Report of the program about a port of the guest, whether it finds a server there or not. It is kept
/// among the logs.
fn probe(run: &TestRun<'_>, port: u16) -> Result<Value> {
    let output = Command::new(run.program)
        .args(["probe", "--json", &format!("127.0.0.1:{port}")])
        .output()
        .with_context(|| format!("cannot run {}", run.program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    fs::write(run.logs.join(format!("probe-{port}.json")), &output.stdout)?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("probe said: {said}"))
}

fn holds(found: &Value, expected: &[(&str, Value)]) -> Result<()> {
    for (place, value) in expected {
        ensure!(
            found.pointer(place) == Some(value),
            "{place} is not {value} in {found}"
        );
    }
    Ok(())
}
