//! The current and the saved file handle (RFC 8881 §16.2.3.1.1): operations that set and tell them, and what they name.

use super::Nfs4;
use super::compound::{Ran, Running, after};
use super::convert;
use super::state::FileKey;
use crate::client_options::ClientOptions;
use crate::exports::{Below, Export, PSEUDO_EXPORT};
use crate::fs::{Attributes, Error, FileId, FileKind, FileSystem, Identity, Seen, Time};
use nfs_proto::FileHandle;
use nfs_proto::v4::file::{GetFhOk, PutFhArgs};
use nfs_proto::v4::{FsId, Handle, ResOp, SpecialStateId, StateId, Status};
use std::cell::Cell;
use std::sync::Arc;

/// An object that a file handle names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Object {
    /// A directory above exports, by its index.
    Pseudo(usize),
    /// A file of an export.
    File(At),
}

/// A file of an export.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    /// Index of the export in the list of the COMPOUND.
    pub(super) export: usize,
    pub(super) file: FileId,
    /// Rights of the caller.
    pub(super) options: ClientOptions,
}

impl Running {
    /// Returns the current file handle.
    ///
    /// # Errors
    ///
    /// `NoFileHandle`.
    pub(super) fn object(&self) -> Result<Object, Status> {
        self.current.ok_or(Status::NoFileHandle)
    }

    /// Sets the current file handle. The current state id is none after that (RFC 8881 §16.2.3.1.2).
    pub(super) fn set_object(&mut self, object: Object) {
        self.current = Some(object);
        self.state = None;
    }

    pub(super) fn export(&self, at: &At) -> &Export {
        &self.list.exports[at.export]
    }

    pub(super) fn fs(&self, at: &At) -> Arc<dyn FileSystem> {
        Arc::clone(&self.export(at).fs)
    }

    /// The file system of a directory in which a name is changed.
    pub(super) fn fs_of_names(&self, dir: &At) -> Arc<dyn FileSystem> {
        let fs = self.fs(dir);
        fs.watch_names();
        fs
    }

    /// Returns the caller as a user of an export.
    pub(super) fn who(&self, at: &At) -> Identity {
        at.options.identity(&self.cred)
    }

    pub(super) fn key(&self, at: &At) -> FileKey {
        FileKey {
            export: self.export(at).id(),
            file: at.file,
        }
    }

    /// Returns the file of an export that the current file handle names.
    ///
    /// # Errors
    ///
    /// `NoFileHandle`; `in_pseudo` for a directory above exports.
    pub(super) fn file(&self, in_pseudo: Status) -> Result<At, Status> {
        match self.object()? {
            Object::File(at) => Ok(at),
            Object::Pseudo(_) => Err(in_pseudo),
        }
    }

    /// Returns the file of an export, of which something is to be changed.
    ///
    /// # Errors
    ///
    /// `NoFileHandle`, `ReadOnly`.
    pub(super) fn file_to_change(&self) -> Result<At, Status> {
        let at = self.file(Status::ReadOnly)?;
        match at.options.read_only {
            true => Err(Status::ReadOnly),
            false => Ok(at),
        }
    }

    /// Puts the current state id in place of the special one that stands for it (RFC 8881 §16.2.3.1.2).
    ///
    /// # Errors
    ///
    /// `BadStateId`: there is none.
    pub(super) fn state_id(&self, given: StateId) -> Result<StateId, Status> {
        match given.special() {
            Some(SpecialStateId::Current) => self.state.ok_or(Status::BadStateId),
            _ => Ok(given),
        }
    }

    /// Enters an export by its number: at its root, with the rights of the caller.
    ///
    /// # Errors
    ///
    /// `Access`: the caller is not served. `Delay`: the file system is missing now.
    pub(super) fn enter_export(&self, export: u32) -> Result<At, Status> {
        let (export, options) = self.admit(export)?;
        Ok(At {
            export,
            file: self.list.exports[export].fs.root(),
            options,
        })
    }

    /// Returns the index of an export, and the rights of the caller.
    fn admit(&self, export: u32) -> Result<(usize, ClientOptions), Status> {
        let admitted = self.list.admit(export, &self.caller, &Cell::new(None));
        admitted.map_err(convert::from_v3)
    }

    /// Returns whether a directory above exports leads to one that serves the caller.
    pub(super) fn shows(&self, below: Below) -> bool {
        let tree = self.list.pseudo();
        let exports = match below {
            Below::Directory(directory) => tree.exports_below(directory),
            Below::Export(export) => vec![export],
        };
        exports.into_iter().any(|export| {
            let admitted = self.list.admit(export, &self.caller, &Cell::new(None));
            !matches!(
                admitted,
                Err(nfs_proto::Status::Access | nfs_proto::Status::Stale)
            )
        })
    }

