//! The calls of a recording: from what `tshark` and the client's kernel say to the rows of a mix.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, ensure};
use programs::tsv;

use super::operations;

/// Fields that `tshark` is asked for about each message, in the order of the columns.
pub(super) const FIELDS: [&str; 11] = [
    "tcp.srcport",
    "rpc.msgtyp",
    "rpc.xid",
    "rpc.fraglen",
    "nfs.opcode",
    // How many bytes a READ or WRITE of version 3 moved, and one of version 4.
    "nfs.count3",
    "nfs.read.data_length",
    "nfs.write.data_length",
    // The text of a symbolic link: of SYMLINK, of READLINK, and of both in version 4.
    "nfs.symlink.to",
    "nfs.readlink.data",
    "nfs.symlink.linktext",
];

/// `rpc.msgtyp` of a call; that of a reply is 1 (RFC 5531 §9).
const CALL: &str = "0";

/// Messages of a call on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    call: Option<Message>,
    reply: Option<Message>,
}

/// A message as `tshark` sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Message {
    bytes: usize,
    /// Of a COMPOUND.
    operations: Vec<usize>,
    /// Bytes that a READ or WRITE moves in it, or asks for.
    data: usize,
    /// Bytes of the text of a symbolic link.
    text: usize,
}

/// Call in the client's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    xid: u32,
    part: String,
    call: usize,
    /// Of the call, in pages: data of a WRITE, text of a symbolic link.
    call_pages: usize,
    reply: usize,
    /// For the reply, in all and in pages.
    room: usize,
    room_pages: usize,
    program: String,
    procedure: String,
}

/// A call of a mix, in the order of its table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    nfs: String,
    part: String,
    operations: String,
    call: usize,
    argument: usize,
    reply: usize,
    result: usize,
    room: usize,
    result_room: usize,
}

/// Items that move by reference (RFC 8267 §4, §6.1).
enum Eligible {
    Argument,
    Result,
    Nothing,
}

impl Known {
    /// Reads a line of `testing/interop/tests/mix.sh`.
    pub(super) fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [
            xid,
            part,
            call,
            call_pages,
            reply,
            room,
            room_pages,
            program,
            procedure,
        ] = words[..]
        else {
            anyhow::bail!("the client's kernel said \"{line}\"");
        };
        Ok(Self {
            xid: hexadecimal(xid)?,
            part: part.to_owned(),
            call: call.parse()?,
            call_pages: call_pages.parse()?,
            reply: reply.parse()?,
            room: room.parse()?,
            room_pages: room_pages.parse()?,
            program: program.to_owned(),
            procedure: procedure.to_owned(),
        })
    }

    /// Merges the call on the wire and in the kernel.
    fn row(&self, nfs: &str, seen: &Seen) -> Result<Row> {
        let (Some(call), Some(reply)) = (&seen.call, &seen.reply) else {
            anyhow::bail!("half of it is not in the capture");
        };
        ensure!(
            call.bytes == self.call,
            "the call has {} bytes on the wire",
            call.bytes
        );
        ensure!(
            reply.bytes == self.reply,
            "the reply has {} bytes on the wire",
            reply.bytes
        );
        let names = operations::names(&call.operations)?;
        let operation = names.iter().copied().find(|name| is_eligible(name));
        let (eligible, text) = match operation.unwrap_or(&self.procedure) {
            "WRITE" => (Eligible::Argument, false),
            "SYMLINK" => (Eligible::Argument, true),
            "CREATE" if call.text > 0 => (Eligible::Argument, true),
            "READ" => (Eligible::Result, false),
            "READLINK" => (Eligible::Result, true),
            _ => (Eligible::Nothing, false),
        };
        let item = |message: &Message| if text { message.text } else { message.data };
        let mut row = Row {
            nfs: nfs.to_owned(),
            part: self.part.clone(),
            operations: if names.is_empty() {
                self.procedure.clone()
            } else {
                names.join(" ")
            },
            call: self.call,
            argument: 0,
            reply: self.reply,
            result: 0,
            room: self.room,
            result_room: 0,
        };
        match eligible {
            Eligible::Argument => {
                row.argument = item(call);
                ensure!(
                    self.call_pages == row.argument,
                    "{} bytes to move on the wire",
                    row.argument
                );
            }
            Eligible::Result => {
                row.result = item(reply);
                row.result_room = self.room_pages;
                row.room -= self.room_pages;
                ensure!(
                    row.result <= row.result_room,
                    "{} bytes were moved",
                    row.result
                );
            }
            Eligible::Nothing => {}
        }
        Ok(row)
    }
}

