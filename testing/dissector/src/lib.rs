//! `cargo xtask dissector`: whether Wireshark, with the dissector of `contrib/wireshark`, understands
//! version two of RPC-over-RDMA.
//!
//! Our client and our server talk to each other through a relay that records them. What `tshark` finds in
//! the recording is compared with the bytes that passed and with the files that were copied. Then it reads
//! the vectors of `docs/xdr`, whose fields it must show, and recordings with bytes changed and cut off, which must not
//! make the script fail.

mod broken;
mod capture;
mod conversation;
pub mod pcap;
mod private_data;
mod samples;
mod tshark;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::capture::{Capture, SERVER_PORT};
use self::conversation::{Pieces, Recorder, To, frames};
use self::tshark::{Row, Tshark};
use crate::pcap::MAX_PAYLOAD;
use programs::command::{build, within};
use programs::server::Server;

/// A way to speak.
struct Way {
    name: &'static str,
    /// `--rpcrdma-version` of the server, and of the client.
    versions: [&'static str; 2],
    /// `--remote-invalidation`.
    design: &'static str,
    /// The layout of chunk lists that the design leads to; none where it leads to no other.
    layout: Option<&'static str>,
    /// The type of a message that carries the reply to a listing, which is longer than one Send.
    long: &'static str,
}

/// Version two as cel-01 has it, with this design for remote invalidation.
const fn cel_01(design: &'static str, layout: &'static str) -> Way {
    Way {
        name: design,
        versions: ["auto", "2"],
        design,
        layout: Some(layout),
        // RDMA2_NOMSG.
        long: "1",
    }
}

/// Version two in all its forms.
const WAYS: [Way; 5] = [
    cel_01("per_connection", "0"),
    cel_01("per_call", "1"),
    cel_01("per_call_several", "2"),
    cel_01("per_call_all", "2"),
    Way {
        name: "ietf-07",
        versions: ["auto:ietf-07", "2:ietf-07"],
        design: "on",
        layout: None,
        // RDMA2_REPLY_EXTERNAL.
        long: "11",
    },
];

/// Version one, of which there is a sample only: Wireshark knows it.
const VERSION_ONE: Way = Way {
    name: "version-one",
    versions: ["auto", "1"],
    design: "on",
    layout: None,
    long: "1",
};

/// Captures that come with the dissector.
const SAMPLES: &str = "contrib/wireshark/samples";

/// Bytes of TCP payload in a packet: as on loopback, and as on Ethernet.
const SEGMENTS: [usize; 2] = [MAX_PAYLOAD, 1460];

/// Bytes of the file that is copied: it goes by chunk, and its XDR has padding.
const FILE: usize = (48 << 10) + 3;

/// Files in the directory that is listed: its reply is longer than any message.
const ENTRIES: usize = 200;

/// NULL calls of `ping`.
const PINGS: usize = 3;

/// For each command.
const LIMIT: Duration = Duration::from_secs(60);

const NFS: &str = "100003";

/// Texts that must not occur in a sound conversation: also none of version one.
const FAULTS: [&str; 7] = [
    "_ws.malformed",
    "_ws.short",
    "rpcordma",
    "rpcordma2.cut",
    "rpcordma2.invalid",
    "rpcordma2.unusual",
    "rpcordma2.missing",
];

const FIELDS: [&str; 20] = [
    "tcp.dstport",
    "rpcordma2.xid",
    "rpcordma2.layout",
    "rpcordma2.inv_handle",
    "rpcordma2.rbsiz",
    "rpcordma2.operation",
    "rpcordma2.procedure",
    "rpc.program",
    "rpc.msgtyp",
    "nfs.procedure_v3",
    "nfs.data",
    "rpcrdma_cm.magic",
    "rpcrdma_cm.receive_size",
    FAULTS[0],
    FAULTS[1],
    FAULTS[2],
    FAULTS[3],
    FAULTS[4],
    FAULTS[5],
    FAULTS[6],
];

/// Options of `cargo xtask dissector`.
#[derive(Args)]
pub struct Options {
    /// Test this program instead of building the one in the work tree
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Keep the captures in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Only record the samples in contrib/wireshark/samples anew
    #[arg(long)]
    write_samples: bool,
}

/// Records conversations and has `tshark` read them.
///
/// # Errors
///
/// `tshark` is missing, or does not say what it should.
pub fn run(options: &Options) -> Result<()> {
    let program = match &options.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => build(&["--release", "--package=rpcrdma-cli"], "rpcrdma")?,
    };
    let scratch = tempfile::tempdir()?;
    if options.write_samples {
        return write_samples(&program, scratch.path());
    }
    let captures = options.keep.as_deref().unwrap_or(scratch.path());
    check(&program, scratch.path(), captures, |done| {
        println!("{done}")
    })
}

