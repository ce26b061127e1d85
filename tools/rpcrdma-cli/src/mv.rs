//! `rpcrdma mv`: renames files.

use crate::failure::{Ended, Usage};
use crate::session::{Session, SessionArgs};
use anyhow::bail;
use clap::Args;
use nfs_client::NfsUrl;

/// Rename files and directories, or move them into a directory
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma mv nfs://127.0.0.1/old nfs://127.0.0.1/new
  rpcrdma mv nfs://127.0.0.1/a nfs://127.0.0.1/b nfs://127.0.0.1/directory/

What has the new name is replaced. Everything stays in one export of one server.")]
pub(crate) struct MvArgs {
    /// nfs://HOST[:PORT]/PATH of what to move, and where to
    #[arg(value_name = "URL", required = true, num_args = 2..)]
    urls: Vec<NfsUrl>,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &MvArgs) -> anyhow::Result<Ended> {
    let Some((to, sources)) = args.urls.split_last() else {
        bail!(Usage("there is nothing to move".to_owned()));
    };
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    for from in sources {
        let moved = one(&mut session, from, to, sources.len() > 1).await;
        ended.check(moved)?;
    }
    session.close().await;
    Ok(ended)
}

async fn one(
    session: &mut Session,
    from: &NfsUrl,
    to: &NfsUrl,
    several: bool,
) -> anyhow::Result<()> {
    let (from, mut to) = session.places(from, to).await?;
    let Some(name) = from.name() else {
        bail!(
            "{} is the root of an export, which cannot be moved",
            from.url
        );
    };
    if to.is_directory().await? {
        to = to.join(name);
    } else if several || to.url.path.ends_with(b"/") {
        bail!("{} is not a directory", to.url);
    }
    Ok(from.export.rename(&from.path, &to.path).await?)
}
