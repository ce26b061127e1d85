//! The attributes that are supported (RFC 8881 §5.6, §5.7), and the room that they take.

use crate::nfs4::{acl, owners};
use nfs_proto::Wire;
use nfs_proto::v4::AttributeNumber as A;
use nfs_proto::v4::{Bitmap, FsId, Handle, Status, Time};
use nfs_proto::{Device, FileId};

/// Attributes that every object has.
const ALWAYS: [A; 46] = [
    A::SupportedAttrs,
    A::Type,
    A::FhExpireType,
    A::Change,
    A::Size,
    A::LinkSupport,
    A::SymlinkSupport,
    A::NamedAttr,
    A::FsId,
    A::UniqueHandles,
    A::LeaseTime,
    A::RdattrError,
    A::CanSetTime,
    A::CaseInsensitive,
    A::CasePreserving,
    A::ChownRestricted,
    A::FileHandle,
    A::FileId,
    A::FilesAvail,
    A::FilesFree,
    A::FilesTotal,
    A::Homogeneous,
    A::MaxFileSize,
    A::MaxLink,
    A::MaxName,
    A::MaxRead,
    A::MaxWrite,
    A::Mode,
    A::NoTrunc,
    A::NumLinks,
    A::Owner,
    A::OwnerGroup,
    A::RawDev,
    A::SpaceAvail,
    A::SpaceFree,
    A::SpaceTotal,
    A::SpaceUsed,
    A::TimeAccess,
    A::TimeAccessSet,
    A::TimeDelta,
    A::TimeMetadata,
    A::TimeModify,
    A::TimeModifySet,
    A::MountedOnFileId,
    A::SuppAttrExclCreat,
    A::FsCharsetCap,
];

/// Attributes where the file system has access control lists.
const OF_LISTS: [A; 2] = [A::Acl, A::AclSupport];

/// Attributes of minor version 2.
const OF_MINOR_2: [A; 2] = [A::ModeUmask, A::XattrSupport];

/// Attributes of minor version 2 where files of the file system can share data.
const OF_CLONES: [A; 1] = [A::CloneBlockSize];

/// Attributes that are only set, supported or not (RFC 8881 §5.6, §5.7, RFC 8275).
const SET_ONLY: [A; 7] = [
    A::TimeAccessSet,
    A::TimeModifySet,
    A::LayoutHint,
    A::RetentionSet,
    A::RetentEvtSet,
    A::ModeSetMasked,
    A::ModeUmask,
];

/// Attributes that SETATTR sets, as far as they are supported.
const OF_SETATTR: [A; 7] = [
    A::Size,
    A::Acl,
    A::Mode,
    A::Owner,
    A::OwnerGroup,
    A::TimeAccessSet,
    A::TimeModifySet,
];

/// Attributes that EXCLUSIVE4_1 sets, as far as they are supported. The file system keeps the verifier in both times.
const OF_EXCLUSIVE: [A; 6] = [
    A::Size,
    A::Acl,
    A::Mode,
    A::Owner,
    A::OwnerGroup,
    A::ModeUmask,
];

/// Attributes for which the file system is asked for its space.
const OF_SPACE: [A; 6] = [
    A::FilesAvail,
    A::FilesFree,
    A::FilesTotal,
    A::SpaceAvail,
    A::SpaceFree,
    A::SpaceTotal,
];

/// Facts that decide which attributes are supported.
#[derive(Clone, Copy, Debug)]
pub(in crate::nfs4) struct Support {
    /// Minor version of the request.
    pub minor: u32,
    /// Whether the file system has access control lists.
    pub acls: bool,
    /// Whether files of the file system can share data.
    pub clones: bool,
}

/// Facts of a file system that some attributes need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nfs4) struct Needs {
    /// Its space.
    pub space: bool,
    /// The access control lists of the object.
    pub acls: bool,
    /// The handle of the object.
    pub handle: bool,
}

fn bitmap(attributes: &[A]) -> Bitmap {
    Bitmap::of(attributes.iter().map(|&number| number as u32))
}

