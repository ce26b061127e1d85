//! `rpcrdma rm`: removes files and trees.

use crate::failure::{Ended, is_closed_pipe};
use crate::output;
use crate::session::{Session, SessionArgs};
use anyhow::{anyhow, bail};
use clap::Args;
use nfs_client::{NfsUrl, Node, Removal};
use nfs_copy::{FileError, Follow, Of, Place};
use nfs_proto::{FileType, Status};
use std::io::{self, Write};
use tokio::task::spawn_blocking;

/// Names of one directory that are asked about with -i. A directory with more is left.
const MAX_ASKED: usize = 1 << 20;

/// Directories within directories that are asked about; a server that invents more is given up.
const MAX_DEPTH: usize = 1000;

/// Remove files, or with -r whole directories
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma rm nfs://127.0.0.1/old.txt
  rpcrdma rm -r nfs://127.0.0.1/old-directory
  rpcrdma rm -ri nfs://127.0.0.1/old-directory

Symbolic links are removed, never followed. What cannot be removed is reported, and the rest is \
removed.")]
pub(crate) struct RmArgs {
    /// nfs://HOST[:PORT]/PATH of files and directories to remove
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Remove directories and their contents
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Ignore missing files; never ask
    #[arg(short, long, overrides_with = "interactive")]
    force: bool,

    /// Ask before each removal
    #[arg(short)]
    interactive: bool,

    /// Also remove empty directories
    #[arg(short, long)]
    dir: bool,

    /// Print each file that is removed
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &RmArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut rm = Rm {
        args,
        ended: Ended::Well,
    };
    for url in &args.urls {
        let removed = async {
            let place = session.place(url).await?;
            rm.named(place).await
        };
        let removed = removed.await;
        rm.ended.check(removed)?;
    }
    session.close().await;
    Ok(rm.ended)
}

struct Rm<'a> {
    args: &'a RmArgs,
    ended: Ended,
}

/// A directory whose entries are asked about.
struct Asked {
    place: Place,
    left: std::vec::IntoIter<Vec<u8>>,
}

impl Rm<'_> {
    /// Removes what the user named.
    async fn named(&mut self, place: Place) -> anyhow::Result<()> {
        if place.name().is_none() {
            bail!(
                "{}: it is the root of an export, which cannot be removed",
                place.url
            );
        }
        let Some(node) = place.find(Follow::No).await? else {
            return match self.args.force {
                true => Ok(()),
                false => Err(place.fault("remove", Status::NoEntry).into()),
            };
        };
        let directory = node.attributes.file_type == FileType::Directory;
        match (directory, self.args.recursive) {
            (true, false) if !self.args.dir => {
                bail!("{}: it is a directory: remove it with -r", place.url)
            }
            (true, true) if self.args.interactive => self.ask_within(place).await,
            (true, true) => self.tree(&place).await,
            (true, false) | (false, _) => {
                if self.args.interactive && !ask(&place, &node, "remove").await? {
                    return Ok(());
                }
                self.one(&place, directory).await
            }
        }
    }

    /// Removes a directory with all that is in it.
    async fn tree(&mut self, place: &Place) -> anyhow::Result<()> {
        let mut printed = Ok(());
        let (ended, verbose) = (&mut self.ended, self.args.verbose);
        let tell = |removal| match removal {
            Removal::Removed(path) if verbose && printed.is_ok() => {
                printed = writeln!(output::stdout(), "removed {}", place.url_of(path));
            }
            Removal::Removed(_) => {}
            Removal::Failed(error) => ended.failed(&place.error(error).into()),
        };
        let removed = place.export.remove_tree(&place.path, tell).await.of(place);
        self.gone(removed)?;
        Ok(printed?)
    }

    /// Removes a file or an empty directory.
    async fn one(&self, place: &Place, directory: bool) -> anyhow::Result<()> {
        let removed = match directory {
            true => place.export.remove_dir(&place.path).await,
            false => place.export.remove(&place.path).await,
        };
        self.gone(removed.of(place))?;
        if self.args.verbose {
            writeln!(output::stdout(), "removed {}", place.url)?;
        }
        Ok(())
    }

    /// With -f, what is not there is as good as removed.
    fn gone(&self, removed: Result<(), FileError>) -> Result<(), FileError> {
        match removed {
            Err(error) if self.args.force && error.status() == Some(Status::NoEntry) => Ok(()),
            removed => removed,
        }
    }

    /// Removes a directory with what is in it, as far as the user says yes.
    async fn ask_within(&mut self, top: Place) -> anyhow::Result<()> {
        let mut way = Vec::new();
        self.enter(top, &mut way).await?;
        while let Some(last) = way.last_mut() {
            let done = match last.left.next() {
                Some(name) => {
                    let place = last.place.join(&name);
                    self.ask_of(place, &mut way).await
                }
                None => match way.pop() {
                    Some(Asked { place, .. }) => self.ask_to_remove(&place).await,
                    None => Ok(()),
                },
            };
            // Nobody can be asked any more if nobody reads.
            if done.as_ref().is_err_and(is_closed_pipe) {
                return done;
            }
            self.ended.check(done)?;
        }
        Ok(())
    }

    async fn ask_of(&mut self, place: Place, way: &mut Vec<Asked>) -> anyhow::Result<()> {
        let Some(node) = place.find(Follow::No).await? else {
            return Ok(());
        };
        if node.attributes.file_type == FileType::Directory {
            return self.enter(place, way).await;
        }
        match ask(&place, &node, "remove").await? {
            true => self.one(&place, false).await,
            false => Ok(()),
        }
    }

    /// Goes into a directory, if the user says yes. All its names are read before any is removed: after a
    /// removal the server may not know the place in the list any more (RFC 1813 §3.3.16).
    async fn enter(&mut self, place: Place, way: &mut Vec<Asked>) -> anyhow::Result<()> {
        if way.len() >= MAX_DEPTH {
            bail!(
                "{}: it is not looked into: directories are nested without end",
                place.url
            );
        }
        let node = place.export.lstat(&place.path).await.of(&place)?;
        let mut list = place.export.list_dir(node.handle, &place.path);
        let mut names = Vec::new();
        while let Some(entry) = list.next().await.of(&place)? {
            names.push(entry.name);
            if names.len() > MAX_ASKED {
                bail!(
                    "{}: there are more than {MAX_ASKED} names in it to be asked about",
                    place.url
                );
            }
        }
        // Of an empty directory there is one question only.
        if !names.is_empty() && !ask(&place, &node, "descend into").await? {
            return Ok(());
        }
        names.sort();
        let left = names.into_iter();
        way.push(Asked { place, left });
        Ok(())
    }

    async fn ask_to_remove(&mut self, place: &Place) -> anyhow::Result<()> {
        let node = place.export.lstat(&place.path).await.of(place)?;
        match ask(place, &node, "remove").await? {
            true => self.one(place, true).await,
            false => Ok(()),
        }
    }
}

/// Asks the user, who says yes with a line that begins with y.
async fn ask(place: &Place, node: &Node, what: &str) -> anyhow::Result<bool> {
    let kind = crate::show::file_type(node.attributes.file_type);
    let question = format!("rpcrdma: {what} {kind} {}? ", place.url);
    let answer = spawn_blocking(move || {
        io::stderr().write_all(question.as_bytes())?;
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = answer.await.map_err(|_| anyhow!("nobody can be asked"))?;
    let answer = answer.map_err(|error| anyhow!(error).context("cannot ask"))?;
    Ok(answer.starts_with(['y', 'Y']))
}
