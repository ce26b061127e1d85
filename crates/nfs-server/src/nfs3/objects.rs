//! Procedures on one object: attributes, names, rights and its file system.

use super::{Nfs3, Operation, PostOp, changed, convert, refused, seen};
use crate::fs::{self, FileSystem, Outcome, Step};
use nfs_proto::results::{self, Res};
use nfs_proto::{Access, Failed, FsProperties, NfsTime, WccData, args};
use std::sync::Arc;

/// Bytes that a READDIR should ask for (RFC 1813 §3.3.19, `dtpref`).
const PREFERRED_DIRECTORY: u32 = 64 << 10;

/// Preferred multiple of the sizes of READ and WRITE (`rtmult`, `wtmult`).
const MULTIPLE: u32 = 4096;

/// Rights that a read-only export does not grant.
const CHANGES: fs::Access = fs::Access::MODIFY
    .union(fs::Access::EXTEND)
    .union(fs::Access::DELETE);

impl Nfs3 {
    pub(super) fn get_attributes(
        &self,
        call: &Operation<'_>,
        args: &args::GetAttr,
    ) -> Outcome<Res<results::GetAttr, ()>> {
        let target = match self.target(call, &args.object) {
            Ok(target) => target,
            Err(status) => return refused(status),
        };
        let export = target.export.id();
        let outcome = target.export.fs.attributes(target.file);
        outcome.map(move |found| match found {
            Ok(found) => Ok(results::GetAttr {
                attributes: convert::attributes(export, &found),
            }),
            Err(error) => Err(convert::status(error).into()),
        })
    }

    pub(super) fn set_attributes(
        &self,
        call: &Operation<'_>,
        args: &args::SetAttr,
    ) -> Outcome<Res<results::SetAttr, WccData>> {
        let (target, who) = match self.open_to_change(call, &args.object) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        let set = match convert::set_attributes(&args.attributes) {
            Ok(set) => set,
            Err(status) => return refused(status),
        };
        let guard = match args.guard.map(convert::time_from) {
            None => None,
            Some(Some(guard)) => Some(guard),
            // No file has an invalid time.
            Some(None) => return refused(nfs_proto::Status::NotSync),
        };
        let export = target.export.id();
        let outcome = target
            .export
            .fs
            .set_attributes(&who, target.file, set, guard);
        outcome.map(move |done| {
            changed(convert::wcc(export, &done.wcc), done.result, |wcc, ()| {
                results::SetAttr { wcc }
            })
        })
    }

    pub(super) fn lookup(
        &self,
        call: &Operation<'_>,
        args: &args::Lookup<'_>,
    ) -> Outcome<Res<results::Lookup, PostOp>> {
        let (target, who) = match self.open(call, &args.what.dir) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        let step = match Step::new(args.what.name.get()) {
            Ok(step) => step,
            Err(error) => return refused(convert::status(error)),
        };
        let place = self.place(&target.export);
        let crossing = self
            .exports
            .crossing(&target.export, target.file, &step)
            .transpose();
        let crossing = match crossing {
            Ok(crossing) => crossing,
            Err(error) => return refused(convert::status(error)),
        };
        if let Some(crossing) = crossing {
            let (fs, dir, exports) = (target.export.fs.clone(), target.file, self.exports.clone());
            return Outcome::Slow(Box::new(move || {
                let found = crossing.take(&who, &*fs, dir);
                let id = crossing.export.id();
                seen(place.export, found, |dir_attributes, attributes| {
                    results::Lookup {
                        object: exports.seal(id, crossing.file),
                        attributes: Some(convert::attributes(id, &attributes)),
                        dir_attributes,
                    }
                })
            }));
        }
        let outcome = target.export.fs.lookup(&who, target.file, step);
        outcome.map(move |found| {
            seen(place.export, found, |dir_attributes, found| {
                results::Lookup {
                    object: place.handle(&found),
                    attributes: Some(convert::attributes(place.export, &found.attributes)),
                    dir_attributes,
                }
            })
        })
    }

