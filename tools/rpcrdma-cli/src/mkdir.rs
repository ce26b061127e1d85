//! `rpcrdma mkdir`: makes directories.

use crate::failure::Ended;
use crate::session::{Session, SessionArgs};
use clap::Args;
use nfs_client::NfsUrl;
use nfs_proto::SetAttributes;
use rustix::fs::Mode;

/// Make directories
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma mkdir nfs://127.0.0.1/new
  rpcrdma mkdir -p nfs://127.0.0.1/a/b/c")]
pub(crate) struct MkdirArgs {
    /// nfs://HOST[:PORT]/PATH of directories to make
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Make the directories above too; no error if it is there already
    #[arg(short, long)]
    parents: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &MkdirArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    let attributes = new_directory();
    for url in &args.urls {
        let made = async {
            let place = session.place(url).await?;
            if args.parents {
                place.export.make_dirs(&place.path, attributes).await?;
            } else {
                place.export.make_dir(&place.path, attributes).await?;
            }
            Ok(())
        };
        ended.check(made.await)?;
    }
    session.close().await;
    Ok(ended)
}

/// What a directory gets that is made as `mkdir` does.
fn new_directory() -> SetAttributes {
    // Asking for the umask means setting it. Nobody makes files meanwhile.
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    SetAttributes {
        mode: Some(0o777 & !umask.as_raw_mode()),
        ..SetAttributes::default()
    }
}
