//! Operations on names: LOOKUP, LOOKUPP, CREATE, REMOVE, RENAME, LINK.

use super::Nfs4;
use super::attributes::{self, Purpose};
use super::compound::{Ran, Running, after};
use super::convert;
use super::current::{At, Object};
use super::objects::support;
use crate::exports::{Below, Crossing};
use crate::fs::{Changed, Error, FileKind, Make, Name, Outcome, Step as Lookup};
use nfs_proto::Filename;
use nfs_proto::v4::directory::{
    CreateArgs, CreateOk, CreateType, LinkArgs, RemoveArgs, RenameArgs, RenameOk,
};
use nfs_proto::v4::{ResOp, Status};

impl Nfs4 {
    /// Looks up a name in a directory, and goes on with what has it.
    pub(super) fn step(
        &self,
        run: &mut Running,
        object: Object,
        name: Filename<'_>,
        then: impl FnOnce(&Self, &mut Running, Object) -> Ran + Send + 'static,
    ) -> Ran {
        let name = convert::name(name.get())?;
        let at = match object {
            Object::Pseudo(directory) => {
                let below = run.list.pseudo().entry(directory, name.bytes());
                return match below.ok_or(Status::NoEntry)? {
                    // Nobody is told of what is not served to him.
                    below @ Below::Directory(_) if !run.shows(below) => Err(Status::NoEntry),
                    Below::Directory(directory) => then(self, run, Object::Pseudo(directory)),
                    Below::Export(export) => self.enter(run, export, then),
                };
            }
            Object::File(at) => at,
        };
        self.step_in_export(run, at, Lookup::Name(name), then)
    }

    /// Goes on with the root of an export.
    pub(super) fn enter(
        &self,
        run: &mut Running,
        export: u32,
        then: impl FnOnce(&Self, &mut Running, Object) -> Ran + Send + 'static,
    ) -> Ran {
        let at = run.enter_export(export)?;
        let outcome = run.fs(&at).root_to_mount();
        after(self, run, outcome, move |nfs, run, root| {
            let file = root.map_err(convert::status)?;
            then(nfs, run, Object::File(At { file, ..at }))
        })
    }

    /// Looks up the directory above, and goes on with it (RFC 8881 §18.14).
    pub(super) fn step_up(
        &self,
        run: &mut Running,
        object: Object,
        then: impl FnOnce(&Self, &mut Running, Object) -> Ran + Send + 'static,
    ) -> Ran {
        let tree = run.list.pseudo();
        match object {
            Object::Pseudo(directory) if tree.root() == Some(directory) => Err(Status::NoEntry),
            Object::Pseudo(directory) => {
                let above = tree.parent(directory);
                then(self, run, Object::Pseudo(above))
            }
            Object::File(at) => {
                let export = run.export(&at);
                if at.file == export.fs.root() && export.has_own_path() {
                    let above = tree.above(export.id()).ok_or(Status::NoEntry)?;
                    return then(self, run, Object::Pseudo(above));
                }
                self.step_in_export(run, at, Lookup::Parent, then)
            }
        }
    }

    fn step_in_export(
        &self,
        run: &mut Running,
        at: At,
        step: Lookup<'_>,
        then: impl FnOnce(&Self, &mut Running, Object) -> Ran + Send + 'static,
    ) -> Ran {
        let who = run.who(&at);
        let export = run.export(&at);
        let crossing = self.inner.exports.crossing(export, at.file, &step);
        if let Some(crossing) = crossing.transpose().map_err(convert::status)? {
            let (fs, number) = (run.fs(&at), crossing.export.id());
            let outcome = Outcome::Slow(Box::new(move || {
                let found = Crossing::take(&crossing, &who, &*fs, at.file);
                found.result.map(|_| crossing.file)
            }));
            return after(self, run, outcome, move |nfs, run, found| {
                let file = found.map_err(convert::status)?;
                let at = run.enter_export(number)?;
                then(nfs, run, Object::File(At { file, ..at }))
            });
        }
        let outcome = export.fs.lookup(&who, at.file, step);
        after(self, run, outcome, move |nfs, run, found| {
            match found.result {
                Ok(below) => {
                    let file = below.file;
                    then(nfs, run, Object::File(At { file, ..at }))
                }
                Err(error) => nfs.refine(run, &at, error, found.attributes),
            }
        })
    }

