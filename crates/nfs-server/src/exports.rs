//! Exports: file systems with their paths, access lists and user mapping.

mod mounts;
mod pseudo;

use crate::client_options::{ClientOptions, ExportOptions};
use crate::export_metrics::{ExportCounters, ExportStats, Slot};
use crate::fs::{FileId, FileSystem};
use crate::handle::HandleKey;
use crate::recent::Recent;
use arc_swap::{ArcSwap, Guard};
pub(crate) use mounts::Crossing;
use mounts::{Above, Mounts};
use nfs_proto::limits::MAX_EXPORT_PATH;
use nfs_proto::{FileHandle, Status};
use oncrpc::Caller;
pub(crate) use pseudo::{Below, PSEUDO_EXPORT, PseudoTree, number_of};
use siphasher::sip::SipHasher24;
use std::cell::Cell;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why an export is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
#[non_exhaustive]
pub enum ExportError {
    #[error("'{0}' is no name for an export: it begins with / and has no empty part, . or ..")]
    Name(String),
    #[error("two exports are named '{0}'")]
    Duplicate(String),
    #[error(
        "the exports '{0}' and '{1}' cannot be told apart by their handles; give one of them another name or fsid"
    )]
    Collision(String, String),
    #[error("no export leads to the directory '{0}'")]
    NotReached(String),
}

/// The list of exports. Clones share the list, which can be [replaced](Self::replace) while it is
/// in use.
#[derive(Clone)]
pub struct Exports {
    inner: Arc<Inner>,
}

struct Inner {
    key: HandleKey,
    /// Shared with the lists that are built to replace this one.
    counters: Arc<ExportCounters>,
    current: ArcSwap<List>,
}

/// A version of the list: exports and mounts at one moment.
#[derive(Clone, Default)]
pub(crate) struct List {
    /// Number that no other list has, once this one can be found: a call is judged by it and with it, and what was judged with an
    /// earlier list counts no more.
    number: u64,
    pub(crate) exports: Vec<Export>,
    absent: Vec<Absent>,
    /// Paths of file systems that were unmounted, as clients see them.
    unmounted: Vec<String>,
    /// Directories above the exports.
    pseudo: Arc<PseudoTree>,
}

/// A list of exports before it was replaced.
#[derive(Clone)]
pub struct ExportsBefore(Arc<List>);

impl ExportsBefore {
    /// Returns the numbers of exports whose file systems are in use no more: they are in the list no longer, nor as one whose file
    /// system is missing, or have another one.
    pub(crate) fn gone_in(&self, now: &List) -> Vec<u32> {
        let before = self.0.exports.iter();
        let gone = before.filter(|export| now.has_lost(export));
        gone.map(|export| export.id).collect()
    }
}

impl std::fmt::Debug for ExportsBefore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.exports.iter().map(|export| &export.name);
        f.debug_list().entries(names).finish()
    }
}

/// An export whose file system is missing.
#[derive(Clone)]
struct Absent {
    name: String,
    options: ExportOptions,
    id: u32,
    slot: Slot,
    why: String,
}

/// Why a path is in no export that can be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// No export contains the path.
    NoExport,
    /// The export that contains the path has no file system now, or one was unmounted on the way,
    /// for this reason.
    Absent(String),
}

/// An export and its file system.
#[derive(Clone)]
pub(crate) struct Export {
    /// Path, which begins with `/`.
    pub(crate) name: String,
    /// `LocalFs` in `serve`.
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) options: Arc<ExportOptions>,
    /// Number of the export in handles, and of its file system in attributes (`fsid`).
    id: u32,
    /// Its counters; those of the export above, if the file system is mounted below one.
    slot: Slot,
    /// Mount point, if the file system is mounted below another export.
    above: Option<Above>,
    mounts: Arc<Mounts>,
}

/// A file of a handle, with the rights of the caller.
pub(crate) struct Target {
    pub(crate) export: ServedExport,
    pub(crate) file: FileId,
    /// Rights of the caller, and its user mapping.
    pub(crate) options: ClientOptions,
}

/// An export and the version of the list in which a call found it.
pub(crate) struct ServedExport {
    list: Guard<Arc<List>>,
    index: usize,
}

impl Deref for ServedExport {
    type Target = Export;

    fn deref(&self) -> &Export {
        &self.list.exports[self.index]
    }
}

/// All on which the rights of a caller depend: the list with its rules, and what [`ExportOptions::for_caller`] looks at.
#[derive(Clone, Copy, PartialEq)]
struct Rights {
    list: u64,
    export: u32,
    address: IpAddr,
    local_uid: Option<u32>,
}

