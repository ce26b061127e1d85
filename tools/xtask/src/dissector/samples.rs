//! The messages of `docs/design/version-two.md`, byte by byte, and what Wireshark must say of them.

use anyhow::{Context, Result, ensure};

use super::capture::Capture;
use super::conversation::{Pieces, To, send, start, words};
use super::tshark::{Row, Tshark};

/// The page with the messages, from the root of the work tree.
const PAGE: &str = "docs/design/version-two.md";

/// Bytes of the DDP segments: so few that each message has several.
const SEGMENT: usize = 24;

/// Designs for remote invalidation that put handles into the chunk lists, as they are in a
/// characteristic (reminv §4.4, §4.5).
const ONE_HANDLE: u8 = 0x08;
const SEVERAL_HANDLES: u8 = 0x10;

const FIELDS: [&str; 9] = [
    "tcp.stream",
    "rpcordma2.procedure",
    "rpcordma2.direction",
    "rpcordma2.operation",
    "rpcordma2.error",
    "rpcordma2.layout",
    "rpcordma2.cut",
    "rpcordma2.invalid",
    "rpcordma2.unusual",
];

/// One message of the page.
struct Sample {
    /// `none`, `one` or `several`: the handles for remote invalidation in its chunk lists.
    layout: String,
    /// What it is, or which answer it draws.
    meaning: String,
    message: Vec<u8>,
}

/// Has Wireshark read each message of the page on a connection of its own; how many there are.
pub(super) fn check(tshark: &Tshark) -> Result<usize> {
    let page = std::fs::read_to_string(crate::root().join(PAGE))?;
    let samples = samples(&page)?;
    let offer = find(&samples, "none", "RDMA2_OPTIONAL CALL ROPT_INITXCH", 1)?;
    let answer = find(&samples, "none", "RDMA2_OPTIONAL REPLY ROPT_INITXCH", 1)?;
    let plain_answer = find(&samples, "none", "RDMA2_OPTIONAL REPLY ROPT_INITXCH", 0)?;
    let conversations = samples.iter().map(|sample| {
        let answer = match sample.layout.as_str() {
            "none" => plain_answer.clone(),
            "one" => with_design(answer, ONE_HANDLE)?,
            "several" => with_design(answer, SEVERAL_HANDLES)?,
            other => anyhow::bail!("{PAGE} has a layout \"{other}\""),
        };
        let setup = [(To::Server, offer.clone()), (To::Client, answer)];
        Ok((sample, setup.to_vec()))
    });
    let conversations: Vec<_> = conversations.collect::<Result<_>>()?;
    read(tshark, "samples", &conversations, &[])?;
    // A capture without the first messages: the user says which layout the connection has.
    for (layout, chosen) in [("one", "One handle"), ("several", "Several handles")] {
        let of_layout = samples.iter().filter(|sample| sample.layout == layout);
        let late: Vec<_> = of_layout.map(|sample| (sample, Vec::new())).collect();
        ensure!(!late.is_empty(), "{PAGE} has no message of layout {layout}");
        let preference = format!("rpcordma2.layout:{chosen}");
        read(tshark, &format!("late-{layout}"), &late, &[&preference])?;
    }
    Ok(samples.len())
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
        let last = (direction_of(&sample.message), sample.message.clone());
        for (number, (to, message)) in setup.iter().chain([&last]).enumerate() {
            for segment in send(u32::try_from(number)? + 1, message, SEGMENT)? {
                connection.say(*to, &segment.bytes()?, usize::MAX)?;
            }
        }
    }
    let file = tshark.write(name, &capture.finish())?;
    let rows = tshark.rows(&file, "rpcordma2.procedure", &FIELDS, preferences)?;
    for (stream, (sample, setup)) in conversations.iter().enumerate() {
        let stream = stream.to_string();
        let mut of_stream = rows.iter().filter(|row| row.is("tcp.stream", &stream));
        let read = of_stream.nth(setup.len());
        check_one(sample, read).with_context(|| {
            format!("{name}, \"{} {}\": {read:?}", sample.layout, sample.meaning)
        })?;
    }
    Ok(())
}

/// Which end a message goes to; a reply goes to the client.
fn direction_of(message: &[u8]) -> To {
    let word = |at: usize| message.get(at..at + 4) == Some(&[0, 0, 0, 1]);
    let is_error = message.get(12..16) == Some(&[0, 0, 0, 4]);
    if is_error || word(16) {
        To::Client
    } else {
        To::Server
    }
}

