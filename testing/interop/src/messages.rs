//! `cargo xtask record-messages`: NFS messages of Linux, and what `tshark` says of them.
//!
//! The kernel's client and its server, each in a guest, talk over TCP, in each version of NFS. The scans
//! of `nfs-proto` have to find the same operations and the same DDP-eligible items as Wireshark's
//! dissector does.

mod dissection;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::guest::{Boot, Guest, free_ports};
use super::reframe::{self, Framing};
use super::report::Report;
use super::{Series, TestRun, empty_folder};

/// Options of `cargo xtask record-messages`.
#[derive(Args)]
pub struct Options {
    /// Which of Debian's kernels to boot
    #[arg(long, value_enum, default_value_t = Series::V6_12)]
    kernel: Series,
    /// First install the Debian packages that are needed (apt-get, as root or with sudo)
    #[arg(long)]
    install: bool,
    /// Read this capture of an earlier run instead of recording; it is kept in the folder of the logs
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Write the messages here
    #[arg(
        long,
        value_name = "FILE",
        default_value = "crates/nfs-proto/tests/messages/linux.tsv"
    )]
    output: PathBuf,
}

const NAME: &str = "messages";

/// How long a recording may take.
const LIMIT: Duration = Duration::from_secs(1200);

/// Ports of nfsd and mountd in the guest.
const GUEST_PORTS: [u16; 2] = [2049, 20048];

/// Bytes of the server's disk.
const DISK: u64 = 512 << 20;

/// Programs of this machine that the guest gets, with what they are linked to.
const PROGRAMS: [(&str, &str); 8] = [
    ("xcp", "/usr/bin/cp"),
    ("xflock", "/usr/bin/flock"),
    ("xgetfattr", "/usr/bin/getfattr"),
    ("xsetfattr", "/usr/bin/setfattr"),
    (
        "libselinux.so.1",
        "/usr/lib/x86_64-linux-gnu/libselinux.so.1",
    ),
    ("libacl.so.1", "/usr/lib/x86_64-linux-gnu/libacl.so.1"),
    ("libattr.so.1", "/usr/lib/x86_64-linux-gnu/libattr.so.1"),
    (
        "libpcre2-8.so.0",
        "/usr/lib/x86_64-linux-gnu/libpcre2-8.so.0",
    ),
];

/// Records the messages and writes them to a file.
///
/// # Errors
///
/// A guest fails, or `tshark` cannot read what was recorded.
pub fn run(options: &Options) -> Result<()> {
    let report = Report::start();
    let messages = match &options.capture {
        Some(path) => path.clone(),
        None => record(options, &report)?,
    };
    report.say(NAME, "tshark reads the capture");
    let table = dissection::table(options.kernel.name(), &messages)?;
    let path = programs::root().join(&options.output);
    fs::write(&path, &table).with_context(|| format!("cannot write {}", path.display()))?;
    let said = format!("{} lines in {}", table.lines().count(), path.display());
    report.say(NAME, &said);
    Ok(())
}

/// Boots both guests. Returns a capture with a message in each frame.
fn record(options: &Options, report: &Report) -> Result<PathBuf> {
    for (_, path) in PROGRAMS {
        ensure!(
            Path::new(path).exists(),
            "{path} is missing; it is of the Debian packages coreutils, util-linux and attr"
        );
    }
    let image = super::image(options.kernel, options.install, report)?;
    let run = TestRun {
        name: NAME,
        kernel: options.kernel.name(),
        image: &image,
        program: Path::new(""),
        report,
        package: None,
        keep_captures: false,
        logs: empty_folder("logs", NAME)?,
        work: empty_folder("work", NAME)?,
    };
    let disk = run.work.join("disk");
    fs::File::create(&disk)?.set_len(DISK)?;
    let [port, mount_port] = free_ports()?;
    let mut server = Guest::boot(
        &run,
        &Boot {
            name: "server",
            script: "messages-server.sh",
            disks: &[&disk],
            forwards: &[(port, GUEST_PORTS[0]), (mount_port, GUEST_PORTS[1])],
            limit: LIMIT,
            ..Boot::default()
        },
    )?;
    server.expect("ready")?;
    let capture = run.work.join("client.pcap");
    let files = PROGRAMS.map(|(name, path)| (name, Path::new(path)));
    let mut client = Guest::boot(
        &run,
        &Boot {
            name: "client",
            script: "messages.sh",
            environment: &[
                ("PORT", port.to_string()),
                ("MOUNT_PORT", mount_port.to_string()),
            ],
            files: &files,
            capture: Some(capture.clone()),
            limit: LIMIT,
            ..Boot::default()
        },
    )?;
    client.expect("recorded")?;
    client.finish()?;
    server.tell("stop")?;
    server.finish()?;
    let messages = run.logs.join("messages.pcap");
    let framed = reframe::frame_by_frame(&fs::read(&capture)?, port, Framing::RecordMarks)?;
    fs::write(&messages, framed)?;
    fs::remove_dir_all(&run.work)?;
    Ok(messages)
}
