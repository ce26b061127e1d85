//! Values of attributes: written for GETATTR and READDIR, and compared for VERIFY and NVERIFY.

use super::SECOND;
use super::support::{Support, of_exclusive, supported};
use super::usual;
use crate::fs::{self, Abilities, Acls, FileKind, Space};
use crate::nfs4::acl::Entries;
use crate::nfs4::owners::{self, Decimal};
use nfs_proto::v4::acl::{Acl, AclSupport};
use nfs_proto::v4::fattr::write_fattr;
use nfs_proto::v4::{
    Attribute, AttributeAccess, AttributeNumber, Bitmap, ChangeId, Fattr, FileType, FsId, Handle,
    Principal, Status, Time,
};
use nfs_proto::{Device, FileId};
use oncrpc::xdr::Writer;

/// `FSCHARSET_CAP4_CONTAINS_NON_UTF8` (RFC 8881 §14.4): names may be no UTF-8, and are not converted.
const CONTAINS_NON_UTF8: u32 = 1;

/// Constants of the server.
#[derive(Clone, Copy, Debug)]
pub(in crate::nfs4) struct ServerValues {
    /// Seconds of a lease.
    pub lease: u32,
    /// Most bytes of a READ.
    pub max_read: u32,
    /// Most bytes of a WRITE.
    pub max_write: u32,
}

/// The object whose attributes are asked for.
#[derive(Clone, Copy)]
pub(in crate::nfs4) struct Subject<'a> {
    /// Its attributes in the file system.
    pub attributes: &'a fs::Attributes,
    /// Its file system.
    pub fsid: FsId,
    /// Number of the directory on which its file system is mounted, for the root of one; else its own number.
    pub mounted_on: u64,
    /// Its handle.
    pub handle: &'a [u8],
    /// Limits and properties of the file system.
    pub abilities: &'a Abilities,
    /// The attributes that are supported.
    pub support: Support,
    /// Space of the file system. Without it the attributes that need it are left out.
    pub space: Option<Space>,
    /// Its access control lists. Without them `acl` is left out.
    pub acls: Option<&'a Acls>,
    /// Constants of the server.
    pub server: &'a ServerValues,
    /// `rdattr_error`. With an error only that and `mounted_on_fileid` are given; all else here has no meaning then.
    pub error: Result<(), Status>,
}

/// Writes those of the wanted attributes that are supported.
///
/// A list of access rights with more entries than a message may have is left out.
pub(in crate::nfs4) fn write_attributes(w: &mut Writer, wanted: &Bitmap, subject: &Subject<'_>) {
    if subject.error.is_ok() && usual::covers(wanted) {
        return usual::write(w, wanted, subject);
    }
    with_values(wanted, subject, |values| {
        write_fattr(w, wanted, |number| values.get(number));
    });
}

/// Whether all of these attributes have these values, for VERIFY and NVERIFY.
///
/// # Errors
///
/// `NFS4ERR_INVAL` for attributes that can only be set and `rdattr_error`, `NFS4ERR_ATTRNOTSUPP` for those that are not supported
/// or that the object does not have now (RFC 8881 §18.31.4). `NFS4ERR_BADXDR` for what are not values of these attributes,
/// `NFS4ERR_INVAL` for values that are not defined: bits of a mode (RFC 8881 §6.2.4), a second of too many nanoseconds.
pub(in crate::nfs4) fn same(fattr: &Fattr<'_>, subject: &Subject<'_>) -> Result<bool, Status> {
    let mask = fattr.mask();
    let is_refused = |number: AttributeNumber| {
        number.access() == AttributeAccess::W || number == AttributeNumber::RdattrError
    };
    if mask.iter().filter_map(AttributeNumber::new).any(is_refused) {
        return Err(Status::Invalid);
    }
    // Before any value is read: the form of values that are not supported does not matter.
    if !(mask - supported(subject.support)).is_empty() {
        return Err(Status::AttributeNotSupported);
    }
    with_values(&mask, subject, |values| {
        let mut all = true;
        for given in fattr.iter() {
            let given = given?;
            let held = values.get(given.number());
            let held = held.ok_or(Status::AttributeNotSupported)?;
            all &= is_same(given, held)?;
        }
        Ok(all)
    })
}

fn is_same(given: Attribute<'_>, held: Attribute<'_>) -> Result<bool, Status> {
    match (given, held) {
        (Attribute::Mode(mode), _) if mode & !fs::mode::ALL != 0 => Err(Status::Invalid),
        (
            Attribute::TimeAccess(time)
            | Attribute::TimeDelta(time)
            | Attribute::TimeMetadata(time)
            | Attribute::TimeModify(time),
            _,
        ) if time.nanoseconds >= SECOND => Err(Status::Invalid),
        // A user has several names.
        (Attribute::Owner(given), Attribute::Owner(held))
        | (Attribute::OwnerGroup(given), Attribute::OwnerGroup(held)) => {
            Ok(given == held
                || owners::parse(&given).is_ok_and(|id| owners::parse(&held) == Ok(id)))
        }
        (given, held) => Ok(given == held),
    }
}

