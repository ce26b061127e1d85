//! `rpcrdma rm`: removes files and trees.

use crate::failure::Ended;
use crate::session::{Session, SessionArgs};
use anyhow::bail;
use clap::Args;
use nfs_client::NfsUrl;
use nfs_proto::{FileType, Status};

/// Remove files, and with -r directories with all that is in them
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma rm nfs://127.0.0.1/old.txt
  rpcrdma rm -r nfs://127.0.0.1/old-directory

Symbolic links are removed, never followed. What cannot be removed is said, and the rest removed.")]
pub(crate) struct RmArgs {
    /// nfs://HOST[:PORT]/PATH of what to remove
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Remove directories too, with all that is in them
    #[arg(short, long)]
    recursive: bool,

    /// No error if it is not there
    #[arg(short, long)]
    force: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &RmArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    for url in &args.urls {
        let removed = one(&mut session, url, args, &mut ended).await;
        ended.check(removed)?;
    }
    session.close().await;
    Ok(ended)
}

async fn one(
    session: &mut Session,
    url: &NfsUrl,
    args: &RmArgs,
    ended: &mut Ended,
) -> anyhow::Result<()> {
    let place = session.place(url).await?;
    if place.name().is_none() {
        bail!("{url} is the root of an export, which cannot be removed");
    }
    let removed = if args.recursive {
        let failed = |error: nfs_client::Error| ended.failed(&error.into());
        place.export.remove_all(&place.path, failed).await
    } else {
        match place.export.lstat(&place.path).await {
            Ok(node) if node.attributes.file_type == FileType::Directory => {
                bail!("{url} is a directory: remove it with -r");
            }
            Ok(_) => place.export.remove(&place.path).await,
            Err(error) => Err(error),
        }
    };
    match removed {
        Err(error) if args.force && error.status() == Some(Status::NoEntry) => Ok(()),
        removed => Ok(removed?),
    }
}
