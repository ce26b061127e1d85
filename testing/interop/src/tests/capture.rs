//! Wireshark's view of the kernel's client on our server: it knows iWARP, version one of
//! RPC-over-RDMA and NFS, and is nobody's friend.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::TestRun;
use crate::guest::{Boot, Guest};
use crate::packages::tool;
use crate::reframe::{self, Framing};
use crate::serve::{EXPORT, Serve};
use programs::command::{output, tail};

const LIMIT: Duration = Duration::from_secs(240);

/// Filters of Wireshark that must have matched, and in how many frames at least.
const LAYERS: [(&str, usize); 5] = [
    ("iwarp_mpa.req", 1),
    ("iwarp_mpa.rep", 1),
    ("iwarp_mpa.fpdu", 200),
    ("iwarp_ddp_rdmap", 200),
    ("rpcordma", 200),
];

/// The calls and the replies on files, and how many of each there must be.
const CALLS: &str = "nfs && rpc.msgtyp == 0";
const REPLIES: &str = "nfs && rpc.msgtyp == 1";
const LEAST_CALLS: usize = 100;

/// Filters that must not have matched.
const FAULTS: [&str; 5] = [
    "_ws.malformed",
    "_ws.short",
    "_ws.unreassembled",
    "iwarp_rdma.term_layer",
    "rpcordma.errcode",
];

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let folder = run.work.join("export");
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    let server = Serve::start(run, &folder)?;
    let port = server.port;
    let capture = record(run, port, server.mount_port, EXPORT)?;
    server.stop()?;
    let frames = dissect(run, &capture, port)?;
    every_crc_is_good(run, &frames)
}

/// Boots a client for a server on the host, and returns the capture of what they said.
pub(super) fn record(
    run: &TestRun<'_>,
    port: u16,
    mount_port: u16,
    source: &str,
) -> Result<PathBuf> {
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
            ("MOUNT_PORT", mount_port.to_string()),
            ("SOURCE", source.into()),
        ],
        capture: Some(capture.clone()),
        limit: LIMIT,
        ..Boot::default()
    };
    Guest::boot(run, &boot)?.finish()?;
    Ok(capture)
}

/// Holds a capture against [`LAYERS`] and [`FAULTS`], and returns it as it was read: frame by frame.
pub(super) fn dissect(run: &TestRun<'_>, capture: &Path, port: u16) -> Result<PathBuf> {
    run.report.say(run.name, "tshark reads the capture");
    let frames = run.logs.join("frame-by-frame.pcap");
    fs::write(
        &frames,
        reframe::frame_by_frame(&fs::read(capture)?, port, Framing::Mpa)?,
    )?;
    for (filter, least) in LAYERS {
        let seen = select(&frames, filter)?.len();
        run.report
            .say(run.name, &format!("{seen} frames of {filter}"));
        ensure!(
            seen >= least,
            "only {seen} frames show {filter}, {least} are the least"
        );
    }
    let calls = select(&frames, CALLS)?.len();
    let replies = select(&frames, REPLIES)?.len();
    run.report.say(
        run.name,
        &format!("{calls} calls and {replies} replies of nfs"),
    );
    ensure!(
        calls >= LEAST_CALLS,
        "only {calls} calls of nfs, {LEAST_CALLS} are the least"
    );
    ensure!(
        calls == replies,
        "{calls} calls, but {replies} replies of nfs"
    );
    for filter in FAULTS {
        let seen = select(&frames, filter)?;
        ensure!(
            seen.is_empty(),
            "{} frames of {} show {filter}:\n{}",
            seen.len(),
            frames.display(),
            tail(&seen.join("\n"))
        );
    }
    Ok(frames)
}

/// Our side asks for a CRC, so every FPDU has one (RFC 5044 §4.4), and Wireshark computes it too.
fn every_crc_is_good(run: &TestRun<'_>, frames: &Path) -> Result<()> {
    let fpdus = select(frames, "iwarp_mpa.fpdu")?.len();
    let details = output(tshark(frames, "iwarp_mpa.fpdu").arg("-V"))?;
    let good = details.matches("(Good CRC32)").count();
    run.report.say(run.name, &format!("{good} good CRCs"));
    ensure!(good == fpdus, "{good} of {fpdus} FPDUs have a good CRC");
    Ok(())
}

/// The summary lines of the frames that a filter selects.
fn select(capture: &Path, filter: &str) -> Result<Vec<String>> {
    Ok(output(&mut tshark(capture, filter))?
        .lines()
        .map(str::to_owned)
        .collect())
}

fn tshark(capture: &Path, filter: &str) -> Command {
    let mut tshark = tool("tshark");
    // Twice, because what was moved by RDMA Write is put in its place in the second pass only. And
    // first by content: the port is any, and Wireshark may know it as something else.
    tshark.arg("-2").arg("-r").arg(capture).args([
        "-o",
        "tcp.try_heuristic_first:TRUE",
        "-Y",
        filter,
    ]);
    tshark
}
