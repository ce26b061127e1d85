//! Sources that were named, and where each goes.

use super::entry::{Entry, join, split};
use super::tree::{Resolved, Tree};
use super::walk::Known;
use crate::error::{Error, Result};
use crate::place::Place;
use nfs_proto::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Sources for which the destination is asked for each name; for more, it is listed.
const FEW: usize = 4;

/// Names of the destination that are remembered while it is found out where sources go.
const MAX_NAMES: usize = 65_536;

/// A source that was named, and where it goes.
pub(crate) struct Root {
    /// The side that it is on.
    pub(crate) tree: Tree,
    pub(crate) source: Entry,
    /// Its path at the destination.
    pub(crate) to: Vec<u8>,
    /// The entry that is there.
    pub(crate) there: Option<Entry>,
    /// Whether a symbolic link that leads nowhere is there.
    pub(crate) dangles: bool,
    /// The directory it goes into.
    pub(crate) base: Entry,
    /// With which paths begin that patterns are compared with; empty if only the contents are copied.
    pub(crate) name: Vec<u8>,
}

impl Root {
    /// A file that is written to a stream: a path for which nothing is looked up.
    pub(crate) fn to_stream((tree, source): (Tree, Entry), name: &[u8]) -> Self {
        let stream = Entry::stream(name);
        Self {
            tree,
            source,
            to: name.to_vec(),
            dangles: false,
            there: Some(stream.clone()),
            base: stream,
            name: Vec::new(),
        }
    }
}

/// Destination of a copy on a server. Symbolic links are followed there, unless a link is copied.
pub struct ServerTarget {
    pub(crate) target: Target,
    pub(crate) place: Place,
}

impl ServerTarget {
    /// Looks what is at the destination of so many sources.
    ///
    /// # Errors
    ///
    /// If that cannot be told.
    pub async fn new(place: &Place, sources: usize) -> Result<Self> {
        let target = Target::new(&Tree::of(place), &place.path, sources).await?;
        let place = place.clone();
        Ok(Self { target, place })
    }

    /// Whether it is a directory that sources go into.
    pub fn is_directory(&self) -> bool {
        self.target.is_directory()
    }

    /// The same as the name of what is copied, even if it is a directory.
    #[must_use]
    pub fn into_name(self) -> Self {
        Self {
            target: self.target.into_name(),
            ..self
        }
    }
}

/// Local destination of a copy. Symbolic links are followed there, unless a link is copied.
pub struct LocalTarget(pub(crate) Box<Target>);

impl LocalTarget {
    /// Looks what is at the destination of so many sources.
    ///
    /// # Errors
    ///
    /// If that cannot be told.
    pub async fn new(to: &Path, sources: usize) -> Result<Self> {
        let to = to.as_os_str().as_bytes();
        let target = Target::new(&Tree::Local, to, sources).await?;
        Ok(Self(Box::new(target)))
    }

    /// Whether it is a directory that sources go into.
    pub fn is_directory(&self) -> bool {
        self.0.is_directory()
    }

    /// The same as the name of what is copied, even if it is a directory.
    #[must_use]
    pub fn into_name(self) -> Self {
        Self(Box::new(self.0.into_name()))
    }
}

/// Destination of a copy, as it was named.
pub(crate) struct Target {
    dest: Tree,
    /// As it was named.
    named: Vec<u8>,
    path: Vec<u8>,
    there: Option<Entry>,
    /// Whether a symbolic link leads to the path.
    is_link: bool,
    /// Its entries, if it is a directory.
    known: Option<Known>,
}

impl Target {
    /// Looks what is at the destination of so many sources.
    ///
    /// # Errors
    ///
    /// If that cannot be told. So for everything below.
    pub(crate) async fn new(dest: &Tree, to: &[u8], sources: usize) -> Result<Self> {
        let Resolved {
            path,
            there,
            is_link,
        } = dest.resolve(to).await?;
        let known = match there.as_ref().filter(|there| there.about.is_directory()) {
            Some(dir) if sources > FEW => {
                let (known, _) = Known::of(dest, dir, &mut { MAX_NAMES }).await;
                Some(known)
            }
            Some(dir) => Some(Known::Asked(Box::new(dir.clone()))),
            None => None,
        };
        Ok(Self {
            dest: dest.clone(),
            named: to.to_vec(),
            path,
            there,
            is_link,
            known,
        })
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.known.is_some()
    }

    /// The same as the name of what is copied, even if it is a directory.
    pub(crate) fn into_name(self) -> Self {
        Self {
            known: None,
            ..self
        }
    }

    /// The destination of a source: into the directory that is there, under its name, or to the path itself. Without a name
    /// it is what is in the source that is copied.
    pub(crate) async fn root(
        &self,
        (tree, source): (Tree, Entry),
        name: Option<&[u8]>,
    ) -> Result<Root> {
        // A link must not replace what a link of its name leads to, which can be what it leads to itself.
        let follows = source.about.kind != FileType::Symlink;
        let (to, there, is_link, base) = match (&self.there, &self.known, name) {
            (Some(dir), Some(known), Some(name)) => {
                let to = join(&self.path, name);
                let there = known.get(&self.dest, name, &to).await?;
                match there {
                    Some(link) if follows && link.about.kind == FileType::Symlink => {
                        let found = self.dest.resolve(&to).await?;
                        let base = self.base(&found.path).await?;
                        (found.path, found.there, true, base)
                    }
                    there => (to, there, false, dir.clone()),
                }
            }
            (Some(dir), Some(_), None) => {
                (self.path.clone(), Some(dir.clone()), false, dir.clone())
            }
            (_, _, _) if self.is_link && !follows => {
                let there = self.dest.look(&self.named).await?;
                let base = self.base(&self.named).await?;
                (self.named.clone(), there, false, base)
            }
            (there, _, _) => {
                let base = self.base(&self.path).await?;
                (self.path.clone(), there.clone(), self.is_link, base)
            }
        };
        Ok(Root {
            tree,
            source,
            to,
            dangles: is_link && there.is_none(),
            there,
            base,
            name: name.unwrap_or_default().to_vec(),
        })
    }

    /// The directory that a path is in.
    async fn base(&self, path: &[u8]) -> Result<Entry> {
        let parent = match (split(path).0, &self.dest) {
            (b"", Tree::Local) => b".",
            (parent, _) => parent,
        };
        let base = self.dest.follow(parent).await?;
        match base.filter(|base| base.about.is_directory()) {
            Some(base) => Ok(base),
            None => {
                let (to, parent) = (self.dest.show(path), self.dest.show(parent));
                Err(Error::NoParent { to, parent })
            }
        }
    }
}
