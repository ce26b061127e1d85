//! `rpcrdma stat`: shows all attributes of files.

use crate::failure::Ended;
use crate::ls::Line;
use crate::output;
use crate::owners::Owners;
use crate::session::{Session, SessionArgs};
use crate::show::{self, Units};
use crate::times::Clock;
use clap::Args;
use nfs_client::{NfsUrl, printable};
use nfs_copy::{Of, Place};
use nfs_proto::{Attributes, FileType};
use printing::json;
use std::fmt::Write as _;
use std::io::Write as _;

/// Show the attributes of files
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma stat nfs://127.0.0.1/file
  rpcrdma stat -L --json nfs://127.0.0.1/link

Owners are names of this machine, and times are in the time zone TZ. --json prints one object \
per line, with times in UTC; `url` identifies the file, `path` is text and can be inexact.")]
pub(crate) struct StatArgs {
    /// nfs://HOST[:PORT]/PATH of files
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &StatArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    let mut owners = Owners::new(false);
    for url in &args.urls {
        let shown = one(&mut session, url, args, &mut owners).await;
        ended.check(shown)?;
    }
    session.close().await;
    Ok(ended)
}

async fn one(
    session: &mut Session,
    url: &NfsUrl,
    args: &StatArgs,
    owners: &mut Owners,
) -> anyhow::Result<()> {
    let place = session.place(url).await?;
    let node = if args.dereference {
        place.export.stat(&place.path).await.of(&place)?
    } else {
        place.export.lstat(&place.path).await.of(&place)?
    };
    let target = match node.attributes.file_type {
        FileType::Symlink => {
            let target = place.export.nfs().read_link(node.handle).await;
            Some(target.map_err(|fault| place.fault("read symbolic link", fault))?)
        }
        _ => None,
    };
    let attributes = &node.attributes;
    owners.learn([(attributes.uid, attributes.gid)]).await;
    let text = if args.json {
        let line = Line::new(&place, attributes, target.as_deref(), owners);
        json::line(&line)? + "\n"
    } else {
        text(&place, attributes, target.as_deref(), owners)
    };
    Ok(output::stdout().write_all(text.as_bytes())?)
}

fn text(place: &Place, attributes: &Attributes, target: Option<&[u8]>, owners: &Owners) -> String {
    let clock = Clock::system();
    let mut text = format!("{}\n", place.url);
    let mut row = |name: &str, value: String| {
        writeln!(text, "  {name:<8} {value}").expect("a string takes what is written");
    };
    row("type", show::file_type(attributes.file_type).to_owned());
    if let Some(target) = target {
        row("target", printable(target));
    }
    row(
        "mode",
        format!(
            "{:04o} ({})",
            attributes.mode & 0o7777,
            show::mode(attributes)
        ),
    );
    let names = format!(
        "{}:{} ({}:{})",
        attributes.uid,
        attributes.gid,
        owners.user(attributes.uid),
        owners.group(attributes.gid)
    );
    row("owner", names);
    let size = |bytes| format!("{bytes} ({})", show::size_in(bytes, Units::Binary));
    row("size", size(attributes.size));
    row("used", size(attributes.used));
    row("links", attributes.links.to_string());
    row(
        "file",
        format!(
            "{} in file system {:#x}",
            attributes.file_id.0, attributes.fsid
        ),
    );
    row("modified", clock.in_full(attributes.mtime));
    row("changed", clock.in_full(attributes.ctime));
    row("accessed", clock.in_full(attributes.atime));
    text
}
