//! `lab thresholds`: how many explicit RDMA operations the calls of a mix cost as the inline
//! threshold grows (RFC 8797 §3.1).
//!
//! Each call of the mix is handed to the planners of our client and our server, at each threshold, and what they
//! decide is counted. Its time is that of the same call on a model of an RNIC.

mod cost;
mod kinds;
mod mix;
mod report;
mod timed;

use crate::model::ModelArgs;
use crate::usage::Usage;
use anyhow::{Context, Result};
use clap::Args;
use cost::{Bound, Cost, Form};
use mix::Call;
use printing::print;
use printing::units;
pub(super) use report::Report;
use std::path::PathBuf;

/// Count the RDMA operations of recorded NFS calls as the inline threshold grows
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  lab thresholds
  lab thresholds --part stat --part list
  lab thresholds --threshold 8k --threshold 9k
  lab thresholds --svg thresholds.svg
  lab thresholds --json > thresholds.json

Each call is planned by the code that plans calls of the other commands. Reads \
and writes are RDMA Reads and RDMA Writes of the server; registrations are those of the client's \
memory. `exact`, `recorded` and `unknown` say what the client knows about the size of a reply: \
the size itself, the bound that the recorded client had, or only the largest reply of a session.

The time of a call is that of a model of an RNIC, as `invalidation` has it: one call at a \
time, version one, where the server invalidates one handle of each call remotely. Data that comes \
in a Send is copied once at --copy-rate. The costs are assumptions; set your own. `wakes` counts \
completions that found the client or the server asleep.

The built-in mix was recorded from the Linux NFS client. --mix takes tab-separated values with \
the columns nfs, part, calls, call, argument, reply, result, room, result_room and operations: \
the number of calls, bytes of a call and of its DDP-eligible data, the same of the reply, and \
the largest reply that the client was prepared for.")]
pub(crate) struct ThresholdsArgs {
    /// Take the calls from this file
    #[arg(long, value_name = "FILE")]
    mix: Option<PathBuf>,

    /// Count only this part of the workload; repeatable
    #[arg(long, value_name = "NAME")]
    part: Vec<String>,

    /// Plan for this threshold, up to 256 KiB, instead of the powers of two; a plain number is in
    /// KiB; repeatable
    #[arg(long, value_name = "SIZE", value_parser = kibibytes)]
    threshold: Vec<u16>,

    /// Draw a plot into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    model: ModelArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print the tables of a page in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// The thresholds in KiB, from what every peer has to take to the largest that can be told to one
/// (RFC 8166 §3.3.3, RFC 8797 §4.2).
const THRESHOLDS: [u16; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A threshold in KiB.
fn kibibytes(text: &str) -> Result<u16, String> {
    let size = match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => &format!("{text}k"),
        false => text,
    };
    let bytes: u32 = units::size_within(1 << 10..=256 << 10)(size)?;
    match bytes % 1024 {
        0 => u16::try_from(bytes / 1024).map_err(|error| error.to_string()),
        _ => Err("it is no multiple of 1 KiB".to_owned()),
    }
}

pub(crate) fn run(args: &ThresholdsArgs) -> Result<()> {
    let calls = calls(args)?;
    let thresholds = match &args.threshold[..] {
        [] => &THRESHOLDS,
        chosen => chosen,
    };
    let thresholds: Vec<usize> = thresholds
        .iter()
        .map(|&kib| usize::from(kib) << 10)
        .collect();
    let report = Report::new(&calls, &thresholds, &args.model)?;
    if let Some(path) = &args.svg {
        std::fs::write(path, report.plot().to_svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let table = match args.markdown {
        true => Report::markdown,
        false => Report::print,
    };
    print(args.json, &report, table)?;
    Ok(())
}

/// The calls that were asked for.
fn calls(args: &ThresholdsArgs) -> Result<Vec<Call>> {
    let mut calls = match &args.mix {
        None => mix::recorded(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(anyhow::Error::from)
            .and_then(|text| mix::parse(&text))
            .with_context(|| format!("the mix {}", path.display()))?,
    };
    let parts = distinct(&calls, |call| &call.part);
    if let Some(unknown) = args.part.iter().find(|name| !parts.contains(name)) {
        return Err(Usage(format!(
            "there is no part {unknown} in the mix; there are {}",
            parts.join(", ")
        ))
        .into());
    }
    calls.retain(|call| args.part.is_empty() || args.part.contains(&call.part));
    Ok(calls)
}

/// Distinct names, in the order of the mix.
fn distinct(calls: &[Call], name: impl Fn(&Call) -> &String) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for call in calls {
        if !names.contains(name(call)) {
            names.push(name(call).clone());
        }
    }
    names
}
