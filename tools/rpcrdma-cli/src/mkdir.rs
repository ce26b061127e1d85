//! `rpcrdma mkdir`: makes directories.

use crate::failure::Ended;
use crate::modes::ModeChange;
use crate::output;
use crate::session::{Session, SessionArgs, umask_at};
use clap::Args;
use nfs_client::NfsUrl;
use nfs_copy::{Follow, Of, Place};
use nfs_proto::{FileType, SetAttributes};
use std::io::Write;

/// Make directories
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma mkdir nfs://127.0.0.1/new
  rpcrdma mkdir -p nfs://127.0.0.1/a/b/c
  rpcrdma mkdir -m 2770 nfs://127.0.0.1/shared")]
pub(crate) struct MkdirArgs {
    /// nfs://HOST[:PORT]/PATH of directories to make
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Also make missing parent directories; no error if the directory exists
    #[arg(short, long)]
    parents: bool,

    /// Permissions, as for chmod, instead of those that the umask leaves; not for parents
    #[arg(short, long, value_name = "MODE", allow_hyphen_values = true)]
    mode: Option<ModeChange>,

    /// Print each directory that is made
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &MkdirArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    for url in &args.urls {
        let made = async {
            let place = session.place(url).await?;
            match args.parents {
                true => with_parents(&place, args).await,
                false => one(&place, args, last_mode(args, umask_at(&place).await)).await,
            }
        };
        ended.check(made.await)?;
    }
    session.close().await;
    Ok(ended)
}

/// Permissions of a directory that the user named.
fn last_mode(args: &MkdirArgs, umask: u32) -> u32 {
    match &args.mode {
        Some(change) => change.apply(0o777, true, umask),
        None => 0o777 & !umask,
    }
}

/// Makes a directory, and those above it that are not there.
async fn with_parents(place: &Place, args: &MkdirArgs) -> anyhow::Result<()> {
    let mut way = vec![place.clone()];
    while let Some(above) = way.last().and_then(Place::parent)
        && above.name().is_some()
    {
        way.push(above);
    }
    let last = way.len() - 1;
    for (index, place) in way.iter().rev().enumerate() {
        let umask = umask_at(place).await;
        let mode = match index == last {
            true => last_mode(args, umask),
            // Its owner must be able to put the next one in.
            false => 0o777 & !umask | 0o300,
        };
        let Err(error) = one(place, args, mode).await else {
            continue;
        };
        // A directory that is there is as good.
        match place.find(Follow::Yes).await {
            Ok(Some(node)) if node.attributes.file_type == FileType::Directory => {}
            _ => return Err(error),
        }
    }
    Ok(())
}

async fn one(place: &Place, args: &MkdirArgs, mode: u32) -> anyhow::Result<()> {
    let attributes = SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    place
        .export
        .make_dir(&place.path, attributes)
        .await
        .of(place)?;
    // Set-user-ID, set-group-ID and sticky are not for mkdir(2), which servers call.
    if mode & 0o7000 != 0 {
        place
            .export
            .set_attributes(&place.path, attributes)
            .await
            .of(place)?;
    }
    if args.verbose {
        writeln!(output::stdout(), "made {}", place.url)?;
    }
    Ok(())
}
