//! `rpcrdma ln`: makes hard and symbolic links.

use crate::failure::{Ended, Usage};
use crate::output;
use crate::session::{NOT_UTF8, Session, SessionArgs};
use anyhow::bail;
use clap::Args;
use nfs_client::{NfsUrl, printable, temporary_name};
use nfs_copy::{Follow, Of, Place};
use nfs_proto::{FileType, Status};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// Make hard links, or with -s symbolic links
#[derive(Args, Debug)]
#[command(override_usage = "rpcrdma ln [OPTIONS] <TARGET>... <URL>")]
#[command(after_help = "Examples:
  rpcrdma ln nfs://127.0.0.1/file nfs://127.0.0.1/name
  rpcrdma ln -s ../some/where nfs://127.0.0.1/dir/link
  rpcrdma ln -sfn release-2 nfs://127.0.0.1/current

The text of a symbolic link is stored as given; the client that follows the link interprets it. \
With -f the name always exists: as the old file or as the new one.")]
pub(crate) struct LnArgs {
    /// URLs of files, or with -s texts of links; then the URL of the new name, or of the directory
    /// for the links
    #[arg(value_name = "TARGET", required = true, num_args = 2..)]
    paths: Vec<OsString>,

    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,

    /// Replace existing files, but not directories
    #[arg(short, long)]
    force: bool,

    /// Treat URL as the new name, even if it is a symbolic link to a directory
    #[arg(short, long)]
    no_dereference: bool,

    /// Treat URL as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// Print each link that is made
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &LnArgs) -> anyhow::Result<Ended> {
    let Some((link, targets)) = args.paths.split_last() else {
        bail!(Usage("there is nothing to link".to_owned()));
    };
    let link = parse_url(link)?;
    let several = targets.len() > 1;
    if several && args.no_target_directory {
        bail!(Usage("-T takes one target".to_owned()));
    }
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    for target in targets {
        let linked = one(&mut session, target, &link, several, args).await;
        ended.check(linked)?;
    }
    session.close().await;
    Ok(ended)
}

fn parse_url(text: &OsStr) -> Result<NfsUrl, Usage> {
    let Some(url) = text.to_str() else {
        let text = printable(text.as_bytes());
        return Err(Usage(format!("{text}: {NOT_UTF8}")));
    };
    url.parse()
        .map_err(|error| Usage(format!("{url}: {error} (symbolic links are made with -s)")))
}

/// Target of a link.
enum Target<'a> {
    /// The text of a symbolic link.
    Text(&'a [u8]),
    /// A file.
    File(Place),
}

async fn one(
    session: &mut Session,
    target: &OsStr,
    link: &NfsUrl,
    several: bool,
    args: &LnArgs,
) -> anyhow::Result<()> {
    let (target, link) = match args.symbolic {
        true => {
            let text = target.as_bytes();
            let last = text.rsplit(|byte| *byte == b'/').find(|n| !n.is_empty());
            let link = session.place(link).await?;
            (Target::Text(text), within(link, last, several, args).await?)
        }
        false => {
            let (file, link) = session.places(&parse_url(target)?, link).await?;
            let link = within(link, file.name(), several, args).await?;
            (Target::File(file), link)
        }
    };
    match target.make(&link).await {
        Err(error) if args.force && is_taken(&error) => target.replace(&link).await?,
        made => made?,
    }
    if args.verbose {
        let target = match &target {
            Target::Text(text) => printable(text),
            Target::File(file) => file.url.to_string(),
        };
        writeln!(output::stdout(), "{} is a link to {target}", link.url)?;
    }
    Ok(())
}

fn is_taken(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<nfs_copy::FileError>();
    error.is_some_and(|error| error.status() == Some(Status::Exist))
}

impl Target<'_> {
    async fn make(&self, link: &Place) -> anyhow::Result<()> {
        match self {
            Self::Text(text) => link.export.symlink(text, &link.path).await.of(link)?,
            Self::File(file) => link.export.link(&file.path, &link.path).await.of(link)?,
        }
        Ok(())
    }

    /// Makes the link under a temporary name, and gives it the name of something else.
    async fn replace(&self, link: &Place) -> anyhow::Result<()> {
        let there = link.find(Follow::No).await?;
        if there.is_some_and(|node| node.attributes.file_type == FileType::Directory) {
            bail!("{}: it is a directory, which is not replaced", link.url);
        }
        if let (Self::File(file), Some(there)) = (self, there) {
            let node = file.export.lstat(&file.path).await.of(file)?;
            if file.is_same(&node, link, &there) {
                bail!("{} and {} are the same file", file.url, link.url);
            }
        }
        let Some(name) = link.name() else {
            bail!(link.fault("link", Status::Exist));
        };
        let number = RandomState::new().hash_one(name);
        let temporary = temporary_name(name, number);
        let Some(parent) = link.parent() else {
            bail!(link.fault("link", Status::Exist));
        };
        let temporary = parent.join(&temporary);
        self.make(&temporary).await?;
        let renamed = link.export.rename(&temporary.path, &link.path).await;
        if renamed.is_err() {
            // The error to be told is that of renaming.
            let _ = link.export.remove(&temporary.path).await;
        }
        Ok(renamed.of(link)?)
    }
}

/// The new name: in a directory it is that of the target.
async fn within(
    link: Place,
    name: Option<&[u8]>,
    several: bool,
    args: &LnArgs,
) -> anyhow::Result<Place> {
    let follow = match args.no_dereference {
        true => Follow::No,
        false => Follow::Yes,
    };
    let directory = match args.no_target_directory {
        true => false,
        false => {
            let found = link.find(follow).await?;
            found.is_some_and(|node| node.attributes.file_type == FileType::Directory)
        }
    };
    if !directory && several {
        bail!("{}: it is not a directory", link.url);
    }
    if !directory {
        return Ok(link);
    }
    match name {
        Some(name) if !matches!(name, b"." | b"..") => Ok(link.join(name)),
        Some(_) | None => bail!(
            "{}: it is a directory, and {} has no name of its own for the link in it",
            link.url,
            printable(name.unwrap_or(b"the target"))
        ),
    }
}