    /// Returns the attributes of a directory above exports.
    pub(super) fn pseudo_attributes(&self, directory: usize, made: Time) -> Attributes {
        let tree = self.list.pseudo();
        let entries = tree
            .entries(directory)
            .filter(|(.., below)| self.shows(*below));
        // Another set of names is another state of the directory.
        let change = entries.fold(made.as_change(), |change, (_, number, _)| {
            change.wrapping_mul(31).wrapping_add(number)
        });
        directory_above(tree.number(directory), made, change)
    }

    /// Returns the number that the root of an export has as an entry of the directory above (`mounted_on_fileid`); that of the
    /// file itself elsewhere.
    pub(super) fn mounted_on(&self, export: &Export, file: FileId, fileid: u64) -> u64 {
        match file == export.fs.root() {
            true => crate::exports::number_of(&export.name),
            false => fileid,
        }
    }
}

/// Returns the attributes of a directory above exports.
pub(super) fn directory_above(fileid: u64, made: Time, change: u64) -> Attributes {
    Attributes {
        kind: FileKind::Directory,
        mode: 0o555,
        links: 2,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: (0, 0),
        fileid,
        atime: made,
        mtime: made,
        ctime: made,
        change,
    }
}

/// Returns the id of the file system of an export. That of the directories above exports is zero.
pub(super) fn fsid(export: u32) -> FsId {
    FsId {
        major: export.into(),
        minor: 0,
    }
}

impl Nfs4 {
    /// Returns the handle of an object.
    pub(super) fn handle(&self, run: &Running, object: &Object) -> FileHandle {
        let (export, file) = match object {
            Object::Pseudo(directory) => {
                let number = run.list.pseudo().number(*directory);
                let file = FileId::new(&number.to_be_bytes()).expect("8 bytes are an id");
                (PSEUDO_EXPORT, file)
            }
            Object::File(at) => (run.export(at).id(), at.file),
        };
        self.inner.exports.seal(export, file)
    }

    /// PUTROOTFH (RFC 8881 §18.21).
    pub(super) fn root(&self, run: &Running) -> Result<Object, Status> {
        if let Some(root) = run.list.pseudo().root() {
            return Ok(Object::Pseudo(root));
        }
        let root = run.list.named().find(|(name, ..)| *name == "/");
        let (_, number, _) = root.ok_or(Status::NoEntry)?;
        Ok(Object::File(run.enter_export(number)?))
    }

    /// PUTFH (RFC 8881 §18.19).
    pub(super) fn put_handle(&self, run: &mut Running, args: &PutFhArgs<'_>) -> Ran {
        let opened = self.inner.exports.unseal(&args.handle);
        let (export, file) = opened.map_err(convert::from_v3)?;
        let object = match export {
            PSEUDO_EXPORT => {
                let number = <[u8; 8]>::try_from(file.as_bytes());
                let number = number
                    .map(u64::from_be_bytes)
                    .map_err(|_| Status::BadHandle)?;
                Object::Pseudo(run.list.pseudo().find(number).ok_or(Status::Stale)?)
            }
            export => {
                let (export, options) = run.admit(export)?;
                Object::File(At {
                    export,
                    file,
                    options,
                })
            }
        };
        run.set_object(object);
        run.push_ok(())
    }

    /// GETFH (RFC 8881 §18.8).
    pub(super) fn get_handle(&self, run: &mut Running) -> Ran {
        let handle = self.handle(run, &run.object()?);
        let handle = Handle::new(&handle).ok_or(Status::ServerFault)?;
        run.push(ResOp::GetFh(Ok(GetFhOk { handle })))
    }

    /// Checks that an object is what an operation is for, where the error of the file system does not say in the words of version 4.
    pub(super) fn refine(
        &self,
        run: &mut Running,
        at: &At,
        error: Error,
        attributes: Option<Attributes>,
    ) -> Ran {
        if error != Error::NotDirectory && error != Error::Invalid {
            return Err(convert::status(error));
        }
        let status = move |found: &Attributes| match (error, found.kind) {
            (_, FileKind::Symlink) => Status::Symlink,
            (Error::NotDirectory, _) => Status::NotDirectory,
            (_, FileKind::Directory) => Status::IsDirectory,
            (error, FileKind::Regular) => convert::status(error),
            (..) => Status::WrongType,
        };
        if let Some(found) = attributes {
            return Err(status(&found));
        }
        let outcome = run.fs(at).attributes(at.file);
        after(self, run, outcome, move |_, _, found| match found {
            Ok(found) => Err(status(&found)),
            Err(error) => Err(convert::status(error)),
        })
    }
}

/// Returns the result of an operation that only looks, or the error with the attributes that came with it.
pub(super) fn looked<T>(
    seen: Seen<T>,
) -> Result<(T, Option<Attributes>), (Error, Option<Attributes>)> {
    match seen.result {
        Ok(value) => Ok((value, seen.attributes)),
        Err(error) => Err((error, seen.attributes)),
    }
}
