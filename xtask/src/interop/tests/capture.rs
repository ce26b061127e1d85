//! Wireshark's view of the kernel's client on our server: it knows iWARP, version one of
//! RPC-over-RDMA and NFS, and is nobody's friend.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::output;
use crate::interop::TestRun;
use crate::interop::guest::{Boot, Guest};
use crate::interop::packages::tool;
use crate::interop::serve::{EXPORT, Serve};

const LIMIT: Duration = Duration::from_secs(240);

/// What must have been seen, as filters of Wireshark's, and how often at least.
const LAYERS: [(&str, usize); 6] = [
    ("iwarp_mpa.req", 1),
    ("iwarp_mpa.rep", 1),
    ("iwarp_mpa.fpdu", 100),
    ("iwarp_ddp_rdmap", 100),
    ("rpcordma", 100),
    ("nfs", 100),
];

/// What must not have been seen.
const FAULTS: [&str; 3] = ["_ws.malformed", "_ws.short", "iwarp_rdma.term"];

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let folder = run.work.join("export");
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    let server = Serve::start(run, &folder)?;
    let port = server.port;
    let keep = if run.keep_captures {
        &run.logs
    } else {
        &run.work
    };
    let capture = keep.join("guest.pcap");
    let boot = Boot {
        name: "guest",
        script: "capture.sh",
        environment: &[
            ("PORT", port.to_string()),
            ("MOUNT_PORT", server.mount_port.to_string()),
            ("SOURCE", EXPORT.into()),
        ],
        forwards: &[],
        capture: Some(capture.clone()),
        limit: LIMIT,
    };
    Guest::boot(run, &boot)?.finish()?;
    server.stop()?;
    run.report.say(run.name, "tshark reads the capture");
    dissect(run, &capture, port)
}

/// Holds a capture against [`LAYERS`] and [`FAULTS`].
fn dissect(run: &TestRun<'_>, capture: &Path, port: u16) -> Result<()> {
    for (filter, least) in LAYERS {
        let seen = frames(capture, port, filter)?.len();
        run.report
            .say(run.name, &format!("{seen} frames of {filter}"));
        ensure!(
            seen >= least,
            "only {seen} frames show {filter}, {least} are the least"
        );
    }
    for filter in FAULTS {
        let seen = frames(capture, port, filter)?;
        if !seen.is_empty() {
            let kept = run.logs.join("guest.pcap");
            if kept != capture {
                fs::copy(capture, &kept).context("cannot keep the capture")?;
            }
            ensure!(
                false,
                "{} frames show {filter}:\n{}",
                seen.len(),
                seen.join("\n")
            );
        }
    }
    Ok(())
}

/// The summary lines of the frames that a filter selects.
fn frames(capture: &Path, port: u16, filter: &str) -> Result<Vec<String>> {
    let lines = output(
        tool("tshark")
            .arg("-r")
            .arg(capture)
            // Any port may be iWARP, and some have another protocol's name.
            .args(["-o", "tcp.try_heuristic_first:TRUE"])
            .args(["-Y", &format!("tcp.port == {port} && {filter}")]),
    )?;
    Ok(lines.lines().map(str::to_owned).collect())
}
