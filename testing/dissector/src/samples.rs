//! The messages of `docs/xdr/vectors.json`, and what Wireshark must show of them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::capture::Capture;
use super::conversation::{Pieces, To, octets, send, start};
use super::tshark::{Row, Tshark};

/// The file with the messages, from the root of the work tree.
const VECTORS: &str = "docs/xdr/vectors.json";

/// Bytes of the words that all headers begin with.
const PREFIX: usize = 16;

/// Bytes of the DDP segments: so few that each message has several.
const SEGMENT: usize = 24;

/// The first message of a client that offers all designs, and the answers of servers, by the layout that they agree on.
const OFFER: &str = "ROPT_INITXCH of a client that offers the four designs that are negotiated";
const ANSWERS: [(&str, &str); 3] = [
    ("none", "ROPT_INITXCH of a server that announces nothing"),
    ("one", "ROPT_INITXCH of a server that selects per_call"),
    (
        "several",
        "ROPT_INITXCH of a server that selects per_call_several",
    ),
];

/// The first messages of a connection of ietf-07, whose other messages may be of either dialect.
const PROPERTIES: [(To, &str); 2] = [
    (
        To::Server,
        "ietf-07: RDMA2_CONNPROP_FINAL of a client with the five numbers",
    ),
    (
        To::Client,
        "ietf-07: RDMA2_CONNPROP_FINAL without properties",
    ),
];

/// The short name of the dialect of messages that do not name theirs, and of the other one.
const CEL_01: &str = "cel-01";
const IETF_07: &str = "ietf-07";

/// Fields of a vector, and those of the dissector that show them.
const SHOWN: [(&str, &str); 37] = [
    ("rdma_xid", "rpcordma2.xid"),
    ("rdma_vers", "rpcordma2.version"),
    ("rdma_credit", "rpcordma2.credits"),
    ("rdma_proc", "rpcordma2.procedure"),
    ("rdma_htype", "rpcordma2.procedure"),
    ("rdma_remaining", "rpcordma2.remaining"),
    ("rdma_max_chunks", "rpcordma2.max_chunks"),
    ("rdma_max_segments", "rpcordma2.max_segments"),
    ("rdma_chunk_index", "rpcordma2.chunk_index"),
    ("rdma_length_needed", "rpcordma2.length_needed"),
    ("rdma_which", "rpcordma2.property"),
    ("sbsiz", "rpcordma2.sbsiz"),
    ("rssiz", "rpcordma2.rssiz"),
    ("rcsiz", "rpcordma2.rcsiz"),
    ("rdma_direction", "rpcordma2.direction"),
    ("rdma_optdir", "rpcordma2.direction"),
    ("rdma_inv_handle", "rpcordma2.inv_handle"),
    ("rdma_inv_handles", "rpcordma2.inv_handle"),
    ("rdma_position", "rpcordma2.position"),
    ("rdma_handle", "rpcordma2.handle"),
    ("rdma_length", "rpcordma2.length"),
    ("rdma_offset", "rpcordma2.offset"),
    ("rdma_err", "rpcordma2.error"),
    ("rdma_vers_low", "rpcordma2.vers_low"),
    ("rdma_vers_high", "rpcordma2.vers_high"),
    ("rdma_opttype", "rpcordma2.operation"),
    ("xchv_which", "rpcordma2.xchar"),
    ("rbsiz", "rpcordma2.rbsiz"),
    ("reqreminv", "rpcordma2.reqreminv"),
    ("brs", "rpcordma2.brs"),
    ("designs", "rpcordma2.designs"),
    ("optixch_nochg", "rpcordma2.nochg"),
    ("optrespxch_done", "rpcordma2.done"),
    ("optrespxch_rej", "rpcordma2.rejected"),
    ("optrespxch_pend", "rpcordma2.pending"),
    ("optupdxch_pendclr", "rpcordma2.pendclr"),
    // The number of segments of a chunk.
    ("rdma_target", "rpcordma2.segments"),
];

/// Names of enum members in a vector.
const NAMES: [(&str, u64); 12] = [
    ("RDMA2_MSG", 0),
    ("RDMA2_NOMSG", 1),
    ("RDMA2_ERROR", 4),
    ("RDMA2_OPTIONAL", 5),
    ("RDMA2_CALL", 0),
    ("RDMA2_REPLY", 1),
    ("RDMA2_ERR_VERS", 1),
    ("RDMA2_ERR_BAD_HEADER", 2),
    ("RDMA2_ERR_INVAL_OPTION", 3),
    ("BKREQSUP_NONE", 0),
    ("BKREQSUP_INLINE", 1),
    ("BKREQSUP_GENL", 2),
];