    /// LOOKUP (RFC 8881 §18.13).
    pub(super) fn lookup(&self, run: &mut Running, name: Filename<'_>) -> Ran {
        let object = run.object()?;
        self.step(run, object, name, |_, run, found| {
            run.set_object(found);
            run.push(ResOp::Lookup(Ok(())))
        })
    }

    /// LOOKUPP (RFC 8881 §18.14).
    pub(super) fn lookup_parent(&self, run: &mut Running) -> Ran {
        let object = run.object()?;
        self.step_up(run, object, |_, run, found| {
            run.set_object(found);
            run.push(ResOp::LookupP(Ok(())))
        })
    }

    /// CREATE (RFC 8881 §18.4).
    pub(super) fn create(&self, run: &mut Running, args: CreateArgs<'_>) -> Ran {
        let at = run.file_to_change()?;
        let name = convert::name(args.name.get())?;
        let kind = match args.kind {
            CreateType::Directory => FileKind::Directory,
            CreateType::Symlink(_) => FileKind::Symlink,
            _ => FileKind::Fifo,
        };
        let support = support(&run.export(&at).fs.abilities(), run.minor);
        let changes = attributes::changes(&args.attributes, Purpose::Create, kind, support)?;
        let set = changes.set;
        let make = match args.kind {
            CreateType::Directory => Make::Directory(set),
            CreateType::Symlink(text) => {
                let text = text.0.to_vec();
                match text.contains(&0) || text.is_empty() {
                    true => return Err(Status::Invalid),
                    false => Make::Symlink(text.into(), set),
                }
            }
            CreateType::Block(device) => {
                Make::Special(FileKind::BlockDevice, (device.major, device.minor), set)
            }
            CreateType::Character(device) => {
                Make::Special(FileKind::CharacterDevice, (device.major, device.minor), set)
            }
            CreateType::Socket => Make::Special(FileKind::Socket, (0, 0), set),
            CreateType::Fifo => Make::Special(FileKind::Fifo, (0, 0), set),
            CreateType::Other(_) => return Err(Status::BadType),
        };
        let outcome = run
            .fs_of_names(&at)
            .make(&run.who(&at), at.file, name, make);
        after(self, run, outcome, move |nfs, run, made| {
            let change = convert::change(&made.wcc);
            let found = match made.result {
                Ok(found) => found,
                Err(error) => {
                    return nfs.refine(run, &at, error, made.wcc.after);
                }
            };
            let at = At {
                file: found.file,
                ..at
            };
            let with = (changes, &found.attributes);
            nfs.complete_new(run, at, with, move |_, run, set| {
                run.set_object(Object::File(at));
                run.push(ResOp::Create(Ok(CreateOk { change, set })))
            })
        })
    }

    /// Checks that no name may lead to a file that a client is still to reclaim, which would be gone with its last name: the server does
    /// not know what was open before its restart (RFC 8881 §8.4.2.1, and the errors of REMOVE and RENAME in §15.2).
    ///
    /// # Errors
    ///
    /// `Grace`.
    fn check_grace_of_names(&self) -> Result<(), Status> {
        match self.inner.state.is_in_grace() {
            true => Err(Status::Grace),
            false => Ok(()),
        }
    }