/// The same with this program, a folder for what the server leaves, and one for captures.
///
/// # Errors
///
/// Those of [`run`].
pub fn check(program: &Path, scratch: &Path, captures: &Path, say: impl Fn(&str)) -> Result<()> {
    let tshark = Tshark::new(captures)?;
    let mut recorded = Vec::new();
    for way in WAYS {
        let conversation = record(program, &scratch.join(way.name), &way)?;
        for segment in SEGMENTS {
            let name = format!("{}-{segment}", way.name);
            let file = tshark.write(&name, &as_recorded(&conversation.connections, segment)?)?;
            let messages = compare(&tshark, &file, &conversation, &way).context(name)?;
            say(&format!(
                "{}, segments of {segment} bytes: {messages} messages are decoded",
                way.name
            ));
        }
        recorded.push(conversation.connections);
    }
    let files = committed(&tshark)?;
    say(&format!("{files} samples are decoded"));
    let vectors = samples::vectors()?;
    let private = vectors["private_data"].as_array();
    let private = private_data::check(&tshark, private.context("no private data")?)?;
    say(&format!("{private} forms of private data are decoded"));
    let samples = samples::check(&tshark, &vectors)?;
    say(&format!("{samples} vectors are decoded to their fields"));
    recorded.push(vec![samples::conversation(&vectors)?]);
    let broken = broken::check(&tshark, &recorded)?;
    say(&format!(
        "{broken} conversations with broken messages make no error in Lua"
    ));
    Ok(())
}

/// Records the captures that come with the dissector anew.
///
/// # Errors
///
/// A command fails, or a file cannot be written.
fn write_samples(program: &Path, scratch: &Path) -> Result<()> {
    let [_, per_call, _, _, later] = WAYS;
    for (way, name) in [
        (VERSION_ONE, "version-one"),
        (per_call, "cel-01"),
        (later, "ietf-07"),
    ] {
        let conversation = record(program, &scratch.join(name), &way)?;
        let [_, segment] = SEGMENTS;
        let file = programs::root()
            .join(SAMPLES)
            .join(name)
            .with_extension("pcap");
        fs::write(&file, as_recorded(&conversation.connections, segment)?)?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Reads the captures that come with the dissector, in which nothing may be wrong; how many there are.
fn committed(tshark: &Tshark) -> Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(programs::root().join(SAMPLES))? {
        let file = entry?.path();
        if file.extension().is_none_or(|ending| ending != "pcap") {
            continue;
        }
        let rows = tshark.rows(&file, "tcp", &FIELDS, &[])?;
        let is_of_one = file.ends_with("version-one.pcap");
        for fault in FAULTS
            .iter()
            .filter(|fault| !is_of_one || **fault != "rpcordma")
        {
            let seen = rows.iter().filter(|row| row.has(fault)).count();
            ensure!(
                seen == 0,
                "{seen} frames of {} show {fault}",
                file.display()
            );
        }
        let calls = rows.iter().flat_map(|row| row.all("rpc.msgtyp")).count();
        ensure!(calls > 10, "{calls} RPC messages in {}", file.display());
        files += 1;
    }
    ensure!(files == 3, "{files} samples in {SAMPLES}");
    Ok(files)
}

/// Messages between client and server.
struct Conversation {
    connections: Vec<Pieces>,
    /// The content of the file that was put and got.
    file: Vec<u8>,
}

/// Has commands of the client do what moves data in every way.
fn record(program: &Path, scratch: &Path, way: &Way) -> Result<Conversation> {
    let export = scratch.join("export");
    fs::create_dir_all(export.join("many"))?;
    for entry in 0..ENTRIES {
        fs::write(
            export.join(format!("many/entry-with-a-long-name-{entry}")),
            "",
        )?;
    }
    let file = noise(FILE);
    fs::write(scratch.join("put"), &file)?;
    let [of_server, of_client] = way.versions;
    let design = way.design;
    let options = [
        "--squash",
        "none",
        "--remote-invalidation",
        design,
        "--rpcrdma-version",
        of_server,
    ];
    let server = Server::start(program, &export, scratch, &options)?;
    let recorder = Recorder::start(server.addr)?;
    let url = |path: &str| format!("nfs://{}/{path}", recorder.addr);
    let path = |name: &str| scratch.join(name).display().to_string();
    let count = PINGS.to_string();
    let address = recorder.addr.to_string();
    let commands: [&[&str]; 4] = [
        &["ping", &address, "-c", &count, "-i", "0.1"],
        &["put", &path("put"), &url("file")],
        &["get", &url("file"), &path("got")],
        &["ls", &url("many")],
    ];
    for arguments in commands {
        let mut command = Command::new(program);
        command.args(arguments);
        command.args(["--rpcrdma-version", of_client]);
        command.args(["--remote-invalidation", design]);
        within(&mut command, LIMIT, scratch)?;
    }
    ensure!(
        fs::read(scratch.join("got"))? == file,
        "the file came back different"
    );
    Ok(Conversation {
        connections: recorder.finish()?,
        file,
    })
}

/// Bytes that no compression or repetition makes easy, the same in each run.
fn noise(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..bytes).map(|_| random.u8(..)).collect()
}