fn check_one(sample: &Sample, read: Option<&Row>) -> Result<()> {
    if sample.meaning == "draws RDMA2_ERR_VERS" {
        ensure!(
            read.is_none(),
            "a message of version one is read as version two"
        );
        return Ok(());
    }
    let read = read.context("it is not read as version two")?;
    let layout = match sample.layout.as_str() {
        "one" => "1",
        "several" => "2",
        _ => "0",
    };
    ensure!(!read.has("rpcordma2.cut"), "it seems cut");
    let has_lists = read.is("rpcordma2.procedure", "0") || read.is("rpcordma2.procedure", "1");
    ensure!(
        has_lists == read.has("rpcordma2.layout")
            && (!has_lists || read.is("rpcordma2.layout", layout)),
        "another layout"
    );
    match sample.meaning.as_str() {
        "draws RDMA2_ERR_BAD_HEADER" => {
            ensure!(read.has("rpcordma2.invalid"), "nothing is invalid")
        }
        "draws RDMA2_ERR_INVAL_OPTION" | "draws nothing" => {
            ensure!(read.has("rpcordma2.unusual"), "nothing is unusual");
        }
        meaning => {
            let faults = read.has("rpcordma2.invalid") || read.has("rpcordma2.unusual");
            ensure!(!faults, "it has a fault");
            let name = name(read);
            ensure!(name == meaning, "it is named {name}");
        }
    }
    Ok(())
}

/// The name of a message, as the page has it.
fn name(read: &Row) -> String {
    let named = |field: &str, names: &[(&str, &'static str)]| {
        let found = names.iter().find(|(value, _)| read.is(field, value));
        found.map(|(_, name)| *name)
    };
    let procedures = [
        ("0", "RDMA2_MSG"),
        ("1", "RDMA2_NOMSG"),
        ("4", "RDMA2_ERROR REPLY"),
        ("5", "RDMA2_OPTIONAL"),
    ];
    let errors = [
        ("1", "RDMA2_ERR_VERS"),
        ("2", "RDMA2_ERR_BAD_HEADER"),
        ("3", "RDMA2_ERR_INVAL_OPTION"),
    ];
    let operations = [
        ("1", "ROPT_INITXCH"),
        ("2", "ROPT_REQXCH"),
        ("3", "ROPT_RESPXCH"),
        ("4", "ROPT_UPDXCH"),
    ];
    let parts = [
        named("rpcordma2.procedure", &procedures),
        named("rpcordma2.direction", &[("0", "CALL"), ("1", "REPLY")]),
        named("rpcordma2.operation", &operations),
        named("rpcordma2.error", &errors),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    parts.join(" ")
}

/// The message with this heading, of which there may be several.
fn find<'a>(samples: &'a [Sample], layout: &str, meaning: &str, nth: usize) -> Result<&'a Vec<u8>> {
    let mut found = samples
        .iter()
        .filter(|sample| sample.layout == layout && sample.meaning == meaning);
    let sample = found.nth(nth);
    Ok(&sample
        .with_context(|| format!("{PAGE} has no {nth}. \"{layout} {meaning}\""))?
        .message)
}

/// An answer that agrees on one design, with this one in its place.
fn with_design(answer: &[u8], design: u8) -> Result<Vec<u8>> {
    let agreed = [0, 0, 0, ONE_HANDLE];
    let at = answer.windows(4).position(|word| word == agreed);
    let at = at.with_context(|| format!("the answer of {PAGE} agrees on no design"))?;
    let mut answer = answer.to_vec();
    answer[at + 3] = design;
    Ok(answer)
}

/// The blocks of the page that begin with ` ```words `, in their order.
fn samples(page: &str) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let mut rest = page;
    while let Some((_, block)) = rest.split_once("```words ") {
        let (heading, block) = block.split_once('\n').context("a block without lines")?;
        let (lines, after) = block.split_once("```").context("a block without end")?;
        let (layout, meaning) = heading.split_once(' ').context("a heading of one word")?;
        // Behind three spaces is a remark.
        let hexadecimal = lines
            .lines()
            .map(|line| line.split("   ").next().unwrap_or_default());
        let hexadecimal: Vec<&str> = hexadecimal.collect();
        samples.push(Sample {
            layout: layout.to_owned(),
            meaning: meaning.trim().to_owned(),
            message: words(&hexadecimal.join(" "))?,
        });
        rest = after;
    }
    ensure!(!samples.is_empty(), "{PAGE} has no messages");
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_from_the_page() {
        let page = std::fs::read_to_string(crate::root().join(PAGE)).unwrap();
        let samples = samples(&page).unwrap();
        let first = &samples[0];
        assert_eq!(first.layout, "none");
        assert_eq!(first.meaning, "RDMA2_OPTIONAL CALL ROPT_INITXCH");
        assert_eq!(first.message[..8], [0, 0, 0, 7, 0, 0, 0, 2]);
        assert_eq!(direction_of(&first.message), To::Server);
        assert_eq!(direction_of(&samples[1].message), To::Client);
        let answer = find(&samples, "none", "RDMA2_OPTIONAL REPLY ROPT_INITXCH", 1).unwrap();
        assert_ne!(with_design(answer, SEVERAL_HANDLES).unwrap(), *answer);
    }
}
