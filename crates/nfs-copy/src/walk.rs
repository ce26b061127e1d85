//! Goes through what is copied, with an eye on what is there at the destination, and says step by step what is
//! to be done.
//!
//! A walk changes nothing, so that a plan can be made from it. It holds, for each directory on the way down, a
//! page of its entries, and of what is at the destination no more than [`MAX_KNOWN`] names in all.

use super::decide::{self, Action, Conflict, Skip, Streams};
use super::entry::{About, Entry, join};
use super::exclude::Exclude;
use super::listing::{Begun, Listing};
use super::made_names::FoldedNames;
use super::options::Options;
use super::root::Root;
use super::tree::Tree;
use crate::error::{Error, Result};
use nfs_client::Node;
use nfs_proto::{FileHandle, FileType};
use std::collections::{HashMap, VecDeque};

/// Directories within directories that are copied; a server that invents more is given up.
const MAX_DEPTH: usize = 1000;

/// Bytes of a path that is copied: each directory on the way down remembers its own. Linux has 4096 for one path.
const MAX_PATH: usize = 64 << 10;

/// Names of a destination on a server that are remembered at a time, so as not to ask for each; of a directory
/// for which there is no room, each is asked for.
const MAX_KNOWN: usize = 65_536;

/// Unfinished files in a directory that are looked at by one copy.
const MAX_UNFINISHED: usize = 256;

/// Times that two objects which may be one are looked at, as others may change them.
const LOOKS: usize = 3;

/// Directories of one directory that are listed at a time before the walk gets to them.
const AHEAD: usize = 8;

/// Those of all directories on the way down.
const MAX_AHEAD: usize = 32;

/// Whether something is what a copy, this one or another, has not finished.
fn is_unfinished(name: &[u8], entry: &Entry) -> bool {
    !entry.about.is_directory() && nfs_client::is_temporary_name(name)
}

/// A step of a copy.
#[derive(Debug)]
pub(crate) enum Step {
    /// A directory: what is in it follows, up to its [`Leave`](Self::Leave).
    Enter(Box<Inside>),
    /// The end of the directory that was entered last and not left.
    Leave,
    /// Anything else.
    Other(Box<Other>),
    /// Nothing is to be copied, as this does not go together.
    Conflict(Error),
    /// Something cannot be read.
    Failed(Error),
}

impl Step {
    /// Bytes of the paths in it.
    pub(super) fn path_bytes(&self) -> usize {
        match self {
            Self::Enter(inside) => {
                let names = inside.unfinished.iter().map(Vec::len);
                inside.source.path.len() + 2 * inside.to.len() + names.sum::<usize>()
            }
            Self::Other(other) => other.source.path.len() + other.to.len(),
            Self::Leave | Self::Conflict(_) | Self::Failed(_) => 0,
        }
    }
}

/// A directory that is copied.
#[derive(Debug)]
pub(crate) struct Inside {
    /// Number of the root that it is in.
    pub(crate) root: usize,
    pub(crate) source: Entry,
    pub(crate) to: Vec<u8>,
    /// The directory that is there.
    pub(crate) there: Option<Entry>,
    /// Names there of what a copy has not finished.
    pub(crate) unfinished: Vec<Vec<u8>>,
    /// Whether what is in it goes to the destination, and not it itself.
    pub(crate) is_contents: bool,
}

/// Something that is copied and no directory.
#[derive(Debug)]
pub(crate) struct Other {
    /// Number of the root that it is in, or that it is.
    pub(crate) root: usize,
    pub(crate) source: Entry,
    pub(crate) to: Vec<u8>,
    /// Attributes of what is there.
    pub(crate) there: Option<About>,
    /// Its handle, on a server.
    pub(crate) replaced: Option<FileHandle>,
    pub(crate) action: Action,
}

impl Other {
    /// The file that is there, if it is left as it is for a copy of this file, which has further names: they are made links to it.
    /// A file of another size or modification time is not taken for a copy: what is newer may have other data.
    pub(crate) fn kept_copy(&self) -> Option<&About> {
        let source = &self.source.about;
        let is_copy = |there: &&About| {
            self.action == Action::Skip(Skip::NotOlder)
                && source.links > 1
                && (source.kind, source.size, source.mtime) == (there.kind, there.size, there.mtime)
        };
        let is_file = source.kind == FileType::Regular;
        self.there.as_ref().filter(is_copy).filter(|_| is_file)
    }
}

/// A walk through the sources.
pub(crate) struct Walk<'a> {
    dest: &'a Tree,
    options: &'a Options,
    roots: &'a [Root],
    /// Number of the root that comes next.
    next: usize,
    /// Directories on the way down.
    levels: Vec<Level<'a>>,
    /// Names that may still be remembered.
    room: usize,
    /// Listings that may still begin ahead.
    room_ahead: usize,
}

struct Level<'a> {
    entries: Listing<'a>,
    /// Directories in it that are listed before the walk gets to them, by their paths.
    ahead: VecDeque<(Vec<u8>, Begun<'a>)>,
    to: Vec<u8>,
    /// Its path for patterns.
    name: Vec<u8>,
    there: Known,
}

