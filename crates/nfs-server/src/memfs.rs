//! A file system in memory, of bounded size, for tests and measurements.
//!
//! READ returns the data that WRITE stored by reference, without a copy, except for pieces so small
//! that keeping their buffers would cost more. All permission rules are enforced. The files are
//! lost when the file system is dropped.

mod change;
mod content;
mod directory;
mod tree;
mod xattrs;

use crate::fs::{
    Abilities, Access, Attributes, ChangeKind, Changed, Content, DirBudget, DirFrom, DirPage,
    Error, Failed, FileId, FileKind, FileSystem, Found, HeldFile, Identity, Linked, LockFile, Make,
    Name, OpenAccess, Outcome, ReadOut, Renamed, Reserve, Seen, SetAttributes, SetXattr, Sought,
    Space, Stability, Step, Time, Unheld, Wcc, WriteOut, XattrName, XattrNames, fresh_verifier,
};
use crate::permission::{self, EXECUTE, READ, WRITE};
use bytes::Bytes;
use directory::Names;
use oncrpc::PeerGroup;
use oncrpc::xdr::{Gather, gather_len};
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tree::{Body, Inode, Tree};

/// Largest file, in bytes.
const MAX_FILE: u64 = 1 << 40;

/// Largest number of hard links to a file.
const MAX_LINKS: u32 = 65_000;

/// A file system in memory.
pub struct MemFs {
    tree: Arc<RwLock<Tree>>,
    /// Number of this instance, which is in every id, so that ids of another instance are stale.
    instance: u64,
}

impl MemFs {
    /// Creates an empty file system of up to `limit` bytes, including its own bookkeeping.
    ///
    /// All users may write to its root.
    pub fn new(limit: u64) -> Self {
        Self {
            tree: Arc::new(RwLock::new(Tree::new(limit, Names::default()))),
            instance: fresh_verifier(),
        }
    }

    /// Has names that differ only in the case of ASCII letters be one name, as on vfat and exFAT. An entry keeps the
    /// spelling that it was made with.
    #[must_use]
    pub fn folding_case(self) -> Self {
        self.with_names(Names {
            key: Some(<[u8]>::to_ascii_lowercase),
            fold_case: true,
        })
    }

    /// Has names with the same key be one name, as on file systems that normalize names. An entry keeps the spelling that
    /// it was made with.
    #[must_use]
    pub fn folding_by(self, key: fn(&[u8]) -> Vec<u8>) -> Self {
        self.with_names(Names {
            key: Some(key),
            fold_case: false,
        })
    }

    /// Keeps times that clients set in steps of this many nanoseconds, rounded down, and says so in FSINFO. Other times are
    /// those of the clock.
    #[must_use]
    pub fn keeping_times_in_steps_of(self, nanos: NonZeroU32) -> Self {
        self.write().time_step = nanos;
        self
    }

    fn with_names(self, names: Names) -> Self {
        let mut tree = self.write();
        let step = tree.time_step;
        *tree = Tree::new(tree.space().total, names);
        tree.time_step = step;
        drop(tree);
        self
    }

    fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        write(&self.tree)
    }

    fn number(&self, file: FileId) -> Result<u64, Error> {
        match file.words() {
            Some([number, instance, 0]) if instance == self.instance => Ok(number),
            _ => Err(Error::Stale),
        }
    }

    fn id(&self, number: u64) -> FileId {
        FileId::of_words([number, self.instance, 0])
    }

    fn found(&self, tree: &Tree, number: u64) -> Result<Found, Error> {
        Ok(Found {
            file: self.id(number),
            attributes: tree.get(number)?.attributes(number),
        })
    }

    /// Runs a read-only operation; returns the attributes of `file` with its result.
    fn see<T>(
        &self,
        file: FileId,
        see: impl FnOnce(&Tree, u64, &Inode, &Attributes) -> Result<T, Error>,
    ) -> Outcome<Seen<T>> {
        let tree = self.read();
        Outcome::Ready(match self.number(file) {
            Err(error) => Seen::failed(error),
            Ok(number) => match tree.get(number) {
                Err(error) => Seen::failed(error),
                Ok(inode) => {
                    let attributes = inode.attributes(number);
                    Seen {
                        attributes: Some(attributes),
                        result: see(&tree, number, inode, &attributes),
                    }
                }
            },
        })
    }

    /// Has a range of a file share the data of another.
    fn share(
        &self,
        who: &Identity,
        (from, from_offset): (FileId, u64),
        (to, to_offset): (FileId, u64),
        len: u64,
    ) -> Changed<()> {
        let from = self.number(from);
        self.change(to, |tree, number, before| {
            let source = tree.get(from?)?;
            let content = source.content()?;
            permission::check_read(who, &source.attributes(from?))?;
            permission::check_regular(before.kind)?;
            permission::check_write(who, before)?;
            let end = to_offset.checked_add(len);
            if end.is_none_or(|end| end > MAX_FILE) {
                return Err(Error::TooLarge);
            }
            let data = content.pieces_of(from_offset, len)?;
            let growth = data
                .iter()
                .map(|(_, piece)| piece.len() as u64 + 2 * content::PIECE);
            tree.resize(number, growth.sum::<u64>() + content::PIECE, |content| {
                content.replace(to_offset, len, data);
            })?;
            tree.get_mut(number)?.touch_data();
            Ok(())
        })
    }

    /// Runs a change of `file`; returns its attributes before and after with the result.
    fn change<T>(
        &self,
        file: FileId,
        change: impl FnOnce(&mut Tree, u64, &Attributes) -> Result<T, Error>,
    ) -> Changed<T> {
        let mut tree = self.write();
        let begun = self
            .number(file)
            .and_then(|number| Ok((number, tree.get(number)?.attributes(number))));
        match begun {
            Err(error) => Changed::failed(error),
            Ok((number, before)) => {
                let result = change(&mut tree, number, &before);
                Changed {
                    wcc: wcc(&tree, number, &before, result.is_ok()),
                    result,
                }
            }
        }
    }
}

fn write(tree: &RwLock<Tree>) -> RwLockWriteGuard<'_, Tree> {
    tree.write().unwrap_or_else(PoisonError::into_inner)
}

/// A file that a client has open. No program but the server can lock it.
struct Held {
    tree: Arc<RwLock<Tree>>,
    file: u64,
}

impl HeldFile for Held {
    fn open_for_locks(&self) -> Outcome<Result<Arc<dyn LockFile>, Error>> {
        Unheld.open_for_locks()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        write(&self.tree).release(self.file);
    }
}

/// Checks that a file is of a kind that has extended attributes, as on Linux.
fn check_xattrs(kind: FileKind) -> Result<(), Error> {
    match kind {
        FileKind::Regular | FileKind::Directory => Ok(()),
        _ => Err(Error::Invalid),
    }
}

/// The tree is locked from the look before the change on.
fn wcc(tree: &Tree, number: u64, before: &Attributes, succeeded: bool) -> Wcc {
    let after = tree.get(number).ok().map(|inode| inode.attributes(number));
    Wcc {
        before: Some(before.before()),
        after,
        atomic: succeeded && after.is_some(),
    }
}

impl FileSystem for MemFs {
    fn root(&self) -> FileId {
        self.id(tree::ROOT)
    }

    fn abilities(&self) -> Abilities {
        let tree = self.read();
        Abilities {
            max_file_size: MAX_FILE,
            time_step: tree.time_step.get(),
            max_links: MAX_LINKS,
            max_name: 255,
            case_insensitive: tree.names().fold_case,
            change: ChangeKind::Increasing,
            lists: false,
            xattrs: true,
            clone_block: Some(NonZeroU32::MIN),
        }
    }

    fn write_verifier(&self) -> u64 {
        self.instance
    }

    fn attributes(&self, file: FileId) -> Outcome<Result<Attributes, Error>> {
        let found = self.number(file).and_then(|number| {
            let tree = self.read();
            Ok(tree.get(number)?.attributes(number))
        });
        Outcome::Ready(found)
    }

    fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: SetAttributes,
        guard: Option<Time>,
    ) -> Outcome<Changed<()>> {
        Outcome::Ready(self.change(file, |tree, number, before| {
            if guard.is_some_and(|guard| guard != before.ctime) {
                return Err(Error::NotSync);
            }
            permission::check_set(who, before, &set, || permission::check(who, before, WRITE))?;
            change::set_attributes(tree, who, number, before, &set)
        }))
    }

    fn lookup(&self, who: &Identity, dir: FileId, step: Step<'_>) -> Outcome<Seen<Found>> {
        self.see(dir, |tree, number, inode, attributes| {
            let entries = inode.directory()?;
            if step != Step::Here {
                permission::check(who, attributes, EXECUTE)?;
            }
            let found = match step {
                Step::Here => number,
                Step::Parent => entries.parent,
                Step::Name(name) => entries.get(name.bytes()).ok_or(Error::NotFound)?,
            };
            self.found(tree, found)
        })
    }

    fn access(&self, who: &Identity, file: FileId, wanted: Access) -> Outcome<Seen<Access>> {
        self.see(file, |_, _, _, attributes| {
            permission::access(attributes.is_directory(), wanted, |want| {
                Ok(permission::granted(who, attributes, want))
            })
        })
    }

    fn open(
        &self,
        who: &Identity,
        file: FileId,
        access: OpenAccess,
        _: PeerGroup,
    ) -> Outcome<Result<Arc<dyn HeldFile>, Error>> {
        let open = || {
            let file = self.number(file)?;
            let mut tree = self.write();
            let attributes = tree.get(file)?.attributes(file);
            permission::check_regular(attributes.kind)?;
            if access.contains(OpenAccess::READ) {
                permission::check_read(who, &attributes)?;
            }
            if access.contains(OpenAccess::WRITE) {
                permission::check_write(who, &attributes)?;
            }
            tree.hold(file)?;
            let tree = Arc::clone(&self.tree);
            Ok(Arc::new(Held { tree, file }) as Arc<dyn HeldFile>)
        };
        Outcome::Ready(open())
    }

    fn read_link(&self, _: &Identity, file: FileId) -> Outcome<Seen<Bytes>> {
        self.see(file, |_, _, inode, _| match &inode.body {
            Body::Symlink(text) => Ok(text.clone()),
            Body::File(_) | Body::Directory(_) | Body::Special(..) => Err(Error::Invalid),
        })
    }

    fn read(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Outcome<Seen<ReadOut>> {
        self.see(file, |_, _, inode, attributes| {
            let content = inode.content()?;
            permission::check_read(who, attributes)?;
            Ok(ReadOut {
                data: content.read(offset, count),
                eof: offset.saturating_add(count.into()) >= content.size(),
            })
        })
    }

    fn write(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        data: Gather,
        stability: Stability,
    ) -> Outcome<Changed<WriteOut>> {
        Outcome::Ready(self.change(file, |tree, number, before| {
            permission::check_regular(before.kind)?;
            permission::check_write(who, before)?;
            let len = gather_len(&data);
            let end = offset.checked_add(len as u64);
            if end.is_none_or(|end| end > MAX_FILE) {
                return Err(Error::TooLarge);
            }
            if len > 0 {
                let growth = tree.get(number)?.content()?.growth(offset, &data);
                tree.resize(number, growth, |content| content.write(offset, data))?;
                let inode = tree.get_mut(number)?;
                inode.touch_data();
                if !who.is_root() {
                    inode.mode = permission::without_privilege(before.kind, inode.mode);
                }
            }
            Ok(WriteOut {
                count: u32::try_from(len).map_err(|_| Error::TooLarge)?,
                committed: stability,
            })
        }))
    }

    fn commit(&self, who: &Identity, file: FileId, _: u64, _: u32) -> Outcome<Changed<()>> {
        Outcome::Ready(self.change(file, |_, _, before| {
            permission::check_regular(before.kind)?;
            permission::check_write(who, before)
        }))
    }

    fn make(
        &self,
        who: &Identity,
        dir: FileId,
        name: Name<'_>,
        what: Make,
    ) -> Outcome<Changed<Found>> {
        Outcome::Ready(self.change(dir, |tree, number, before| {
            permission::check_directory(before)?;
            permission::check(who, before, EXECUTE)?;
            let there = tree.get(number)?.directory()?.get(name.bytes());
            let made = match there {
                Some(there) => change::existing(tree, who, there, &what)?,
                None => {
                    permission::check_add(who, before)?;
                    change::make(tree, who, (number, before), name.bytes(), what)?
                }
            };
            self.found(tree, made)
        }))
    }

    fn remove(&self, who: &Identity, dir: FileId, name: Name<'_>) -> Outcome<Changed<()>> {
        Outcome::Ready(self.change(dir, |tree, number, before| {
            let entry = change::entry_to_take(tree, who, (number, before), name.bytes())?;
            if entry.is_directory() {
                return Err(Error::IsDirectory);
            }
            tree.unlink(number, name.bytes())
        }))
    }

    fn remove_directory(
        &self,
        who: &Identity,
        dir: FileId,
        name: Name<'_>,
    ) -> Outcome<Changed<()>> {
        Outcome::Ready(self.change(dir, |tree, number, before| {
            let entry = change::entry_to_take(tree, who, (number, before), name.bytes())?;
            permission::check_directory(&entry)?;
            if !tree.get(entry.fileid)?.directory()?.is_empty() {
                return Err(Error::NotEmpty);
            }
            tree.unlink(number, name.bytes())
        }))
    }

    fn rename(
        &self,
        who: &Identity,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Outcome<Renamed> {
        let mut tree = self.write();
        let begun = self.number(from.0).and_then(|from| {
            let to = self.number(to.0)?;
            Ok((
                (from, tree.get(from)?.attributes(from)),
                (to, tree.get(to)?.attributes(to)),
            ))
        });
        Outcome::Ready(match begun {
            Err(error) => Renamed::failed(error),
            Ok((from_dir, to_dir)) => {
                let result = change::rename(
                    &mut tree,
                    who,
                    (from_dir.0, &from_dir.1, from.1.bytes()),
                    (to_dir.0, &to_dir.1, to.1.bytes()),
                );
                Renamed {
                    from: wcc(&tree, from_dir.0, &from_dir.1, result.is_ok()),
                    to: wcc(&tree, to_dir.0, &to_dir.1, result.is_ok()),
                    result,
                }
            }
        })
    }

    fn link(&self, who: &Identity, file: FileId, dir: FileId, name: Name<'_>) -> Outcome<Linked> {
        let number = match self.number(file) {
            Ok(number) => number,
            Err(error) => return Outcome::Ready(Linked::failed(error)),
        };
        let done = self.change(dir, |tree, dir, before| {
            let file = tree.get(number)?.attributes(number);
            permission::check_directory(before)?;
            if file.is_directory() {
                return Err(Error::Invalid);
            }
            permission::check_add(who, before)?;
            // A file without a name, which is held, gets none.
            if file.links == 0 {
                return Err(Error::NotFound);
            }
            if file.links >= MAX_LINKS {
                return Err(Error::TooManyLinks);
            }
            tree.link(dir, name.bytes(), number)
        });
        let attributes = self.found(&self.read(), number).ok();
        Outcome::Ready(Linked {
            attributes: attributes.map(|found| found.attributes),
            wcc: done.wcc,
            result: done.result,
        })
    }

    fn read_directory(
        &self,
        who: &Identity,
        dir: FileId,
        from: DirFrom,
        budget: DirBudget,
        plus: bool,
    ) -> Outcome<Seen<DirPage>> {
        self.see(dir, |tree, number, inode, attributes| {
            let entries = inode.directory()?;
            permission::check(who, attributes, READ)?;
            // A caller without search permission gets only the names.
            let plus = plus && permission::granted(who, attributes, EXECUTE);
            let verifier = self.instance ^ number;
            if from.cookie != 0 && from.verifier != verifier {
                return Err(Error::BadCookie);
            }
            let mut page = DirPage {
                verifier,
                ..DirPage::default()
            };
            let mut budget = budget;
            for (name, cookie, fileid) in entries.list(number, from.cookie) {
                let dots = cookie <= directory::DOTS;
                let found = if plus && !dots {
                    self.found(tree, fileid).ok()
                } else {
                    None
                };
                let file = found.as_ref().map(|found| found.file);
                if !budget.take(name, file, page.entries.is_empty()) {
                    return Ok(page);
                }
                page.push(name, fileid, cookie, found);
            }
            page.eof = true;
            Ok(page)
        })
    }

    fn space(&self, file: FileId) -> Outcome<Seen<Space>> {
        self.see(file, |tree, _, _, _| Ok(tree.space()))
    }

    fn xattr(&self, who: &Identity, file: FileId, name: XattrName<'_>) -> Outcome<Seen<Bytes>> {
        self.see(file, |_, _, inode, attributes| {
            check_xattrs(attributes.kind)?;
            permission::check(who, attributes, READ)?;
            inode.xattrs.get(name).ok_or(Error::NoXattr)
        })
    }

    fn set_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: XattrName<'_>,
        value: Bytes,
        how: SetXattr,
    ) -> Outcome<Changed<()>> {
        Outcome::Ready(self.change(file, |tree, number, before| {
            check_xattrs(before.kind)?;
            permission::check(who, before, WRITE)?;
            tree.set_xattr(number, name, value, how)
        }))
    }

    fn xattrs(&self, who: &Identity, file: FileId) -> Outcome<Seen<XattrNames>> {
        self.see(file, |_, _, inode, attributes| {
            check_xattrs(attributes.kind)?;
            permission::check(who, attributes, READ)?;
            Ok(inode.xattrs.names())
        })
    }

    fn remove_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: XattrName<'_>,
    ) -> Outcome<Changed<()>> {
        Outcome::Ready(self.change(file, |tree, number, before| {
            check_xattrs(before.kind)?;
            permission::check(who, before, WRITE)?;
            tree.remove_xattr(number, name)
        }))
    }

    /// Space is not reserved: pieces that are written later need bookkeeping of their own.
    fn reserve(
        &self,
        who: &Identity,
        file: FileId,
        (offset, len): (u64, u64),
        what: Reserve,
    ) -> Outcome<Changed<()>> {
        Outcome::Ready(self.change(file, |tree, number, before| {
            permission::check_regular(before.kind)?;
            permission::check_write(who, before)?;
            if what == Reserve::Space {
                return Err(Error::NotSupported);
            }
            let end = offset.checked_add(len);
            let end = end.filter(|&end| end <= MAX_FILE).ok_or(Error::TooLarge)?;
            tree.resize(number, content::PIECE, |content| content.punch(offset, end))?;
            tree.get_mut(number)?.touch_data();
            Ok(())
        }))
    }

    fn copy(
        &self,
        who: &Identity,
        from: (FileId, u64),
        to: (FileId, u64),
        len: u64,
    ) -> Outcome<Changed<u64>> {
        let done = self.share(who, from, to, len);
        Outcome::Ready(Changed {
            wcc: done.wcc,
            result: done.result.map(|()| len),
        })
    }

    fn clone_range(
        &self,
        who: &Identity,
        from: (FileId, u64),
        to: (FileId, u64),
        len: u64,
    ) -> Outcome<Changed<()>> {
        Outcome::Ready(self.share(who, from, to, len))
    }

    fn seek(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        content: Content,
    ) -> Outcome<Seen<Sought>> {
        self.see(file, |_, _, inode, attributes| {
            let data = inode.content()?;
            permission::check_read(who, attributes)?;
            if offset >= data.size() {
                return Err(Error::PastEnd);
            }
            let found = match content {
                Content::Data => data.next_data(offset),
                Content::Hole => Some(data.next_hole(offset)),
            };
            Ok(Sought::of(found, data.size()))
        })
    }
}
