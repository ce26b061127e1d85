//! `rpcrdma clients`: shows the connections of a running server.

use crate::control::{ClientStatus, ControlArgs, Request};
use crate::failure::Ended;
use crate::json;
use crate::units;
use clap::Args;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

/// Show the connections of a server on this machine
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma clients
  rpcrdma clients --json --socket /run/rpcrdma/control-0.0.0.0:20049.sock

Chunks are those that were read from and written to the client by RDMA. `again` counts calls that
came again and were not executed twice. Only the user who runs the server, and root, may ask it.")]
pub(crate) struct ClientsArgs {
    /// One JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    control: ControlArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &ClientsArgs) -> anyhow::Result<Ended> {
    let (_, clients) = args
        .control
        .ask::<Vec<ClientStatus>>(Request::Clients)
        .await?;
    let text = match args.json {
        true => {
            let mut text = String::new();
            for client in &clients {
                text += &json::line(client)?;
                text.push('\n');
            }
            text
        }
        false => table(&clients),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(Ended::Well)
}

fn table(clients: &[ClientStatus]) -> String {
    let mut text = format!(
        "{:<24} {:<8} {:>2} {:>8} {:>8} {:>10} {:>5} {:>5} {:>9} {:>9} {:>11} {:>11} {:>11} {:>11}\n",
        "client",
        "state",
        "v",
        "age",
        "credits",
        "calls",
        "jobs",
        "again",
        "chunks in",
        "and out",
        "RDMA in",
        "and out",
        "inline",
        "and out"
    );
    for client in clients {
        let version = client.version.map_or("-".to_owned(), |v| v.to_string());
        let age = Duration::try_from_secs_f64(client.age_seconds).unwrap_or_default();
        // A string takes all that is written.
        let _ = writeln!(
            text,
            "{:<24} {:<8} {version:>2} {:>8} {:>8} {:>10} {:>5} {:>5} {:>9} {:>9} {:>11} {:>11} {:>11} \
             {:>11}",
            client.address,
            client.state,
            units::duration(age),
            format!("{}/{}", client.credits_in_use, client.credits_granted),
            client.calls,
            client.jobs_in_flight,
            client.duplicate_request_hits,
            client.read_chunks,
            client.write_chunks + client.reply_chunks,
            units::size(client.rdma_bytes_in),
            units::size(client.rdma_bytes_out),
            units::size(client.inline_bytes_in),
            units::size(client.inline_bytes_out)
        );
    }
    text
}
