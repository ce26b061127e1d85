//! Removes at the destination what the source lacks, after everything was copied.

use super::attributes::{Wanted, opened_mode};
use super::copy::{Copy, Shared};
use super::directory::LocalDir;
use super::directory_completion::{Held, Last};
use super::entry::{Entry, join, split};
use super::listing::Listing;
use super::made_names::FoldedNames;
use super::options::Options;
use super::replaced_attributes::mode_for_others;
use super::root::Root;
use super::tree::{Tree, local};
use super::upload::{REMOVED_WITHIN, open_up, set_directory};
use super::walk::{Known, are_one};
use crate::connection::Connection;
use crate::error::{Context, Error, Result};
use crate::events::Event;
use crate::show;
use nfs_client::Export;
use nfs_proto::{FileHandle, Name, Status};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::vec;
use tokio::task::yield_now;

/// Entries of a directory that are found before they are removed: a directory that is changed while it is listed may
/// leave out some.
const MAX_DOOMED: usize = 4096;

/// Names of sources on a server that are remembered at a time.
const MAX_NAMES: usize = 65_536;

/// Directories within directories that are looked at.
const MAX_DEPTH: usize = 1000;

/// Directories in one that is removed which are left, as something in them is excluded: each is remembered.
const MAX_KEPT: usize = 65_536;

/// Checks that there is something to be removed from.
///
/// # Errors
///
/// [`Error::NoDirectory`].
pub(crate) fn check(options: &Options, roots: &[Root]) -> Result<()> {
    let mut roots = roots.iter();
    if options.deletes && !roots.any(|root| root.source.about.is_directory()) {
        return Err(Error::NoDirectory);
    }
    Ok(())
}

/// Removes what the source lacks from all directories that were copied, if the options have it: when all is
/// copied.
///
/// # Errors
///
/// Those that concern the whole command.
pub(crate) async fn after(copy: &mut Copy, roots: &[Root], dest: &Tree) -> Result<()> {
    if !copy.shared.options.deletes {
        return Ok(());
    }
    copy.settle().await?;
    if !copy.is_well() {
        return copy.check(Err(Error::NothingRemoved));
    }
    let removed = extraneous(copy, roots, dest).await;
    copy.check(removed)
}

/// Removes what the source lacks from all directories that were copied.
///
/// # Errors
///
/// Those that concern the whole command, and of a source that cannot be read: then nothing more is removed.
async fn extraneous(copy: &mut Copy, roots: &[Root], dest: &Tree) -> Result<()> {
    let options = Arc::clone(&copy.shared.options);
    let sources = Sources::new(roots).await?;
    for root in roots {
        if !root.source.about.is_directory() || options.exclude.matches(&root.name, true) {
            continue;
        }
        let now = root.tree.follow(&root.source.path).await?;
        let source = now.filter(|now| {
            (now.about.id, now.about.kind) == (root.source.about.id, root.source.about.kind)
        });
        let source = source.ok_or_else(|| Error::NotTheSource {
            path: root.tree.show(&root.source.path),
        })?;
        // In a dry run it may not be there.
        let Some(there) = dest.follow(&root.to).await? else {
            continue;
        };
        let mut sweep = Sweep {
            source: &root.tree,
            dest,
            sources: &sources,
            levels: Vec::new(),
            room: MAX_NAMES,
        };
        let within = Within::named(dest, &there)?;
        sweep
            .enter(source, (there, within), root.name.clone())
            .await?;
        sweep.all(copy).await?;
    }
    copy.settle().await
}

/// Directories that are copied, and those above them: to remove one at the destination would be to remove the source.
struct Sources<'a>(Vec<(&'a Tree, Entry)>);

impl<'a> Sources<'a> {
    async fn new(roots: &'a [Root]) -> Result<Self> {
        let mut sources = Vec::new();
        for root in roots {
            let path = &root.source.path;
            let path = match &root.tree {
                Tree::Local => {
                    let whole = local(path).canonicalize();
                    let whole = whole.with_context(|| root.tree.show(path))?;
                    whole.into_os_string().into_vec()
                }
                Tree::Remote(..) => path.clone(),
            };
            let mut rest = &path[..];
            loop {
                if let Some(found) = root.tree.follow(rest).await? {
                    sources.push((&root.tree, found));
                }
                match split(rest) {
                    (above, name) if !name.is_empty() => rest = above,
                    _ => break,
                }
            }
        }
        Ok(Self(sources))
    }

