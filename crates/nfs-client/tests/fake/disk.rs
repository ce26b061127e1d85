//! Files of the fake server.

use nfs_proto::{Attributes, Device, FileId, FileType, NfsTime, SetAttributes, Status};
use std::collections::BTreeMap;

/// Number of the root directory.
pub(crate) const ROOT: u64 = 1;

/// Everything on the server. A number is a file; it is its handle, too.
pub(crate) struct Disk {
    pub(crate) files: BTreeMap<u64, File>,
    next: u64,
}

pub(crate) struct File {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    /// The verifier of the exclusive CREATE that made it.
    pub(crate) made_by: Option<[u8; 8]>,
}

pub(crate) enum Kind {
    /// Data, and what of it would survive a crash.
    Regular {
        data: Vec<u8>,
        stable: Vec<u8>,
    },
    Directory(BTreeMap<Vec<u8>, u64>),
    Symlink(Vec<u8>),
}

impl Disk {
    pub(crate) fn new() -> Self {
        let mut disk = Self {
            files: BTreeMap::new(),
            next: ROOT,
        };
        disk.add(Kind::Directory(BTreeMap::new()), 0o755);
        disk
    }

    pub(crate) fn add(&mut self, kind: Kind, mode: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        self.files.insert(
            number,
            File {
                kind,
                mode,
                links: 1,
                made_by: None,
            },
        );
        number
    }

    pub(crate) fn file(&mut self, number: u64) -> Result<&mut File, Status> {
        self.files.get_mut(&number).ok_or(Status::Stale)
    }

    pub(crate) fn dir(&mut self, number: u64) -> Result<&mut BTreeMap<Vec<u8>, u64>, Status> {
        match &mut self.file(number)?.kind {
            Kind::Directory(entries) => Ok(entries),
            Kind::Regular { .. } | Kind::Symlink(_) => Err(Status::NotDirectory),
        }
    }

    pub(crate) fn lookup(&mut self, dir: u64, name: &[u8]) -> Result<u64, Status> {
        self.dir(dir)?.get(name).copied().ok_or(Status::NoEntry)
    }

    /// Puts a new file into a directory where there is no such name.
    pub(crate) fn enter(
        &mut self,
        dir: u64,
        name: &[u8],
        kind: Kind,
        mode: u32,
    ) -> Result<u64, Status> {
        match self.lookup(dir, name) {
            Ok(_) => Err(Status::Exist),
            Err(Status::NoEntry) => {
                let number = self.add(kind, mode);
                self.dir(dir)?.insert(name.to_vec(), number);
                Ok(number)
            }
            Err(status) => Err(status),
        }
    }

    /// Takes a name away, and with the last one the file.
    pub(crate) fn unlink(&mut self, dir: u64, name: &[u8], directory: bool) -> Result<(), Status> {
        let number = self.lookup(dir, name)?;
        let file = self.file(number)?;
        match (&file.kind, directory) {
            (Kind::Directory(entries), true) if !entries.is_empty() => {
                return Err(Status::NotEmpty);
            }
            (Kind::Directory(_), false) => return Err(Status::IsDirectory),
            (Kind::Regular { .. } | Kind::Symlink(_), true) => return Err(Status::NotDirectory),
            _ => {}
        }
        file.links -= 1;
        if file.links == 0 {
            self.files.remove(&number);
        }
        self.dir(dir)?.remove(name);
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<(), Status> {
        let number = self.lookup(from.0, from.1)?;
        match self.unlink(to.0, to.1, false) {
            Ok(()) | Err(Status::NoEntry) => {}
            Err(status) => return Err(status),
        }
        self.dir(from.0)?.remove(from.1);
        self.dir(to.0)?.insert(to.1.to_vec(), number);
        Ok(())
    }

    pub(crate) fn link(&mut self, file: u64, (dir, name): (u64, &[u8])) -> Result<(), Status> {
        match self.lookup(dir, name) {
            Ok(_) => return Err(Status::Exist),
            Err(Status::NoEntry) => {}
            Err(status) => return Err(status),
        }
        self.file(file)?.links += 1;
        self.dir(dir)?.insert(name.to_vec(), file);
        Ok(())
    }

    pub(crate) fn set(&mut self, number: u64, set: &SetAttributes) -> Result<(), Status> {
        let file = self.file(number)?;
        file.mode = set.mode.unwrap_or(file.mode);
        if let (Some(size), Kind::Regular { data, stable }) = (set.size, &mut file.kind) {
            data.resize(size as usize, 0);
            stable.resize(size as usize, 0);
        }
        Ok(())
    }

    pub(crate) fn write(
        &mut self,
        number: u64,
        offset: u64,
        bytes: &[u8],
        sync: bool,
    ) -> Result<(), Status> {
        let Kind::Regular { data, stable } = &mut self.file(number)?.kind else {
            return Err(Status::Invalid);
        };
        let (begin, end) = (offset as usize, offset as usize + bytes.len());
        for copy in [Some(data), sync.then_some(stable)].into_iter().flatten() {
            if copy.len() < end {
                copy.resize(end, 0);
            }
            copy[begin..end].copy_from_slice(bytes);
        }
        Ok(())
    }

    pub(crate) fn commit(&mut self, number: u64) -> Result<(), Status> {
        if let Kind::Regular { data, stable } = &mut self.file(number)?.kind {
            stable.clone_from(data);
        }
        Ok(())
    }

    /// Loses data that was not committed.
    pub(crate) fn crash(&mut self) {
        for file in self.files.values_mut() {
            if let Kind::Regular { data, stable } = &mut file.kind {
                data.clone_from(stable);
            }
        }
    }

    /// Data of the file of this path below the root.
    pub(crate) fn read(&mut self, path: &str) -> Vec<u8> {
        let mut number = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            number = self.lookup(number, name.as_bytes()).unwrap();
        }
        match &self.file(number).unwrap().kind {
            Kind::Regular { data, .. } => data.clone(),
            Kind::Directory(_) | Kind::Symlink(_) => panic!("{path} is no regular file"),
        }
    }

    pub(crate) fn attributes(&self, number: u64) -> Result<Attributes, Status> {
        let file = self.files.get(&number).ok_or(Status::Stale)?;
        let (file_type, size) = match &file.kind {
            Kind::Regular { data, .. } => (FileType::Regular, data.len()),
            Kind::Directory(entries) => (FileType::Directory, entries.len()),
            Kind::Symlink(text) => (FileType::Symlink, text.len()),
        };
        let time = NfsTime {
            seconds: 1_000_000,
            nanoseconds: 0,
        };
        Ok(Attributes {
            file_type,
            mode: file.mode,
            links: file.links,
            uid: 0,
            gid: 0,
            size: size as u64,
            used: size as u64,
            device: Device::default(),
            fsid: 1,
            file_id: FileId(number),
            atime: time,
            mtime: time,
            ctime: time,
        })
    }
}
