//! `rpcrdma rmdir`: removes empty directories.

use crate::failure::Ended;
use crate::output;
use crate::session::{Session, SessionArgs};
use anyhow::bail;
use clap::Args;
use nfs_client::NfsUrl;
use nfs_copy::Of;
use nfs_proto::Status;
use std::io::Write;

/// Remove empty directories
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma rmdir nfs://127.0.0.1/empty
  rpcrdma rmdir -p nfs://127.0.0.1/a/b/c
      c, then b, then a")]
pub(crate) struct RmdirArgs {
    /// nfs://HOST[:PORT]/PATH of directories
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Also remove the parent directories, up to the root of the export
    #[arg(short, long)]
    parents: bool,

    /// No error if a directory is not empty
    #[arg(long)]
    ignore_fail_on_non_empty: bool,

    /// Print each directory that is removed
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &RmdirArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    for url in &args.urls {
        let removed = one(&mut session, url, args).await;
        ended.check(removed)?;
    }
    session.close().await;
    Ok(ended)
}

async fn one(session: &mut Session, url: &NfsUrl, args: &RmdirArgs) -> anyhow::Result<()> {
    let mut place = session.place(url).await?;
    if place.name().is_none() {
        bail!("{url}: it is the root of an export, which cannot be removed");
    }
    loop {
        match place.export.remove_dir(&place.path).await.of(&place) {
            Err(error)
                if args.ignore_fail_on_non_empty && error.status() == Some(Status::NotEmpty) =>
            {
                return Ok(());
            }
            removed => removed?,
        }
        if args.verbose {
            writeln!(output::stdout(), "removed {}", place.url)?;
        }
        match place.parent() {
            Some(parent) if args.parents && parent.name().is_some() => place = parent,
            _ => return Ok(()),
        }
    }
}