/// Prepares the values that need memory of their own, as far as they are wanted.
fn with_values<T>(
    wanted: &Bitmap,
    subject: &Subject<'_>,
    with: impl FnOnce(&Values<'_>) -> T,
) -> T {
    let &fs::Attributes { uid, gid, .. } = subject.attributes;
    let (owner, group) = (Decimal::new(uid), Decimal::new(gid));
    let acls = subject
        .acls
        .filter(|_| subject.error.is_ok() && wanted.contains(AttributeNumber::Acl as u32));
    let is_directory = subject.attributes.is_directory();
    let entries = acls.map(|acls| Entries::of(acls, is_directory));
    let aces = entries.as_ref().map(Entries::aces);
    with(&Values {
        subject,
        owner: owner.as_bytes(),
        group: group.as_bytes(),
        acl: aces.as_deref().and_then(Acl::new),
    })
}

/// The values of an object.
struct Values<'a> {
    subject: &'a Subject<'a>,
    owner: &'a [u8],
    group: &'a [u8],
    acl: Option<Acl<'a>>,
}

impl<'a> Values<'a> {
    /// Returns an attribute, if it is supported.
    fn get(&self, number: AttributeNumber) -> Option<Attribute<'a>> {
        use AttributeNumber as A;
        let Subject {
            attributes: file,
            abilities,
            server,
            ref space,
            support,
            ..
        } = *self.subject;
        if self.subject.error.is_err() && !matches!(number, A::RdattrError | A::MountedOnFileId) {
            return None;
        }
        Some(match number {
            A::SupportedAttrs => Attribute::SupportedAttrs(supported(support)),
            A::Type => Attribute::Type(file_type(file.kind)),
            // Handles never expire (FH4_PERSISTENT, RFC 8881 §4.2.3).
            A::FhExpireType => Attribute::FhExpireType(0),
            A::Change => Attribute::Change(ChangeId(file.change)),
            A::Size => Attribute::Size(file.size),
            A::LinkSupport => Attribute::LinkSupport(abilities.max_links > 1),
            A::SymlinkSupport => Attribute::SymlinkSupport(true),
            A::NamedAttr => Attribute::NamedAttr(false),
            A::FsId => Attribute::FsId(self.subject.fsid),
            A::UniqueHandles => Attribute::UniqueHandles(true),
            A::LeaseTime => Attribute::LeaseTime(server.lease),
            A::RdattrError => Attribute::RdattrError(self.subject.error),
            A::Acl => Attribute::Acl(self.acl.filter(|_| support.acls)?),
            A::AclSupport if support.acls => {
                Attribute::AclSupport(AclSupport::ALLOW | AclSupport::DENY)
            }
            A::CanSetTime => Attribute::CanSetTime(true),
            A::CaseInsensitive => Attribute::CaseInsensitive(abilities.case_insensitive),
            A::CasePreserving => Attribute::CasePreserving(true),
            A::ChownRestricted => Attribute::ChownRestricted(true),
            A::FileHandle => Attribute::FileHandle(Handle::new(self.subject.handle)?),
            A::FileId => Attribute::FileId(FileId(file.fileid)),
            A::FilesAvail => Attribute::FilesAvail(space.as_ref()?.available_files),
            A::FilesFree => Attribute::FilesFree(space.as_ref()?.free_files),
            A::FilesTotal => Attribute::FilesTotal(space.as_ref()?.total_files),
            A::Homogeneous => Attribute::Homogeneous(true),
            A::MaxFileSize => Attribute::MaxFileSize(abilities.max_file_size),
            A::MaxLink => Attribute::MaxLink(abilities.max_links),
            A::MaxName => Attribute::MaxName(abilities.max_name),
            A::MaxRead => Attribute::MaxRead(server.max_read.into()),
            A::MaxWrite => Attribute::MaxWrite(server.max_write.into()),
            // RFC 8881 §6.2.4: no other bits.
            A::Mode => Attribute::Mode(file.mode & fs::mode::ALL),
            A::NoTrunc => Attribute::NoTrunc(true),
            A::NumLinks => Attribute::NumLinks(file.links),
            A::Owner => Attribute::Owner(Principal::new(self.owner)?),
            A::OwnerGroup => Attribute::OwnerGroup(Principal::new(self.group)?),
            A::RawDev => {
                let (major, minor) = file.device;
                Attribute::RawDev(Device { major, minor })
            }
            A::SpaceAvail => Attribute::SpaceAvail(space.as_ref()?.available),
            A::SpaceFree => Attribute::SpaceFree(space.as_ref()?.free),
            A::SpaceTotal => Attribute::SpaceTotal(space.as_ref()?.total),
            A::SpaceUsed => Attribute::SpaceUsed(file.used),
            A::TimeAccess => Attribute::TimeAccess(time(file.atime)),
            A::TimeDelta => Attribute::TimeDelta(Time {
                seconds: (abilities.time_step / SECOND).into(),
                nanoseconds: abilities.time_step % SECOND,
            }),
            A::TimeMetadata => Attribute::TimeMetadata(time(file.ctime)),
            A::TimeModify => Attribute::TimeModify(time(file.mtime)),
            A::MountedOnFileId => Attribute::MountedOnFileId(FileId(self.subject.mounted_on)),
            A::SuppAttrExclCreat => Attribute::SuppAttrExclCreat(of_exclusive(support)),
            A::FsCharsetCap => Attribute::FsCharsetCap(CONTAINS_NON_UTF8),
            A::CloneBlockSize if support.minor >= 2 && support.clones => {
                Attribute::CloneBlockSize(abilities.clone_block?.get())
            }
            A::XattrSupport if support.minor >= 2 => Attribute::XattrSupport(abilities.xattrs),
            // They are not supported, or can only be set.
            _ => return None,
        })
    }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::Regular,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::Block,
        FileKind::CharacterDevice => FileType::Character,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
        FileKind::Fifo => FileType::Fifo,
    }
}

fn time(time: fs::Time) -> Time {
    Time {
        seconds: time.seconds,
        nanoseconds: time.nanos,
    }
}
