//! `rpcrdma cp`: copies files from a server to a server, through this machine.

use crate::copying::{Copying, Prints, When, Words};
use crate::failure::{Ended, Usage};
use crate::modes::umask;
use crate::session::{Session, SessionArgs};
use anyhow::bail;
use clap::Args;
use nfs_client::{NfsUrl, UrlError};
use nfs_copy::Options;

/// Copy files on a server, or from one server to another
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma cp nfs://127.0.0.1/file nfs://127.0.0.1/copy
  rpcrdma cp -rp nfs://127.0.0.1/photos nfs://127.0.0.1/b/
  rpcrdma cp -n nfs://127.0.0.1/a nfs://127.0.0.1/dir/

All data passes through this machine, because NFSv3 has no call that copies. The URLs may be of \
different exports or servers. A file gets its name when it is complete, replacing a file of that \
name, whose other hard links keep the old content. Symbolic links on the command line are \
followed only without -r.")]
pub(crate) struct CpArgs {
    /// nfs://HOST[:PORT]/PATH of the sources, then of the destination
    #[arg(value_name = "URL", required = true, num_args = 2.., value_parser = remote)]
    urls: Vec<NfsUrl>,

    /// Copy directories recursively; symbolic links and special files are copied as such
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Preserve mode, times, and, if permitted, owner and group
    #[arg(short)]
    preserve: bool,

    /// Same as -rp
    #[arg(short, long)]
    archive: bool,

    /// Do not overwrite existing files
    #[arg(short, long, overrides_with = "force")]
    no_clobber: bool,

    /// Overwrite existing files, the default; cancels -n
    #[arg(short, long)]
    force: bool,

    /// Overwrite a file only if the source was modified later
    #[arg(short, long, conflicts_with = "no_clobber")]
    update: bool,

    /// Treat the last URL as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// When copies get holes (ranges of zeros that take no space)
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    sparse: When,

    /// Print each file that is copied
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Parses a URL. Who knows cp(1) may give the path of a local file.
fn remote(text: &str) -> Result<NfsUrl, String> {
    text.parse().map_err(|error: UrlError| match error {
        UrlError::Scheme => format!("{error} (`rpcrdma get` and `rpcrdma put` copy local files)"),
        error => error.to_string(),
    })
}

/// Runs the command.
pub(crate) async fn run(args: &CpArgs) -> anyhow::Result<Ended> {
    let Some((to, sources)) = args.urls.split_last() else {
        bail!(Usage("there is nothing to copy".to_owned()));
    };
    if args.no_target_directory && sources.len() > 1 {
        bail!(Usage("-T takes one source".to_owned()));
    }
    let options = Options {
        recursive: args.recursive || args.archive,
        preserves: args.preserve || args.archive,
        keeps_existing: args.no_clobber,
        updates: args.update,
        sparse: args.sparse.into(),
        umask: umask(),
        ..Options::default()
    };
    let copying = Copying::begin(Prints {
        progress: false,
        summary: args.verbose,
        lines: args.verbose,
        to_stderr: false,
        words: Words::Cp,
    })?;
    let mut session = Session::new(&args.session);
    let urls = (sources, to, args.no_target_directory);
    let copied = nfs_copy::cp(options, copying.control(), &mut session, urls).await;
    let ended = copying.end(copied).await?;
    session.close().await;
    Ok(ended)
}