    pub(super) fn access(
        &self,
        call: &Operation<'_>,
        args: &args::CheckAccess,
    ) -> Outcome<Res<results::CheckAccess, PostOp>> {
        let (target, who) = match self.open(call, &args.object) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        // Version 3 has no extended attributes.
        let mut wanted = fs::Access::from_bits_truncate(args.access.bits()) - fs::Access::XATTRS;
        if target.options.read_only {
            wanted -= CHANGES;
        }
        let export = target.export.id();
        let outcome = target.export.fs.access(&who, target.file, wanted);
        outcome.map(move |found| {
            seen(export, found, |attributes, access| results::CheckAccess {
                attributes,
                access: Access::from_bits_retain(access.bits()),
            })
        })
    }

    pub(super) fn fs_stat(
        &self,
        call: &Operation<'_>,
        args: &args::FsStat,
    ) -> Outcome<Res<results::FsStat, PostOp>> {
        let target = match self.target(call, &args.root) {
            Ok(target) => target,
            Err(status) => return refused(status),
        };
        let export = target.export.id();
        let outcome = target.export.fs.space(target.file);
        outcome.map(move |found| {
            seen(export, found, |attributes, space| results::FsStat {
                attributes,
                total_bytes: space.total,
                free_bytes: space.free,
                available_bytes: space.available,
                total_files: space.total_files,
                free_files: space.free_files,
                available_files: space.available_files,
                // The values can change at any time.
                invariant_seconds: 0,
            })
        })
    }

    pub(super) fn fs_info(
        &self,
        call: &Operation<'_>,
        args: &args::FsInfo,
    ) -> Outcome<Res<results::FsInfo, PostOp>> {
        let target = match self.target(call, &args.root) {
            Ok(target) => target,
            Err(status) => return refused(status),
        };
        let abilities = target.export.fs.abilities();
        described(target.export.id(), &target.export.fs, target.file, {
            move |attributes| results::FsInfo {
                attributes,
                read_max: super::MAX_READ,
                read_preferred: super::MAX_READ,
                read_multiple: MULTIPLE,
                write_max: super::MAX_WRITE,
                write_preferred: super::MAX_WRITE,
                write_multiple: MULTIPLE,
                dir_preferred: PREFERRED_DIRECTORY,
                max_file_size: abilities.max_file_size,
                time_delta: NfsTime {
                    seconds: 0,
                    nanoseconds: abilities.time_step,
                },
                properties: FsProperties::LINK
                    | FsProperties::SYMLINK
                    | FsProperties::HOMOGENEOUS
                    | FsProperties::CANSETTIME,
            }
        })
    }

    pub(super) fn path_conf(
        &self,
        call: &Operation<'_>,
        args: &args::PathConf,
    ) -> Outcome<Res<results::PathConf, PostOp>> {
        let target = match self.target(call, &args.object) {
            Ok(target) => target,
            Err(status) => return refused(status),
        };
        let abilities = target.export.fs.abilities();
        described(target.export.id(), &target.export.fs, target.file, {
            move |attributes| results::PathConf {
                attributes,
                link_max: abilities.max_links,
                name_max: abilities.max_name,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: abilities.case_insensitive,
                case_preserving: true,
            }
        })
    }
}

/// Encodes results that are the same for all files, except for the attributes.
fn described<T: Send + 'static>(
    export: u32,
    fs: &Arc<dyn FileSystem>,
    file: fs::FileId,
    describe: impl FnOnce(PostOp) -> T + Send + 'static,
) -> Outcome<Res<T, PostOp>> {
    fs.attributes(file).map(move |found| match found {
        Ok(found) => Ok(describe(Some(convert::attributes(export, &found)))),
        Err(error) => Err(Failed::from(convert::status(error))),
    })
}