/// An export that serves a caller.
#[derive(Clone, Copy)]
struct Admitted {
    index: usize,
    slot: Slot,
    options: ClientOptions,
}

thread_local! {
    /// Callers that were served last. Who was refused is judged anew.
    static RECENT: Recent<Rights, Admitted> = const { Recent::new() };
}

impl Exports {
    /// Creates an empty list. Handles are sealed with `key`.
    pub fn new(key: HandleKey) -> Self {
        Self::counted_by(key, Arc::default())
    }

    fn counted_by(key: HandleKey, counters: Arc<ExportCounters>) -> Self {
        Self {
            inner: Arc::new(Inner {
                key,
                counters,
                current: ArcSwap::default(),
            }),
        }
    }

    /// Creates an empty list with the same key and the same counters, to build the argument of
    /// [`replace`](Self::replace).
    #[must_use]
    pub fn none(&self) -> Self {
        Self::counted_by(self.inner.key.clone(), Arc::clone(&self.inner.counters))
    }

    /// Adds an export with a name such as `/data`.
    ///
    /// Handles contain a number derived from the name, or the [configured
    /// number](ExportOptions::fsid). They stay valid as long as it does, whatever the order of
    /// exports.
    ///
    /// # Errors
    ///
    /// If the name is invalid or taken.
    pub fn with(
        self,
        name: &str,
        fs: Arc<dyn FileSystem>,
        options: ExportOptions,
    ) -> Result<Self, ExportError> {
        let mut list = List::clone(&self.inner.current.load());
        let id = list.claim(name, &options)?;
        list.exports.push(Export {
            name: name.into(),
            fs,
            options: Arc::new(options),
            id,
            slot: self.inner.counters.slot(name),
            above: None,
            mounts: Arc::default(),
        });
        Ok(self.with_list(list))
    }

    /// Adds an export whose file system is missing now, with the reason. It cannot be mounted and
    /// is not listed, and calls with its handles are answered jukebox (NFS3ERR_JUKEBOX): clients
    /// wait until the file system is back.
    ///
    /// # Errors
    ///
    /// If the name is invalid or taken.
    pub fn with_absent(
        self,
        name: &str,
        why: &str,
        options: ExportOptions,
    ) -> Result<Self, ExportError> {
        let mut list = List::clone(&self.inner.current.load());
        let id = list.claim(name, &options)?;
        list.absent.push(Absent {
            name: name.into(),
            options,
            id,
            slot: self.inner.counters.slot(name),
            why: why.into(),
        });
        Ok(self.with_list(list))
    }