/// Knowledge of a directory at the destination.
pub(super) enum Known {
    /// It is not there, and so is nothing in it.
    Absent,
    /// Each name has to be asked for.
    Asked(Box<Entry>),
    /// All of it.
    Listed(Box<Listed>),
}

/// All names in a directory.
pub(super) struct Listed {
    dir: Entry,
    names: HashMap<Vec<u8>, Node>,
    /// The same, for spellings that are not in the list.
    folded: FoldedNames,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(dest: &'a Tree, options: &'a Options, roots: &'a [Root]) -> Self {
        Self {
            dest,
            options,
            roots,
            next: 0,
            levels: Vec::new(),
            room: MAX_KNOWN,
            room_ahead: MAX_AHEAD,
        }
    }

    /// The next step; nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<Step> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                let root = self.roots.get(self.next)?;
                self.next += 1;
                match self.root(root).await {
                    Some(step) => return Some(step),
                    None => continue,
                }
            };
            let (name, source) = match level.entries.next().await {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    self.leave();
                    return Some(Step::Leave);
                }
                Err(error) => return Some(Step::Failed(error)),
            };
            let path = join(&level.name, &name);
            let is_directory = source.about.is_directory();
            if self.options.exclude.matches(&path, is_directory) || is_unfinished(&name, &source) {
                continue;
            }
            let to = join(&level.to, &name);
            let there = match level.there.get(self.dest, &name, &to).await {
                Ok(there) => there,
                Err(error) => return Some(Step::Failed(error)),
            };
            return Some(match is_directory {
                true => self.enter(source, to, there, path).await,
                false => self.other(source, to, there.as_ref(), Streams::default()),
            });
        }
    }

    async fn root(&mut self, root: &'a Root) -> Option<Step> {
        let is_directory = root.source.about.is_directory();
        if self.options.exclude.matches(&root.name, is_directory) {
            return None;
        }
        if is_directory && !self.options.recursive {
            let path = root.tree.show(&root.source.path);
            return Some(Step::Failed(Error::IsDirectory { path }));
        }
        if root.dangles {
            return Some(self.conflict(Conflict::Dangling, &root.source, &root.to));
        }
        let (source, to, there) = (root.source.clone(), root.to.clone(), root.there.clone());
        Some(match is_directory {
            true => self.enter(source, to, there, root.name.clone()).await,
            false => {
                // A source that was named is read and written as it is; on a server that is not possible.
                let streams = Streams {
                    read: matches!(root.tree, Tree::Local),
                    written: matches!(self.dest, Tree::Local),
                };
                self.other(source, to, there.as_ref(), streams)
            }
        })
    }

    /// Something that is no directory.
    fn other(&self, source: Entry, to: Vec<u8>, there: Option<&Entry>, streams: Streams) -> Step {
        let replaced = there.and_then(|there| there.node).map(|node| node.handle);
        let there = there.map(|there| &there.about);
        match decide::other(&source.about, there, streams, self.options) {
            Action::Refuse(conflict) => self.conflict(conflict, &source, &to),
            action => Step::Other(Box::new(Other {
                root: self.next - 1,
                source,
                to,
                there: there.copied(),
                replaced,
                action,
            })),
        }
    }

    async fn enter(
        &mut self,
        source: Entry,
        to: Vec<u8>,
        there: Option<Entry>,
        name: Vec<u8>,
    ) -> Step {
        if let Some(conflict) = decide::directory(there.as_ref()) {
            return self.conflict(conflict, &source, &to);
        }
        let root = self.current();
        let goes_to = root.there.as_ref().unwrap_or(&root.base);
        if are_one((&root.tree, &source), (self.dest, goes_to)).await {
            let conflict = match self.levels.is_empty() && root.there.is_some() {
                true => Conflict::Same,
                false => Conflict::IntoItself,
            };
            return self.conflict(conflict, &source, &to);
        }
        if self.levels.len() >= MAX_DEPTH || source.path.len().max(to.len()) > MAX_PATH {
            let path = root.tree.show(&source.path);
            return Step::Failed(Error::TooDeep { path });
        }
        let entries = match self.list(&source).await {
            Ok(entries) => entries,
            Err(error) => return Step::Failed(error),
        };
        let (known, unfinished) = match &there {
            Some(there) => Known::of(self.dest, there, &mut self.room).await,
            None => (Known::Absent, Vec::new()),
        };
        let is_contents = name.is_empty();
        self.levels.push(Level {
            entries,
            ahead: VecDeque::new(),
            to: to.clone(),
            name,
            there: known,
        });
        Step::Enter(Box::new(Inside {
            root: self.next - 1,
            source,
            to,
            there,
            unfinished,
            is_contents,
        }))
    }

    /// Lists a directory of the source, and begins to list those that come next.
    async fn list(&mut self, source: &Entry) -> Result<Listing<'a>> {
        let tree = &self.current().tree;
        let Some(level) = self.levels.last_mut() else {
            return tree.list(source);
        };
        let begun = level.take_ahead(&source.path, &mut self.room_ahead);
        let begun = match (begun, tree) {
            (None, Tree::Remote(..)) => Some(tree.begin_list(source).await?),
            (begun, _) => begun,
        };
        let exclude = &self.options.exclude;
        level.look_ahead(tree, exclude, &mut self.room_ahead).await;
        match begun {
            Some(begun) => begun.listing().await,
            None => tree.list(source),
        }
    }

    /// The source that is gone through.
    fn current(&self) -> &'a Root {
        &self.roots[self.next - 1]
    }

    fn leave(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.room += level.there.len();
            self.room_ahead += level.ahead.len();
        }
    }

    fn conflict(&self, conflict: Conflict, source: &Entry, to: &[u8]) -> Step {
        let source = self.current().tree.show(&source.path);
        let to = self.dest.show(to);
        Step::Conflict(Error::conflict(conflict, source, to))
    }
}

