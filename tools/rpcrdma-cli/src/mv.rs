//! `rpcrdma mv`: renames files.

use crate::failure::{Ended, Usage};
use crate::output;
use crate::session::{Session, SessionArgs};
use anyhow::bail;
use clap::Args;
use nfs_client::NfsUrl;
use nfs_copy::{Follow, Of};
use nfs_proto::FileType;
use std::io::Write;

/// Rename files and directories, or move them into a directory
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma mv nfs://127.0.0.1/old nfs://127.0.0.1/new
  rpcrdma mv nfs://127.0.0.1/a nfs://127.0.0.1/directory/

Without -n, an existing file of the new name is replaced. All URLs are in one export of one \
server. -n looks the new name up first, because NFSv3 has no call that does both.")]
pub(crate) struct MvArgs {
    /// nfs://HOST[:PORT]/PATH of the sources, then of the destination
    #[arg(value_name = "URL", required = true, num_args = 2..)]
    urls: Vec<NfsUrl>,

    /// Do not overwrite existing files
    #[arg(short, long, overrides_with = "force")]
    no_clobber: bool,

    /// Overwrite existing files, the default; cancels -n
    #[arg(short, long)]
    force: bool,

    /// Treat the last URL as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// Print each file that is renamed
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &MvArgs) -> anyhow::Result<Ended> {
    let Some((to, sources)) = args.urls.split_last() else {
        bail!(Usage("there is nothing to move".to_owned()));
    };
    let several = sources.len() > 1;
    if several && args.no_target_directory {
        bail!(Usage("-T takes one source".to_owned()));
    }
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    for from in sources {
        let moved = one(&mut session, from, to, several, args).await;
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
    args: &MvArgs,
) -> anyhow::Result<()> {
    let (from, mut to) = session.places(from, to).await?;
    let Some(name) = from.name() else {
        bail!(
            "{}: it is the root of an export, which cannot be moved",
            from.url
        );
    };
    let node = from.export.lstat(&from.path).await.of(&from)?;
    if !args.no_target_directory && to.is_directory().await? {
        to = to.join(name);
    } else if several
        || to.url.path.ends_with(b"/") && node.attributes.file_type != FileType::Directory
    {
        bail!("{}: it is not a directory", to.url);
    }
    if let Some(there) = to.find(Follow::No).await? {
        if args.no_clobber {
            return Ok(());
        }
        if from.is_same(&node, &to, &there) {
            // Renaming a file to another name of it does nothing (RFC 1813 §3.3.14).
            bail!("{} and {} are the same file", from.url, to.url);
        }
    }
    from.export.rename(&from.path, &to.path).await.of(&from)?;
    if args.verbose {
        writeln!(output::stdout(), "renamed {} to {}", from.url, to.url)?;
    }
    Ok(())
}
