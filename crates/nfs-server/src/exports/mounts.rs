//! File systems that are mounted below an export and served with it (`crossmnt` of exports(5)).
//!
//! Such a file system is an export with the rules of the one above and a number of its own, so that clients
//! see where one file system ends and the next begins. It is reached by the LOOKUP of its name in the
//! directory above, and left by that of `..`; lists of exports do not have it.

use super::{Export, ExportError, Exports, List, below};
use crate::fs::{Access, Attributes, Error, FileId, FileSystem, Identity, Name, Seen, Step};
use siphasher::sip::SipHasher24;
use std::sync::Arc;

/// Where a mounted file system is.
#[derive(Clone, Copy)]
pub(super) struct Above {
    /// The export that the directory above is in.
    export: u32,
    /// That directory.
    dir: FileId,
}

/// The mounted file systems that are entered from an export.
pub(super) type Mounts = Vec<Mount>;

/// A mounted file system that is entered from an export.
#[derive(Clone)]
pub(crate) struct Mount {
    dir: FileId,
    name: Box<[u8]>,
    export: u32,
}

/// A step from one file system to another.
pub(crate) struct Crossing {
    /// Where it leads.
    pub(crate) export: Export,
    pub(crate) file: FileId,
}

impl Exports {
    /// The same with a file system that is mounted at `path`, which is named as clients see it: it begins
    /// with the name of an export, whose rules it has. Mounts above it have to be there already.
    ///
    /// Handles of its files hold a number made of that of the export and the path below it. This may wait
    /// for a disk.
    ///
    /// # Errors
    ///
    /// If there is no export above the path, something there has this name, or the path does not lead there.
    pub fn with_mount(self, path: &str, fs: Arc<dyn FileSystem>) -> Result<Self, ExportError> {
        let mut list = List::clone(&self.inner.current.load());
        let exports = &list.exports;
        let missing = || ExportError::NotReached(path.into());
        let nearest = |is_mount: bool| {
            let candidates = exports.iter().enumerate();
            let above = candidates.filter_map(|(index, export)| {
                let rest = below(path.as_bytes(), export.name.as_bytes())?;
                (is_mount || export.above.is_none()).then_some((index, rest))
            });
            above.min_by_key(|(_, rest)| rest.len())
        };
        let (_, rest) = nearest(false).ok_or_else(missing)?;
        let (base, _) = nearest(false).ok_or_else(missing)?;
        let id = id_of(exports[base].id, rest);
        list.check_free(path, id)?;
        let (index, rest) = nearest(true).ok_or_else(missing)?;
        let above = &exports[index];
        let mut names = rest.split(|&byte| byte == b'/');
        let name = names.next_back().ok_or_else(missing)?;
        let mut dir = above.fs.root();
        for name in names {
            let name = Name::new(name).map_err(|_| missing())?;
            let found = above.fs.lookup(&Identity::root(), dir, Step::Name(name));
            dir = found.wait().result.map_err(|_| missing())?.file;
        }
        let mount = Export {
            name: path.into(),
            fs,
            options: Arc::clone(&above.options),
            id,
            above: Some(Above {
                export: above.id,
                dir,
            }),
            mounts: Arc::default(),
        };
        Arc::make_mut(&mut list.exports[index].mounts).push(Mount {
            dir,
            name: name.into(),
            export: id,
        });
        list.exports.push(mount);
        Ok(self.with_list(list))
    }

    /// The directories that lead to a mounted file system: in each file system above it, the nearest
    /// first, the path to the directory that has the next one in it. None for an export of the list.
    pub(crate) fn way_to(&self, export: &Export) -> Vec<(Arc<dyn FileSystem>, Vec<u8>)> {
        let exports = &self.inner.current.load().exports;
        let mut way = Vec::new();
        let mut at = export;
        while let Some(Above { export: id, .. }) = at.above
            && let Some(above) = exports.iter().find(|other| other.id == id)
        {
            let path = below(at.name.as_bytes(), above.name.as_bytes()).unwrap_or_default();
            let dirs = path.iter().rposition(|&byte| byte == b'/');
            way.push((Arc::clone(&above.fs), path[..dirs.unwrap_or(0)].to_vec()));
            at = above;
        }
        way
    }

    /// The file system that a step in a directory leads to, if it is another.
    pub(crate) fn crossing(&self, from: &Export, dir: FileId, step: &Step<'_>) -> Option<Crossing> {
        let (id, file) = match step {
            Step::Here => return None,
            Step::Parent => {
                let above = from.above.filter(|_| dir == from.fs.root())?;
                (above.export, Some(above.dir))
            }
            Step::Name(name) => (from.mounted(dir, name.bytes())?, None),
        };
        let exports = &self.inner.current.load().exports;
        let export = exports.iter().find(|export| export.id == id)?.clone();
        let file = file.unwrap_or_else(|| export.fs.root());
        Some(Crossing { export, file })
    }
}

impl Export {
    /// The number of the file system that is mounted at a name in a directory.
    pub(crate) fn mounted(&self, dir: FileId, name: &[u8]) -> Option<u32> {
        let here = |mount: &&Mount| mount.dir == dir && *mount.name == *name;
        self.mounts.iter().find(here).map(|mount| mount.export)
    }

    /// The names in a directory at which other file systems are mounted.
    pub(crate) fn mounted_in(&self, dir: FileId) -> Vec<Box<[u8]>> {
        let here = self.mounts.iter().filter(|mount| mount.dir == dir);
        here.map(|mount| mount.name.clone()).collect()
    }
}

impl Crossing {
    /// Whether the caller may take the step from `dir`, and what it finds. It may wait for a disk.
    pub(crate) fn take(
        &self,
        who: &Identity,
        from: &dyn FileSystem,
        dir: FileId,
    ) -> Seen<Attributes> {
        let allowed = from.access(who, dir, Access::LOOKUP).wait();
        let result = allowed
            .result
            .and_then(|granted| match granted.contains(Access::LOOKUP) {
                true => self.export.fs.attributes(self.file).wait(),
                false => Err(Error::Access),
            });
        Seen {
            attributes: allowed.attributes,
            result,
        }
    }
}

/// The number of a file system that is mounted at a path below the export of this number.
fn id_of(base: u32, rest: &[u8]) -> u32 {
    let mut path = base.to_be_bytes().to_vec();
    path.extend_from_slice(rest);
    u32::try_from(SipHasher24::new().hash(&path) >> 32).unwrap_or(0)
}
