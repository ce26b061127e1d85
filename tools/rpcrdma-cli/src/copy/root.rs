//! What the user named, and where it goes.

use super::entry::{Entry, join, split};
use super::tree::{Resolved, Tree};
use super::walk::Known;
use anyhow::bail;
use nfs_proto::FileType;

/// Sources for which the destination is asked for each name; for more, it is listed.
const FEW: usize = 4;

/// Names of the destination that are remembered while it is found out where sources go.
const MAX_NAMES: usize = 65_536;

/// Something that the user named, and where it goes.
pub(crate) struct Root {
    /// Where it is.
    pub(crate) tree: Tree,
    pub(crate) source: Entry,
    /// Its path at the destination.
    pub(crate) to: Vec<u8>,
    /// What is there.
    pub(crate) there: Option<Entry>,
    /// Whether a symbolic link that leads nowhere is there.
    pub(crate) dangles: bool,
    /// The directory it goes into.
    pub(crate) base: Entry,
    /// With which paths begin that patterns are compared with; empty if only the contents are copied.
    pub(crate) name: Vec<u8>,
}

impl Root {
    /// A file that is written to standard output: a path for which nothing is looked up.
    pub(crate) fn to_stream((tree, source): (Tree, Entry), to: &[u8]) -> Self {
        let stream = Entry::stream(to);
        Self {
            tree,
            source,
            to: to.to_vec(),
            dangles: false,
            there: Some(stream.clone()),
            base: stream,
            name: Vec::new(),
        }
    }
}

/// The destination that the user named. Symbolic links are followed there, unless a link is copied.
pub(crate) struct Target<'a> {
    dest: &'a Tree,
    /// As it was named.
    named: Vec<u8>,
    path: Vec<u8>,
    there: Option<Entry>,
    /// Whether a symbolic link leads to the path.
    is_link: bool,
    /// What is in it, if it is a directory.
    known: Option<Known>,
}

impl<'a> Target<'a> {
    /// Looks what is at the destination of so many sources.
    ///
    /// # Errors
    ///
    /// If that cannot be told. So for everything below.
    pub(crate) async fn new(dest: &'a Tree, to: &[u8], sources: usize) -> anyhow::Result<Self> {
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
            dest,
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

    /// Where a source goes: into the directory that is there, under its name, or to the path itself. Without a name
    /// it is what is in the source that is copied.
    pub(crate) async fn root(
        &self,
        (tree, source): (Tree, Entry),
        name: Option<&[u8]>,
    ) -> anyhow::Result<Root> {
        // A link must not replace what a link of its name leads to, which can be what it leads to itself.
        let follows = source.about.kind != FileType::Symlink;
        let (to, there, is_link, base) = match (&self.there, &self.known, name) {
            (Some(dir), Some(known), Some(name)) => {
                let to = join(&self.path, name);
                let there = known.get(self.dest, name, &to).await?;
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
    async fn base(&self, path: &[u8]) -> anyhow::Result<Entry> {
        let parent = match (split(path).0, self.dest) {
            (b"", Tree::Local) => b".",
            (parent, _) => parent,
        };
        let base = self.dest.follow(parent).await?;
        match base.filter(|base| base.about.is_directory()) {
            Some(base) => Ok(base),
            None => {
                let (to, parent) = (self.dest.show(path), self.dest.show(parent));
                bail!("cannot copy to {to}: there is no directory {parent}")
            }
        }
    }
}