    /// Whether one of them is this directory at the destination.
    async fn has(&self, tree: &Tree, dir: &Entry) -> bool {
        for (source, entry) in &self.0 {
            if are_one((source, entry), (tree, dir)).await {
                return true;
            }
        }
        false
    }
}

/// A directory that things are removed from, whatever its path leads to by then.
#[derive(Clone)]
enum Within {
    Local(Arc<LocalDir>),
    Remote(FileHandle),
}

impl Within {
    /// The directory that was named, or that a symbolic link of that name leads to.
    fn named(tree: &Tree, dir: &Entry) -> Result<Self> {
        match tree {
            Tree::Local => {
                let path = local(&dir.path);
                let opened = LocalDir::open(path);
                let cannot = || format!("{}: cannot remove anything in it", show::path(path));
                Ok(Self::Local(opened.with_context(cannot)?))
            }
            Tree::Remote(..) => Self::remote(tree, dir),
        }
    }

    /// A directory in it.
    fn enter(&self, tree: &Tree, name: &[u8], dir: &Entry) -> Result<Self> {
        match self {
            Self::Local(above) => {
                let entered = above.name(OsStr::from_bytes(name)).enter();
                let cannot = || format!("{}: cannot remove anything in it", tree.show(&dir.path));
                Ok(Self::Local(entered.with_context(cannot)?))
            }
            Self::Remote(_) => Self::remote(tree, dir),
        }
    }

    fn remote(tree: &Tree, dir: &Entry) -> Result<Self> {
        let node = dir.node.as_ref().ok_or_else(|| Error::NotOnServer {
            path: tree.show(&dir.path),
        })?;
        Ok(Self::Remote(node.handle))
    }
}

/// Goes through the directories that are on both sides.
struct Sweep<'a> {
    source: &'a Tree,
    dest: &'a Tree,
    sources: &'a Sources<'a>,
    /// Directories on the way down.
    levels: Vec<Level<'a>>,
    /// Names that may still be remembered.
    room: usize,
}

/// A directory on both sides.
struct Level<'a> {
    source: Entry,
    /// Entries of the source.
    known: Known,
    within: Within,
    dest: Entry,
    entries: Listing<'a>,
    /// Names that were listed so far at the destination, as far as there is room.
    listed: HashSet<Vec<u8>>,
    /// Its path for patterns.
    name: Vec<u8>,
    doomed: Vec<Doomed>,
    /// Directories that the source has in another spelling, with what it has.
    respelled: Vec<(Entry, Doomed)>,
    /// Holds it open for changes, once something is.
    held: Option<Arc<Held>>,
}

impl Level<'_> {
    /// The entry of this name in the source. What the list of a directory lacks is looked up: a server may leave out what
    /// is changed while it makes the list.
    async fn has(&self, source: &Tree, name: &[u8]) -> Result<Option<Entry>> {
        let path = join(&self.source.path, name);
        let found = self.known.get(source, name, &path).await?;
        if found.is_some() || !matches!(self.known, Known::Listed(_)) {
            return Ok(found);
        }
        match source.look_in(&self.source, name).await {
            Err(error) if cannot_be_there(&error) => Ok(None),
            found => found,
        }
    }
}

impl Level<'_> {
    /// Takes what a name of the source leads to from what is to be removed: where the destination folds names, it lists
    /// another spelling of them. Names that it lists as they are lead to themselves.
    async fn spare(&mut self, source: &Tree, dest: &Tree, options: &Options) -> Result<()> {
        if self.doomed.is_empty() {
            return Ok(());
        }
        let mut doomed = FoldedNames::default();
        for gone in &self.doomed {
            doomed.insert(&gone.name);
        }
        let mut names = source.list(&self.source)?;
        while let Some((name, from)) = names.next().await? {
            // Which other letters a destination takes for one is not known here: those are looked up.
            if name.is_ascii() && !doomed.contains(&name) {
                continue;
            }
            let path = join(&self.name, &name);
            let is_directory = from.about.is_directory();
            if self.listed.contains(&name) || options.exclude.matches(&path, is_directory) {
                continue;
            }
            let there = match dest.look_in(&self.dest, &name).await {
                Err(error) if cannot_be_there(&error) => None,
                found => found?,
            };
            let id = |entry: &Entry| (entry.about.fs, entry.about.id);
            let Some(there) = there.as_ref().map(id) else {
                continue;
            };
            let Some(at) = self.doomed.iter().position(|gone| id(&gone.entry) == there) else {
                continue;
            };
            let spared = self.doomed.swap_remove(at);
            if is_directory && spared.entry.about.is_directory() {
                self.respelled.push((from, spared));
            }
        }
        Ok(())
    }
}

