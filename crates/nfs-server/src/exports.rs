//! Exports: file systems with their paths, access lists and user mapping.

use crate::access_list::AccessList;
use crate::fs::{FileId, FileSystem, Identity};
use crate::handle::HandleKey;
use nfs_proto::limits::MAX_EXPORT_PATH;
use nfs_proto::{FileHandle, Status};
use oncrpc::{Caller, Credential};
use siphasher::sip::SipHasher24;
use std::sync::Arc;

/// User and group of those who are not believed, or have none: `nobody` on most systems.
pub const ANONYMOUS: u32 = 65_534;

/// Which callers are mapped to [`ANONYMOUS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Squash {
    /// Root and its group.
    #[default]
    Root,
    /// Everybody.
    All,
    /// None, except callers without a Unix identity.
    None,
}

impl Squash {
    /// Maps the credential of a caller to an identity.
    pub fn identity(self, credential: &Credential) -> Identity {
        let anonymous = || Identity::new(ANONYMOUS, ANONYMOUS);
        match (self, credential) {
            (Self::All, _) | (_, Credential::None | Credential::Other { .. }) => anonymous(),
            (Self::None | Self::Root, Credential::Sys(sys)) => {
                let squash = |id: u32| match id {
                    0 if self == Self::Root => ANONYMOUS,
                    // No number of anybody: chown(2) would take it for "leave it".
                    u32::MAX => ANONYMOUS,
                    id => id,
                };
                Identity {
                    uid: squash(sys.uid),
                    gid: squash(sys.gid),
                    groups: sys.gids.iter().map(|&gid| squash(gid)).collect(),
                }
            }
        }
    }
}

/// Whether what a caller shows is understood here. Taking one with another flavour for nobody would
/// let it in as somebody it did not claim to be, and tell it that its protection works.
pub(crate) fn is_understood(credential: &Credential) -> bool {
    match credential {
        Credential::None | Credential::Sys(_) => true,
        Credential::Other { .. } => false,
    }
}

/// The rules of an export.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Whether the export is read-only.
    pub read_only: bool,
    /// Which callers are mapped to the anonymous user.
    pub squash: Squash,
    /// Addresses that are served.
    pub allow: AccessList,
}

/// Why something cannot be exported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
pub enum ExportError {
    #[error("'{0}' is no name for an export: it begins with / and has no empty part, . or ..")]
    Name(String),
    #[error("two exports are named '{0}'")]
    Duplicate(String),
    #[error(
        "the exports '{0}' and '{1}' cannot be told apart by their handles; rename one of them"
    )]
    Collision(String, String),
}

/// Everything that is served. Cloning it gives the same list.
#[derive(Clone)]
pub struct Exports {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    key: HandleKey,
    exports: Vec<Export>,
}

/// One thing that is served.
#[derive(Clone)]
pub(crate) struct Export {
    /// It begins with `/`.
    pub(crate) name: String,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) options: ExportOptions,
    /// In handles, and as the number of the file system in attributes.
    id: u32,
}

/// A file that a caller may ask about.
pub(crate) struct Target<'a> {
    pub(crate) export: &'a Export,
    pub(crate) file: FileId,
}

impl Exports {
    /// No export yet. Handles are sealed with `key`.
    pub fn new(key: HandleKey) -> Self {
        Self {
            inner: Arc::new(Inner {
                key,
                exports: Vec::new(),
            }),
        }
    }

    /// The same with one more export, named as in `/data`.
    ///
    /// Handles hold a number made of the name: they stay good while the name stays, in whatever
    /// order the exports are given.
    ///
    /// # Errors
    ///
    /// If the name is none, or taken.
    pub fn with(
        mut self,
        name: &str,
        fs: Arc<dyn FileSystem>,
        options: ExportOptions,
    ) -> Result<Self, ExportError> {
        let well_formed = name.len() <= MAX_EXPORT_PATH as usize
            && !name.contains('\0')
            && (name == "/"
                || name.strip_prefix('/').is_some_and(|rest| {
                    rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
                }));
        if !well_formed {
            return Err(ExportError::Name(name.into()));
        }
        let hash = SipHasher24::new().hash(name.as_bytes());
        let id = u32::try_from(hash >> 32).unwrap_or(0);
        for other in &self.inner.exports {
            if other.name == name {
                return Err(ExportError::Duplicate(name.into()));
            }
            if other.id == id {
                return Err(ExportError::Collision(other.name.clone(), name.into()));
            }
        }
        Arc::make_mut(&mut self.inner).exports.push(Export {
            name: name.into(),
            fs,
            options,
            id,
        });
        Ok(self)
    }