/// Returns the attributes that are supported.
pub(in crate::nfs4) fn supported(support: Support) -> Bitmap {
    let mut all = bitmap(&ALWAYS);
    if support.acls {
        all = all | bitmap(&OF_LISTS);
    }
    if support.minor >= 2 {
        all = all | bitmap(&OF_MINOR_2);
        if support.clones {
            all = all | bitmap(&OF_CLONES);
        }
    }
    all
}

/// Returns the attributes that SETATTR sets.
pub(super) fn of_setattr(support: Support) -> Bitmap {
    bitmap(&OF_SETATTR) & supported(support)
}

/// Returns the attributes that a new object can get.
pub(super) fn of_create(support: Support) -> Bitmap {
    of_setattr(support) | bitmap(&OF_EXCLUSIVE) & supported(support)
}

/// Returns the attributes that EXCLUSIVE4_1 sets (`suppattr_exclcreat`, RFC 8881 §5.8.1.14).
pub(super) fn of_exclusive(support: Support) -> Bitmap {
    bitmap(&OF_EXCLUSIVE) & supported(support)
}

/// Returns which facts the wanted attributes need beside the attributes of the file system.
pub(in crate::nfs4) fn needs(wanted: &Bitmap) -> Needs {
    Needs {
        space: OF_SPACE
            .iter()
            .any(|&number| wanted.contains(number as u32)),
        acls: wanted.contains(A::Acl as u32),
        handle: wanted.contains(A::FileHandle as u32),
    }
}

/// Refuses attributes that can only be set.
///
/// # Errors
///
/// `NFS4ERR_INVAL` (RFC 8881 §5.5).
pub(in crate::nfs4) fn check_get(wanted: &Bitmap) -> Result<(), Status> {
    let mut set_only = SET_ONLY.iter();
    match set_only.any(|&number| wanted.contains(number as u32)) {
        true => Err(Status::Invalid),
        false => Ok(()),
    }
}

/// Returns the largest number of bytes that [`write_attributes`](super::write_attributes) writes for these attributes.
pub(in crate::nfs4) fn bound(wanted: &Bitmap) -> usize {
    let mask = 4 + 4 * wanted.words().len();
    let values = wanted.iter().filter_map(A::new).map(largest_value);
    mask + 4 + values.sum::<usize>()
}

/// Largest size of the value of an attribute; 0 for attributes that are never written.
fn largest_value(number: A) -> usize {
    const WORD: usize = 4;
    const LONG: usize = 8;
    match number {
        A::SupportedAttrs | A::SuppAttrExclCreat => Bitmap::MAX,
        A::Type
        | A::FhExpireType
        | A::LinkSupport
        | A::SymlinkSupport
        | A::NamedAttr
        | A::UniqueHandles
        | A::LeaseTime
        | A::RdattrError
        | A::AclSupport
        | A::CanSetTime
        | A::CaseInsensitive
        | A::CasePreserving
        | A::ChownRestricted
        | A::Homogeneous
        | A::MaxLink
        | A::MaxName
        | A::Mode
        | A::NoTrunc
        | A::NumLinks
        | A::FsCharsetCap
        | A::CloneBlockSize
        | A::XattrSupport => WORD,
        A::Change
        | A::Size
        | A::FilesAvail
        | A::FilesFree
        | A::FilesTotal
        | A::MaxFileSize
        | A::MaxRead
        | A::MaxWrite
        | A::SpaceAvail
        | A::SpaceFree
        | A::SpaceTotal
        | A::SpaceUsed => LONG,
        A::FileId | A::MountedOnFileId => FileId::MAX,
        A::FsId => FsId::MAX,
        A::FileHandle => Handle::MAX,
        A::Owner | A::OwnerGroup => owners::MAX_WRITTEN,
        A::RawDev => Device::MAX,
        A::TimeAccess | A::TimeDelta | A::TimeMetadata | A::TimeModify => Time::MAX,
        A::Acl => acl::MAX_WRITTEN,
        // They are not supported, or can only be set.
        _ => 0,
    }
}
