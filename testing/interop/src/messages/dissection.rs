//! Dissection of each message by `tshark`: its operations, and the places of its DDP-eligible items.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use pcap_file::pcap::PcapReader;

use crate::packages::tool;
use programs::command::output;

/// Calls with the same operations that are kept.
const KEPT: usize = 3;

/// Bytes of the largest message that is kept.
const MAX_MESSAGE: usize = 3000;

/// Bytes of a record mark.
const RECORD_MARK: usize = 4;

/// Data of READ and WRITE, and of other operations that it is not eligible in.
const DATA: &str = "nfs.data";

/// Text of SYMLINK, READLINK and CREATE.
const TEXTS: [&str; 3] = [
    "nfs.symlink.to",
    "nfs.readlink.data",
    "nfs.symlink.linktext",
];

/// READ and WRITE as procedures of version 3 and as operations of version 4.
const WITH_DATA: [(&str, &str); 4] = [("3", "6"), ("3", "7"), ("4", "25"), ("4", "38")];

/// Program number of NFS.
const NFS: &str = "100003";

/// A message as `tshark` sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Message {
    xid: String,
    is_reply: bool,
    program: String,
    procedure: String,
    version: String,
    minor_version: String,
    operations: Vec<String>,
    /// Offset and length of each item.
    items: Vec<(usize, usize)>,
    /// Offset of the message in its frame.
    start: usize,
    bytes: Vec<u8>,
}

impl Message {
    /// Whether data at this place of the message is eligible (RFC 8267 §4, §6.1).
    fn has_data(&self) -> bool {
        let number = self.operations.last().unwrap_or(&self.procedure);
        WITH_DATA.contains(&(&self.version, number))
    }
}

/// The table of messages, a call and its reply after each other.
///
/// # Errors
///
/// `tshark` fails, or what it says contradicts the capture.
pub(super) fn table(kernel: &str, capture: &Path) -> Result<String> {
    let frames = frames(&fs::read(capture)?)?;
    let mut tshark = tool("tshark");
    tshark.arg("-r").arg(capture).args(["-T", "pdml"]);
    let messages = messages(&output(&mut tshark)?, &frames)?;
    let pairs = pairs(messages);
    ensure!(!pairs.is_empty(), "no call with its reply in the capture");
    let mut text = format!(
        "# NFS messages of Linux {kernel}, recorded by `cargo xtask record-messages`: program version, direction,\n\
         # operations of a COMPOUND or the procedure, offset+length of each eligible item, and the message, as\n\
         # tshark sees them.\n"
    );
    for (call, reply) in &pairs {
        text += &row(call, "call");
        text += &row(reply, "reply");
    }
    Ok(text)
}

/// The frames of a capture.
fn frames(capture: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut reader = PcapReader::new(capture).context("not a capture")?;
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet?.data.into_owned());
    }
    Ok(frames)
}

/// The messages of NFS in what `tshark -T pdml` prints.
fn messages(pdml: &str, frames: &[Vec<u8>]) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    let packets = pdml.split("<packet>").skip(1);
    for (packet, frame) in packets.zip(frames) {
        let Some(mut message) = message(packet) else {
            continue;
        };
        message.bytes = frame
            .get(message.start..)
            .context("a message beyond its frame")?
            .to_vec();
        messages.push(message);
    }
    Ok(messages)
}

