//! `cargo xtask record-mix`: what NFS calls Linux makes at work, and how large they and their replies
//! are.
//!
//! The kernel's client and its server, each in a guest, talk over TCP. What is on the wire is read by
//! `tshark`. How large a reply the client was prepared for is not on the wire: that is what the client's
//! kernel traces about each call. Where both know a number they have to agree.

mod calls;
mod operations;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::calls::{Known, Row, Seen};
use super::guest::{Boot, Guest, free_ports};
use super::packages::tool;
use super::reframe::{self, Framing};
use super::report::Report;
use super::{Series, TestRun, empty_folder};
use programs::command::output;

/// Options of `cargo xtask record-mix`.
#[derive(Args)]
pub struct Options {
    /// Which of Debian's kernels to boot
    #[arg(long, value_enum, default_value_t)]
    kernel: Series,
    /// Keep the traffic beside the logs
    #[arg(long)]
    keep_captures: bool,
    /// First install the Debian packages that are needed (apt-get, as root or with sudo)
    #[arg(long)]
    install: bool,
    /// Write the mix here
    #[arg(
        long,
        value_name = "FILE",
        default_value = "testing/lab/src/thresholds/mix.tsv"
    )]
    output: PathBuf,
}

/// The versions of NFS to record: the first of them and the one that Linux prefers.
const VERSIONS: [(&str, &str); 2] = [("3", "mix-3"), ("4.2", "mix-4.2")];

/// How long a recording may take.
const LIMIT: Duration = Duration::from_secs(3600);

/// Ports of nfsd and mountd in the guest.
const GUEST_PORTS: [u16; 2] = [2049, 20048];

/// Records the mix of each version and writes them to one file.
///
/// # Errors
///
/// A guest fails, or what was recorded contradicts itself.
pub fn run(options: &Options) -> Result<()> {
    let report = Report::start();
    let image = super::image(options.kernel, options.install, &report)?;
    let mut rows = BTreeMap::new();
    for (version, name) in VERSIONS {
        let run = TestRun {
            name,
            kernel: options.kernel.name(),
            image: &image,
            program: Path::new(""),
            report: &report,
            package: None,
            keep_captures: options.keep_captures,
            logs: empty_folder("logs", name)?,
            work: empty_folder("work", name)?,
        };
        record(&run, version, &mut rows)?;
        fs::remove_dir_all(&run.work)?;
    }
    let path = programs::root().join(&options.output);
    fs::write(&path, calls::table(options.kernel.name(), &rows)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    report.say("mix", &format!("{} rows in {}", rows.len(), path.display()));
    Ok(())
}

/// Adds what one version of NFS does, each row with how often it was seen.
fn record(run: &TestRun<'_>, version: &str, rows: &mut BTreeMap<Row, u32>) -> Result<()> {
    let [port, mount_port] = free_ports()?;
    let server = Boot {
        name: "server",
        script: "mix-server.sh",
        environment: &[],
        forwards: &[(port, GUEST_PORTS[0]), (mount_port, GUEST_PORTS[1])],
        limit: LIMIT,
        ..Boot::default()
    };
    let mut server = Guest::boot(run, &server)?;
    let kept = if run.keep_captures {
        &run.logs
    } else {
        &run.work
    };
    let capture = kept.join("client.pcap");
    let client = Boot {
        name: "client",
        script: "mix.sh",
        environment: &[
            ("VERSION", version.into()),
            ("PORT", port.to_string()),
            ("MOUNT_PORT", mount_port.to_string()),
        ],
        capture: Some(capture.clone()),
        limit: LIMIT,
        ..Boot::default()
    };
    let mut client = Guest::boot(run, &client)?;
    server.expect("ready")?;
    client.expect("made")?;
    client.tell("mount")?;
    client.expect("recorded")?;
    let known: Vec<Known> = client
        .notes()
        .iter()
        .map(|line| Known::parse(line))
        .collect::<Result<_>>()?;
    client.finish()?;
    server.tell("stop")?;
    server.finish()?;
    let messages = kept.join("messages.pcap");
    fs::write(
        &messages,
        reframe::frame_by_frame(&fs::read(&capture)?, port, Framing::RecordMarks)?,
    )?;
    run.report.say(run.name, "tshark reads the capture");
    let seen = dissect(&messages, port)?;
    let calls = calls::join(version, &known, &seen)?;
    run.report.say(run.name, &format!("{} calls", calls.len()));
    ensure!(
        calls.len() >= 1000,
        "only {} calls were recorded",
        calls.len()
    );
    for call in calls {
        *rows.entry(call).or_default() += 1;
    }
    Ok(())
}

/// The calls and replies of a capture with a message in each frame, by XID.
fn dissect(messages: &Path, port: u16) -> Result<HashMap<u32, Seen>> {
    let mut tshark: Command = tool("tshark");
    tshark.arg("-r").arg(messages);
    tshark.args([
        "-d",
        &format!("tcp.port=={port},rpc"),
        "-Y",
        "rpc.msgtyp",
        "-T",
        "fields",
    ]);
    for field in calls::FIELDS {
        tshark.args(["-e", field]);
    }
    calls::seen(&output(&mut tshark)?, port)
}
