//! `rpcrdma cat`: prints files.

use crate::failure::Ended;
use crate::output;
use crate::session::{Session, SessionArgs};
use clap::Args;
use nfs_client::NfsUrl;
use nfs_copy::Of;
use std::io::Write;

/// Write files to standard output
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma cat nfs://127.0.0.1/notes.txt
  rpcrdma cat nfs://127.0.0.1/1 nfs://127.0.0.1/2 > whole")]
pub(crate) struct CatArgs {
    /// nfs://HOST[:PORT]/PATH of files
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &CatArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    for url in &args.urls {
        let shown = one(&mut session, url).await;
        ended.check(shown)?;
    }
    session.close().await;
    Ok(ended)
}

async fn one(session: &mut Session, url: &NfsUrl) -> anyhow::Result<()> {
    let place = session.place(url).await?;
    let mut stream = place.export.read(&place.path).await.of(&place)?;
    let mut out = output::stdout();
    while let Some(pieces) = stream.next().await.of(&place)? {
        for piece in &pieces {
            out.write_all(piece)?;
        }
    }
    Ok(out.flush()?)
}