    fn with_list(&self, mut list: List) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let other = self.none();
        list.number = NEXT.fetch_add(1, Relaxed);
        list.pseudo = Arc::new(PseudoTree::of(
            list.named().map(|(name, number, _)| (name, number)),
        ));
        other.inner.current.store(Arc::new(list));
        other
    }

    /// Replaces the list by that of `others`, in all clones too. Calls in service go on with the
    /// old list. Handles of exports in both lists stay valid if the keys are equal.
    pub fn replace(&self, others: &Self) {
        self.inner.current.store(others.inner.current.load_full());
    }

    /// Returns the names of the exports and their rules, without file systems mounted below them.
    pub fn list(&self) -> Vec<(String, ExportOptions)> {
        let all = self.all();
        let named = all.exports.iter().filter(|export| export.above.is_none());
        named
            .map(|export| (export.name.clone(), ExportOptions::clone(&export.options)))
            .collect()
    }

    /// Whether any export is served to this address, including exports without a file system at
    /// present.
    pub fn admits(&self, address: IpAddr) -> bool {
        let list = self.inner.current.load();
        let present = list.exports.iter().map(|export| &*export.options);
        let absent = list.absent.iter().map(|absent| &absent.options);
        present
            .chain(absent)
            .any(|options| options.for_client(address).is_some())
    }

    /// Returns the list as it is, to compare that with a later one.
    pub fn before(&self) -> ExportsBefore {
        ExportsBefore(self.all())
    }

    pub(crate) fn counters(&self) -> &Arc<ExportCounters> {
        &self.inner.counters
    }

    /// Returns the statistics of the exports, also of those without a file system at present. File
    /// systems mounted below an export count as a part of it.
    pub(crate) fn stats(&self) -> Vec<ExportStats> {
        let list = self.all();
        let named = list.exports.iter().filter(|export| export.above.is_none());
        let present = named.map(|export| (&*export.name, export.slot));
        let absent = list.absent.iter();
        let absent = absent.map(|export| (&*export.name, export.slot));
        self.inner.counters.stats(present.chain(absent))
    }

    pub(crate) fn all(&self) -> Arc<List> {
        self.inner.current.load_full()
    }

    /// Opens a handle: returns the file and the rights of the caller. Sets `slot` to that of the
    /// counters, if the export exists, also if the caller may not use it.
    pub(crate) fn open(
        &self,
        handle: &FileHandle,
        caller: &Caller,
        slot: &Cell<Option<Slot>>,
    ) -> Result<Target, Status> {
        let (id, file) = self.inner.key.open(handle)?;
        let list = self.inner.current.load();
        let (index, options) = list.admit(id, caller, slot)?;
        Ok(Target {
            export: ServedExport { list, index },
            file,
            options,
        })
    }

    /// Returns the current version of the list, for a call with several handles.
    pub(crate) fn current(&self) -> Guard<Arc<List>> {
        self.inner.current.load()
    }

    /// Takes the number of an export and a file out of a handle.
    pub(crate) fn unseal(&self, handle: &[u8]) -> Result<(u32, FileId), Status> {
        self.inner.key.open(handle)
    }

    /// Seals the handle of a file.
    pub(crate) fn seal(&self, export: u32, file: FileId) -> FileHandle {
        self.inner.key.seal(export, file)
    }

    /// Finds the export that contains a path; returns it with the rest of the path. If there is
    /// only one export, `/` names it too. Slashes may be repeated, as in any path of POSIX.
    pub(crate) fn resolve(&self, path: &[u8]) -> Result<(Export, Vec<u8>), Unresolved> {
        let mut path = path.to_vec();
        path.dedup_by(|a, b| (*a, *b) == (b'/', b'/'));
        let list = self.all();
        list.resolve(&path)
            .or_else(|error| match (only(&list), below(&path, b"/")) {
                (Some(only), Some(rest)) if error == Unresolved::NoExport => {
                    list.resolve(&[only.name.as_bytes(), b"/", rest].concat())
                }
                _ => Err(error),
            })
    }
}

impl List {
    /// Returns the index of an export and the rights of a caller. Sets `slot` to that of the counters, if the export
    /// exists, also if the caller may not use it.
    pub(crate) fn admit(
        &self,
        id: u32,
        caller: &Caller,
        slot: &Cell<Option<Slot>>,
    ) -> Result<(usize, ClientOptions), Status> {
        let rights = Rights {
            list: self.number,
            export: id,
            address: caller.addr.ip(),
            local_uid: caller.local_uid,
        };
        let number = caller.connection.number().wrapping_add(id.into());
        if let Some(again) = RECENT.with(|recent| recent.answer(number, |other| *other == rights)) {
            slot.set(Some(again.slot));
            return Ok((again.index, again.options));
        }
        let (index, options) = self.judge(id, caller, slot)?;
        let admitted = Admitted {
            index,
            slot: self.exports[index].slot,
            options,
        };
        RECENT.with(|recent| recent.remember(number, rights, admitted));
        Ok((index, options))
    }

    fn judge(
        &self,
        id: u32,
        caller: &Caller,
        slot: &Cell<Option<Slot>>,
    ) -> Result<(usize, ClientOptions), Status> {
        let Some(index) = self.exports.iter().position(|export| export.id == id) else {
            let absent = self.absent.iter().find(|absent| absent.id == id);
            let absent = absent.ok_or(Status::Stale)?;
            slot.set(Some(absent.slot));
            return Err(match absent.options.for_caller(caller) {
                Some(_) => Status::Jukebox,
                None => Status::Access,
            });
        };
        let export = &self.exports[index];
        slot.set(Some(export.slot));
        let options = export.options.for_caller(caller).ok_or(Status::Access)?;
        Ok((index, options))
    }

