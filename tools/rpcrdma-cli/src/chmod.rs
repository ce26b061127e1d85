//! `rpcrdma chmod`: changes permissions.

use crate::change::{ChangeArgs, ReportArgs, all_files, of_reference};
use crate::failure::{Ended, Usage};
use crate::in_flight::InFlight;
use crate::modes::{ModeChange, umask};
use crate::session::Session;
use crate::show;
use anyhow::bail;
use clap::Args;
use nfs_client::{NfsUrl, Node};
use nfs_copy::{Follow, Place, ServerWalk, Visit};
use nfs_proto::{FileType, SetAttributes, Status};

/// Change permissions
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  rpcrdma chmod 640 nfs://127.0.0.1/file
  rpcrdma chmod -R u=rwX,go=rX nfs://127.0.0.1/directory
  rpcrdma chmod -w nfs://127.0.0.1/file
  rpcrdma chmod --reference nfs://127.0.0.1/a \\
    nfs://127.0.0.1/b

A symbolic link on the command line is followed; others are left alone. Directories keep \
set-user-ID and set-group-ID unless MODE names them or has five octal digits."
)]
pub(crate) struct ChmodArgs {
    /// Octal digits, or changes such as u+x,go=rX; omitted with --reference
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: String,

    /// nfs://HOST[:PORT]/PATH of files and directories
    #[arg(value_name = "URL", required_unless_present = "reference")]
    urls: Vec<NfsUrl>,

    /// Use the mode of this file
    #[arg(long, value_name = "URL")]
    reference: Option<NfsUrl>,

    #[command(flatten)]
    change: ChangeArgs,
}

/// How to change modes, and what to say of it.
#[derive(Clone)]
struct Change {
    to: To,
    umask: u32,
    report: ReportArgs,
}

#[derive(Clone)]
enum To {
    Mode(ModeChange),
    /// That of another file.
    Same(u32),
}

/// Runs the command.
pub(crate) async fn run(args: &ChmodArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.change.session);
    let (to, urls) = args.parse(&mut session).await?;
    let change = Change {
        to,
        umask: umask(),
        report: args.change.report,
    };
    let mut all = InFlight::new();
    for url in &urls {
        let changed = async {
            let place = session.place(url).await?;
            change.named(place, args.change.recursive, &mut all).await
        };
        let changed = changed.await;
        all.check(changed)?;
    }
    all.settle().await?;
    session.close().await;
    Ok(all.ended())
}

impl ChmodArgs {
    /// The mode and the files: with --reference the first argument is a file.
    async fn parse(&self, session: &mut Session) -> anyhow::Result<(To, Vec<NfsUrl>)> {
        let Some(reference) = &self.reference else {
            let mode = self.mode.parse::<ModeChange>();
            let mode = mode.map_err(|error| Usage(format!("{:?}: {error}", self.mode)))?;
            return Ok((To::Mode(mode), self.urls.clone()));
        };
        let urls = all_files(&self.mode, &self.urls)?;
        let about = of_reference(session, reference).await?;
        Ok((To::Same(about.mode & 0o7777), urls))
    }
}

impl Change {
    /// Changes what the user named.
    async fn named(&self, place: Place, recursive: bool, all: &mut InFlight) -> anyhow::Result<()> {
        let Some(node) = place.find(Follow::Yes).await? else {
            bail!(place.fault("find", Status::NoEntry));
        };
        self.one(&place, &node, Follow::Yes).await?;
        if !recursive || node.attributes.file_type != FileType::Directory {
            return Ok(());
        }
        let mut tree = ServerWalk::new(&place).await?;
        loop {
            match tree.next().await {
                // Before what is in it is looked at: that may need the new permissions.
                Ok(Some(Visit::Enter(place, node))) => {
                    let changed = self.one(&place, &node, Follow::No).await;
                    all.check(changed)?;
                }
                Ok(Some(Visit::Other(_, node)))
                    if node.attributes.file_type == FileType::Symlink => {}
                Ok(Some(Visit::Other(place, node))) => {
                    let change = self.clone();
                    all.begin(async move { change.one(&place, &node, Follow::No).await })
                        .await?;
                }
                Ok(Some(Visit::Leave(..))) => {}
                Ok(None) => return Ok(()),
                Err(error) => all.check(Err(error.into()))?,
            }
        }
    }

    async fn one(&self, place: &Place, node: &Node, follow: Follow) -> anyhow::Result<()> {
        let before = node.attributes.mode & 0o7777;
        let directory = node.attributes.file_type == FileType::Directory;
        let mode = match &self.to {
            To::Mode(change) => change.apply(before, directory, self.umask),
            To::Same(mode) => *mode,
        };
        let attributes = SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        let set = place.set_attributes(node, follow, attributes).await;
        set.map_err(|error| error.while_doing("change the mode"))?;
        let text = |mode| format!("{mode:04o} ({})", show::permissions(mode));
        let (before, mode) = (text(before), text(mode));
        Ok(self.report.tell(place, &before, &mode)?)
    }
}
