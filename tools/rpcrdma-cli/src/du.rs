//! `rpcrdma du`: sums up the disk space of trees.

use crate::failure::Ended;
use crate::output::{self, Output};
use crate::session::{Session, SessionArgs};
use crate::show::{self, Units};
use anyhow::bail;
use clap::{ArgAction, Args};
use nfs_client::{NfsUrl, Node};
use nfs_copy::{Follow, Place, ServerWalk, Visit};
use nfs_proto::{FileType, Status};
use printing::json;
use serde::Serialize;
use std::collections::HashSet;
use std::io::{self, Write};

/// Files with several names that are remembered, so as to be counted once. Further ones are counted each
/// time.
const MAX_LINKED: usize = 1 << 20;

/// Show the disk space of directories
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  rpcrdma du -sh nfs://127.0.0.1/photos
  rpcrdma du -h -d 1 nfs://127.0.0.1/
  rpcrdma du -s --apparent-size --json nfs://127.0.0.1/a

As with du(1), sizes are in blocks of 1024 bytes by default, a file with several hard links is \
counted once, and symbolic links are not followed. Apparent sizes are the sizes of files and of \
the texts of symbolic links.

--json prints one object per line, with both sizes in bytes, and `entries`: the number of files \
and directories."
)]
pub(crate) struct DuArgs {
    /// nfs://HOST[:PORT]/PATH of directories or files
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Show only the sum of each argument
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,

    /// Show directories down to this depth; 0 is each argument
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,

    /// Also show files
    #[arg(short, long)]
    all: bool,

    /// Show the sum of all arguments
    #[arg(short = 'c', long)]
    total: bool,

    /// Print sizes in units of 1024, such as 1.5M
    #[arg(short = 'h', long, overrides_with_all = ["si", "kibibytes", "bytes"])]
    human_readable: bool,

    /// Print sizes in units of 1000, such as 1.5M
    #[arg(long, overrides_with_all = ["kibibytes", "bytes"])]
    si: bool,

    /// Print sizes in blocks of 1024 bytes, the default
    #[arg(short, overrides_with = "bytes")]
    kibibytes: bool,

    /// Print apparent sizes in bytes
    #[arg(short, long)]
    bytes: bool,

    /// Show sizes of files instead of disk space
    #[arg(long)]
    apparent_size: bool,

    /// Count a file once for each hard link
    #[arg(short = 'l', long)]
    count_links: bool,

    /// Skip directories on other file systems
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,

    #[command(flatten)]
    session: SessionArgs,
}

/// Space of a tree; sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    used: u64,
    apparent: u64,
    entries: u64,
}

impl Sum {
    fn of(node: &Node) -> Self {
        let attributes = &node.attributes;
        Self {
            used: attributes.used,
            apparent: match attributes.file_type {
                FileType::Regular | FileType::Symlink => attributes.size,
                // What these say is no size of data.
                FileType::Directory
                | FileType::Block
                | FileType::Character
                | FileType::Socket
                | FileType::Fifo => 0,
            },
            entries: 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.used = self.used.saturating_add(other.used);
        self.apparent = self.apparent.saturating_add(other.apparent);
        self.entries = self.entries.saturating_add(other.entries);
    }
}

/// A tree as a program reads it; sizes in bytes.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line {
    /// None for the sum of everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Disk space.
    used: u64,
    /// Sizes of files.
    apparent: u64,
    /// Files and directories, those counted before left out.
    entries: u64,
}

/// Runs the command.
pub(crate) async fn run(args: &DuArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut du = Du {
        args,
        out: io::BufWriter::new(output::stdout()),
        linked: HashSet::new(),
        total: Sum::default(),
        ended: Ended::Well,
    };
    for url in &args.urls {
        let counted = async {
            let place = session.place(url).await?;
            du.named(&place).await
        };
        let counted = counted.await;
        let flushed = du.out.flush().map_err(Into::into);
        du.ended.check(flushed)?;
        du.ended.check(counted)?;
    }
    if args.total {
        let printed = du.print(None, du.total);
        let printed = printed.and_then(|()| Ok(du.out.flush()?));
        du.ended.check(printed)?;
    }
    session.close().await;
    Ok(du.ended)
}