impl Level<'_> {
    /// Removes what was found in it.
    async fn remove(&mut self, source: &Tree, dest: &Tree, copy: &mut Copy) -> Result<()> {
        if self.doomed.is_empty() {
            return Ok(());
        }
        let held = match &self.held {
            Some(held) => Arc::clone(held),
            None => {
                let held = self.hold(source, dest, &copy.shared).await;
                Arc::clone(self.held.insert(held))
            }
        };
        for gone in self.doomed.drain(..) {
            let (shared, held) = (copy.shared.clone(), Arc::clone(&held));
            copy.begin(async move {
                let (tree, path) = (gone.tree.clone(), gone.entry.path.clone());
                let all = match shared.options.dry_run {
                    true => true,
                    // It may take long, and not be what was wanted.
                    false => {
                        let removed = gone.remove(&shared.options);
                        shared.stop.unless(removed).await?
                    }
                };
                drop(held);
                let what = &tree.named(&path);
                shared.tell(&match all {
                    true => Event::Removed { what },
                    false => Event::NotRemoved { what },
                })
            })
            .await?;
        }
        Ok(())
    }

    /// Opens it for changes if its owner has closed it, and holds it. At the end it gets the mode and the times that the
    /// copy gave it: removing changes both.
    async fn hold(&self, source: &Tree, dest: &Tree, shared: &Shared) -> Arc<Held> {
        if shared.options.dry_run {
            return shared.hold(None, None);
        }
        let mut about = self.source.about;
        if let (Tree::Local, true) = (source, shared.options.preserves) {
            about.mode = mode_for_others(local(&self.source.path), &about);
        }
        let mode = self.dest.about.mode;
        let wanted = Wanted::of(&about, &shared.options, 0o777);
        let last: Option<Last> = match (&self.within, dest, self.dest.node) {
            (Within::Local(dir), _, _) => {
                let opened = opened_mode(mode).is_some_and(|mode| dir.set_mode(mode).is_ok());
                let dir = Arc::clone(dir);
                wanted
                    .last_of_existing(mode, opened)
                    .map(|wanted| -> Last { Box::pin(async move { wanted.set_directory(&dir) }) })
            }
            (Within::Remote(_), Tree::Remote(export, _), Some(node)) => {
                let opened = open_up(export.nfs(), &node).await;
                let (export, path) = (Arc::clone(export), self.dest.path.clone());
                wanted.last_of_existing(mode, opened).map(|wanted| -> Last {
                    let stop = shared.stop.clone();
                    Box::pin(async move {
                        let set = set_directory(export.nfs(), node.handle, &path, &wanted);
                        stop.unless_late(REMOVED_WITHIN, set).await
                    })
                })
            }
            (Within::Remote(_), _, _) => None,
        };
        shared.hold(None, last)
    }
}

/// Whether a server has no such names.
fn cannot_be_there(error: &Error) -> bool {
    matches!(error.status(), Some(Status::NameTooLong | Status::Invalid))
}