    /// Returns the exports with a path of their own, also those without a file system at present: path, number, rules.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, u32, &ExportOptions)> {
        let present = self.exports.iter().filter(|export| export.above.is_none());
        let present = present.map(|export| (&*export.name, export.id, &*export.options));
        let absent = self.absent.iter();
        present.chain(absent.map(|export| (&*export.name, export.id, &export.options)))
    }

    /// Returns the numbers of an export and of what is mounted below it.
    pub(crate) fn numbers_of(&self, name: &str) -> Vec<u32> {
        let roots = self.exports.iter().filter(|export| export.above.is_none());
        let root = roots.clone().find(|export| export.name == name);
        let Some(root) = root else {
            return Vec::new();
        };
        let is_within = |export: &&Export| {
            // The nearest export with a path of its own.
            let above = roots
                .clone()
                .filter(|root| below(export.name.as_bytes(), root.name.as_bytes()).is_some());
            let nearest = above.max_by_key(|root| root.name.len());
            nearest.is_some_and(|nearest| nearest.id == root.id)
        };
        let within = self.exports.iter().filter(is_within);
        within.map(|export| export.id).collect()
    }

    /// Returns whether the file system of an export of an earlier list is in use no more.
    pub(crate) fn has_lost(&self, export: &Export) -> bool {
        let mut present = self.exports.iter();
        match present.find(|other| other.id == export.id) {
            Some(other) => !Arc::ptr_eq(&other.fs, &export.fs),
            None => self.absent.iter().all(|other| other.id != export.id),
        }
    }

    /// Returns the numbers and names of all exports that have a file system now.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u32, &str)> {
        let exports = self.exports.iter();
        exports.map(|export| (export.id, &*export.name))
    }

    /// Returns the directories above the exports, as NFSv4 shows them.
    pub(crate) fn pseudo(&self) -> &PseudoTree {
        &self.pseudo
    }

    /// Returns the number of a new export, if its name and number are free.
    fn claim(&self, name: &str, options: &ExportOptions) -> Result<u32, ExportError> {
        let well_formed = name.len() <= MAX_EXPORT_PATH as usize
            && !name.contains('\0')
            && (name == "/"
                || name.strip_prefix('/').is_some_and(|rest| {
                    rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
                }));
        if !well_formed {
            return Err(ExportError::Name(name.into()));
        }
        let id = options.fsid.map_or_else(|| id_of(name), u32::from);
        // The number of no export.
        let id = id.max(PSEUDO_EXPORT + 1);
        self.check_free(name, id)?;
        Ok(id)
    }

    /// Checks that no export has this name or number.
    fn check_free(&self, name: &str, id: u32) -> Result<(), ExportError> {
        let present = self.exports.iter().map(|other| (&other.name, other.id));
        let absent = self.absent.iter().map(|other| (&other.name, other.id));
        let mut others = present.chain(absent);
        match others.find(|(other, number)| *other == name || *number == id) {
            Some((other, _)) if other == name => Err(ExportError::Duplicate(name.into())),
            Some((other, _)) => Err(ExportError::Collision(other.clone(), name.into())),
            None => Ok(()),
        }
    }

    /// Returns the nearest export above a path, and the rest of the path.
    fn resolve(&self, path: &[u8]) -> Result<(Export, Vec<u8>), Unresolved> {
        let rest = |name: &str| below(path, name.as_bytes());
        let absent = self.absent.iter();
        let absent = absent.map(|export| (&*export.name, &*export.why));
        let unmounted = self.unmounted.iter();
        let absent = absent.chain(unmounted.map(|name| (&**name, "it was unmounted")));
        let absent = absent.filter_map(|(name, why)| Some((rest(name)?, why)));
        let absent = absent.min_by_key(|(rest, _)| rest.len());
        let present = self.exports.iter();
        let present = present.filter_map(|export| Some((rest(&export.name)?, export)));
        let present = present.min_by_key(|(rest, _)| rest.len());
        match (present, absent) {
            (Some((nearer, _)), Some((rest, why))) if rest.len() < nearer.len() => {
                Err(Unresolved::Absent(why.to_owned()))
            }
            (Some((rest, export)), _) => Ok((export.clone(), rest.to_vec())),
            (None, Some((_, why))) => Err(Unresolved::Absent(why.to_owned())),
            (None, None) => Err(Unresolved::NoExport),
        }
    }
}

/// Returns the only export, if there is exactly one.
fn only(list: &List) -> Option<&Export> {
    let mut named = list.exports.iter().filter(|export| export.above.is_none());
    match (named.next(), named.next()) {
        (Some(only), None) if list.absent.is_empty() => Some(only),
        _ => None,
    }
}

/// Returns every path that can be mounted as an export: all names, and `/` if there is only one
/// export.
pub(crate) fn mountable(list: &List) -> impl Iterator<Item = (&str, &Export)> {
    let root = only(list).filter(|only| only.name != "/");
    let named = list.exports.iter().filter(|export| export.above.is_none());
    let named = named.map(|export| (&*export.name, export));
    named.chain(root.map(|only| ("/", only)))
}