struct Du<'a> {
    args: &'a DuArgs,
    out: io::BufWriter<Output>,
    /// Files with several names that were counted: file system and number.
    linked: HashSet<(u64, u64)>,
    total: Sum,
    ended: Ended,
}

impl Du<'_> {
    /// Counts what the user named.
    async fn named(&mut self, place: &Place) -> anyhow::Result<()> {
        let Some(node) = place.find(Follow::No).await? else {
            bail!(place.fault("find", Status::NoEntry));
        };
        let Some(own) = self.count(&node) else {
            return Ok(());
        };
        let sum = match node.attributes.file_type {
            FileType::Directory => self.tree(place, &node, own).await?,
            _ => own,
        };
        self.total.add(sum);
        self.print(Some(place), sum)
    }

    /// The sum of a directory and all that is in it.
    async fn tree(&mut self, top: &Place, node: &Node, own: Sum) -> anyhow::Result<Sum> {
        let mut tree = match ServerWalk::new(top).await {
            Ok(tree) => tree,
            Err(error) => {
                self.check(Err(error.into()))?;
                return Ok(own);
            }
        };
        let depth = match self.args.summarize {
            true => 0,
            false => self.args.max_depth.unwrap_or(usize::MAX),
        };
        // Of each directory on the way; the first one is the top.
        let mut sums = vec![own];
        loop {
            match tree.next().await {
                Ok(Some(Visit::Enter(_, found)))
                    if self.args.one_file_system
                        && found.attributes.fsid != node.attributes.fsid =>
                {
                    tree.skip();
                }
                Ok(Some(Visit::Enter(_, found))) => sums.push(Sum::of(&found)),
                Ok(Some(Visit::Other(place, found))) => {
                    let Some(sum) = self.count(&found) else {
                        continue;
                    };
                    if self.args.all && sums.len() <= depth {
                        self.print(Some(&place), sum)?;
                    }
                    add_to_last(&mut sums, sum);
                }
                Ok(Some(Visit::Leave(place))) => {
                    let sum = sums.pop().unwrap_or_default();
                    if sums.len() <= depth {
                        self.print(Some(&place), sum)?;
                    }
                    add_to_last(&mut sums, sum);
                }
                Ok(None) => return Ok(sums.pop().unwrap_or_default()),
                Err(error) => self.check(Err(error.into()))?,
            }
        }
    }

    /// Space of a file; nothing if it was counted under another name.
    fn count(&mut self, node: &Node) -> Option<Sum> {
        let attributes = &node.attributes;
        let several = attributes.links > 1 && attributes.file_type != FileType::Directory;
        if several && !self.args.count_links {
            let id = (attributes.fsid, attributes.file_id.0);
            if self.linked.contains(&id) {
                return None;
            }
            if self.linked.len() < MAX_LINKED {
                self.linked.insert(id);
                if self.linked.len() == MAX_LINKED {
                    tracing::warn!("further files are counted once for each of their names");
                }
            }
        }
        Some(Sum::of(node))
    }

    /// Prints why something was not counted, behind what was printed before it.
    fn check(&mut self, part: anyhow::Result<()>) -> anyhow::Result<()> {
        self.out.flush()?;
        self.ended.check(part)
    }

    fn print(&mut self, place: Option<&Place>, sum: Sum) -> anyhow::Result<()> {
        if self.args.json {
            let Sum {
                used,
                apparent,
                entries,
            } = sum;
            let line = Line {
                url: place.map(|place| place.url.escaped()),
                used,
                apparent,
                entries,
            };
            return Ok(writeln!(self.out, "{}", json::line(&line)?)?);
        }
        let bytes = match self.args.apparent_size || self.args.bytes {
            true => sum.apparent,
            false => sum.used,
        };
        let size = match Units::wanted(self.args.human_readable, self.args.si) {
            Some(units) => show::size_in(bytes, units),
            None if self.args.bytes => bytes.to_string(),
            None => bytes.div_ceil(1024).to_string(),
        };
        let url = place.map(|place| place.url.to_string());
        let url = url.as_deref().unwrap_or("total");
        Ok(writeln!(self.out, "{size}\t{url}")?)
    }
}

fn add_to_last(sums: &mut [Sum], sum: Sum) {
    if let Some(last) = sums.last_mut() {
        last.add(sum);
    }
}