/// Whether an operation of a COMPOUND has data that may move by itself.
fn is_eligible(operation: &str) -> bool {
    matches!(operation, "READ" | "WRITE" | "READLINK" | "CREATE")
}

/// The calls to `port` and the replies to them, by XID, from the columns [`FIELDS`].
///
/// # Errors
///
/// A column is not what it should be.
pub(super) fn seen(columns: &str, port: u16) -> Result<HashMap<u32, Seen>> {
    let mut calls: HashMap<u32, Seen> = HashMap::new();
    for row in tsv::reader(columns).into_records() {
        let row = row?;
        let values: Vec<&str> = row.iter().collect();
        let [
            source,
            kind,
            xid,
            bytes,
            operations,
            count3,
            read,
            write,
            texts @ ..,
        ] = &values[..]
        else {
            anyhow::bail!("tshark said {values:?}");
        };
        let from_server = *source == port.to_string();
        if from_server == (*kind == CALL) {
            // The server's calls to the client, which are small, and the replies to them.
            continue;
        }
        let operations = operations.split(',').filter(|number| !number.is_empty());
        let data = [count3, read, write]
            .into_iter()
            .find(|number| !number.is_empty());
        let message = Message {
            bytes: bytes.parse().with_context(|| format!("{values:?}"))?,
            operations: operations.map(str::parse).collect::<Result<_, _>>()?,
            data: data
                .map_or(Ok(0), |number| number.parse())
                .with_context(|| format!("{values:?}"))?,
            text: texts.iter().map(|text| text.len()).sum(),
        };
        let call = calls.entry(hexadecimal(xid)?).or_default();
        let place = if from_server {
            &mut call.reply
        } else {
            &mut call.call
        };
        ensure!(place.is_none(), "two messages of XID {xid}");
        *place = Some(message);
    }
    Ok(calls)
}

fn hexadecimal(number: &str) -> Result<u32> {
    u32::from_str_radix(number.trim_start_matches("0x"), 16).with_context(|| number.to_owned())
}

/// The calls of NFS that the client's kernel knows, with what of them is on the wire.
///
/// # Errors
///
/// They contradict each other, or something is on the wire that the kernel does not know.
pub(super) fn join(nfs: &str, known: &[Known], seen: &HashMap<u32, Seen>) -> Result<Vec<Row>> {
    let of_nfs: Vec<_> = known
        .iter()
        .filter(|call| call.program.starts_with("nfs"))
        .collect();
    ensure!(
        of_nfs.len() == seen.len(),
        "the client's kernel knows {} calls, on the wire are {}",
        of_nfs.len(),
        seen.len()
    );
    let row = |call: &&Known| {
        let seen = seen.get(&call.xid).context("it is not in the capture");
        seen.and_then(|seen| call.row(nfs, seen))
            .with_context(|| format!("{call:?}"))
    };
    of_nfs.iter().map(row).collect()
}

