//! `rpcrdma chown`: changes owners and groups.

use crate::change::{ChangeArgs, ReportArgs, all_files, of_reference};
use crate::failure::Ended;
use crate::in_flight::InFlight;
use crate::owners::parse_owner;
use crate::session::Session;
use anyhow::bail;
use clap::Args;
use nfs_client::{NfsUrl, Node};
use nfs_copy::{Follow, Place, ServerWalk, Visit};
use nfs_proto::{FileType, SetAttributes, Status};

/// Change owners and groups
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  rpcrdma chown alice nfs://127.0.0.1/file
  rpcrdma chown -R alice:staff nfs://127.0.0.1/directory
  rpcrdma chown :1000 nfs://127.0.0.1/file
  rpcrdma chown --reference nfs://127.0.0.1/a \\
    nfs://127.0.0.1/b

Names are those of this machine; the server receives numbers. A symbolic link on the command \
line is followed, unless -h or -R is given. Only root can give files away, and only if the \
server does not squash root."
)]
pub(crate) struct ChownArgs {
    /// USER, USER:GROUP, USER: (with the user's login group) or :GROUP, by name or number; omitted
    /// with --reference
    #[arg(value_name = "OWNER")]
    owner: String,

    /// nfs://HOST[:PORT]/PATH of files and directories
    #[arg(value_name = "URL", required_unless_present = "reference")]
    urls: Vec<NfsUrl>,

    /// Change symbolic links themselves
    #[arg(short = 'h', long)]
    no_dereference: bool,

    /// Use the owner and group of this file
    #[arg(long, value_name = "URL")]
    reference: Option<NfsUrl>,

    #[command(flatten)]
    change: ChangeArgs,
}

/// The new owner and group, as far as they change, and what to say of it.
#[derive(Clone, Copy)]
struct Change {
    uid: Option<u32>,
    gid: Option<u32>,
    report: ReportArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &ChownArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.change.session);
    let ((uid, gid), urls) = args.parse(&mut session).await?;
    let change = Change {
        uid,
        gid,
        report: args.change.report,
    };
    let mut all = InFlight::new();
    for url in &urls {
        let changed = async {
            let place = session.place(url).await?;
            change.named(place, args, &mut all).await
        };
        let changed = changed.await;
        all.check(changed)?;
    }
    all.settle().await?;
    session.close().await;
    Ok(all.ended())
}

/// Owner and group, and files.
type Parsed = ((Option<u32>, Option<u32>), Vec<NfsUrl>);

impl ChownArgs {
    /// The owner and the files: with --reference the first argument is a file.
    async fn parse(&self, session: &mut Session) -> anyhow::Result<Parsed> {
        let Some(reference) = &self.reference else {
            return Ok((parse_owner(&self.owner)?, self.urls.clone()));
        };
        let urls = all_files(&self.owner, &self.urls)?;
        let about = of_reference(session, reference).await?;
        let owner = (Some(about.uid), Some(about.gid));
        Ok((owner, urls))
    }
}

impl Change {
    /// Changes what the user named.
    async fn named(self, place: Place, args: &ChownArgs, all: &mut InFlight) -> anyhow::Result<()> {
        let follow = match args.no_dereference || args.change.recursive {
            true => Follow::No,
            false => Follow::Yes,
        };
        let Some(node) = place.find(follow).await? else {
            bail!(place.fault("find", Status::NoEntry));
        };
        self.one(&place, &node, follow).await?;
        if !args.change.recursive || node.attributes.file_type != FileType::Directory {
            return Ok(());
        }
        let mut tree = ServerWalk::new(&place).await?;
        loop {
            match tree.next().await {
                Ok(Some(Visit::Enter(place, node) | Visit::Other(place, node))) => {
                    all.begin(async move { self.one(&place, &node, Follow::No).await })
                        .await?;
                }
                Ok(Some(Visit::Leave(..))) => {}
                Ok(None) => return Ok(()),
                Err(error) => all.check(Err(error.into()))?,
            }
        }
    }

    async fn one(self, place: &Place, node: &Node, follow: Follow) -> anyhow::Result<()> {
        let attributes = SetAttributes {
            uid: self.uid,
            gid: self.gid,
            ..SetAttributes::default()
        };
        let set = place.set_attributes(node, follow, attributes).await;
        set.map_err(|error| error.while_doing("change the owner"))?;
        let before = (node.attributes.uid, node.attributes.gid);
        let now = (self.uid.unwrap_or(before.0), self.gid.unwrap_or(before.1));
        let text = |(uid, gid): (u32, u32)| format!("{uid}:{gid}");
        let (before, now) = (text(before), text(now));
        Ok(self.report.tell(place, &before, &now)?)
    }
}
