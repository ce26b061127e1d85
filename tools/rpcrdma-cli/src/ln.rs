//! `rpcrdma ln`: makes hard and symbolic links.

use crate::cli::NOT_UTF8;
use crate::failure::{Ended, Usage};
use crate::session::{Place, Session, SessionArgs};
use anyhow::bail;
use clap::Args;
use nfs_client::{NfsUrl, printable};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Give a file a further name, or with -s make a symbolic link
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma ln nfs://127.0.0.1/file nfs://127.0.0.1/other-name
  rpcrdma ln -s ../some/where nfs://127.0.0.1/directory/link

The text of a symbolic link is stored as it is: whoever follows the link makes sense of it.")]
pub(crate) struct LnArgs {
    /// The URL of the file; with -s the text of the link
    target: OsString,

    /// nfs://HOST[:PORT]/PATH of the new name; if it is a directory, the new name is in it
    #[arg(value_name = "URL")]
    link: NfsUrl,

    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &LnArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    if args.symbolic {
        let link = session.place(&args.link).await?;
        let target = args.target.as_bytes();
        let last = target.rsplit(|byte| *byte == b'/').find(|n| !n.is_empty());
        let link = within(link, last).await?;
        link.export.symlink(target, &link.path).await?;
    } else {
        let Some(target) = args.target.to_str() else {
            bail!(Usage(format!(
                "{}: {NOT_UTF8}",
                printable(args.target.as_bytes())
            )));
        };
        let target: NfsUrl = target.parse().map_err(|error| {
            Usage(format!(
                "{target}: {error} (symbolic links are made with -s)"
            ))
        })?;
        let (file, link) = session.places(&target, &args.link).await?;
        let link = within(link, file.name()).await?;
        file.export.link(&file.path, &link.path).await?;
    }
    session.close().await;
    Ok(Ended::Well)
}

/// The new name: in a directory it is that of the target.
async fn within(link: Place, name: Option<&[u8]>) -> anyhow::Result<Place> {
    if !link.is_directory().await? {
        return Ok(link);
    }
    match name {
        Some(name) if !matches!(name, b"." | b"..") => Ok(link.join(name)),
        Some(_) | None => bail!(
            "{} is a directory, and {} has no name of its own for the link in it",
            link.url,
            printable(name.unwrap_or(b"the target"))
        ),
    }
}
