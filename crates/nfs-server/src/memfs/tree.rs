//! Table of files, with the memory they use.

use super::content::Content;
use super::directory::{Directory, Names};
use super::xattrs::Xattrs;
use crate::fs::{Attributes, Error, FileKind, SetXattr, Space, Time, XattrName};
use bytes::Bytes;
use foldhash::HashMap;
use std::num::NonZeroU32;

/// Number of the root.
pub(super) const ROOT: u64 = 1;

/// Bookkeeping of a file, in bytes.
const INODE: u64 = 512;

/// Bookkeeping of a directory entry, in bytes.
const ENTRY: u64 = 128;

/// All files.
pub(super) struct Tree {
    inodes: HashMap<u64, Inode>,
    last: u64,
    used: u64,
    limit: u64,
    names: Names,
    /// Steps in which times that clients set are kept, in nanoseconds.
    pub(super) time_step: NonZeroU32,
}

/// A file.
pub(super) struct Inode {
    pub(super) body: Body,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    /// Number of changes of data and attributes.
    change: u64,
    /// Number of clients' opens that keep the file when its last name is removed.
    holds: u32,
    /// Extended attributes.
    pub(super) xattrs: Xattrs,
    /// Verifier of the exclusive CREATE that created the file, until its times are set.
    pub(super) verifier: Option<[u8; 8]>,
}

/// Content of a file.
pub(super) enum Body {
    File(Content),
    Directory(Directory),
    Symlink(Bytes),
    Special(FileKind, (u32, u32)),
}

impl Body {
    pub(super) fn file() -> Self {
        Self::File(Content::default())
    }

    pub(super) fn directory(parent: u64, names: Names) -> Self {
        Self::Directory(Directory::new(parent, names))
    }

    pub(super) fn kind(&self) -> FileKind {
        match self {
            Self::File(_) => FileKind::Regular,
            Self::Directory(_) => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::Special(kind, _) => *kind,
        }
    }
}

impl Inode {
    pub(super) fn new(body: Body, uid: u32, gid: u32) -> Self {
        let now = Time::now();
        Self {
            body,
            mode: 0,
            uid,
            gid,
            links: 0,
            atime: now,
            mtime: now,
            ctime: now,
            change: 0,
            holds: 0,
            xattrs: Xattrs::default(),
            verifier: None,
        }
    }

    pub(super) fn directory(&self) -> Result<&Directory, Error> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special(..) => Err(Error::NotDirectory),
        }
    }

    fn directory_mut(&mut self) -> Result<&mut Directory, Error> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special(..) => Err(Error::NotDirectory),
        }
    }

    pub(super) fn content(&self) -> Result<&Content, Error> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Error::IsDirectory),
            Body::Symlink(_) | Body::Special(..) => Err(Error::Invalid),
        }
    }

    /// Notes a change of the data. After this the client does not repeat the CREATE of the file.
    pub(super) fn touch_data(&mut self) {
        self.verifier = None;
        self.touch();
        self.mtime = self.ctime;
    }

    /// Notes a change of the attributes.
    pub(super) fn touch(&mut self) {
        self.ctime = Time::now();
        self.change += 1;
    }

    pub(super) fn attributes(&self, number: u64) -> Attributes {
        let (size, used) = match &self.body {
            Body::File(content) => (content.size(), content.used()),
            Body::Directory(directory) => (directory.len() as u64 * ENTRY, 0),
            Body::Symlink(text) => (text.len() as u64, 0),
            Body::Special(..) => (0, 0),
        };
        Attributes {
            kind: self.body.kind(),
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size,
            used,
            device: match self.body {
                Body::Special(_, device) => device,
                Body::File(_) | Body::Directory(_) | Body::Symlink(_) => (0, 0),
            },
            fileid: number,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            change: self.change,
        }
    }
}

impl Tree {
    pub(super) fn new(limit: u64, names: Names) -> Self {
        let mut root = Inode::new(Body::directory(ROOT, names), 0, 0);
        root.mode = 0o777;
        root.links = 2;
        Self {
            inodes: HashMap::from_iter([(ROOT, root)]),
            last: ROOT,
            used: INODE,
            limit,
            names,
            time_step: NonZeroU32::MIN,
        }
    }

    pub(super) fn names(&self) -> Names {
        self.names
    }