    /// REMOVE (RFC 8881 §18.25): of a directory too.
    pub(super) fn remove(&self, run: &mut Running, args: &RemoveArgs<'_>) -> Ran {
        let at = run.file_to_change()?;
        self.check_grace_of_names()?;
        let name = convert::name(args.name.get())?;
        let owned = name.bytes().to_vec();
        let (who, fs) = (run.who(&at), run.fs_of_names(&at));
        let outcome = fs.remove(&who, at.file, name);
        let removed = move |nfs: &Self, run: &mut Running, done: Changed<()>| match done.result {
            Ok(()) => run.push(ResOp::Remove(Ok(convert::change(&done.wcc)))),
            Err(error) => nfs.refine(run, &at, error, done.wcc.after),
        };
        after(self, run, outcome, move |nfs, run, done| {
            match done.result {
                Err(Error::IsDirectory) => {
                    let name = Name::new(&owned).map_err(convert::status)?;
                    let outcome = fs.remove_directory(&who, at.file, name);
                    after(nfs, run, outcome, removed)
                }
                Ok(()) | Err(_) => removed(nfs, run, done),
            }
        })
    }

    /// RENAME (RFC 8881 §18.26): from the saved directory to the current one.
    pub(super) fn rename(&self, run: &mut Running, args: &RenameArgs<'_>) -> Ran {
        let (from, to) = self.saved_and_current(run)?;
        self.check_grace_of_names()?;
        let from_name = convert::name(args.from.get())?;
        let to_name = convert::name(args.to.get())?;
        let fs = run.fs_of_names(&from);
        let outcome = fs.rename(&run.who(&from), (from.file, from_name), (to.file, to_name));
        after(self, run, outcome, move |nfs, run, done| {
            let change = RenameOk {
                from: convert::change(&done.from),
                to: convert::change(&done.to),
            };
            match done.result {
                Ok(()) => run.push(ResOp::Rename(Ok(change))),
                Err(error @ Error::NotDirectory) => {
                    // Either of the two, or what has the names.
                    let outcome = run.fs(&from).attributes(from.file);
                    after(nfs, run, outcome, move |nfs, run, found| match found {
                        Ok(found) if found.is_directory() => {
                            nfs.directory_or(run, to, Status::Exist)
                        }
                        found => nfs.refine(run, &from, error, found.ok()),
                    })
                }
                // RFC 8881 §18.26.4: one of them is a directory, and the other is not.
                Err(Error::IsDirectory) => Err(Status::Exist),
                Err(Error::NotEmpty) => Err(Status::Exist),
                Err(error) => Err(convert::status(error)),
            }
        })
    }

    /// Fails with a status, or because this is no directory.
    fn directory_or(&self, run: &mut Running, at: At, status: Status) -> Ran {
        let outcome = run.fs(&at).attributes(at.file);
        after(self, run, outcome, move |nfs, run, found| match found {
            Ok(found) if found.is_directory() => Err(status),
            found => nfs.refine(run, &at, Error::NotDirectory, found.ok()),
        })
    }

    /// LINK (RFC 8881 §18.9): the saved file gets a name in the current directory.
    pub(super) fn link(&self, run: &mut Running, args: &LinkArgs<'_>) -> Ran {
        let (file, dir) = self.saved_and_current(run)?;
        let name = convert::name(args.name.get())?;
        let outcome = run
            .fs_of_names(&dir)
            .link(&run.who(&dir), file.file, dir.file, name);
        after(self, run, outcome, move |nfs, run, done| {
            match done.result {
                Ok(()) => run.push(ResOp::Link(Ok(convert::change(&done.wcc)))),
                Err(error @ Error::NotDirectory) => nfs.refine(run, &dir, error, done.wcc.after),
                Err(error) => match done.attributes {
                    Some(found) if found.is_directory() => Err(Status::IsDirectory),
                    _ => Err(convert::status(error)),
                },
            }
        })
    }

    /// Returns the saved and the current file of one export, to change something of both.
    fn saved_and_current(&self, run: &Running) -> Result<(At, At), Status> {
        let to = run.file_to_change();
        let from = match run.saved.ok_or(Status::NoFileHandle)? {
            Object::Pseudo(_) => return to.and(Err(Status::CrossDevice)),
            Object::File(from) => from,
        };
        let to = to?;
        match from.export == to.export {
            true => Ok((from, to)),
            false => Err(Status::CrossDevice),
        }
    }
}