/// Derives the number of an export from its name.
fn id_of(name: &str) -> u32 {
    let hash = SipHasher24::new().hash(name.as_bytes());
    u32::try_from(hash >> 32).unwrap_or(0)
}

impl Export {
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the place of its counters.
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// Whether it is in the list itself, and not mounted below another.
    pub(crate) fn has_own_path(&self) -> bool {
        self.above.is_none()
    }
}

/// Returns the part of `path` below `name`, if it is below.
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
    use crate::{AccessList, MemFs, Squash};
    use std::num::NonZeroU32;

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
        let resolved = exports.resolve(path.as_bytes()).ok();
        let resolved =
            resolved.map(|(export, rest)| (export.name, String::from_utf8(rest).unwrap()));
        let found =
            found.map(|(name, rest)| (name.to_owned(), rest.trim_start_matches('/').to_owned()));
        assert_eq!(resolved, found);
    }

    /// Checks with which rights a caller is served, when it comes and when it comes again.
    #[track_caller]
    fn check_rights(exports: &Exports, caller: &Caller, rights: Result<(bool, Squash), Status>) {
        for _ in 0..2 {
            let slot = Cell::new(None);
            let list = exports.current();
            let admitted = list.admit(export_number(&list, "/data"), caller, &slot);
            let admitted = admitted.map(|(index, options)| {
                assert_eq!(slot.get(), Some(list.exports[index].slot));
                assert_eq!(list.exports[index].name, "/data");
                (options.read_only, options.squash)
            });
            assert_eq!(admitted, rights);
        }
    }

    fn export_number(list: &List, name: &str) -> u32 {
        let mut named = list.named();
        named
            .find(|(other, ..)| *other == name)
            .map_or_else(|| id_of(name), |(_, number, _)| number)
    }

    #[test]
    fn replaced_list_counts_for_the_next_call_of_a_caller_that_was_served() {
        let exports = exports(&["/data"]).unwrap();
        let caller = Caller::new(([127, 0, 0, 1], 700).into());
        let replace = |options: ExportOptions| {
            let fs = Arc::new(MemFs::new(1 << 20));
            exports.replace(&exports.none().with("/data", fs, options).unwrap());
        };
        let usual = Ok((false, Squash::Root));
        check_rights(&exports, &caller, usual);
        replace(ExportOptions::default().with_read_only(true));
        check_rights(&exports, &caller, Ok((true, Squash::Root)));
        replace(ExportOptions::default().with_squash(Squash::All));
        check_rights(&exports, &caller, Ok((false, Squash::All)));
        replace(ExportOptions::default().with_allow(AccessList::new([])));
        check_rights(&exports, &caller, Err(Status::Access));
        replace(ExportOptions::default());
        check_rights(&exports, &caller, usual);
        let absent = exports.none();
        let absent = absent.with_absent("/data", "gone", ExportOptions::default());
        exports.replace(&absent.unwrap());
        check_rights(&exports, &caller, Err(Status::Jukebox));
        // At another place of the list.
        let two = self::exports(&["/other", "/data"]).unwrap();
        exports.replace(&two);
        check_rights(&exports, &caller, usual);
        exports.replace(&exports.none());
        check_rights(&exports, &caller, Err(Status::Stale));
    }

    #[test]
    fn rights_are_those_of_the_address_and_user_that_call() {
        let only = "192.0.2.1".parse().unwrap();
        let options = ExportOptions::default()
            .with_squash(Squash::RemoteRoot)
            .with_allow(AccessList::new([only]));
        let none = Exports::new(HandleKey::random().unwrap());
        let fs = Arc::new(MemFs::new(1 << 20));
        let exports = none.with("/data", fs, options).unwrap();
        let remote = Caller::new(([192, 0, 2, 1], 700).into());
        // On the same connection, so that it has the same place among those that are remembered.
        let root = Caller {
            local_uid: Some(0),
            ..remote
        };
        let user = Caller {
            local_uid: Some(1),
            ..remote
        };
        let other = Caller {
            addr: ([192, 0, 2, 2], 700).into(),
            ..remote
        };
        for _ in 0..2 {
            check_rights(&exports, &remote, Ok((false, Squash::Root)));
            check_rights(&exports, &root, Ok((false, Squash::None)));
            check_rights(&exports, &user, Ok((false, Squash::Root)));
            check_rights(&exports, &other, Err(Status::Access));
        }
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
            let all = exports.all();
            mountable(&all).map(|(path, _)| path.to_owned()).collect()
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
    fn fsid_takes_the_place_of_the_name_in_handles() {
        let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
        let none = Exports::new(HandleKey::random().unwrap());
        let seven = ExportOptions::default().with_fsid(NonZeroU32::new(7));
        let with = |name: &str| {
            let one = none.none().with(name, Arc::clone(&fs), seven.clone());
            one.unwrap()
        };
        let id = |exports: &Exports| exports.all().exports[0].id();
        assert_eq!((id(&with("/a")), id(&with("/b"))), (7, 7));
        assert_eq!(
            with("/a").with("/b", Arc::clone(&fs), seven.clone()).err(),
            Some(ExportError::Collision("/a".into(), "/b".into()))
        );
    }

    #[test]
    fn export_that_is_absent_has_its_clients_wait() {
        let served = exports(&["/data"]).unwrap();
        let handle = served.seal(
            served.all().exports[0].id(),
            served.all().exports[0].fs.root(),
        );
        let here = Caller::new("127.0.0.1:1".parse().unwrap());
        let there = Caller::new("192.0.2.1:1".parse().unwrap());
        let (absent, fs) = (served.none(), Arc::clone(&served.all().exports[0].fs));
        let absent = absent
            .with_absent("/data", "no disk", ExportOptions::default())
            .unwrap();
        served.replace(&absent);
        assert_eq!(
            served.open(&handle, &here, &Cell::default()).err(),
            Some(Status::Jukebox)
        );
        assert_eq!(
            served.open(&handle, &there, &Cell::default()).err(),
            Some(Status::Access)
        );
        assert!(served.admits(here.addr.ip()) && !served.admits(there.addr.ip()));
        assert!(served.list().is_empty());
        let resolved = |exports: &Exports, path: &str| exports.resolve(path.as_bytes()).err();
        let no_disk = Some(Unresolved::Absent("no disk".to_owned()));
        assert_eq!(resolved(&served, "/data/x"), no_disk);
        assert_eq!(resolved(&served, "/other"), Some(Unresolved::NoExport));

        // Its name and number are taken, and another export is not alone beside it.
        let with = |name: &str, options| absent.clone().with(name, Arc::clone(&fs), options);
        let taken = with("/data", ExportOptions::default()).err();
        assert_eq!(taken, Some(ExportError::Duplicate("/data".to_owned())));
        let two = with("/other", ExportOptions::default()).unwrap();
        assert_eq!(resolved(&two, "/"), Some(Unresolved::NoExport));
        assert_eq!(resolved(&two, "/other"), None);
        let within = with("/", ExportOptions::default()).unwrap();
        assert_eq!(resolved(&within, "/data/x"), no_disk);
        assert_eq!(resolved(&within, "/x"), None);
    }

    #[test]
    fn export_below_what_was_unmounted_can_be_mounted() {
        let served = exports(&["/", "/sub/own"]).unwrap();
        let served = served.with_unmounted("/sub").unwrap();
        let resolved = |path: &str| served.resolve(path.as_bytes()).map(|(found, _)| found.name);
        let unmounted = Err(Unresolved::Absent("it was unmounted".to_owned()));
        assert_eq!(resolved("/sub/x"), unmounted);
        assert_eq!(resolved("/sub/own/x"), Ok("/sub/own".to_owned()));
    }

    #[test]
    fn replaced_list_is_that_of_all_clones_and_of_no_call_that_has_begun() {
        let served = exports(&["/a", "/b"]).unwrap();
        let clone = served.clone();
        let handle = served.seal(
            served.all().exports[0].id(),
            served.all().exports[0].fs.root(),
        );
        let here = Caller::new("127.0.0.1:1".parse().unwrap());
        let begun = served.open(&handle, &here, &Cell::default()).unwrap();
        let fs = Arc::clone(&served.all().exports[0].fs);
        let kept = served.none().with("/a", fs, ExportOptions::default());
        served.replace(&kept.unwrap());
        assert_eq!(clone.list().len(), 1);
        assert_eq!(begun.export.name, "/a");
        assert!(
            clone.open(&handle, &here, &Cell::default()).is_ok(),
            "it is there before and after"
        );
        served.replace(&served.none());
        assert_eq!(
            clone.open(&handle, &here, &Cell::default()).err(),
            Some(Status::Stale)
        );
        assert!(!clone.admits(here.addr.ip()));
    }
}
