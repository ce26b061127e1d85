//! `--delete`: removes at the destination what the source lacks, after everything was copied.

use super::Copy;
use super::entry::{Entry, join};
use super::options::Options;
use super::root::Root;
use super::tree::{Listing, Tree, local};
use super::walk::Known;
use crate::failure::Usage;
use crate::show;
use anyhow::{Context, anyhow, bail};
use nfs_client::Export;
use nfs_proto::Name;
use rpcrdma::Client;
use std::pin::Pin;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Entries of a directory that are found before they are removed: a directory that is changed while it is listed may
/// leave out some.
const MAX_DOOMED: usize = 4096;

/// Names of sources on a server that are remembered at a time.
const MAX_NAMES: usize = 65_536;

/// Directories within directories that are looked at.
const MAX_DEPTH: usize = 1000;

/// Checks that there is something to be removed from.
///
/// # Errors
///
/// [`Usage`], if no directory is copied.
pub(crate) fn check(options: &Options, roots: &[Root]) -> anyhow::Result<()> {
    let mut roots = roots.iter();
    if options.deletes && !roots.any(|root| root.source.about.is_directory()) {
        bail!(Usage(
            "--delete is for directories, of which none is copied".to_owned()
        ));
    }
    Ok(())
}

/// Removes what the source lacks from all directories that were copied, if the user wants it: when all is
/// copied.
///
/// # Errors
///
/// Those that concern the whole command.
pub(crate) async fn after(copy: &mut Copy, roots: &[Root], dest: &Tree) -> anyhow::Result<()> {
    if !copy.shared.options.deletes {
        return Ok(());
    }
    copy.settle().await?;
    if !copy.is_well() {
        return copy.check(Err(anyhow!(
            "nothing was removed at the destination, as not all was read and copied"
        )));
    }
    let removed = extraneous(copy, roots, dest).await;
    copy.check(removed)
}

/// Removes what the source lacks from all directories that were copied.
///
/// # Errors
///
/// Those that concern the whole command, and of a source that cannot be read: then nothing more is removed.
async fn extraneous(copy: &mut Copy, roots: &[Root], dest: &Tree) -> anyhow::Result<()> {
    let options = Arc::clone(&copy.shared.options);
    for root in roots {
        if !root.source.about.is_directory() || options.exclude.matches(&root.name, true) {
            continue;
        }
        let now = root.tree.follow(&root.source.path).await?;
        let source = now.filter(|now| {
            (now.about.id, now.about.kind) == (root.source.about.id, root.source.about.kind)
        });
        let source = source.with_context(|| {
            let source = root.tree.show(&root.source.path);
            format!("nothing was removed: {source} is not the directory that was copied")
        })?;
        // In a dry run it may not be there.
        let Some(there) = dest.follow(&root.to).await? else {
            continue;
        };
        let mut sweep = Sweep {
            source: &root.tree,
            dest,
            levels: Vec::new(),
            room: MAX_NAMES,
        };
        sweep.enter(source, there, root.name.clone()).await?;
        sweep.all(copy).await?;
    }
    copy.settle().await
}

/// Goes through the directories that are on both sides.
struct Sweep<'a> {
    source: &'a Tree,
    dest: &'a Tree,
    /// Directories on the way down.
    levels: Vec<Level<'a>>,
    /// Names that may still be remembered.
    room: usize,
}

/// A directory on both sides.
struct Level<'a> {
    /// Path of the source.
    source: Vec<u8>,
    /// What is in the source.
    known: Known,
    dest: Entry,
    entries: Listing<'a>,
    /// Its path for patterns.
    name: Vec<u8>,
    doomed: Vec<Doomed>,
}