    /// Numbers are never reused, so that one without a file is stale.
    pub(super) fn get(&self, number: u64) -> Result<&Inode, Error> {
        self.inodes.get(&number).ok_or(Error::Stale)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Result<&mut Inode, Error> {
        self.inodes.get_mut(&number).ok_or(Error::Stale)
    }

    pub(super) fn space(&self) -> Space {
        let free = self.limit.saturating_sub(self.used);
        let files = self.inodes.len() as u64;
        let possible = free / (INODE + ENTRY);
        Space {
            total: self.limit,
            free,
            available: free,
            total_files: files + possible,
            free_files: possible,
            available_files: possible,
        }
    }

    fn charge(&mut self, bytes: u64) -> Result<(), Error> {
        if self.used.saturating_add(bytes) > self.limit {
            return Err(Error::NoSpace);
        }
        self.used += bytes;
        Ok(())
    }

    /// Changes the data of a file, if there is memory for up to `growth` more bytes.
    pub(super) fn resize(
        &mut self,
        number: u64,
        growth: u64,
        change: impl FnOnce(&mut Content),
    ) -> Result<(), Error> {
        let (used, limit) = (self.used, self.limit);
        let inode = self.get_mut(number)?;
        let Body::File(content) = &mut inode.body else {
            return Err(inode.content().err().unwrap_or(Error::Invalid));
        };
        if used.saturating_add(growth) > limit {
            return Err(Error::NoSpace);
        }
        let before = content.used();
        change(content);
        self.used = used - before + content.used();
        Ok(())
    }

    /// Sets an extended attribute of a file, if there is memory for that.
    pub(super) fn set_xattr(
        &mut self,
        number: u64,
        name: XattrName<'_>,
        value: Bytes,
        how: SetXattr,
    ) -> Result<(), Error> {
        let (used, limit) = (self.used, self.limit);
        let inode = self.get_mut(number)?;
        let of_file = inode.xattrs.check_set(name, &value, how)?;
        let now = used - inode.xattrs.used() + of_file;
        if now > used && now > limit {
            return Err(Error::NoSpace);
        }
        inode.xattrs.set(name, value);
        inode.touch();
        self.used = now;
        Ok(())
    }

    /// Removes an extended attribute of a file.
    pub(super) fn remove_xattr(&mut self, number: u64, name: XattrName<'_>) -> Result<(), Error> {
        let inode = self.get_mut(number)?;
        let before = inode.xattrs.used();
        inode.xattrs.remove(name)?;
        inode.touch();
        let freed = before - inode.xattrs.used();
        self.used -= freed;
        Ok(())
    }

    /// Adds a file that is in no directory yet.
    pub(super) fn add(&mut self, dir: u64, name: &[u8], mut inode: Inode) -> Result<u64, Error> {
        let text = match &inode.body {
            Body::Symlink(text) => text.len() as u64,
            Body::File(_) | Body::Directory(_) | Body::Special(..) => 0,
        };
        self.charge(INODE + text)?;
        let directory = inode.body.kind() == FileKind::Directory;
        inode.links = if directory { 1 } else { 0 };
        self.last += 1;
        let number = self.last;
        self.inodes.insert(number, inode);
        if let Err(error) = self.link(dir, name, number) {
            self.used -= INODE + text;
            self.inodes.remove(&number);
            return Err(error);
        }
        if directory {
            self.get_mut(dir)?.links += 1;
        }
        Ok(number)
    }

    /// Adds a name to a file.
    pub(super) fn link(&mut self, dir: u64, name: &[u8], file: u64) -> Result<(), Error> {
        let directory = self.get(dir)?.directory()?;
        if directory.get(name).is_some() {
            return Err(Error::Exists);
        }
        self.charge(ENTRY + name.len() as u64)?;
        let parent = self.get_mut(dir)?;
        parent.directory_mut()?.insert(name, file);
        parent.touch_data();
        let inode = self.get_mut(file)?;
        inode.links += 1;
        inode.touch();
        Ok(())
    }

    /// Keeps a file when its last name is removed, until it is [released](Self::release).
    pub(super) fn hold(&mut self, file: u64) -> Result<(), Error> {
        let inode = self.get_mut(file)?;
        inode.holds = inode.holds.checked_add(1).ok_or(Error::Busy)?;
        Ok(())
    }

    /// Ends one hold of a file, and the file if it was the last and the file has no name.
    pub(super) fn release(&mut self, file: u64) {
        if let Some(inode) = self.inodes.get_mut(&file) {
            inode.holds -= 1;
            if inode.holds == 0 && inode.links == 0 {
                self.remove(file);
            }
        }
    }

    /// Removes a name, and the file with its last one unless it is held. A directory is empty.
    pub(super) fn unlink(&mut self, dir: u64, name: &[u8]) -> Result<(), Error> {
        let file = self.take_entry(dir, name)?;
        let inode = self.get_mut(file)?;
        inode.links -= 1;
        inode.touch();
        let directory = inode.body.kind() == FileKind::Directory;
        if !directory && (inode.links > 0 || inode.holds > 0) {
            return Ok(());
        }
        self.remove(file);
        if directory {
            self.get_mut(dir)?.links -= 1;
        }
        Ok(())
    }

    fn remove(&mut self, file: u64) {
        if let Some(gone) = self.inodes.remove(&file) {
            let body = match gone.body {
                Body::File(content) => content.used(),
                Body::Symlink(text) => text.len() as u64,
                Body::Directory(_) | Body::Special(..) => 0,
            };
            self.used -= INODE + body + gone.xattrs.used();
        }
    }

    fn take_entry(&mut self, dir: u64, name: &[u8]) -> Result<u64, Error> {
        let parent = self.get_mut(dir)?;
        let file = parent.directory_mut()?.remove(name);
        let file = file.ok_or(Error::NotFound)?;
        parent.touch_data();
        self.used -= ENTRY + name.len() as u64;
        Ok(file)
    }

    /// Moves an entry to an unused name.
    pub(super) fn move_entry(
        &mut self,
        (from, from_name): (u64, &[u8]),
        (to, to_name): (u64, &[u8]),
    ) -> Result<(), Error> {
        let longer = to_name.len().saturating_sub(from_name.len());
        if self.used.saturating_add(longer as u64) > self.limit {
            return Err(Error::NoSpace);
        }
        let file = self.take_entry(from, from_name)?;
        self.used += ENTRY + to_name.len() as u64;
        let parent = self.get_mut(to)?;
        parent.directory_mut()?.insert(to_name, file);
        parent.touch_data();
        let inode = self.get_mut(file)?;
        inode.touch();
        if let Body::Directory(directory) = &mut inode.body {
            directory.parent = to;
            if from != to {
                self.get_mut(from)?.links -= 1;
                self.get_mut(to)?.links += 1;
            }
        }
        Ok(())
    }

    /// Whether directory `inner` is `outer` or somewhere below it.
    pub(super) fn is_within(&self, inner: u64, outer: u64) -> Result<bool, Error> {
        let mut at = inner;
        loop {
            if at == outer {
                return Ok(true);
            }
            if at == ROOT {
                return Ok(false);
            }
            at = self.get(at)?.directory()?.parent;
        }
    }
}
