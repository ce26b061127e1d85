//! `rpcrdma stats`: shows what a running server does.

mod form;
mod gateway;
mod procedures;
pub(crate) mod rows;
mod server;

use crate::control_args::ControlArgs;
use crate::failure::{Ended, Usage};
use crate::output;
use anyhow::bail;
use clap::Args;
use form::Form;
use printing::units;
use rpcrdma_daemon::control::asking;
use rpcrdma_daemon::control::{Request, Status};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Show calls, failures and latencies of the servers and gateways on this machine
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma stats
      totals since the start, of each server and gateway
  rpcrdma stats -l
      all counters, also those that are zero, in long lines
  rpcrdma stats --interval 5s
      totals, then what happens, every five seconds
  rpcrdma stats --json \\
    --socket /run/rpcrdma/control-0.0.0.0:20049.sock
      one JSON document, from that server

Without -l, the text fits 80 columns, large numbers have units of 1000, and what is zero is left out. Only the user who runs \
the server, and root, can query it. Latencies of calls that are answered at once are sampled, about one in sixteen.")]
pub(crate) struct StatsArgs {
    /// Show all counters, each exact, in lines of any length
    #[arg(short, long, conflicts_with = "json")]
    long: bool,

    /// Then show, at this interval, what happened since the last time
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    interval: Option<Duration>,

    /// Stop after this many reports [default: until Ctrl-C]
    #[arg(long, value_name = "N", requires = "interval",
        value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,

    /// Print one JSON document per report and server, with counts since the server started
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    control: ControlArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &StatsArgs) -> anyhow::Result<Ended> {
    if args.interval.is_some_and(|interval| interval.is_zero()) {
        bail!(Usage("--interval must be longer than 0".to_owned()));
    }
    let count = match args.interval {
        Some(_) => args.count.unwrap_or(u32::MAX),
        None => 1,
    };
    let mut ended = Ended::Well;
    let mut before = BTreeMap::new();
    for time in 1..=count {
        let sockets = args.control.sockets().await?;
        let alone = sockets.len() == 1;
        let mut asked = BTreeMap::new();
        let mut between = if time > 1 { "\n" } else { "" };
        for socket in sockets {
            let (line, now) = match asking::ask::<Status>(&socket, Request::Stats).await {
                Ok(answer) => answer,
                Err(error) if alone => return Err(error),
                Err(error) => {
                    ended.failed(&error);
                    continue;
                }
            };
            let text = match args.json {
                true => line + "\n",
                false => {
                    let named = Some(&*socket).filter(|_| !alone);
                    let text = report(before.get(&socket), &now, named, args.long);
                    format!("{between}{text}")
                }
            };
            between = "\n";
            let mut out = output::stdout();
            out.write_all(text.as_bytes())?;
            out.flush()?;
            asked.insert(socket, now);
        }
        before = asked;
        let Some(interval) = args.interval.filter(|_| time < count) else {
            break;
        };
        tokio::time::sleep(interval).await;
    }
    Ok(ended)
}

/// Statistics since the last time, or since the start; with the control socket, if there are several.
fn report(before: Option<&Status>, now: &Status, socket: Option<&Path>, long: bool) -> String {
    let form = &Form {
        title: now.to_string(),
        socket,
        long,
    };
    match (before, now) {
        (Some(Status::Server(before)), Status::Server(now)) => server::since(before, now, form),
        (Some(Status::Gateway(before)), Status::Gateway(now)) => gateway::since(before, now, form),
        (_, Status::Server(now)) => server::since_start(now, form),
        (_, Status::Gateway(now)) => gateway::since_start(now, form),
    }
}

#[cfg(test)]
mod tests;