/// The file of a mix.
///
/// # Errors
///
/// A value is not text.
pub(super) fn table(kernel: &str, rows: &BTreeMap<Row, u32>) -> Result<String> {
    let head = format!(
        "# NFS calls of Linux {kernel} at work, recorded by `cargo xtask record-mix` (testing/interop/README.md).\n\
         # Bytes are those of RPC messages from their XIDs on. argument and result: what may move by itself\n\
         # (RFC 8267 §4, §6.1). room and result_room: the largest reply that the client had room for.\n"
    );
    let mut table = tsv::writer(head.into_bytes());
    table.write_record([
        "nfs",
        "part",
        "calls",
        "call",
        "argument",
        "reply",
        "result",
        "room",
        "result_room",
        "operations",
    ])?;
    for (row, calls) in rows {
        table.write_record([
            &row.nfs,
            &row.part,
            &calls.to_string(),
            &row.call.to_string(),
            &row.argument.to_string(),
            &row.reply.to_string(),
            &row.result.to_string(),
            &row.room.to_string(),
            &row.result_room.to_string(),
            &row.operations,
        ])?;
    }
    Ok(String::from_utf8(table.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 4711;

    /// A READ of version 3 and a WRITE of version 4, and a call from the server.
    const COLUMNS: &str = "900\t0\t0x0000000a\t140\t\t8192\t\t\t\t\t\n\
        4711\t1\t0x0000000a\t228\t\t100\t\t\t\t\t\n\
        900\t0\t0x0000000b\t8392\t53,22,38\t\t\t8192\t\t\t\n\
        4711\t1\t0x0000000b\t160\t53,22,38\t\t\t\t\t\t\n\
        4711\t0\t0x0000000a\t100\t\t\t\t\t\t\t\n\
        900\t1\t0x0000000a\t28\t\t\t\t\t\t\t\n";

    const READ: &str = "0x0000000a stream 140 0 228 8320 8192 nfsv3 READ";
    const WRITE: &str = "0x0000000b stream 8392 8192 160 600 0 nfsv4 WRITE";

    fn joined(known: &[&str]) -> Result<Vec<Row>> {
        let known: Vec<_> = known
            .iter()
            .map(|line| Known::parse(line).unwrap())
            .collect();
        join("x", &known, &seen(COLUMNS, PORT).unwrap())
    }

    #[test]
    fn wire_and_kernel_make_a_row() {
        let mount = "0x00000001 mount 60 0 24 100 0 mountv3 MNT";
        let rows = joined(&[mount, READ, WRITE]).unwrap();
        let read = (
            rows[0].argument,
            rows[0].result,
            rows[0].room,
            rows[0].result_room,
        );
        assert_eq!(
            (read, rows[0].operations.as_str()),
            ((0, 100, 128, 8192), "READ")
        );
        let write = (
            rows[1].argument,
            rows[1].result,
            rows[1].room,
            rows[1].result_room,
        );
        assert_eq!(
            (write, rows[1].operations.as_str()),
            ((8192, 0, 600, 0), "SEQUENCE PUTFH WRITE")
        );
        let rows = rows.into_iter().map(|row| (row, 2)).collect();
        let table = table("6.1", &rows).unwrap();
        assert!(
            table.ends_with("\nx\tstream\t2\t8392\t8192\t160\t0\t600\t0\tSEQUENCE PUTFH WRITE\n"),
            "{table}"
        );
    }

    #[test]
    fn contradictions_are_errors() {
        let check = |known: &[&str], says: &str| {
            let error = format!("{:#}", joined(known).unwrap_err());
            assert!(error.contains(says), "{error}");
        };
        check(&[READ], "knows 1 calls, on the wire are 2");
        check(&[READ, &READ.replace("0a", "0c")], "not in the capture");
        check(
            &[READ, &WRITE.replace("8392", "8388")],
            "8392 bytes on the wire",
        );
        check(
            &[READ, &WRITE.replace("160", "164")],
            "160 bytes on the wire",
        );
        check(
            &[READ, &WRITE.replace(" 8192", " 4096")],
            "8192 bytes to move",
        );
        assert!(Known::parse("0x0a stream").is_err());
    }
}
