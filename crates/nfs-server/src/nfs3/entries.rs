//! Procedures that change the entries of a directory.

use super::{Nfs3, Operation, Place, changed, convert, refused};
use crate::exports::Target;
use crate::fs::{self, Changed, FileKind, Identity, Make, Name, Outcome};
use bytes::Bytes;
use nfs_proto::results::{self, Res};
use nfs_proto::{Device, SetAttributes, Status, WccData, args};

impl Nfs3 {
    pub(super) fn create(
        &self,
        call: &Operation<'_>,
        args: &args::Create<'_>,
    ) -> Outcome<Res<results::Create, WccData>> {
        let how = match args.how {
            args::CreateHow::Unchecked(set) => {
                convert::set_attributes(&set).map(fs::CreateHow::Unchecked)
            }
            args::CreateHow::Guarded(set) => {
                convert::set_attributes(&set).map(fs::CreateHow::Guarded)
            }
            args::CreateHow::Exclusive(verifier) => {
                let set = fs::SetAttributes::default();
                Ok(fs::CreateHow::Exclusive(verifier.0, set))
            }
        };
        self.make(call, &args.place, how.map(Make::File))
    }

    pub(super) fn make_directory(
        &self,
        call: &Operation<'_>,
        args: &args::MkDir<'_>,
    ) -> Outcome<Res<results::Create, WccData>> {
        let set = convert::set_attributes(&args.attributes);
        self.make(call, &args.place, set.map(Make::Directory))
    }

    pub(super) fn make_symlink(
        &self,
        call: &Operation<'_>,
        args: &args::Symlink<'_>,
    ) -> Outcome<Res<results::Create, WccData>> {
        let text = Bytes::copy_from_slice(&args.target.bytes());
        let set = convert::set_attributes(&args.attributes);
        self.make(call, &args.place, set.map(|set| Make::Symlink(text, set)))
    }

    pub(super) fn make_node(
        &self,
        call: &Operation<'_>,
        args: &args::MkNod<'_>,
    ) -> Outcome<Res<results::Create, WccData>> {
        let special = |kind, set: &SetAttributes, device: Device| {
            let numbers = (device.major, device.minor);
            convert::set_attributes(set).map(|set| Make::Special(kind, numbers, set))
        };
        let none = Device::default();
        let what = match &args.what {
            args::Node::Character(set, device) => special(FileKind::CharacterDevice, set, *device),
            args::Node::Block(set, device) => special(FileKind::BlockDevice, set, *device),
            args::Node::Socket(set) => special(FileKind::Socket, set, none),
            args::Node::Fifo(set) => special(FileKind::Fifo, set, none),
            args::Node::Regular | args::Node::Directory | args::Node::Symlink => {
                Err(Status::BadType)
            }
        };
        self.make(call, &args.place, what)
    }

    fn make(
        &self,
        call: &Operation<'_>,
        place: &args::Place<'_>,
        what: Result<Make, Status>,
    ) -> Outcome<Res<results::Create, WccData>> {
        let (target, who) = match self.open_to_change(call, &place.dir) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        // `.` and `..` exist already.
        let name = match Name::new(place.name.get()) {
            Err(_) if matches!(place.name.get(), b"." | b"..") => Err(Status::Exist),
            Err(error) => Err(convert::status(error)),
            Ok(name) => Ok(name),
        };
        let (name, what) = match (name, what) {
            (Ok(name), Ok(what)) => (name, what),
            (Err(status), _) | (_, Err(status)) => return refused(status),
        };
        let outcome = target.export.fs.make(&who, target.file, name, what);
        created(self.place(&target.export), outcome)
    }

    pub(super) fn remove(
        &self,
        call: &Operation<'_>,
        args: &args::Remove<'_>,
    ) -> Outcome<Res<results::Remove, WccData>> {
        match self.named(call, &args.object) {
            Ok((target, who, name)) => removed(
                target.export.id(),
                target.export.fs.remove(&who, target.file, name),
            ),
            Err(status) => refused(status),
        }
    }

