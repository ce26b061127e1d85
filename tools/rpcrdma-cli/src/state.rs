//! `rpcrdma state`: the state of NFSv4 clients of a running server.

use crate::control_args::OneControlArgs;
use crate::failure::Ended;
use crate::output;
use anyhow::bail;
use clap::Args;
use rpcrdma_daemon::control::Request;
use rpcrdma_daemon::control::asking;
use rpcrdma_daemon::control::nfs4::{StateAction, StateStatus};
use std::io::Write;

/// Show the state of a server's NFSv4 clients, or end some of it
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma state
      grace period, clients, opens and locks in numbers
  rpcrdma state --expire 68d2a7f03c1be594
      end a client, whose id `rpcrdma clients` shows
  rpcrdma state --release /data
      revoke all opens and locks in an export
  rpcrdma state --end-grace
      wait no longer for clients of before a restart

A program whose open or lock is revoked gets an error. With --release the files are closed, so that the file system can be \
unmounted; clients may open them again as long as the export is there. A reload that removes an export does the same.

Only the user who runs the server, and root, can use it.")]
pub(crate) struct StateArgs {
    /// End a client with all it holds; named by its id or its name
    #[arg(long, value_name = "CLIENT", group = "act")]
    expire: Option<String>,

    /// Revoke all opens and locks in an export
    #[arg(long, value_name = "EXPORT", group = "act")]
    release: Option<String>,

    /// End the grace period: clients that have not come back lose their locks
    #[arg(long, group = "act")]
    end_grace: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    control: OneControlArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &StateArgs) -> anyhow::Result<Ended> {
    let expire = args.expire.clone().map(StateAction::Expire);
    let release = args.release.clone().map(StateAction::Release);
    let end_grace = args.end_grace.then_some(StateAction::EndGrace);
    let action = expire.or(release).or(end_grace);
    let socket = args.control.socket().await?;
    let (line, state) = asking::ask::<StateStatus>(&socket, Request::State { action }).await?;
    if let Some(error) = &state.error {
        bail!("{error}");
    }
    let mut out = output::stdout();
    match (&state.done, args.json) {
        (_, true) => writeln!(out, "{line}")?,
        (Some(done), false) => writeln!(out, "{done}")?,
        (None, false) => write!(out, "{}", state.describe())?,
    }
    Ok(Ended::Well)
}