impl Sweep<'_> {
    async fn enter(&mut self, source: Entry, dest: Entry, name: Vec<u8>) -> anyhow::Result<()> {
        if self.levels.len() >= MAX_DEPTH {
            let dest = self.dest.show(&dest.path);
            bail!("{dest}: directories are nested too deeply");
        }
        let (known, _) = Known::of(self.source, &source, &mut self.room).await;
        let entries = self.dest.list(&dest)?;
        self.levels.push(Level {
            source: source.path,
            known,
            dest,
            entries,
            name,
            doomed: Vec::new(),
        });
        Ok(())
    }

    async fn all(&mut self, copy: &mut Copy) -> anyhow::Result<()> {
        let options = Arc::clone(&copy.shared.options);
        while let Some(level) = self.levels.last_mut() {
            if level.doomed.len() >= MAX_DOOMED {
                remove(copy, &mut level.doomed).await?;
            }
            let Some((name, there)) = level.entries.next().await? else {
                remove(copy, &mut level.doomed).await?;
                self.room += level.known.len();
                self.levels.pop();
                continue;
            };
            let path = join(&level.name, &name);
            let is_directory = there.about.is_directory();
            // Files of ours that are not finished go by their age.
            if options.exclude.matches(&path, is_directory)
                || nfs_client::is_temporary_name(&name) && !is_directory
            {
                continue;
            }
            let from = join(&level.source, &name);
            match level.known.get(self.source, &name, &from).await? {
                None => level.doomed.push(Doomed {
                    tree: self.dest.clone(),
                    dir: level.dest.clone(),
                    name,
                    entry: there,
                    path,
                    options: Arc::clone(&options),
                }),
                Some(from) if from.about.is_directory() && is_directory => {
                    self.enter(from, there, path).await?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Removes what was found in a directory.
async fn remove(copy: &mut Copy, doomed: &mut Vec<Doomed>) -> anyhow::Result<()> {
    for gone in doomed.drain(..) {
        let shared = copy.shared.clone();
        copy.begin(async move {
            let (tree, path) = (gone.tree.clone(), gone.entry.path.clone());
            let all = shared.options.dry_run || gone.remove().await?;
            shared.tell(|| match all {
                true => format!("removed {}", tree.show(&path)),
                false => format!(
                    "not removed: {}, as something in it is excluded",
                    tree.show(&path)
                ),
            })
        })
        .await?;
    }
    Ok(())
}

/// Something that is removed with all that is in it, but for what is excluded.
struct Doomed {
    tree: Tree,
    dir: Entry,
    name: Vec<u8>,
    entry: Entry,
    /// Its path for patterns.
    path: Vec<u8>,
    options: Arc<Options>,
}

impl Doomed {
    /// Removes it; returns whether all of it is gone.
    fn remove(self) -> Pin<Box<dyn Future<Output = anyhow::Result<bool>> + Send>> {
        Box::pin(async move {
            if !self.entry.about.is_directory() {
                self.remove_name().await?;
                return Ok(true);
            }
            if self.options.exclude.is_empty() {
                return self.remove_all().await;
            }
            let mut all = true;
            let mut within = Vec::new();
            let mut entries = self.tree.list(&self.entry)?;
            while let Some((name, entry)) = entries.next().await? {
                let path = join(&self.path, &name);
                if self
                    .options
                    .exclude
                    .matches(&path, entry.about.is_directory())
                {
                    all = false;
                } else {
                    within.push((name, entry, path));
                }
            }
            drop(entries);
            for (name, entry, path) in within {
                let below = Self {
                    tree: self.tree.clone(),
                    dir: self.entry.clone(),
                    name,
                    entry,
                    path,
                    options: Arc::clone(&self.options),
                };
                all &= below.remove().await?;
            }
            if all {
                self.remove_name().await?;
            }
            Ok(all)
        })
    }

    /// Removes a directory with all that is in it.
    async fn remove_all(&self) -> anyhow::Result<bool> {
        match &self.tree {
            Tree::Local => {
                let path = local(&self.entry.path).to_owned();
                let shown = show::path(&path);
                let removed = spawn_blocking(move || std::fs::remove_dir_all(path)).await;
                let removed = removed.expect("removing does not panic");
                removed.with_context(|| format!("cannot remove {shown}"))?;
            }
            Tree::Remote(export, _) => {
                let mut failed = None;
                let path = &self.entry.path;
                export
                    .remove_all(path, |error| {
                        failed.get_or_insert(error);
                    })
                    .await?;
                if let Some(error) = failed {
                    return Err(error.into());
                }
            }
        }
        Ok(true)
    }

    /// Removes a name, of a directory that is empty or of anything else.
    async fn remove_name(&self) -> anyhow::Result<()> {
        let is_directory = self.entry.about.is_directory();
        match (&self.tree, &self.dir.node) {
            (Tree::Local, _) => {
                let path = local(&self.entry.path);
                let removed = match is_directory {
                    true => std::fs::remove_dir(path),
                    false => std::fs::remove_file(path),
                };
                removed.with_context(|| format!("cannot remove {}", show::path(path)))
            }
            (Tree::Remote(export, _), Some(dir)) => {
                let removed = remove_remote(export, dir.handle, &self.name, is_directory).await;
                Ok(removed.map_err(|fault| fault.at("remove", &self.entry.path))?)
            }
            (Tree::Remote(..), None) => {
                Err(anyhow!("{} has no handle", self.tree.show(&self.dir.path)))
            }
        }
    }
}

async fn remove_remote(
    export: &Export<Client>,
    dir: nfs_proto::FileHandle,
    name: &[u8],
    is_directory: bool,
) -> Result<(), nfs_client::Fault> {
    let name = Name::new(name)?;
    match is_directory {
        true => export.nfs().remove_dir(dir, name).await,
        false => export.nfs().remove(dir, name).await,
    }
}