    pub(super) fn remove_directory(
        &self,
        call: &Operation<'_>,
        args: &args::RmDir<'_>,
    ) -> Outcome<Res<results::Remove, WccData>> {
        match self.named(call, &args.object) {
            Ok((target, who, name)) => removed(
                target.export.id(),
                target.export.fs.remove_directory(&who, target.file, name),
            ),
            // RFC 1813 §3.3.13.
            Err(Status::Invalid) if args.object.name.get() == b".." => refused(Status::Exist),
            Err(status) => refused(status),
        }
    }

    pub(super) fn rename(
        &self,
        call: &Operation<'_>,
        args: &args::Rename<'_>,
    ) -> Outcome<Res<results::Rename, results::Rename>> {
        let (from, who, from_name) = match self.named(call, &args.from) {
            Ok(named) => named,
            Err(status) => return refused(status),
        };
        let (to, _, to_name) = match self.named(call, &args.to) {
            Ok(named) => named,
            Err(status) => return refused(status),
        };
        if from.export.id() != to.export.id() {
            return refused(Status::CrossDevice);
        }
        let export = from.export.id();
        let fs = &from.export.fs;
        let outcome = fs.rename(&who, (from.file, from_name), (to.file, to_name));
        outcome.map(move |done| {
            let wcc = results::Rename {
                from_wcc: convert::wcc(export, &done.from),
                to_wcc: convert::wcc(export, &done.to),
            };
            match done.result {
                Ok(()) => Ok(wcc),
                Err(error) => Err(nfs_proto::Failed::new(convert::status(error), wcc)),
            }
        })
    }

    pub(super) fn link(
        &self,
        call: &Operation<'_>,
        args: &args::Link<'_>,
    ) -> Outcome<Res<results::Link, results::Link>> {
        let (file, _) = match self.open_to_change(call, &args.file) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        let (dir, who, name) = match self.named(call, &args.link) {
            // As with CREATE, these exist already.
            Err(Status::Invalid) if matches!(args.link.name.get(), b"." | b"..") => {
                return refused(Status::Exist);
            }
            Err(status) => return refused(status),
            Ok(named) => named,
        };
        if file.export.id() != dir.export.id() {
            return refused(Status::CrossDevice);
        }
        let export = dir.export.id();
        let outcome = dir.export.fs.link(&who, file.file, dir.file, name);
        outcome.map(move |done| {
            let with = results::Link {
                attributes: done
                    .attributes
                    .map(|found| convert::attributes(export, &found)),
                dir_wcc: convert::wcc(export, &done.wcc),
            };
            match done.result {
                Ok(()) => Ok(with),
                Err(error) => Err(nfs_proto::Failed::new(convert::status(error), with)),
            }
        })
    }

    /// A directory to change, and a name in it.
    fn named<'a>(
        &self,
        call: &Operation<'_>,
        place: &args::Place<'a>,
    ) -> Result<(Target, Identity, Name<'a>), Status> {
        let (target, who) = self.open_to_change(call, &place.dir)?;
        let name = Name::new(place.name.get()).map_err(convert::status)?;
        Ok((target, who, name))
    }
}

fn created(
    place: Place,
    outcome: Outcome<Changed<fs::Found>>,
) -> Outcome<Res<results::Create, WccData>> {
    outcome.map(move |done| {
        let wcc = convert::wcc(place.export, &done.wcc);
        changed(wcc, done.result, |dir_wcc, found| results::Create {
            object: Some(place.handle(&found)),
            attributes: Some(convert::attributes(place.export, &found.attributes)),
            dir_wcc,
        })
    })
}

fn removed(export: u32, outcome: Outcome<Changed<()>>) -> Outcome<Res<results::Remove, WccData>> {
    outcome.map(move |done| {
        let wcc = convert::wcc(export, &done.wcc);
        changed(wcc, done.result, |dir_wcc, ()| results::Remove { dir_wcc })
    })
}