/// Lists of a header, in the order of the message.
const LISTS: [&str; 6] = [
    "rdma_call",
    "rdma_reads",
    "rdma_writes",
    "rdma_provisional_writes",
    "rdma_reply",
    "rdma_provisional_reply",
];

/// Further fields that are asked for.
const MARKS: [&str; 6] = [
    "tcp.stream",
    "rpcordma2.dialect",
    "rpcordma2.layout",
    "rpcordma2.cut",
    "rpcordma2.invalid",
    "rpcordma2.unusual",
];

/// One vector.
struct Sample {
    name: String,
    dialect: String,
    /// `none`, `one` or `several`: the handles for remote invalidation in its chunk lists, which
    /// messages of ietf-07 have none of.
    layout: String,
    /// The answer that it draws, if it is not valid.
    draws: Option<String>,
    /// Whether a receiver ignores part of it.
    is_odd: bool,
    /// The name of the message before it, if it is the last part of an RPC message.
    follows: Option<String>,
    to: To,
    message: Vec<u8>,
    /// Values that the dissector is to show, by its fields; `None` if the message cannot be decoded.
    shown: Option<BTreeMap<&'static str, Vec<u64>>>,
}

/// Has Wireshark read each message on a connection of its own; how many there are.
pub(super) fn check(tshark: &Tshark, vectors: &Value) -> Result<usize> {
    let samples = samples(vectors)?;
    let message = |name: &str| {
        let found = samples.iter().find(|sample| sample.name == name);
        let found = found.with_context(|| format!("{VECTORS} has no \"{name}\""))?;
        Ok::<_, anyhow::Error>(found.message.clone())
    };
    let offer = message(OFFER)?;
    let setup = |(to, name)| Ok::<_, anyhow::Error>((to, message(name)?));
    let properties: Pieces = PROPERTIES.into_iter().map(setup).collect::<Result<_>>()?;
    let before = |sample: &Sample| {
        let message = sample.follows.as_deref().map(message).transpose()?;
        let before = message.map(|message| (sample.to, message));
        Ok::<Pieces, anyhow::Error>(before.into_iter().collect())
    };
    let conversations = samples.iter().map(|sample| {
        if sample.dialect == IETF_07 {
            return Ok((sample, [properties.clone(), before(sample)?].concat()));
        }
        let answer = ANSWERS.iter().find(|(layout, _)| *layout == sample.layout);
        let (_, answer) = answer.with_context(|| format!("layout \"{}\"", sample.layout))?;
        let setup = [(To::Server, offer.clone()), (To::Client, message(answer)?)];
        Ok((sample, setup.to_vec()))
    });
    let conversations: Vec<_> = conversations.collect::<Result<_>>()?;
    read(tshark, "samples", &conversations, &[])?;
    // A capture without the first messages: the user says which layout the connection has.
    for (layout, chosen) in [("one", "One handle"), ("several", "Several handles")] {
        let of_layout = samples.iter().filter(|sample| sample.layout == layout);
        let preference = format!("rpcordma2.layout:{chosen}");
        let late: Vec<_> = of_layout.map(|sample| (sample, Vec::new())).collect();
        ensure!(
            !late.is_empty(),
            "{VECTORS} has no message of layout {layout}"
        );
        read(tshark, &format!("late-{layout}"), &late, &[&preference])?;
    }
    // Or which dialect. Only the errors that both have need that.
    let of_ietf = samples
        .iter()
        .filter(|sample| sample.dialect == IETF_07 && sample.draws.is_none());
    let late = of_ietf.map(|sample| Ok((sample, before(sample)?)));
    let late: Vec<_> = late.collect::<Result<_>>()?;
    let preference = format!("rpcordma2.dialect:{IETF_07}");
    read(tshark, "late-ietf-07", &late, &[&preference])?;
    let (both, one): (Vec<_>, Vec<_>) = late
        .into_iter()
        .partition(|(sample, _)| sample.is_of_both_dialects());
    ensure!(both.len() == 3, "{} errors of both dialects", both.len());
    read(tshark, "alone-ietf-07", &one, &[])?;
    Ok(samples.len())
}

/// A conversation of all messages of ietf-07.
pub(super) fn conversation(vectors: &Value) -> Result<Pieces> {
    let mut pieces = Pieces::new();
    for to in [To::Server, To::Client] {
        pieces.push((to, start(to).bytes()?));
    }
    let mut sent = [0_u32; 2];
    let samples = samples(vectors)?;
    for sample in samples.iter().filter(|sample| sample.dialect == IETF_07) {
        sent[sample.to as usize] += 1;
        for frame in send(sent[sample.to as usize], &sample.message, usize::MAX)? {
            pieces.push((sample.to, frame.bytes()?));
        }
    }
    Ok(pieces)
}