impl Sweep<'_> {
    async fn enter(
        &mut self,
        source: Entry,
        (dest, within): (Entry, Within),
        name: Vec<u8>,
    ) -> Result<()> {
        if self.levels.len() >= MAX_DEPTH {
            let path = self.dest.show(&dest.path);
            return Err(Error::TooDeep { path });
        }
        let (known, _) = Known::of(self.source, &source, &mut self.room).await;
        let entries = self.dest.list(&dest)?;
        self.levels.push(Level {
            source,
            known,
            within,
            dest,
            entries,
            listed: HashSet::new(),
            name,
            doomed: Vec::new(),
            respelled: Vec::new(),
            held: None,
        });
        Ok(())
    }

    async fn all(&mut self, copy: &mut Copy) -> Result<()> {
        let options = Arc::clone(&copy.shared.options);
        while let Some(level) = self.levels.last_mut() {
            if level.doomed.len() >= MAX_DOOMED {
                level.spare(self.source, self.dest, &options).await?;
                level.remove(self.source, self.dest, copy).await?;
            }
            let Some((name, there)) = level.entries.next().await? else {
                level.spare(self.source, self.dest, &options).await?;
                level.remove(self.source, self.dest, copy).await?;
                if let Some((from, spared)) = level.respelled.pop() {
                    let Doomed {
                        name, entry, path, ..
                    } = spared;
                    let within = level.within.enter(self.dest, &name, &entry)?;
                    self.enter(from, (entry, within), path).await?;
                    continue;
                }
                self.room += level.known.len() + level.listed.len();
                self.levels.pop();
                continue;
            };
            if self.room > 0 && level.listed.insert(name.clone()) {
                self.room -= 1;
            }
            let path = join(&level.name, &name);
            let is_directory = there.about.is_directory();
            // Files of ours that are not finished go by their age.
            if options.exclude.matches(&path, is_directory)
                || nfs_client::is_temporary_name(&name) && !is_directory
            {
                continue;
            }
            match level.has(self.source, &name).await? {
                None if is_directory && self.sources.has(self.dest, &there).await => {
                    let path = self.dest.show(&there.path);
                    copy.check(Err(Error::HoldsSource { path }))?;
                }
                None => level.doomed.push(Doomed {
                    tree: self.dest.clone(),
                    within: level.within.clone(),
                    name,
                    entry: there,
                    path,
                }),
                Some(from) if from.about.is_directory() && is_directory => {
                    let within = level.within.enter(self.dest, &name, &there)?;
                    self.enter(from, (there, within), path).await?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Something that is removed with all that is in it, but for what is excluded.
struct Doomed {
    tree: Tree,
    /// The directory that it is in.
    within: Within,
    name: Vec<u8>,
    entry: Entry,
    /// Its path for patterns.
    path: Vec<u8>,
}

/// A directory that is emptied.
struct Emptied {
    dir: Doomed,
    within: Within,
    /// Entries found in it.
    found: vec::IntoIter<Doomed>,
    /// The name that was found first, the last time that it was listed.
    first: Option<Vec<u8>>,
    /// Whether something in it is excluded.
    excludes: bool,
    /// Directories in it that something is in which is excluded.
    kept: HashSet<Vec<u8>>,
}

impl Doomed {
    /// Removes it; returns whether all of it is gone.
    async fn remove(self, options: &Options) -> Result<bool> {
        if !self.entry.about.is_directory() {
            self.remove_name().await?;
            return Ok(true);
        }
        match &self.tree {
            Tree::Remote(export, _) if options.exclude.is_empty() => {
                remove_all(export, &self.entry.path).await?;
                Ok(true)
            }
            Tree::Remote(..) | Tree::Local => self.empty(options).await,
        }
    }

    /// Removes a directory with all that is in it, and is not excluded; returns whether all of it is gone.
    async fn empty(self, options: &Options) -> Result<bool> {
        let mut way = vec![Emptied::new(self)?];
        while let Some(last) = way.last_mut() {
            // Nothing else gets a turn while local files are removed.
            yield_now().await;
            if last.found.len() == 0 {
                last.list(options).await?;
            }
            match last.found.next() {
                Some(below) if below.entry.about.is_directory() => {
                    if way.len() >= MAX_DEPTH {
                        let path = below.tree.show(&below.entry.path);
                        return Err(Error::TooDeep { path });
                    }
                    way.push(Emptied::new(below)?);
                }
                Some(below) => below.remove_name().await?,
                None => {
                    let all = !last.excludes && last.kept.is_empty();
                    if all {
                        last.dir.remove_name().await?;
                    }
                    let name = std::mem::take(&mut last.dir.name);
                    way.pop();
                    match way.last_mut() {
                        Some(above) if !all => drop(above.kept.insert(name)),
                        Some(_) => {}
                        None => return Ok(all),
                    }
                }
            }
        }
        Ok(true)
    }

    /// Removes a name, of a directory that is empty or of anything else.
    async fn remove_name(&self) -> Result<()> {
        let is_directory = self.entry.about.is_directory();
        match (&self.within, &self.tree) {
            (Within::Local(dir), _) => {
                let removed = dir.name(OsStr::from_bytes(&self.name)).remove(is_directory);
                let path = local(&self.entry.path);
                removed.with_context(|| format!("cannot remove {}", show::path(path)))
            }
            (Within::Remote(dir), Tree::Remote(export, _)) => {
                let removed = remove_remote(export, *dir, &self.name, is_directory).await;
                Ok(removed
                    .map_err(|fault| export.nfs().error_at(fault, "remove", &self.entry.path))?)
            }
            (Within::Remote(_), Tree::Local) => Err(Error::NotOnServer {
                path: self.tree.show(&self.entry.path),
            }),
        }
    }
}

impl Emptied {
    fn new(dir: Doomed) -> Result<Self> {
        Ok(Self {
            within: dir.within.enter(&dir.tree, &dir.name, &dir.entry)?,
            dir,
            found: Vec::new().into_iter(),
            first: None,
            excludes: false,
            kept: HashSet::new(),
        })
    }

    /// Lists what is still to be removed, as far as there is room; nothing at the end.
    async fn list(&mut self, options: &Options) -> Result<()> {
        let Doomed {
            tree, entry, path, ..
        } = &self.dir;
        let mut found = Vec::new();
        let mut entries = tree.list(entry)?;
        while found.len() < MAX_DOOMED
            && let Some((name, entry)) = entries.next().await?
        {
            let path = join(path, &name);
            if options.exclude.matches(&path, entry.about.is_directory()) {
                self.excludes = true;
            } else if !self.kept.contains(&name) {
                found.push(Doomed {
                    tree: tree.clone(),
                    within: self.within.clone(),
                    name,
                    entry,
                    path,
                });
            }
        }
        let first = found.first().map(|first| first.name.clone());
        if first.is_some() && first == self.first || self.kept.len() > MAX_KEPT {
            let path = tree.show(&entry.path);
            return Err(Error::CannotBeEmptied { path });
        }
        self.first = first;
        self.found = found.into_iter();
        Ok(())
    }
}

/// Removes a directory of a server with all that is in it.
async fn remove_all(export: &Export<Connection>, path: &[u8]) -> Result<()> {
    let mut failed = None;
    let tell = |error| {
        failed.get_or_insert(error);
    };
    export.remove_all(path, tell).await?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

async fn remove_remote(
    export: &Export<Connection>,
    dir: FileHandle,
    name: &[u8],
    is_directory: bool,
) -> Result<(), nfs_client::Fault> {
    let name = Name::new(name)?;
    match is_directory {
        true => export.nfs().remove_dir(dir, name).await,
        false => export.nfs().remove(dir, name).await,
    }
}

#[cfg(test)]
mod tests {
    use super::super::exclude::Exclude;
    use super::*;
    use std::fs;
    use std::path::Path;

    /// The entry `name` of a local directory, to be removed.
    fn doomed(dir: &Path, name: &str) -> Doomed {
        let path = dir.join(name);
        let about = path.symlink_metadata().unwrap();
        Doomed {
            tree: Tree::Local,
            within: Within::Local(LocalDir::open(dir).unwrap()),
            name: name.as_bytes().to_vec(),
            entry: Entry::local(path.into_os_string().into_vec(), &about),
            path: name.as_bytes().to_vec(),
        }
    }

    fn excluding(patterns: &[&str]) -> Options {
        let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        Options {
            exclude: Exclude::new(&patterns).unwrap(),
            ..Options::default()
        }
    }

    #[tokio::test]
    async fn directory_of_any_size_is_removed_but_for_what_is_excluded() {
        let around = tempfile::tempdir().unwrap();
        let top = around.path().join("top");
        fs::create_dir_all(top.join("keeps/deep")).unwrap();
        fs::create_dir_all(top.join("goes/deep")).unwrap();
        for number in 0..MAX_DOOMED + 10 {
            fs::write(top.join(format!("goes/{number}")), "").unwrap();
        }
        fs::write(top.join("keeps/deep/a.o"), "").unwrap();
        fs::write(top.join("keeps/b"), "").unwrap();
        let some = doomed(around.path(), "top");
        assert!(!some.remove(&excluding(&["*.o"])).await.unwrap());
        assert!(top.join("keeps/deep/a.o").exists());
        assert!(!top.join("keeps/b").exists() && !top.join("goes").exists());
        let all = doomed(around.path(), "top");
        assert!(all.remove(&excluding(&[])).await.unwrap());
        assert!(!top.exists());
    }

    #[tokio::test]
    async fn nothing_is_removed_through_a_link_that_took_the_place_of_a_directory() {
        let around = tempfile::tempdir().unwrap();
        let (dir, elsewhere) = (around.path().join("dir"), around.path().join("elsewhere"));
        for path in [&dir, &elsewhere] {
            fs::create_dir_all(path.join("below")).unwrap();
            fs::write(path.join("below/file"), "").unwrap();
        }
        let swap = |name: &Path| {
            fs::rename(name, around.path().join("moved")).unwrap();
            std::os::unix::fs::symlink(&elsewhere, name).unwrap();
        };
        let (whole, file) = (
            doomed(around.path(), "dir"),
            doomed(&dir.join("below"), "file"),
        );
        swap(&dir);
        assert!(whole.remove(&excluding(&[])).await.is_err());
        assert!(file.remove(&excluding(&[])).await.unwrap());
        assert!(elsewhere.join("below/file").exists());
        assert!(!around.path().join("moved/below/file").exists());
    }
}
