//! `lab negotiation`: Receives whose size grows on an open connection (xcharext §3.1, §4), beside sizes that
//! both ends fix when they connect (RFC 8797 §4).
//!
//! Both ends run in virtual time on a model of an RNIC. Messages are larger than the Receives that the connection
//! begins with. What moves them then are chunks, until an end has asked its peer for larger Receives.

mod cases;
mod phases;
mod report;

use crate::model::{Assumptions, ModelArgs};
use anyhow::Result;
use cases::{Agreement, Calls};
use clap::Args;
use printing::print;
use printing::units::size_within;
pub(super) use report::Report;

/// Compare Receives that grow in version two with sizes that are fixed at the beginning, on a model of an RNIC
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  lab negotiation
  lab negotiation --payload 32k
  lab negotiation --interrupt 10us
  lab negotiation --json > negotiation.json

A connection of version two begins with Receives of 4 KiB at both ends, and its calls or replies \
have more: `read` has data in replies and `write` in calls, which may move by RDMA, and \
`directory` has large replies without such data, which are a Long reply. The sizes are `fixed`; \
or the `server` asks the client for larger Receives (ROPT_REQXCH) as `rpcrdma serve` does for its \
replies; or `both` ends ask each other; or they are fixed at `larger` ones, which private data \
would have to know before the first call.

`before` are calls before a request, `during` are those until the new sizes are in use, which \
takes as many messages as Receives are posted, and `after` those after that.

Columns, per call and of both ends together where they are counts: `rate` calls per second; \
`time` median time of a call in microseconds; `rdma` RDMA Reads and RDMA Writes; `regs` \
registrations of memory; `wakes` completions that found a host asleep; `client` and `server` the \
size of their Receives at the end of the phase.

The simulated RNIC is a model, and its times are assumptions; they do not vary. Data that comes \
in a Send is not copied in it. With --depth, calls that are made together arrive together, and \
their replies wait for each other on the wire.")]
pub(crate) struct NegotiationArgs {
    /// Data of a call or its reply, more than 4 KiB
    #[arg(long, default_value = "8k", value_name = "SIZE",
        value_parser = size_within::<u32>(4097..=cases::MAX_PAYLOAD as u64))]
    payload: u32,

    /// Calls in flight at a time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    depth: u8,

    /// Number of calls before and after the change
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=100_000))]
    calls: u32,

    #[command(flatten)]
    model: ModelArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print the table of a page in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

pub(crate) fn run(args: &NegotiationArgs) -> Result<()> {
    let mut rows = Vec::new();
    for calls in Calls::ALL {
        for agreement in Agreement::ALL {
            rows.extend(phases::measure(args, calls, agreement)?);
        }
    }
    let model = Assumptions::new(&args.model.costs(0), args.model.service);
    let report = Report::new(model, args.payload, args.depth, rows);
    let table = match args.markdown {
        true => Report::markdown,
        false => Report::print,
    };
    print(args.json, &report, table)?;
    Ok(())
}