/// Has Wireshark read each message, on a connection on which these others precede it.
fn read(
    tshark: &Tshark,
    name: &str,
    conversations: &[(&Sample, Pieces)],
    preferences: &[&str],
) -> Result<()> {
    let mut capture = Capture::new()?;
    for (sample, setup) in conversations {
        let mut connection = capture.connect()?;
        for to in [To::Server, To::Client] {
            connection.say(to, &start(to).bytes()?, usize::MAX)?;
        }
        let last = (sample.to, sample.message.clone());
        let mut sent = [0_u32; 2];
        for (to, message) in setup.iter().chain([&last]) {
            // Message Sequence Numbers count for each direction.
            sent[*to as usize] += 1;
            for segment in send(sent[*to as usize], message, SEGMENT)? {
                connection.say(*to, &segment.bytes()?, usize::MAX)?;
            }
        }
    }
    let file = tshark.write(name, &capture.finish())?;
    let mut fields: Vec<_> = MARKS
        .into_iter()
        .chain(SHOWN.map(|(_, field)| field))
        .collect();
    fields.sort_unstable();
    fields.dedup();
    let rows = tshark.rows(&file, "rpcordma2.xid", &fields, preferences)?;
    for (stream, (sample, setup)) in conversations.iter().enumerate() {
        let stream = stream.to_string();
        let mut of_stream = rows.iter().filter(|row| row.is("tcp.stream", &stream));
        let read = of_stream.nth(setup.len());
        check_one(sample, read)
            .with_context(|| format!("{name}, \"{}\": {read:?}", sample.name))?;
    }
    Ok(())
}

fn check_one(sample: &Sample, read: Option<&Row>) -> Result<()> {
    if sample.draws.as_deref() == Some("RDMA2_ERR_VERS") {
        ensure!(
            read.is_none(),
            "a message of version one is read as version two"
        );
        return Ok(());
    }
    if sample.message.len() < PREFIX {
        ensure!(read.is_none(), "a fragment is read as version two");
        return Ok(());
    }
    let read = read.context("it is not read as version two")?;
    ensure!(
        read.is("rpcordma2.dialect", &sample.dialect),
        "another dialect"
    );
    let layout = match sample.layout.as_str() {
        "one" => "1",
        "several" => "2",
        _ => "0",
    };
    let has_lists = read.is("rpcordma2.procedure", "0") || read.is("rpcordma2.procedure", "1");
    ensure!(
        has_lists == read.has("rpcordma2.layout")
            && (!has_lists || read.is("rpcordma2.layout", layout)),
        "another layout"
    );
    let is_cut = read.has("rpcordma2.cut");
    let is_invalid = is_cut || read.has("rpcordma2.invalid");
    let is_unusual = read.has("rpcordma2.unusual");
    match sample.draws.as_deref() {
        None => {
            ensure!(!is_invalid, "it has a fault");
            ensure!(is_unusual == sample.is_odd, "unusual: {is_unusual}");
        }
        Some("RDMA2_ERR_BAD_HEADER" | "RDMA2_ERR_BAD_XDR" | "RDMA2_ERR_BAD_PROPVAL") => {
            ensure!(is_invalid, "nothing is invalid");
        }
        Some("RDMA2_ERR_INVAL_OPTION") => ensure!(is_unusual, "nothing is unusual"),
        Some(_) => ensure!(is_invalid || is_unusual, "nothing is invalid or unusual"),
    }
    let Some(shown) = &sample.shown else {
        return Ok(());
    };
    for (_, field) in SHOWN {
        let values: Result<Vec<_>> = read.all(field).iter().map(|text| number(text)).collect();
        let values = values.context(field)?;
        let said = shown.get(field).map_or(&[][..], Vec::as_slice);
        ensure!(values == said, "{field}: {values:?}, not {said:?}");
    }
    Ok(())
}

/// A number as `tshark` writes it.
fn number(text: &str) -> Result<u64> {
    Ok(match (text, text.strip_prefix("0x")) {
        ("True", _) => 1,
        ("False", _) => 0,
        (_, Some(digits)) => u64::from_str_radix(digits, 16)?,
        (decimal, None) => decimal.parse()?,
    })
}