/// Whether a directory of the source is this one of the destination.
pub(super) async fn are_one(
    (source_tree, source): (&Tree, &Entry),
    (dest_tree, dest): (&Tree, &Entry),
) -> bool {
    if source.about.id != dest.about.id {
        return false;
    }
    for _ in 0..LOOKS {
        let looks = (
            source_tree.follow(&source.path).await,
            dest_tree.follow(&dest.path).await,
        );
        let (Ok(Some(source)), Ok(Some(dest))) = looks else {
            return false;
        };
        if source.about.is_same_object(&dest.about) {
            return true;
        }
    }
    false
}

impl<'a> Level<'a> {
    /// The listing of a directory in it, if that has begun. It comes after all others that were begun before.
    fn take_ahead(&mut self, path: &[u8], room: &mut usize) -> Option<Begun<'a>> {
        let place = self.ahead.iter().position(|(ahead, _)| ahead == path)?;
        *room += place + 1;
        self.ahead
            .drain(..=place)
            .next_back()
            .map(|(_, begun)| begun)
    }

    /// Begins to list directories in it that the walk comes to next, as far as they are known by now.
    async fn look_ahead(&mut self, tree: &'a Tree, exclude: &Exclude, room: &mut usize) {
        while self.ahead.len() < AHEAD && *room > 0 {
            let Some((name, entry)) = self.entries.upcoming() else {
                return;
            };
            if exclude.matches(&join(&self.name, &name), true) {
                continue;
            }
            // What fails here, fails again where it is told.
            if let Ok(begun) = tree.begin_list(&entry).await {
                *room -= 1;
                self.ahead.push_back((entry.path, begun));
            }
        }
    }
}

impl Known {
    /// Lists a directory, if there is room for its names; and the names of unfinished files in it.
    pub(super) async fn of(tree: &Tree, dir: &Entry, room: &mut usize) -> (Self, Vec<Vec<u8>>) {
        let mut unfinished = Vec::new();
        let mut note = |name: &[u8]| {
            if nfs_client::is_temporary_name(name) && unfinished.len() < MAX_UNFINISHED {
                unfinished.push(name.to_vec());
            }
        };
        let known = match tree.list_names(dir) {
            // To ask for a name costs no more than to remember it. Where there is none, nothing needs to be asked.
            Ok(Listing::Local(mut entries)) => {
                let mut is_empty = true;
                loop {
                    match entries.next_name() {
                        Ok(Some(name)) => note(&name),
                        Ok(None) => break is_empty.then(HashMap::new),
                        Err(_) => break None,
                    }
                    is_empty = false;
                }
            }
            Ok(mut entries @ Listing::Remote(_)) => {
                let mut names = HashMap::new();
                loop {
                    match entries.next().await {
                        Ok(Some((
                            name,
                            Entry {
                                node: Some(node), ..
                            },
                        ))) if names.len() < *room => {
                            note(&name);
                            names.insert(name, node);
                        }
                        Ok(None) => break Some(names),
                        Ok(Some(_)) | Err(_) => break None,
                    }
                }
            }
            // Names in a directory that cannot be listed can still be asked for.
            Err(_) => None,
        };
        let known = match known {
            Some(names) => {
                *room -= names.len();
                let mut folded = FoldedNames::default();
                for name in names.keys() {
                    folded.insert(name);
                }
                let dir = dir.clone();
                Self::Listed(Box::new(Listed { dir, names, folded }))
            }
            None => Self::Asked(Box::new(dir.clone())),
        };
        (known, unfinished)
    }

    /// Names that are remembered.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Absent | Self::Asked(_) => 0,
            Self::Listed(listed) => listed.names.len(),
        }
    }

    /// The entry of this name.
    pub(super) async fn get(&self, tree: &Tree, name: &[u8], path: &[u8]) -> Result<Option<Entry>> {
        match self {
            Self::Absent => Ok(None),
            Self::Asked(dir) => tree.look_in(dir, name).await,
            Self::Listed(listed) => match listed.names.get(name) {
                Some(node) => Ok(Some(Entry::remote(path.to_vec(), *node))),
                // A file system may take the two for one name.
                None if listed.folded.contains(name) => tree.look_in(&listed.dir, name).await,
                None => Ok(None),
            },
        }
    }
}
