//! File systems that are mounted below an export and served with it (`crossmnt` of exports(5)).
//!
//! Such a file system is an export with the rules of the one above and a number of its own, so that
//! clients see the boundary between file systems. LOOKUP of its name in the directory above enters
//! it, and LOOKUP of `..` leaves it; it is not in lists of exports.

use super::{Export, ExportError, Exports, List, below};
use crate::fs::{Access, Attributes, Error, FileId, FileSystem, Identity, Name, Seen, Step};
use siphasher::sip::SipHasher24;
use std::sync::Arc;

/// Mount point of a mounted file system.
#[derive(Clone, Copy)]
pub(super) struct Above {
    /// Number of the export with the parent directory.
    export: u32,
    /// The parent directory.
    dir: FileId,
}

/// Mount points in an export, current and former.
pub(super) type Mounts = Vec<Mount>;

/// A mount point, current or former.
#[derive(Clone)]
pub(super) struct Mount {
    dir: FileId,
    name: Box<[u8]>,
    /// Number of the mounted export; `None` after it was unmounted.
    export: Option<u32>,
}

/// A name in a directory of an export, at which a file system can be mounted.
struct MountPoint {
    /// Index of the export in the list.
    above: usize,
    dir: FileId,
    name: Box<[u8]>,
    /// Number of the mounted export.
    id: u32,
}

/// A mount crossing: a LOOKUP that leads to another file system.
pub(crate) struct Crossing {
    /// The export it leads to.
    pub(crate) export: Export,
    pub(crate) file: FileId,
}

impl Exports {
    /// Adds a file system that is mounted at `path`, as clients see it: the path begins with the
    /// name of an export, whose rules apply. Mounts above it must have been added before.
    ///
    /// Handles of its files contain a number derived from that of the export and the path below it.
    /// This may wait for a disk.
    ///
    /// # Errors
    ///
    /// If no export contains the path, the name is taken, or the path does not lead there.
    pub fn with_mount(self, path: &str, fs: Arc<dyn FileSystem>) -> Result<Self, ExportError> {
        let mut list = List::clone(&self.inner.current.load());
        let point = MountPoint::find(&list, path)?;
        list.check_free(path, point.id)?;
        let above = &list.exports[point.above];
        let mount = Export {
            name: path.into(),
            fs,
            options: Arc::clone(&above.options),
            id: point.id,
            slot: above.slot,
            above: Some(Above {
                export: above.id,
                dir: point.dir,
            }),
            mounts: Arc::default(),
        };
        let id = Some(point.id);
        Arc::make_mut(&mut list.exports[point.above].mounts).push(point.mount(id));
        list.exports.push(mount);
        Ok(self.with_list(list))
    }

    /// Adds a path at which a file system was mounted that is gone now. The underlying directory is
    /// not shown in its place: clients would write there what belongs elsewhere. Their handles are
    /// stale.
    ///
    /// This may wait for a disk.
    ///
    /// # Errors
    ///
    /// If no export contains the path, the name is taken, or the path does not lead there.
    pub fn with_unmounted(self, path: &str) -> Result<Self, ExportError> {
        let mut list = List::clone(&self.inner.current.load());
        let point = MountPoint::find(&list, path)?;
        list.check_free(path, point.id)?;
        Arc::make_mut(&mut list.exports[point.above].mounts).push(point.mount(None));
        list.unmounted.push(path.to_owned());
        Ok(self.with_list(list))
    }

    /// Returns the path to a mounted file system: for each file system above it, the nearest first,
    /// the path of the directory that contains the mount point. Empty for an export that is in the
    /// list itself.
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

    /// Returns the crossing for a step in a directory, if it leads to another file system. For a
    /// file system that was unmounted this is an error.
    pub(crate) fn crossing(
        &self,
        from: &Export,
        dir: FileId,
        step: &Step<'_>,
    ) -> Option<Result<Crossing, Error>> {
        let (id, file) = match step {
            Step::Here => return None,
            Step::Parent => {
                let above = from.above.filter(|_| dir == from.fs.root())?;
                (above.export, Some(above.dir))
            }
            Step::Name(name) => match from.mounted(dir, name.bytes())?.export {
                Some(id) => (id, None),
                None => return Some(Err(Error::Stale)),
            },
        };
        let exports = &self.inner.current.load().exports;
        let export = exports.iter().find(|export| export.id == id)?.clone();
        let file = file.unwrap_or_else(|| export.fs.root());
        Some(Ok(Crossing { export, file }))
    }
}

impl MountPoint {
    /// Finds the mount point at a path, which is given as clients see it.
    fn find(list: &List, path: &str) -> Result<Self, ExportError> {
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
        let (base, rest) = nearest(false).ok_or_else(missing)?;
        let id = id_of(exports[base].id, rest);
        let (above, rest) = nearest(true).ok_or_else(missing)?;
        let fs = &exports[above].fs;
        let mut names = rest.split(|&byte| byte == b'/');
        let name = names.next_back().ok_or_else(missing)?;
        let mut dir = fs.root();
        for name in names {
            let name = Name::new(name).map_err(|_| missing())?;
            let found = fs.lookup(&Identity::root(), dir, Step::Name(name));
            dir = found.wait().result.map_err(|_| missing())?.file;
        }
        let name = name.into();
        Ok(Self {
            above,
            dir,
            name,
            id,
        })
    }

    fn mount(self, export: Option<u32>) -> Mount {
        let Self { dir, name, .. } = self;
        Mount { dir, name, export }
    }
}

impl Export {
    /// Returns the current or former mount at a name in a directory.
    fn mounted(&self, dir: FileId, name: &[u8]) -> Option<&Mount> {
        let here = |mount: &&Mount| mount.dir == dir && *mount.name == *name;
        self.mounts.iter().find(here)
    }

    /// Returns the names in a directory that are current or former mount points.
    pub(crate) fn mounted_in(&self, dir: FileId) -> Vec<Box<[u8]>> {
        let here = self.mounts.iter().filter(|mount| mount.dir == dir);
        here.map(|mount| mount.name.clone()).collect()
    }
}

impl Crossing {
    /// Crosses the mount from `dir`, if the caller has search permission there. May wait for a
    /// disk.
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

/// Derives the number of a file system that is mounted below the export with number `base`.
fn id_of(base: u32, rest: &[u8]) -> u32 {
    let mut path = base.to_be_bytes().to_vec();
    path.extend_from_slice(rest);
    u32::try_from(SipHasher24::new().hash(&path) >> 32).unwrap_or(0)
}