    /// Names of the exports, and their rules.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ExportOptions)> {
        self.all()
            .iter()
            .map(|export| (export.name.as_str(), &export.options))
    }

    pub(crate) fn all(&self) -> &[Export] {
        &self.inner.exports
    }

    /// Every path that can be mounted as an export: all names, and `/` for a single one.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&str, &Export)> {
        let root = match self.all() {
            [only] if only.name != "/" => Some(("/", only)),
            _ => None,
        };
        let named = self.all().iter().map(|export| (&*export.name, export));
        named.chain(root)
    }

    /// The file of a handle.
    pub(crate) fn open(&self, handle: &FileHandle, caller: &Caller) -> Result<Target<'_>, Status> {
        let (id, file) = self.inner.key.open(handle)?;
        let export = self
            .all()
            .iter()
            .find(|export| export.id == id)
            .ok_or(Status::Stale)?;
        if !export.options.allow.allows(caller.addr.ip()) {
            return Err(Status::Access);
        }
        Ok(Target { export, file })
    }

    /// The handle of a file.
    pub(crate) fn seal(&self, export: u32, file: FileId) -> FileHandle {
        self.inner.key.seal(export, file)
    }

    /// The export that a path is in, and the rest of the path. A single export is `/` as well.
    pub(crate) fn resolve<'p>(&self, path: &'p [u8]) -> Option<(&Export, &'p [u8])> {
        let named = self
            .all()
            .iter()
            .filter_map(|export| Some((export, below(path, export.name.as_bytes())?)))
            .min_by_key(|(_, rest)| rest.len());
        match (named, self.all()) {
            (Some(found), _) => Some(found),
            (None, [only]) => Some((only, below(path, b"/")?)),
            (None, _) => None,
        }
    }
}

impl Export {
    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

/// What of `path` is below `name`.
fn below<'p>(path: &'p [u8], name: &[u8]) -> Option<&'p [u8]> {
    if name == b"/" {
        return path.strip_prefix(b"/");
    }
    match path.strip_prefix(name)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemFs;
    use oncrpc::AuthSys;

    fn exports(names: &[&str]) -> Result<Exports, ExportError> {
        let none = Exports::new(HandleKey::random().unwrap());
        names.iter().try_fold(none, |exports, name| {
            exports.with(
                name,
                Arc::new(MemFs::new(1 << 20)),
                ExportOptions::default(),
            )
        })
    }

    #[track_caller]
    fn check(names: &[&str], path: &str, found: Option<(&str, &str)>) {
        let exports = exports(names).unwrap();
        let resolved = exports.resolve(path.as_bytes());
        let resolved =
            resolved.map(|(export, rest)| (&*export.name, std::str::from_utf8(rest).unwrap()));
        assert_eq!(resolved, found);
    }

    #[test]
    fn path_belongs_to_the_longest_export_above_it() {
        let names = ["/data", "/data/old", "/home"];
        check(&names, "/data", Some(("/data", "")));
        check(&names, "/data/", Some(("/data", "")));
        check(&names, "/data/new/x", Some(("/data", "new/x")));
        check(&names, "/data/old/x", Some(("/data/old", "x")));
        check(&names, "/database", None);
        check(&names, "/", None);
        check(&names, "data", None);
    }

    #[test]
    fn single_export_is_the_root_as_well() {
        check(&["/data"], "/", Some(("/data", "")));
        check(&["/data"], "/data/x", Some(("/data", "x")));
        check(&["/data"], "/x/y", Some(("/data", "x/y")));
        check(&["/"], "/x", Some(("/", "x")));
    }

    #[test]
    fn list_names_every_path_that_can_be_mounted() {
        let listed = |names: &[&str]| -> Vec<String> {
            let exports = exports(names).unwrap();
            exports.paths().map(|(path, _)| path.to_owned()).collect()
        };
        assert_eq!(listed(&["/data"]), ["/data", "/"]);
        assert_eq!(listed(&["/"]), ["/"]);
        assert_eq!(listed(&["/a", "/b"]), ["/a", "/b"]);
    }

    #[test]
    fn invalid_and_duplicate_export_names_are_refused() {
        for name in ["", "data", "/data/", "/a//b", "/../x", "/a\0"] {
            assert_eq!(exports(&[name]).err(), Some(ExportError::Name(name.into())));
        }
        assert_eq!(
            exports(&["/a", "/b", "/a"]).err(),
            Some(ExportError::Duplicate("/a".into()))
        );
    }

    #[test]
    fn squashing_replaces_the_configured_users() {
        let root = Credential::Sys(AuthSys {
            gids: [0, 5].into_iter().collect(),
            ..AuthSys::default()
        });
        let user = Credential::Sys(AuthSys {
            uid: 1000,
            gid: 100,
            ..AuthSys::default()
        });
        let nobody = Identity::new(ANONYMOUS, ANONYMOUS);
        let none = Credential::Sys(AuthSys {
            uid: u32::MAX,
            gid: u32::MAX,
            ..AuthSys::default()
        });
        assert_eq!(Squash::None.identity(&none), nobody);
        assert_eq!(Squash::Root.identity(&none), nobody);
        let squashed = Squash::Root.identity(&root);
        assert_eq!((squashed.uid, squashed.gid), (ANONYMOUS, ANONYMOUS));
        assert_eq!(squashed.groups.as_slice(), [ANONYMOUS, 5]);
        assert_eq!(Squash::Root.identity(&user), Identity::new(1000, 100));
        assert_eq!(Squash::All.identity(&user), nobody);
        assert!(Squash::None.identity(&root).is_root());
        assert_eq!(Squash::None.identity(&Credential::None), nobody);
    }
}