/// Adds the fields that the dissector shows of a value, in the order of the message.
fn collect(value: &Value, shown: &mut BTreeMap<&'static str, Vec<u64>>) -> Result<()> {
    match value {
        Value::Array(values) => values.iter().try_for_each(|value| collect(value, shown)),
        Value::Object(fields) => {
            // By name, the Reply chunk would come before the Write list.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| LISTS.iter().position(|list| list == name));
            for (name, value) in fields {
                let field = SHOWN.iter().find(|(field, _)| field == name);
                let Some((_, field)) = field else {
                    collect(value, shown)?;
                    continue;
                };
                let values = shown.entry(field).or_default();
                match value {
                    Value::Array(segments) if name == "rdma_target" => {
                        values.push(segments.len() as u64);
                    }
                    // That of a Read segment.
                    Value::Object(_) => (),
                    numbers => add(numbers, values)?,
                }
                collect(value, shown)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn add(value: &Value, values: &mut Vec<u64>) -> Result<()> {
    match value {
        Value::Number(number) => values.push(number.as_u64().context("a negative number")?),
        Value::Bool(flag) => values.push((*flag).into()),
        Value::String(name) => {
            let known = NAMES.iter().find(|(known, _)| known == name);
            values.push(known.with_context(|| format!("{name} is unknown"))?.1);
        }
        Value::Array(all) => all.iter().try_for_each(|value| add(value, values))?,
        Value::Object(_) | Value::Null => bail!("{value} is no number"),
    }
    Ok(())
}

/// The file of vectors.
pub(super) fn vectors() -> Result<Value> {
    let text = std::fs::read_to_string(programs::root().join(VECTORS))?;
    serde_json::from_str(&text).context(VECTORS)
}

/// The messages among the vectors, in their order.
fn samples(vectors: &Value) -> Result<Vec<Sample>> {
    let messages = vectors["messages"].as_array().context("no messages")?;
    messages.iter().map(sample).collect()
}

fn sample(vector: &Value) -> Result<Sample> {
    let text = |key: &str| {
        let text = vector[key].as_str().map(str::to_owned);
        text.with_context(|| format!("{vector} has no {key}"))
    };
    let dialect = vector["dialect"].as_str().unwrap_or(CEL_01);
    let lines = vector["octets"].as_array().context("no octets")?;
    let lines: Vec<_> = lines.iter().filter_map(Value::as_str).collect();
    let message = octets(&lines.join(" "))?;
    let shown = vector.get("fields").map(|fields| {
        let mut shown = BTreeMap::new();
        collect(fields, &mut shown)?;
        Ok::<_, anyhow::Error>(shown)
    });
    let to = match vector["to"].as_str() {
        Some("server") => To::Server,
        Some("client") => To::Client,
        _ => direction_of(dialect, &message),
    };
    Ok(Sample {
        name: text("name")?,
        dialect: dialect.to_owned(),
        layout: vector["layout"].as_str().unwrap_or("none").to_owned(),
        draws: vector["draws"].as_str().map(str::to_owned),
        is_odd: vector.get("ignored").is_some(),
        follows: vector["follows"].as_str().map(str::to_owned),
        to,
        message,
        shown: shown.transpose()?,
    })
}

impl Sample {
    /// Whether it is an RDMA2_ERROR whose code both dialects have.
    fn is_of_both_dialects(&self) -> bool {
        let word = |at: usize| self.message.get(at..at + 4);
        word(12) == Some(&[0, 0, 0, 4]) && word(16) < Some(&[0, 0, 0, 4])
    }
}

/// The end to which a message of the forward direction goes; a reply goes to the client.
fn direction_of(dialect: &str, message: &[u8]) -> To {
    let word = |at: usize| {
        let bytes = message.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    };
    let is_error = word(12) == Some(4);
    let is_reply = match dialect {
        // The header types tell it.
        IETF_07 => matches!(word(12), Some(11..=13)),
        _ => word(16) == Some(1),
    };
    if is_error || is_reply {
        To::Client
    } else {
        To::Server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_from_the_vectors() {
        let samples = samples(&vectors().unwrap()).unwrap();
        let first = &samples[0];
        assert_eq!(first.layout, "none");
        assert_eq!(first.message[..8], [0, 0, 0, 7, 0, 0, 0, 2]);
        assert_eq!(first.to, To::Server);
        assert_eq!(samples[1].to, To::Client);
        let shown = first.shown.as_ref().unwrap();
        assert_eq!(shown["rpcordma2.xchar"], [1, 2, 3]);
        assert_eq!(shown["rpcordma2.nochg"], [6]);
        let chunks = samples
            .iter()
            .find(|sample| sample.name.starts_with("per_version"));
        let shown = chunks.unwrap().shown.as_ref().unwrap();
        assert_eq!(shown["rpcordma2.segments"], [2, 0, 1]);
        assert_eq!(shown["rpcordma2.handle"], [0xa, 0xb, 0xc, 0xd, 0xe]);
    }
}
