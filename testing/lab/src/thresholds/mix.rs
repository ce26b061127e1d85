//! A mix of calls: their kinds, sizes and frequencies.

use anyhow::{Context, Result, ensure};
use csv::{Position, ReaderBuilder, StringRecord};
use oncrpc::xdr;
use std::collections::HashMap;
use std::str::FromStr;

/// Recorded from Linux at work; the head of the file says how.
const RECORDED: &str = include_str!("mix.tsv");

/// The columns of a mix, in their order.
const COLUMNS: [&str; 10] = [
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
];

/// Bytes that a number of a mix may say at most: far more than any NFS message has.
const MOST_BYTES: usize = 1 << 28;

/// A call, with the bytes of its messages from their XIDs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Which version of NFS.
    pub(super) nfs: String,
    /// The part of the work it belongs to.
    pub(super) part: String,
    /// How many there were of it.
    pub(super) calls: u32,
    /// The call.
    pub(super) call: usize,
    /// Of it the argument that is DDP-eligible, without padding; 0 is none (RFC 8267 §4, §6.1).
    pub(super) argument: usize,
    /// The reply.
    pub(super) reply: usize,
    /// Of it the result that is DDP-eligible, without padding.
    pub(super) result: usize,
    /// The largest reply that the client was prepared for, without the eligible result.
    pub(super) room: usize,
    /// The largest eligible result that it was prepared for; 0 if there cannot be one.
    pub(super) result_room: usize,
    /// The procedure of version 3, the operations of a COMPOUND of version 4.
    pub(super) operations: String,
}

/// The mix that comes with the program.
///
/// # Panics
///
/// If it is broken, which a test makes sure it is not.
pub(super) fn recorded() -> Vec<Call> {
    parse(RECORDED).expect("the mix of the program is a valid one")
}

/// Reads a mix: lines of tab-separated values below a line with the names of the columns. Lines that
/// begin with `#` are for people.
///
/// # Errors
///
/// Says what is wrong in which line.
pub(super) fn parse(text: &str) -> Result<Vec<Call>> {
    let mut reader = ReaderBuilder::new()
        .delimiter(b'\t')
        .comment(Some(b'#'))
        .quoting(false)
        .flexible(true)
        .from_reader(text.as_bytes());
    let columns = reader.headers()?;
    ensure!(!columns.is_empty(), "there is nothing in it");
    let columns: Vec<&str> = columns.iter().collect();
    ensure!(
        columns == COLUMNS,
        "the columns have to be {}, but they are {}",
        COLUMNS.join(", "),
        columns.join(", ")
    );
    let mut calls = Vec::new();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, Position::line);
        calls.push(call(&record).with_context(|| format!("line {line}"))?);
    }
    ensure!(!calls.is_empty(), "there are no calls in it");
    Ok(calls)
}

fn call(values: &StringRecord) -> Result<Call> {
    ensure!(
        values.len() == COLUMNS.len(),
        "{} values where {} belong",
        values.len(),
        COLUMNS.len()
    );
    let by_name: HashMap<&str, &str> = COLUMNS.into_iter().zip(values).collect();
    let bytes = |name| {
        let bytes = number(by_name[name], name)?;
        ensure!(
            bytes <= MOST_BYTES,
            "{name} is {bytes}, and {MOST_BYTES} is the most"
        );
        Ok(bytes)
    };
    let call = Call {
        nfs: by_name["nfs"].to_owned(),
        part: by_name["part"].to_owned(),
        calls: number(by_name["calls"], "calls")?,
        call: bytes("call")?,
        argument: bytes("argument")?,
        reply: bytes("reply")?,
        result: bytes("result")?,
        room: bytes("room")?,
        result_room: bytes("result_room")?,
        operations: by_name["operations"].to_owned(),
    };
    let holds = |message: usize, item: usize| xdr::padded(item) <= message;
    ensure!(
        holds(call.call, call.argument),
        "the argument is larger than the call"
    );
    ensure!(
        holds(call.reply, call.result),
        "the result is larger than the reply"
    );
    ensure!(
        call.result <= call.result_room && call.reply - xdr::padded(call.result) <= call.room,
        "the reply is larger than the room for it"
    );
    Ok(call)
}

fn number<T: FromStr>(value: &str, name: &str) -> Result<T> {
    value
        .parse()
        .ok()
        .with_context(|| format!("{name} is \"{value}\", which is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "nfs\tpart\tcalls\tcall\targument\treply\tresult\troom\tresult_room\toperations\n";

    #[test]
    fn recorded_mix_is_whole() {
        let calls = recorded();
        for (nfs, read) in [("3", "READ"), ("4.2", "SEQUENCE PUTFH READ")] {
            let of_version = || calls.iter().filter(move |call| call.nfs == nfs);
            assert!(
                of_version().map(|call| call.calls).sum::<u32>() > 5000,
                "{nfs}"
            );
            assert!(of_version().any(|call| call.operations == read && call.result >= 128 << 10));
            assert!(of_version().any(|call| call.argument >= 128 << 10));
        }
    }

    #[test]
    fn line_is_parsed_as_a_call() {
        let text = format!("# recorded\n{HEAD}3\tstat\t7\t140\t0\t232\t100\t132\t128\tREAD\n");
        let expected = Call {
            nfs: "3".into(),
            part: "stat".into(),
            calls: 7,
            call: 140,
            argument: 0,
            reply: 232,
            result: 100,
            room: 132,
            result_room: 128,
            operations: "READ".into(),
        };
        assert_eq!(parse(&text).unwrap(), [expected]);
    }

    #[test]
    fn invalid_input_is_reported_with_its_line() {
        let check = |line: &str, says: &str| {
            let error = parse(&format!("{HEAD}{line}")).unwrap_err();
            assert!(format!("{error:#}").contains(says), "{error:#}");
        };
        check("", "no calls");
        check("3\tstat\t7\n", "line 2: 3 values where 10 belong");
        check(
            "3\tx\t1\t140\t0\tmany\t0\t132\t0\tREAD",
            "reply is \"many\", which is no number",
        );
        check(
            "3\tx\t1\t140\t141\t100\t0\t132\t0\tWRITE",
            "the argument is larger",
        );
        check(
            "3\tx\t1\t140\t0\t100\t101\t132\t200\tREAD",
            "the result is larger",
        );
        check(
            "3\tx\t1\t140\t0\t136\t0\t132\t0\tREAD",
            "larger than the room",
        );
        check(
            "3\tx\t1\t140\t0\t136\t1\t132\t0\tREAD",
            "larger than the room",
        );
        check("3\tx\t1\t999999999\t0\t136\t0\t136\t0\tREAD", "the most");
        assert!(format!("{:#}", parse("a\tb\n").unwrap_err()).contains("columns have to be nfs"));
        assert!(format!("{:#}", parse("# only\n").unwrap_err()).contains("nothing in it"));
    }
}