fn as_recorded(connections: &[Pieces], segment: usize) -> Result<Vec<u8>> {
    let mut capture = Capture::new()?;
    for pieces in connections {
        let mut connection = capture.connect()?;
        for (to, bytes) in pieces {
            connection.say(*to, bytes, segment)?;
        }
    }
    Ok(capture.finish())
}

/// Compares what `tshark` reads with what passed; how many messages there are.
fn compare(tshark: &Tshark, file: &Path, conversation: &Conversation, way: &Way) -> Result<usize> {
    let rows = tshark.rows(file, "tcp", &FIELDS, &[])?;
    for fault in FAULTS {
        let seen = rows.iter().filter(|row| row.has(fault)).count();
        ensure!(
            seen == 0,
            "{seen} frames of {} show {fault}",
            file.display()
        );
    }
    let messages = every_send_is_there(&rows, conversation)?;
    setup_is_there(&rows, conversation, way.layout)?;
    files_are_there(&rows, conversation, way)?;
    Ok(messages)
}

/// Each Send that the two ends made is one message of version two.
fn every_send_is_there(rows: &[Row], conversation: &Conversation) -> Result<usize> {
    let mut sent = HashMap::from([(To::Server as usize, 0), (To::Client as usize, 0)]);
    for pieces in &conversation.connections {
        for (to, frame) in frames(pieces)? {
            *sent.entry(to as usize).or_default() += usize::from(frame.begins_send());
        }
    }
    let mut messages = 0;
    for to in [To::Server, To::Client] {
        let port = SERVER_PORT.to_string();
        let goes = |row: &&Row| row.is("tcp.dstport", &port) == (to == To::Server);
        let found: usize = rows
            .iter()
            .filter(goes)
            .map(|row| row.all("rpcordma2.xid").len())
            .sum();
        let sent = sent[&(to as usize)];
        ensure!(
            found == sent,
            "{found} messages to the {to:?}, which was sent {sent}"
        );
        messages += found;
    }
    Ok(messages)
}

/// Each connection has its private data and characteristics, and chunk lists of the layout agreed on.
fn setup_is_there(rows: &[Row], conversation: &Conversation, layout: Option<&str>) -> Result<()> {
    let ends = conversation.connections.len() * 2;
    let count = |field: &str| rows.iter().map(|row| row.all(field).len()).sum::<usize>();
    let of_cel_01 = [
        ("rpcordma2.rbsiz", "Receive Buffer Sizes"),
        ("rpcordma2.operation", "operations"),
    ];
    let of_cel_01 = of_cel_01.into_iter().filter(|_| layout.is_some());
    for (field, what) in
        std::iter::once(("rpcrdma_cm.receive_size", "private data")).chain(of_cel_01)
    {
        let found = count(field);
        ensure!(
            found == ends,
            "{found} {what}, not one of each of {ends} ends"
        );
    }
    let Some(layout) = layout else {
        return Ok(());
    };
    let mut layouts = rows.iter().flat_map(|row| row.all("rpcordma2.layout"));
    ensure!(
        layouts.all(|one| one == layout),
        "chunk lists have another layout than {layout}"
    );
    let handles = count("rpcordma2.inv_handle");
    ensure!(
        (handles > 0) == (layout != "0"),
        "{handles} handles to invalidate"
    );
    Ok(())
}

/// The RPC messages: the NULL calls of `ping`, and the file in the arguments of WRITE and in the result of READ.
fn files_are_there(rows: &[Row], conversation: &Conversation, way: &Way) -> Result<()> {
    let of = |field: &'static str| rows.iter().flat_map(move |row| row.all(field));
    let calls = of("rpc.msgtyp").filter(|kind| *kind == "0").count();
    let replies = of("rpc.msgtyp").filter(|kind| *kind == "1").count();
    ensure!(
        calls == replies && calls > 0,
        "{calls} calls and {replies} replies"
    );
    let is_nfs = |row: &&Row| row.all("rpc.program").iter().any(|program| program == NFS);
    let nulls = rows
        .iter()
        .filter(is_nfs)
        .flat_map(|row| row.all("nfs.procedure_v3"))
        .filter(|procedure| *procedure == "0")
        .count();
    ensure!(
        nulls == 2 * PINGS,
        "{nulls} NULL calls and replies, not {PINGS} of each"
    );
    let file: String = conversation
        .file
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let data: Vec<&String> = of("nfs.data").collect();
    ensure!(
        data.len() == 2 && data.iter().all(|one| **one == file),
        "{} READs and WRITEs with data of {:?} bytes, not one of each with {FILE}",
        data.len(),
        data.iter().map(|one| one.len() / 2).collect::<Vec<_>>()
    );
    let long = of("rpcordma2.procedure")
        .filter(|procedure| *procedure == way.long)
        .count();
    ensure!(long > 0, "no message of type {}", way.long);
    Ok(())
}