/// The message of a packet; `None` if it has none of NFS.
fn message(packet: &str) -> Option<Message> {
    let mut message = Message::default();
    let mut places = Vec::new();
    for line in packet.lines() {
        let Some(name) = attribute(line, "name") else {
            continue;
        };
        let show = || attribute(line, "show").unwrap_or_default().to_owned();
        let number = |name| attribute(line, name).and_then(|text| text.parse::<usize>().ok());
        match name {
            "rpc" => message.start = number("pos")? + RECORD_MARK,
            "rpc.xid" => message.xid = show(),
            "rpc.msgtyp" => message.is_reply = show() == "1",
            "rpc.program" => message.program = show(),
            "rpc.programversion" => message.version = show(),
            "rpc.procedure" => message.procedure = show(),
            "nfs.minorversion" => message.minor_version = show(),
            "nfs.opcode" => message.operations.push(show()),
            DATA if message.has_data() => places.push((number("pos")?, number("size")?)),
            name if TEXTS.contains(&name) => places.push((number("pos")?, number("size")?)),
            _ => {}
        }
    }
    message.items = places
        .into_iter()
        .map(|(at, len)| Some((at.checked_sub(message.start)?, len)))
        .collect::<Option<_>>()?;
    (message.program == NFS && !message.xid.is_empty()).then_some(message)
}

/// The value of an XML attribute.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

/// Calls with their replies, in the order of the capture: a few of each kind.
fn pairs(messages: Vec<Message>) -> Vec<(Message, Message)> {
    let mut calls = HashMap::new();
    let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
    let mut pairs = Vec::new();
    for message in messages {
        if !message.is_reply {
            calls.insert(message.xid.clone(), message);
            continue;
        }
        let Some(call) = calls.remove(&message.xid) else {
            continue;
        };
        if call.bytes.len().max(message.bytes.len()) > MAX_MESSAGE {
            continue;
        }
        let kind = (
            call.version.clone(),
            call.minor_version.clone(),
            call.procedure.clone(),
            call.operations.clone(),
            message.operations.clone(),
        );
        let seen = kinds.entry(kind).or_default();
        *seen += 1;
        if *seen <= KEPT {
            pairs.push((call, message));
        }
    }
    pairs
}

fn row(message: &Message, direction: &str) -> String {
    let operations = match message.operations.is_empty() {
        true => format!("procedure {}", message.procedure),
        false => message.operations.join(" "),
    };
    let items: Vec<String> = message
        .items
        .iter()
        .map(|(offset, length)| format!("{offset}+{length}"))
        .collect();
    let bytes: String = message
        .bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let version = match message.minor_version.as_str() {
        "" => message.version.clone(),
        minor => format!("{}.{minor}", message.version),
    };
    format!(
        "{version}\t{direction}\t{operations}\t{}\t{bytes}\n",
        items.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: &str = r#"
  <proto name="rpc" showname="Remote Procedure Call" size="44" pos="54">
    <field name="rpc.xid" showname="XID" size="4" pos="58" show="0x00000009" value="00000009"/>
    <field name="rpc.msgtyp" size="4" pos="62" show="0" value="00000000"/>
    <field name="rpc.program" size="4" pos="70" show="100003" value="000186a3"/>
    <field name="rpc.programversion" size="4" pos="74" show="4" value="00000004"/>
    <field name="rpc.procedure" size="4" pos="78" show="1" value="00000001"/>
    <field name="nfs.minorversion" size="4" pos="106" show="2" value="00000002"/>
    <field name="nfs.opcode" size="4" pos="126" show="38" value="00000026">
    <field name="nfs.data" size="5" pos="162" show="68:65" value="68656c6c6f"/>
"#;

    #[test]
    fn places_are_those_behind_the_record_mark() {
        let message = message(PACKET).unwrap();
        assert_eq!(message.start, 58);
        assert_eq!(message.items, [(104, 5)]);
        assert_eq!(message.operations, ["38"]);
        assert_eq!((message.version.as_str(), message.is_reply), ("4", false));
    }

    #[test]
    fn other_programs_are_left_out() {
        assert_eq!(super::message(&PACKET.replace("100003", "100005")), None);
    }

    #[test]
    fn few_pairs_of_each_kind_are_kept() {
        let call = message(PACKET).unwrap();
        let reply = Message {
            is_reply: true,
            ..call.clone()
        };
        let messages: Vec<_> = (0..10)
            .flat_map(|_| [call.clone(), reply.clone()])
            .collect();
        assert_eq!(pairs(messages).len(), KEPT);
    }
}
